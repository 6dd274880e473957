//! The store on one machine's disk, by the fjall engine: one data directory, one process.
//!
//! What holds:
//!
//! * **Durable before answered.** Everything that waits at one moment is one group: one record in the engine's journal,
//!   one flush (`fdatasync`), then the answers. A failed flush poisons the store: what is on disk is unknown, so each
//!   later call fails with [`StoreError::Poisoned`] until the directory is opened anew.
//! * **Seen only when durable.** Readers look at snapshots; a group becomes part of them after its flush, all of it at
//!   once. After a put or commit was answered, each later read sees it.
//! * **After a kill or a power cut** everything acknowledged is there. A last group that was not finished is cut off.
//! * **Damage is refused, not served.** Journals are examined before the engine sees them ([`journal`] says what is
//!   found, and the one case that cannot be); what the engine then recovered must be the group that was found last.
//!   Segment files carry checksums: a damaged block is an error for who reads it ([`StoreError::Corrupt`]).
//!
//! Long scans run on the blocking pool; gets and short scans where they are called, which may read a block from disk.

mod dir;
mod journal;
mod key;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, Readable, Slice};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::dir::Dir;
use self::writer::{Condition, Item, Request, Writer};
use super::{
    Batch, BoxFuture, Commit, CommitId, KeyRange, Order, Outcome, Result, Store, StoreError, Table, Version, Write,
    check_batch, check_commit, check_partition, range_is_empty,
};

/// Longest scan that runs where it is called, rows.
const INLINE_ROWS: usize = 256;
/// The queue before the writer holds this many KiB of writes (64 MiB); more writers wait their turn.
const QUEUE_KIB: u32 = 64 * 1_024;
/// Values up to this size are copied, so that a small one does not keep its reader's whole buffer alive.
const COPY_BYTES_MAX: usize = 16 * 1_024;
/// Journals not flushed to segments yet, before the engine hurries (its smallest).
const JOURNAL_BYTES: u64 = 64 * 1_024 * 1_024;
/// Background threads: one may compact while another flushes.
const WORKERS: usize = 2;
/// Key of the last group's seal.
const SEAL_KEY: &[u8] = b"seal";

/// How the embedded store uses the machine.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The data directory; made if missing, held by one process at a time.
    pub dir: PathBuf,
    /// Cache of blocks read, bytes.
    pub cache_bytes: u64,
    /// What may be held in memory before it goes to segment files, bytes, for all tables together (at least 8 MiB).
    /// While the disk falls behind, up to four times as much; then writers wait.
    pub memtable_bytes: u64,
}

impl EmbeddedConfig {
    /// Defaults for a small server: 64 MiB of cache, 64 MiB of memtables.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), cache_bytes: 64 * 1_024 * 1_024, memtable_bytes: 64 * 1_024 * 1_024 }
    }
}

/// The embedded store. Dropping it stops it without waiting for what is queued; [`Store::close`] waits.
pub struct Embedded {
    engine: ArcSwapOption<Engine>,
    queue: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    room: Arc<Semaphore>,
    writer: Mutex<Option<JoinHandle<()>>>,
    poison: Arc<Poison>,
    syncs: Arc<AtomicU64>,
}

