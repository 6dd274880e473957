//! From octets in any split to frames: whole commands with their small literals, APPEND's literal in passing, DONE,
//! SASL lines. Owns the limits of what is kept; never looks further into a command than its tag, its verb and the
//! literal announcements at line ends.
//!
//! RFC 3501 §4.3 and §7.5, RFC 7888 (non-synchronizing literals), RFC 2177 (DONE), RFC 3501 §6.2.2 (SASL).

use bytes::{Buf, Bytes, BytesMut};

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
    /// Before login: lines of 8 KiB, literals of 4,096 octets (as LITERAL-, RFC 7888 §5), 12 KiB in all:
    /// with the buffer's growth a connection holds at most 24 KiB.
    pub const UNAUTHENTICATED: Self = Self {
        line_bytes_max: 8 << 10,
        literal_bytes_max: 4096,
        command_bytes_max: 12 << 10,
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
    state: State,
    gathered: Gathered,
    next_read: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A command is being gathered at the front of the buffer.
    Gather,
    /// A message was announced; the driver has not answered yet.
    Announced(Literal),
    /// So many octets of the message are still to come.
    Message { left: u64 },
    /// The rest of APPEND's line.
    Tail,
    /// Octets of a refused literal, then the rest of the refused line.
    Skip { left: u64 },
    /// The rest of a refused line that can announce no literal: in IDLE and SASL.
    SkipLine,
    /// A line that must be DONE.
    Idle,
    /// A line of a SASL exchange.
    Sasl,
    /// Nothing is read any more.
    Hopeless,
}

/// How far the command at the front of the buffer is understood.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    /// Where the current line begins: 0, or after a literal. The buffer may not reach there yet.
    line_start: usize,
    /// No line feed between `line_start` and here.
    scanned: usize,
    /// Octets of the lines before `line_start`.
    line_bytes: usize,
}

/// A smallest read that lets DONE or a short command in.
const READ_BYTES_MIN: usize = 512;
/// What DONE and spaces may take.
const IDLE_LINE_BYTES_MAX: usize = 1024;
/// The longest announcement and the CR behind it: kept while a line is skipped.
const ANNOUNCEMENT_BYTES_MAX: usize = 32;
/// A refused literal is read to its end if it is at most this long; nobody sends more than this in good faith.
const SKIP_BYTES_MAX: u64 = 1 << 30;

