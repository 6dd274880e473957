//! One group at work: reading its head, catching up, and turning waiting changes into commits.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use super::journal::{self, Pointer, Record};
use super::{Halt, Machine, Seq};
use crate::wide::{Batch, Commit, CommitId, Order, Outcome, Store, StoreError, Table};

/// How a group keeps its journal.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// Ring slots: how many journal entries are kept (at least twice `checkpoint_entries`).
    pub ring: u64,
    /// A checkpoint is due after so many entries.
    pub checkpoint_entries: u64,
    /// A checkpoint is due after so many bytes of journal.
    pub checkpoint_bytes: usize,
    /// Changes coalesced into one entry at most.
    pub changes_max: usize,
    /// Bytes of `first` coalesced into one commit, about.
    pub first_bytes_max: usize,
    /// Other nodes may commit to the same store: [`Group::refresh`] asks it.
    pub shared: bool,
    /// Tries of one commit (unknown outcomes) and of one change (conflicts), before its caller is told.
    pub tries: u32,
    /// Waits before try number `n` (from 1); a simulation only yields here.
    pub pause: fn(u32) -> crate::wide::BoxFuture<'static, ()>,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            ring: 1024,
            checkpoint_entries: 128,
            checkpoint_bytes: 512 * 1024,
            changes_max: 512,
            first_bytes_max: 8 << 20,
            shared: false,
            tries: 12,
            pause: |n| {
                // Full jitter: two nodes that meet do not meet again.
                let most = 1_u64 << n.min(9);
                let wait = std::time::Duration::from_millis(rand::random_range(0..=most));
                Box::pin(tokio::time::sleep(wait))
            },
        }
    }
}

/// Why a change failed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<E> {
    /// The closure refused; nothing was changed.
    #[error("refused")]
    Refused(E),
    /// The store failed; nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not say, within all tries, whether it was applied. It was applied once or not at all.
    #[error("the outcome is not known")]
    Unknown,
}

/// The state as of one journal number.
#[derive(Debug)]
pub struct Published<S> {
    /// Journal number.
    pub seq: Seq,
    /// The state.
    pub state: S,
}

/// What a closure decides on: the state with every change of the same commit before it, and what it records.
pub struct Draft<'a, M: Machine> {
    machine: &'a M,
    state: &'a mut M::State,
    entries: &'a mut Vec<M::Entry>,
    seq: Seq,
}

impl<M: Machine> Draft<'_, M> {
    /// The state so far.
    pub fn state(&self) -> &M::State {
        self.state
    }

    /// The number the commit will have.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Records an entry and applies it to the state at hand.
    ///
    /// # Errors
    ///
    /// What [`Machine::apply`] says; pass it on (the closure is run again when what is missing is there).
    pub fn emit<E>(&mut self, entry: M::Entry) -> Result<(), Halt<E, M::Missing>> {
        self.machine.apply(self.state, self.seq, &entry).map_err(widen)?;
        self.entries.push(entry);
        Ok(())
    }
}

fn widen<E, X>(halt: Halt<Infallible, X>) -> Halt<E, X> {
    match halt {
        Halt::Missing(missing) => Halt::Missing(missing),
        Halt::Corrupt(what) => Halt::Corrupt(what),
        Halt::Refused(never) => match never {},
    }
}

/// Why one run of a closure did not decide.
enum Undecided<X> {
    Missing(X),
    Refused,
    Corrupt(String),
}

/// How a change ended, seen from the group.
#[derive(Clone)]
enum Ending {
    Durable(Seq),
    Failed(Failure),
}

#[derive(Clone)]
enum Failure {
    Store(Arc<StoreError>),
    Unknown,
}

