//! The store in memory, with faults: for simulations and in-process tests, never for a server.
//!
//! Owns one shared data set and any number of node handles onto it ([`Memory::node`]). Each handle draws its faults
//! from its own seeded generator, in the order of its operations, and uses no clock: on a single-threaded runtime a
//! run is repeated exactly by its seeds.
//!
//! What a handle promises, whatever its faults: reads never go back in time and see this handle's own acknowledged
//! writes; one scan is of one moment; commits are arbitrated on the true version. What it may do: answer from the
//! past, take its time, not answer, or die.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{
    Batch, BoxFuture, Commit, CommitId, KeyRange, Order, Outcome, Result, Store, StoreError, Table, Version, Write,
    check_batch, check_commit, check_partition, range_is_empty,
};

/// How often which fault happens to an operation, in thousandths. All zero = none.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Seeds the first handle; further ones have their own ([`Memory::node`]).
    pub seed: u64,
    /// A commit is refused though nobody else was faster: `Conflict` with the true version, which may be the expected.
    pub conflict: u16,
    /// A commit is applied and the answer is `Unknown`.
    pub unknown_applied: u16,
    /// A commit is lost (its `first` is not) and the answer is `Unknown`.
    pub unknown_lost: u16,
    /// A commit is on its way: `Unknown`, and it arrives within the next [`Faults::late_operations_max`] operations
    /// of all handles; then it is applied if the version still matches.
    pub unknown_late: u16,
    /// Bound of how late a late commit arrives, in operations (at least 1).
    pub late_operations_max: u16,
    /// Any operation fails with `Unavailable` and did nothing.
    pub unavailable: u16,
    /// A put fails with `Unavailable` after a part of its writes was applied (what an engine that applies each write
    /// for itself may leave).
    pub put_torn: u16,
    /// A read is answered from the past.
    pub stale: u16,
    /// How far the past reaches, in operations of all handles. 0 = there are no stale reads and no history is kept.
    pub stale_operations_max: u16,
    /// An operation yields up to [`Faults::yields_max`] times before it happens and again before it is answered.
    pub delay: u16,
    /// Bound of yields for each of the two delays.
    pub yields_max: u8,
    /// The node dies between a commit's `first` and the commit.
    pub crash_before: u16,
    /// The node dies after the commit was applied, before the answer.
    pub crash_after: u16,
}

/// One scripted fault for the next operation of a kind; see [`Memory::inject`]. What has no meaning for an operation
/// (a conflict for a read) is ignored by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Goes well, whatever the dice say.
    None,
    /// As [`Faults::conflict`].
    Conflict,
    /// As [`Faults::unknown_applied`].
    UnknownApplied,
    /// As [`Faults::unknown_lost`].
    UnknownLost,
    /// As [`Faults::unknown_late`]: arrives after this many more operations.
    UnknownLate(u16),
    /// As [`Faults::unavailable`].
    Unavailable,
    /// As [`Faults::put_torn`].
    Torn,
    /// As [`Faults::stale`]: from as far in the past as is allowed.
    Stale,
    /// As [`Faults::crash_before`].
    CrashBefore,
    /// As [`Faults::crash_after`].
    CrashAfter,
    /// Yields this often before it happens.
    Delay(u8),
}

/// Kinds of operations, for [`Memory::inject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `get`, `scan` and `version`.
    Read,
    /// `put`.
    Put,
    /// `commit`.
    Commit,
}

/// What was asked of all handles together; tests count reads and writes with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// `get`.
    pub gets: u64,
    /// `scan`.
    pub scans: u64,
    /// `version`.
    pub versions: u64,
    /// `put`.
    pub puts: u64,
    /// `commit`.
    pub commits: u64,
}