impl Framer {
    /// At the start of a connection.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: BytesMut::new(),
            state: State::Gather,
            gathered: Gathered::default(),
            next_read: READ_BYTES_MIN,
        }
    }

    /// From the next command on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where the driver reads into (`read_buf`), with room for at least one octet. Read only when [`Framer::next`]
    /// has nothing more: that bounds the memory. The room grows with the traffic, up to [`Limits::read_bytes`].
    pub fn read_buffer(&mut self) -> &mut BytesMut {
        let room = match self.state {
            State::Message { .. } | State::Skip { .. } => self.limits.read_bytes,
            State::Idle => READ_BYTES_MIN,
            _ => self.next_read,
        };
        self.buffer.reserve(room.max(1));
        &mut self.buffer
    }

    /// The same by copying.
    pub fn feed(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// The next frame, or `None` until more octets are fed (or, after [`Frame::Append`], until it is answered).
    #[expect(clippy::should_implement_trait, reason = "None is not the end: more may come")]
    pub fn next(&mut self) -> Option<Frame> {
        if !self.buffer.is_empty() {
            self.adapt_read();
        }
        loop {
            let step = match self.state {
                State::Gather => self.gather(),
                State::Announced(_) => Step::Wait,
                State::Message { left } => self.message(left),
                State::Tail => self.tail(),
                State::Skip { left } => self.skip(left),
                State::SkipLine => self.skip_line(false),
                State::Idle => self.idle(),
                State::Sasl => self.sasl(),
                State::Hopeless => {
                    self.buffer.clear();
                    Step::Wait
                }
            };
            match step {
                Step::Frame(frame) => return Some(frame),
                Step::Again => {}
                Step::Wait => {
                    // An idle connection keeps no buffer; a message in passing reuses its own.
                    if self.buffer.is_empty() && !matches!(self.state, State::Message { .. }) {
                        self.buffer = BytesMut::new();
                    }
                    return None;
                }
            }
        }
    }

    /// After [`Frame::Append`]: let the message through.
    pub fn accept_literal(&mut self) {
        if let State::Announced(literal) = self.state {
            self.state = State::Message { left: literal.size };
        }
    }

    /// After [`Frame::Append`] or amid its chunks: the command was answered. A synchronizing literal that was not
    /// accepted is not going to come; everything else is skipped to the end of the command.
    pub fn refuse_literal(&mut self) {
        match self.state {
            State::Announced(literal) if literal.synchronizing => self.restart(),
            State::Announced(literal) => self.state = State::Skip { left: literal.size },
            State::Message { left } => self.state = State::Skip { left },
            State::Tail => self.state = State::Skip { left: 0 },
            _ => {}
        }
    }

    /// After an IDLE command was accepted: the next line must be DONE.
    pub fn expect_done(&mut self) {
        self.state = State::Idle;
    }

    /// After a SASL challenge was sent: the next line is the response.
    pub fn expect_sasl(&mut self) {
        self.state = State::Sasl;
    }

    /// Octets that are fed and not yet part of a frame.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Octets of memory held, whatever they are used for.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    fn adapt_read(&mut self) {
        if self.buffer.len() == self.buffer.capacity() {
            self.next_read = (self.next_read * 2).min(self.limits.read_bytes).max(READ_BYTES_MIN);
        } else if self.buffer.len() < self.next_read / 4 {
            self.next_read = (self.next_read / 2).max(READ_BYTES_MIN);
        }
    }

    fn restart(&mut self) {
        self.state = State::Gather;
        self.gathered = Gathered::default();
    }

    fn gather(&mut self) -> Step {
        let Gathered { line_start, scanned, line_bytes } = self.gathered;
        if self.buffer.len() < scanned {
            return Step::Wait;
        }
        let Some(found) = memchr::memchr(b'\n', &self.buffer[scanned..]) else {
            self.gathered.scanned = self.buffer.len();
            // The line may still get the CR of its end.
            if line_bytes + (self.buffer.len() - line_start) > self.limits.line_bytes_max + 1 {
                return self.refuse_unended(Refusal::LineTooLong);
            }
            if self.buffer.len() > self.limits.command_bytes_max + 1 {
                return self.refuse_unended(Refusal::CommandTooLong);
            }
            return Step::Wait;
        };
        let line_feed = scanned + found;
        if line_feed == 0 {
            self.buffer.advance(1);
            self.gathered = Gathered::default();
            return Step::Again;
        }
        if line_feed == line_start || self.buffer[line_feed - 1] != b'\r' {
            // As when the line came in pieces: what is too long is that first.
            if line_bytes + (line_feed - line_start) > self.limits.line_bytes_max + 1 {
                return self.refuse_ended(line_feed + 1, None, Refusal::LineTooLong);
            }
            if line_feed > self.limits.command_bytes_max + 1 {
                return self.refuse_ended(line_feed + 1, None, Refusal::CommandTooLong);
            }
            let tag = tag_of(&self.buffer);
            self.buffer.advance(line_feed + 1);
            self.restart();
            return refused(tag, Refusal::BareLineFeed);
        }
        let end = line_feed - 1;
        let announcement = announcement(&self.buffer[line_start..end]);
        let line_bytes = line_bytes + (end - line_start);
        if line_bytes > self.limits.line_bytes_max {
            return self.refuse_ended(line_feed + 1, announcement, Refusal::LineTooLong);
        }
        if end > self.limits.command_bytes_max {
            return self.refuse_ended(line_feed + 1, announcement, Refusal::CommandTooLong);
        }
        let Some((at, literal)) = announcement else {
            self.gathered = Gathered::default();
            if end == 0 {
                self.buffer.advance(2);
                return Step::Again;
            }
            let command = self.buffer.split_to(end).freeze();
            self.buffer.advance(2);
            return Step::Frame(Frame::Command(command));
        };
        if self.limits.append_bytes_max > 0 && announces_message(&self.buffer[..end], line_start + at) {
            if literal.size > self.limits.append_bytes_max {
                return self.refuse_ended(line_feed + 1, announcement, Refusal::MessageTooBig);
            }
            let line = self.buffer.split_to(end).freeze();
            self.buffer.advance(2);
            self.gathered = Gathered::default();
            self.state = State::Announced(literal);
            return Step::Frame(Frame::Append { line, literal });
        }
        if literal.size > self.limits.literal_bytes_max as u64 {
            return self.refuse_ended(line_feed + 1, announcement, Refusal::LiteralTooLong);
        }
        let literal_end = line_feed + 1 + literal.size as usize;
        if literal_end > self.limits.command_bytes_max {
            return self.refuse_ended(line_feed + 1, announcement, Refusal::CommandTooLong);
        }
        self.gathered = Gathered { line_start: literal_end, scanned: literal_end, line_bytes };
        if literal.synchronizing { Step::Frame(Frame::ContinuationNeeded) } else { Step::Again }
    }

    fn message(&mut self, left: u64) -> Step {
        if left == 0 {
            self.state = State::Tail;
            return Step::Again;
        }
        if self.buffer.is_empty() {
            return Step::Wait;
        }
        let octets = left.min(self.buffer.len() as u64);
        self.state = State::Message { left: left - octets };
        Step::Frame(Frame::Chunk(self.buffer.split_to(octets as usize).freeze()))
    }

    fn tail(&mut self) -> Step {
        let Some(line_feed) = memchr::memchr(b'\n', &self.buffer) else {
            if self.buffer.iter().all(|&octet| octet == b' ' || octet == b'\r') && self.buffer.len() < 64 {
                return Step::Wait;
            }
            self.state = State::Skip { left: 0 };
            return Step::Frame(Frame::AppendEnd { well_formed: false });
        };
        let line = &self.buffer[..=line_feed];
        if line.ends_with(b"\r\n") && line[..line_feed - 1].iter().all(|&octet| octet == b' ') {
            self.buffer.advance(line_feed + 1);
            self.restart();
            return Step::Frame(Frame::AppendEnd { well_formed: true });
        }
        self.state = State::Skip { left: 0 };
        Step::Frame(Frame::AppendEnd { well_formed: false })
    }

    fn skip(&mut self, left: u64) -> Step {
        if left > 0 {
            if self.buffer.is_empty() {
                return Step::Wait;
            }
            let octets = left.min(self.buffer.len() as u64);
            self.buffer.advance(octets as usize);
            self.state = State::Skip { left: left - octets };
            return Step::Again;
        }
        self.skip_line(true)
    }

    /// Skips the rest of a refused line, and what it announces.
    fn skip_line(&mut self, can_announce: bool) -> Step {
        let Some(line_feed) = memchr::memchr(b'\n', &self.buffer) else {
            let spare = self.buffer.len().saturating_sub(ANNOUNCEMENT_BYTES_MAX);
            self.buffer.advance(spare);
            return Step::Wait;
        };
        let announced = match self.buffer[..line_feed].split_last() {
            Some((b'\r', line)) if can_announce => announcement(line),
            _ => None,
        };
        self.buffer.advance(line_feed + 1);
        self.after_refused(announced)
    }

    fn idle(&mut self) -> Step {
        let Some(line_feed) = memchr::memchr(b'\n', &self.buffer) else {
            if self.buffer.len() > IDLE_LINE_BYTES_MAX {
                return self.refuse_unended(Refusal::ExpectedDone);
            }
            return Step::Wait;
        };
        let line = &self.buffer[..line_feed];
        let line = line.strip_suffix(b"\r");
        if line == Some(b"") {
            self.buffer.advance(2);
            return Step::Again;
        }
        if line.is_some_and(|line| line.trim_ascii_end().eq_ignore_ascii_case(b"DONE")) {
            self.buffer.advance(line_feed + 1);
            self.restart();
            return Step::Frame(Frame::IdleDone);
        }
        let announced = line.and_then(announcement);
        self.refuse_ended(line_feed + 1, announced, Refusal::ExpectedDone)
    }

    fn sasl(&mut self) -> Step {
        let Some(line_feed) = memchr::memchr(b'\n', &self.buffer) else {
            if self.buffer.len() > self.limits.line_bytes_max + 1 {
                return self.refuse_unended(Refusal::LineTooLong);
            }
            return Step::Wait;
        };
        if line_feed > self.limits.line_bytes_max + 1 {
            return self.refuse_ended(line_feed + 1, None, Refusal::LineTooLong);
        }
        if line_feed == 0 || self.buffer[line_feed - 1] != b'\r' {
            return self.refuse_ended(line_feed + 1, None, Refusal::BareLineFeed);
        }
        let line = self.buffer.split_to(line_feed - 1).freeze();
        self.buffer.advance(2);
        self.restart();
        Step::Frame(Frame::Sasl(line))
    }

    /// Refuses what is in the buffer, which has no line end yet: says so at once and skips the rest silently.
    fn refuse_unended(&mut self, reason: Refusal) -> Step {
        let tag = self.refused_tag();
        let can_announce = self.state == State::Gather;
        // The lines before this one have ended: what they announced is here.
        self.buffer.advance(self.gathered.line_start);
        self.restart();
        self.state = if can_announce { State::Skip { left: 0 } } else { State::SkipLine };
        refused(tag, reason)
    }

    /// Refuses a command up to `end`, the octet after a line end. A non-synchronizing literal announced there is
    /// coming in any case: it is skipped, never parsed (CVE-2026-26312 and its like).
    fn refuse_ended(&mut self, end: usize, announced: Option<(usize, Literal)>, reason: Refusal) -> Step {
        let tag = self.refused_tag();
        self.buffer.advance(end);
        match self.after_refused(announced) {
            Step::Again => refused(tag, reason),
            hopeless => hopeless,
        }
    }

    /// In IDLE and SASL no line has a tag.
    fn refused_tag(&self) -> Option<String> {
        if self.state == State::Gather { tag_of(&self.buffer) } else { None }
    }

    fn after_refused(&mut self, announced: Option<(usize, Literal)>) -> Step {
        self.restart();
        match announced {
            Some((_, literal)) if !literal.synchronizing && literal.size > SKIP_BYTES_MAX => {
                self.state = State::Hopeless;
                return refused(None, Refusal::Hopeless);
            }
            Some((_, literal)) if !literal.synchronizing => self.state = State::Skip { left: literal.size },
            _ => {}
        }
        Step::Again
    }
}

