//! What a group promises one by one; the simulations show that it holds together.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::task::yield_now;

use super::sim::toy::{Entry, PARTITION, Toy, view};
use super::{ChangeError, Draft, Group, GroupConfig, Halt, Seq};
use crate::wide::memory::{Counts, Fault, Memory, Operation};
use crate::wide::{Batch, Store, StoreError, Table};

type ToyGroup = Arc<Group<Toy>>;

fn config() -> GroupConfig {
    GroupConfig { ring: 16, checkpoint_entries: 4, pause: |_| Box::pin(yield_now()), ..GroupConfig::default() }
}

async fn open_as(store: &Memory, config: GroupConfig) -> Result<ToyGroup, StoreError> {
    Group::open(Toy::default(), Arc::new(store.clone()), config).await
}

async fn open(store: &Memory) -> ToyGroup {
    open_as(store, config()).await.unwrap()
}

async fn append(group: &ToyGroup, count: u32) -> Result<(u32, Seq), ChangeError<()>> {
    let decide = move |draft: &mut Draft<'_, Toy>| {
        let first = draft.state().next(0);
        for tag in 0..count {
            draft.emit(Entry::Append { mailbox: 0, tag })?;
        }
        Ok(first)
    };
    group.change(Batch::default(), decide).await
}

/// Waits until nothing is written in the background any more.
async fn rest(group: &ToyGroup) {
    for _ in 0..10_000 {
        yield_now().await;
        if Arc::strong_count(group) == 1 {
            return;
        }
    }
    panic!("the group does not come to rest");
}

fn reads(counts: Counts) -> u64 {
    counts.gets + counts.scans + counts.versions
}

fn rows(store: &Memory, table: Table) -> Vec<Bytes> {
    store.rows().into_iter().filter(|row| row.0 == table).map(|row| row.2).collect()
}

#[tokio::test]
async fn a_settled_group_opens_without_its_journal() {
    let store = Memory::new();
    let config = || GroupConfig { checkpoint_bytes: 6_400, ..config() };
    let group = open_as(&store, config()).await.unwrap();
    append(&group, 40).await.unwrap();
    let commits = store.counts().commits;
    group.settle().await.unwrap();
    assert_eq!(store.counts().commits - commits, 1);
    group.settle().await.unwrap();
    assert_eq!(store.counts().commits - commits, 1, "there is nothing more to settle");
    rest(&group).await;
    let (before, seen) = (view(&group).await.unwrap(), store.counts());
    drop(group);
    let group = open_as(&store, config()).await.unwrap();
    // Version, pointer, root, and the one entry that moved the pointer.
    assert_eq!((reads(store.counts()) - reads(seen), store.counts().scans), (4, seen.scans));
    assert_eq!(view(&group).await.unwrap(), before);
    append(&group, 1).await.unwrap();
}

#[tokio::test]
async fn opening_takes_a_handful_of_reads_whatever_the_size() {
    let store = Memory::new();
    let group = open(&store).await;
    assert_eq!(reads(store.counts()), 1, "there is nothing yet");
    for changes in [1, 3, 30, 300] {
        for _ in 0..changes {
            append(&group, 7).await.unwrap();
        }
        rest(&group).await;
        let before = reads(store.counts());
        let again = open(&store).await;
        assert!(reads(store.counts()) - before <= 5);
        assert_eq!(again.current().seq, group.current().seq);
        assert_eq!(view(&again).await.unwrap(), view(&group).await.unwrap());
    }
}

#[tokio::test]
async fn one_change_is_one_commit_and_reads_nothing() {
    let store = Memory::new();
    let group = open_as(&store, GroupConfig::default()).await.unwrap();
    let before = store.counts();
    for _ in 0..10 {
        append(&group, 1).await.unwrap();
        group.refresh().await.unwrap();
    }
    let after = store.counts();
    assert_eq!((after.commits - before.commits, after.puts, reads(after)), (10, 0, reads(before)));
}

#[test]
fn waiting_changes_share_commits() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let store = Memory::new();
        let group = open_as(&store, GroupConfig::default()).await.unwrap();
        store.set_faults(crate::wide::memory::Faults { delay: 1_000, yields_max: 20, ..Default::default() });
        let (tasks, changes) = (64, 100);
        let began = Instant::now();
        let all: Vec<_> = (0..tasks)
            .map(|_| {
                let group = group.clone();
                tokio::spawn(async move {
                    for _ in 0..changes {
                        append(&group, 1).await.unwrap();
                    }
                })
            })
            .collect();
        for task in all {
            task.await.unwrap();
        }
        let (took, commits) = (began.elapsed(), store.counts().commits);
        let total = tasks * changes;
        println!("{total} changes in {commits} commits, {:.0}/s", f64::from(total) / took.as_secs_f64());
        assert_eq!(group.current().state.next(0), total as u32 + 1);
        assert!(commits * 8 < total as u64, "{commits} commits for {total} changes");
    });
}

