//! One group at work: turning waiting changes into commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;

use super::change::{Decided, Draft, Ending, Failure, Queued, Undecided};
use super::config::{ChangeError, GroupConfig};
use super::head::{Head, LOADS_MAX, Tail, too_large};
use super::journal::{self, Record};
#[cfg(test)]
use super::sim::Mutation;
use super::{Halt, Machine, Seq};
use crate::wide::{Batch, Commit, CommitId, Outcome, Store, StoreError, Table, Version};

/// Journal entries of one commit, bytes, about; further changes go into the next one.
const RECORD_BYTES: usize = 1 << 20;

/// The state as of one journal number.
#[derive(Debug)]
pub struct Published<S> {
    /// Journal number.
    pub seq: Seq,
    /// The state.
    pub state: S,
}

struct Queue<M: Machine> {
    waiting: VecDeque<Queued<M>>,
    /// A task is at work on it.
    running: bool,
}

/// An entity group on this node. There is no task and no buffer while nothing waits.
pub struct Group<M: Machine> {
    pub(super) machine: M,
    pub(super) store: Arc<dyn Store>,
    pub(super) config: Arc<GroupConfig>,
    pub(super) partition: Bytes,
    published: ArcSwap<Published<M::State>>,
    watch: watch::Sender<Seq>,
    queue: Mutex<Queue<M>>,
    pub(super) head: tokio::sync::Mutex<Head<M>>,
    /// A task writes a checkpoint.
    pub(super) writing: AtomicBool,
}

/// Commit ids: random once per process, then counted, so that none is made twice.
pub(super) fn commit_id() -> CommitId {
    static BASE: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = BASE.get_or_init(rand::random);
    CommitId(base.wrapping_add(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))))
}

/// What became of a commit, once that is certain.
enum Settled {
    Applied,
    Conflict(Version),
}

impl<M: Machine> Group<M> {
    /// Opens a group: its version, pointer and root, and the journal since then; at most five reads whatever its size.
    ///
    /// # Errors
    ///
    /// What the store says; [`StoreError::Corrupt`] when what is stored fails its check.
    pub async fn open(
        machine: M,
        store: Arc<dyn Store>,
        config: impl Into<Arc<GroupConfig>>,
    ) -> Result<Arc<Self>, StoreError> {
        let partition = machine.partition();
        let empty = machine.empty();
        let group = Arc::new(Self {
            machine,
            store,
            config: config.into(),
            partition,
            published: ArcSwap::from_pointee(Published { seq: 0, state: empty }),
            watch: watch::Sender::new(0),
            queue: Mutex::new(Queue { waiting: VecDeque::new(), running: false }),
            head: tokio::sync::Mutex::new(Head::unread()),
            writing: AtomicBool::new(false),
        });
        group.reload(&mut *group.head.lock().await).await?;
        Ok(group)
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The latest state applied here; no I/O.
    pub fn current(&self) -> Arc<Published<M::State>> {
        self.published.load_full()
    }

    /// The state, caught up with what other nodes committed before this call. One small read where the store is
    /// shared, none where it is not.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn refresh(self: &Arc<Self>) -> Result<Arc<Published<M::State>>, StoreError> {
        if self.config.shared {
            let version = self.store.version(Table::Head, &self.partition).await?;
            if version > self.current().seq {
                let mut head = self.head.lock().await;
                self.catch_up(&mut head, version).await?;
            }
        }
        Ok(self.current())
    }

