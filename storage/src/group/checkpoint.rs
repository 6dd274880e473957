//! Checkpoints: written beside the commits, made the newest by one of them, and what they supersede deleted after it.
//!
//! The chunks and the root of a committed state are put while further changes are committed; the pointer to them goes
//! along with a later commit. So a checkpoint costs no commit of its own and no change waits for one, unless the ring
//! is about to come round to an entry that no checkpoint covers.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::head::Head;
use super::journal::{self, Pointer, Root};
use super::run::{Group, Published, commit_id};
#[cfg(test)]
use super::sim::Mutation;
use super::{Checkpoint, Machine, Seq};
use crate::wide::{Batch, Order, StoreError, Table};

/// Chunks put at one time, bytes, about.
const PUT_BYTES: usize = 4 << 20;
/// Rows that one step of sweeping reads.
const SWEEP_ROWS: usize = 64;
/// Steps of sweeping after one checkpoint; what is left after that stays behind as unread rows.
const SWEEP_STEPS: usize = 16;

/// A journal shorter than this part of what makes a checkpoint due is left as it is when the group is settled.
const SHORT_JOURNAL: usize = 64;

/// The next checkpoint.
pub(super) enum Attempt<M: Machine> {
    None,
    Writing(oneshot::Receiver<Ready<M>>),
    Ready(Box<Ready<M>>),
}

/// A checkpoint whose rows are durable and that waits for a commit to become the newest.
pub(super) struct Ready<M: Machine> {
    pub(super) pointer: Pointer,
    /// What it is a checkpoint of.
    state: Arc<Published<M::State>>,
    superseded: Vec<Bytes>,
    /// The newest checkpoint when it was begun: only that one may be followed by it.
    based_on: Option<Pointer>,
    bytes_before: usize,
}

