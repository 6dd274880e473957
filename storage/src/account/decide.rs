//! What an operation asked by a client or a delivery comes to: the changes to record, or why it is refused.
//!
//! Pure functions over a state; they run again over a newer one when another writer was faster. No changes = the state
//! is already as asked, and nothing is committed.

use std::sync::Arc;

use super::apply::{SYSTEM, changed, first_mailboxes};
use super::change::{Change, DeliveryId, NewMailbox};
use super::name::{MAILBOXES_MAX, canonical, is_keyword, parents};
use super::state::{Missing, picked};
use super::{AccountError, AccountState, FlagChange, FlagNames, Flags, Mailbox, MailboxId, Role, Stored, Uid, UidSet};
use crate::group::{Halt, Seq};
use crate::message::{EmailId, ThreadId};

/// What to record, and what to tell the caller if it is.
pub(super) type Decided<T = ()> = Result<(Vec<Change>, T), Halt<AccountError, Missing>>;

/// Most uids that are listed as missing.
const MISSING_MAX: usize = 1_000;

fn refuse<T>(error: AccountError) -> Result<T, Halt<AccountError, Missing>> {
    Err(Halt::Refused(error))
}

fn canonical_name(name: &str) -> Result<String, Halt<AccountError, Missing>> {
    canonical(name).map_err(Halt::Refused)
}

/// A message to be added.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) email: EmailId,
    pub(super) size: u32,
    pub(super) thread: ThreadId,
    pub(super) flags: FlagNames,
    pub(super) delivery: Option<DeliveryId>,
}

/// Where a message is or will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) uid_validity: std::num::NonZeroU32,
    pub(super) uid: Uid,
    pub(super) email: EmailId,
}

impl AccountState {
    /// The first commit of an account.
    pub(super) fn decide_first(&self, at_secs: u32, quota_bytes: u64) -> Decided {
        if !self.mailboxes.is_empty() {
            return Ok((Vec::new(), ()));
        }
        let mut changes = vec![Change::Create { at_secs, mailboxes: first_mailboxes() }];
        if quota_bytes > 0 {
            changes.push(Change::Quota { bytes: quota_bytes });
        }
        Ok((changes, ()))
    }

    pub(super) fn decide_append(&self, id: MailboxId, items: &[Item]) -> Decided<Vec<Place>> {
        let mailbox = self.selectable(id)?;
        let mut new = KeywordTable::of(mailbox);
        let mut next = mailbox.uid_next;
        let (mut changes, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        for item in items {
            let known = item.delivery.and_then(|id| self.deliveries.iter().find(|done| done.id == id));
            if let Some(done) = known {
                // Carried out before: the answer is the same, wherever the message is now.
                let home = self.mailboxes.get(&done.mailbox).unwrap_or(mailbox);
                places.push(Place { uid_validity: home.uid_validity, uid: done.uid, email: done.email });
                continue;
            }
            bytes += u64::from(item.size);
            let flags = new.bits(&item.flags)?;
            places.push(Place { uid_validity: mailbox.uid_validity, uid: next, email: item.email });
            next = after(next)?;
            changes.push(Change::Append {
                mailbox: id,
                email: item.email,
                size: item.size,
                thread: item.thread,
                flags,
                keywords: new.take_new(),
                delivery: item.delivery,
            });
        }
        self.has_room(bytes)?;
        Ok((changes, places))
    }

    /// Refuses what would go over the quota.
    pub(super) fn has_room(&self, bytes: u64) -> Result<(), Halt<AccountError, Missing>> {
        let (used, quota) = (self.used.bytes, self.quota_bytes);
        if quota > 0 && bytes > 0 && used.saturating_add(bytes) > quota {
            return refuse(AccountError::OverQuota { used, quota });
        }
        Ok(())
    }

    pub(super) fn decide_store(
        &self,
        id: MailboxId,
        uids: &UidSet,
        change: FlagChange,
        flags: &FlagNames,
        unchanged_since: Option<Seq>,
    ) -> Decided<Stored> {
        let mailbox = self.selectable(id)?;
        let mut table = KeywordTable::of(mailbox);
        let flags = match change {
            FlagChange::Remove => table.known_bits(flags),
            FlagChange::Add | FlagChange::Replace => table.bits(flags)?,
        };
        let mut stored = Stored::default();
        let mut differs = UidSet::default();
        let mut missing = Vec::new();
        let mut expected = Expected::new(uids);
        for at in mailbox.touched(uids) {
            let Some(chunk) = mailbox.slots[at].resident() else {
                missing.push(mailbox.slots[at].clone());
                continue;
            };
            for index in picked(&chunk.entries, uids) {
                let entry = &chunk.entries[index];
                expected.found(entry.uid);
                if unchanged_since.is_some_and(|since| entry.modseq > since) {
                    stored.modified.push(entry.uid);
                } else if changed(entry.flags, change, flags) != entry.flags {
                    differs.push(entry.uid);
                }
            }
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(Missing(missing)));
        }
        stored.missing = expected.rest();
        if differs.is_empty() {
            return Ok((Vec::new(), stored));
        }
        Ok((vec![Change::Store { mailbox: id, uids: differs, change, flags, keywords: table.take_new() }], stored))
    }