    /// Changes when a commit was applied here. A wake-up is a hint; [`Group::current`] is the truth.
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.watch.subscribe()
    }

    /// True while somebody watches, changes wait or a checkpoint is written.
    pub fn busy(&self) -> bool {
        self.watch.receiver_count() > 0 || self.queue().running || self.writing.load(Ordering::Relaxed)
    }

    /// The journal after `after` up to [`Group::current`], or `None` when it does not reach back that far.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn entries(&self, after: Seq) -> Result<Option<Vec<(Seq, Vec<M::Entry>)>>, StoreError> {
        let newest = self.current().seq;
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            match self.tail(after, newest).await? {
                Tail::Found(records) => {
                    let decoded = records.into_iter().map(|record| Ok((record.seq, self.decode(&record)?)));
                    return decoded.collect::<Result<Vec<_>, StoreError>>().map(Some);
                }
                Tail::Lapped => return Ok(None),
                Tail::Behind => {}
            }
        }
        Err(StoreError::Unavailable("the journal cannot be read up to its end".to_owned()))
    }

    /// Changes the state: `decide` is run over the latest state (again after each conflict, and again when parts were
    /// missing) and records entries; `first` is durable with them, and not written if nothing is recorded. Returns when
    /// it is durable and visible here, with the number of the state that it was decided for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the change.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn change<T, E, F>(self: &Arc<Self>, first: Batch, decide: F) -> Result<(T, Seq), ChangeError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnMut(&mut Draft<'_, M>) -> Result<T, Halt<E, M::Missing>> + Send + 'static,
    {
        let (queued, answered) = Queued::new(first, decide);
        let start = {
            let mut queue = self.queue();
            if queue.waiting.len() >= self.config.waiting_max {
                return Err(StoreError::Unavailable("too many changes wait".to_owned()).into());
            }
            queue.waiting.push_back(queued);
            !std::mem::replace(&mut queue.running, true)
        };
        if start {
            tokio::spawn(Arc::clone(self).work());
        }
        // No answer: the closure panicked, or the runtime ends.
        answered.await.unwrap_or(Err(ChangeError::Unknown))
    }

    fn queue(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits until nothing waits.
    async fn work(self: Arc<Self>) {
        let guard = Working(&self);
        while let Some(mut round) = self.take() {
            let mut head = self.head.lock().await;
            let ending = match self.round(&mut head, &mut round).await {
                Ok(seq) => Ending::Durable(seq),
                Err(failure) => Ending::Failed(failure),
            };
            round.into_iter().for_each(|queued| queued.settle(ending.clone()));
            if let Err(error) = self.begin_if_due(&mut head).await {
                tracing::debug!(%error, "a checkpoint was not begun; the next change tries again");
            }
        }
        std::mem::forget(guard);
    }

    /// The next changes to be committed together; `None` ends the work.
    fn take(&self) -> Option<Vec<Queued<M>>> {
        let mut queue = self.queue();
        let (mut count, mut bytes) = (0, 0);
        while count < self.config.changes_max
            && bytes < self.config.first_bytes_max
            && let Some(next) = queue.waiting.get(count)
        {
            (count, bytes) = (count + 1, bytes + next.bytes);
        }
        if count == 0 {
            queue.running = false;
            // Bursts must not leave their memory behind in thousands of idle groups.
            queue.waiting.shrink_to(0);
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }

    /// Decides and commits one round: the number of the state that it is part of.
    async fn round(self: &Arc<Self>, head: &mut Head<M>, round: &mut Vec<Queued<M>>) -> Result<Seq, Failure> {
        for conflict in 0..=self.config.tries {
            if conflict > 1 {
                (self.config.pause)(conflict - 1).await;
            }
            self.settle_doubt(head).await?;
            self.make_room(head).await?;
            let base = self.current();
            let (state, entries) = self.decide(&base, round).await?;
            let certain =
                !entries.is_empty() && !round.iter().any(|queued| matches!(queued.decided, Decided::Failed(_)));
            if !certain && self.config.shared {
                // It may be so only because another node's changes are not known here yet.
                let version = self.store.version(Table::Head, &self.partition).await?;
                if version > base.seq {
                    self.catch_up(head, version).await?;
                    continue;
                }
            }
            if entries.is_empty() {
                return Ok(base.seq);
            }
            let mut first = Batch::default();
            for queued in round.iter().filter(|queued| matches!(queued.decided, Decided::Recorded)) {
                first.writes.extend(queued.first.writes.iter().cloned());
            }
            #[cfg(test)]
            if self.is(Mutation::AckBeforeDurable) {
                round.drain(..).for_each(|queued| queued.settle(Ending::Durable(base.seq + 1)));
            }
            if let Some(seq) = self.record(head, &base, state, entries, first).await? {
                return Ok(seq);
            }
        }
        Err(StoreError::Unavailable("too many conflicting writers".to_owned()).into())
    }

    /// Commits one record after `base`, along with the checkpoint that is ready, and publishes `state`: its number.
    /// `None` after a conflict; the state here is caught up then.
    pub(super) async fn record(
        self: &Arc<Self>,
        head: &mut Head<M>,
        base: &Published<M::State>,
        state: M::State,
        entries: Vec<Bytes>,
        first: Batch,
    ) -> Result<Option<Seq>, Failure> {
        let seq = base.seq + 1;
        let pointer = self.ready(head).map(|ready| ready.pointer.clone());
        let record = Record { seq, id: commit_id(), pointer, entries };
        let mut writes = vec![(journal::slot_key(seq, self.config.ring), Some(record.to_bytes()))];
        if let Some(pointer) = &record.pointer {
            writes.push((Bytes::from_static(journal::POINTER), Some(pointer.to_bytes())));
        }
        let (table, partition) = (Table::Head, self.partition.clone());
        let commit = Commit { table, partition, expected: base.seq, id: record.id, writes, first };
        match self.commit(head, commit).await? {
            Settled::Applied => {
                head.bytes_since += record.size();
                if let Some(pointer) = &record.pointer {
                    self.moved(head, pointer);
                }
                self.publish(seq, state);
                Ok(Some(seq))
            }
            Settled::Conflict(version) => {
                metrics::counter!("posthouse_group_conflicts_total").increment(1);
                #[cfg(test)]
                if self.is(Mutation::SkipCatchUp) {
                    self.publish(version.max(base.seq), base.state.clone());
                    return Ok(None);
                }
                self.catch_up(head, version).await?;
                Ok(None)
            }
        }
    }

    /// Runs every closure over the state, in order. What would make the entry too large goes back into the queue.
    async fn decide(
        &self,
        base: &Published<M::State>,
        round: &mut Vec<Queued<M>>,
    ) -> Result<(M::State, Vec<Bytes>), StoreError> {
        let mut state = base.state.clone();
        let mut entries: Vec<M::Entry> = Vec::new();
        let mut encoded: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        for at in 0..round.len() {
            if bytes > RECORD_BYTES {
                let mut rest = round.split_off(at);
                let mut queue = self.queue();
                while let Some(queued) = rest.pop() {
                    queue.waiting.push_front(queued);
                }
                break;
            }
            let kept = entries.len();
            round[at].decided = self.decide_one(base, &mut round[at], &mut state, &mut entries).await?;
            for entry in &entries[kept..] {
                let mut out = Vec::new();
                self.machine.encode(entry, &mut out);
                bytes += out.len();
                encoded.push(out.into());
            }
        }
        Ok((state, encoded))
    }

    /// Runs one closure until it decides.
    async fn decide_one(
        &self,
        base: &Published<M::State>,
        queued: &mut Queued<M>,
        state: &mut M::State,
        entries: &mut Vec<M::Entry>,
    ) -> Result<Decided, StoreError> {
        let seq = base.seq + 1;
        let kept = entries.len();
        for _ in 0..=LOADS_MAX {
            let undecided = match queued.change.decide(&mut Draft::new(&self.machine, state, entries, seq)) {
                Ok(()) if entries.len() > kept => return Ok(Decided::Recorded),
                Ok(()) => return Ok(Decided::Nothing),
                Err(undecided) => undecided,
            };
            if entries.len() > kept {
                // Undo what it had recorded: from the base, with what the changes before it recorded.
                entries.truncate(kept);
                *state = base.state.clone();
                for entry in &*entries {
                    self.apply(state, seq, entry).await?;
                }
            }
            match undecided {
                Undecided::Refused => return Ok(Decided::Nothing),
                Undecided::Corrupt(what) => return Ok(Decided::Failed(StoreError::Corrupt(what))),
                Undecided::Missing(missing) => {
                    if let Err(error) = self.machine.load(&*self.store, missing).await {
                        return Ok(Decided::Failed(error));
                    }
                }
            }
        }
        Ok(Decided::Failed(too_large()))
    }

    /// Commits, settling an unknown outcome by the commit's own id.
    async fn commit(&self, head: &mut Head<M>, commit: Commit) -> Result<Settled, Failure> {
        #[cfg(test)]
        let commit = self.mutated(commit).await?;
        let mut unknown = false;
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            match self.store.commit(commit.clone()).await {
                Ok(Outcome::Applied) => return Ok(Settled::Applied),
                Ok(Outcome::Conflict(version)) if unknown && version > commit.expected => {
                    return self.whose(head, &commit, version).await;
                }
                #[cfg(test)]
                Ok(Outcome::Conflict(version)) if unknown && self.is(Mutation::TrustRefusal) => {
                    return Ok(Settled::Conflict(version));
                }
                // Refused though nobody was faster: ours may still arrive, so only repeating it can settle it.
                Ok(Outcome::Conflict(_)) if unknown => {}
                Ok(Outcome::Conflict(version)) => return Ok(Settled::Conflict(version)),
                #[cfg(test)]
                Ok(Outcome::Unknown) if self.is(Mutation::ForgetUnknown) => {
                    return Ok(Settled::Conflict(commit.expected));
                }
                Ok(Outcome::Unknown) => {
                    metrics::counter!("posthouse_group_unknown_total").increment(1);
                    unknown = true;
                }
                Err(error) => {
                    head.doubtful = true;
                    return Err(if unknown { Failure::Unknown } else { error.into() });
                }
            }
        }
        head.doubtful = true;
        Err(Failure::Unknown)
    }

    /// After an unknown outcome the partition has moved on: by this commit, or by another node's?
    async fn whose(&self, head: &mut Head<M>, commit: &Commit, version: Version) -> Result<Settled, Failure> {
        head.doubtful = true;
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            match self.tail(commit.expected, commit.expected + 1).await {
                Ok(Tail::Found(records)) => {
                    let ours = records.first().is_some_and(|record| record.id == commit.id);
                    return Ok(if ours { Settled::Applied } else { Settled::Conflict(version) });
                }
                Ok(Tail::Behind) => {}
                // The ring went round meanwhile: nobody can tell any more.
                Ok(Tail::Lapped) | Err(_) => break,
            }
        }
        Err(Failure::Unknown)
    }

    pub(super) fn publish(&self, seq: Seq, state: M::State) {
        self.published.store(Arc::new(Published { seq, state }));
        self.watch.send_if_modified(|newest| std::mem::replace(newest, seq) != seq);
    }

    #[cfg(test)]
    async fn mutated(&self, mut commit: Commit) -> Result<Commit, Failure> {
        if self.is(Mutation::DropVersionCheck) {
            commit.expected = self.store.version(Table::Head, &self.partition).await?;
        }
        Ok(commit)
    }

    #[cfg(test)]
    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.config.mutation == Some(mutation)
    }
}

/// Ends the work if it is not carried on (a closure panicked, the runtime ends): those who wait learn that the outcome
/// is not known, and the next change begins anew.
struct Working<'a, M: Machine>(&'a Group<M>);

impl<M: Machine> Drop for Working<'_, M> {
    fn drop(&mut self) {
        let waiting = {
            let mut queue = self.0.queue();
            queue.running = false;
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }
}
