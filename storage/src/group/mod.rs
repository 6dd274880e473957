//! Entity groups: a small state machine kept as journal + checkpoint in one partition.
//!
//! A change is a closure over the latest state; all changes waiting at one moment become one journal entry by one
//! [`crate::wide::Store::commit`]. The partition's version is the journal's sequence number. On conflict the entries
//! not seen yet are read and applied, and the closures run again: the journal is the cache-coherence protocol.
//!
//! The parts: `change` (a closure on its way), `run` (waiting changes become commits), `head` (reading and catching
//! up), `checkpoint` (writing the state, giving up what it supersedes), `journal` (the bytes).
//!
//! Why checkpoints are safe with several writers. A checkpoint is of a *committed* state, which is the same on every
//! node, so its chunks may be written by several at once: the same key always has the same bytes. The pointer to it is
//! moved by a commit that also records the move in the journal; so whoever commits knows the newest pointer. A node
//! writes a checkpoint only from a state that was restored from the newest one or that it wrote itself. By induction, a
//! chunk that a checkpoint supersedes is never referred to again, and neither is one with a number between the last
//! checkpoint's and the newest's that the newest does not refer to: both may be deleted at any later time.

use bytes::Bytes;

use crate::wide::{BoxFuture, Store, StoreError};

mod change;
mod checkpoint;
mod config;
mod head;
mod journal;
mod run;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub use change::Draft;
pub use config::{ChangeError, GroupConfig};
pub use run::{Group, Published};

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
    /// New or changed chunks. Their keys begin with the checkpoint's number, eight octets big-endian, and what is under
    /// a key depends on nothing but the state of that number: two nodes that write the same checkpoint write the same.
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
    /// The checkpoint of `state` as of `at`; takes what changed since the last one. `state` was committed; newer states
    /// may exist already and entries may be applied to copies of it meanwhile. Called with everything resident that
    /// changed since the last one.
    fn checkpoint(&self, state: &Self::State, at: Seq) -> Checkpoint;
    /// The state as of a checkpoint.
    fn restore(&self, root: &[u8]) -> Result<Self::State, String>;
    /// Called after `state`'s checkpoint is durable: chunks written may now be evicted. `state` is the one that
    /// [`Machine::checkpoint`] was called with.
    fn checkpointed(&self, state: &Self::State, at: Seq);
    /// Brings missing parts into memory. Residency is a cache: it is shared by all clones of the state. `Unavailable`
    /// when a chunk is gone, as another node's newer checkpoint may have superseded it.
    fn load<'a>(&'a self, store: &'a dyn Store, missing: Self::Missing) -> BoxFuture<'a, Result<(), StoreError>>;
}