    /// A copy or a move: `(old, new)` uids.
    pub(super) fn decide_transfer(
        &self,
        from: MailboxId,
        uids: &UidSet,
        to: MailboxId,
        moving: bool,
    ) -> Decided<Vec<(Uid, Uid)>> {
        let target = self.selectable(to)?;
        let entries = self.selectable(from)?.entries(uids)?;
        if entries.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        if !moving {
            self.has_room(entries.iter().map(|entry| u64::from(entry.size)).sum())?;
        }
        let mut next = target.uid_next;
        let mut pairs = Vec::with_capacity(entries.len());
        for entry in &entries {
            pairs.push((entry.uid, next));
            next = after(next)?;
        }
        let uids = entries.iter().map(|entry| entry.uid).collect();
        Ok((vec![if moving { Change::Move { from, to, uids } } else { Change::Copy { from, to, uids } }], pairs))
    }

    pub(super) fn decide_expunge(&self, at_secs: u32, id: MailboxId, only: Option<&UidSet>) -> Decided<Vec<Uid>> {
        let mailbox = self.selectable(id)?;
        let everything = UidSet(vec![(Uid(std::num::NonZeroU32::MIN), Uid(std::num::NonZeroU32::MAX))]);
        let only = only.unwrap_or(&everything);
        let (mut gone, mut missing) = (Vec::new(), Vec::new());
        for at in mailbox.touched(only) {
            let slot = &mailbox.slots[at];
            if slot.counts.deleted == 0 {
                continue;
            }
            match slot.resident() {
                Some(chunk) => gone.extend(
                    picked(&chunk.entries, only)
                        .map(|index| &chunk.entries[index])
                        .filter(|entry| entry.flags.contains(Flags::DELETED))
                        .map(|entry| entry.uid),
                ),
                None => missing.push(slot.clone()),
            }
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(Missing(missing)));
        }
        if gone.is_empty() {
            return Ok((Vec::new(), gone));
        }
        let uids = gone.iter().copied().collect();
        Ok((vec![Change::Expunge { at_secs, mailbox: id, uids }], gone))
    }

    /// Makes a mailbox and those above it that do not exist.
    pub(super) fn decide_create(&self, at_secs: u32, name: &str, role: Option<Role>) -> Decided<MailboxId> {
        // RFC 3501 §6.3.3: a trailing separator only says that names below will be made.
        let name = canonical_name(name.strip_suffix('/').unwrap_or(name))?;
        if self.names.get(&*name).and_then(|id| self.mailboxes.get(id)).is_some_and(|mailbox| mailbox.selectable) {
            return refuse(AccountError::MailboxExists);
        }
        if let Some(role) = role
            && self.by_role(role).is_some()
        {
            return refuse(AccountError::RoleTaken(role));
        }
        let mut mailboxes = self.missing_parents(&name);
        mailboxes.push(NewMailbox { name, role, subscribed: false });
        self.fits(mailboxes.len())?;
        let id = MailboxId(self.mailbox_next + mailboxes.len() as u32 - 1);
        Ok((vec![Change::Create { at_secs, mailboxes }], id))
    }

    fn missing_parents(&self, name: &str) -> Vec<NewMailbox> {
        let missing = parents(name).filter(|parent| !self.names.contains_key(*parent));
        missing.map(|parent| NewMailbox { name: parent.to_owned(), role: None, subscribed: false }).collect()
    }

    fn fits(&self, more: usize) -> Result<(), Halt<AccountError, Missing>> {
        if self.mailboxes.len() + more > MAILBOXES_MAX {
            return refuse(AccountError::TooMany { what: "mailboxes", max: MAILBOXES_MAX });
        }
        Ok(())
    }

    pub(super) fn decide_delete(&self, at_secs: u32, name: &str) -> Decided {
        let mailbox = self.named(name)?;
        if &*mailbox.name == "INBOX" {
            return refuse(AccountError::Inbox);
        }
        if !mailbox.selectable && self.has_children(&mailbox.name) {
            return refuse(AccountError::HasChildren);
        }
        Ok((vec![Change::Delete { at_secs, mailbox: mailbox.id }], ()))
    }

    pub(super) fn decide_rename(&self, at_secs: u32, from: &str, to: &str) -> Decided {
        let mailbox = self.named(from)?;
        let to = canonical_name(to.strip_suffix('/').unwrap_or(to))?;
        if self.names.contains_key(&*to) {
            return refuse(AccountError::MailboxExists);
        }
        let mut mailboxes = self.missing_parents(&to);
        if &*mailbox.name == "INBOX" {
            // RFC 3501 §6.3.5: the inbox stays, its messages move to a new mailbox, names below it are left alone.
            mailboxes.push(NewMailbox { name: to, role: None, subscribed: false });
            self.fits(mailboxes.len())?;
            let target = MailboxId(self.mailbox_next + mailboxes.len() as u32 - 1);
            let mut changes = vec![Change::Create { at_secs, mailboxes }];
            if let (Some(first), Some(last)) = (mailbox.slots.first(), mailbox.slots.last()) {
                let uids = UidSet(vec![(first.first, last.last)]);
                changes.push(Change::Move { from: mailbox.id, to: target, uids });
            }
            return Ok((changes, ()));
        }
        if to.strip_prefix(&*mailbox.name).is_some_and(|rest| rest.starts_with('/')) {
            return refuse(AccountError::BadName("a mailbox cannot be moved below itself"));
        }
        for (below, _) in self.below(&mailbox.name) {
            canonical_name(&format!("{to}{}", &below[mailbox.name.len()..]))?;
        }
        self.fits(mailboxes.len())?;
        let mut changes = Vec::new();
        if !mailboxes.is_empty() {
            changes.push(Change::Create { at_secs, mailboxes });
        }
        changes.push(Change::Rename { mailbox: mailbox.id, to });
        Ok((changes, ()))
    }

    pub(super) fn decide_subscribe(&self, name: &str, on: bool) -> Decided {
        let name = canonical_name(name)?;
        let now = match self.by_name(&name) {
            Some(mailbox) => mailbox.subscribed,
            None => self.orphan_subscriptions.contains(&*name),
        };
        if now == on {
            return Ok((Vec::new(), ()));
        }
        if on && self.orphan_subscriptions.len() >= MAILBOXES_MAX {
            return refuse(AccountError::TooMany { what: "subscriptions", max: MAILBOXES_MAX });
        }
        Ok((vec![Change::Subscribe { name, on }], ()))
    }

    pub(super) fn decide_quota(&self, bytes: u64) -> Decided {
        let changes = if self.quota_bytes == bytes { Vec::new() } else { vec![Change::Quota { bytes }] };
        Ok((changes, ()))
    }

    pub(super) fn decide_recent(&self, id: MailboxId, from: Uid) -> Decided {
        let stale = self.mailboxes.get(&id).is_some_and(|mailbox| mailbox.recent_from < from);
        Ok((if stale { vec![Change::Recent { mailbox: id, from }] } else { Vec::new() }, ()))
    }

    fn named(&self, name: &str) -> Result<&Arc<Mailbox>, Halt<AccountError, Missing>> {
        self.by_name(name).ok_or(Halt::Refused(AccountError::NoMailbox))
    }

    fn selectable(&self, id: MailboxId) -> Result<&Arc<Mailbox>, Halt<AccountError, Missing>> {
        let mailbox = self.mailboxes.get(&id).filter(|mailbox| mailbox.selectable);
        mailbox.ok_or(Halt::Refused(AccountError::NoMailbox))
    }
}

