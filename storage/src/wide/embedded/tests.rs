//! What only the embedded store promises: reopening, crashes, damage, locks, shared flushes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::ops::Bound::Unbounded;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

fn open(dir: &Path) -> Result<Embedded> {
    Embedded::open(&EmbeddedConfig { cache_bytes: 1 << 20, memtable_bytes: 8 << 20, dir: dir.to_owned() })
}

/// Commit number `version + 1` of a partition: one row, and one beside it.
fn commit(partition: &str, version: Version) -> Commit {
    let mut first = Batch::default();
    first.put(Table::Body, partition.to_owned(), version.to_be_bytes().to_vec(), body(version));
    Commit {
        table: Table::Head,
        partition: partition.to_owned().into(),
        expected: version,
        id: CommitId(u128::from(version) + 1),
        writes: vec![(version.to_be_bytes().to_vec().into(), Some(Bytes::from(format!("{partition} {version}"))))],
        first,
    }
}

/// From some octets to some kB, so that groups have all sizes and some bodies live outside the index.
fn body(version: Version) -> Vec<u8> {
    let seed = version.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let length = 10 + seed as usize % 5_000;
    seed.to_le_bytes()
        .iter()
        .copied()
        .cycle()
        .take(length)
        .enumerate()
        .map(|(at, octet)| octet ^ (at >> 3) as u8)
        .collect()
}

async fn write(store: &Embedded, partition: &str, versions: std::ops::Range<Version>) {
    for version in versions {
        assert_eq!(store.commit(commit(partition, version)).await.unwrap(), Outcome::Applied);
    }
}

/// How many commits a partition holds; each checked.
async fn check(store: &Embedded, partition: &str) -> Result<Version> {
    let version = store.version(Table::Head, partition.as_bytes()).await?;
    let all = (Unbounded, Unbounded);
    let rows = store.scan(Table::Head, partition.as_bytes(), all.clone(), Order::Forward, usize::MAX).await?;
    let bodies = store.scan(Table::Body, partition.as_bytes(), all, Order::Forward, usize::MAX).await?;
    assert_eq!(rows.len() as u64, version);
    assert!(bodies.len() as u64 >= version);
    for (number, ((key, row), (_, stored))) in rows.iter().zip(&bodies).enumerate() {
        let number = number as u64;
        assert_eq!(key[..], number.to_be_bytes());
        assert_eq!(row[..], *format!("{partition} {number}").as_bytes());
        assert_eq!(stored[..], body(number));
        let got = store.get(Table::Body, partition.as_bytes(), key).await?;
        assert_eq!(got.as_ref(), Some(stored));
    }
    Ok(version)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All files below, with their octets.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn newest_journal(dir: &Path) -> PathBuf {
    journal::files(&dir.join("engine")).unwrap().pop().unwrap()
}

#[test]
fn reopened_it_holds_everything() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let store = wait_open(dir.path());
        run(async {
            assert_eq!(check(&store, "p").await.unwrap(), round * 10);
            write(&store, "p", round * 10..round * 10 + 10).await;
            if round % 2 == 0 {
                store.close().await.unwrap();
            } else {
                // A repeated commit is known after a restart too; a drop without closing loses nothing.
                drop(store);
            }
        });
    }
    let store = wait_open(dir.path());
    run(async {
        assert_eq!(store.commit(commit("p", 39)).await.unwrap(), Outcome::Applied);
        assert_eq!(store.commit(commit("p", 38)).await.unwrap(), Outcome::Conflict(40));
        assert_eq!(check(&store, "p").await.unwrap(), 40);
    });
}

