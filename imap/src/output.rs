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
    stream: &'a mut dyn Stream,
    timeout: Duration,
}

impl<'a> Output<'a> {
    pub(crate) fn new(buf: &'a mut Vec<u8>, stream: &'a mut dyn Stream, timeout: Duration) -> Self {
        Self { buf, stream, timeout }
    }

    /// Writes if much is waiting. To be called between messages and pieces.
    pub(crate) async fn make_room(&mut self) -> io::Result<()> {
        if self.buf.len() >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Writes everything. The time counts from one accepted piece to the next, so that a slow reader is not cut off
    /// as long as it reads.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.buf.as_slice();
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(FLUSH_BYTES)];
            let written = tokio::time::timeout(self.timeout, self.stream.write(piece)).await;
            match written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => rest = &rest[n..],
            }
        }
        self.buf.clear();
        tokio::time::timeout(self.timeout, self.stream.flush())
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