fn after(uid: Uid) -> Result<Uid, Halt<AccountError, Missing>> {
    // The last number is never given: `*` and open ranges end there.
    match Uid::new(uid.get().wrapping_add(1)) {
        Some(next) => Ok(next),
        None => refuse(AccountError::TooMany { what: "messages in one mailbox", max: u32::MAX as usize - 1 }),
    }
}

/// A mailbox's keywords and those about to be added.
struct KeywordTable<'a> {
    mailbox: &'a Mailbox,
    added: Vec<String>,
    taken: usize,
}

impl<'a> KeywordTable<'a> {
    fn of(mailbox: &'a Mailbox) -> Self {
        Self { mailbox, added: Vec::new(), taken: 0 }
    }

    fn bit(&self, name: &str) -> Option<Flags> {
        let old = self.mailbox.keywords.len();
        let added = || self.added.iter().position(|added| added.eq_ignore_ascii_case(name));
        self.mailbox.keyword(name).or_else(|| added().map(|at| Flags::keyword(old + at)))
    }

    /// The bits of `flags`; keywords not seen before get one.
    fn bits(&mut self, flags: &FlagNames) -> Result<Flags, Halt<AccountError, Missing>> {
        let mut bits = Flags(flags.system.0 & SYSTEM.0);
        for name in &flags.keywords {
            if self.bit(name).is_none() {
                if !is_keyword(name) {
                    return refuse(AccountError::BadKeyword);
                }
                if self.mailbox.keywords.len() + self.added.len() >= Flags::KEYWORDS_MAX {
                    return refuse(AccountError::TooMany { what: "keywords in a mailbox", max: Flags::KEYWORDS_MAX });
                }
                self.added.push(name.clone());
            }
            bits = bits.union(self.bit(name).unwrap_or_default());
        }
        Ok(bits)
    }

