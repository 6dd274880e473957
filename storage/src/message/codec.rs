//! The bytes of structures and rows. Reading them is total: any octets give a value or an error.

use bytes::Bytes;

use super::mime::{DEPTH_MAX, PARTS_MAX};
use super::{Address, Envelope, MessageRow, Part, PartKind, ThreadId};

const VERSION: u8 = 1;

fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_octets(out: &mut Vec<u8>, octets: &[u8]) {
    put(out, octets.len() as u64);
    out.extend_from_slice(octets);
}

/// `None` and empty differ.
fn put_option(out: &mut Vec<u8>, octets: Option<&[u8]>) {
    match octets {
        None => put(out, 0),
        Some(octets) => {
            put(out, octets.len() as u64 + 1);
            out.extend_from_slice(octets);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    parts: usize,
}

type Read<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn number(&mut self) -> Read<u64> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or("ends early")?;
            self.rest = rest;
            n |= u64::from(byte & 127).checked_shl(shift).ok_or("number too large")?;
            if byte < 128 {
                return Ok(n);
            }
        }
        Err("number too large")
    }

    fn take(&mut self, n: u64) -> Read<&[u8]> {
        let n = usize::try_from(n).map_err(|_| "ends early")?;
        let (head, rest) = self.rest.split_at_checked(n).ok_or("ends early")?;
        self.rest = rest;
        Ok(head)
    }

    fn octets(&mut self) -> Read<Vec<u8>> {
        let n = self.number()?;
        Ok(self.take(n)?.to_vec())
    }

    fn option(&mut self) -> Read<Option<Vec<u8>>> {
        match self.number()? {
            0 => Ok(None),
            n => Ok(Some(self.take(n - 1)?.to_vec())),
        }
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let n = self.number()?;
        // Every element takes at least one byte, so that a false count cannot ask for memory.
        if n > self.rest.len() as u64 {
            return Err("ends early");
        }
        (0..n).map(|_| one(self)).collect()
    }

    fn params(&mut self) -> Read<Vec<(Vec<u8>, Vec<u8>)>> {
        self.list(|reader| Ok((reader.octets()?, reader.octets()?)))
    }

    fn addresses(&mut self) -> Read<Vec<Address>> {
        self.list(|reader| {
            Ok(Address {
                name: reader.option()?,
                route: reader.option()?,
                mailbox: reader.option()?,
                host: reader.option()?,
            })
        })
    }

    fn envelope(&mut self) -> Read<Envelope> {
        Ok(Envelope {
            date: self.option()?,
            subject: self.option()?,
            from: self.addresses()?,
            sender: self.addresses()?,
            reply_to: self.addresses()?,
            to: self.addresses()?,
            cc: self.addresses()?,
            bcc: self.addresses()?,
            in_reply_to: self.option()?,
            message_id: self.option()?,
        })
    }

    fn range(&mut self) -> Read<std::ops::Range<u64>> {
        let start = self.number()?;
        let length = self.number()?;
        Ok(start..start.checked_add(length).ok_or("range too large")?)
    }

    fn part(&mut self, depth: usize) -> Read<Part> {
        self.parts += 1;
        if depth > DEPTH_MAX || self.parts > PARTS_MAX {
            return Err("too many parts");
        }
        let header = self.range()?;
        let body = self.range()?;
        let lines = u32::try_from(self.number()?).map_err(|_| "too many lines")?;
        let media_type = self.octets()?;
        let media_subtype = self.octets()?;
        let params = self.params()?;
        let id = self.option()?;
        let description = self.option()?;
        let encoding = self.octets()?;
        let md5 = self.option()?;
        let disposition = match self.option()? {
            None => None,
            Some(kind) => Some((kind, self.params()?)),
        };
        let language = self.list(Self::octets)?;
        let location = self.option()?;
        let kind = match self.number()? {
            0 => PartKind::Leaf,
            1 => PartKind::Multipart(self.list(|reader| reader.part(depth + 1))?),
            2 => PartKind::Message { envelope: Box::new(self.envelope()?), root: Box::new(self.part(depth + 1)?) },
            _ => return Err("no such kind of part"),
        };
        Ok(Part {
            header,
            body,
            lines,
            media_type,
            media_subtype,
            params,
            id,
            description,
            encoding,
            md5,
            disposition,
            language,
            location,
            kind,
        })
    }
}

