//! Octets on their way to the client: gathered, written in large pieces, with back-pressure and a limit of time.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Gathered octets are written when there are so many.
pub(crate) const FLUSH_BYTES: usize = 64 * 1024;

/// Any connection: plain, TLS, or a test's pipe.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where a command writes its answer.
pub(crate) struct Output<'a> {
    /// What is not written yet.
    pub(crate) buf: &'a mut Vec<u8>,
    /// Octets that have left.
    sent: u64,
    stream: &'a mut dyn Stream,
    timeout: Duration,
}

impl<'a> Output<'a> {
    pub(crate) fn new(buf: &'a mut Vec<u8>, stream: &'a mut dyn Stream, timeout: Duration) -> Self {
        Self { buf, sent: 0, stream, timeout }
    }

    /// Where the next octet will stand.
    pub(crate) fn position(&self) -> u64 {
        self.sent + self.buf.len() as u64
    }

    /// Whether all that was written since `position` is still here.
    pub(crate) fn holds(&self, position: u64) -> bool {
        position >= self.sent
    }

    /// Takes back what was written since `position`, so that an answer which cannot be finished leaves nothing. False,
    /// with nothing done, when octets of it have left.
    #[must_use]
    pub(crate) fn take_back(&mut self, position: u64) -> bool {
        if self.holds(position) {
            self.buf.truncate((position - self.sent) as usize);
        }
        self.holds(position)
    }

    /// Writes if much is waiting. To be called between messages and pieces.
    pub(crate) async fn make_room(&mut self) -> io::Result<()> {
        if self.buf.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends octets that may be many: large pieces go out without being copied.
    pub(crate) async fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        if self.buf.len() + octets.len() < FLUSH_BYTES {
            self.buf.extend_from_slice(octets);
            return Ok(());
        }
        self.write_gathered().await?;
        self.sent += octets.len() as u64;
        write(self.stream, self.timeout, octets).await
    }

    /// Writes everything. The time counts from one accepted piece to the next, so that a slow reader is not cut off
    /// as long as it reads.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.write_gathered().await?;
        let flushed = tokio::time::timeout(self.timeout, self.stream.flush()).await;
        flushed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn write_gathered(&mut self) -> io::Result<()> {
        self.sent += self.buf.len() as u64;
        write(self.stream, self.timeout, self.buf).await?;
        self.buf.clear();
        Ok(())
    }
}

async fn write(stream: &mut dyn Stream, timeout: Duration, octets: &[u8]) -> io::Result<()> {
    let mut rest = octets;
    while !rest.is_empty() {
        let written = tokio::time::timeout(timeout, stream.write(rest)).await;
        match written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => rest = &rest[n..],
        }
    }
    Ok(())
}