/// A change that waits, its types forgotten.
trait Waiting<M: Machine>: Send {
    fn decide(&mut self, draft: &mut Draft<'_, M>) -> Result<(), Undecided<M::Missing>>;
    fn settle(self: Box<Self>, ending: Ending);
}

struct Change<T, E, F> {
    decide: F,
    decided: Option<Result<T, E>>,
    answer: oneshot::Sender<Result<(T, Seq), ChangeError<E>>>,
}

impl<M, T, E, F> Waiting<M> for Change<T, E, F>
where
    M: Machine,
    T: Send,
    E: Send,
    F: FnMut(&mut Draft<'_, M>) -> Result<T, Halt<E, M::Missing>> + Send,
{
    fn decide(&mut self, draft: &mut Draft<'_, M>) -> Result<(), Undecided<M::Missing>> {
        self.decided = None;
        match (self.decide)(draft) {
            Ok(value) => {
                self.decided = Some(Ok(value));
                Ok(())
            }
            Err(Halt::Refused(error)) => {
                self.decided = Some(Err(error));
                Err(Undecided::Refused)
            }
            Err(Halt::Missing(missing)) => Err(Undecided::Missing(missing)),
            Err(Halt::Corrupt(what)) => Err(Undecided::Corrupt(what)),
        }
    }

    fn settle(self: Box<Self>, ending: Ending) {
        let answer = match (ending, self.decided) {
            (Ending::Durable(seq), Some(Ok(value))) => Ok((value, seq)),
            (Ending::Durable(_), Some(Err(error))) => Err(ChangeError::Refused(error)),
            (Ending::Durable(_), None) => Err(ChangeError::Unknown),
            (Ending::Failed(Failure::Unknown), _) => Err(ChangeError::Unknown),
            (Ending::Failed(Failure::Store(error)), _) => Err(ChangeError::Store(again(&error))),
        };
        // The caller may be gone; the change stands all the same.
        drop(self.answer.send(answer));
    }
}

/// The same error for each of those that waited.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(what) => StoreError::Unavailable(what.clone()),
        StoreError::Poisoned(what) => StoreError::Poisoned(what.clone()),
        StoreError::Corrupt(what) => StoreError::Corrupt(what.clone()),
        StoreError::Refused(what) => StoreError::Refused(what.clone()),
        StoreError::Locked { path, holder } => StoreError::Locked { path: path.clone(), holder: holder.clone() },
        StoreError::Io(error) => StoreError::Io(std::io::Error::new(error.kind(), error.to_string())),
    }
}

struct Queued<M: Machine> {
    change: Box<dyn Waiting<M>>,
    first: Batch,
    bytes: usize,
    /// What its closure last did: a refused change writes nothing, `first` included.
    refused: bool,
}

struct Queue<M: Machine> {
    waiting: VecDeque<Queued<M>>,
    /// A task is at work on it.
    running: bool,
}

/// What only whoever reads or commits knows; one at a time.
struct Head {
    /// The newest checkpoint known here.
    checkpoint: Option<Pointer>,
    /// Journal bytes since then.
    bytes_since: usize,
    /// A commit's outcome was not settled, or a read failed half way: read the head before deciding anything.
    doubtful: bool,
}

/// An entity group on this node.
pub struct Group<M: Machine> {
    machine: M,
    store: Arc<dyn Store>,
    config: GroupConfig,
    partition: Bytes,
    published: ArcSwap<Published<M::State>>,
    watch: watch::Sender<Seq>,
    queue: Mutex<Queue<M>>,
    head: tokio::sync::Mutex<Head>,
}

/// Commit ids: random once per process, then counted, so that none is made twice.
fn commit_id() -> CommitId {
    static BASE: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = BASE.get_or_init(rand::random);
    CommitId(base.wrapping_add(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))))
}

