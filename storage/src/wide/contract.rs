//! One suite of promises that every backend keeps. A case is an async function over a fresh store.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::memory::Memory;
use super::*;

/// One test per case and backend.
macro_rules! contract {
    ($($case:ident),* $(,)?) => {
        mod memory { $(#[test] fn $case() { super::on_memory(|store| Box::pin(super::$case(store))); })* }
        mod embedded { $(#[test] fn $case() { super::on_embedded(|store| Box::pin(super::$case(store))); })* }
    };
}

contract!(
    scans_both_ways,
    partitions_that_are_prefixes,
    empty_values_and_keys,
    values_of_a_megabyte,
    commits_bump_and_conflict,
    the_same_commit_again,
    first_before_commit,
    deletes,
    tables_and_partitions_do_not_mix,
    later_writes_of_a_batch_win,
    one_winner_per_version,
    bounds_are_refused,
    long_scans,
    closed_means_unavailable,
);

type Case = fn(Arc<dyn Store>) -> BoxFuture<'static, ()>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn on_memory(case: Case) {
    runtime().block_on(case(Arc::new(Memory::new())));
}

fn on_embedded(case: Case) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&EmbeddedConfig::new(dir.path())).unwrap());
    runtime().block_on(async {
        case(store.clone()).await;
        store.close().await.unwrap();
    });
}

fn bytes(octets: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(octets.as_ref())
}

/// Table, partition, key, value.
type Cell<'a> = (Table, &'a [u8], &'a [u8], Option<&'a [u8]>);

fn batch(writes: &[Cell<'_>]) -> Batch {
    let write = |(table, partition, key, value): &Cell<'_>| Write {
        table: *table,
        partition: bytes(partition),
        key: bytes(key),
        value: value.map(bytes),
    };
    Batch { writes: writes.iter().map(write).collect() }
}

fn commit(partition: &[u8], expected: Version, id: u128, writes: &[(&[u8], &[u8])]) -> Commit {
    Commit {
        table: Table::Head,
        partition: bytes(partition),
        expected,
        id: CommitId(id),
        writes: writes.iter().map(|(key, value)| (bytes(key), Some(bytes(value)))).collect(),
        first: Batch::default(),
    }
}

async fn all(store: &dyn Store, table: Table, partition: &[u8]) -> Vec<(Bytes, Bytes)> {
    store.scan(table, partition, (Unbounded, Unbounded), Order::Forward, usize::MAX).await.unwrap()
}

const KEYS: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"\xff", b"\xff\xff"];

async fn scans_both_ways(store: Arc<dyn Store>) {
    let mut writes = Batch::default();
    for key in KEYS.iter().rev() {
        writes.put(Table::Message, &b"p"[..], bytes(key), bytes(key));
    }
    store.put(writes).await.unwrap();
    let mut bounds = vec![Unbounded];
    for key in KEYS.iter().copied().chain([&b"\0\x80"[..], b"zz", b"\xff\xff\xff"]) {
        bounds.extend([Included(bytes(key)), Excluded(bytes(key))]);
    }
    let inside = |key: &[u8], from: &Bound<Bytes>, to: &Bound<Bytes>| {
        let after = match from {
            Included(from) => key >= from.as_ref(),
            Excluded(from) => key > from.as_ref(),
            Unbounded => true,
        };
        after
            && match to {
                Included(to) => key <= to.as_ref(),
                Excluded(to) => key < to.as_ref(),
                Unbounded => true,
            }
    };
    for from in &bounds {
        for to in &bounds {
            for limit in [0, 1, 3, usize::MAX] {
                let mut expected: Vec<&[u8]> = KEYS.iter().copied().filter(|key| inside(key, from, to)).collect();
                for order in [Order::Forward, Order::Reverse] {
                    let range = (from.clone(), to.clone());
                    let rows = store.scan(Table::Message, b"p", range, order, limit).await.unwrap();
                    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| key.as_ref()).collect();
                    assert_eq!(keys, expected[..limit.min(expected.len())], "{from:?} {to:?} {order:?} {limit}");
                    assert!(rows.iter().all(|(key, value)| key == value));
                    expected.reverse();
                }
            }
        }
    }
}

