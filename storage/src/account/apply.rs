//! What each recorded change does to an account's state.
//!
//! Deterministic: the result depends on the state and the commit's number alone. A change that fails leaves the state
//! as it was: what it needs is checked before anything is touched, and the rare changes of the mailbox list are tried
//! on a copy.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::change::{Change, NewMailbox};
use super::state::{Applied, DELIVERIES_MAX, Delivered, Needed, corrupt};
use super::{AccountState, Counts, Entry, FlagChange, Flags, Mailbox, MailboxId, Role, Slot, Slots, Uid, UidSet};
use crate::group::Seq;

impl AccountState {
    /// Applies one change of the commit `seq`.
    pub(super) fn apply(&mut self, seq: Seq, change: &Change) -> Applied {
        match change {
            Change::Create { at_secs, mailboxes } => self
                .attempt(|state| mailboxes.iter().try_for_each(|mailbox| state.apply_create(seq, *at_secs, mailbox))),
            Change::Delete { at_secs, mailbox } => self.attempt(|state| state.apply_delete(seq, *at_secs, *mailbox)),
            Change::Rename { mailbox, to } => self.attempt(|state| state.apply_rename(*mailbox, to)),
            Change::Subscribe { name, on } => self.apply_subscribe(name, *on),
            Change::Append { .. } => self.apply_append(seq, change),
            Change::Store { mailbox, uids, change, flags, keywords } => {
                self.apply_store(seq, *mailbox, uids, *change, *flags, keywords)
            }
            Change::Expunge { at_secs, mailbox, uids } => self.apply_expunge(seq, *at_secs, *mailbox, uids),
            Change::Copy { from, to, uids } => self.apply_copy(seq, *from, *to, uids),
            Change::Move { from, to, uids } => self.apply_move(seq, *from, *to, uids),
            Change::Quota { bytes } => {
                self.quota_bytes = *bytes;
                Ok(())
            }
            Change::Recent { mailbox, from } => {
                let mailbox = self.mailbox_mut(*mailbox)?;
                // Two nodes may claim in either order: it only rises.
                mailbox.recent_from = mailbox.recent_from.max(*from).min(mailbox.uid_next);
                Ok(())
            }
            Change::Swept { graves } => {
                Arc::make_mut(&mut self.graves).retain(|grave| !graves.contains(&grave.number));
                Ok(())
            }
            Change::Join { mailbox, first, last } => self.apply_join(*mailbox, *first, *last),
        }?;
        self.seq = seq;
        Ok(())
    }

    fn attempt(&mut self, change: impl FnOnce(&mut Self) -> Applied) -> Applied {
        let mut copy = self.clone();
        change(&mut copy)?;
        *self = copy;
        Ok(())
    }

    fn apply_create(&mut self, seq: Seq, at_secs: u32, new: &NewMailbox) -> Applied {
        let mut subscribed = new.subscribed;
        if let Some(id) = self.names.get(&*new.name).copied() {
            let old = self.mailbox(id)?;
            if old.selectable {
                return Err(corrupt("a mailbox is made twice"));
            }
            subscribed |= old.subscribed;
            Arc::make_mut(&mut self.mailboxes).remove(&id);
        }
        if new.role.is_some_and(|role| self.mailboxes.values().any(|mailbox| mailbox.role == Some(role))) {
            return Err(corrupt("two mailboxes of one role"));
        }
        subscribed |= Arc::make_mut(&mut self.orphan_subscriptions).remove(&*new.name);
        let mut mailbox = self.fresh(seq, at_secs, &new.name)?;
        (mailbox.role, mailbox.subscribed) = (new.role, subscribed);
        self.insert(mailbox);
        Ok(())
    }

