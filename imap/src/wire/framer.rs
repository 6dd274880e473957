//! From octets in any split to frames: whole commands with their small literals, APPEND's literal in passing, DONE,
//! SASL lines. Owns the limits of what is kept; never looks further into a command than its tag, its verb and the
//! literal announcements at line ends.
//!
//! RFC 3501 §4.3 and §7.5, RFC 7888 (non-synchronizing literals), RFC 2177 (DONE), RFC 4954-like SASL lines.

use bytes::{Bytes, BytesMut};

use super::command::Literal;

/// Limits of one state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Octets of a command without its literals and line ends.
    pub line_bytes_max: usize,
    /// Octets of one literal that is not an appended message.
    pub literal_bytes_max: usize,
    /// Octets of a command with all its literals; this is what one connection can make us keep.
    pub command_bytes_max: usize,
    /// Octets of an appended message. 0: APPEND is a command like any other, its literals are gathered.
    pub append_bytes_max: u64,
    /// How much the driver reads at once.
    pub read_bytes: usize,
}

impl Limits {
    /// Before login: lines of 8 KiB, literals of 4,096 octets (as LITERAL-, RFC 7888 §5), 16 KiB in all.
    pub const UNAUTHENTICATED: Self = Self {
        line_bytes_max: 8 << 10,
        literal_bytes_max: 4096,
        command_bytes_max: 16 << 10,
        append_bytes_max: 0,
        read_bytes: 4 << 10,
    };

    /// After login: lines of 256 KiB (UID sets of 20,000 and more elements), literals of 64 KiB, messages of 36 MiB.
    pub const AUTHENTICATED: Self = Self {
        line_bytes_max: 256 << 10,
        literal_bytes_max: 64 << 10,
        command_bytes_max: 512 << 10,
        append_bytes_max: 36 << 20,
        read_bytes: 16 << 10,
    };
}

/// What came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A whole command for [`super::parse::parse_command`], its literals in place, without the final CRLF.
    Command(Bytes),
    /// The client waits for `+ `: send it, then go on with [`Framer::next`].
    ContinuationNeeded,
    /// The line of an APPEND up to and with the announcement of the message, for [`super::parse::parse_command`].
    /// Answer with [`Framer::accept_literal`] (and send `+ ` if it is synchronizing) or [`Framer::refuse_literal`];
    /// until then there is no further frame.
    Append {
        /// Up to and with `{n}`.
        line: Bytes,
        /// The announcement.
        literal: Literal,
    },
    /// Some octets of the accepted message, in order.
    Chunk(Bytes),
    /// The accepted message is complete. Not `well_formed`: something other than the line's end came after it, so
    /// nothing may be appended and the answer is BAD.
    AppendEnd {
        /// The command ended right after the literal.
        well_formed: bool,
    },
    /// DONE: IDLE is over.
    IdleDone,
    /// One line of a SASL exchange, without its CRLF.
    Sasl(Bytes),
    /// Something was refused; the stream is at, or skips silently to, the next command.
    Refused {
        /// The tag, if there was one.
        tag: Option<String>,
        /// Why.
        reason: Refusal,
    },
}

/// Why input was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// BAD.
    #[error("command line too long")]
    LineTooLong,
    /// BAD.
    #[error("literal too long")]
    LiteralTooLong,
    /// BAD.
    #[error("command too long")]
    CommandTooLong,
    /// NO \[TOOBIG\].
    #[error("message too big")]
    MessageTooBig,
    /// BAD.
    #[error("line does not end with CRLF")]
    BareLineFeed,
    /// BAD; IDLE is over all the same.
    #[error("expected DONE")]
    ExpectedDone,
    /// BAD, or BYE and close: a literal that nobody would wait for. Nothing further is read.
    #[error("literal size out of range")]
    Hopeless,
}

/// The framer of one connection.
#[derive(Debug)]
pub struct Framer {
    limits: Limits,
    buffer: BytesMut,
}

impl Framer {
    /// At the start of a connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, buffer: BytesMut::new() }
    }

    /// From the next command on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where the driver reads into (`read_buf`), with room for at least one octet. Read only when [`Framer::next`]
    /// has nothing more: that bounds the memory.
    pub fn read_buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(self.limits.read_bytes);
        &mut self.buffer
    }

    /// The same by copying.
    pub fn feed(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// The next frame, or `None` until more octets are fed.
    #[expect(clippy::should_implement_trait, reason = "not the end of an iteration: more may come")]
    pub fn next(&mut self) -> Option<Frame> {
        todo!()
    }

    /// After [`Frame::Append`]: let the message through.
    pub fn accept_literal(&mut self) {
        todo!()
    }

    /// After [`Frame::Append`]: the command was answered. A synchronizing literal is not going to come; another one is
    /// skipped with the rest of its command.
    pub fn refuse_literal(&mut self) {
        todo!()
    }

    /// After an IDLE command was accepted: the next line must be DONE.
    pub fn expect_done(&mut self) {
        todo!()
    }

    /// After a SASL challenge was sent: the next line is the response.
    pub fn expect_sasl(&mut self) {
        todo!()
    }

    /// Before TLS starts: forget what came in plain text (RFC 3501 §6.2.1; the class of CVE-2011-0411).
    pub fn discard_buffered(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// Octets that are fed and not yet part of a frame.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}
