//! One run: nodes, operations, faults, and what must hold whatever happens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};

use super::super::{ChangeError, Draft, Group, GroupConfig, Halt, Seq};
use super::Mutation;
use super::toy::{BOXES, Entry, Toy, View, touch, view};
use crate::wide::memory::{Faults, Memory};
use crate::wide::{Batch, Store, StoreError, Table};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % u64::from(bound)) as u32
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.below(1_000) < thousandths
    }
}

/// An operation that a client asked for.
#[derive(Debug, Clone, Copy)]
enum What {
    Append {
        mailbox: u8,
        count: u32,
    },
    Flag {
        mailbox: u8,
        pick: u32,
        bits: u8,
    },
    Expunge {
        mailbox: u8,
        pick: u32,
    },
    /// Records appends and refuses afterwards.
    RefuseLate {
        mailbox: u8,
        count: u32,
    },
    /// Records nothing.
    Look {
        mailbox: u8,
    },
}

/// What its client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// Nothing yet, or the client or the node is gone, or that it is not known.
    Nothing,
    Done {
        uids: Vec<u32>,
        seq: Seq,
    },
    Refused,
    Failed,
}

#[derive(Debug)]
struct Operation {
    what: What,
    /// Its tags: from this one on, one for each message.
    tag: u32,
    /// The highest uids and the highest number that anybody had been told when it began.
    uids_before: [u32; BOXES],
    seq_before: Seq,
    told: Told,
}

/// What clients know, and what went wrong.
#[derive(Debug, Default)]
struct Book {
    operations: Vec<Operation>,
    uids: [u32; BOXES],
    seq: Seq,
    violation: Option<String>,
}

impl Book {
    fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

struct Node {
    memory: Memory,
    group: Option<Arc<Group<Toy>>>,
    /// The highest number seen here.
    seq: Seq,
    watchers: Vec<Watcher>,
}

/// A session that follows the journal.
struct Watcher {
    changes: watch::Receiver<Seq>,
    seq: Seq,
    view: View,
}

/// What a run did, for comparing runs and for seeing that something happens in them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) done: usize,
    pub(super) refused: usize,
    pub(super) failed: usize,
    pub(super) unsure: usize,
    pub(super) crashes: usize,
    pub(super) seq: Seq,
    pub(super) chunk_rows: usize,
    pub(super) live_rows: usize,
}

/// How the world of a seed is.
struct Plan {
    nodes: u32,
    steps: u32,
    faults: Faults,
    config: Arc<GroupConfig>,
    /// Thousandths of steps in which a node dies.
    kills: u32,
}

fn plan(dice: &mut Dice, seed: u64, mutation: Option<Mutation>) -> Plan {
    let calm = Faults { seed, delay: 400, yields_max: 3, ..Faults::default() };
    let (faults, kills) = match dice.below(5) {
        0 => (calm, 0),
        1 => (Faults { conflict: 60, unknown_applied: 60, unknown_lost: 60, ..calm }, 0),
        2 => (Faults { unavailable: 40, put_torn: 60, crash_before: 15, crash_after: 15, ..calm }, 15),
        3 => (Faults { unknown_late: 120, late_operations_max: 12, conflict: 80, unavailable: 10, ..calm }, 5),
        _ => {
            let faults = Faults {
                conflict: 20,
                unknown_applied: 30,
                unknown_lost: 30,
                unknown_late: 40,
                late_operations_max: 20,
                unavailable: 15,
                put_torn: 20,
                stale: 150,
                stale_operations_max: 12,
                crash_before: 5,
                crash_after: 5,
                ..calm
            };
            (faults, 8)
        }
    };
    let entries = 2 + u64::from(dice.below(4));
    let config = GroupConfig {
        ring: entries * 2 + u64::from(dice.below(6)),
        checkpoint_entries: entries,
        checkpoint_bytes: 300 + dice.below(600) as usize,
        changes_max: 1 + dice.below(8) as usize,
        first_bytes_max: 200 + dice.below(800) as usize,
        shared: true,
        tries: 6,
        pause: |n| {
            Box::pin(async move {
                for _ in 0..n {
                    yield_now().await;
                }
            })
        },
        mutation,
        ..GroupConfig::default()
    };
    Plan { nodes: 1 + dice.below(3), steps: 150 + dice.below(150), faults, config: Arc::new(config), kills }
}

const ROWS: &[u8] = b"rows";

