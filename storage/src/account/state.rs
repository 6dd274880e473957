//! What an account's state answers, and how its parts are changed: copy on write, one chunk at a time.
//!
//! Owns the arithmetic of chunks and counts. Which change does what is in `apply`; what clients may do in `decide`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::change::DeliveryId;
use super::{AccountState, Counts, Entry, Flags, Mailbox, MailboxId, Role, Slot, Slots, Uid, UidSet, name};
use crate::group::{Halt, Seq};
use crate::message::EmailId;

/// Most entries of one chunk.
pub(super) const CHUNK_MAX: usize = 1_024;
/// Deliveries to several accounts that are remembered, so that repeating one is harmless.
pub(super) const DELIVERIES_MAX: usize = 256;
/// Messages expunged within this time share a grave.
const GRAVE_SPAN_SECS: u32 = 600;

/// Slots whose entries are needed and not in memory.
#[derive(Debug)]
pub(crate) struct Missing(pub(super) Vec<Arc<Slot>>);

/// Why a change cannot be applied (now).
pub(super) type Applied<T = ()> = Result<T, Halt<Infallible, Missing>>;

/// Expunged messages whose rows wait to be deleted.
#[derive(Debug, Clone)]
pub(super) struct Grave {
    pub(super) number: NonZeroU32,
    /// When the first of them was expunged, seconds since 1970.
    pub(super) since_secs: u32,
    /// When the last was.
    pub(super) until_secs: u32,
    /// The entries they had.
    pub(super) slot: Arc<Slot>,
}

/// A delivery that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) id: DeliveryId,
    pub(super) mailbox: MailboxId,
    pub(super) uid: Uid,
    pub(super) email: EmailId,
}

impl AccountState {
    /// The mailbox of that name; the inbox's in any case of its letters.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Mailbox>> {
        let id = match self.names.get(name) {
            Some(id) => id,
            None => self.names.get(&*name::canonical(name).ok()?)?,
        };
        self.mailboxes.get(id)
    }

    /// The mailbox of that special use.
    pub fn by_role(&self, role: Role) -> Option<&Arc<Mailbox>> {
        if role == Role::Inbox {
            return self.by_name("INBOX");
        }
        self.mailboxes.values().find(|mailbox| mailbox.role == Some(role))
    }

    /// All mailboxes by name, sorted as bytes.
    pub fn by_names(&self) -> impl Iterator<Item = &Arc<Mailbox>> {
        self.names.values().filter_map(|id| self.mailboxes.get(id))
    }

    /// True if there are mailboxes below that name.
    pub fn has_children(&self, name: &str) -> bool {
        self.below(name).next().is_some()
    }

    pub(super) fn below(&self, name: &str) -> impl Iterator<Item = (&Arc<str>, MailboxId)> {
        let prefix = format!("{name}/");
        let from = (std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded);
        let names = self.names.range::<str, _>(from).map(|(name, id)| (name, *id));
        names.take_while(move |(name, _)| name.starts_with(&prefix))
    }

    /// An account nobody ever changed.
    pub(super) fn empty(chunk_max: usize) -> Self {
        Self {
            seq: 0,
            mailboxes: Arc::new(BTreeMap::new()),
            orphan_subscriptions: Arc::new(BTreeSet::new()),
            used: Counts::default(),
            quota_bytes: 0,
            names: Arc::new(BTreeMap::new()),
            mailbox_next: 1,
            uid_validity_max: 0,
            graves: Arc::new(Vec::new()),
            grave_next: NonZeroU32::MIN,
            deliveries: Arc::new(VecDeque::new()),
            chunk_max,
        }
    }

    pub(super) fn mailbox(&self, id: MailboxId) -> Applied<&Arc<Mailbox>> {
        self.mailboxes.get(&id).ok_or_else(|| corrupt("a change to a mailbox that does not exist"))
    }

    pub(super) fn mailbox_mut(&mut self, id: MailboxId) -> Applied<&mut Mailbox> {
        let mailbox = Arc::make_mut(&mut self.mailboxes).get_mut(&id);
        mailbox.map(Arc::make_mut).ok_or_else(|| corrupt("a change to a mailbox that does not exist"))
    }

    /// The grave that `count` more messages expunged now go to, if it has room.
    fn open_grave(&self, now_secs: u32) -> Option<&Grave> {
        self.graves.last().filter(|grave| {
            let young = now_secs.saturating_sub(grave.since_secs) <= GRAVE_SPAN_SECS;
            young && grave.slot.home == MailboxId(0) && (grave.slot.counts.messages as usize) < self.chunk_max
        })
    }

    /// What must be in memory before messages are expunged.
    pub(super) fn need_grave(&self, now_secs: u32, needed: &mut Needed) {
        if let Some(grave) = self.open_grave(now_secs) {
            needed.slot(&grave.slot);
        }
    }

    /// Dooms the rows of these messages.
    pub(super) fn bury(&mut self, now_secs: u32, mut entries: Vec<Entry>) -> Applied {
        if entries.is_empty() {
            return Ok(());
        }
        if self.open_grave(now_secs).is_some() {
            let chunk_max = self.chunk_max;
            if let Some(grave) = Arc::make_mut(&mut self.graves).last_mut() {
                let (chunk, counts, _, _) = Slot::edit(&mut grave.slot).ok_or_else(gone)?;
                let room = chunk_max.saturating_sub(chunk.entries.len()).min(entries.len());
                for entry in entries.drain(..room) {
                    counts.add(&entry);
                    chunk.entries.push(entry);
                }
                grave.until_secs = grave.until_secs.max(now_secs);
            }
        }
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(self.chunk_max));
            let number = self.next_grave()?;
            let slot = Slot::new(MailboxId(0), Uid(number), Uid(number), std::mem::replace(&mut entries, rest));
            self.dig(number, now_secs, Arc::new(slot));
        }
        Ok(())
    }

    /// Dooms the rows of a whole chunk as it is.
    pub(super) fn bury_slot(&mut self, now_secs: u32, slot: Arc<Slot>) -> Applied {
        let number = self.next_grave()?;
        self.dig(number, now_secs, slot);
        Ok(())
    }

    fn next_grave(&mut self) -> Applied<NonZeroU32> {
        let number = self.grave_next;
        self.grave_next = number.checked_add(1).ok_or_else(|| corrupt("more graves than can be numbered"))?;
        Ok(number)
    }

    fn dig(&mut self, number: NonZeroU32, now_secs: u32, slot: Arc<Slot>) {
        let grave = Grave { number, since_secs: now_secs, until_secs: now_secs, slot };
        Arc::make_mut(&mut self.graves).push(grave);
    }

    /// True if that delivery was carried out and is remembered.
    pub(crate) fn has_delivery(&self, id: DeliveryId) -> bool {
        self.deliveries.iter().any(|done| done.id == id)
    }

    /// Every slot of the account: the mailboxes' and the graves'.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let mailboxes = self.mailboxes.values().flat_map(|mailbox| mailbox.slots.iter());
        mailboxes.chain(self.graves.iter().map(|grave| &grave.slot))
    }
}

