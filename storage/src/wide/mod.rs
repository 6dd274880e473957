//! The wide-column store: `table → partition key → (clustering key → value)`, clustering keys sorted as bytes.
//!
//! Owns the four operations every other layer is built from and the backends that carry them out. It knows nothing
//! of mail, and nothing above it knows which engine runs below.
//!
//! * [`Store::get`] and [`Store::scan`] read.
//! * [`Store::put`] writes a batch without condition; durable on return.
//! * [`Store::commit`] writes one partition if its version is the expected one; the only arbiter between writers.

use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;

use bytes::Bytes;

#[cfg(test)]
mod contract;
mod embedded;
pub mod memory;

pub use embedded::{Embedded, EmbeddedConfig};

/// A boxed future, so that `dyn Store` is possible; one small allocation for an operation that does I/O.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The closed set of tables. One kind of data each, so that an engine can tune each for what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Entity groups' heads: version, journal ring. Only ever written by [`Store::commit`].
    Head,
    /// Entity groups' checkpoints: roots and chunks. Only ever written by [`Store::put`] (or `first`).
    Chunk,
    /// Message rows, newest first: partition = account and week, clustering = email id.
    Message,
    /// Message bodies: partition = account and week, clustering = email id and part number.
    Body,
    /// Which thread a Message-ID belongs to: partition = account and hash bucket, clustering = hash of the id.
    Thread,
    /// What was begun and must be finished after a crash: partition = kind and day, clustering = its id.
    Intent,
    /// Directory: domains, accounts, aliases.
    Directory,
}

impl Table {
    /// Every table, in a fixed order.
    pub const ALL: [Self; 7] =
        [Self::Head, Self::Chunk, Self::Message, Self::Body, Self::Thread, Self::Intent, Self::Directory];

    /// The engine's name for the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Chunk => "chunk",
            Self::Message => "message",
            Self::Body => "body",
            Self::Thread => "thread",
            Self::Intent => "intent",
            Self::Directory => "directory",
        }
    }
}

/// A partition's version: how often it was committed to. 0 = never.
pub type Version = u64;

/// Names one attempted commit, made by the writer, never reused; lets an unknown outcome be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(pub u128);

/// One write inside a batch. `value: None` deletes (deleting what is not there is no error).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Table to write.
    pub table: Table,
    /// Partition key: 1 to 512 bytes, any octets.
    pub partition: Bytes,
    /// Clustering key: 0 to 1,024 bytes, any octets.
    pub key: Bytes,
    /// New value (may be empty; up to 16 MiB), or `None` to delete.
    pub value: Option<Bytes>,
}

/// Unconditional, idempotent writes to any partitions; applied all or none by the embedded engine, each for itself
/// elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The writes, in order; a later write to the same cell wins.
    pub writes: Vec<Write>,
}

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, table: Table, partition: impl Into<Bytes>, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.writes.push(Write { table, partition: partition.into(), key: key.into(), value: Some(value.into()) });
    }

    /// Adds a delete.
    pub fn delete(&mut self, table: Table, partition: impl Into<Bytes>, key: impl Into<Bytes>) {
        self.writes.push(Write { table, partition: partition.into(), key: key.into(), value: None });
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// A conditional write to one partition.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Table of the partition.
    pub table: Table,
    /// The partition whose version is compared and bumped by one.
    pub partition: Bytes,
    /// The version the writer decided on.
    pub expected: Version,
    /// The writer's name for this attempt. Repeating a commit with the same id after `Unknown` never applies twice:
    /// when it had been applied, the answer is `Applied` again (as long as the partition is still at `expected + 1`).
    pub id: CommitId,
    /// `(clustering key, value or delete)` in this partition.
    pub writes: Vec<(Bytes, Option<Bytes>)>,
    /// Writes to other partitions, durable before the commit can be seen. Left behind if the commit conflicts.
    pub first: Batch,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Durable; the partition is now at `expected + 1`.
    Applied,
    /// Not applied: the partition is at this other version.
    Conflict(Version),
    /// It may or may not have been applied, now or later. Repeat the same commit (same id) until it says otherwise.
    Unknown,
}

/// Direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ascending clustering keys.
    Forward,
    /// Descending clustering keys.
    Reverse,
}

/// A range of clustering keys.
pub type KeyRange = (Bound<Bytes>, Bound<Bytes>);

/// What went wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The engine cannot be reached or is too busy; trying again later helps. Nothing is known to be lost.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A flush failed or the engine is otherwise beyond use: stop the process and recover by reopening.
    #[error("the store stopped after a failed write: {0}")]
    Poisoned(String),
    /// What was read fails its check.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// The data directory is held by another process.
    #[error("the data directory {path} is in use by another process{holder}; stop it, or choose another directory")]
    Locked {
        /// The directory.
        path: String,
        /// " (pid N)" when known, else empty.
        holder: String,
    },
    /// A key or a value breaks the bounds stated on [`Write`], or the format on disk is another version's.
    #[error("refused by the store: {0}")]
    Refused(String),
    /// The operating system said no.
    #[error("store I/O failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The four operations (with `version`, the cheapest read of a partition's head).
///
/// All futures may be dropped at any time; a dropped `put` or `commit` may still be carried out.
pub trait Store: Send + Sync + 'static {
    /// One value, or `None`.
    fn get<'a>(&'a self, table: Table, partition: &'a [u8], key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>>>;

    /// Up to `limit` rows of one partition within `range`, sorted by clustering key in `order`.
    fn scan<'a>(
        &'a self,
        table: Table,
        partition: &'a [u8],
        range: KeyRange,
        order: Order,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Bytes, Bytes)>>>;

    /// The partition's version (0 when it was never committed to).
    fn version<'a>(&'a self, table: Table, partition: &'a [u8]) -> BoxFuture<'a, Result<Version>>;

    /// Writes `batch`; durable on return.
    fn put(&self, batch: Batch) -> BoxFuture<'_, Result<()>>;

    /// Writes `commit` if its partition is still at the expected version; durable when `Applied`.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Outcome>>;

    /// Makes everything written so far durable and stops background work. Further calls fail with `Unavailable`.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// Longest partition key, bytes.
pub const PARTITION_BYTES_MAX: usize = 512;
/// Longest clustering key, bytes.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 16 * 1_024 * 1_024;

/// Refuses a partition key out of bounds.
fn check_partition(partition: &[u8]) -> Result<()> {
    if partition.is_empty() || partition.len() > PARTITION_BYTES_MAX {
        return Err(StoreError::Refused(format!("a partition key has 1 to {PARTITION_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Refuses a row out of bounds.
fn check_row(key: &[u8], value: Option<&Bytes>) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(StoreError::Refused(format!("a clustering key has at most {KEY_BYTES_MAX} bytes")));
    }
    if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
        return Err(StoreError::Refused(format!("a value has at most {VALUE_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Refuses a batch with any write out of bounds.
fn check_batch(batch: &Batch) -> Result<()> {
    for write in &batch.writes {
        check_partition(&write.partition)?;
        check_row(&write.key, write.value.as_ref())?;
    }
    Ok(())
}

/// Refuses a commit with anything out of bounds.
fn check_commit(commit: &Commit) -> Result<()> {
    check_partition(&commit.partition)?;
    if commit.expected >= Version::MAX - 1 {
        return Err(StoreError::Refused("no version comes after the expected one".to_owned()));
    }
    for (key, value) in &commit.writes {
        check_row(key, value.as_ref())?;
    }
    check_batch(&commit.first)
}

/// True when no key can be within `range`, also when its ends are the wrong way round.
fn range_is_empty(range: &KeyRange) -> bool {
    use Bound::{Excluded, Included};
    match range {
        (Included(from), Included(to)) => from > to,
        (Included(from) | Excluded(from), Excluded(to)) | (Excluded(from), Included(to)) => from >= to,
        _ => false,
    }
}
