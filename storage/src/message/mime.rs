//! The MIME pass: fed octets in any split, it gives the tree of entities with exact octet ranges.
//!
//! Total and bounded: whatever the input, it takes linear time and a memory of at most a header (1 MiB of it is looked
//! at) and the tree. Beyond 64 levels or 10,000 entities the rest is the body of what it is in. RFC 2046 §5.1 is
//! followed tolerantly: a missing close delimiter ends with the message or the enclosing entity, preamble and epilogue
//! are nobody's, a multipart without a boundary is a leaf.

use memchr::memchr;

use super::header::{header_fields, parameters, skip_cfws, token, unfold};
use super::text::{self, Encoding};
use super::{Envelope, Part, PartKind, envelope};

/// Levels of entities.
pub const DEPTH_MAX: usize = 64;
/// Entities of one message.
pub const PARTS_MAX: usize = 10_000;
/// Octets of one entity's header that are looked at.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Octets of a body line that may be a delimiter: two hyphens, the boundary, two more, blanks.
const DELIMITER_BYTES_MAX: usize = 1_024;
/// Encoded octets of the first text that the preview is made from.
const PREVIEW_BYTES_MAX: usize = 4_096;
/// Octets of all headers together that are looked at.
const HEADERS_BYTES_MAX: usize = 4 << 20;

/// What the pass found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Octets in all.
    pub size: u64,
    /// The root entity.
    pub structure: Part,
    /// Up to 256 characters for lists.
    pub preview: String,
}

/// The running pass.
#[derive(Debug)]
pub struct MimePass {
    /// Where the next octet will be.
    offset: u64,
    /// Line ends (LF) so far.
    newlines: u32,
    /// The line that is not whole yet, as far as it may matter.
    carry: Vec<u8>,
    /// Where that line began.
    line_start: u64,
    /// Octets of the last line end before this line: 0, 1 or 2.
    last_eol: u8,
    /// The last octet fed was CR.
    after_cr: bool,
    /// Open entities, the root first.
    stack: Vec<Frame>,
    /// The header of the innermost entity, while in it.
    header: Vec<u8>,
    headers_bytes: usize,
    parts: usize,
    preview: Preview,
}

#[derive(Debug, Default)]
struct Preview {
    octets: Vec<u8>,
    wanted: bool,
    done: bool,
    html: bool,
    charset: Vec<u8>,
    encoding: Vec<u8>,
}

#[derive(Debug)]
struct Frame {
    part: Part,
    state: State,
    /// Line ends before the body.
    newlines_before: u32,
    /// Children of a multipart, done.
    children: Vec<Part>,
    /// The envelope of the embedded message this entity is the root of.
    envelope: Option<Envelope>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Header,
    Leaf,
    /// Between boundaries; `open` until the close delimiter.
    Multipart {
        boundary: Vec<u8>,
        open: bool,
        digest: bool,
    },
    /// Holds the entity above it on the stack.
    Message,
}

fn blank_part(at: u64) -> Part {
    Part {
        header: at..at,
        body: at..at,
        lines: 0,
        media_type: b"text".to_vec(),
        media_subtype: b"plain".to_vec(),
        params: Vec::new(),
        id: None,
        description: None,
        encoding: b"7bit".to_vec(),
        md5: None,
        disposition: None,
        language: Vec::new(),
        location: None,
        kind: PartKind::Leaf,
    }
}

impl Default for MimePass {
    fn default() -> Self {
        let mut pass = Self {
            offset: 0,
            newlines: 0,
            carry: Vec::new(),
            line_start: 0,
            last_eol: 0,
            after_cr: false,
            stack: Vec::new(),
            header: Vec::new(),
            headers_bytes: 0,
            parts: 0,
            preview: Preview::default(),
        };
        pass.open(0);
        pass
    }
}

impl MimePass {
    /// The next octets.
    pub fn feed(&mut self, mut octets: &[u8]) {
        while let Some(at) = memchr(b'\n', octets) {
            let (piece, rest) = octets.split_at(at + 1);
            octets = rest;
            let crlf = match at.checked_sub(1) {
                Some(before) => piece[before] == b'\r',
                None => self.after_cr,
            };
            self.offset += piece.len() as u64;
            self.newlines += 1;
            self.after_cr = false;
            if self.carry.is_empty() {
                self.line(piece);
            } else {
                self.keep(piece);
                let line = std::mem::take(&mut self.carry);
                self.line(&line);
                // The buffer is used again.
                self.carry = line;
                self.carry.clear();
            }
            self.last_eol = if crlf { 2 } else { 1 };
            self.line_start = self.offset;
        }
        if let Some(&last) = octets.last() {
            self.offset += octets.len() as u64;
            self.after_cr = last == b'\r';
            self.keep(octets);
        }
    }