impl Mailbox {
    /// A mailbox just made.
    pub(super) fn new(id: MailboxId, name: &str, uid_validity: NonZeroU32, seq: Seq) -> Self {
        Self {
            id,
            name: name.into(),
            role: None,
            uid_validity,
            uid_next: Uid(NonZeroU32::MIN),
            subscribed: false,
            selectable: true,
            highest_modseq: seq,
            keywords: Arc::new(Vec::new()),
            recent_from: Uid(NonZeroU32::MIN),
            counts: Counts::default(),
            slots: Arc::default(),
        }
    }

    /// The slots that may hold any of `uids`, by position.
    pub(super) fn touched(&self, uids: &UidSet) -> Vec<usize> {
        let mut touched = Vec::new();
        for &(first, last) in &uids.0 {
            let from = self.slots.partition_point(|slot| slot.last < first);
            let hit = self.slots[from..].iter().take_while(|slot| slot.first <= last).count();
            // The ranges rise, so only a range's first slot can be the one before's last.
            let from_new = if touched.last() == Some(&from) { from + 1 } else { from };
            touched.extend(from_new..from + hit);
        }
        touched
    }

    /// What must be in memory before `uids` are changed.
    pub(super) fn need(&self, uids: &UidSet, needed: &mut Needed) {
        self.touched(uids).into_iter().for_each(|at| needed.slot(&self.slots[at]));
    }

    /// What must be in memory before a message is added.
    pub(super) fn need_tail(&self, chunk_max: usize, needed: &mut Needed) {
        if let Some(tail) = self.slots.last().filter(|tail| (tail.counts.messages as usize) < chunk_max) {
            needed.slot(tail);
        }
    }

    /// Adds a message under the next uid, which must be free.
    pub(super) fn push(&mut self, entry: Entry, chunk_max: usize) -> Applied {
        self.uid_next = Uid(entry.uid.0.checked_add(1).ok_or_else(|| corrupt("more messages than uids"))?);
        self.highest_modseq = entry.modseq;
        self.counts.add(&entry);
        let slots = Slots::edit(&mut self.slots);
        match slots.last_mut().filter(|tail| (tail.counts.messages as usize) < chunk_max) {
            Some(tail) => {
                let (chunk, counts, _, last) = Slot::edit(tail).ok_or_else(gone)?;
                counts.add(&entry);
                *last = entry.uid;
                chunk.entries.push(entry);
            }
            None => slots.push(Arc::new(Slot::new(self.id, entry.uid, entry.uid, vec![entry]))),
        }
        Ok(())
    }