fn row_key(tag: u32) -> Bytes {
    Bytes::copy_from_slice(&tag.to_be_bytes())
}

/// Runs the world of `seed`: what happened, or what was violated.
pub(super) fn run(seed: u64, mutation: Option<Mutation>) -> Result<Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut dice = Dice(seed);
        let plan = plan(&mut dice, seed, mutation);
        World::new(dice, plan).live().await
    })
}

struct World {
    dice: Dice,
    plan: Plan,
    /// A handle without faults, for looking at what is stored.
    keeper: Memory,
    nodes: Vec<Node>,
    book: Arc<Mutex<Book>>,
    tasks: Vec<JoinHandle<()>>,
    tag: u32,
    tally: Tally,
}

impl World {
    fn new(mut dice: Dice, plan: Plan) -> Self {
        let keeper = Memory::with_faults(plan.faults.clone());
        let node = |dice: &mut Dice| Node {
            memory: keeper.node(dice.below(u32::MAX).into()),
            group: None,
            seq: 0,
            watchers: Vec::new(),
        };
        let nodes = (0..plan.nodes).map(|_| node(&mut dice)).collect();
        keeper.set_faults(Faults::default());
        Self { dice, plan, keeper, nodes, book: Arc::default(), tasks: Vec::new(), tag: 0, tally: Tally::default() }
    }

    async fn live(mut self) -> Result<Tally, String> {
        for _ in 0..self.plan.steps {
            self.step().await?;
            for _ in 0..self.dice.below(4) {
                yield_now().await;
            }
            self.look()?;
        }
        self.end().await
    }

    async fn step(&mut self) -> Result<(), String> {
        let at = self.dice.below(self.plan.nodes) as usize;
        if self.nodes[at].memory.is_dead() || self.dice.chance(self.plan.kills) {
            self.restart(at);
        }
        let Some(group) = self.open(at).await? else { return Ok(()) };
        match self.dice.below(100) {
            0..60 => self.begin(at, &group),
            60..70 => self.refresh(at, &group).await?,
            70..76 => {
                let dice = &mut self.dice;
                group.current().state.evict(|| dice.chance(500));
            }
            76..80 => self.watch(at, &group).await?,
            80..92 => self.follow(at, &group, false).await?,
            92 => self.settle(&group),
            93 => {
                // A client goes away: what it asked for may be carried out or not.
                if let Some(task) = self.tasks.last() {
                    task.abort();
                }
            }
            _ => {
                for _ in 0..self.dice.below(12) {
                    yield_now().await;
                }
            }
        }
        Ok(())
    }

    /// The node dies and another takes its place.
    fn restart(&mut self, at: usize) {
        self.nodes[at].memory.kill();
        let memory = self.keeper.node(self.dice.below(u32::MAX).into());
        memory.set_faults(self.plan.faults.clone());
        self.nodes[at] = Node { memory, group: None, seq: 0, watchers: Vec::new() };
        self.tally.crashes += 1;
    }

    async fn open(&mut self, at: usize) -> Result<Option<Arc<Group<Toy>>>, String> {
        if self.nodes[at].group.is_none() {
            let store: Arc<dyn Store> = Arc::new(self.nodes[at].memory.clone());
            match Group::open(Toy::default(), store, self.plan.config.clone()).await {
                Ok(group) => self.nodes[at].group = Some(group),
                Err(error) => harmless("open", &error)?,
            }
        }
        Ok(self.nodes[at].group.clone())
    }