async fn partitions_that_are_prefixes(store: Arc<dyn Store>) {
    let partitions: [&[u8]; 9] =
        [b"\0", b"\0\0", b"a", b"a\0", b"a\0\x01", b"ab", b"\xff", b"\xff\xff", &[0xff; PARTITION_BYTES_MAX]];
    for (number, partition) in partitions.iter().enumerate() {
        let mut writes = Batch::default();
        KEYS.iter().for_each(|key| writes.put(Table::Head, bytes(partition), bytes(key), vec![number as u8]));
        store.put(writes).await.unwrap();
        let outcome = store.commit(commit(partition, 0, 1, &[])).await.unwrap();
        assert_eq!(outcome, Outcome::Applied);
    }
    for (number, partition) in partitions.iter().enumerate() {
        for order in [Order::Forward, Order::Reverse] {
            let rows = store.scan(Table::Head, partition, (Unbounded, Unbounded), order, 100).await.unwrap();
            assert_eq!(rows.len(), KEYS.len());
            assert!(rows.iter().all(|(_, value)| value[..] == [number as u8]));
        }
        assert_eq!(store.version(Table::Head, partition).await.unwrap(), 1);
        assert_eq!(store.get(Table::Head, partition, b"\0\xff").await.unwrap().unwrap(), [number as u8][..]);
    }
    assert!(all(&*store, Table::Head, b"\0\0\0").await.is_empty());
}

async fn empty_values_and_keys(store: Arc<dyn Store>) {
    store.put(batch(&[(Table::Chunk, b"p", b"", Some(b"")), (Table::Chunk, b"p", b"k", Some(b""))])).await.unwrap();
    assert_eq!(store.get(Table::Chunk, b"p", b"").await.unwrap(), Some(Bytes::new()));
    assert_eq!(store.get(Table::Chunk, b"p", b"k").await.unwrap(), Some(Bytes::new()));
    assert_eq!(store.get(Table::Chunk, b"p", b"j").await.unwrap(), None);
    assert_eq!(store.get(Table::Chunk, b"q", b"").await.unwrap(), None);
    store.put(Batch::default()).await.unwrap();
    assert_eq!(all(&*store, Table::Chunk, b"p").await.len(), 2);
}

async fn values_of_a_megabyte(store: Arc<dyn Store>) {
    let value: Vec<u8> = (0..1_u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut writes = Batch::default();
    (0..4_u8).for_each(|key| writes.put(Table::Body, &b"p"[..], vec![key], value.clone()));
    store.put(writes).await.unwrap();
    store.commit(commit(b"p", 0, 1, &[(b"k", &value)])).await.unwrap();
    for key in 0..4 {
        assert_eq!(store.get(Table::Body, b"p", &[key]).await.unwrap().unwrap(), value);
    }
    assert_eq!(store.get(Table::Head, b"p", b"k").await.unwrap().unwrap(), value);
}

async fn commits_bump_and_conflict(store: Arc<dyn Store>) {
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 0);
    for version in 0..5 {
        let outcome = store.commit(commit(b"p", version, 100 + u128::from(version), &[(b"k", b"old")])).await;
        assert_eq!(outcome.unwrap(), Outcome::Applied);
        assert_eq!(store.version(Table::Head, b"p").await.unwrap(), version + 1);
    }
    for (id, expected) in [0, 3, 4, 6, 900].into_iter().enumerate() {
        let outcome = store.commit(commit(b"p", expected, 200 + id as u128, &[(b"k", b"new")])).await.unwrap();
        assert_eq!(outcome, Outcome::Conflict(5), "expected {expected}");
    }
    assert_eq!(store.get(Table::Head, b"p", b"k").await.unwrap().unwrap(), &b"old"[..]);
    let outcome = store.commit(commit(b"q", 1, 1, &[])).await.unwrap();
    assert_eq!(outcome, Outcome::Conflict(0), "a partition never committed to");
    // A put does not touch the version.
    store.put(batch(&[(Table::Head, b"p", b"k", Some(b"put"))])).await.unwrap();
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 5);
}

