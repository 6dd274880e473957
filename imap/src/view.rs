//! What one session has told its client about the selected mailbox, and what is to be told next. Sans-IO: entries are
//! loaded by the caller.
//!
//! A view is a mailbox as it was at some moment (shared with everybody, nothing is copied), and what the client still
//! counts though it is gone from there: messages whose EXPUNGE may not be told yet (RFC 3501 §5.5, §7.4.1). A newer
//! mailbox is compared slot by slot; slots that are the same `Arc` hold the same. RFC 2180 §4 is followed in that
//! messages expunged elsewhere stay readable until the client has been told.

use std::cmp::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

use posthouse_storage::account::{Chunk, Counts, Entry, Flags, Mailbox, MailboxId, Slot, Uid, UidSet};

/// Expunges held back by one session. Beyond them the view stands still until they may be told.
const HELD_MAX: usize = 50_000;
/// Ranges of \Recent uids one session remembers; the oldest are forgotten first.
const RECENT_RANGES_MAX: usize = 1_000;

/// Whether EXPUNGE may be told now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expunges {
    /// While a command by sequence numbers (FETCH, STORE, SEARCH) is carried out.
    Held,
    /// During any other command, and in IDLE.
    Told,
}

/// A message that the client counts and the mailbox no longer has.
#[derive(Debug, Clone)]
struct Held {
    entry: Entry,
    /// Entries of the mailbox with smaller uids.
    before: u32,
}

/// What one client knows.
#[derive(Debug)]
pub(crate) struct View {
    mailbox: Arc<Mailbox>,
    /// Rising by uid.
    held: Vec<Held>,
    recent: UidSet,
    recent_count: u32,
}

impl View {
    /// Right after SELECT or EXAMINE: all of it is known. `recent` are the uids from this one on, `recent_count` messages.
    pub(crate) fn new(mailbox: Arc<Mailbox>, recent_from: Uid, recent_count: u32) -> Self {
        let mut view = Self { mailbox, held: Vec::new(), recent: UidSet::default(), recent_count: 0 };
        view.add_recent(recent_from, recent_count);
        view
    }

    /// The mailbox's id.
    pub(crate) fn id(&self) -> MailboxId {
        self.mailbox.id
    }

    /// The mailbox as last told, but for the expunges held back.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// How many messages the client counts.
    pub(crate) fn messages(&self) -> u32 {
        self.mailbox.counts.messages + self.held.len() as u32
    }

    /// The largest uid the client counts.
    pub(crate) fn last_uid(&self) -> Option<Uid> {
        let there = self.mailbox.slots.last().map(|slot| slot.last());
        there.max(self.held.last().map(|held| held.entry.uid))
    }

    /// Which uids are \Recent in this session.
    pub(crate) fn recent(&self) -> &UidSet {
        &self.recent
    }

    /// How many messages are \Recent in this session.
    pub(crate) fn recent_count(&self) -> u32 {
        self.recent_count
    }

    /// True if its EXPUNGE is held back.
    pub(crate) fn is_gone(&self, uid: Uid) -> bool {
        self.held.binary_search_by_key(&uid, |held| held.entry.uid).is_ok()
    }

    /// The uids from `from` on that the mailbox has given so far, `count` messages, are \Recent in this session.
    pub(crate) fn add_recent(&mut self, from: Uid, count: u32) {
        let Some(last) = Uid::new(self.mailbox.uid_next.get() - 1).filter(|last| *last >= from) else { return };
        self.recent_count += count;
        match self.recent.0.last_mut() {
            Some((_, end)) if end.get() + 1 >= from.get() => *end = last.max(*end),
            _ => self.recent.0.push((from, last)),
        }
        if self.recent.0.len() > RECENT_RANGES_MAX {
            self.recent.0.remove(0);
        }
    }

