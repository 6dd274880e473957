//! Messages in bulk on a byte stream: a kind octet, a length (4 octets, big-endian), a payload.
//!
//! A message is one `M` frame (its [`MessageMeta`] as JSON) followed by `O` frames with its octets; `E` ends the
//! stream, so that a cut one is noticed; `X` ends it with an error. The decoder never waits and never holds more than
//! one frame.

use anyhow::{Context, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::protocol::MessageMeta;

/// Longest payload of one frame.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message begins.
    Message(MessageMeta),
    /// Octets of the message begun last.
    Octets(Bytes),
    /// There are no more messages.
    End,
    /// The sender failed.
    Failed(String),
}

impl Frame {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut frame = |kind: u8, payload: &[u8]| {
            out.put_u8(kind);
            out.put_u32(payload.len() as u32);
            out.put_slice(payload);
        };
        match self {
            Self::Message(meta) => frame(b'M', &serde_json::to_vec(meta).expect("strings and numbers are JSON")),
            Self::Octets(octets) => octets.chunks(PAYLOAD_MAX).for_each(|piece| frame(b'O', piece)),
            Self::End => frame(b'E', b""),
            Self::Failed(error) => frame(b'X', error.as_bytes()),
        }
    }
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    held: BytesMut,
}

impl Decoder {
    /// Takes bytes as they come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are not frames; the stream is of no more use then.
    pub fn next(&mut self) -> anyhow::Result<Option<Frame>> {
        let Some(header) = self.held.first_chunk::<5>() else { return Ok(None) };
        let (kind, length) = (header[0], u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize);
        if length > PAYLOAD_MAX {
            bail!("a frame of {length} bytes");
        }
        if self.held.len() < 5 + length {
            return Ok(None);
        }
        self.held.advance(5);
        let payload = self.held.split_to(length).freeze();
        Ok(Some(match kind {
            b'M' => Frame::Message(serde_json::from_slice(&payload).context("a message's description")?),
            b'O' => Frame::Octets(payload),
            b'E' => Frame::End,
            b'X' => Frame::Failed(String::from_utf8_lossy(&payload).into_owned()),
            other => bail!("a frame of unknown kind {other}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_frames() {
        let meta = MessageMeta { flags: "SR".into(), keywords: vec!["$x".into()], received_at_ms: -5, uid: 7 };
        let frames = [
            Frame::Message(meta.clone()),
            Frame::Octets(Bytes::from_static(b"a\r\nb\0\xff")),
            Frame::Message(meta),
            Frame::Failed("no".to_owned()),
            Frame::End,
        ];
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        for split in 0..bytes.len() {
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for piece in [&bytes[..split], &bytes[split..]] {
                decoder.feed(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "split at {split}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [&b"Z\0\0\0\0"[..], b"O\xff\xff\xff\xff", b"M\0\0\0\x01{", b"GET / HTTP/1.1"] {
            let mut decoder = Decoder::default();
            decoder.feed(bytes);
            assert!(decoder.next().is_err(), "{bytes:?}");
        }
    }
}
