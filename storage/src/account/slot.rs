//! A chunk's place in a mailbox: what is known without its entries, and whether they are in memory.
//!
//! Owns residency: loading or evicting a clean chunk is a cache matter that every snapshot of the account shares. A
//! dirty chunk (changed since the last checkpoint) is never evicted, and neither is one that a newer state replaced:
//! its stored copy may be gone while a session still shows it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use super::{Chunk, Counts, Entry, MailboxId, Uid};
use crate::group::Seq;

/// A chunk's place in a mailbox: what is known without loading it. Two slots that are the same `Arc` hold the same
/// entries. Fetch the entries with [`super::Account::chunk`]; [`Slot::resident`] tells what is already in memory.
#[derive(Debug)]
pub struct Slot {
    /// The mailbox it was filled for, which is part of its key in the store; 0 for graves.
    pub(super) home: MailboxId,
    pub(super) first: Uid,
    pub(super) last: Uid,
    pub(super) counts: Counts,
    cell: Mutex<Cell>,
}

/// Key of a stored chunk in its account's partition.
pub(super) type ChunkKey = [u8; 16];

#[derive(Debug, Clone, Default)]
struct Cell {
    chunk: Option<Arc<Chunk>>,
    /// The checkpoint that wrote the chunk; `None` = dirty.
    stored: Option<Seq>,
    /// A newer state holds a changed copy: the stored chunk may be deleted any time.
    replaced: bool,
    /// A change is about to be decided on it.
    held: bool,
    /// Looked at since the eviction's hand last passed.
    used: bool,
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self {
            home: self.home,
            first: self.first,
            last: self.last,
            counts: self.counts,
            cell: Mutex::new(self.cell().clone()),
        }
    }
}

impl Slot {
    /// The lowest uid in it.
    pub fn first(&self) -> Uid {
        self.first
    }

    /// The highest uid in it.
    pub fn last(&self) -> Uid {
        self.last
    }

    /// What it holds.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Its entries, if they are in memory.
    pub fn resident(&self) -> Option<Arc<Chunk>> {
        let mut cell = self.cell();
        cell.used = true;
        cell.chunk.clone()
    }

    /// A dirty slot of these entries, which must not be empty.
    pub(super) fn new(home: MailboxId, first: Uid, last: Uid, entries: Vec<Entry>) -> Self {
        let mut counts = Counts::default();
        entries.iter().for_each(|entry| counts.add(entry));
        let cell = Cell { chunk: Some(Arc::new(Chunk { entries })), ..Cell::default() };
        Self { home, first, last, counts, cell: Mutex::new(cell) }
    }

    /// A clean slot whose entries are in the store only.
    pub(super) fn stored_at(home: MailboxId, first: Uid, last: Uid, counts: Counts, stored: Seq) -> Self {
        let cell = Cell { stored: Some(stored), ..Cell::default() };
        Self { home, first, last, counts, cell: Mutex::new(cell) }
    }

    /// The chunk for changing it: the slot becomes dirty. A slot that other snapshots hold as well is copied, one that
    /// nobody else holds is changed in place. `None` if the entries are not in memory.
    pub(super) fn edit(slot: &mut Arc<Self>) -> Option<(&mut Chunk, &mut Counts, &mut Uid, &mut Uid)> {
        if Arc::get_mut(slot).is_none() {
            let copy = {
                let mut cell = slot.cell();
                cell.chunk.as_ref()?;
                cell.replaced = true;
                Cell { chunk: cell.chunk.clone(), ..Cell::default() }
            };
            let Self { home, first, last, counts, .. } = **slot;
            *slot = Arc::new(Self { home, first, last, counts, cell: Mutex::new(copy) });
        }
        let Self { counts, first, last, cell, .. } = Arc::get_mut(slot)?;
        let cell = cell.get_mut().unwrap_or_else(PoisonError::into_inner);
        (cell.stored, cell.replaced) = (None, false);
        Some((Arc::make_mut(cell.chunk.as_mut()?), counts, first, last))
    }

    /// A newer state holds its entries elsewhere.
    pub(super) fn replace(&self) {
        self.cell().replaced = true;
    }