/// A handle: one node's view of the shared data. Clones are the same node.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Mutex<Data>>,
    node: Arc<Mutex<Node>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store whose operations all go well.
    pub fn new() -> Self {
        Self::with_faults(Faults::default())
    }

    /// An empty store with faults.
    pub fn with_faults(faults: Faults) -> Self {
        let data = Data { history: u64::from(faults.stale_operations_max), ..Data::default() };
        let node = Node::new(faults.seed, faults, 0);
        Self { shared: Arc::new(Mutex::new(data)), node: Arc::new(Mutex::new(node)) }
    }

    /// Another living node on the same data, with the same odds, its own dice and its own past.
    pub fn node(&self, seed: u64) -> Self {
        let faults = self.own().faults.clone();
        let now = self.data().now;
        Self { shared: Arc::clone(&self.shared), node: Arc::new(Mutex::new(Node::new(seed, faults, now))) }
    }

    /// Changes this node's odds (how far the past reaches stays as it was made).
    pub fn set_faults(&self, faults: Faults) {
        self.own().faults = faults;
    }

    /// Scripts the fault of this node's next operation of the kind not scripted yet.
    pub fn inject(&self, operation: Operation, fault: Fault) {
        self.own().script[operation as usize].push_back(fault);
    }

    /// The node dies: each later call through this handle or its clones is `Unavailable`.
    pub fn kill(&self) {
        self.own().dead = true;
    }

    /// True after [`Memory::kill`], `close` or a crash.
    pub fn is_dead(&self) -> bool {
        self.own().dead
    }

    /// Late commits still on their way arrive now.
    pub fn settle(&self) {
        self.data().arrivals(u64::MAX);
    }

    /// Operations so far.
    pub fn counts(&self) -> Counts {
        self.data().counts
    }

    /// Every live row, for invariants and comparisons: `(table, partition, key, value)`, sorted.
    pub fn rows(&self) -> Vec<(Table, Bytes, Bytes, Bytes)> {
        let data = self.data();
        let mut rows = Vec::new();
        for (partitions, table) in data.tables.iter().zip(Table::ALL) {
            for (name, partition) in partitions {
                let live = partition.rows.iter().filter_map(|(key, cell)| Some((key, cell.at(u64::MAX)?)));
                rows.extend(live.map(|(key, value)| (table, name.clone(), key.clone(), value.clone())));
            }
        }
        rows.sort();
        rows
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What befalls the next operation; the delay before it is already over.
    async fn befall(&self, operation: Operation) -> Result<Fault> {
        let (fault, yields) = self.own().draw(operation)?;
        wait(yields).await;
        self.own().alive()?;
        match fault {
            Fault::Unavailable => Err(unavailable("injected")),
            fault => Ok(fault),
        }
    }

    /// The delay before the answer. A node that died meanwhile does not answer.
    async fn answer<T>(&self, answer: T) -> Result<T> {
        let yields = self.own().delay();
        wait(yields).await;
        self.own().alive()?;
        Ok(answer)
    }

    /// Runs `read` as of now or, when stale, as of this node's past.
    async fn read<T>(&self, count: fn(&mut Counts), read: impl FnOnce(&Data, u64) -> T) -> Result<T> {
        let fault = self.befall(Operation::Read).await?;
        let answer = {
            let mut data = self.data();
            let now = data.step();
            count(&mut data.counts);
            let as_of = self.own().as_of(fault == Fault::Stale, now, data.history);
            read(&data, as_of)
        };
        self.answer(answer).await
    }

    async fn write(&self, batch: Batch) -> Result<()> {
        check_batch(&batch)?;
        let fault = self.befall(Operation::Put).await?;
        {
            let mut data = self.data();
            let now = data.step();
            data.counts.puts += 1;
            if fault == Fault::Torn {
                let mut node = self.own();
                for write in &batch.writes {
                    if node.dice.below(2) == 0 {
                        data.write(write);
                    }
                }
                return Err(unavailable("injected, half way"));
            }
            batch.writes.iter().for_each(|write| data.write(write));
            self.own().horizon = now;
        }
        self.answer(()).await
    }

    async fn decide(&self, commit: Commit) -> Result<Outcome> {
        check_commit(&commit)?;
        let fault = self.befall(Operation::Commit).await?;
        let outcome = {
            let mut data = self.data();
            let now = data.step();
            data.counts.commits += 1;
            commit.first.writes.iter().for_each(|write| data.write(write));
            match fault {
                Fault::Conflict => Outcome::Conflict(data.version(commit.table, &commit.partition, u64::MAX)),
                Fault::UnknownLost => Outcome::Unknown,
                Fault::UnknownLate(operations) => {
                    data.late.push((now + u64::from(operations.max(1)), commit));
                    Outcome::Unknown
                }
                Fault::UnknownApplied => {
                    data.commit(&commit);
                    Outcome::Unknown
                }
                Fault::CrashBefore => {
                    self.own().dead = true;
                    return Err(unavailable("the node died before the commit"));
                }
                Fault::CrashAfter => {
                    data.commit(&commit);
                    self.own().dead = true;
                    return Err(unavailable("the node died after the commit"));
                }
                _ => {
                    let outcome = data.commit(&commit);
                    if outcome == Outcome::Applied {
                        self.own().horizon = now;
                    }
                    outcome
                }
            }
        };
        self.answer(outcome).await
    }
}

