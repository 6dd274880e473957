//! A chunk's place in a mailbox: what is known without its entries, and whether they are in memory.
//!
//! Owns residency: loading or evicting a clean chunk is a cache matter that every snapshot of the account shares. A
//! dirty chunk (changed since the last checkpoint) is never evicted, and neither is one that a newer state replaced:
//! its stored copy may be gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Chunk, Counts, Uid};
use crate::group::Seq;

/// A chunk's place in a mailbox: what is known without loading it. Two slots that are the same `Arc` hold the same
/// entries. Fetch the entries with [`super::Account::chunk`]; [`Slot::resident`] tells what is already in memory.
#[derive(Debug)]
pub struct Slot {
    pub(super) first: Uid,
    pub(super) last: Uid,
    pub(super) counts: Counts,
    cell: Mutex<Cell>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    chunk: Option<Arc<Chunk>>,
    /// The checkpoint that wrote the chunk; `None` = dirty.
    stored: Option<Seq>,
    /// A newer state holds a changed copy: the stored chunk may be deleted any time.
    replaced: bool,
    /// Looked at since the eviction's hand last passed.
    used: bool,
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

    fn cell(&self) -> MutexGuard<'_, Cell> {
        // Every write to a cell is one assignment: a panic elsewhere leaves it whole.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