async fn the_same_commit_again(store: Arc<dyn Store>) {
    let one = commit(b"p", 0, 1, &[(b"k", b"1")]);
    assert_eq!(store.commit(one.clone()).await.unwrap(), Outcome::Applied);
    assert_eq!(store.commit(one.clone()).await.unwrap(), Outcome::Applied);
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 1);
    assert_eq!(store.commit(commit(b"p", 0, 2, &[])).await.unwrap(), Outcome::Conflict(1), "another id");
    assert_eq!(store.commit(commit(b"p", 1, 2, &[(b"k", b"2")])).await.unwrap(), Outcome::Applied);
    assert_eq!(store.commit(one).await.unwrap(), Outcome::Conflict(2), "overtaken since");
    assert_eq!(store.get(Table::Head, b"p", b"k").await.unwrap().unwrap(), &b"2"[..]);
    // Repeated while the first is still on its way.
    let both = commit(b"p", 2, 3, &[]);
    let (a, b) = futures_util::future::join(store.commit(both.clone()), store.commit(both)).await;
    assert_eq!((a.unwrap(), b.unwrap()), (Outcome::Applied, Outcome::Applied));
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 3);
}

async fn first_before_commit(store: Arc<dyn Store>) {
    let with_first = |expected, id, key: &'static [u8]| Commit {
        first: batch(&[(Table::Message, b"q", key, Some(b"row")), (Table::Chunk, b"p", key, Some(b"chunk"))]),
        ..commit(b"p", expected, id, &[(key, b"entry")])
    };
    assert_eq!(store.commit(with_first(0, 1, b"a")).await.unwrap(), Outcome::Applied);
    assert_eq!(store.commit(with_first(0, 2, b"b")).await.unwrap(), Outcome::Conflict(1));
    for (key, entry) in [(b"a", true), (b"b", false)] {
        assert!(store.get(Table::Message, b"q", key).await.unwrap().is_some());
        assert!(store.get(Table::Chunk, b"p", key).await.unwrap().is_some());
        assert_eq!(store.get(Table::Head, b"p", key).await.unwrap().is_some(), entry);
    }
}

async fn deletes(store: Arc<dyn Store>) {
    store.put(batch(&[(Table::Chunk, b"p", b"a", Some(b"1")), (Table::Chunk, b"p", b"b", Some(b"2"))])).await.unwrap();
    let gone = batch(&[(Table::Chunk, b"p", b"a", None), (Table::Chunk, b"p", b"c", None)]);
    store.put(gone).await.unwrap();
    assert_eq!(store.get(Table::Chunk, b"p", b"a").await.unwrap(), None);
    assert_eq!(all(&*store, Table::Chunk, b"p").await, [(bytes(b"b"), bytes(b"2"))]);
    store.put(batch(&[(Table::Chunk, b"p", b"a", Some(b"3"))])).await.unwrap();
    assert_eq!(all(&*store, Table::Chunk, b"p").await.len(), 2);
    // By a commit, too; the version outlives the rows.
    store.commit(commit(b"p", 0, 1, &[(b"k", b"v")])).await.unwrap();
    let delete = Commit { writes: vec![(bytes(b"k"), None)], ..commit(b"p", 1, 2, &[]) };
    assert_eq!(store.commit(delete).await.unwrap(), Outcome::Applied);
    assert!(all(&*store, Table::Head, b"p").await.is_empty());
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), 2);
}

async fn tables_and_partitions_do_not_mix(store: Arc<dyn Store>) {
    let mut writes = Batch::default();
    for table in Table::ALL {
        for partition in [&b"p"[..], b"q"] {
            writes.put(table, bytes(partition), &b"k"[..], [table.name().as_bytes(), partition].concat());
        }
    }
    store.put(writes).await.unwrap();
    store.commit(commit(b"p", 0, 1, &[])).await.unwrap();
    for table in Table::ALL {
        for partition in [&b"p"[..], b"q"] {
            let rows = all(&*store, table, partition).await;
            assert_eq!(rows, [(bytes(b"k"), bytes([table.name().as_bytes(), partition].concat()))]);
            let version = u64::from(table == Table::Head && partition == b"p");
            assert_eq!(store.version(table, partition).await.unwrap(), version);
        }
    }
}

async fn later_writes_of_a_batch_win(store: Arc<dyn Store>) {
    for (last, expected) in [(Some(&b"2"[..]), Some(bytes(b"2"))), (None, None)] {
        let writes: Vec<_> = [Some(&b"1"[..]), None, Some(b"longer"), last]
            .map(|value| (Table::Chunk, &b"p"[..], &b"k"[..], value))
            .into();
        store.put(batch(&writes)).await.unwrap();
        assert_eq!(store.get(Table::Chunk, b"p", b"k").await.unwrap(), expected);
    }
}