    /// Asks a node for something.
    fn begin(&mut self, at: usize, group: &Arc<Group<Toy>>) {
        let mailbox = self.dice.below(BOXES as u32) as u8;
        let pick = self.dice.below(u32::MAX);
        let what = match self.dice.below(10) {
            0..4 => What::Append { mailbox, count: 1 + pick % 3 },
            4..7 => What::Flag { mailbox, pick, bits: 1 + (pick % 7) as u8 },
            7 => What::Expunge { mailbox, pick },
            8 => What::RefuseLate { mailbox, count: 1 + pick % 2 },
            _ => What::Look { mailbox },
        };
        let tag = self.tag;
        self.tag += 4;
        let number = {
            let mut book = self.book.lock().unwrap();
            let (uids_before, seq_before) = (book.uids, book.seq);
            book.operations.push(Operation { what, tag, uids_before, seq_before, told: Told::Nothing });
            book.operations.len() - 1
        };
        let mut first = Batch::default();
        first.put(Table::Message, ROWS, row_key(tag), &b"x"[..]);
        let (group, memory, book) = (group.clone(), self.nodes[at].memory.clone(), self.book.clone());
        self.tasks.push(tokio::spawn(async move {
            let answer = group.change(first, move |draft| decide(draft, what, tag)).await;
            let mut book = book.lock().unwrap();
            let told = match answer {
                Ok((uids, seq)) => {
                    if group.current().seq < seq {
                        book.violated(format!("{number}: answered before it is visible"));
                    }
                    Told::Done { uids, seq }
                }
                Err(ChangeError::Refused(())) => Told::Refused,
                Err(ChangeError::Unknown) => Told::Nothing,
                // A client of a dead node is told nothing.
                Err(ChangeError::Store(_)) if memory.is_dead() => Told::Nothing,
                Err(ChangeError::Store(error)) => {
                    if let Err(what) = harmless("change", &error) {
                        book.violated(what);
                    }
                    Told::Failed
                }
            };
            if let Told::Done { uids, seq } = &told {
                book.seq = book.seq.max(*seq);
                if let What::Append { mailbox, .. } = what {
                    let highest = &mut book.uids[mailbox as usize];
                    *highest = uids.iter().copied().fold(*highest, u32::max);
                }
            }
            book.operations[number].told = told;
        }));
    }

    async fn refresh(&mut self, at: usize, group: &Arc<Group<Toy>>) -> Result<(), String> {
        let known = self.book.lock().unwrap().seq;
        match group.refresh().await {
            Ok(now) if self.plan.faults.stale == 0 && now.seq < known => {
                Err(format!("a refresh on node {at} gave {} after {known} had been answered", now.seq))
            }
            Ok(_) => Ok(()),
            Err(error) => harmless("refresh", &error),
        }
    }

    /// A node is about to close.
    fn settle(&mut self, group: &Arc<Group<Toy>>) {
        let (group, book) = (group.clone(), self.book.clone());
        self.tasks.push(tokio::spawn(async move {
            if let Err(what) = group.settle().await.or_else(|error| harmless("settle", &error)) {
                book.lock().unwrap().violated(what);
            }
        }));
    }

    async fn watch(&mut self, at: usize, group: &Arc<Group<Toy>>) -> Result<(), String> {
        if self.nodes[at].watchers.len() >= 3 {
            return Ok(());
        }
        let changes = group.watch();
        match view(group).await {
            Ok((seq, view)) => self.nodes[at].watchers.push(Watcher { changes, seq, view }),
            Err(error) => harmless("view", &error)?,
        }
        Ok(())
    }

    /// Watchers of a node take over what they were told of; all of it if `surely`.
    async fn follow(&mut self, at: usize, group: &Arc<Group<Toy>>, surely: bool) -> Result<(), String> {
        let mut watchers = std::mem::take(&mut self.nodes[at].watchers);
        for watcher in &mut watchers {
            if !surely && !watcher.changes.has_changed().unwrap_or(false) {
                continue;
            }
            let told = *watcher.changes.borrow_and_update();
            if let Err(error) = watcher.catch_up(group).await? {
                // It stays where it is, and is woken again.
                watcher.changes.mark_changed();
                harmless("entries", &error)?;
            } else if watcher.seq < told {
                return Err(format!("a watcher was told of {told} and found {}", watcher.seq));
            }
        }
        self.nodes[at].watchers = watchers;
        Ok(())
    }