    /// What has to be looked at to learn how `newer`, the same mailbox later, differs. `None`: nothing to tell.
    pub(crate) fn compare(&self, newer: &Arc<Mailbox>) -> Option<Difference> {
        if Arc::ptr_eq(&self.mailbox, newer) && self.held.is_empty() {
            return None;
        }
        let mut difference = Difference { newer: Arc::clone(newer), old: Vec::new(), new: Vec::new() };
        if Arc::ptr_eq(&self.mailbox.slots, &newer.slots) {
            return Some(difference);
        }
        // Slots rise by their first uids, so two that are the same meet here.
        let (mut old, mut new) = (self.mailbox.slots.iter().peekable(), newer.slots.iter().peekable());
        let (mut old_before, mut new_before) = (0, 0);
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.first().cmp(&new.first()),
            };
            let of_old = if order.is_le() { old.next() } else { None };
            let of_new = if order.is_ge() { new.next() } else { None };
            let same = matches!((of_old, of_new), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
            if let Some(slot) = of_old {
                if !same {
                    difference.old.push(Placed { before: old_before, slot: Arc::clone(slot) });
                }
                old_before += slot.counts().messages;
            }
            if let Some(slot) = of_new {
                // What begins beyond the known uids has arrived, all of it; its counts are enough.
                if !same && slot.first() < self.mailbox.uid_next {
                    difference.new.push(Placed { before: new_before, slot: Arc::clone(slot) });
                }
                new_before += slot.counts().messages;
            }
        }
        Some(difference)
    }

    /// Takes the newer mailbox over. `old` and `new` are the entries of the difference's slots.
    pub(crate) fn advance(
        &mut self,
        difference: Difference,
        old: Vec<Arc<Chunk>>,
        new: Vec<Arc<Chunk>>,
        expunges: Expunges,
    ) -> News {
        let mut news = News::default();
        let gone = difference.gone(&old, &new);
        if expunges == Expunges::Held && self.held.len() + gone.len() > HELD_MAX {
            return news;
        }
        let arrived =
            (difference.newer.counts.messages + gone.len() as u32).saturating_sub(self.mailbox.counts.messages);
        if !Arc::ptr_eq(&self.mailbox.keywords, &difference.newer.keywords)
            && self.mailbox.keywords != difference.newer.keywords
        {
            news.keywords = Some(Arc::clone(&difference.newer.keywords));
        }
        self.hold(gone);
        if expunges == Expunges::Told {
            for (at, held) in self.held.drain(..).enumerate() {
                news.expunged.push(held.before + at as u32 + 1);
                if self.recent.contains(held.entry.uid) {
                    self.recent_count = self.recent_count.saturating_sub(1);
                }
            }
            // From the last to the first: no number moves before its turn comes.
            news.expunged.reverse();
        }
        news.arrived = arrived > 0;
        news.changed = Changed {
            known_below: self.mailbox.uid_next.get(),
            held: self.held.iter().map(|held| held.before).collect(),
            places: difference.new.iter().map(|placed| placed.before).collect(),
            old: Cursor::new(old),
            new: Cursor::new(new),
        };
        self.mailbox = difference.newer;
        news
    }

    /// Adds to what is held: `gone` has places in the mailbox before, which are made places in the one after.
    fn hold(&mut self, gone: Vec<Held>) {
        if gone.is_empty() {
            return;
        }
        for held in &mut self.held {
            held.before -= gone.partition_point(|gone| gone.entry.uid < held.entry.uid) as u32;
        }
        let gone = gone.into_iter().enumerate();
        self.held.extend(gone.map(|(at, held)| Held { before: held.before - at as u32, ..held }));
        self.held.sort_unstable_by_key(|held| held.entry.uid);
    }

    /// The first page from that sequence number on that may hold something wanted.
    pub(crate) fn page(&self, from: u32, wanted: &Wanted) -> Option<Page> {
        let slots = &self.mailbox.slots;
        let (mut before, mut held_at) = (0, 0);
        // One more round than slots, for what is held in a mailbox that is empty.
        for at in 0..slots.len().max(1) {
            let slot = slots.get(at);
            let counts = slot.map(|slot| slot.counts()).unwrap_or_default();
            let after = before + counts.messages;
            let held_end = if at + 1 >= slots.len() {
                self.held.len()
            } else {
                held_at + self.held[held_at..].partition_point(|held| held.before < after)
            };
            let first = before + held_at as u32 + 1;
            let page = Page { first, slot: slot.cloned(), before, counts, held: held_at..held_end };
            if page.end() > from && wanted.touches(&page, &self.held[page.held.clone()]) {
                return Some(page);
            }
            (before, held_at) = (after, held_end);
        }
        None
    }

    /// A page's messages; `chunk` is its slot's.
    pub(crate) fn entries(&self, page: &Page, chunk: Option<Arc<Chunk>>) -> Entries {
        let held = &self.held[page.held.clone()];
        match chunk {
            Some(chunk) if held.is_empty() => Entries::Shared(chunk),
            chunk => {
                let there = chunk.as_ref().map_or(&[][..], |chunk| &chunk.entries);
                let mut merged = Vec::with_capacity(there.len() + held.len());
                let mut at = 0;
                for held in held {
                    let upto = ((held.before - page.before) as usize).min(there.len());
                    merged.extend_from_slice(&there[at..upto]);
                    merged.push(held.entry);
                    at = upto;
                }
                merged.extend_from_slice(&there[at..]);
                Entries::Merged(merged)
            }
        }
    }
}