async fn one_winner_per_version(store: Arc<dyn Store>) {
    const WRITERS: u128 = 16;
    const ROUNDS: u64 = 20;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut won = 0;
            for version in 0..ROUNDS {
                let id = u128::from(version) << 8 | writer;
                match store.commit(commit(b"p", version, id, &[(&id.to_be_bytes(), b"")])).await.unwrap() {
                    Outcome::Applied => won += 1,
                    Outcome::Conflict(other) => assert!(other > version),
                    Outcome::Unknown => panic!("nothing is unknown here"),
                }
                // Others may still be behind: the next version exists in any case.
                assert!(store.version(Table::Head, b"p").await.unwrap() > version);
            }
            won
        })
    });
    let mut won = 0;
    for writer in futures_util::future::join_all(writers).await {
        won += writer.unwrap();
    }
    assert_eq!(won, ROUNDS);
    assert_eq!(store.version(Table::Head, b"p").await.unwrap(), ROUNDS);
    assert_eq!(all(&*store, Table::Head, b"p").await.len() as u64, ROUNDS);
}

async fn bounds_are_refused(store: Arc<dyn Store>) {
    let long_partition = vec![1; PARTITION_BYTES_MAX + 1];
    let long_key = vec![1; KEY_BYTES_MAX + 1];
    let long_value = vec![1; VALUE_BYTES_MAX + 1];
    let refused: [(&[u8], &[u8], &[u8]); 4] =
        [(b"", b"k", b"v"), (&long_partition, b"k", b"v"), (b"p", &long_key, b"v"), (b"p", b"k", &long_value)];
    for (partition, key, value) in refused {
        let outcome = store.put(batch(&[(Table::Chunk, partition, key, Some(value))])).await;
        assert!(matches!(outcome, Err(StoreError::Refused(_))), "{outcome:?}");
        let outcome = store.commit(commit(partition, 0, 1, &[(key, value)])).await;
        assert!(matches!(outcome, Err(StoreError::Refused(_))), "{outcome:?}");
    }
    assert!(matches!(store.get(Table::Chunk, b"", b"").await, Err(StoreError::Refused(_))));
    let end = store.commit(commit(b"p", Version::MAX, 1, &[])).await;
    assert!(matches!(end, Err(StoreError::Refused(_))));
    let longest = [(Table::Chunk, &long_partition[1..], &long_key[1..], Some(&b"v"[..]))];
    store.put(batch(&longest)).await.unwrap();
    assert!(store.get(Table::Chunk, &long_partition[1..], &long_key[1..]).await.unwrap().is_some());
    assert!(store.get(Table::Chunk, b"p", &long_key).await.unwrap().is_none());
}

async fn long_scans(store: Arc<dyn Store>) {
    let mut writes = Batch::default();
    (0..2_000_u16).for_each(|row| writes.put(Table::Message, &b"p"[..], bytes(row.to_be_bytes()), &b"v"[..]));
    store.put(writes).await.unwrap();
    for limit in [255, 256, 257, 1_999, 2_000, 5_000] {
        for order in [Order::Forward, Order::Reverse] {
            let rows = store.scan(Table::Message, b"p", (Unbounded, Unbounded), order, limit).await.unwrap();
            assert_eq!(rows.len(), limit.min(2_000));
            let mut keys: Vec<_> = rows.into_iter().map(|(key, _)| key).collect();
            if order == Order::Reverse {
                assert_eq!(keys[0], 1_999_u16.to_be_bytes()[..]);
                keys.reverse();
            }
            assert!(keys.is_sorted());
        }
    }
}

async fn closed_means_unavailable(store: Arc<dyn Store>) {
    store.put(batch(&[(Table::Chunk, b"p", b"k", Some(b"v"))])).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.get(Table::Chunk, b"p", b"k").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.put(batch(&[(Table::Chunk, b"p", b"k", None)])).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.commit(commit(b"p", 0, 1, &[])).await, Err(StoreError::Unavailable(_))));
}