impl Store for Memory {
    fn get<'a>(&'a self, table: Table, partition: &'a [u8], key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            check_partition(partition)?;
            self.read(|counts| counts.gets += 1, |data, as_of| data.get(table, partition, key, as_of)).await
        })
    }

    fn scan<'a>(
        &'a self,
        table: Table,
        partition: &'a [u8],
        range: KeyRange,
        order: Order,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Bytes, Bytes)>>> {
        Box::pin(async move {
            check_partition(partition)?;
            let scan = |data: &Data, as_of| data.scan(table, partition, &range, order, limit, as_of);
            self.read(|counts| counts.scans += 1, scan).await
        })
    }

    fn version<'a>(&'a self, table: Table, partition: &'a [u8]) -> BoxFuture<'a, Result<Version>> {
        Box::pin(async move {
            check_partition(partition)?;
            self.read(|counts| counts.versions += 1, |data, as_of| data.version(table, partition, as_of)).await
        })
    }

    fn put(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(batch))
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.decide(commit))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.kill();
            Ok(())
        })
    }
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

async fn wait(yields: u8) {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

/// One node's dice, script and horizon.
struct Node {
    dice: Dice,
    faults: Faults,
    script: [VecDeque<Fault>; 3],
    dead: bool,
    /// Reads are never of an earlier moment than this.
    horizon: u64,
}

impl Node {
    fn new(seed: u64, faults: Faults, horizon: u64) -> Self {
        Self { dice: Dice(seed), faults, script: Default::default(), dead: false, horizon }
    }

    fn alive(&self) -> Result<()> {
        if self.dead { Err(unavailable("the node is down")) } else { Ok(()) }
    }

    /// The fault and the yields before the operation.
    fn draw(&mut self, operation: Operation) -> Result<(Fault, u8)> {
        self.alive()?;
        if let Some(fault) = self.script[operation as usize].pop_front() {
            return Ok(match fault {
                Fault::Delay(yields) => (Fault::None, yields),
                fault => (fault, 0),
            });
        }
        let late = 1 + self.dice.below(u64::from(self.faults.late_operations_max.max(1))) as u16;
        let faults = &self.faults;
        let odds: &[(u16, Fault)] = match operation {
            Operation::Read => &[(faults.unavailable, Fault::Unavailable), (faults.stale, Fault::Stale)],
            Operation::Put => &[(faults.unavailable, Fault::Unavailable), (faults.put_torn, Fault::Torn)],
            Operation::Commit => &[
                (faults.unavailable, Fault::Unavailable),
                (faults.conflict, Fault::Conflict),
                (faults.unknown_applied, Fault::UnknownApplied),
                (faults.unknown_lost, Fault::UnknownLost),
                (faults.unknown_late, Fault::UnknownLate(late)),
                (faults.crash_before, Fault::CrashBefore),
                (faults.crash_after, Fault::CrashAfter),
            ],
        };
        let mut roll = self.dice.below(1_000);
        let hit = odds.iter().find(|(odds, _)| {
            let hit = roll < u64::from(*odds);
            roll = roll.wrapping_sub(u64::from(*odds));
            hit
        });
        let fault = hit.map_or(Fault::None, |(_, fault)| *fault);
        Ok((fault, self.delay()))
    }

    fn delay(&mut self) -> u8 {
        if self.faults.delay == 0 || self.dice.below(1_000) >= u64::from(self.faults.delay) {
            return 0;
        }
        self.dice.below(u64::from(self.faults.yields_max) + 1) as u8
    }

    /// The moment a read is of; moves the horizon there.
    fn as_of(&mut self, stale: bool, now: u64, history: u64) -> u64 {
        let floor = self.horizon.max(now.saturating_sub(history));
        self.horizon = if stale && floor < now { floor + self.dice.below(now - floor) } else { now };
        self.horizon
    }
}

/// SplitMix64: a generator that costs nothing and repeats.
struct Dice(u64);

impl Dice {
    /// Uniform enough in `0..bound`; `bound` above 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// The data and its recent past.
#[derive(Default)]
struct Data {
    /// Operations so far, of all nodes: the only clock there is.
    now: u64,
    /// How much of the past is kept.
    history: u64,
    tables: [HashMap<Bytes, Partition>; Table::ALL.len()],
    /// Commits that have not arrived yet, with the moment they do.
    late: Vec<(u64, Commit)>,
    counts: Counts,
}

#[derive(Default)]
struct Partition {
    version: Cell<Version>,
    last: Option<CommitId>,
    rows: BTreeMap<Bytes, Cell<Bytes>>,
}

/// A value's recent past: rising moments from which on it was this (or nothing). The newest comes last.
struct Cell<T>(Vec<(u64, Option<T>)>);

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Cell<T> {
    fn at(&self, as_of: u64) -> Option<&T> {
        self.0.iter().rev().find(|(since, _)| *since <= as_of)?.1.as_ref()
    }

    fn set(&mut self, now: u64, history: u64, value: Option<T>) {
        if history == 0 {
            self.0.clear();
        }
        self.0.push((now, value));
        // The newest entry that is old enough for everybody hides those before it.
        let reach = now.saturating_sub(history);
        let seen = self.0.iter().rposition(|(since, _)| *since <= reach).unwrap_or(0);
        self.0.drain(..seen);
    }
}

impl Data {
    /// One operation begins: time moves on, what was on its way may arrive.
    fn step(&mut self) -> u64 {
        self.now += 1;
        if !self.late.is_empty() {
            self.arrivals(self.now);
        }
        self.now
    }

    fn arrivals(&mut self, until: u64) {
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= until);
        self.late = late;
        let due: Vec<(u64, Commit)> = due;
        for (_, commit) in due {
            self.commit(&commit);
        }
    }

    fn partition(&self, table: Table, partition: &[u8]) -> Option<&Partition> {
        self.tables[table as usize].get(partition)
    }

    fn get(&self, table: Table, partition: &[u8], key: &[u8], as_of: u64) -> Option<Bytes> {
        self.partition(table, partition)?.rows.get(key)?.at(as_of).cloned()
    }

    fn version(&self, table: Table, partition: &[u8], as_of: u64) -> Version {
        self.partition(table, partition).and_then(|partition| partition.version.at(as_of)).copied().unwrap_or(0)
    }

    fn scan(
        &self,
        table: Table,
        partition: &[u8],
        range: &KeyRange,
        order: Order,
        limit: usize,
        as_of: u64,
    ) -> Vec<(Bytes, Bytes)> {
        let Some(partition) = self.partition(table, partition) else { return Vec::new() };
        if range_is_empty(range) {
            return Vec::new();
        }
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
            (range.0.as_ref().map(AsRef::as_ref), range.1.as_ref().map(AsRef::as_ref));
        let rows = partition.rows.range::<[u8], _>(bounds);
        let live = |(key, cell): (&Bytes, &Cell<Bytes>)| Some((key.clone(), cell.at(as_of)?.clone()));
        match order {
            Order::Forward => rows.filter_map(live).take(limit).collect(),
            Order::Reverse => rows.rev().filter_map(live).take(limit).collect(),
        }
    }

    fn write(&mut self, write: &Write) {
        let (now, history) = (self.now, self.history);
        let table = &mut self.tables[write.table as usize];
        if !table.contains_key(&write.partition) {
            table.insert(write.partition.clone(), Partition::default());
        }
        if let Some(partition) = table.get_mut(&write.partition) {
            partition.write(now, history, &write.key, &write.value);
        }
    }

    fn commit(&mut self, commit: &Commit) -> Outcome {
        let (now, history) = (self.now, self.history);
        let partition = self.tables[commit.table as usize].entry(commit.partition.clone()).or_default();
        let version = partition.version.at(u64::MAX).copied().unwrap_or(0);
        if partition.last == Some(commit.id) && version == commit.expected + 1 {
            return Outcome::Applied;
        }
        if version != commit.expected {
            return Outcome::Conflict(version);
        }
        partition.version.set(now, history, Some(version + 1));
        partition.last = Some(commit.id);
        for (key, value) in &commit.writes {
            partition.write(now, history, key, value);
        }
        Outcome::Applied
    }
}

impl Partition {
    fn write(&mut self, now: u64, history: u64, key: &Bytes, value: &Option<Bytes>) {
        if value.is_none() && history == 0 {
            self.rows.remove(key);
            return;
        }
        self.rows.entry(key.clone()).or_default().set(now, history, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wide::CommitId;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn commit(expected: Version, id: u128) -> Commit {
        let writes = vec![(Bytes::from(id.to_be_bytes().to_vec()), Some(Bytes::new()))];
        let mut first = Batch::default();
        first.put(Table::Chunk, &b"p"[..], Bytes::from(id.to_be_bytes().to_vec()), &b""[..]);
        Commit { table: Table::Head, partition: Bytes::from_static(b"p"), expected, id: CommitId(id), writes, first }
    }

    async fn rows(store: &Memory, table: Table) -> usize {
        let all = (Bound::Unbounded, Bound::Unbounded);
        store.scan(table, b"p", all, Order::Forward, usize::MAX).await.unwrap().len()
    }

    #[test]
    fn each_fault_does_what_it_says() {
        run(async {
            use Fault::{Conflict, CrashAfter, CrashBefore, Unavailable, UnknownApplied, UnknownLost};
            // fault, answer, rows of the commit, rows of its `first`, dead afterwards
            let cases = [
                (Fault::None, Some(Outcome::Applied), 1, 1, false),
                (Conflict, Some(Outcome::Conflict(0)), 0, 1, false),
                (UnknownApplied, Some(Outcome::Unknown), 1, 1, false),
                (UnknownLost, Some(Outcome::Unknown), 0, 1, false),
                (Unavailable, None, 0, 0, false),
                (CrashBefore, None, 0, 1, true),
                (CrashAfter, None, 1, 1, true),
            ];
            for (fault, answer, committed, first, dead) in cases {
                let store = Memory::new();
                let other = store.node(1);
                store.inject(Operation::Commit, fault);
                let outcome = store.commit(commit(0, 1)).await;
                assert_eq!(outcome.as_ref().ok(), answer.as_ref(), "{fault:?}");
                assert!(matches!(outcome, Ok(_) | Err(StoreError::Unavailable(_))));
                assert_eq!(rows(&other, Table::Head).await, committed, "{fault:?}");
                assert_eq!(rows(&other, Table::Chunk).await, first, "{fault:?}");
                assert_eq!(other.version(Table::Head, b"p").await.unwrap(), committed as u64);
                assert_eq!(store.is_dead(), dead);
                assert_eq!(store.get(Table::Head, b"p", b"").await.is_err(), dead);
            }
        });
    }

    #[test]
    fn a_late_commit_arrives_unless_it_was_overtaken_or_repeated() {
        run(async {
            for (repeat, overtake) in [(false, false), (true, false), (false, true)] {
                let store = Memory::new();
                store.inject(Operation::Commit, Fault::UnknownLate(3));
                assert_eq!(store.commit(commit(0, 1)).await.unwrap(), Outcome::Unknown);
                assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 0);
                if repeat {
                    assert_eq!(store.commit(commit(0, 1)).await.unwrap(), Outcome::Applied);
                }
                if overtake {
                    assert_eq!(store.commit(commit(0, 2)).await.unwrap(), Outcome::Applied);
                }
                for _ in 0..3 {
                    store.version(Table::Head, b"p").await.unwrap();
                }
                assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 1);
                let winner = store.commit(commit(0, 1)).await.unwrap();
                assert_eq!(winner, if overtake { Outcome::Conflict(1) } else { Outcome::Applied });
                assert_eq!(rows(&store, Table::Head).await, 1);
            }
        });
    }

    #[test]
    fn stale_reads_are_of_one_past_moment_and_never_go_back() {
        run(async {
            let faults = Faults { stale: 700, stale_operations_max: 40, ..Faults::default() };
            let writer = Memory::with_faults(faults);
            writer.set_faults(Faults::default());
            let readers: Vec<Memory> = (0..4)
                .map(|seed| {
                    let reader = writer.node(seed);
                    reader.set_faults(Faults { stale: 700, ..Faults::default() });
                    reader
                })
                .collect();
            let mut seen = [0; 4];
            let mut lagged = 0;
            for version in 0..300 {
                assert_eq!(writer.commit(commit(version, u128::from(version) + 1)).await.unwrap(), Outcome::Applied);
                assert_eq!(writer.version(Table::Head, b"p").await.unwrap(), version + 1, "reads its own writes");
                for (reader, seen) in readers.iter().zip(&mut seen) {
                    let count = rows(reader, Table::Head).await as u64;
                    assert!(count >= *seen && count <= version + 1);
                    assert!(reader.version(Table::Head, b"p").await.unwrap() >= count);
                    lagged += u64::from(count < version + 1);
                    *seen = count;
                }
            }
            assert!(lagged > 100, "{lagged}");
        });
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_many_runs_are_cheap() {
        fn simulate(seed: u64) -> (Vec<u8>, usize) {
            let faults = Faults {
                seed,
                conflict: 20,
                unknown_applied: 30,
                unknown_lost: 30,
                unknown_late: 30,
                late_operations_max: 9,
                unavailable: 10,
                put_torn: 10,
                stale: 200,
                stale_operations_max: 16,
                delay: 300,
                yields_max: 3,
                crash_before: 2,
                crash_after: 2,
            };
            run(async {
                let store = Memory::with_faults(faults);
                let mut trace = Vec::new();
                for step in 0..100 {
                    let expected = store.version(Table::Head, b"p").await.unwrap_or(0);
                    trace.push(match store.commit(commit(expected, step + 1)).await {
                        Ok(Outcome::Applied) => 0,
                        Ok(Outcome::Conflict(_)) => 1,
                        Ok(Outcome::Unknown) => 2,
                        Err(_) => 3,
                    });
                }
                (trace, store.rows().len())
            })
        }
        for seed in 0..200 {
            assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
        }
        assert_ne!(simulate(1), simulate(2));
    }
}