    fn known_bits(&self, flags: &FlagNames) -> Flags {
        let system = Flags(flags.system.0 & SYSTEM.0);
        flags.keywords.iter().filter_map(|name| self.bit(name)).fold(system, Flags::union)
    }

    /// Those added since this was last asked.
    fn take_new(&mut self) -> Vec<String> {
        let new = self.added[self.taken..].to_vec();
        self.taken = self.added.len();
        new
    }
}

/// Tells which uids asked for were not found, given those that were, rising.
struct Expected<'a> {
    ranges: std::slice::Iter<'a, (Uid, Uid)>,
    range: Option<(u32, u32)>,
    missing: Vec<Uid>,
}

impl<'a> Expected<'a> {
    fn new(uids: &'a UidSet) -> Self {
        let mut expected = Self { ranges: uids.0.iter(), range: None, missing: Vec::new() };
        expected.next_range();
        expected
    }

    fn next_range(&mut self) {
        self.range = self.ranges.next().map(|(first, last)| (first.get(), last.get()));
    }

    fn found(&mut self, uid: Uid) {
        while let Some((from, last)) = self.range {
            let upto = last.min(uid.get() - 1);
            self.miss(from, upto);
            if uid.get() < last {
                self.range = Some((from.max(uid.get() + 1), last));
                return;
            }
            self.next_range();
            if uid.get() == last {
                return;
            }
        }
    }

    fn rest(mut self) -> Vec<Uid> {
        while let Some((from, last)) = self.range {
            self.miss(from, last);
            self.next_range();
        }
        self.missing
    }

    fn miss(&mut self, from: u32, upto: u32) {
        let room = MISSING_MAX - self.missing.len();
        self.missing.extend((from..=upto).take(room).filter_map(Uid::new));
    }
}