    /// The end of the message.
    pub fn finish(mut self) -> Parsed {
        if !self.carry.is_empty() {
            let line = std::mem::take(&mut self.carry);
            self.line(&line);
        }
        if self.stack.last().is_some_and(|frame| frame.state == State::Header) {
            self.end_header(self.offset);
        }
        let (end, newlines) = (self.offset, self.newlines);
        self.close_above(0, end, newlines);
        let root = self.stack.pop().map(|frame| closed(frame, end, newlines));
        let structure = root.unwrap_or_else(|| blank_part(0));
        Parsed { size: end, structure, preview: self.preview.text() }
    }

    /// Keeps of an unfinished line what may matter.
    fn keep(&mut self, octets: &[u8]) {
        let max = match self.stack.last() {
            Some(frame) if frame.state == State::Header => HEADER_BYTES_MAX,
            _ if self.preview.wanted => PREVIEW_BYTES_MAX,
            _ => DELIMITER_BYTES_MAX,
        };
        let room = max.saturating_sub(self.carry.len());
        self.carry.extend_from_slice(&octets[..octets.len().min(room)]);
    }

    fn open(&mut self, at: u64) {
        self.parts += 1;
        self.header.clear();
        self.stack.push(Frame {
            part: blank_part(at),
            state: State::Header,
            newlines_before: self.newlines,
            children: Vec::new(),
            envelope: None,
        });
    }

    /// One line with its end (or, for the last, without).
    fn line(&mut self, line: &[u8]) {
        if line.starts_with(b"--") && self.delimiter(line) {
            return;
        }
        let in_header = self.stack.last().is_some_and(|frame| frame.state == State::Header);
        if in_header {
            if line == b"\r\n" || line == b"\n" {
                self.end_header(self.offset);
            } else {
                let room = HEADER_BYTES_MAX.min(HEADERS_BYTES_MAX.saturating_sub(self.headers_bytes));
                let room = room.saturating_sub(self.header.len());
                self.header.extend_from_slice(&line[..line.len().min(room)]);
            }
        } else if self.preview.wanted {
            self.preview.line(line);
        }
    }

    /// If the line is the delimiter of an open multipart, closes what it ends, and opens what it begins.
    fn delimiter(&mut self, line: &[u8]) -> bool {
        let text = line.trim_ascii_end();
        let found = self.stack.iter().enumerate().rev().find_map(|(index, frame)| match &frame.state {
            State::Multipart { boundary, open: true, digest } => {
                let rest = text.strip_prefix(b"--")?.strip_prefix(boundary.as_slice())?;
                match rest {
                    b"" => Some((index, false, *digest)),
                    b"--" => Some((index, true, *digest)),
                    _ => None,
                }
            }
            _ => None,
        });
        let Some((index, close, digest)) = found else { return false };
        if !close && self.parts >= PARTS_MAX {
            return false;
        }
        if self.stack.len() > index + 1 {
            if self.stack.last().is_some_and(|frame| frame.state == State::Header) {
                self.end_header(self.line_start);
            }
            self.preview.end();
            // RFC 2046 §5.1.1: the line end before the delimiter belongs to the delimiter, unless it ended a header.
            let innermost = self.stack.last().map_or(0, |frame| frame.part.body.start);
            let newlines = self.newlines - u32::from(line.ends_with(b"\n"));
            let end = self.line_start - u64::from(self.last_eol);
            if end >= innermost {
                self.close_above(index, end, newlines - u32::from(self.last_eol > 0));
            } else {
                self.close_above(index, self.line_start, newlines);
            }
        }
        if close {
            if let Some(State::Multipart { open, .. }) = self.stack.get_mut(index).map(|frame| &mut frame.state) {
                *open = false;
            }
        } else {
            self.open(self.offset);
            if digest && let Some(frame) = self.stack.last_mut() {
                // RFC 2046 §5.1.5.
                frame.part.media_type = b"message".to_vec();
                frame.part.media_subtype = b"rfc822".to_vec();
            }
        }
        true
    }

    /// The innermost entity's header ends; its body begins at `at`.
    fn end_header(&mut self, at: u64) {
        self.headers_bytes += self.header.len();
        let depth = self.stack.len();
        let header = std::mem::take(&mut self.header);
        let Some(frame) = self.stack.last_mut() else { return };
        frame.part.header.end = at;
        frame.part.body = at..at;
        frame.newlines_before = self.newlines;
        describe(&mut frame.part, &header);
        if frame.envelope.is_some() {
            frame.envelope = Some(envelope(&header));
        }
        let part = &frame.part;
        let room = depth < DEPTH_MAX && self.parts < PARTS_MAX;
        let identity = matches!(part.encoding.as_slice(), b"7bit" | b"8bit" | b"binary");
        let boundary = part.params.iter().find(|(name, value)| name == b"boundary" && !value.is_empty());
        let boundary =
            boundary.map(|(_, value)| value.trim_ascii_end().to_vec()).filter(|b| b.len() < DELIMITER_BYTES_MAX - 16);
        frame.state = State::Leaf;
        if part.media_type == b"multipart" {
            if let Some(boundary) = boundary.filter(|_| room) {
                frame.state = State::Multipart { boundary, open: true, digest: part.media_subtype == b"digest" };
            }
        } else if part.media_type == b"message"
            && matches!(part.media_subtype.as_slice(), b"rfc822" | b"global")
            && identity
            && room
        {
            frame.state = State::Message;
            self.open(at);
            if let Some(frame) = self.stack.last_mut() {
                frame.envelope = Some(Envelope::default());
            }
            // Both buffers are done with; the embedded header needs one.
            return;
        } else if part.media_type == b"text" {
            self.preview.begin(part);
        }
        self.header = header;
        self.header.clear();
        if self.header.capacity() > 1 << 16 {
            self.header = Vec::new();
        }
    }

