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
/// Octets of the buffer for unfinished lines that are kept from line to line.
const CARRY_BYTES_KEPT: usize = 16 << 10;
/// Octets of all headers together that are looked at.
const HEADERS_BYTES_MAX: usize = 4 << 20;

/// Languages kept of one entity.
const LANGUAGES_MAX: usize = 64;

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
    /// Octets of the last line end before this line: 0, 1 or 2; 0 also if that line was a delimiter.
    last_eol: u8,
    /// 1 if the line at hand has an end, and so is counted in `newlines`; 0 for the last of a message that has none.
    line_end: u32,
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
            line_end: 0,
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
            self.newlines = self.newlines.saturating_add(1);
            self.line_end = 1;
            self.after_cr = false;
            self.last_eol = if self.whole_line(piece) {
                // A delimiter's own line end is no part of what stands between it and another delimiter.
                0
            } else if crlf {
                2
            } else {
                1
            };
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
            self.line_end = 0;
            self.whole_line(&[]);
        }
        self.end_headers(self.offset);
        let (end, newlines) = (self.offset, self.newlines);
        self.close_above(0, end, newlines);
        let root = self.stack.pop().map(|frame| closed(frame, end, newlines));
        let structure = root.unwrap_or_else(|| blank_part(0));
        Parsed { size: end, structure, preview: self.preview.text() }
    }

    /// The line that ends with `piece`. True if it was a delimiter.
    fn whole_line(&mut self, piece: &[u8]) -> bool {
        if self.carry.is_empty() {
            return self.line(piece);
        }
        self.keep(piece);
        let line = std::mem::take(&mut self.carry);
        let delimiter = self.line(&line);
        // The buffer is used again.
        self.carry = line;
        self.carry.clear();
        self.carry.shrink_to(CARRY_BYTES_KEPT);
        delimiter
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

    /// One line with its end (or, for the last, without; or only the beginning of a very long one). True if it was a
    /// delimiter.
    fn line(&mut self, line: &[u8]) -> bool {
        if line.starts_with(b"--") && self.delimiter(line) {
            return true;
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
        false
    }

    /// If the line is the delimiter of an open multipart, closes what it ends, and opens what it begins.
    fn delimiter(&mut self, line: &[u8]) -> bool {
        // RFC 2046 §5.1.1: it is enough that the line begins with the boundary. So the longest that fits is meant, of
        // equal ones the innermost.
        let mut found: Option<(usize, usize)> = None;
        for (index, frame) in self.stack.iter().enumerate() {
            if let State::Multipart { boundary, open: true, .. } = &frame.state
                && line[2..].starts_with(boundary)
                && found.is_none_or(|(_, longest)| longest <= boundary.len())
            {
                found = Some((index, boundary.len()));
            }
        }
        let Some((index, length)) = found else { return false };
        let close = line[2 + length..].starts_with(b"--");
        if !close && self.parts >= PARTS_MAX {
            return false;
        }
        if self.stack.len() > index + 1 {
            // RFC 2046 §5.1.1: the line end before the delimiter belongs to the delimiter.
            let end = self.line_start - u64::from(self.last_eol);
            let newlines = self.newlines - self.line_end - u32::from(self.last_eol > 0);
            let in_header = self.stack.last().is_some_and(|frame| frame.state == State::Header);
            // An embedded message that begins here is not the innermost, but empty.
            let innermost = self.stack.iter().rposition(|frame| frame.part.header.start <= end);
            self.end_headers(end);
            self.preview.end();
            let body = self.stack.last().map_or(0, |frame| frame.part.body.start);
            if self.last_eol > 0 && (in_header || end < body) {
                // It is cut from the innermost entity's header, and stays in what holds that entity: as in Dovecot.
                self.close_above(innermost.unwrap_or_default().saturating_sub(1).max(index), end, newlines);
                self.close_above(index, self.line_start, newlines + 1);
            } else {
                self.close_above(index, end, newlines);
            }
        }
        let Some(Frame { state: State::Multipart { open, digest, .. }, .. }) = self.stack.get_mut(index) else {
            return false;
        };
        if close {
            *open = false;
        } else {
            let digest = *digest;
            self.open(self.offset);
            if digest && let Some(frame) = self.stack.last_mut() {
                // RFC 2046 §5.1.5.
                frame.part.media_type = b"message".to_vec();
                frame.part.media_subtype = b"rfc822".to_vec();
            }
        }
        true
    }

    /// The message or a delimiter ends the innermost entity in its header, if it is there.
    fn end_headers(&mut self, at: u64) {
        // At most twice: an embedded message may begin and end here.
        while self.stack.last().is_some_and(|frame| frame.state == State::Header) {
            self.end_header(at);
        }
    }

    /// The innermost entity's header ends; its body begins at `at`.
    fn end_header(&mut self, at: u64) {
        self.headers_bytes += self.header.len();
        let depth = self.stack.len();
        let header = std::mem::take(&mut self.header);
        let Some(frame) = self.stack.last_mut() else { return };
        let at = at.max(frame.part.header.start);
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
            let Some(mut frame) = self.stack.pop() else { return };
            let envelope = frame.envelope.take();
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
    // The line end that ended the header may belong to the delimiter.
    part.header = part.header.start.min(end)..part.header.end.min(end);
    part.body = part.body.start.min(end)..end;
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
        if !field.name.get(..8).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"content-")) {
            continue;
        }
        let some = || Some(unfold(field.value));
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
            let (encoding, rest) = token(skip_cfws(field.value), b";");
            if !encoding.is_empty() && !encoding.contains(&b'"') && skip_cfws(rest).is_empty() {
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
            let params = parameters(rest);
            if !kind.is_empty() || !params.is_empty() {
                part.disposition = Some((kind.to_ascii_lowercase(), params));
            }
        } else if field.is("Content-Language") {
            let tags = field.value.split(|byte| *byte == b',').map(|tag| token(skip_cfws(tag), b";").0);
            part.language = tags.filter(|tag| !tag.is_empty()).take(LANGUAGES_MAX).map(<[u8]>::to_vec).collect();
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