/// After a drop without closing, threads end in their own time.
fn wait_open(dir: &Path) -> Embedded {
    for _ in 0..500 {
        match open(dir) {
            Err(StoreError::Locked { .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.unwrap(),
        }
    }
    panic!("still locked");
}

#[test]
fn concurrent_commits_share_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    run(async {
        let writers = (0..64).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { write(&store, &format!("w{writer}"), 0..50).await })
        });
        futures_util::future::join_all(writers).await.into_iter().for_each(Result::unwrap);
        let syncs = store.syncs();
        assert!((50..64 * 50 / 4).contains(&syncs), "{syncs} flushes for {} commits", 64 * 50);
        for writer in 0..64 {
            assert_eq!(check(&store, &format!("w{writer}")).await.unwrap(), 50);
        }
        store.close().await.unwrap();
    });
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let second = open(dir.path()).err().unwrap();
    let text = second.to_string();
    assert!(matches!(second, StoreError::Locked { .. }), "{text}");
    assert!(text.contains(&format!("(pid {})", std::process::id())), "{text}");
    run(store.close()).unwrap();
    run(open(dir.path()).unwrap().close()).unwrap();
}

#[test]
fn other_formats_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(open(dir.path()).unwrap().close()).unwrap();
    let format = fs::read_to_string(dir.path().join("FORMAT")).unwrap();
    let identity = format.lines().nth(1).unwrap();
    for (text, expected) in [
        (format!("posthouse-store 2\n{identity}\n"), "has the format \"posthouse-store 2\""),
        (String::new(), "has the format \"\""),
        ("posthouse-store 1\n".to_owned(), "has no identity"),
        ("posthouse-store 1\n00112233445566778899aabbccddeeff\n".to_owned(), "fails its check"),
    ] {
        fs::write(dir.path().join("FORMAT"), text).unwrap();
        let error = open(dir.path()).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("no FORMAT file"), "{error}");
    fs::write(dir.path().join("FORMAT"), &format).unwrap();
    run(open(dir.path()).unwrap().close()).unwrap();
    for missing in ["engine", "engine/keyspaces", "engine/version"] {
        let copied = tempfile::tempdir().unwrap();
        copy(dir.path(), copied.path());
        let path = copied.path().join(missing);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        assert!(open(copied.path()).is_err(), "without {missing}");
    }
}

#[test]
fn a_store_never_finished_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    run(open(dir.path()).unwrap().close()).unwrap();
    fs::remove_file(dir.path().join("synced")).unwrap();
    fs::remove_file(dir.path().join("engine/version")).unwrap();
    let store = open(dir.path()).unwrap();
    run(async {
        write(&store, "p", 0..3).await;
        store.close().await.unwrap();
    });
    // Without the mark, what is there is taken as it is.
    fs::remove_file(dir.path().join("synced")).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(run(check(&store, "p")).unwrap(), 3);
}

#[test]
fn a_failed_flush_ends_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    run(async {
        write(&store, "p", 0..3).await;
        store.poison.inject.store(true, Ordering::Relaxed);
        let waiting = (0..4_u64).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit(commit("p", 3 + writer)).await })
        });
        for outcome in futures_util::future::join_all(waiting).await {
            let outcome = outcome.unwrap();
            assert!(matches!(outcome, Err(StoreError::Poisoned(_))), "{outcome:?}");
        }
        store.poison.inject.store(false, Ordering::Relaxed);
        assert!(matches!(store.commit(commit("p", 3)).await, Err(StoreError::Poisoned(_))));
        assert!(matches!(store.put(Batch::default()).await, Err(StoreError::Poisoned(_))));
        assert!(matches!(store.get(Table::Head, b"p", b"").await, Err(StoreError::Poisoned(_))));
        assert!(matches!(store.version(Table::Head, b"p").await, Err(StoreError::Poisoned(_))));
        assert!(matches!(store.close().await, Err(StoreError::Poisoned(_))));
        let store = open(dir.path()).unwrap();
        assert_eq!(check(&store, "p").await.unwrap(), 3);
    });
}

/// A closed store of `count` groups in one journal, and where they end in it.
fn journal_of(dir: &Path, count: Version) -> Vec<u8> {
    run(async {
        let store = open(dir).unwrap();
        write(&store, "p", 0..count).await;
        store.close().await.unwrap();
    });
    trim(dir);
    fs::read(newest_journal(dir)).unwrap()
}