/// One step of the comparison with a model.
#[derive(Debug, Clone)]
enum Step {
    Put(Vec<(Vec<u8>, Option<u8>)>),
    Commit { behind: bool, writes: Vec<(Vec<u8>, Option<u8>)> },
    Scan { from: Vec<u8>, to: Vec<u8>, reverse: bool, limit: usize },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, 0x7f, 0xff]), 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    let writes = || prop::collection::vec((key(), prop::option::of(any::<u8>())), 0..6);
    prop_oneof![
        writes().prop_map(Step::Put),
        (prop::bool::weighted(0.2), writes()).prop_map(|(behind, writes)| Step::Commit { behind, writes }),
        (key(), key(), any::<bool>(), 0..8_usize).prop_map(|(from, to, reverse, limit)| Step::Scan {
            from,
            to,
            reverse,
            limit
        }),
    ]
}

/// Both backends answer as a sorted map does, whatever the keys.
#[test]
fn backends_agree_with_a_sorted_map() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(dir.path());
    let stores: [Arc<dyn Store>; 2] = [Arc::new(Memory::new()), Arc::new(Embedded::open(&config).unwrap())];
    let runtime = runtime();
    let ids = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(100));
    let steps = (prop::collection::vec(step(), 1..20), key());
    let result = runner.run(&steps, |(steps, suffix)| {
        let id: u128 = ids.get() + 1_000;
        ids.set(id);
        // Names of partitions end in hostile octets, and never repeat.
        let partition = [&u64::to_be_bytes(id as u64)[..], &suffix].concat();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut version = 0;
        for (number, step) in steps.into_iter().enumerate() {
            let row = |(key, value): (Vec<u8>, Option<u8>)| (Bytes::from(key), value.map(|value| bytes([value])));
            let write = |model: &mut BTreeMap<_, _>, writes: &[(Bytes, Option<Bytes>)]| {
                for (key, value) in writes {
                    match value {
                        Some(value) => drop(model.insert(key.to_vec(), value.to_vec())),
                        None => drop(model.remove(key.as_ref())),
                    }
                }
            };
            match step {
                Step::Put(writes) => {
                    let writes: Vec<_> = writes.into_iter().map(row).collect();
                    write(&mut model, &writes);
                    let mut batch = Batch::default();
                    for (key, value) in writes {
                        let partition = Bytes::from(partition.clone());
                        batch.writes.push(Write { table: Table::Head, partition, key, value });
                    }
                    stores.iter().for_each(|store| runtime.block_on(store.put(batch.clone())).unwrap());
                }
                Step::Commit { behind, writes } => {
                    let writes: Vec<_> = writes.into_iter().map(row).collect();
                    let expected = version + u64::from(behind);
                    let commit = Commit { writes, ..commit(&partition, expected, id + number as u128, &[]) };
                    for store in &stores {
                        let outcome = runtime.block_on(store.commit(commit.clone())).unwrap();
                        let right = if behind { Outcome::Conflict(version) } else { Outcome::Applied };
                        prop_assert_eq!(outcome, right);
                    }
                    if !behind {
                        version += 1;
                        write(&mut model, &commit.writes);
                    }
                }
                Step::Scan { from, to, reverse, limit } => {
                    let range = (Included(Bytes::from(from.clone())), Excluded(Bytes::from(to.clone())));
                    let inside = model.iter().filter(|(key, _)| **key >= from && **key < to);
                    let mut rows: Vec<_> = inside.map(|(key, value)| (bytes(key), bytes(value))).collect();
                    if reverse {
                        rows.reverse();
                    }
                    rows.truncate(limit);
                    let order = if reverse { Order::Reverse } else { Order::Forward };
                    for store in &stores {
                        let scan = store.scan(Table::Head, &partition, range.clone(), order, limit);
                        prop_assert_eq!(&runtime.block_on(scan).unwrap(), &rows);
                    }
                }
            }
        }
        let rows: Vec<_> = model.iter().map(|(key, value)| (bytes(key), bytes(value))).collect();
        for store in &stores {
            prop_assert_eq!(&runtime.block_on(all(&**store, Table::Head, &partition)), &rows);
            prop_assert_eq!(runtime.block_on(store.version(Table::Head, &partition)).unwrap(), version);
        }
        Ok(())
    });
    result.unwrap();
}