impl Embedded {
    /// Opens the directory, making it if it is missing; recovers what a crash left. Blocks while it does (about a
    /// second per GB of journal and index).
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`]: another process holds it. [`StoreError::Refused`]: another format.
    /// [`StoreError::Corrupt`]: acknowledged data is damaged or missing; nothing was changed.
    pub fn open(config: &EmbeddedConfig) -> Result<Self> {
        let mut dir = Dir::hold(&config.dir)?;
        let last = match dir.synced {
            Some(synced) => {
                if !dir.engine.is_dir() {
                    return Err(StoreError::Corrupt(format!("{} is missing; restore a backup", dir.engine.display())));
                }
                journal::examine(&dir.engine, &dir.identity, synced)?.last
            }
            None => unfinished(&dir)?,
        };
        let engine = {
            let lock = dir.lock.take();
            guarded(|| Engine::open(config, &dir.engine, lock))?
        };
        let recovered = match engine.seal()? {
            Some(seal) => journal::sealed_number(&dir.identity, &seal)
                .ok_or_else(|| StoreError::Corrupt("the engine's data belongs to another store".to_owned()))?,
            None => 0,
        };
        if (last != 0 && recovered != last) || recovered < dir.synced.unwrap_or(0) {
            return Err(StoreError::Corrupt(format!(
                "the engine recovered group {recovered}, the journals hold {last}, and {} was acknowledged; restore \
                 a backup",
                dir.synced.unwrap_or(0)
            )));
        }
        let mut number = recovered;
        if dir.synced.is_none() {
            number += 1;
            writer::flush(&engine, &dir.identity, number, Vec::new())?;
            dir.mark.write(number)?;
            dir.mark.sync()?;
        }
        let engine = Arc::new(engine);
        let poison = Arc::<Poison>::default();
        let syncs = Arc::<AtomicU64>::default();
        let (queue, requests) = mpsc::unbounded_channel();
        let writer = Writer::new(Arc::clone(&engine), dir, Arc::clone(&poison), Arc::clone(&syncs), number);
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn({
            let poison = Arc::clone(&poison);
            move || {
                if catch_unwind(AssertUnwindSafe(|| writer.run(requests))).is_err() {
                    poison.set(&"the writer panicked");
                }
            }
        })?;
        Ok(Self {
            engine: ArcSwapOption::new(Some(engine)),
            queue: Mutex::new(Some(queue)),
            room: Arc::new(Semaphore::new(QUEUE_KIB as usize)),
            writer: Mutex::new(Some(thread)),
            poison,
            syncs,
        })
    }

    /// Flushes of the journal since opening; far fewer than commits when there are many writers.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn engine(&self) -> Result<Arc<Engine>> {
        self.poison.check()?;
        self.engine.load_full().ok_or_else(closed)
    }

    /// Queues a request when there is room and waits for its group to be flushed.
    async fn request(&self, items: Vec<Item>, condition: Option<Condition>) -> Result<Outcome> {
        let conditional = condition.iter().flat_map(|condition| &condition.items);
        let bytes = items.iter().chain(conditional).map(Item::bytes).sum::<usize>();
        let share = u32::try_from(bytes / 1_024 + 1).unwrap_or(QUEUE_KIB).min(QUEUE_KIB);
        let share = Arc::clone(&self.room).acquire_many_owned(share).await.map_err(|_| closed())?;
        self.poison.check()?;
        let (answer, answered) = oneshot::channel();
        let request = Request { items, condition, bytes, answer, share };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.ok_or_else(closed)?.send(request).map_err(|_| closed())?;
        match answered.await {
            Ok(outcome) => outcome,
            // The writer is gone without an answer.
            Err(_) => Err(self.poison.check().err().unwrap_or_else(closed)),
        }
    }

    /// Turns new calls away and takes out what has to be stopped.
    fn shutdown(&self) -> Shutdown {
        self.room.close();
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        Shutdown { writer, engine: self.engine.swap(None), poison: Arc::clone(&self.poison) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// What closing has to wait for; blocks.
struct Shutdown {
    writer: Option<JoinHandle<()>>,
    engine: Option<Arc<Engine>>,
    poison: Arc<Poison>,
}

impl Shutdown {
    /// Waits for the writer to finish what is queued, then for readers in flight, and stops the engine.
    fn run(self) -> Result<()> {
        if self.writer.is_some_and(|writer| writer.join().is_err()) {
            self.poison.set(&"the writer panicked");
        }
        let mut engine = self.engine;
        // Bounded, since a reader that never ends must not hang a shutdown: then the last reader stops the engine.
        for _ in 0..5_000 {
            match engine.map(Arc::try_unwrap) {
                None | Some(Ok(_)) => break,
                Some(Err(shared)) => engine = Some(shared),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.poison.check()
    }
}

impl Store for Embedded {
    fn get<'a>(&'a self, table: Table, partition: &'a [u8], key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            check_partition(partition)?;
            self.engine()?.get(table, &key::row(partition, key))
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
            let engine = self.engine()?;
            if limit == 0 || range_is_empty(&range) {
                return Ok(Vec::new());
            }
            let skip = key::prefix_len(partition);
            let range = key::range(partition, &range);
            if limit <= INLINE_ROWS {
                return engine.scan(table, range, skip, order, limit);
            }
            let scan = tokio::task::spawn_blocking(move || engine.scan(table, range, skip, order, limit));
            scan.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
        })
    }

    fn version<'a>(&'a self, table: Table, partition: &'a [u8]) -> BoxFuture<'a, Result<Version>> {
        Box::pin(async move {
            check_partition(partition)?;
            let version = self.engine()?.version(table, &key::version(partition))?;
            Ok(version.map_or(0, |(version, _)| version))
        })
    }

    fn put(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_batch(&batch)?;
            if batch.is_empty() {
                return self.engine().map(drop);
            }
            self.request(items(batch), None).await.map(drop)
        })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            check_commit(&commit)?;
            let Commit { table, partition, expected, id, writes, first } = commit;
            let row = |(key, value)| item(Write { table, partition: partition.clone(), key, value });
            let condition = Condition {
                table,
                key: Slice::from(key::version(&partition)),
                expected,
                id,
                items: writes.into_iter().map(row).collect(),
            };
            self.request(items(first), Some(condition)).await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // The writer may be in a flush, and the engine joins its threads: both block, so off the runtime.
            let (done, finished) = oneshot::channel();
            let shut = self.shutdown();
            std::thread::Builder::new().name("store-close".to_owned()).spawn(move || done.send(shut.run()).ok())?;
            finished.await.unwrap_or_else(|_| Err(closed()))
        })
    }
}

fn items(batch: Batch) -> Vec<Item> {
    batch.writes.into_iter().map(item).collect()
}

fn item(write: Write) -> Item {
    let value = write
        .value
        .map(|value| if value.len() <= COPY_BYTES_MAX { Slice::from(value.as_ref()) } else { Slice::from(value) });
    Item { table: write.table, key: Slice::from(key::row(&write.partition, &write.key)), value }
}

impl Item {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len())
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}

/// A store that was never completely made, or whose mark was removed: starts over only when nothing can be in it.
/// The number of the last group.
fn unfinished(dir: &Dir) -> Result<u64> {
    if !dir.engine.is_dir() {
        return Ok(0);
    }
    if journal::highest_seal(&dir.engine, &dir.identity)? > 1 {
        tracing::warn!("the sync mark is missing; the journal is taken as it is");
        return Ok(journal::examine(&dir.engine, &dir.identity, 0)?.last);
    }
    let aside = dir.engine.with_extension(format!("unfinished-{:08x}", rand::random::<u32>()));
    tracing::warn!(to = %aside.display(), "a store that was never finished is moved aside");
    std::fs::rename(&dir.engine, aside)?;
    Ok(0)
}

/// The engine and its keyspaces. Keyspaces are dropped before the database that joins their threads.
struct Engine {
    /// In the order of [`Table::ALL`].
    tables: Vec<Keyspace>,
    seal: Keyspace,
    database: Database,
    /// The data directory's lock, let go last.
    _lock: Option<File>,
}

impl Engine {
    fn open(config: &EmbeddedConfig, path: &Path, lock: Option<File>) -> Result<Self> {
        let database = Database::builder(path)
            .cache_size(config.cache_bytes)
            .worker_threads(WORKERS)
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            // Compressing would be the writer thread's work, and that thread is the limit before the disk is:
            // measured with values of 100 kB, twice to three times as many commits without it.
            .journal_compression(CompressionType::None)
            .open()
            .map_err(engine_error)?;
        let memtables = config.memtable_bytes.max(8 * 1_024 * 1_024);
        let open = |name: &str, options: KeyspaceCreateOptions| {
            database.keyspace(name, || options.manual_journal_persist(true)).map_err(engine_error)
        };
        let table = |table: Table| {
            let options = KeyspaceCreateOptions::default();
            open(
                table.name(),
                match table {
                    // Bodies are written once and rarely deleted: kept beside the index, they are not rewritten by
                    // each compaction.
                    Table::Body => options
                        .max_memtable_size(memtables / 2)
                        .with_kv_separation(Some(KvSeparationOptions::default().separation_threshold(2_048))),
                    Table::Head => options.max_memtable_size(memtables / 4).expect_point_read_hits(true),
                    Table::Message => options.max_memtable_size(memtables / 8),
                    Table::Chunk | Table::Thread | Table::Intent | Table::Directory => {
                        options.max_memtable_size(memtables / 32)
                    }
                },
            )
        };
        let tables = Table::ALL.into_iter().map(table).collect::<Result<_>>()?;
        let seal = open("seal", KeyspaceCreateOptions::default().max_memtable_size(1_024 * 1_024))?;
        Ok(Self { tables, seal, database, _lock: lock })
    }

    fn table(&self, table: Table) -> &Keyspace {
        &self.tables[table as usize]
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>> {
        let value = guarded(|| self.database.snapshot().get(self.table(table), key).map_err(engine_error))?;
        Ok(value.map(Bytes::from))
    }

    fn version(&self, table: Table, key: &[u8]) -> Result<Option<(Version, CommitId)>> {
        self.get(table, key)?.map(|value| key::decode_version(&value)).transpose()
    }

    fn seal(&self) -> Result<Option<Slice>> {
        guarded(|| self.database.snapshot().get(&self.seal, SEAL_KEY).map_err(engine_error))
    }

    fn scan(
        &self,
        table: Table,
        range: (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>),
        skip: usize,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        guarded(|| {
            let rows = self.database.snapshot().range(self.table(table), range);
            let row = |guard: fjall::Guard| {
                let (key, value) = guard.into_inner().map_err(engine_error)?;
                Ok((Bytes::from(key).slice(skip..), Bytes::from(value)))
            };
            match order {
                Order::Forward => rows.take(limit).map(row).collect(),
                Order::Reverse => rows.rev().take(limit).map(row).collect(),
            }
        })
    }
}

/// Runs engine code that may panic on damaged files; such a panic is damage, reported as such.
fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(StoreError::Corrupt("the engine gave up on what it read".to_owned())))
}

/// The engine's error in our terms.
fn engine_error(error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            // A file that ends too early is damage, not a disk that says no.
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                StoreError::Corrupt(format!("a file of the engine ends too early: {error}"))
            } else {
                StoreError::Io(error)
            }
        }
        fjall::Error::Poisoned => StoreError::Poisoned("the engine stopped itself".to_owned()),
        fjall::Error::Locked => StoreError::Locked { path: "engine".to_owned(), holder: String::new() },
        fjall::Error::InvalidVersion(version) => {
            StoreError::Refused(format!("the engine's files have the version {version:?}"))
        }
        other => StoreError::Corrupt(other.to_string()),
    }
}

/// Set once by the first failed flush.
#[derive(Default)]
struct Poison {
    why: OnceLock<String>,
    /// Makes the next flush fail.
    #[cfg(test)]
    inject: std::sync::atomic::AtomicBool,
}

impl Poison {
    fn check(&self) -> Result<()> {
        self.why.get().map_or(Ok(()), |why| Err(StoreError::Poisoned(why.clone())))
    }

    /// The first reason stays.
    fn set(&self, why: &dyn std::fmt::Display) -> String {
        self.why
            .get_or_init(|| {
                tracing::error!(error = %why, "the store is poisoned: stop the process and start it again");
                why.to_string()
            })
            .clone()
    }
}