    /// True if [`Slot::edit`] would find the entries.
    pub(super) fn is_resident(&self) -> bool {
        self.cell().chunk.is_some()
    }

    /// The checkpoint that wrote it.
    pub(super) fn stored(&self) -> Option<Seq> {
        self.cell().stored
    }

    /// The chunk if it was changed since it was last stored.
    pub(super) fn dirty(&self) -> Option<Arc<Chunk>> {
        let cell = self.cell();
        if cell.stored.is_some() { None } else { cell.chunk.clone() }
    }

    /// Its chunk was stored by the checkpoint `at`. True if it was dirty before.
    pub(super) fn clean(&self, at: Seq) -> bool {
        let mut cell = self.cell();
        cell.stored.is_none() && cell.stored.replace(at).is_none()
    }

    /// Puts in what was loaded; what is there already stays.
    pub(super) fn fill(&self, chunk: Arc<Chunk>) -> Arc<Chunk> {
        let mut cell = self.cell();
        cell.used = true;
        cell.chunk.get_or_insert(chunk).clone()
    }

    /// Keeps its entries in memory, or lets them go again.
    pub(super) fn hold(&self, held: bool) {
        self.cell().held = held;
    }

    /// Key of its stored chunk: the checkpoint's number, the mailbox, the first uid. The same on every node that stores
    /// the state of that number, and so is what is under it.
    pub(super) fn key(&self, stored: Seq) -> ChunkKey {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&stored.to_be_bytes());
        key[8..12].copy_from_slice(&self.home.0.to_be_bytes());
        key[12..].copy_from_slice(&self.first.get().to_be_bytes());
        key
    }

    /// Forgets the entries if they can be loaded again and were not looked at lately. `None` if it may be asked again
    /// later.
    fn evict(&self) -> Option<Evicted> {
        let mut cell = self.cell();
        if cell.replaced || cell.held || cell.stored.is_none() || cell.chunk.is_none() {
            return Some(Evicted::NotOurs);
        }
        if std::mem::take(&mut cell.used) {
            return None;
        }
        cell.chunk = None;
        Some(Evicted::Done)
    }

    fn cell(&self) -> MutexGuard<'_, Cell> {
        // Every write to a cell is one assignment: a panic elsewhere leaves it whole.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Evicted {
    Done,
    NotOurs,
}

/// The clean chunks in memory of all accounts of this node, kept within a budget: a clock over them, oldest first,
/// with a second chance for what was looked at.
#[derive(Debug)]
pub(super) struct Residency {
    bytes_max: usize,
    /// Held shared while a change is applied: a chunk seen in memory stays there until the change is done.
    gate: RwLock<()>,
    clock: Mutex<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    slots: VecDeque<(Weak<Slot>, usize)>,
    bytes: usize,
}

impl Residency {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, gate: RwLock::new(()), clock: Mutex::default() }
    }

    /// Nothing is evicted while this is held.
    pub(super) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clean chunks that are in memory now; makes room for them.
    pub(super) fn admit<'a>(&self, slots: impl IntoIterator<Item = &'a Arc<Slot>>) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots {
            // What a slot, its allocations and its place in the clock take besides the entries.
            let bytes = 256 + slot.counts.messages as usize * size_of::<Entry>();
            clock.bytes += bytes;
            clock.slots.push_back((Arc::downgrade(slot), bytes));
        }
        if clock.bytes <= self.bytes_max {
            return;
        }
        // A change being applied right now is never waited for; whoever admits next makes the room.
        let Ok(_gate) = self.gate.try_write() else { return };
        // Twice round at most: the first round may only take away second chances.
        for _ in 0..clock.slots.len() * 2 {
            if clock.bytes <= self.bytes_max {
                break;
            }
            let Some((slot, bytes)) = clock.slots.pop_front() else { break };
            match slot.upgrade().map(|slot| slot.evict()) {
                Some(None) => clock.slots.push_back((slot, bytes)),
                Some(Some(Evicted::Done | Evicted::NotOurs)) | None => clock.bytes -= bytes,
            }
        }
    }
}
