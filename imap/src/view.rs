//! What a session has told its client about the selected mailbox, and what there is to tell.
//!
//! A view is the snapshot last announced. Announcing compares it with a newer one: slots that are the same `Arc` hold
//! the same entries and cost nothing; only the others are looked into. So a view needs no queue of events and no
//! memory of its own, and a slow reader is told the difference, however much happened meanwhile.
//!
//! While sequence numbers are on their way (RFC 3501 §7.4.1) and something was expunged, nothing is told and the old
//! snapshot stays in use: messages that are gone are still served from their rows (RFC 2180 §4.1), and everything is
//! told at the next moment that allows it, each expunge exactly once.

use std::collections::HashMap;
use std::sync::Arc;

use posthouse_storage::account::{
    Account, AccountError, AccountState, Chunk, Entry, Flags, Mailbox, MailboxId, Slot, Uid,
};

use crate::error::{CommandError, Result};
use crate::wire::command::{Numbers, SequenceSet};
use crate::wire::write::{self, Fetch};

/// Whether EXPUNGE may be said now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expunges {
    /// Yes.
    Told,
    /// No: sequence numbers are on their way.
    Held,
}

/// One session's view of its selected mailbox.
#[derive(Debug)]
pub(crate) struct View {
    shown: Arc<Mailbox>,
    /// Inclusive ranges of uids that are \Recent here, rising.
    recent: Vec<(u32, u32)>,
    recent_count: u32,
    /// Flags the client knows already, by its own STORE.
    told: HashMap<Uid, Flags>,
}

impl View {
    /// A view of a mailbox just announced by SELECT; messages from `recent_from` on are \Recent, `recent_count` of them.
    pub(crate) fn new(mailbox: Arc<Mailbox>, recent_from: Uid, recent_count: u32) -> Self {
        let recent = (recent_from.0.get(), mailbox.uid_next.0.get() - 1);
        let recent = if recent.0 <= recent.1 { vec![recent] } else { Vec::new() };
        Self { shown: mailbox, recent, recent_count, told: HashMap::new() }
    }

    /// The mailbox as announced.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.shown
    }

    pub(crate) fn id(&self) -> MailboxId {
        self.shown.id
    }

    /// The largest sequence number.
    pub(crate) fn exists(&self) -> u32 {
        self.shown.counts.messages
    }

    /// The largest uid there is.
    pub(crate) fn last_uid(&self) -> Option<Uid> {
        self.shown.slots.last().map(|slot| slot.last())
    }

    /// Ranges of uids that are \Recent here.
    pub(crate) fn recent(&self) -> &[(u32, u32)] {
        &self.recent
    }

    pub(crate) fn is_recent(&self, uid: Uid) -> bool {
        self.recent.iter().any(|&(low, high)| (low..=high).contains(&uid.0.get()))
    }

    /// The client knows these flags of this message.
    pub(crate) fn told(&mut self, uid: Uid, flags: Flags) {
        self.told.insert(uid, flags.public());
    }

    /// A set as ranges of numbers of its kind.
    ///
    /// # Errors
    ///
    /// BAD for a sequence number that does not exist (uids may name what is gone, RFC 3501 §6.4.8).
    pub(crate) fn ranges(&self, numbers: Numbers, set: &SequenceSet) -> Result<Vec<(u32, u32)>> {
        match numbers {
            Numbers::Sequence if set.largest_written() > self.exists() => {
                Err(CommandError::Bad("No message has such a sequence number".to_owned()))
            }
            Numbers::Sequence => Ok(set.resolve(self.exists())),
            Numbers::Uid => Ok(set.resolve(self.last_uid().map_or(0, |uid| uid.0.get()))),
        }
    }

    /// The slots that may hold something of the ranges, each with the sequence number of its first message.
    pub(crate) fn slots<'a>(
        &'a self,
        numbers: Numbers,
        ranges: &'a [(u32, u32)],
    ) -> impl Iterator<Item = (u32, &'a Arc<Slot>)> {
        let mut next = 1;
        self.shown.slots.iter().filter_map(move |slot| {
            let first = next;
            next += slot.counts().messages;
            let (low, high) = match numbers {
                Numbers::Sequence => (first, next - 1),
                Numbers::Uid => (slot.first().0.get(), slot.last().0.get()),
            };
            let at = ranges.partition_point(|range| range.1 < low);
            ranges.get(at).is_some_and(|range| range.0 <= high).then_some((first, slot))
        })
    }

    /// Tells what changed up to `newest`; false when the mailbox is gone.
    pub(crate) async fn announce(
        &mut self,
        account: &Account,
        newest: &AccountState,
        expunges: Expunges,
        read_only: bool,
        out: &mut Vec<u8>,
    ) -> std::result::Result<bool, AccountError> {
        let Some(new) = newest.mailboxes.get(&self.shown.id).filter(|mailbox| mailbox.selectable) else {
            return Ok(false);
        };
        if Arc::ptr_eq(new, &self.shown) {
            self.told.clear();
            return Ok(true);
        }
        let difference = self.difference(account, new).await?;
        if !difference.expunged.is_empty() && expunges == Expunges::Held {
            return Ok(true);
        }
        for &sequence in &difference.expunged {
            write::expunge(out, sequence);
        }
        self.recent_count -= difference.expunged_recent;
        if new.keywords != self.shown.keywords {
            write::flags(out, &new.keywords);
        }
        if difference.added > 0 {
            let from = if read_only { new.recent_from } else { account.claim_recent(new.id) };
            let low = from.0.get().max(self.shown.uid_next.0.get());
            let high = new.uid_next.0.get() - 1;
            if low <= high {
                self.recent.push((low, high));
                self.recent_count += difference.added_uids.iter().filter(|uid| **uid >= low).count() as u32;
            }
        }
        if difference.added > 0 {
            write::exists(out, new.counts.messages);
            write::recent(out, self.recent_count);
        }
        for (sequence, entry) in difference.changed {
            let mut fetch = Fetch::begin(out, sequence);
            fetch.uid(entry.uid.0.get());
            fetch.flags(entry.flags.public(), &new.keywords, self.is_recent(entry.uid));
            fetch.end();
        }
        self.told.clear();
        self.shown = Arc::clone(new);
        Ok(true)
    }

    async fn difference(&self, account: &Account, new: &Mailbox) -> std::result::Result<Difference, AccountError> {
        let mut out = Difference::default();
        let mut old = Walk::new(&self.shown.slots);
        let mut new = Walk::new(&new.slots);
        // Messages of the old view that are still there, so far.
        let mut kept = 0;
        loop {
            if let (Some(a), Some(b)) = (old.untouched(), new.untouched())
                && Arc::ptr_eq(a, b)
            {
                kept += a.counts().messages;
                old.skip();
                new.skip();
                continue;
            }
            match (old.uid(), new.uid()) {
                (None, None) => return Ok(out),
                // Uids only rise: what is beyond the old view is new.
                (None, Some(_)) => {
                    if let Some(slot) = new.untouched().filter(|_| out.added >= ADDED_UIDS_MAX) {
                        // A flood: count it by slots.
                        out.added += slot.counts().messages;
                        new.skip();
                        continue;
                    }
                    let entry = new.next(account).await?;
                    out.added += 1;
                    out.added_uids.push(entry.uid.0.get());
                }
                (Some(a), b) if b.is_none_or(|b| a < b) => {
                    let entry = old.next(account).await?;
                    out.expunged.push(kept + 1);
                    out.expunged_recent += u32::from(self.is_recent(entry.uid));
                }
                (Some(a), Some(b)) if a == b => {
                    let before = old.next(account).await?;
                    let after = new.next(account).await?;
                    kept += 1;
                    if before.flags.public() != after.flags.public()
                        && self.told.get(&after.uid) != Some(&after.flags.public())
                    {
                        out.changed.push((kept, after));
                    }
                }
                (Some(_), _) => {
                    // A uid below the end of the old view that it did not have: cannot be, but must not loop.
                    new.next(account).await?;
                }
            }
        }
    }
}