    /// A mailbox under an id and a uidvalidity that were never used before.
    fn fresh(&mut self, seq: Seq, at_secs: u32, name: &str) -> Applied<Mailbox> {
        let uid_validity = at_secs.max(self.uid_validity_max.saturating_add(1));
        if self.uid_validity_max == u32::MAX {
            return Err(corrupt("no uidvalidity is left"));
        }
        self.uid_validity_max = uid_validity;
        let id = MailboxId(self.mailbox_next);
        self.mailbox_next = id.0.checked_add(1).ok_or_else(|| corrupt("no mailbox id is left"))?;
        Ok(Mailbox::new(id, name, NonZeroU32::new(uid_validity).unwrap_or(NonZeroU32::MIN), seq))
    }

    fn insert(&mut self, mailbox: Mailbox) {
        Arc::make_mut(&mut self.names).insert(mailbox.name.clone(), mailbox.id);
        Arc::make_mut(&mut self.mailboxes).insert(mailbox.id, Arc::new(mailbox));
    }

    fn apply_delete(&mut self, seq: Seq, at_secs: u32, id: MailboxId) -> Applied {
        let mailbox = self.mailbox(id)?.clone();
        if &*mailbox.name == "INBOX" {
            return Err(corrupt("the inbox is deleted"));
        }
        self.used = self.used.minus(mailbox.counts);
        for slot in mailbox.slots.iter() {
            self.bury_slot(at_secs, slot.clone())?;
        }
        Arc::make_mut(&mut self.mailboxes).remove(&id);
        Arc::make_mut(&mut self.names).remove(&mailbox.name);
        if self.has_children(&mailbox.name) {
            // RFC 3501 §6.3.4: the name stays for its children's sake, and holds nothing.
            let mut husk = self.fresh(seq, at_secs, &mailbox.name)?;
            (husk.selectable, husk.subscribed) = (false, mailbox.subscribed);
            self.insert(husk);
        } else if mailbox.subscribed {
            // RFC 3501 §6.3.6: a subscription outlives its mailbox.
            Arc::make_mut(&mut self.orphan_subscriptions).insert(mailbox.name.clone());
        }
        Ok(())
    }

    fn apply_rename(&mut self, id: MailboxId, to: &str) -> Applied {
        let from = self.mailbox(id)?.name.clone();
        let moved: Vec<_> = self.below(&from).map(|(_, id)| id).chain([id]).collect();
        for id in moved {
            let old = self.mailbox(id)?.name.clone();
            let new: Arc<str> = format!("{to}{}", &old[from.len()..]).into();
            let names = Arc::make_mut(&mut self.names);
            names.remove(&old);
            if names.insert(new.clone(), id).is_some() {
                return Err(corrupt("two mailboxes of one name"));
            }
            let subscribed = Arc::make_mut(&mut self.orphan_subscriptions).remove(&new);
            let mailbox = self.mailbox_mut(id)?;
            mailbox.name = new;
            mailbox.subscribed |= subscribed;
        }
        Ok(())
    }

    fn apply_subscribe(&mut self, name: &str, on: bool) -> Applied {
        match self.names.get(name).copied() {
            Some(id) => self.mailbox_mut(id)?.subscribed = on,
            None if on => _ = Arc::make_mut(&mut self.orphan_subscriptions).insert(name.into()),
            None => _ = Arc::make_mut(&mut self.orphan_subscriptions).remove(name),
        }
        Ok(())
    }

    fn apply_append(&mut self, seq: Seq, change: &Change) -> Applied {
        let Change::Append { mailbox, email, size, thread, flags, keywords, delivery } = change else { return Ok(()) };
        let (id, chunk_max) = (*mailbox, self.chunk_max);
        let mailbox = self.mailbox(id)?;
        let uid = mailbox.uid_next;
        if uid.get() == u32::MAX {
            return Err(corrupt("more messages than uids"));
        }
        let mut needed = Needed::default();
        mailbox.need_tail(chunk_max, &mut needed);
        needed.check()?;
        check_keywords(mailbox, keywords)?;
        let entry = Entry { uid, size: *size, modseq: seq, flags: *flags, email: *email, thread: *thread };
        let mailbox = self.mailbox_mut(id)?;
        add_keywords(mailbox, keywords);
        mailbox.push(entry, chunk_max)?;
        self.used.add(&entry);
        if let Some(delivery) = delivery {
            let deliveries = Arc::make_mut(&mut self.deliveries);
            if deliveries.len() >= DELIVERIES_MAX {
                deliveries.pop_front();
            }
            deliveries.push_back(Delivered { id: *delivery, mailbox: id, uid, email: *email });
        }
        Ok(())
    }

