//! Entity groups: a small state machine kept as journal + checkpoint in one partition.
//!
//! A change is a closure over the latest state; all changes waiting at one moment become one journal entry by one
//! [`crate::wide::Store::commit`]. The partition's version is the journal's sequence number. On conflict the entries
//! not seen yet are read and applied, and the closures run again: the journal is the cache-coherence protocol.

use bytes::Bytes;

use crate::wide::{BoxFuture, Store, StoreError};

mod journal;
mod run;

pub use run::{ChangeError, Draft, Group, GroupConfig, Published};

/// A journal sequence number: the partition's version after the commit. 0 = the empty state.
pub type Seq = u64;

/// What stopped an entry from being applied or a closure from deciding.
#[derive(Debug)]
pub enum Halt<E, M> {
    /// These parts of the state are not in memory; they are loaded and the step is run again.
    Missing(M),
    /// The closure refuses; only this change fails.
    Refused(E),
    /// Stored data fails its check.
    Corrupt(String),
}

/// What a machine writes at a checkpoint.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// The root: everything needed to restore the state except the chunks' contents. Kept small (tens of kB).
    pub root: Vec<u8>,
    /// New or changed chunks under keys never used before (they carry the sequence number they were written at).
    pub chunks: Vec<(Bytes, Bytes)>,
    /// Chunks this checkpoint supersedes; deleted only after the checkpoint is committed.
    pub superseded: Vec<Bytes>,
}

/// The state machine of one kind of group.
pub trait Machine: Send + Sync + 'static {
    /// The state. Cloning must be cheap (copy on write): a change is tried on a clone, which is published only after
    /// its commit is durable.
    type State: Clone + Send + Sync + 'static;
    /// One recorded step. What it does to the state may depend on the state and on `seq` alone.
    type Entry: Clone + Send + Sync + std::fmt::Debug + 'static;
    /// Names parts of the state that are not in memory.
    type Missing: Send + std::fmt::Debug + 'static;

    /// The group's partition key in `Head` and `Chunk`.
    fn partition(&self) -> Bytes;
    /// The state before the first entry.
    fn empty(&self) -> Self::State;
    /// Applies one entry committed as part of `seq`. Must leave `state` untouched when it fails.
    fn apply(
        &self,
        state: &mut Self::State,
        seq: Seq,
        entry: &Self::Entry,
    ) -> Result<(), Halt<std::convert::Infallible, Self::Missing>>;
    /// Appends the entry's bytes to `out`.
    fn encode(&self, entry: &Self::Entry, out: &mut Vec<u8>);
    /// Reads one entry back.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Entry, String>;
    /// The checkpoint of `state` as of `at`; takes what changed since the last one. Called with everything resident
    /// that changed since then.
    fn checkpoint(&self, state: &Self::State, at: Seq) -> Checkpoint;
    /// The state as of a checkpoint.
    fn restore(&self, root: &[u8]) -> Result<Self::State, String>;
    /// Called after `state`'s checkpoint is durable: chunks written may now be evicted.
    fn checkpointed(&self, state: &Self::State, at: Seq);
    /// Brings missing parts into memory. Residency is a cache: it is shared by all clones of the state.
    fn load<'a>(&'a self, store: &'a dyn Store, missing: Self::Missing) -> BoxFuture<'a, Result<(), StoreError>>;
}