impl<M: Machine> Group<M> {
    /// The checkpoint that the next commit makes the newest, if there is one.
    pub(super) fn ready<'a>(&self, head: &'a mut Head<M>) -> Option<&'a Ready<M>> {
        if let Attempt::Writing(written) = &mut head.attempt {
            match written.try_recv() {
                Ok(ready) => head.attempt = Attempt::Ready(Box::new(ready)),
                Err(oneshot::error::TryRecvError::Empty) => return None,
                Err(oneshot::error::TryRecvError::Closed) => head.attempt = Attempt::None,
            }
        }
        match &head.attempt {
            Attempt::Ready(ready) if ready.based_on == head.checkpoint => Some(ready),
            _ => None,
        }
    }

    /// The pointer was moved by a commit that is part of the state here.
    pub(super) fn moved(self: &Arc<Self>, head: &mut Head<M>, pointer: &Pointer) {
        match std::mem::replace(&mut head.attempt, Attempt::None) {
            Attempt::Ready(ready) if ready.pointer == *pointer => {
                self.machine.checkpointed(&ready.state.state, pointer.at);
                head.ours = true;
                head.leftover = Vec::new();
                head.bytes_since = head.bytes_since.saturating_sub(ready.bytes_before);
                metrics::counter!("posthouse_group_checkpoints_total").increment(1);
                tokio::spawn(Arc::clone(self).clean(*ready));
            }
            // Another node was faster: what this one has written meanwhile is swept some day.
            _ => {
                head.ours = false;
                head.bytes_since = 0;
            }
        }
        head.checkpoint = Some(pointer.clone());
    }

    /// Begins a checkpoint if one is due.
    pub(super) async fn begin_if_due(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.is(Mutation::TrimBeforeCheckpoint) {
            return Ok(());
        }
        let since = self.current().seq.saturating_sub(head.covered());
        let due = since >= self.config.checkpoint_entries || head.bytes_since >= self.config.checkpoint_bytes;
        if !due || since == 0 {
            return Ok(());
        }
        match &head.attempt {
            Attempt::Writing(_) => return Ok(()),
            Attempt::Ready(ready) if ready.based_on == head.checkpoint => return Ok(()),
            _ => {}
        }
        self.begin(head).await
    }

    async fn begin(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        head.attempt = Attempt::None;
        let rebase = !head.ours;
        #[cfg(test)]
        let rebase = rebase && !self.is(Mutation::SkipRebase);
        if rebase {
            // The machine knows what it stored itself, not what the other node did.
            self.reload(head).await?;
        }
        let state = self.current();
        let (done, written) = oneshot::channel();
        head.attempt = Attempt::Writing(written);
        self.writing.store(true, Ordering::Relaxed);
        let (group, based_on) = (Arc::clone(self), head.checkpoint.clone());
        let (leftover, bytes_before) = (head.leftover.clone(), head.bytes_since);
        tokio::spawn(async move {
            match group.write(state, based_on, leftover, bytes_before).await {
                Ok(ready) => drop(done.send(ready)),
                Err(error) => tracing::warn!(%error, "a checkpoint was not written; the next change tries again"),
            }
            group.writing.store(false, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Writes the rows of a checkpoint.
    async fn write(
        &self,
        state: Arc<Published<M::State>>,
        based_on: Option<Pointer>,
        leftover: Vec<Bytes>,
        bytes_before: usize,
    ) -> Result<Ready<M>, StoreError> {
        let at = state.seq;
        let Checkpoint { root, chunks, mut superseded } = self.machine.checkpoint(&state.state, at);
        let pointer = Pointer { at, root: journal::root_key(at, commit_id()) };
        superseded.extend(based_on.iter().map(|pointer| pointer.root.clone()));
        let root = Root::to_bytes(&superseded, &root);
        #[cfg(test)]
        if self.is(Mutation::DeleteBeforeCommit) {
            self.delete(superseded.clone()).await?;
        }
        let (mut batch, mut bytes) = (Batch::default(), 0);
        for (key, chunk) in chunks {
            bytes += chunk.len();
            batch.put(Table::Chunk, self.partition.clone(), key, chunk);
            if bytes >= PUT_BYTES {
                self.store.put(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        batch.put(Table::Chunk, self.partition.clone(), pointer.root.clone(), root);
        self.store.put(batch).await?;
        superseded.extend(leftover);
        Ok(Ready { pointer, state, superseded, based_on, bytes_before })
    }

    /// Waits for the checkpoint that is being written, or for one begun now.
    async fn written(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        if !matches!(head.attempt, Attempt::Writing(_)) {
            self.begin(head).await?;
        }
        if let Attempt::Writing(written) = &mut head.attempt {
            head.attempt = match written.await {
                Ok(ready) => Attempt::Ready(Box::new(ready)),
                Err(_) => Attempt::None,
            };
        }
        Ok(())
    }

    /// Writes a checkpoint and makes it the newest by a commit of its own, so that whoever opens the group next reads
    /// no journal. Nothing is done when that would be short anyway. For closing: while changes come, they take
    /// checkpoints along.
    ///
    /// # Errors
    ///
    /// What the store says; the group is as good as before.
    pub async fn settle(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut head = self.head.lock().await;
        for conflict in 0..=self.config.tries {
            if conflict > 1 {
                (self.config.pause)(conflict - 1).await;
            }
            self.settle_doubt(&mut head).await?;
            if self.current().seq == head.covered() || head.bytes_since < self.config.checkpoint_bytes / SHORT_JOURNAL {
                return Ok(());
            }
            // Up to two: one that was begun before the last change, and one of now.
            for _ in 0..2 {
                if self.ready(&mut head).is_none_or(|ready| ready.pointer.at < self.current().seq) {
                    self.written(&mut head).await?;
                }
            }
            self.make_room(&mut head).await?;
            // Only now: the state may have been restored from another node's checkpoint meanwhile.
            let base = self.current();
            if self.record(&mut head, &base, base.state.clone(), Vec::new(), Batch::default()).await?.is_some() {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable("too many conflicting writers".to_owned()))
    }

    /// Makes sure that the slot of `seq` may be overwritten once the next commit is applied.
    pub(super) async fn make_room(self: &Arc<Self>, head: &mut Head<M>) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.is(Mutation::TrimBeforeCheckpoint) {
            return Ok(());
        }
        let covers = |at: Seq, seq: Seq| seq.saturating_sub(self.config.ring) <= at;
        if covers(head.covered(), self.current().seq + 1) {
            return Ok(());
        }
        // Up to two: one that was begun too long ago, and one of now.
        for _ in 0..2 {
            if let Some(ready) = self.ready(head)
                && covers(ready.pointer.at, self.current().seq + 1)
            {
                return Ok(());
            }
            self.written(head).await?;
        }
        match self.ready(head) {
            Some(ready) if covers(ready.pointer.at, self.current().seq + 1) => Ok(()),
            _ => Err(StoreError::Unavailable("the journal is full and no checkpoint can be written".to_owned())),
        }
    }

    /// Deletes what a checkpoint, now the newest, superseded, and what attempts between it and the last one left.
    async fn clean(self: Arc<Self>, ready: Ready<M>) {
        let Ready { pointer, state, superseded, based_on, .. } = ready;
        drop(state);
        let done = async {
            self.delete(superseded).await?;
            self.sweep(based_on.map_or(0, |pointer| pointer.at), &pointer).await
        };
        if let Err(error) = done.await {
            // Whoever opens from this checkpoint tries again.
            tracing::debug!(%error, "what a checkpoint superseded was not deleted");
        }
    }

    async fn delete(&self, keys: Vec<Bytes>) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for key in keys {
            batch.delete(Table::Chunk, self.partition.clone(), key);
        }
        if batch.is_empty() { Ok(()) } else { self.store.put(batch).await }
    }

    async fn sweep(&self, last: Seq, newest: &Pointer) -> Result<(), StoreError> {
        let number = |seq: Seq| Bytes::copy_from_slice(&seq.to_be_bytes());
        let root = |seq: Seq| Bytes::from(journal::root_prefix(seq));
        let chunks = (number(last + 1), number(newest.at));
        let roots = (root(last + 1), root(newest.at + 1));
        for (from, to) in [chunks, roots] {
            let mut from = Bound::Included(from);
            for _ in 0..SWEEP_STEPS {
                let range = (from.clone(), Bound::Excluded(to.clone()));
                let rows = self.store.scan(Table::Chunk, &self.partition, range, Order::Forward, SWEEP_ROWS).await?;
                let Some((end, _)) = rows.last() else { break };
                let more = rows.len() == SWEEP_ROWS;
                from = Bound::Excluded(end.clone());
                let keys = rows.into_iter().map(|(key, _)| key).filter(|key| *key != newest.root);
                self.delete(keys.collect()).await?;
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}