    fn apply_store(
        &mut self,
        seq: Seq,
        id: MailboxId,
        uids: &UidSet,
        change: FlagChange,
        flags: Flags,
        keywords: &[String],
    ) -> Applied {
        let mailbox = self.mailbox(id)?;
        let mut needed = Needed::default();
        mailbox.need(uids, &mut needed);
        needed.check()?;
        check_keywords(mailbox, keywords)?;
        let mailbox = self.mailbox_mut(id)?;
        add_keywords(mailbox, keywords);
        let before = mailbox.counts;
        mailbox.update(seq, uids, |entry| {
            let new = changed(entry.flags, change, flags);
            std::mem::replace(&mut entry.flags, new) != new
        })?;
        let after = mailbox.counts;
        self.used = self.used.minus(before).plus(after);
        Ok(())
    }

    fn apply_expunge(&mut self, seq: Seq, at_secs: u32, id: MailboxId, uids: &UidSet) -> Applied {
        let mut needed = Needed::default();
        self.mailbox(id)?.need(uids, &mut needed);
        self.need_grave(at_secs, &mut needed);
        needed.check()?;
        let removed = self.mailbox_mut(id)?.remove(seq, uids)?;
        removed.iter().for_each(|entry| self.used.remove(entry));
        self.bury(at_secs, removed)
    }

    fn apply_copy(&mut self, seq: Seq, from: MailboxId, to: MailboxId, uids: &UidSet) -> Applied {
        let entries = self.transferred(from, to, uids)?;
        // Both places must be looked for before the row is deleted; no client sees this mark.
        self.mailbox_mut(from)?.update(seq, uids, |entry| {
            entry.flags = entry.flags.union(Flags::SHARED);
            false
        })?;
        self.land(seq, from, to, entries, Flags::SHARED)
    }

    fn apply_move(&mut self, seq: Seq, from: MailboxId, to: MailboxId, uids: &UidSet) -> Applied {
        let entries = self.transferred(from, to, uids)?;
        let removed = self.mailbox_mut(from)?.remove(seq, uids)?;
        removed.iter().for_each(|entry| self.used.remove(entry));
        self.land(seq, from, to, entries, Flags::default())
    }

    /// The entries a copy or move takes along, after a check that it can be carried out.
    fn transferred(&self, from: MailboxId, to: MailboxId, uids: &UidSet) -> Applied<Vec<Entry>> {
        let entries = self.mailbox(from)?.entries(uids)?;
        let target = self.mailbox(to)?;
        let mut needed = Needed::default();
        target.need_tail(self.chunk_max, &mut needed);
        if from == to {
            // A move within a mailbox may empty its last chunks and then adds to the one before.
            let before = target.touched(uids).into_iter().filter_map(|at| at.checked_sub(1));
            before.for_each(|at| needed.slot(&target.slots[at]));
        }
        needed.check()?;
        if ((u32::MAX - target.uid_next.get()) as usize) < entries.len() {
            return Err(corrupt("more messages than uids"));
        }
        Ok(entries)
    }

