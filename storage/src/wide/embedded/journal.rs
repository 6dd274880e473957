//! Examines the engine's journal before the engine sees it.
//!
//! On opening, the engine (fjall 3) cuts a journal off at the first record it cannot read and goes on: after a torn
//! last write that is right, after damage in the middle it silently gives up everything acknowledged since. So this
//! file reads the journals first, changes nothing unless the end is torn, and refuses what cannot be a torn end.
//!
//! Each group the writer flushes begins with a *seal*: the store's random identity and the group's number, one
//! higher than the last. A group is written only after the one before it was flushed, hence:
//!
//! * whole groups must carry consecutive numbers, across all journal files;
//! * at the first place that is not a whole group, only the remains of **one** group can follow: a seal with a later
//!   number further on, or anything but zeros in a file that is not the newest, is damage, not a torn write;
//! * the journal must reach the number in the `synced` file.
//!
//! What cannot be told: whether the very last group was acknowledged, when the machine lost power before the
//! operating system wrote the `synced` file back (seconds). Then it is taken for torn, and logged.
//!
//! Format read here: records `1 item-count:u32 seqno:u64` (start), `2 type:u8 compression:u8 keyspace:u64 key-len:u16
//! value-len:u32 stored-len:u32 key value` (item), `3 xxh3-64 of the items:u64 "FJL\x03"` (end), little-endian; new
//! files are filled up with zeros in advance. The engine's version is pinned by a test that reads what it writes.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;
use xxhash_rust::xxh3::Xxh3;

use super::dir::Identity;
use crate::wide::{Result, StoreError, VALUE_BYTES_MAX};

/// A seal: identity and number.
pub(super) const SEAL_BYTES: usize = 24;

/// The seal of a group.
pub(super) fn seal(identity: &Identity, number: u64) -> [u8; SEAL_BYTES] {
    let mut out = [0; SEAL_BYTES];
    out[..16].copy_from_slice(identity);
    out[16..].copy_from_slice(&number.to_be_bytes());
    out
}

/// The number in a seal of this store.
pub(super) fn sealed_number(identity: &Identity, seal: &[u8]) -> Option<u64> {
    let number = seal.strip_prefix(identity)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// What the journals hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Examined {
    /// Number of the last whole group; 0 when there is none.
    pub(super) last: u64,
    /// Bytes of a torn last group that were cut off.
    pub(super) torn_bytes: u64,
}

/// Journal files, oldest first. Empty when there are none.
pub(super) fn files(engine: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(engine)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            let number = number.ok_or_else(|| damaged(&path, 0, "is not named by a number"))?;
            files.push((number, path));
        }
    }
    files.sort();
    if let Some(pair) = files.windows(2).find(|pair| pair[0].0 + 1 != pair[1].0) {
        return Err(damaged(&pair[1].1, 0, "is not preceded by the journal before it, which is missing"));
    }
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Reads all journals of `engine`; cuts off a torn end of the newest. `synced` is the group known to be on disk.
pub(super) fn examine(engine: &Path, identity: &Identity, synced: u64) -> Result<Examined> {
    let files = files(engine)?;
    let Some(newest) = files.last() else {
        return Err(StoreError::Corrupt(format!("{} holds no journal: it was removed", engine.display())));
    };
    let mut last = 0;
    for path in &files {
        let mut reader = Reader::open(path)?;
        while let Some(number) = reader.group(identity)? {
            if last != 0 && number != last + 1 {
                let what = format!("holds group {number} where {} belongs", last + 1);
                return Err(damaged(path, reader.whole, &what));
            }
            last = number;
        }
        let whole = reader.whole;
        let rest = rest(path, whole, identity)?;
        if !rest.empty && path != newest {
            return Err(damaged(path, whole, "is unreadable, though later journals exist"));
        }
        // A journal whose very first group is torn says nothing of the groups before: then it must be the only one
        // there, and not one that is known to be on disk.
        let torn =
            rest.seals.is_none_or(
                |(first, latest)| {
                    if last == 0 { first == latest && latest > synced } else { latest <= last + 1 }
                },
            );
        if !torn {
            return Err(damaged(path, whole, "is unreadable, though later or acknowledged groups exist"));
        }
        if path == newest {
            if last != 0 && last < synced {
                let what = format!("ends at group {last}, though {synced} was acknowledged");
                return Err(damaged(path, whole, &what));
            }
            if !rest.empty {
                let torn_bytes = rest.bytes;
                tracing::warn!(path = %path.display(), at = whole, "cut off a write that was not finished");
                let file = OpenOptions::new().write(true).open(path)?;
                file.set_len(whole)?;
                file.sync_all()?;
                return Ok(Examined { last, torn_bytes });
            }
        }
    }
    Ok(Examined { last, torn_bytes: 0 })
}

/// The highest number in any seal of any journal, whole or not; 0 when there is none.
pub(super) fn highest_seal(engine: &Path, identity: &Identity) -> Result<u64> {
    let mut highest = 0;
    for path in files(engine)? {
        highest = highest.max(rest(&path, 0, identity)?.seals.map_or(0, |(_, latest)| latest));
    }
    Ok(highest)
}