/// What one look at the buffer came to.
enum Step {
    Frame(Frame),
    /// The state changed: look again.
    Again,
    /// More octets are needed.
    Wait,
}

fn refused(tag: Option<String>, reason: Refusal) -> Step {
    Step::Frame(Frame::Refused { tag, reason })
}

/// The tag that a line begins with.
fn tag_of(line: &[u8]) -> Option<String> {
    let end = line.iter().take(super::parse::TAG_BYTES_MAX + 1).position(|&octet| !super::parse::is_tag_char(octet))?;
    if end == 0 || line[end] != b' ' {
        return None;
    }
    Some(line[..end].iter().map(|&octet| char::from(octet)).collect())
}

/// The literal announced at the end of a line, and where its announcement begins.
pub(super) fn announcement(line: &[u8]) -> Option<(usize, Literal)> {
    let inside = line.strip_suffix(b"}")?;
    let (inside, synchronizing) = match inside.strip_suffix(b"+") {
        Some(inside) => (inside, false),
        None => (inside, true),
    };
    let digits = inside.iter().rev().take_while(|octet| octet.is_ascii_digit()).count();
    let (before, number) = inside.split_at(inside.len() - digits);
    let before = before.strip_suffix(b"{")?;
    if digits == 0 {
        return None;
    }
    let (before, binary) = match before.strip_suffix(b"~") {
        Some(before) => (before, true),
        None => (before, false),
    };
    let size = number.iter().fold(0u64, |size, digit| size.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some((before.len(), Literal { size, synchronizing, binary }))
}

/// Whether the literal announced at `at` is APPEND's message: any but the one that is its first argument, the mailbox.
fn announces_message(command: &[u8], at: usize) -> bool {
    let words = command.trim_ascii_start();
    let Some(tag_end) = memchr::memchr(b' ', words) else { return false };
    let verb = words[tag_end..].trim_ascii_start();
    let Some((verb, arguments)) = verb.split_at_checked(b"APPEND ".len()) else { return false };
    if !verb.eq_ignore_ascii_case(b"APPEND ") {
        return false;
    }
    command.len() - arguments.trim_ascii_start().len() != at
}

#[cfg(test)]
mod tests;
