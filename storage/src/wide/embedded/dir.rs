//! The data directory around the engine: who holds it, what format it has, how far it was synced.
//!
//! * `LOCK`: locked while the store is open; holds the process id for whoever comes second.
//! * `FORMAT`: format version and the store's random identity, written before anything else.
//! * `synced`: number of the last group known to be on disk. Overwritten after each flush without a flush of its own:
//!   it is never ahead of the journal, and at most some seconds behind after a power cut (not at all after a kill).
//! * `engine/`: the engine's own files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::wide::{Result, StoreError};

/// A store's random identity; not secret from its operator, but never told to anybody who sends data.
pub(super) type Identity = [u8; 16];

const FORMAT: &str = "posthouse-store 1";

/// A directory held by this process.
pub(super) struct Dir {
    pub(super) engine: PathBuf,
    pub(super) identity: Identity,
    /// The last group known to be on disk; `None` when the store was never completely made.
    pub(super) synced: Option<u64>,
    pub(super) mark: Mark,
    /// Locked until dropped; taken by the engine, which outlives everything else.
    pub(super) lock: Option<File>,
}

impl Dir {
    /// Makes or takes the directory.
    pub(super) fn hold(path: &Path) -> Result<Self> {
        fs::create_dir_all(path)?;
        let lock = lock(path)?;
        let engine = path.join("engine");
        let identity = identity(path, &engine)?;
        let (mark, synced) = Mark::open(&path.join("synced"), &identity)?;
        Ok(Self { engine, identity, synced, mark, lock: Some(lock) })
    }
}

fn lock(path: &Path) -> Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join("LOCK"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The number is a courtesy: what cannot be read is left out.
            let pid =
                (&mut file).take(20).read_to_string(&mut holder).ok().and_then(|_| holder.trim().parse::<u32>().ok());
            let holder = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            return Err(StoreError::Locked { path: path.display().to_string(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
    Ok(file)
}

/// Reads the format file, or writes it into a directory that holds no store yet.
fn identity(path: &Path, engine: &Path) -> Result<Identity> {
    let file = path.join("FORMAT");
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if engine.exists() {
                return Err(StoreError::Refused(format!(
                    "{} holds data but no FORMAT file; restore that file or choose another directory",
                    path.display()
                )));
            }
            let identity = rand::random::<u128>();
            let draft = path.join("FORMAT.new");
            let mut out = File::create(&draft)?;
            out.write_all(format!("{FORMAT}\n{identity:032x}\n").as_bytes())?;
            out.sync_all()?;
            fs::rename(&draft, &file)?;
            sync_dir(path)?;
            return Ok(identity.to_be_bytes());
        }
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let format = lines.next().unwrap_or_default();
    if format != FORMAT {
        let found: String = format.chars().take(40).collect();
        return Err(StoreError::Refused(format!(
            "{} has the format {found:?}, this program reads {FORMAT:?}; use the version that wrote it",
            path.display()
        )));
    }
    let identity = lines.next().filter(|line| line.len() == 32).and_then(|line| u128::from_str_radix(line, 16).ok());
    let identity = identity.ok_or_else(|| StoreError::Corrupt(format!("{} has no identity", file.display())))?;
    Ok(identity.to_be_bytes())
}

/// The `synced` file.
pub(super) struct Mark {
    file: File,
    path: PathBuf,
    identity: Identity,
}

impl Mark {
    fn open(path: &Path, identity: &Identity) -> Result<(Self, Option<u64>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        (&mut file).take(17).read_to_end(&mut bytes)?;
        let mark = Self { file, path: path.to_owned(), identity: *identity };
        if bytes.is_empty() {
            return Ok((mark, None));
        }
        let number = bytes.first_chunk::<8>().map(|number| u64::from_be_bytes(*number)).unwrap_or_default();
        if bytes != mark.encode(number) {
            return Err(StoreError::Corrupt(format!(
                "{} fails its check, so it cannot be told whether the journal is whole; restore a backup, or write \
                 an empty file there to accept what the journal holds",
                path.display()
            )));
        }
        Ok((mark, Some(number)))
    }

    fn encode(&self, number: u64) -> [u8; 16] {
        let mut checked = [0; 24];
        checked[..16].copy_from_slice(&self.identity);
        checked[16..].copy_from_slice(&number.to_be_bytes());
        let mut out = [0; 16];
        out[..8].copy_from_slice(&number.to_be_bytes());
        out[8..].copy_from_slice(&xxh3_64(&checked).to_be_bytes());
        out
    }

    /// Notes that groups up to `number` are on disk.
    pub(super) fn write(&mut self, number: u64) -> std::io::Result<()> {
        let bytes = self.encode(number);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)
    }

    /// Flushes the mark itself, and its name.
    pub(super) fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync_all()?;
        self.path.parent().map_or(Ok(()), sync_dir)
    }
}

#[cfg(unix)]
pub(super) fn sync_dir(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Elsewhere directories cannot be flushed.
#[cfg(not(unix))]
pub(super) fn sync_dir(_: &Path) -> std::io::Result<()> {
    Ok(())
}