/// A slot and how many entries of its mailbox come before it.
#[derive(Debug)]
struct Placed {
    before: u32,
    slot: Arc<Slot>,
}

/// Which slots differ between a view and a newer mailbox.
#[derive(Debug)]
pub(crate) struct Difference {
    newer: Arc<Mailbox>,
    old: Vec<Placed>,
    new: Vec<Placed>,
}

impl Difference {
    /// Slots of the view whose entries are needed.
    pub(crate) fn old_slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.old.iter().map(|placed| &placed.slot)
    }

    /// Slots of the newer mailbox whose entries are needed.
    pub(crate) fn new_slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.new.iter().map(|placed| &placed.slot)
    }

    /// Entries that are only in the old slots, with their places there.
    fn gone(&self, old: &[Arc<Chunk>], new: &[Arc<Chunk>]) -> Vec<Held> {
        let mut gone = Vec::new();
        let mut there = new.iter().flat_map(|chunk| &chunk.entries).peekable();
        for (placed, chunk) in self.old.iter().zip(old) {
            for (entry, before) in chunk.entries.iter().zip(placed.before..) {
                while there.next_if(|there| there.uid < entry.uid).is_some() {}
                if there.next_if(|there| there.uid == entry.uid).is_none() {
                    gone.push(Held { entry: *entry, before });
                }
            }
        }
        gone
    }
}

/// What is to be told, in this order: expunges, keywords, changed flags, EXISTS and RECENT.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Numbers for EXPUNGE, each as it is when its turn comes.
    pub(crate) expunged: Vec<u32>,
    /// The mailbox's keywords, if there are new ones.
    pub(crate) keywords: Option<Arc<Vec<Arc<str>>>>,
    /// Messages whose flags changed.
    pub(crate) changed: Changed,
    /// There are new messages: EXISTS is to be told.
    pub(crate) arrived: bool,
}

/// Messages the client knows whose flags changed: sequence number, entry, flags before.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Uids from here on are new to the client.
    known_below: u32,
    /// Places of what is held back, rising.
    held: Vec<u32>,
    /// Places of the new chunks' first entries.
    places: Vec<u32>,
    old: Cursor,
    new: Cursor,
}

impl Iterator for Changed {
    type Item = (u32, Entry, Flags);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = *self.new.peek().filter(|entry| entry.uid.get() < self.known_below)?;
            let place = self.places[self.new.chunk] + self.new.at as u32;
            self.new.step();
            while self.old.peek().is_some_and(|old| old.uid < entry.uid) {
                self.old.step();
            }
            if let Some(old) = self.old.peek().filter(|old| old.uid == entry.uid)
                && old.flags.public() != entry.flags.public()
            {
                let held = self.held.partition_point(|before| *before <= place) as u32;
                return Some((place + held + 1, entry, old.flags));
            }
        }
    }
}

/// A place in the entries of some chunks.
#[derive(Debug, Default)]
struct Cursor {
    chunks: Vec<Arc<Chunk>>,
    chunk: usize,
    at: usize,
}