    /// Adds entries of mailbox `from` to `to` under new uids. Keywords are matched by name; those for which the target
    /// has no bit left are dropped: a full table must not keep a message from being moved to the trash.
    fn land(&mut self, seq: Seq, from: MailboxId, to: MailboxId, entries: Vec<Entry>, mark: Flags) -> Applied {
        let worn = entries.iter().fold(0, |bits, entry| bits | entry.flags.0);
        let names = self.mailbox(from)?.keywords.clone();
        let chunk_max = self.chunk_max;
        let target = self.mailbox_mut(to)?;
        let mut bits = Vec::new();
        for (index, name) in names.iter().enumerate().filter(|(index, _)| worn & Flags::keyword(*index).0 != 0) {
            if target.keyword(name).is_none() && target.keywords.len() < Flags::KEYWORDS_MAX {
                Arc::make_mut(&mut target.keywords).push(name.clone());
            }
            bits.push((Flags::keyword(index), target.keyword(name).unwrap_or_default()));
        }
        let mut landed = Counts::default();
        for mut entry in entries {
            let own = Flags(entry.flags.0 & (SYSTEM.0 | Flags::SHARED.0)).union(mark);
            let kept = bits.iter().filter(|(bit, _)| entry.flags.contains(*bit));
            entry.flags = kept.fold(own, |flags, (_, bit)| flags.union(*bit));
            (entry.uid, entry.modseq) = (target.uid_next, seq);
            target.push(entry, chunk_max)?;
            landed.add(&entry);
        }
        self.used = self.used.plus(landed);
        Ok(())
    }

    fn apply_join(&mut self, id: MailboxId, first: Uid, last: Uid) -> Applied {
        let mailbox = self.mailbox(id)?;
        let from = mailbox.slots.partition_point(|slot| slot.first < first);
        let upto = mailbox.slots.partition_point(|slot| slot.last <= last).max(from);
        let joined = &mailbox.slots[from..upto];
        let total: usize = joined.iter().map(|slot| slot.counts.messages as usize).sum();
        // The mailbox may have changed since this was decided by a slower node: then there is nothing to do.
        if joined.len() < 2 || total > self.chunk_max {
            return Ok(());
        }
        let mut needed = Needed::default();
        joined.iter().for_each(|slot| needed.slot(slot));
        needed.check()?;
        let chunks: Vec<_> = joined.iter().filter_map(|slot| slot.resident()).collect();
        let entries: Vec<_> = chunks.iter().flat_map(|chunk| chunk.entries.iter().copied()).collect();
        let (first, last) = (joined[0].first, joined[joined.len() - 1].last);
        joined.iter().for_each(|slot| slot.replace());
        let mailbox = self.mailbox_mut(id)?;
        Slots::edit(&mut mailbox.slots).splice(from..upto, [Arc::new(Slot::new(id, first, last, entries))]);
        Ok(())
    }
}

/// The flags that are not keywords and that clients may set.
pub(super) const SYSTEM: Flags = Flags(31);

/// Flags after a STORE; marks of our own are not for clients to change.
pub(super) fn changed(old: Flags, change: FlagChange, flags: Flags) -> Flags {
    let internal = old.without(old.public());
    let flags = flags.public();
    internal.union(match change {
        FlagChange::Replace => flags,
        FlagChange::Add => old.public().union(flags),
        FlagChange::Remove => old.public().without(flags),
    })
}

fn check_keywords(mailbox: &Mailbox, new: &[String]) -> Applied {
    let fits = mailbox.keywords.len() + new.len() <= Flags::KEYWORDS_MAX;
    if fits { Ok(()) } else { Err(corrupt("more keywords than bits")) }
}

fn add_keywords(mailbox: &mut Mailbox, new: &[String]) {
    if !new.is_empty() {
        Arc::make_mut(&mut mailbox.keywords).extend(new.iter().map(|name| Arc::from(&**name)));
    }
}

/// The mailboxes every account begins with.
pub(super) fn first_mailboxes() -> Vec<NewMailbox> {
    let roles = [
        ("INBOX", Role::Inbox),
        ("Drafts", Role::Drafts),
        ("Sent", Role::Sent),
        ("Junk", Role::Junk),
        ("Trash", Role::Trash),
        ("Archive", Role::Archive),
    ];
    let made = |(name, role): (&str, _)| NewMailbox { name: name.to_owned(), role: Some(role), subscribed: true };
    roles.into_iter().map(made).collect()
}
