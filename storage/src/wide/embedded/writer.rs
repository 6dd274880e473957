//! The one thread that writes: takes everything that waits, decides the conditions in order, writes one group, flushes
//! it once, and only then answers.
//!
//! Nothing is visible to readers before it is durable: the engine flushes a group's journal record first and puts it
//! into the memtables afterwards, and readers look at snapshots that begin to include a group when it is whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fjall::{PersistMode, Slice};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::dir::{Dir, Identity};
use super::{Engine, Poison, engine_error, journal, key};
use crate::wide::{CommitId, Outcome, Result, StoreError, Table, Version};

/// A group ends when it holds this much...
const GROUP_BYTES: usize = 8 * 1_024 * 1_024;
/// ...or answers this many.
const GROUP_REQUESTS: usize = 4_096;
/// Versions remembered by the writer, in each of two generations.
const VERSIONS: usize = 16 * 1_024;

/// One cell to write; its key is the engine's.
pub(super) struct Item {
    pub(super) table: Table,
    pub(super) key: Slice,
    pub(super) value: Option<Slice>,
}

/// The condition of a commit.
pub(super) struct Condition {
    pub(super) table: Table,
    pub(super) key: Slice,
    pub(super) expected: Version,
    pub(super) id: CommitId,
    /// Written only if it holds.
    pub(super) items: Vec<Item>,
}

/// What waits for the writer.
pub(super) struct Request {
    /// Written in any case.
    pub(super) items: Vec<Item>,
    pub(super) condition: Option<Condition>,
    pub(super) bytes: usize,
    pub(super) answer: oneshot::Sender<Result<Outcome>>,
    /// Its share of the bounded queue, given back when it is answered.
    pub(super) share: OwnedSemaphorePermit,
}

/// The writer's state.
pub(super) struct Writer {
    pub(super) engine: Arc<Engine>,
    pub(super) dir: Dir,
    pub(super) poison: Arc<Poison>,
    pub(super) syncs: Arc<AtomicU64>,
    /// Number of the last group.
    pub(super) number: u64,
    versions: Versions,
}

impl Writer {
    pub(super) fn new(engine: Arc<Engine>, dir: Dir, poison: Arc<Poison>, syncs: Arc<AtomicU64>, number: u64) -> Self {
        Self { engine, dir, poison, syncs, number, versions: Versions::default() }
    }

    /// Runs until the queue is closed and empty; then makes the mark durable.
    pub(super) fn run(mut self, mut queue: mpsc::UnboundedReceiver<Request>) {
        let mut waiting = Vec::new();
        while let Some(first) = queue.blocking_recv() {
            let mut bytes = first.bytes;
            waiting.push(first);
            while bytes < GROUP_BYTES && waiting.len() < GROUP_REQUESTS {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.bytes;
                waiting.push(next);
            }
            self.group(&mut waiting);
        }
        if self.poison.check().is_ok()
            && let Err(error) = self.dir.mark.sync()
        {
            tracing::warn!(%error, "the sync mark could not be flushed on closing");
        }
    }

    /// Writes and answers one group.
    fn group(&mut self, waiting: &mut Vec<Request>) {
        let started = Instant::now();
        let count = waiting.len() as u64;
        let written = self.poison.check().and_then(|()| self.write(waiting));
        match written {
            Ok(outcomes) => {
                metrics::histogram!("posthouse_store_sync_seconds").record(started.elapsed());
                metrics::histogram!("posthouse_store_group_size").record(count as f64);
                for (request, outcome) in waiting.drain(..).zip(outcomes) {
                    respond(request, outcome);
                }
            }
            Err(error) => {
                let why = self.poison.set(&error);
                for request in waiting.drain(..) {
                    respond(request, Err(StoreError::Poisoned(why.clone())));
                }
            }
        }
    }