impl<M: Machine> Group<M> {
    /// Opens a group: its version, pointer and root, and the journal since then; a handful of reads whatever its size.
    ///
    /// # Errors
    ///
    /// What the store says; [`StoreError::Corrupt`] when what is stored fails its check.
    pub async fn open(machine: M, store: Arc<dyn Store>, config: GroupConfig) -> Result<Arc<Self>, StoreError> {
        let partition = machine.partition();
        let empty = machine.empty();
        let group = Self {
            machine,
            store,
            config,
            partition,
            published: ArcSwap::from_pointee(Published { seq: 0, state: empty }),
            watch: watch::Sender::new(0),
            queue: Mutex::new(Queue { waiting: VecDeque::new(), running: false }),
            head: tokio::sync::Mutex::new(Head { checkpoint: None, bytes_since: 0, doubtful: true }),
        };
        {
            let mut head = group.head.lock().await;
            group.reload(&mut head).await?;
        }
        Ok(Arc::new(group))
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
    pub async fn refresh(&self) -> Result<Arc<Published<M::State>>, StoreError> {
        if self.config.shared {
            let mut head = self.head.lock().await;
            self.settle_doubt(&mut head).await?;
            let version = self.store.version(Table::Head, &self.partition).await?;
            self.catch_up(&mut head, version).await?;
        }
        Ok(self.current())
    }

    /// Changes when a commit was applied here. A wake-up is a hint; [`Group::current`] is the truth.
    pub fn watch(&self) -> watch::Receiver<Seq> {
        self.watch.subscribe()
    }

    /// True while somebody watches or changes wait.
    pub fn busy(&self) -> bool {
        self.watch.receiver_count() > 0 || self.queue.lock().unwrap_or_else(PoisonError::into_inner).running
    }

    /// The journal after `after`, or `None` when it does not reach back that far.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn entries(&self, after: Seq) -> Result<Option<Vec<(Seq, Vec<M::Entry>)>>, StoreError> {
        let newest = self.current().seq;
        if newest.saturating_sub(after) >= self.config.ring {
            return Ok(None);
        }
        let Some(records) = self.records(after, newest).await? else { return Ok(None) };
        let decoded = records.into_iter().map(|record| Ok((record.seq, self.decode(&record)?)));
        decoded.collect::<Result<Vec<_>, StoreError>>().map(Some)
    }

