//! Reading: opening a group, catching up with other nodes, and what the journal holds.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::checkpoint::Attempt;
use super::journal::{self, Pointer, Record, Root};
use super::run::Group;
use super::{Halt, Machine, Seq};
use crate::wide::{Order, StoreError, Table};

/// What only whoever reads or commits knows; one at a time.
pub(super) struct Head<M: Machine> {
    /// The newest checkpoint, as of the state published here.
    pub(super) checkpoint: Option<Pointer>,
    /// The state here was restored from that checkpoint, or this node wrote it.
    pub(super) ours: bool,
    /// Journal bytes since then, about.
    pub(super) bytes_since: usize,
    /// What that checkpoint superseded and a crash may have left.
    pub(super) leftover: Vec<Bytes>,
    /// The next checkpoint, if it is being written.
    pub(super) attempt: Attempt<M>,
    /// It is not known what the head holds: read it before deciding anything.
    pub(super) doubtful: bool,
}

impl<M: Machine> Head<M> {
    pub(super) fn unread() -> Self {
        Self {
            checkpoint: None,
            ours: true,
            bytes_since: 0,
            leftover: Vec::new(),
            attempt: Attempt::None,
            doubtful: true,
        }
    }

    /// The number that the newest checkpoint covers.
    pub(super) fn covered(&self) -> Seq {
        self.checkpoint.as_ref().map_or(0, |pointer| pointer.at)
    }
}

/// A part of the journal.
pub(super) enum Tail {
    Found(Vec<Record>),
    /// The ring does not reach back that far any more.
    Lapped,
    /// Read from a replica that does not hold all of it yet.
    Behind,
}

/// Times that a step is run again because parts of the state were not in memory.
pub(super) const LOADS_MAX: usize = 64;

pub(super) fn too_large() -> StoreError {
    StoreError::Unavailable("what a change needs does not fit into memory".to_owned())
}

impl<M: Machine> Group<M> {
    /// Reads the head again if it is not known what it holds.
    pub(super) async fn settle_doubt(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        if head.doubtful {
            let version = self.store.version(Table::Head, &self.partition).await?;
            self.catch_up(head, version).await?;
            head.doubtful = false;
        }
        Ok(())
    }