    /// Decides, writes and flushes. An error means that nobody knows what is on disk.
    fn write(&mut self, waiting: &mut [Request]) -> Result<Vec<Result<Outcome>>> {
        let mut group = Group::default();
        let mut outcomes = Vec::with_capacity(waiting.len());
        for request in waiting {
            group.extend(&mut request.items);
            let Some(condition) = &mut request.condition else {
                outcomes.push(Ok(Outcome::Applied));
                continue;
            };
            let (version, id) = match self.versions.get(&self.engine, condition) {
                Ok(current) => current,
                // A version that cannot be read is this commit's trouble alone.
                Err(error) => {
                    outcomes.push(Err(error));
                    continue;
                }
            };
            outcomes.push(Ok(if version == condition.expected {
                let next = version + 1;
                self.versions.set(condition, next);
                group.extend(&mut condition.items);
                let value = Some(key::encode_version(next, condition.id));
                group.push(Item { table: condition.table, key: condition.key.clone(), value });
                Outcome::Applied
            } else if version == condition.expected + 1 && id == Some(condition.id) {
                Outcome::Applied
            } else {
                Outcome::Conflict(version)
            }));
        }
        if !group.items.is_empty() {
            let number = self.number + 1;
            #[cfg(test)]
            if self.poison.inject.load(Ordering::Relaxed) {
                return Err(StoreError::Io(std::io::Error::other("injected")));
            }
            flush(&self.engine, &self.dir.identity, number, group.items)?;
            self.number = number;
            self.syncs.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("posthouse_store_syncs_total").increment(1);
            if let Err(error) = self.dir.mark.write(number) {
                // Behind is allowed: the mark only helps to find damage.
                tracing::warn!(%error, "the sync mark could not be written");
            }
        }
        Ok(outcomes)
    }
}

/// Writes a group under its seal and flushes it.
///
/// `SyncData`: data and what is needed to find it again (size, extents) reach the disk; only timestamps may not.
pub(super) fn flush(engine: &Engine, identity: &Identity, number: u64, items: Vec<Item>) -> Result<()> {
    let mut batch = fjall::OwnedWriteBatch::with_capacity(engine.database.clone(), items.len() + 1)
        .durability(Some(PersistMode::SyncData));
    batch.insert(&engine.seal, super::SEAL_KEY, Slice::from(&journal::seal(identity, number)));
    for item in items {
        let keyspace = engine.table(item.table);
        match item.value {
            Some(value) => batch.insert(keyspace, item.key, value),
            None => batch.remove(keyspace, item.key),
        }
    }
    batch.commit().map_err(engine_error)
}

/// Answers one request; nobody listens when its future was dropped.
fn respond(request: Request, outcome: Result<Outcome>) {
    if request.condition.is_some() {
        let label = match outcome {
            Ok(Outcome::Applied) => "applied",
            Ok(Outcome::Conflict(_)) => "conflict",
            Ok(Outcome::Unknown) | Err(_) => "failed",
        };
        metrics::counter!("posthouse_store_commits_total", "outcome" => label).increment(1);
    }
    drop(request.share);
    request.answer.send(outcome).ok();
}

/// The cells of a group, each once: the engine orders writes of one group by key alone.
#[derive(Default)]
struct Group {
    items: Vec<Item>,
    places: HashMap<(Table, Slice), usize>,
}

impl Group {
    fn extend(&mut self, items: &mut Vec<Item>) {
        items.drain(..).for_each(|item| self.push(item));
    }

    /// A later write of the same cell takes the place of the earlier one.
    fn push(&mut self, item: Item) {
        match self.places.entry((item.table, item.key.clone())) {
            std::collections::hash_map::Entry::Occupied(place) => self.items[*place.get()].value = item.value,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(self.items.len());
                self.items.push(item);
            }
        }
    }
}

// What a group decided must stay remembered until it is flushed: a generation holds more than a group can add.
const _: () = assert!(2 * GROUP_REQUESTS <= VERSIONS);

/// Versions as of the group being built, remembered in two generations: when the younger is full, the older is
/// forgotten. Only the writer knows it, so it is never wrong.
#[derive(Default)]
struct Versions {
    young: Generation,
    old: Generation,
}

type Generation = HashMap<(Table, Slice), (Version, Option<CommitId>)>;

impl Versions {
    fn get(&mut self, engine: &Engine, condition: &Condition) -> Result<(Version, Option<CommitId>)> {
        let name = (condition.table, condition.key.clone());
        if let Some(known) = self.young.get(&name) {
            return Ok(*known);
        }
        let known = match self.old.remove(&name) {
            Some(known) => known,
            None => {
                engine.version(condition.table, &condition.key)?.map_or((0, None), |(version, id)| (version, Some(id)))
            }
        };
        self.insert(name, known);
        Ok(known)
    }

    fn set(&mut self, condition: &Condition, version: Version) {
        self.insert((condition.table, condition.key.clone()), (version, Some(condition.id)));
    }

    fn insert(&mut self, name: (Table, Slice), known: (Version, Option<CommitId>)) {
        if self.young.len() >= VERSIONS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, known);
    }
}