impl Cursor {
    fn new(chunks: Vec<Arc<Chunk>>) -> Self {
        let mut cursor = Self { chunks, chunk: 0, at: 0 };
        cursor.settle();
        cursor
    }

    fn peek(&self) -> Option<&Entry> {
        self.chunks.get(self.chunk)?.entries.get(self.at)
    }

    fn step(&mut self) {
        self.at += 1;
        self.settle();
    }

    /// To the next chunk when this one is used up.
    fn settle(&mut self) {
        while self.chunks.get(self.chunk).is_some_and(|chunk| chunk.entries.len() <= self.at) {
            (self.chunk, self.at) = (self.chunk + 1, 0);
        }
    }
}

/// Some of a view's messages, neighbours: those of one slot and what is held back among them.
#[derive(Debug)]
pub(crate) struct Page {
    /// Sequence number of the first.
    pub(crate) first: u32,
    /// Where most of them are; `None` if only held ones are left.
    pub(crate) slot: Option<Arc<Slot>>,
    /// What the slot holds.
    pub(crate) counts: Counts,
    before: u32,
    held: Range<usize>,
}

impl Page {
    /// The sequence number after the last.
    pub(crate) fn end(&self) -> u32 {
        self.first + self.counts.messages + self.held.len() as u32
    }

    /// True if it is what its slot holds and nothing else.
    pub(crate) fn is_plain(&self) -> bool {
        self.held.is_empty()
    }
}

/// Entries of a page.
#[derive(Debug)]
pub(crate) enum Entries {
    /// Those of a chunk.
    Shared(Arc<Chunk>),
    /// With held ones among them.
    Merged(Vec<Entry>),
}

impl Deref for Entries {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        match self {
            Self::Shared(chunk) => &chunk.entries,
            Self::Merged(entries) => entries,
        }
    }
}

/// Which messages a command names.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// By sequence numbers: sorted, disjoint, inclusive.
    Sequences(Vec<(u32, u32)>),
    /// By uids.
    Uids(UidSet),
}

impl Wanted {
    fn touches(&self, page: &Page, held: &[Held]) -> bool {
        match self {
            Self::Sequences(ranges) => {
                let at = ranges.partition_point(|range| range.1 < page.first);
                ranges.get(at).is_some_and(|range| range.0 < page.end())
            }
            Self::Uids(uids) => {
                let slot = page.slot.as_ref().map(|slot| (slot.first(), slot.last()));
                let held = held.first().zip(held.last()).map(|(first, last)| (first.entry.uid, last.entry.uid));
                let touched = |(low, high): (Uid, Uid)| {
                    let at = uids.0.partition_point(|range| range.1 < low);
                    uids.0.get(at).is_some_and(|range| range.0 <= high)
                };
                slot.is_some_and(touched) || held.is_some_and(touched)
            }
        }
    }

    /// Where among a page's entries the wanted ones are, from sequence number `from` on.
    pub(crate) fn picks(&self, first: u32, from: u32, entries: &[Entry]) -> Vec<Range<usize>> {
        let least = from.saturating_sub(first) as usize;
        let mut picks = Vec::new();
        let mut pick = |start: usize, end: usize| {
            let start = start.max(least);
            if start < end {
                picks.push(start..end);
            }
        };
        match self {
            Self::Sequences(ranges) => {
                let end = first + entries.len() as u32;
                let at = ranges.partition_point(|range| range.1 < first);
                for &(low, high) in ranges[at..].iter().take_while(|range| range.0 < end) {
                    pick(low.saturating_sub(first) as usize, (high.min(end - 1) - first) as usize + 1);
                }
            }
            Self::Uids(uids) => {
                let (Some(head), Some(tail)) = (entries.first(), entries.last()) else { return picks };
                let at = uids.0.partition_point(|range| range.1 < head.uid);
                for &(low, high) in uids.0[at..].iter().take_while(|range| range.0 <= tail.uid) {
                    let start = entries.partition_point(|entry| entry.uid < low);
                    pick(start, entries.partition_point(|entry| entry.uid <= high));
                }
            }
        }
        picks
    }
}
