//! Answers to FETCH (RFC 3501 §7.4.2), item by item.

use std::sync::Arc;

use posthouse_storage::account::Flags;
use posthouse_storage::message::{Envelope, Part};

use super::super::command::{FetchItem, Section, SectionText};
use super::super::{bodystructure, date, envelope};
use super::{astring, flag_list, literal, number};

/// One `* n FETCH (...)` being written: items in the order of the calls, [`Fetch::end`] closes it.
#[derive(Debug)]
#[must_use = "unfinished until end() is called"]
pub struct Fetch<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Fetch<'a> {
    /// Opens the answer for the message with this sequence number.
    pub fn begin(out: &'a mut Vec<u8>, sequence: u32) -> Self {
        out.extend_from_slice(b"* ");
        number(out, u64::from(sequence));
        out.extend_from_slice(b" FETCH (");
        Self { out, first: true }
    }

    /// Goes on with an answer that has items already, in output that may have been sent.
    pub fn resume(out: &'a mut Vec<u8>) -> Self {
        Self { out, first: false }
    }

    /// Whether nothing was added yet: an answer without items is not valid, and should not be begun.
    pub fn is_empty(&self) -> bool {
        self.first
    }

    fn item(&mut self, name: &[u8]) {
        if !self.first {
            self.out.push(b' ');
        }
        self.first = false;
        self.out.extend_from_slice(name);
    }

    /// UID.
    pub fn uid(&mut self, uid: u32) {
        self.item(b"UID ");
        number(self.out, u64::from(uid));
    }

    /// FLAGS; `keywords` in order of their bits, `recent` adds \Recent.
    pub fn flags(&mut self, flags: Flags, keywords: &[Arc<str>], recent: bool) {
        self.item(b"FLAGS ");
        flag_list(self.out, flags, keywords, recent);
    }

    /// FLAGS with a list that `list` writes, parentheses included (one that was kept, most likely).
    pub fn flags_with(&mut self, list: impl FnOnce(&mut Vec<u8>)) {
        self.item(b"FLAGS ");
        list(self.out);
    }

    /// INTERNALDATE, in UTC.
    pub fn internal_date(&mut self, received_at_ms: i64) {
        self.item(b"INTERNALDATE \"");
        date::write_date_time(self.out, received_at_ms);
        self.out.push(b'"');
    }

    /// RFC822.SIZE.
    pub fn size(&mut self, bytes: u64) {
        self.item(b"RFC822.SIZE ");
        number(self.out, bytes);
    }

    /// ENVELOPE.
    pub fn envelope(&mut self, envelope: &Envelope) {
        self.item(b"ENVELOPE ");
        envelope::write(self.out, envelope);
    }

    /// BODY without a section.
    pub fn body(&mut self, root: &Part) {
        self.item(b"BODY ");
        bodystructure::write(self.out, root, false);
    }

    /// BODYSTRUCTURE.
    pub fn body_structure(&mut self, root: &Part) {
        self.item(b"BODYSTRUCTURE ");
        bodystructure::write(self.out, root, true);
    }

    /// The name of an item that asks for octets as the answer spells it (`BODY[1.2]<0> `, `RFC822.HEADER `), and the
    /// announcement of a literal of `bytes` octets, which the caller appends to [`Fetch::out`] or sends in pieces.
    pub fn section_literal(&mut self, item: &FetchItem, bytes: u64) {
        self.section_name(item);
        literal(self.out, bytes);
    }

    /// The same with NIL for a value: there is no such part.
    pub fn section_nil(&mut self, item: &FetchItem) {
        self.section_name(item);
        self.out.extend_from_slice(b"NIL");
    }

    fn section_name(&mut self, item: &FetchItem) {
        match item {
            FetchItem::Rfc822 => self.item(b"RFC822 "),
            FetchItem::Rfc822Header => self.item(b"RFC822.HEADER "),
            FetchItem::Rfc822Text => self.item(b"RFC822.TEXT "),
            FetchItem::Section { section, partial, .. } => {
                self.item(b"BODY[");
                section_spec(self.out, section);
                self.out.push(b']');
                if let Some(partial) = partial {
                    self.out.push(b'<');
                    number(self.out, partial.offset);
                    self.out.push(b'>');
                }
                self.out.push(b' ');
            }
            // The other items have no octets; an answer to them is written by their own methods.
            _ => self.item(b"BODY[] "),
        }
    }

    /// The output, to append a literal's octets to.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Closes the answer.
    pub fn end(self) {
        self.out.extend_from_slice(b")\r\n");
    }
}

/// `1.2.HEADER.FIELDS (From To)`.
pub(super) fn section_spec(out: &mut Vec<u8>, section: &Section) {
    for (at, part) in section.part.iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        number(out, u64::from(part.get()));
    }
    if !section.part.is_empty() && section.text != SectionText::All {
        out.push(b'.');
    }
    let (name, fields): (&[u8], &[String]) = match &section.text {
        SectionText::All => return,
        SectionText::Header => (b"HEADER", &[]),
        SectionText::Text => (b"TEXT", &[]),
        SectionText::Mime => (b"MIME", &[]),
        SectionText::HeaderFields(fields) => (b"HEADER.FIELDS (", fields),
        SectionText::HeaderFieldsNot(fields) => (b"HEADER.FIELDS.NOT (", fields),
    };
    out.extend_from_slice(name);
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        astring(out, field.as_bytes());
    }
    if name.ends_with(b"(") {
        out.push(b')');
    }
}