    /// Closes every entity above `index` at the same place.
    fn close_above(&mut self, index: usize, end: u64, newlines: u32) {
        while self.stack.len() > index + 1 {
            let Some(frame) = self.stack.pop() else { return };
            let envelope = frame.envelope.clone();
            let part = closed(frame, end, newlines);
            let Some(holder) = self.stack.last_mut() else { return };
            if let Some(envelope) = envelope {
                holder.part.kind = PartKind::Message { envelope: Box::new(envelope), root: Box::new(part) };
            } else {
                holder.children.push(part);
            }
        }
    }
}

/// The entity, its body ended.
fn closed(frame: Frame, end: u64, newlines: u32) -> Part {
    let mut part = frame.part;
    part.body.end = end;
    part.lines = newlines.saturating_sub(frame.newlines_before);
    if matches!(frame.state, State::Multipart { .. }) {
        part.kind = PartKind::Multipart(frame.children);
    }
    part
}

/// Reads the MIME fields of an entity's header.
fn describe(part: &mut Part, header: &[u8]) {
    let mut typed = false;
    for field in header_fields(header) {
        if field.name.len() < 7 || !field.name[..7].eq_ignore_ascii_case(b"content") && field.name.len() < 8 {
            continue;
        }
        let some = || Some(unfold(field.value)).filter(|value| !value.is_empty());
        if field.is("Content-Type") && !typed {
            let (media_type, rest) = token(skip_cfws(field.value), b"/;");
            let rest = skip_cfws(rest);
            if let Some(rest) = rest.strip_prefix(b"/")
                && !media_type.is_empty()
            {
                let (subtype, rest) = token(skip_cfws(rest), b";");
                if !subtype.is_empty() {
                    typed = true;
                    part.media_type = media_type.to_ascii_lowercase();
                    part.media_subtype = subtype.to_ascii_lowercase();
                    part.params = parameters(rest);
                }
            }
        } else if field.is("Content-Transfer-Encoding") {
            let (encoding, _) = token(skip_cfws(field.value), b";");
            if !encoding.is_empty() {
                part.encoding = encoding.to_ascii_lowercase();
            }
        } else if field.is("Content-ID") {
            part.id = some();
        } else if field.is("Content-Description") {
            part.description = some();
        } else if field.is("Content-MD5") {
            part.md5 = some();
        } else if field.is("Content-Location") {
            part.location = some();
        } else if field.is("Content-Disposition") {
            let (kind, rest) = token(skip_cfws(field.value), b";");
            if !kind.is_empty() {
                part.disposition = Some((kind.to_ascii_lowercase(), parameters(rest)));
            }
        } else if field.is("Content-Language") {
            let tags = field.value.split(|byte| *byte == b',').map(unfold).filter(|tag| !tag.is_empty());
            part.language = tags.take(64).collect();
        }
    }
    if !typed && part.media_type == b"text" {
        // RFC 2045 §5.2.
        part.params = vec![(b"charset".to_vec(), b"us-ascii".to_vec())];
    }
}

impl Preview {
    fn begin(&mut self, part: &Part) {
        let html = part.media_subtype == b"html";
        // The first text counts; a plain one after an HTML one is better.
        if self.wanted || self.done && !(self.html && part.media_subtype == b"plain") {
            return;
        }
        *self = Self {
            octets: Vec::new(),
            wanted: true,
            done: false,
            html,
            charset: text::charset(part),
            encoding: part.encoding.clone(),
        };
    }

    fn line(&mut self, line: &[u8]) {
        let room = PREVIEW_BYTES_MAX.saturating_sub(self.octets.len());
        self.octets.extend_from_slice(&line[..line.len().min(room)]);
        if room <= line.len() {
            self.end();
        }
    }

    fn end(&mut self) {
        self.done |= self.wanted;
        self.wanted = false;
    }

    fn text(&self) -> String {
        let decoded = text::decode(Encoding::of(&self.encoding), &self.charset, &self.octets);
        let text = if self.html { mail_parser::decoders::html::html_to_text(&decoded) } else { decoded };
        text::collapse(&text, 256)
    }
}