#[test]
fn nodes_on_several_threads_agree() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let store = Memory::new();
        let mut nodes = Vec::new();
        for seed in 0..3 {
            let shared = GroupConfig { shared: true, tries: 1_000, ..config() };
            nodes.push(open_as(&store.node(seed), shared).await.unwrap());
        }
        let tasks: Vec<_> = (0..12)
            .map(|at: usize| {
                let group = nodes[at % 3].clone();
                tokio::spawn(async move {
                    let mut uids = Vec::new();
                    for _ in 0..25 {
                        uids.push(append(&group, 1).await.unwrap().0);
                    }
                    uids
                })
            })
            .collect();
        let mut uids = Vec::new();
        for task in tasks {
            let some = task.await.unwrap();
            assert!(some.is_sorted());
            uids.extend(some);
        }
        uids.sort_unstable();
        assert_eq!(uids, (1..=300).collect::<Vec<_>>());
        let last = view(&open(&store).await).await.unwrap();
        for node in &nodes {
            node.refresh().await.unwrap();
            assert_eq!(view(node).await.unwrap(), last);
        }
    });
}

#[tokio::test]
async fn damage_is_told_and_not_guessed_at() {
    let store = Memory::new();
    let group = open(&store).await;
    for _ in 0..7 {
        append(&group, 1).await.unwrap();
        rest(&group).await;
    }
    let all = store.rows();
    for (table, _, key, value) in &all {
        for damage in [Some(vec![0xff; value.len()]), Some(value[..value.len() - 1].to_vec()), None] {
            let version = store.version(Table::Head, PARTITION).await.unwrap();
            // In a copy, since the head is only written by commits.
            let copy = Memory::new();
            for _ in 0..version {
                copy_rows(&copy, &all, *table, key, &damage).await;
            }
            let opened = open_as(&copy, config()).await;
            let read = match opened {
                Ok(group) => view(&group).await.map(|view| view.1),
                Err(error) => Err(error),
            };
            match read {
                // A slot or a chunk that nothing refers to any more.
                Ok(view) => assert_eq!(view, self::view(&group).await.unwrap().1, "{table:?} {key:?}"),
                Err(StoreError::Corrupt(_)) => assert!(damage.is_some() || key.starts_with(b"r"), "{table:?} {key:?}"),
                Err(StoreError::Unavailable(_)) => assert!(damage.is_none(), "{table:?} {key:?}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Commits the rows once more, one of them damaged.
async fn copy_rows(
    store: &Memory,
    all: &[(Table, Bytes, Bytes, Bytes)],
    table: Table,
    key: &Bytes,
    damage: &Option<Vec<u8>>,
) {
    let value = |row: &(Table, Bytes, Bytes, Bytes)| match damage {
        damage if row.0 == table && row.2 == *key => damage.clone().map(Bytes::from),
        _ => Some(row.3.clone()),
    };
    let mut first = Batch::default();
    for row in all.iter().filter(|row| row.0 == Table::Chunk) {
        match value(row) {
            Some(value) => first.put(Table::Chunk, PARTITION, row.2.clone(), value),
            None => first.delete(Table::Chunk, PARTITION, row.2.clone()),
        }
    }
    let writes = all.iter().filter(|row| row.0 == Table::Head).map(|row| (row.2.clone(), value(row))).collect();
    let expected = store.version(Table::Head, PARTITION).await.unwrap();
    let (table, partition, id) = (Table::Head, Bytes::from_static(PARTITION), super::run::commit_id());
    store.commit(crate::wide::Commit { table, partition, expected, id, writes, first }).await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let store = Memory::new();
    let group = open(&store).await;
    for _ in 0..2_000 {
        append(&group, 1).await.unwrap();
    }
    rest(&group).await;
    assert_eq!(rows(&store, Table::Head).len(), 16 + 1, "the ring and the pointer");

    // A node that dies with a checkpoint written and not made the newest, and one whose deletions fail.
    let mut group = group;
    for fault in 0..12 {
        while rows(&store, Table::Chunk).iter().filter(|key| key.starts_with(b"r")).count() < 2 {
            append(&group, 1).await.unwrap();
            rest(&group).await;
        }
        if fault % 2 == 0 {
            store.inject(Operation::Put, Fault::Unavailable);
            append(&group, 1).await.unwrap();
            rest(&group).await;
        }
        group = open(&store).await;
    }
    let roots = |store: &Memory| rows(store, Table::Chunk).iter().filter(|key| key.starts_with(b"r")).count();
    // Two checkpoints later, right after the second has become the newest.
    for _ in 0..2 {
        while roots(&store) < 2 {
            append(&group, 1).await.unwrap();
            rest(&group).await;
        }
        append(&group, 1).await.unwrap();
        rest(&group).await;
    }
    let slots = (group.current().state.next(0) - 1).div_ceil(4) as usize;
    let stored = rows(&store, Table::Chunk).len();
    assert!(stored <= slots + 1, "{stored} rows for {slots} chunks and a root");
}

#[tokio::test]
async fn a_reader_that_fell_behind_the_ring_starts_from_the_checkpoint() {
    let store = Memory::new();
    let shared = GroupConfig { shared: true, ..config() };
    let reader = open_as(&store, shared.clone()).await.unwrap();
    let writer = open_as(&store, shared).await.unwrap();
    append(&writer, 1).await.unwrap();
    assert_eq!(reader.refresh().await.unwrap().seq, 1);
    for _ in 0..100 {
        append(&writer, 1).await.unwrap();
    }
    rest(&writer).await;
    assert_eq!(reader.refresh().await.unwrap().seq, 101);
    assert!(reader.entries(1).await.unwrap().is_none());
    let kept: Vec<Seq> = reader.entries(90).await.unwrap().unwrap().iter().map(|entry| entry.0).collect();
    assert_eq!(kept, (91..=101).collect::<Vec<_>>());
    assert_eq!(reader.entries(101).await.unwrap().unwrap(), []);
    assert_eq!(view(&reader).await.unwrap(), view(&writer).await.unwrap());
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_told_so_and_the_next_change_begins_anew() {
    for applied in [false, true] {
        let store = Memory::new();
        let group = open(&store).await;
        store.inject(Operation::Commit, if applied { Fault::UnknownApplied } else { Fault::UnknownLost });
        for _ in 0..config().tries {
            store.inject(Operation::Commit, Fault::UnknownLost);
        }
        assert!(matches!(append(&group, 1).await, Err(ChangeError::Unknown)));
        let (uid, seq) = append(&group, 1).await.unwrap();
        assert_eq!((uid, seq), if applied { (2, 2) } else { (1, 1) });
        store.kill();
        assert!(matches!(append(&group, 1).await, Err(ChangeError::Store(StoreError::Unavailable(_)))));
    }
}

#[tokio::test]
async fn a_closure_that_panics_takes_nobody_with_it_for_long() {
    let store = Memory::new();
    let group = open(&store).await;
    let panics = group.change(Batch::default(), |_| -> Result<(), Halt<(), _>> { panic!("on purpose") });
    assert!(matches!(panics.await, Err(ChangeError::Unknown)));
    assert_eq!(append(&group, 1).await.unwrap(), (1, 1));
    assert!(!group.busy());
}

#[tokio::test]
async fn a_change_goes_on_without_its_caller() {
    let store = Memory::new();
    let group = open(&store).await;
    store.inject(Operation::Commit, Fault::Delay(20));
    {
        let change = append(&group, 1);
        tokio::select! {
            biased;
            _ = change => panic!("it takes longer than one yield"),
            () = yield_now() => {}
        }
    }
    rest(&group).await;
    assert_eq!(group.current().seq, 1);
}

#[tokio::test]
async fn a_journal_entry_is_bounded() {
    let store = Memory::new();
    let group = open(&store).await;
    let (a, b, c) = tokio::join!(append(&group, 60_000), append(&group, 60_000), append(&group, 60_000));
    let seqs = [a.unwrap(), b.unwrap(), c.unwrap()].map(|done| done.1);
    assert_eq!(seqs, [1, 1, 2], "660 kB each");
}

#[tokio::test]
async fn too_many_waiting_changes_are_turned_away() {
    let store = Memory::new();
    let group = open_as(&store, GroupConfig { waiting_max: 3, ..config() }).await.unwrap();
    store.inject(Operation::Commit, Fault::Delay(50));
    let all: Vec<_> = (0..20).map(|_| append(&group, 1)).collect();
    let done = futures_util::future::join_all(all).await;
    let turned = done.iter().filter(|done| matches!(done, Err(ChangeError::Store(StoreError::Unavailable(_)))));
    assert_eq!(turned.count(), 17);
}

#[test]
fn an_idle_group_is_small() {
    let size = size_of::<Group<Toy>>();
    assert!(size <= 448, "{size} bytes");
}