fn damaged(path: &Path, at: u64, what: &str) -> StoreError {
    StoreError::Corrupt(format!("journal {} {what} (at byte {at}); restore a backup", path.display()))
}

/// What follows the whole groups of a file.
struct Rest {
    /// Nothing but zeros, or nothing at all.
    empty: bool,
    /// How much is not zero, counted to the last such byte.
    bytes: u64,
    /// Lowest and highest number in a seal.
    seals: Option<(u64, u64)>,
}

fn rest(path: &Path, from: u64, identity: &Identity) -> Result<Rest> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let finder = Finder::new(identity);
    let mut rest = Rest { empty: true, bytes: 0, seals: None };
    let mut buffer = vec![0; 1 << 20];
    let zeros = vec![0; 1 << 20];
    let mut kept = 0;
    let mut consumed = 0;
    loop {
        let count = file.read(&mut buffer[kept..])?;
        if count == 0 {
            return Ok(rest);
        }
        let filled = kept + count;
        // Files are filled up with zeros in advance: most of what is read here is that.
        if buffer[..filled] == zeros[..filled] {
            consumed += count as u64;
            kept = 0;
            continue;
        }
        if let Some(last) = buffer[kept..filled].iter().rposition(|octet| *octet != 0) {
            rest.empty = false;
            rest.bytes = consumed + last as u64 + 1;
        }
        consumed += count as u64;
        for at in finder.find_iter(&buffer[..filled]) {
            let seal = buffer[..filled].get(at..at + SEAL_BYTES);
            if let Some(number) = seal.and_then(|seal| sealed_number(identity, seal)) {
                let (first, latest) = rest.seals.unwrap_or((number, number));
                rest.seals = Some((first.min(number), latest.max(number)));
            }
        }
        // A seal may lie across two reads.
        kept = filled.min(SEAL_BYTES - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
}

/// Reads one journal file, group by group.
struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    /// Where the whole groups end.
    whole: u64,
    at: u64,
    buffer: Vec<u8>,
}

/// Why a record cannot be read.
enum Stop {
    /// The file ends, or what is there is no record.
    Unreadable,
    Io(std::io::Error),
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        let input = BufReader::with_capacity(1 << 18, File::open(path)?);
        Ok(Self { path: path.to_owned(), input, whole: 0, at: 0, buffer: vec![0; 1 << 16] })
    }

    /// The number of the next whole group; `None` where whole groups end.
    fn group(&mut self, identity: &Identity) -> Result<Option<u64>> {
        match self.records(identity) {
            Ok(Some(number)) => {
                self.whole = self.at;
                Ok(Some(number))
            }
            Ok(None) => Err(damaged(&self.path, self.whole, "holds a group that this store did not write")),
            Err(Stop::Unreadable) => Ok(None),
            Err(Stop::Io(error)) => Err(error.into()),
        }
    }

    /// One whole group; `None` when it is whole but has no seal.
    fn records(&mut self, identity: &Identity) -> Result<Option<u64>, Stop> {
        let mut start = [0; 13];
        self.read(&mut start)?;
        let count = u32::from_le_bytes([start[1], start[2], start[3], start[4]]);
        if start[0] != 1 || count == 0 {
            return Err(Stop::Unreadable);
        }
        let mut hasher = Xxh3::new();
        let mut number = None;
        for item in 0..count {
            let mut head = [0; 21];
            self.read(&mut head)?;
            let key = usize::from(u16::from_le_bytes([head[11], head[12]]));
            let value = u32::from_le_bytes([head[13], head[14], head[15], head[16]]) as usize;
            let stored = u32::from_le_bytes([head[17], head[18], head[19], head[20]]) as usize;
            // Compression may lengthen a value a little; anything longer is not ours.
            if head[0] != 2 || value > VALUE_BYTES_MAX || stored > VALUE_BYTES_MAX + VALUE_BYTES_MAX / 100 {
                return Err(Stop::Unreadable);
            }
            hasher.update(&head);
            let mut left = key + stored;
            while left > 0 {
                let take = left.min(self.buffer.len());
                let mut buffer = std::mem::take(&mut self.buffer);
                let read = self.read(&mut buffer[..take]);
                hasher.update(&buffer[..take]);
                if item == 0 && take == key + stored && stored == SEAL_BYTES {
                    number = sealed_number(identity, &buffer[key..take]);
                }
                self.buffer = buffer;
                read?;
                left -= take;
            }
        }
        let mut end = [0; 13];
        self.read(&mut end)?;
        let digest = u64::from_le_bytes([end[1], end[2], end[3], end[4], end[5], end[6], end[7], end[8]]);
        if end[0] != 3 || &end[9..] != b"FJL\x03" || digest != hasher.digest() {
            return Err(Stop::Unreadable);
        }
        Ok(number)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), Stop> {
        match self.input.read_exact(into) {
            Ok(()) => {
                self.at += into.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(Stop::Unreadable),
            Err(error) => Err(Stop::Io(error)),
        }
    }
}