    /// Applies what was committed up to `version` and is not known here.
    pub(super) async fn catch_up(self: &Arc<Self>, head: &mut Head<M>, version: Seq) -> Result<(), StoreError> {
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            let base = self.current();
            if version <= base.seq {
                return Ok(());
            }
            match self.tail(base.seq, version).await? {
                Tail::Found(records) => {
                    let state = match self.replay(base.state.clone(), &records).await {
                        // A chunk is gone, superseded by a checkpoint further on.
                        Err(StoreError::Unavailable(_)) => return self.reload(head).await,
                        replayed => replayed?,
                    };
                    self.follow(head, &records);
                    self.publish(version, state);
                    return Ok(());
                }
                Tail::Lapped => return self.reload(head).await,
                Tail::Behind => {}
            }
        }
        Err(StoreError::Unavailable("the journal cannot be read up to its end".to_owned()))
    }

    /// The state from the newest checkpoint and the journal after it.
    pub(super) async fn reload(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        let mut gone: Option<(Bytes, u32)> = None;
        let mut failed = None;
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            let version = self.store.version(Table::Head, &self.partition).await?;
            let (mut at, mut state, mut leftover, mut checkpoint) = (0, self.machine.empty(), Vec::new(), None);
            let pointer = match version {
                0 => None,
                _ => self.store.get(Table::Head, &self.partition, journal::POINTER).await?,
            };
            if let Some(bytes) = pointer {
                let pointer = Pointer::from_bytes(&bytes).map_err(|what| self.corrupt("pointer", &what))?;
                let Some(bytes) = self.store.get(Table::Chunk, &self.partition, &pointer.root).await? else {
                    // Another node has moved the pointer on meanwhile, or the root is lost.
                    let times = gone.filter(|(key, _)| *key == pointer.root).map_or(0, |(_, times)| times);
                    gone = Some((pointer.root, times + 1));
                    continue;
                };
                let root = Root::from_bytes(&bytes).map_err(|what| self.corrupt("root", &what))?;
                state = self.machine.restore(&root.root).map_err(|what| self.corrupt("root", &what))?;
                (at, leftover, checkpoint) = (pointer.at, root.superseded, Some(pointer));
            }
            let version = version.max(at).max(self.current().seq);
            let Tail::Found(records) = self.tail(at, version).await? else { continue };
            let state = match self.replay(state, &records).await {
                Ok(state) => state,
                Err(error @ StoreError::Unavailable(_)) => {
                    failed = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            *head = Head { checkpoint, leftover, doubtful: false, ..Head::unread() };
            head.bytes_since = records.iter().map(Record::size).sum();
            self.publish(version, state);
            return Ok(());
        }
        match gone {
            Some((_, times)) if times > self.config.tries => Err(self.corrupt("root", "it is missing")),
            _ => Err(failed.unwrap_or_else(|| StoreError::Unavailable("the journal moves on too fast".to_owned()))),
        }
    }

    /// Takes note of what was replayed.
    fn follow(self: &Arc<Self>, head: &mut Head<M>, records: &[Record]) {
        for record in records {
            head.bytes_since += record.size();
            if let Some(pointer) = &record.pointer {
                self.moved(head, pointer);
            }
        }
    }

    async fn replay(&self, mut state: M::State, records: &[Record]) -> Result<M::State, StoreError> {
        for record in records {
            for entry in self.decode(record)? {
                self.apply(&mut state, record.seq, &entry).await?;
            }
        }
        Ok(state)
    }

    pub(super) async fn apply(&self, state: &mut M::State, seq: Seq, entry: &M::Entry) -> Result<(), StoreError> {
        for _ in 0..=LOADS_MAX {
            match self.machine.apply(state, seq, entry) {
                Ok(()) => return Ok(()),
                Err(Halt::Missing(missing)) => self.machine.load(&*self.store, missing).await?,
                Err(Halt::Corrupt(what)) => return Err(StoreError::Corrupt(what)),
                Err(Halt::Refused(never)) => match never {},
            }
        }
        Err(too_large())
    }

    /// The records after `after` up to `upto`: one scan up to the end of the ring, at most a second from its start.
    pub(super) async fn tail(&self, after: Seq, upto: Seq) -> Result<Tail, StoreError> {
        let ring = self.config.ring;
        let count = upto.saturating_sub(after);
        if count > ring {
            return Ok(Tail::Lapped);
        }
        let mut found = Vec::with_capacity(count as usize);
        let mut next = after + 1;
        while next <= upto {
            let until = upto.min(next + (ring - 1 - next % ring));
            let (from, to) = (journal::slot_key(next, ring), journal::slot_key(until, ring));
            let limit = (until - next + 1) as usize;
            let rows = if limit == 1 {
                // The usual case on opening, and a get is the cheaper read.
                let row = self.store.get(Table::Head, &self.partition, &from).await?;
                row.map(|bytes| (from, bytes)).into_iter().collect()
            } else {
                let range = (Bound::Included(from), Bound::Included(to));
                self.store.scan(Table::Head, &self.partition, range, Order::Forward, limit).await?
            };
            if rows.len() < limit {
                return Ok(Tail::Behind);
            }
            for (_, bytes) in rows {
                let record = Record::from_bytes(&bytes).map_err(|what| self.corrupt("journal entry", &what))?;
                match record.seq.cmp(&next) {
                    std::cmp::Ordering::Less => return Ok(Tail::Behind),
                    std::cmp::Ordering::Greater => return Ok(Tail::Lapped),
                    std::cmp::Ordering::Equal => found.push(record),
                }
                next += 1;
            }
        }
        Ok(Tail::Found(found))
    }

    pub(super) fn decode(&self, record: &Record) -> Result<Vec<M::Entry>, StoreError> {
        let entries = record.entries.iter().map(|bytes| self.machine.decode(bytes));
        entries.collect::<Result<_, _>>().map_err(|what| self.corrupt("journal entry", &what))
    }

    pub(super) fn corrupt(&self, which: &str, what: &str) -> StoreError {
        StoreError::Corrupt(format!("a {which} of group {}: {what}", self.partition.escape_ascii()))
    }
}