    /// What must hold after each step.
    fn look(&mut self) -> Result<(), String> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if let Some(group) = &node.group {
                let seq = group.current().seq;
                if seq < node.seq {
                    return Err(format!("node {at} went back from {} to {seq}", node.seq));
                }
                node.seq = seq;
            }
        }
        self.book.lock().unwrap().violation.take().map_or(Ok(()), Err)
    }

    /// Lets everything come to rest without further faults, and compares.
    async fn end(mut self) -> Result<Tally, String> {
        for node in &self.nodes {
            node.memory.set_faults(Faults::default());
        }
        self.keeper.settle();
        for round in 0.. {
            self.tasks.retain(|task| !task.is_finished());
            let busy = |node: &Node| node.group.as_ref().is_some_and(|group| node.watchers.is_empty() && group.busy());
            if self.tasks.is_empty() && !self.nodes.iter().any(busy) {
                break;
            }
            if round > 20_000 {
                return Err("it does not come to rest".to_owned());
            }
            yield_now().await;
        }
        for _ in 0..200 {
            yield_now().await;
        }
        self.look()?;
        let store: Arc<dyn Store> = Arc::new(self.keeper.clone());
        let fresh = Group::open(Toy::default(), store, self.plan.config.clone()).await;
        let fresh = fresh.map_err(|error| format!("a fresh node cannot open: {error}"))?;
        let (seq, last) = view(&fresh).await.map_err(|error| format!("the last state cannot be read: {error}"))?;
        for at in 0..self.nodes.len() {
            if self.nodes[at].memory.is_dead() {
                continue;
            }
            let Some(group) = self.nodes[at].group.clone() else { continue };
            group.refresh().await.map_err(|error| format!("node {at}: {error}"))?;
            let here = view(&group).await.map_err(|error| format!("node {at}: {error}"))?;
            same(&format!("node {at}"), &here, seq, &last)?;
            self.follow(at, &group, true).await?;
            for watcher in &self.nodes[at].watchers {
                same(&format!("a watcher of node {at}"), &(watcher.seq, watcher.view.clone()), seq, &last)?;
            }
        }
        self.tally.seq = seq;
        self.judge(&last)?;
        self.tally.chunk_rows = self.keeper.rows().iter().filter(|row| row.0 == Table::Chunk).count();
        self.tally.live_rows = last.len().div_ceil(4) + BOXES + 1;
        Ok(self.tally)
    }

    /// Compares what clients were told with the last state.
    fn judge(&mut self, last: &View) -> Result<(), String> {
        let mut steps: BTreeMap<u32, Vec<(u8, u32, Seq)>> = BTreeMap::new();
        let mut before = (0, 0, 0);
        for (&(mailbox, uid), message) in last {
            let born = message.steps.first().map_or(0, |step| step.1);
            let (last_box, last_uid, last_born) = before;
            let rises = mailbox != last_box || (uid == last_uid + 1 && born >= last_born);
            if !rises || !message.steps.is_sorted_by_key(|step| step.1) {
                return Err(format!("uids or numbers do not rise at {mailbox}/{uid}"));
            }
            before = (mailbox, uid, born);
            for &(tag, seq) in &message.steps {
                steps.entry(tag).or_default().push((mailbox, uid, seq));
            }
        }
        let rows: Vec<Bytes> =
            self.keeper.rows().into_iter().filter(|row| row.0 == Table::Message).map(|row| row.2).collect();
        let book = self.book.lock().unwrap();
        for operation in &book.operations {
            let Operation { what, tag, told, .. } = operation;
            let count = match *what {
                What::Append { count, .. } => count,
                What::Flag { .. } | What::Expunge { .. } => 1,
                What::RefuseLate { .. } | What::Look { .. } => 0,
            };
            let found: Vec<_> = (*tag..tag + 4).flat_map(|tag| steps.get(&tag).cloned().unwrap_or_default()).collect();
            let row = rows.binary_search(&row_key(*tag)).is_ok();
            let wrong = |why: &str| Err(format!("{why}: {operation:?}, found {found:?}, row {row}"));
            if !found.is_empty() && found.len() != count as usize {
                return wrong("applied in part or more than once");
            }
            if !found.is_empty() && !row {
                return wrong("applied without its row");
            }
            match told {
                Told::Done { uids, seq } => {
                    self.tally.done += 1;
                    let mailbox = match *what {
                        What::Append { mailbox, .. } => {
                            if uids[0] <= operation.uids_before[mailbox as usize] {
                                return wrong("a uid not above those told before");
                            }
                            mailbox
                        }
                        What::Flag { mailbox, .. } | What::Expunge { mailbox, .. } => mailbox,
                        What::RefuseLate { .. } => return wrong("not refused"),
                        What::Look { mailbox } => {
                            let stale = self.plan.faults.stale > 0;
                            if !stale && uids[0] <= operation.uids_before[mailbox as usize] {
                                return wrong("looked at the past");
                            }
                            continue;
                        }
                    };
                    let expected: Vec<_> = uids.iter().map(|&uid| (mailbox, uid, *seq)).collect();
                    if found != expected {
                        return wrong("answered, but not so in the last state");
                    }
                    if *seq <= operation.seq_before {
                        return wrong("a number not above those told before");
                    }
                }
                Told::Refused | Told::Failed => {
                    let refused = *told == Told::Refused;
                    self.tally.refused += usize::from(refused);
                    self.tally.failed += usize::from(!refused);
                    if !found.is_empty() {
                        return wrong("refused or failed, but applied");
                    }
                    if refused && row && matches!(what, What::RefuseLate { .. }) {
                        return wrong("refused, but its row is there");
                    }
                }
                Told::Nothing => {
                    self.tally.unsure += 1;
                    if found.iter().any(|step| step.2 != found[0].2) {
                        return wrong("applied at two numbers");
                    }
                }
            }
        }
        Ok(())
    }
}