    /// Removes those of `uids` that are there and returns them.
    pub(super) fn remove(&mut self, seq: Seq, uids: &UidSet) -> Applied<Vec<Entry>> {
        let mut removed = Vec::new();
        let touched = self.touched(uids);
        let slots = Slots::edit(&mut self.slots);
        for &at in &touched {
            let slot = &mut slots[at];
            let chunk = slot.resident().ok_or_else(gone)?;
            let picked: Vec<usize> = picked(&chunk.entries, uids).collect();
            drop(chunk);
            if picked.is_empty() {
                continue;
            }
            let (chunk, counts, first, last) = Slot::edit(slot).ok_or_else(gone)?;
            let before = removed.len();
            let mut picked = picked.into_iter().peekable();
            let mut index = 0;
            chunk.entries.retain(|entry| {
                let gone = picked.next_if_eq(&index).is_some();
                index += 1;
                if gone {
                    removed.push(*entry);
                }
                !gone
            });
            for entry in &removed[before..] {
                counts.remove(entry);
                self.counts.remove(entry);
            }
            if let (Some(head), Some(tail)) = (chunk.entries.first(), chunk.entries.last()) {
                (*first, *last) = (head.uid, tail.uid);
            }
        }
        slots.retain(|slot| slot.counts.messages > 0);
        if !removed.is_empty() {
            self.highest_modseq = seq;
        }
        Ok(removed)
    }

    /// Lets `change` have those of `uids` that are there; it says whether clients can see a difference.
    pub(super) fn update(&mut self, seq: Seq, uids: &UidSet, mut change: impl FnMut(&mut Entry) -> bool) -> Applied {
        let touched = self.touched(uids);
        let slots = Slots::edit(&mut self.slots);
        for &at in &touched {
            let chunk = slots[at].resident().ok_or_else(gone)?;
            let picked: Vec<usize> = picked(&chunk.entries, uids).collect();
            drop(chunk);
            if picked.is_empty() {
                continue;
            }
            let (chunk, counts, _, _) = Slot::edit(&mut slots[at]).ok_or_else(gone)?;
            for index in picked {
                let entry = &mut chunk.entries[index];
                let before = *entry;
                if change(entry) {
                    entry.modseq = seq;
                    self.highest_modseq = seq;
                }
                for counts in [&mut *counts, &mut self.counts] {
                    counts.remove(&before);
                    counts.add(entry);
                }
            }
        }
        Ok(())
    }

    /// Copies of those of `uids` that are there, rising by uid.
    pub(super) fn entries<E>(&self, uids: &UidSet) -> Result<Vec<Entry>, Halt<E, Missing>> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for at in self.touched(uids) {
            match self.slots[at].resident() {
                Some(chunk) => found.extend(picked(&chunk.entries, uids).map(|index| chunk.entries[index])),
                None => missing.push(self.slots[at].clone()),
            }
        }
        if missing.is_empty() { Ok(found) } else { Err(Halt::Missing(Missing(missing))) }
    }

    /// The bit of a keyword.
    pub fn keyword(&self, name: &str) -> Option<Flags> {
        self.keywords.iter().position(|keyword| keyword.eq_ignore_ascii_case(name)).map(Flags::keyword)
    }
}

/// Positions of those of `uids` that are among `entries`.
pub(super) fn picked<'a>(entries: &'a [Entry], uids: &'a UidSet) -> impl Iterator<Item = usize> + 'a {
    let from = entries.first().map_or(uids.0.len(), |entry| uids.0.partition_point(|range| range.1 < entry.uid));
    let last = entries.last().map(|entry| entry.uid);
    let ranges = uids.0[from..].iter().take_while(move |range| last.is_some_and(|last| range.0 <= last));
    ranges.flat_map(move |range| {
        entries.partition_point(|entry| entry.uid < range.0)..entries.partition_point(|entry| entry.uid <= range.1)
    })
}

/// Gathers what is not in memory.
#[derive(Debug, Default)]
pub(super) struct Needed(Vec<Arc<Slot>>);

impl Needed {
    pub(super) fn slot(&mut self, slot: &Arc<Slot>) {
        if !slot.is_resident() {
            self.0.push(slot.clone());
        }
    }

    pub(super) fn check<E>(self) -> Result<(), Halt<E, Missing>> {
        if self.0.is_empty() { Ok(()) } else { Err(Halt::Missing(Missing(self.0))) }
    }
}

pub(super) fn corrupt<E>(what: &str) -> Halt<E, Missing> {
    Halt::Corrupt(what.to_owned())
}

/// What was checked to be in memory is not, though nothing is evicted while a change is applied.
fn gone<E>() -> Halt<E, Missing> {
    corrupt("entries left memory while they were changed")
}