/// New messages whose uids are listed one by one.
const ADDED_UIDS_MAX: u32 = 100_000;

#[derive(Default)]
struct Difference {
    /// Sequence numbers as EXPUNGE says them, in order.
    expunged: Vec<u32>,
    expunged_recent: u32,
    added: u32,
    added_uids: Vec<u32>,
    /// New sequence number and entry.
    changed: Vec<(u32, Entry)>,
}

/// Entries of a list of slots in order, each chunk loaded when its first entry is wanted.
struct Walk<'a> {
    slots: &'a [Arc<Slot>],
    chunk: Option<Arc<Chunk>>,
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(slots: &'a [Arc<Slot>]) -> Self {
        Self { slots, chunk: None, at: 0 }
    }

    /// The slot at hand if nothing of it was taken yet.
    fn untouched(&self) -> Option<&'a Arc<Slot>> {
        if self.at == 0 { self.slots.first() } else { None }
    }

    fn skip(&mut self) {
        self.slots = &self.slots[1..];
        self.chunk = None;
        self.at = 0;
    }

    /// The next entry's uid.
    fn uid(&self) -> Option<Uid> {
        match &self.chunk {
            Some(chunk) => chunk.entries.get(self.at).map(|entry| entry.uid),
            None => self.slots.first().map(|slot| slot.first()),
        }
    }

    /// The next entry; there must be one.
    async fn next(&mut self, account: &Account) -> std::result::Result<Entry, AccountError> {
        let missing = || AccountError::Corrupt("a chunk without the entries its slot promises".to_owned());
        let chunk = match &self.chunk {
            Some(chunk) => Arc::clone(chunk),
            None => account.chunk(self.slots.first().ok_or_else(missing)?).await?,
        };
        let entry = *chunk.entries.get(self.at).ok_or_else(missing)?;
        self.at += 1;
        if self.at == chunk.entries.len() {
            self.skip();
        } else {
            self.chunk = Some(chunk);
        }
        Ok(entry)
    }
}

/// The entries of a chunk that the ranges name, with their sequence numbers; `first` is that of the chunk's first.
pub(crate) fn hits<'a>(
    numbers: Numbers,
    ranges: &'a [(u32, u32)],
    first: u32,
    chunk: &'a Chunk,
) -> impl Iterator<Item = (u32, &'a Entry)> {
    let mut range = 0;
    chunk.entries.iter().enumerate().filter_map(move |(index, entry)| {
        let sequence = first + index as u32;
        let number = match numbers {
            Numbers::Sequence => sequence,
            Numbers::Uid => entry.uid.0.get(),
        };
        while ranges.get(range).is_some_and(|&(_, high)| high < number) {
            range += 1;
        }
        ranges.get(range).is_some_and(|&(low, _)| low <= number).then_some((sequence, entry))
    })
}