/// Shortens the zeros a journal is filled up with, so that tests copy less.
fn trim(dir: &Path) {
    let path = newest_journal(dir);
    let length = used(&fs::read(&path).unwrap()) as u64 + 9_000;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Length up to the last octet that is not zero.
fn used(octets: &[u8]) -> usize {
    octets.iter().rposition(|octet| *octet != 0).unwrap() + 1
}

/// Opens a damaged copy: refused and untouched, or serving at least `least` whole commits.
fn refused_or_whole(dir: &Path, least: Version, what: &str) -> Option<Version> {
    let before = fs::read(newest_journal(dir)).unwrap();
    match open(dir) {
        Ok(store) => {
            let found = run(check(&store, "p")).unwrap();
            assert!(found >= least, "{what}: {found} of {least} commits");
            run(store.close()).unwrap();
            Some(found)
        }
        Err(StoreError::Corrupt(why)) => {
            assert!(why.contains("restore a backup"), "{why}");
            assert!(fs::read(newest_journal(dir)).unwrap() == before, "{what}: refused, but changed");
            None
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

#[test]
fn a_damaged_journal_is_never_served_short() {
    const COUNT: Version = 30;
    let made = tempfile::tempdir().unwrap();
    let whole = journal_of(made.path(), COUNT);
    let used = used(&whole);
    let mut random = StdRng::seed_from_u64(7);
    let mut refused = 0;
    for round in 0..60 {
        let at = random.random_range(0..used);
        let mut octets = whole.clone();
        let what = match round % 3 {
            0 => {
                octets.truncate(at);
                format!("cut at {at} of {used}")
            }
            1 => {
                octets[at] ^= 1 << random.random_range(0..8);
                format!("flipped at {at} of {used}")
            }
            _ => {
                let end = (at + random.random_range(1..5_000)).min(used);
                octets[at..end].fill(0);
                format!("zeroed {at}..{end} of {used}")
            }
        };
        if octets == whole {
            continue;
        }
        // The mark as it is: everything was acknowledged, so all or nothing.
        let dir = tempfile::tempdir().unwrap();
        copy(made.path(), dir.path());
        fs::write(newest_journal(dir.path()), &octets).unwrap();
        refused += usize::from(refused_or_whole(dir.path(), COUNT, &what).is_none());
        // Its mark lags, as after a power cut: what it covers is protected, and all but the last group from damage
        // that leaves later ones.
        let dir = tempfile::tempdir().unwrap();
        copy(made.path(), dir.path());
        fs::write(newest_journal(dir.path()), &octets).unwrap();
        let mut held = Dir::hold(dir.path()).unwrap();
        held.mark.write(COUNT - 4).unwrap();
        drop(held);
        let least = if round % 3 == 1 { COUNT - 1 } else { COUNT - 5 };
        refused_or_whole(dir.path(), least, &format!("{what}, mark behind"));
    }
    assert!(refused >= 58, "{refused}");
}

#[test]
fn an_unfinished_last_group_is_cut_off_and_writing_goes_on() {
    const COUNT: Version = 12;
    let made = tempfile::tempdir().unwrap();
    let whole = journal_of(made.path(), COUNT);
    let used = used(&whole);
    // Where the last group begins: its seal is the last one in the file, 13 + 21 + 4 octets in.
    let identity = Dir::hold(made.path()).unwrap().identity;
    let seal = memchr::memmem::rfind(&whole, &identity).unwrap();
    let begin = seal - SEAL_KEY.len() - 21 - 13;
    for end in [begin + 1, begin + 13, seal + 5, seal + 24, (seal + used) / 2, used - 1] {
        for (fill, filled) in [(false, "cut"), (true, "zeros")] {
            let dir = tempfile::tempdir().unwrap();
            copy(made.path(), dir.path());
            let mut octets = whole[..end].to_vec();
            octets.resize(if fill { whole.len() } else { end }, 0);
            fs::write(newest_journal(dir.path()), octets).unwrap();
            // The last group was not acknowledged: the mark says so. (Group 1 made the store.)
            let mut held = Dir::hold(dir.path()).unwrap();
            held.mark.write(COUNT).unwrap();
            drop(held);
            for round in 0..3 {
                let store = open(dir.path()).unwrap_or_else(|error| panic!("{filled} at {end}: {error}"));
                run(async {
                    assert_eq!(check(&store, "p").await.unwrap(), COUNT - 1 + round, "{filled} at {end}");
                    write(&store, "p", COUNT - 1 + round..COUNT + round).await;
                    store.close().await.unwrap();
                });
            }
        }
    }
}

#[test]
fn a_lost_or_foreign_journal_is_refused() {
    let made = tempfile::tempdir().unwrap();
    journal_of(made.path(), 5);
    let other = tempfile::tempdir().unwrap();
    let foreign = journal_of(other.path(), 5);
    let journal = newest_journal(made.path());
    let own = fs::read(&journal).unwrap();
    for (octets, what) in [(Some(foreign), "another store's"), (Some(Vec::new()), "emptied"), (None, "removed")] {
        match octets {
            Some(octets) => fs::write(&journal, octets).unwrap(),
            None => fs::remove_file(&journal).unwrap(),
        }
        let opened = open(made.path());
        assert!(matches!(opened, Err(StoreError::Corrupt(_))), "{what}");
    }
    // An emptied journal changes nothing in the engine's other files: put back, all is well.
    fs::write(&journal, own).unwrap();
    assert_eq!(run(check(&open(made.path()).unwrap(), "p")).unwrap(), 5);
}

#[test]
fn the_first_group_of_a_new_journal_may_be_torn() {
    let dir = tempfile::tempdir().unwrap();
    let identity = [9; 16];
    let engine = dir.path();
    let mut octets = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0];
    octets.extend(journal::seal(&identity, 700));
    fs::write(engine.join("8.jnl"), &octets).unwrap();
    let examined = journal::examine(engine, &identity, 699).unwrap();
    assert_eq!(examined, journal::Examined { last: 0, torn_bytes: octets.len() as u64 });
    assert_eq!(fs::read(engine.join("8.jnl")).unwrap(), b"");
    fs::write(engine.join("8.jnl"), &octets).unwrap();
    assert!(journal::examine(engine, &identity, 700).is_err(), "it was acknowledged");
    octets.extend(journal::seal(&identity, 701));
    fs::write(engine.join("8.jnl"), &octets).unwrap();
    assert!(journal::examine(engine, &identity, 699).is_err(), "more follow");
    fs::write(engine.join("8.jnl"), vec![0; 4_096]).unwrap();
    assert_eq!(journal::examine(engine, &identity, 699).unwrap().last, 0);
    fs::write(engine.join("6.jnl"), b"").unwrap();
    assert!(journal::examine(engine, &identity, 0).is_err(), "7 is missing");
}

#[test]
fn a_damaged_segment_is_an_error_for_who_reads_it() {
    const COUNT: Version = 60;
    let made = tempfile::tempdir().unwrap();
    run(async {
        let store = open(made.path()).unwrap();
        write(&store, "p", 0..COUNT).await;
        let engine = store.engine().unwrap();
        for keyspace in engine.tables.iter().chain([&engine.seal]) {
            keyspace.rotate_memtable_and_wait().unwrap();
        }
        drop(engine);
        store.close().await.unwrap();
    });
    trim(made.path());
    let segments: Vec<PathBuf> = files(&made.path().join("engine/keyspaces"))
        .into_keys()
        .map(|path| path.strip_prefix(made.path()).unwrap().to_owned())
        .collect();
    assert!(segments.len() > 10, "{segments:?}");
    let mut random = StdRng::seed_from_u64(3);
    let mut noticed = 0;
    let dir = tempfile::tempdir().unwrap();
    copy(made.path(), dir.path());
    for round in 0..segments.len() * 3 {
        let name = &segments[round % segments.len()];
        let path = dir.path().join(name);
        let whole = fs::read(&path).unwrap();
        if whole.is_empty() {
            continue;
        }
        let mut octets = whole.clone();
        let at = random.random_range(0..octets.len());
        if round % 5 == 4 {
            octets.truncate(at)
        } else {
            octets[at] ^= 1 << random.random_range(0..8)
        }
        fs::write(&path, octets).unwrap();
        let before = files(dir.path());
        match open(dir.path()) {
            Ok(store) => {
                match run(check(&store, "p")) {
                    Ok(found) => assert_eq!(found, COUNT, "{} at {at}", name.display()),
                    Err(StoreError::Corrupt(_) | StoreError::Io(_)) => noticed += 1,
                    Err(other) => panic!("{} at {at}: {other}", name.display()),
                }
                run(store.close()).ok();
            }
            Err(StoreError::Corrupt(_) | StoreError::Io(_) | StoreError::Refused(_)) => noticed += 1,
            Err(other) => panic!("{} at {at}: {other}", name.display()),
        }
        // As before, whatever the opening changed.
        for path in files(dir.path()).into_keys().filter(|path| !before.contains_key(path)) {
            fs::remove_file(path).unwrap();
        }
        before.iter().for_each(|(path, octets)| fs::write(path, octets).unwrap());
        fs::write(&path, whole).unwrap();
    }
    assert!(noticed > segments.len() / 2, "{noticed} of {}", segments.len() * 3);
    let store = open(dir.path()).unwrap();
    assert_eq!(run(check(&store, "p")).unwrap(), COUNT);
}

const CHILD: &str = "POSTHOUSE_STORE_KILL_TEST_DIR";
const CHILD_WRITERS: u64 = 12;

/// Not a test of its own: the process that is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let store = Arc::new(wait_open(Path::new(&dir)));
    run(async {
        let writers = (0..CHILD_WRITERS).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let partition = format!("w{writer}");
                // Bounded, should nobody kill it.
                let from = store.version(Table::Head, partition.as_bytes()).await.unwrap();
                for version in from..from + 20_000 {
                    write(&store, &partition, version..version + 1).await;
                    let line = format!("ack {writer} {}\n", version + 1);
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            })
        });
        futures_util::future::join_all(writers).await;
    });
}

