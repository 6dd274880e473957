//! Messages while they come in: small ones in memory, large ones in an unlinked temporary file, the MIME pass running
//! as octets arrive.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::header::header_fields;
use super::mime::{MimePass, Parsed};
use super::{MessageRow, Part, ThreadId};

/// Octets of a header kept in a row.
pub const HEADER_BYTES_KEPT: usize = 64 * 1024;
/// Octets gathered before a write to the temporary file.
const WRITE_BYTES: usize = 128 * 1024;

/// Where messages being received are kept, and how much of each in memory.
#[derive(Debug, Clone)]
pub struct SpoolConfig {
    /// Folder for what does not fit in memory.
    pub dir: PathBuf,
    /// Octets of a message kept in memory.
    pub memory_bytes_max: usize,
}

impl SpoolConfig {
    /// In `dir`, 128 KiB of each message in memory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), memory_bytes_max: 128 * 1024 }
    }
}

/// Takes a message in, octets in any split.
#[derive(Debug)]
pub struct MessageWriter {
    config: SpoolConfig,
    pass: MimePass,
    /// What is in memory: all of it, or what is not in the file yet.
    buffer: Vec<u8>,
    file: Option<Arc<File>>,
    /// A write to the file failed: octets are missing, and the message can never be whole.
    failed: bool,
    /// The first octets, once there is a file.
    head: Bytes,
    size: u64,
}

impl MessageWriter {
    /// An empty message.
    pub fn new(config: &SpoolConfig) -> Self {
        Self {
            config: config.clone(),
            pass: MimePass::default(),
            buffer: Vec::new(),
            file: None,
            failed: false,
            head: Bytes::new(),
            size: 0,
        }
    }

    /// Octets so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next octets.
    ///
    /// # Errors
    ///
    /// The disk's: the message cannot be taken, now or later.
    ///
    /// # Cancel safety
    ///
    /// None: dropped before it is ready, the message cannot be finished.
    pub async fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        self.check()?;
        self.pass.feed(octets);
        self.size += octets.len() as u64;
        self.buffer.extend_from_slice(octets);
        let max = if self.file.is_some() { WRITE_BYTES } else { self.config.memory_bytes_max };
        if self.buffer.len() > max { self.spill().await } else { Ok(()) }
    }

    fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::Error::other("an earlier write of this message failed")) } else { Ok(()) }
    }

    async fn spill(&mut self) -> io::Result<()> {
        // Until the octets are in the file, they are nowhere.
        self.failed = true;
        let buffer = std::mem::take(&mut self.buffer);
        if self.file.is_none() {
            self.head = Bytes::copy_from_slice(&buffer[..buffer.len().min(HEADER_BYTES_KEPT)]);
        }
        let (file, dir) = (self.file.clone(), self.config.dir.clone());
        let (file, mut buffer) = blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(tempfile::tempfile_in(dir)?),
            };
            (&*file).write_all(&buffer)?;
            Ok((file, buffer))
        })
        .await?;
        self.file = Some(file);
        self.failed = false;
        buffer.clear();
        buffer.shrink_to(WRITE_BYTES + 16 * 1024);
        self.buffer = buffer;
        Ok(())
    }

    /// The message is whole.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub async fn finish(mut self) -> io::Result<NewMessage> {
        self.check()?;
        if self.file.is_some() && !self.buffer.is_empty() {
            self.spill().await?;
        }
        let parsed = self.pass.finish();
        let (octets, head) = match self.file {
            Some(file) => (Octets::File(file), self.head),
            None => {
                let octets = Bytes::from(self.buffer);
                (Octets::Memory(octets.clone()), octets)
            }
        };
        let header_end = parsed.structure.header.end.min(HEADER_BYTES_KEPT as u64) as usize;
        let header = head.slice(..header_end.min(head.len()));
        Ok(NewMessage { octets, parsed, header })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[derive(Debug)]
enum Octets {
    Memory(Bytes),
    File(Arc<File>),
}

/// A message received in full, not stored yet. Made once, added to any number of places.
#[derive(Debug)]
pub struct NewMessage {
    octets: Octets,
    parsed: Parsed,
    header: Bytes,
}

impl NewMessage {
    /// A message that is in memory already.
    pub fn from_octets(octets: impl Into<Bytes>) -> Self {
        let octets = octets.into();
        let mut pass = MimePass::default();
        pass.feed(&octets);
        let parsed = pass.finish();
        let end = parsed.structure.header.end.min(HEADER_BYTES_KEPT as u64) as usize;
        let header = octets.slice(..end);
        Self { octets: Octets::Memory(octets), parsed, header }
    }

    /// Octets of the whole message.
    pub fn size(&self) -> u64 {
        self.parsed.size
    }

    /// The MIME structure.
    pub fn structure(&self) -> &Part {
        &self.parsed.structure
    }

    /// Up to 256 characters of its text.
    pub fn preview(&self) -> &str {
        &self.parsed.preview
    }

    /// The header's octets, up to 64 KiB of them.
    pub fn header(&self) -> &Bytes {
        &self.header
    }

    /// `Received` fields in the header (RFC 5321 §6.3: loops are found by counting them).
    pub fn received_count(&self) -> usize {
        header_fields(&self.header).filter(|field| field.is("Received")).count()
    }

    /// Its row in a thread.
    pub fn row(&self, thread: ThreadId) -> MessageRow {
        MessageRow {
            size: self.parsed.size,
            structure: self.parsed.structure.clone(),
            preview: self.parsed.preview.clone(),
            header: self.header.clone(),
            thread,
        }
    }

    /// Octets of it; a slice without copying when it is in memory.
    ///
    /// # Errors
    ///
    /// The disk's; a range that goes past the end is cut.
    pub async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let end = range.end.min(self.size());
        let range = range.start.min(end)..end;
        match &self.octets {
            Octets::Memory(octets) => Ok(octets.slice(range.start as usize..range.end as usize)),
            Octets::File(file) => {
                let file = Arc::clone(file);
                blocking(move || {
                    let mut out = vec![0; (range.end - range.start) as usize];
                    file.read_exact_at(&mut out, range.start)?;
                    Ok(out.into())
                })
                .await
            }
        }
    }
}
