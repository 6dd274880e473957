//! Answers to octets, appended to the session's output buffer without anything in between.
//!
//! RFC 3501 §7. Whole lines end with CRLF; names of mailboxes are UTF-8 and are written in modified UTF-7 unless the
//! session enabled UTF-8.

use std::sync::Arc;

use posthouse_storage::account::{Flags, Uid};
use posthouse_storage::message::{Envelope, Part};

use super::command::StatusItem;

/// Condition of a status response (§7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Status {
    Ok,
    No,
    Bad,
    Bye,
    PreAuth,
}

/// A response code (§7.1, RFC 5530, RFC 4315).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code<'a> {
    /// CAPABILITY with its words.
    Capability(&'a [&'a str]),
    /// PERMANENTFLAGS with the keywords, and `\*` if new ones can be made.
    PermanentFlags {
        /// The mailbox's keywords.
        keywords: &'a [Arc<str>],
        /// Whether new ones can be made.
        more: bool,
    },
    /// PERMANENTFLAGS (): EXAMINE.
    NoPermanentFlags,
    /// UIDNEXT.
    UidNext(u32),
    /// UIDVALIDITY.
    UidValidity(u32),
    /// UNSEEN: sequence number of the first.
    Unseen(u32),
    /// APPENDUID (RFC 4315).
    AppendUid {
        /// The mailbox's uidvalidity.
        uid_validity: u32,
        /// The uid given.
        uid: u32,
    },
    /// COPYUID (RFC 4315): `(old, new)` rising by old uid; not empty.
    CopyUid {
        /// The target's uidvalidity.
        uid_validity: u32,
        /// Old and new.
        pairs: &'a [(Uid, Uid)],
    },
    /// BADCHARSET with those there are.
    BadCharset,
    /// Any code that is only a word: READ-ONLY, TRYCREATE, ALERT, NONEXISTENT, OVERQUOTA...
    Word(&'a str),
}

/// `tag OK [code] text`.
pub fn tagged(out: &mut Vec<u8>, tag: &str, status: Status, code: Option<Code<'_>>, text: &str) {
    let _ = (out, tag, status, code, text);
    todo!()
}

/// `* OK [code] text`; the greeting and BYE as well.
pub fn untagged(out: &mut Vec<u8>, status: Status, code: Option<Code<'_>>, text: &str) {
    let _ = (out, status, code, text);
    todo!()
}

/// `+ text`.
pub fn continuation(out: &mut Vec<u8>, text: &str) {
    let _ = (out, text);
    todo!()
}

/// `* CAPABILITY ...`.
pub fn capability(out: &mut Vec<u8>, words: &[&str]) {
    let _ = (out, words);
    todo!()
}

/// `* ENABLED ...`, with no words as well.
pub fn enabled(out: &mut Vec<u8>, words: &[&str]) {
    let _ = (out, words);
    todo!()
}

/// `* ID (...)`.
pub fn id(out: &mut Vec<u8>, fields: &[(&str, &str)]) {
    let _ = (out, fields);
    todo!()
}

/// `* NAMESPACE (("" "/")) NIL NIL`.
pub fn namespace(out: &mut Vec<u8>, delimiter: char) {
    let _ = (out, delimiter);
    todo!()
}

/// `* n EXISTS`.
pub fn exists(out: &mut Vec<u8>, count: u32) {
    let _ = (out, count);
    todo!()
}

/// `* n RECENT`.
pub fn recent(out: &mut Vec<u8>, count: u32) {
    let _ = (out, count);
    todo!()
}

/// `* n EXPUNGE`.
pub fn expunge(out: &mut Vec<u8>, sequence: u32) {
    let _ = (out, sequence);
    todo!()
}

/// `* FLAGS (...)`: the system flags and the mailbox's keywords.
pub fn flags(out: &mut Vec<u8>, keywords: &[Arc<str>]) {
    let _ = (out, keywords);
    todo!()
}

/// `* LIST (attributes) "/" name`; `verb` is LIST or LSUB, attributes come with their backslash, `delimiter` is `None`
/// for NIL.
pub fn list(out: &mut Vec<u8>, verb: &str, attributes: &[&str], delimiter: Option<char>, name: &str, utf8: bool) {
    let _ = (out, verb, attributes, delimiter, name, utf8);
    todo!()
}

/// `* STATUS name (item n ...)`.
pub fn status(out: &mut Vec<u8>, name: &str, items: &[(StatusItem, u64)], utf8: bool) {
    let _ = (out, name, items, utf8);
    todo!()
}

/// `* SEARCH n n n`.
pub fn search(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    let _ = out;
    numbers.into_iter().for_each(drop);
    todo!()
}

/// One `* n FETCH (...)` being written: items in the order of the calls, [`Fetch::end`] closes it.
#[derive(Debug)]
#[must_use = "unfinished until end() is called"]
pub struct Fetch<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Fetch<'a> {
    /// Opens the answer for the message with this sequence number.
    pub fn begin(out: &'a mut Vec<u8>, sequence: u32) -> Self {
        let _ = sequence;
        Self { out }
    }

    /// UID.
    pub fn uid(&mut self, uid: u32) {
        let _ = uid;
        todo!()
    }

    /// FLAGS; `keywords` in order of their bits, `recent` adds \Recent.
    pub fn flags(&mut self, flags: Flags, keywords: &[Arc<str>], recent: bool) {
        let _ = (flags, keywords, recent);
        todo!()
    }

    /// INTERNALDATE, in UTC.
    pub fn internal_date(&mut self, received_at_ms: i64) {
        let _ = received_at_ms;
        todo!()
    }

    /// RFC822.SIZE.
    pub fn size(&mut self, bytes: u64) {
        let _ = bytes;
        todo!()
    }

    /// ENVELOPE.
    pub fn envelope(&mut self, envelope: &Envelope) {
        let _ = envelope;
        todo!()
    }

    /// BODY without a section.
    pub fn body(&mut self, root: &Part) {
        let _ = root;
        todo!()
    }

    /// BODYSTRUCTURE.
    pub fn body_structure(&mut self, root: &Part) {
        let _ = root;
        todo!()
    }

    /// The name of a section item as the answer spells it (`BODY[1.2]<0> `, `RFC822.HEADER `), for an item that is
    /// [`super::command::FetchItem::Section`] or one of the RFC822 ones, and then the announcement of a literal of
    /// `bytes` octets, which the caller appends to [`Fetch::out`] or sends in pieces.
    pub fn section_literal(&mut self, item: &super::command::FetchItem, bytes: u64) {
        let _ = (item, bytes);
        todo!()
    }

    /// The same with NIL for a value.
    pub fn section_nil(&mut self, item: &super::command::FetchItem) {
        let _ = item;
        todo!()
    }

    /// The output, to append a literal's octets to.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Goes on with an answer that was begun in another (already sent) part of the output.
    pub fn resume(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Closes the answer.
    pub fn end(self) {
        self.out.extend_from_slice(b")\r\n");
    }
}