#[test]
fn killed_at_any_moment_nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(rand::random());
    let mut acknowledged = vec![0; CHILD_WRITERS as usize];
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "wide::embedded::tests::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lifetime = Duration::from_millis(random.random_range(20..250));
        let mut killer = None;
        for line in lines {
            let line = line.unwrap();
            // The first acknowledgement shares its line with the harness's greeting.
            let Some((_, ack)) = line.split_once("ack ") else { continue };
            let (writer, version) = ack.split_once(' ').unwrap();
            // The last line may be cut short by the kill: then it says less than was acknowledged.
            let (Ok(writer), Ok(version)) = (writer.parse::<usize>(), version.parse::<u64>()) else { continue };
            acknowledged[writer] = version.max(acknowledged[writer]);
            if killer.is_none() {
                let pid = child.id();
                killer = Some((std::time::Instant::now(), pid));
            }
            if killer.is_some_and(|(since, _)| since.elapsed() >= lifetime) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(killer.is_some(), "round {round}: it never acknowledged anything");
        let store = open(dir.path()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        run(async {
            for (writer, acknowledged) in acknowledged.iter().enumerate() {
                let found = check(&store, &format!("w{writer}")).await.unwrap();
                assert!(found >= *acknowledged, "round {round}, writer {writer}: {found} of {acknowledged}");
                assert!(found <= acknowledged + 2, "round {round}, writer {writer}: {found} from {acknowledged}");
            }
            store.close().await.unwrap();
        });
    }
    assert!(acknowledged.iter().sum::<u64>() > 200, "{acknowledged:?}");
}