impl Watcher {
    async fn catch_up(&mut self, group: &Arc<Group<Toy>>) -> Result<Result<(), StoreError>, String> {
        match group.entries(self.seq).await {
            Ok(Some(entries)) => {
                for (seq, entries) in entries {
                    if seq != self.seq + 1 {
                        return Err(format!("the journal goes from {} to {seq}", self.seq));
                    }
                    self.seq = seq;
                    for entry in &entries {
                        self.apply(seq, entry)?;
                    }
                }
                Ok(Ok(()))
            }
            // Too far behind: take the state as it is now.
            Ok(None) => match view(group).await {
                Ok((seq, view)) => {
                    (self.seq, self.view) = (seq, view);
                    Ok(Ok(()))
                }
                Err(error) => Ok(Err(error)),
            },
            Err(error) => Ok(Err(error)),
        }
    }

    fn apply(&mut self, seq: Seq, entry: &Entry) -> Result<(), String> {
        let message = match *entry {
            Entry::Append { mailbox, .. } => {
                let next =
                    self.view.range((mailbox, 0)..=(mailbox, u32::MAX)).next_back().map_or(0, |last| last.0.1) + 1;
                self.view.entry((mailbox, next)).or_default()
            }
            Entry::Flag { mailbox, uid, .. } | Entry::Expunge { mailbox, uid, .. } => {
                self.view.get_mut(&(mailbox, uid)).ok_or("a watcher misses a message")?
            }
        };
        touch(message, seq, entry).map_err(str::to_owned)
    }
}

fn decide(
    draft: &mut Draft<'_, Toy>,
    what: What,
    tag: u32,
) -> Result<Vec<u32>, Halt<(), <Toy as super::super::Machine>::Missing>> {
    let pick_uid = |mailbox: u8, pick: u32| match draft.state().next(mailbox) - 1 {
        0 => Err(Halt::Refused(())),
        count => Ok(1 + pick % count),
    };
    match what {
        What::Append { mailbox, count } | What::RefuseLate { mailbox, count } => {
            let mut uids = Vec::new();
            for tag in tag..tag + count {
                uids.push(draft.state().next(mailbox));
                draft.emit(Entry::Append { mailbox, tag })?;
            }
            if matches!(what, What::RefuseLate { .. }) { Err(Halt::Refused(())) } else { Ok(uids) }
        }
        What::Flag { mailbox, pick, bits } => {
            let uid = pick_uid(mailbox, pick)?;
            match draft.state().message(mailbox, uid)? {
                Some(message) if !message.dead => draft.emit(Entry::Flag { mailbox, uid, bits, tag })?,
                _ => return Err(Halt::Refused(())),
            }
            Ok(vec![uid])
        }
        What::Expunge { mailbox, pick } => {
            let uid = pick_uid(mailbox, pick)?;
            // What is missing shows only while it is applied.
            if draft.state().message::<()>(mailbox, uid).is_ok_and(|message| message.is_none_or(|message| message.dead))
            {
                return Err(Halt::Refused(()));
            }
            draft.emit(Entry::Expunge { mailbox, uid, tag })?;
            Ok(vec![uid])
        }
        What::Look { mailbox } => Ok(vec![draft.state().next(mailbox)]),
    }
}

/// Nothing but `Unavailable` may come out of the faults there are.
fn harmless(step: &str, error: &StoreError) -> Result<(), String> {
    match error {
        StoreError::Unavailable(_) => Ok(()),
        error => Err(format!("{step}: {error}")),
    }
}

fn same(who: &str, here: &(Seq, View), seq: Seq, last: &View) -> Result<(), String> {
    if here.0 != seq {
        return Err(format!("{who} is at {}, a fresh node at {seq}", here.0));
    }
    if here.1 != *last {
        let differs = last.iter().find(|(key, message)| here.1.get(*key) != Some(*message));
        return Err(format!("{who} differs from a fresh node at {differs:?}"));
    }
    Ok(())
}