    /// Changes the state: `decide` is run over the latest state (again after each conflict, and again when parts were
    /// missing) and records entries; `first` is durable with them. Returns when it is durable and visible here.
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
        let (answer, answered) = oneshot::channel();
        let bytes = first.writes.iter().map(|write| write.value.as_ref().map_or(0, Bytes::len) + 64).sum();
        let change = Box::new(Change { decide, decided: None, answer });
        let start = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.waiting.push_back(Queued { change, first, bytes, refused: false });
            !std::mem::replace(&mut queue.running, true)
        };
        if start {
            tokio::spawn(Arc::clone(self).work());
        }
        answered.await.unwrap_or(Err(ChangeError::Unknown))
    }

    /// Commits until nothing waits.
    async fn work(self: Arc<Self>) {
        loop {
            let mut round = Vec::new();
            {
                let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = 0;
                while round.len() < self.config.changes_max
                    && bytes < self.config.first_bytes_max
                    && let Some(next) = queue.waiting.pop_front()
                {
                    bytes += next.bytes;
                    round.push(next);
                }
                if round.is_empty() {
                    queue.running = false;
                    // Bursts must not leave their memory behind in thousands of idle groups.
                    queue.waiting.shrink_to(0);
                    return;
                }
            }
            let ending = {
                let mut head = self.head.lock().await;
                self.round(&mut head, &mut round).await
            };
            let superseded = match &ending {
                Ok((_, superseded)) => superseded.clone(),
                Err(_) => Batch::default(),
            };
            let ending = match ending {
                Ok((seq, _)) => Ending::Durable(seq),
                Err(failure) => Ending::Failed(failure),
            };
            for queued in round {
                queued.change.settle(ending.clone());
            }
            if !superseded.is_empty()
                && let Err(error) = self.store.put(superseded).await
            {
                // They stay behind as unread rows.
                tracing::debug!(%error, "superseded chunks were not deleted");
            }
        }
    }

    /// Decides and commits one round: its number, and what its checkpoint made superfluous.
    async fn round(&self, head: &mut Head, round: &mut [Queued<M>]) -> Result<(Seq, Batch), Failure> {
        let failed = |error: StoreError| Failure::Store(Arc::new(error));
        for conflict in 0..=self.config.tries {
            if conflict > 1 {
                (self.config.pause)(conflict - 1).await;
            }
            self.settle_doubt(head).await.map_err(failed)?;
            let base = self.current();
            let seq = base.seq + 1;
            let (state, entries) = self.decide(&base, round).await.map_err(failed)?;
            if entries.is_empty() {
                return Ok((base.seq, Batch::default()));
            }
            let id = commit_id();
            let record = Record { seq, id, entries: self.encode(&entries) }.to_bytes();
            let mut first = Batch::default();
            for queued in round.iter().filter(|queued| !queued.refused) {
                first.writes.extend(queued.first.writes.iter().cloned());
            }
            let size = record.len();
            let mut writes = vec![(journal::slot_key(seq, self.config.ring), Some(record))];
            let checkpoint = self.checkpoint(head, &state, seq, size, id, &mut writes, &mut first);
            let commit =
                Commit { table: Table::Head, partition: self.partition.clone(), expected: base.seq, id, writes, first };
            match self.commit(head, commit).await? {
                Settled::Applied => {
                    let superseded = match checkpoint {
                        Some((pointer, superseded)) => {
                            self.machine.checkpointed(&state, seq);
                            head.checkpoint = Some(pointer);
                            head.bytes_since = 0;
                            superseded
                        }
                        None => {
                            head.bytes_since += size;
                            Batch::default()
                        }
                    };
                    self.publish(seq, state);
                    return Ok((seq, superseded));
                }
                Settled::Conflict(version) => {
                    metrics::counter!("posthouse_group_conflicts_total").increment(1);
                    self.catch_up(head, version).await.map_err(failed)?;
                }
            }
        }
        Err(failed(StoreError::Unavailable("too many conflicting writers".to_owned())))
    }

    /// Runs every closure over the state, in order.
    async fn decide(
        &self,
        base: &Published<M::State>,
        round: &mut [Queued<M>],
    ) -> Result<(M::State, Vec<M::Entry>), StoreError> {
        let seq = base.seq + 1;
        let mut state = base.state.clone();
        let mut entries: Vec<M::Entry> = Vec::new();
        for queued in round {
            let kept = entries.len();
            queued.refused = false;
            for attempt in 0.. {
                let mut draft = Draft { machine: &self.machine, state: &mut state, entries: &mut entries, seq };
                let undecided = match queued.change.decide(&mut draft) {
                    Ok(()) => break,
                    Err(undecided) => undecided,
                };
                if entries.len() > kept {
                    // Undo what it had recorded: from the base, with what the changes before it recorded.
                    entries.truncate(kept);
                    state = base.state.clone();
                    for entry in &entries {
                        self.apply(&mut state, seq, entry).await?;
                    }
                }
                match undecided {
                    Undecided::Refused => {
                        queued.refused = true;
                        break;
                    }
                    Undecided::Corrupt(what) => return Err(StoreError::Corrupt(what)),
                    Undecided::Missing(_) if attempt >= LOADS_MAX => {
                        return Err(StoreError::Unavailable("the state does not fit into memory".to_owned()));
                    }
                    Undecided::Missing(missing) => self.machine.load(&*self.store, missing).await?,
                }
            }
        }
        Ok((state, entries))
    }

    fn encode(&self, entries: &[M::Entry]) -> Vec<Bytes> {
        let encoded = entries.iter().map(|entry| {
            let mut out = Vec::new();
            self.machine.encode(entry, &mut out);
            out.into()
        });
        encoded.collect()
    }

    /// Adds a checkpoint to the commit if one is due: its pointer, and what it makes superfluous.
    #[expect(clippy::too_many_arguments, reason = "the parts of one commit")]
    fn checkpoint(
        &self,
        head: &Head,
        state: &M::State,
        seq: Seq,
        size: usize,
        id: CommitId,
        writes: &mut Vec<(Bytes, Option<Bytes>)>,
        first: &mut Batch,
    ) -> Option<(Pointer, Batch)> {
        let last = head.checkpoint.as_ref().map_or(0, |pointer| pointer.at);
        let due =
            seq - last >= self.config.checkpoint_entries || head.bytes_since + size >= self.config.checkpoint_bytes;
        if !due {
            return None;
        }
        let checkpoint = self.machine.checkpoint(state, seq);
        // Two nodes may try the same number: the commit's id keeps their roots apart.
        let mut key = vec![b'r'];
        key.extend_from_slice(&seq.to_be_bytes());
        key.extend_from_slice(&id.0.to_be_bytes());
        let pointer = Pointer { at: seq, root: key.into() };
        first.put(Table::Chunk, self.partition.clone(), pointer.root.clone(), journal::seal_root(&checkpoint.root));
        for (key, bytes) in checkpoint.chunks {
            first.put(Table::Chunk, self.partition.clone(), key, bytes);
        }
        writes.push((Bytes::from_static(journal::POINTER), Some(pointer.to_bytes())));
        let mut superseded = Batch::default();
        for key in checkpoint.superseded {
            superseded.delete(Table::Chunk, self.partition.clone(), key);
        }
        if let Some(old) = &head.checkpoint {
            superseded.delete(Table::Chunk, self.partition.clone(), old.root.clone());
        }
        Some((pointer, superseded))
    }

    /// Commits, settling an unknown outcome by the commit's own id.
    async fn commit(&self, head: &mut Head, commit: Commit) -> Result<Settled, Failure> {
        let mut unknown = false;
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            match self.store.commit(commit.clone()).await {
                Ok(Outcome::Applied) => return Ok(Settled::Applied),
                Ok(Outcome::Conflict(version)) if unknown && version > commit.expected => {
                    // Ours may have been applied before whoever came next: the record of that number tells.
                    head.doubtful = true;
                    let records = self.records(commit.expected, commit.expected + 1).await;
                    return match records.map_err(|error| Failure::Store(Arc::new(error)))? {
                        Some(records) if records.first().is_some_and(|record| record.id == commit.id) => {
                            head.doubtful = version > commit.expected + 1;
                            Ok(Settled::Applied)
                        }
                        Some(_) => {
                            head.doubtful = false;
                            Ok(Settled::Conflict(version))
                        }
                        // The ring went round meanwhile: nobody can tell any more.
                        None => Err(Failure::Unknown),
                    };
                }
                Ok(Outcome::Conflict(version)) => return Ok(Settled::Conflict(version)),
                Ok(Outcome::Unknown) => {
                    metrics::counter!("posthouse_group_unknown_total").increment(1);
                    unknown = true;
                }
                Err(error) => {
                    head.doubtful = true;
                    return Err(if unknown { Failure::Unknown } else { Failure::Store(Arc::new(error)) });
                }
            }
        }
        head.doubtful = true;
        Err(Failure::Unknown)
    }

    fn publish(&self, seq: Seq, state: M::State) {
        self.published.store(Arc::new(Published { seq, state }));
        self.watch.send_replace(seq);
    }

    /// Reads the head again if it is not known what it holds.
    async fn settle_doubt(&self, head: &mut Head) -> Result<(), StoreError> {
        if head.doubtful {
            let version = self.store.version(Table::Head, &self.partition).await?;
            self.catch_up(head, version).await?;
            head.doubtful = false;
        }
        Ok(())
    }

    /// Applies what was committed up to `version` and is not known here.
    async fn catch_up(&self, head: &mut Head, version: Seq) -> Result<(), StoreError> {
        let base = self.current();
        if version <= base.seq {
            return Ok(());
        }
        if version - base.seq >= self.config.ring {
            return self.reload(head).await;
        }
        match self.records(base.seq, version).await? {
            Some(records) => {
                let state = self.replay(head, base.state.clone(), &records).await?;
                self.publish(version, state);
                Ok(())
            }
            None => self.reload(head).await,
        }
    }

    async fn replay(&self, head: &mut Head, mut state: M::State, records: &[Record]) -> Result<M::State, StoreError> {
        for record in records {
            head.bytes_since += record.entries.iter().map(|entry| entry.len() + 4).sum::<usize>() + 37;
            for entry in self.decode(record)? {
                self.apply(&mut state, record.seq, &entry).await?;
            }
        }
        Ok(state)
    }

    async fn apply(&self, state: &mut M::State, seq: Seq, entry: &M::Entry) -> Result<(), StoreError> {
        for _ in 0..=LOADS_MAX {
            match self.machine.apply(state, seq, entry) {
                Ok(()) => return Ok(()),
                Err(Halt::Missing(missing)) => self.machine.load(&*self.store, missing).await?,
                Err(Halt::Corrupt(what)) => return Err(StoreError::Corrupt(what)),
                Err(Halt::Refused(never)) => match never {},
            }
        }
        Err(StoreError::Unavailable("the state does not fit into memory".to_owned()))
    }

    /// The state from the newest checkpoint and the journal after it.
    async fn reload(&self, head: &mut Head) -> Result<(), StoreError> {
        for attempt in 0..=self.config.tries {
            if attempt > 0 {
                (self.config.pause)(attempt).await;
            }
            let version = self.store.version(Table::Head, &self.partition).await?;
            let pointer = self.store.get(Table::Head, &self.partition, journal::POINTER).await?;
            let (at, state, pointer) = match pointer {
                None => (0, self.machine.empty(), None),
                Some(bytes) => {
                    let pointer = Pointer::from_bytes(&bytes).map_err(|what| self.corrupt("pointer", &what))?;
                    // Gone: another node has moved the pointer on meanwhile.
                    let Some(root) = self.store.get(Table::Chunk, &self.partition, &pointer.root).await? else {
                        continue;
                    };
                    let root = journal::open_root(&root).map_err(|what| self.corrupt("root", &what))?;
                    let state = self.machine.restore(root).map_err(|what| self.corrupt("root", &what))?;
                    (pointer.at, state, Some(pointer))
                }
            };
            let version = version.max(at).max(self.current().seq);
            let Some(records) = self.records(at, version).await? else { continue };
            head.checkpoint = pointer;
            head.bytes_since = 0;
            let state = match self.replay(head, state, &records).await {
                Ok(state) => state,
                Err(StoreError::Unavailable(_)) if attempt < self.config.tries => continue,
                Err(error) => return Err(error),
            };
            head.doubtful = false;
            self.publish(version, state);
            return Ok(());
        }
        Err(StoreError::Unavailable(format!("the journal of {:?} cannot be read", self.partition)))
    }

    /// The records after `after` up to `upto`; `None` when the ring no longer (or, read from a stale replica, not
    /// yet) holds them all.
    async fn records(&self, after: Seq, upto: Seq) -> Result<Option<Vec<Record>>, StoreError> {
        if upto <= after {
            return Ok(Some(Vec::new()));
        }
        let ring = self.config.ring;
        if upto - after > ring {
            return Ok(None);
        }
        let mut found = Vec::with_capacity((upto - after) as usize);
        let mut next = after + 1;
        while next <= upto {
            // One scan up to the end of the ring, at most a second one from its start.
            let until = upto.min(next + (ring - 1 - next % ring));
            let range = (
                std::ops::Bound::Included(journal::slot_key(next, ring)),
                std::ops::Bound::Included(journal::slot_key(until, ring)),
            );
            let limit = (until - next + 1) as usize;
            let rows = self.store.scan(Table::Head, &self.partition, range, Order::Forward, limit).await?;
            if rows.len() < limit {
                return Ok(None);
            }
            for (_, bytes) in rows {
                let record = Record::from_bytes(&bytes).map_err(|what| self.corrupt("journal entry", &what))?;
                if record.seq != next {
                    return Ok(None);
                }
                next += 1;
                found.push(record);
            }
        }
        Ok(Some(found))
    }

    fn decode(&self, record: &Record) -> Result<Vec<M::Entry>, StoreError> {
        let entries = record.entries.iter().map(|bytes| self.machine.decode(bytes));
        entries.collect::<Result<_, _>>().map_err(|what| self.corrupt("journal entry", &what))
    }

    fn corrupt(&self, which: &str, what: &str) -> StoreError {
        StoreError::Corrupt(format!("a {which} of group {:?}: {what}", self.partition))
    }
}

/// Times that a step is run again because parts of the state were not in memory.
const LOADS_MAX: usize = 64;

enum Settled {
    Applied,
    Conflict(Seq),
}
