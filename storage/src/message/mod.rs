//! Messages: their ids, their immutable rows, their octets.
//!
//! A row is `{size, structure, preview, header octets}`; the octets after the header are kept in pieces in
//! [`crate::wide::Table::Body`]. Concatenating the row's header and the pieces gives back the exact octets received.

use std::ops::Range;

use bytes::Bytes;

mod address;
mod codec;
mod header;
mod mime;
mod spool;
#[cfg(test)]
mod tests;
mod text;

pub use address::{addresses, envelope};
pub use header::{
    HeaderField, ThreadIds, base_subject, decode_header, header_field, header_fields, thread_ids, unfold,
};
pub use mime::{DEPTH_MAX, MimePass, PARTS_MAX, Parsed};
pub use spool::{HEADER_BYTES_KEPT, MessageWriter, NewMessage, SpoolConfig};
pub use text::{Encoding, decode_text};

/// Names one message of one account: 48 bits of received-at (ms since 1970, big-endian) and 80 random bits.
///
/// Sorts by received-at. Made by the writer; never collides, so rows can be written before the commit that refers to
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmailId(pub [u8; 16]);

impl EmailId {
    /// An id for a message received at `received_at_ms` (clamped to 0..2^48).
    pub fn new(received_at_ms: i64, random: u128) -> Self {
        let ms = received_at_ms.clamp(0, (1 << 48) - 1) as u128;
        Self(((ms << 80) | (random & ((1 << 80) - 1))).to_be_bytes())
    }

    /// Received-at (IMAP INTERNALDATE), milliseconds since 1970.
    pub fn received_at_ms(self) -> i64 {
        (u128::from_be_bytes(self.0) >> 80) as i64
    }
}

/// Names one thread of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u64);

/// Parameters of a field: name in lower case, value.
pub type Params = Vec<(Vec<u8>, Vec<u8>)>;

/// One MIME entity with the octet ranges (offsets into the whole message) that IMAP's sections need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// This entity's header, including the empty line that ends it (if there is one).
    pub header: Range<u64>,
    /// This entity's body as it is encoded, without the CRLF that belongs to the next boundary.
    pub body: Range<u64>,
    /// Line ends (CRLF or bare LF) in the body, as Dovecot counts them: a last line without one does not count.
    pub lines: u32,
    /// Type, lower case ("text").
    pub media_type: Vec<u8>,
    /// Subtype, lower case ("plain").
    pub media_subtype: Vec<u8>,
    /// Content-Type parameters: name lower case, value verbatim after unquoting; what RFC 2231 lets be cut into pieces is
    /// put together (`name*0*`, `name*1` become `name*`), its encoding stays as written.
    pub params: Params,
    /// Content-ID, verbatim.
    pub id: Option<Vec<u8>>,
    /// Content-Description, verbatim (unfolded).
    pub description: Option<Vec<u8>>,
    /// Content-Transfer-Encoding, lower case; `7bit` when absent.
    pub encoding: Vec<u8>,
    /// Content-MD5.
    pub md5: Option<Vec<u8>>,
    /// Content-Disposition and its parameters.
    pub disposition: Option<(Vec<u8>, Params)>,
    /// Content-Language.
    pub language: Vec<Vec<u8>>,
    /// Content-Location.
    pub location: Option<Vec<u8>>,
    /// What it holds.
    pub kind: PartKind,
}

/// What a MIME entity holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartKind {
    /// Octets.
    Leaf,
    /// Entities between boundaries (may be empty in broken mail).
    Multipart(Vec<Part>),
    /// message/rfc822 (or message/global): an embedded message.
    Message {
        /// Its envelope.
        envelope: Box<Envelope>,
        /// Its root entity; `header` is the embedded message's header.
        root: Box<Part>,
    },
}

/// The envelope of RFC 3501 §7.4.2: header values as they stand (unfolded, RFC 2047 words left encoded).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Date.
    pub date: Option<Vec<u8>>,
    /// Subject.
    pub subject: Option<Vec<u8>>,
    /// From.
    pub from: Vec<Address>,
    /// Sender; empty = same as `from` on the wire.
    pub sender: Vec<Address>,
    /// Reply-To; empty = same as `from` on the wire.
    pub reply_to: Vec<Address>,
    /// To.
    pub to: Vec<Address>,
    /// Cc.
    pub cc: Vec<Address>,
    /// Bcc.
    pub bcc: Vec<Address>,
    /// In-Reply-To.
    pub in_reply_to: Option<Vec<u8>>,
    /// Message-ID.
    pub message_id: Option<Vec<u8>>,
}

/// One address of an envelope. A group is `Address{name: None, mailbox: Some(group), host: None}` … members …
/// `Address{all None}`, as on the wire (RFC 3501 §7.4.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Address {
    /// Display name, RFC 2047 words left encoded.
    pub name: Option<Vec<u8>>,
    /// Source route.
    pub route: Option<Vec<u8>>,
    /// Local part, or the group's name.
    pub mailbox: Option<Vec<u8>>,
    /// Domain.
    pub host: Option<Vec<u8>>,
}

/// A message's immutable row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Octets of the whole message.
    pub size: u64,
    /// The MIME structure.
    pub structure: Part,
    /// Up to 256 characters of text for lists, decoded.
    pub preview: String,
    /// The octets of the message's header (`structure.header`), up to 64 KiB of it; the rest is in the body pieces.
    pub header: Bytes,
    /// Message-ID, In-Reply-To and References hashes it was threaded by, and the thread.
    pub thread: ThreadId,
}