fn put_params(out: &mut Vec<u8>, params: &[(Vec<u8>, Vec<u8>)]) {
    put(out, params.len() as u64);
    for (name, value) in params {
        put_octets(out, name);
        put_octets(out, value);
    }
}

fn put_envelope(out: &mut Vec<u8>, envelope: &Envelope) {
    put_option(out, envelope.date.as_deref());
    put_option(out, envelope.subject.as_deref());
    for list in [&envelope.from, &envelope.sender, &envelope.reply_to, &envelope.to, &envelope.cc, &envelope.bcc] {
        put(out, list.len() as u64);
        for address in list {
            for text in [&address.name, &address.route, &address.mailbox, &address.host] {
                put_option(out, text.as_deref());
            }
        }
    }
    put_option(out, envelope.in_reply_to.as_deref());
    put_option(out, envelope.message_id.as_deref());
}

impl Part {
    /// Appends its compact encoding.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        for range in [&self.header, &self.body] {
            put(out, range.start);
            put(out, range.end - range.start);
        }
        put(out, u64::from(self.lines));
        put_octets(out, &self.media_type);
        put_octets(out, &self.media_subtype);
        put_params(out, &self.params);
        put_option(out, self.id.as_deref());
        put_option(out, self.description.as_deref());
        put_octets(out, &self.encoding);
        put_option(out, self.md5.as_deref());
        put_option(out, self.disposition.as_ref().map(|(kind, _)| kind.as_slice()));
        if let Some((_, params)) = &self.disposition {
            put_params(out, params);
        }
        put(out, self.language.len() as u64);
        for tag in &self.language {
            put_octets(out, tag);
        }
        put_option(out, self.location.as_deref());
        match &self.kind {
            PartKind::Leaf => put(out, 0),
            PartKind::Multipart(children) => {
                put(out, 1);
                put(out, children.len() as u64);
                for child in children {
                    child.to_bytes(out);
                }
            }
            PartKind::Message { envelope, root } => {
                put(out, 2);
                put_envelope(out, envelope);
                root.to_bytes(out);
            }
        }
    }

    /// Reads what [`Part::to_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader { rest: bytes, parts: 0 };
        let part = reader.part(0)?;
        if reader.rest.is_empty() { Ok(part) } else { Err("goes on after its end") }
    }
}

impl MessageRow {
    /// The row's bytes: version, size, thread, preview, structure, then the header octets up to the end.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.header.len() + self.preview.len() + 256);
        out.push(VERSION);
        put(&mut out, self.size);
        put(&mut out, self.thread.0);
        put_octets(&mut out, self.preview.as_bytes());
        self.structure.to_bytes(&mut out);
        out.extend_from_slice(&self.header);
        out.into()
    }

    /// Reads a row; the header is a slice of `bytes`.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    pub fn decode(bytes: &Bytes) -> Result<Self, &'static str> {
        let Some((&VERSION, rest)) = bytes.split_first() else { return Err("not a row of a known version") };
        let mut reader = Reader { rest, parts: 0 };
        let size = reader.number()?;
        let thread = ThreadId(reader.number()?);
        let preview = String::from_utf8(reader.octets()?).map_err(|_| "a preview that is not UTF-8")?;
        let structure = reader.part(0)?;
        let header = bytes.slice_ref(reader.rest);
        if header.len() as u64 > structure.header.end {
            return Err("more header than there is");
        }
        Ok(Self { size, structure, preview, header, thread })
    }
}
