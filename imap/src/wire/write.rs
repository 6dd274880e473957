//! Answers to octets, appended to the session's output buffer without anything in between.
//!
//! RFC 3501 §7. Whole lines end with CRLF; names of mailboxes come in as UTF-8 and are written in modified UTF-7 unless
//! the session enabled UTF-8. Answers to FETCH are in [`fetch`].

mod fetch;

use std::sync::Arc;

use posthouse_storage::account::{Flags, Uid};

use super::command::StatusItem;
use super::mutf7;

pub use self::fetch::Fetch;

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
    /// PERMANENTFLAGS: the system flags, the mailbox's keywords, and `\*` if new ones can be made.
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
    out.extend_from_slice(tag.as_bytes());
    condition(out, status, code, text);
}

/// `* OK [code] text`; the greeting and BYE as well.
pub fn untagged(out: &mut Vec<u8>, status: Status, code: Option<Code<'_>>, text: &str) {
    out.push(b'*');
    condition(out, status, code, text);
}

fn condition(out: &mut Vec<u8>, status: Status, code: Option<Code<'_>>, text: &str) {
    out.extend_from_slice(match status {
        Status::Ok => b" OK ",
        Status::No => b" NO ",
        Status::Bad => b" BAD ",
        Status::Bye => b" BYE ",
        Status::PreAuth => b" PREAUTH ",
    });
    if let Some(code) = code {
        out.push(b'[');
        self::code(out, code);
        out.extend_from_slice(b"] ");
    }
    human(out, text);
    out.extend_from_slice(b"\r\n");
}

/// Text for people: one line of printable ASCII, not empty.
fn human(out: &mut Vec<u8>, text: &str) {
    if text.is_empty() {
        out.extend_from_slice(b"Done");
    }
    out.extend(text.chars().map(|character| if (' '..='~').contains(&character) { character as u8 } else { b'?' }));
}

fn code(out: &mut Vec<u8>, code: Code<'_>) {
    match code {
        Code::Capability(list) => {
            out.extend_from_slice(b"CAPABILITY");
            words(out, list);
        }
        Code::PermanentFlags { keywords, more } => {
            out.extend_from_slice(b"PERMANENTFLAGS (");
            known_flags(out, keywords);
            out.extend_from_slice(if more { b" \\*)" } else { b")" });
        }
        Code::NoPermanentFlags => out.extend_from_slice(b"PERMANENTFLAGS ()"),
        Code::UidNext(uid) => numbered(out, b"UIDNEXT ", uid),
        Code::UidValidity(uid_validity) => numbered(out, b"UIDVALIDITY ", uid_validity),
        Code::Unseen(sequence) => numbered(out, b"UNSEEN ", sequence),
        Code::AppendUid { uid_validity, uid } => {
            numbered(out, b"APPENDUID ", uid_validity);
            numbered(out, b" ", uid);
        }
        Code::CopyUid { uid_validity, pairs } => {
            numbered(out, b"COPYUID ", uid_validity);
            out.push(b' ');
            uid_runs(out, pairs.iter().map(|(old, _)| old.0.get()));
            out.push(b' ');
            uid_runs(out, pairs.iter().map(|(_, new)| new.0.get()));
        }
        Code::BadCharset => out.extend_from_slice(b"BADCHARSET (US-ASCII UTF-8)"),
        Code::Word(word) => out.extend_from_slice(word.as_bytes()),
    }
}

fn numbered(out: &mut Vec<u8>, name: &[u8], value: u32) {
    out.extend_from_slice(name);
    number(out, u64::from(value));
}

/// `1:3,7,9`, in the order given: RFC 4315 pairs the two sets of COPYUID by position.
pub fn uid_runs(out: &mut Vec<u8>, uids: impl IntoIterator<Item = u32>) {
    let mut run: Option<(u32, u32)> = None;
    let mut first = true;
    let mut write = |out: &mut Vec<u8>, (low, high): (u32, u32)| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        number(out, u64::from(low));
        if high > low {
            out.push(b':');
            number(out, u64::from(high));
        }
    };
    for uid in uids {
        match &mut run {
            Some((_, high)) if high.checked_add(1) == Some(uid) => *high = uid,
            _ => {
                if let Some(ended) = run.replace((uid, uid)) {
                    write(out, ended);
                }
            }
        }
    }
    if let Some(ended) = run {
        write(out, ended);
    }
}

/// `+ text`.
pub fn continuation(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"+ ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `* CAPABILITY ...`.
pub fn capability(out: &mut Vec<u8>, list: &[&str]) {
    out.extend_from_slice(b"* CAPABILITY");
    words(out, list);
    out.extend_from_slice(b"\r\n");
}

/// `* ENABLED ...`, with no words as well.
pub fn enabled(out: &mut Vec<u8>, list: &[&str]) {
    out.extend_from_slice(b"* ENABLED");
    words(out, list);
    out.extend_from_slice(b"\r\n");
}

fn words(out: &mut Vec<u8>, list: &[&str]) {
    for word in list {
        out.push(b' ');
        out.extend_from_slice(word.as_bytes());
    }
}

/// `* ID (...)`.
pub fn id(out: &mut Vec<u8>, fields: &[(&str, &str)]) {
    out.extend_from_slice(b"* ID (");
    for (at, (field, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        string(out, field.as_bytes());
        out.push(b' ');
        string(out, value.as_bytes());
    }
    out.extend_from_slice(b")\r\n");
}

/// `* NAMESPACE (("" "/")) NIL NIL`: everything is personal.
pub fn namespace(out: &mut Vec<u8>, delimiter: char) {
    out.extend_from_slice(b"* NAMESPACE ((\"\" ");
    self::delimiter(out, Some(delimiter));
    out.extend_from_slice(b")) NIL NIL\r\n");
}

/// `* n EXISTS`.
pub fn exists(out: &mut Vec<u8>, count: u32) {
    numbered(out, b"* ", count);
    out.extend_from_slice(b" EXISTS\r\n");
}

/// `* n RECENT`.
pub fn recent(out: &mut Vec<u8>, count: u32) {
    numbered(out, b"* ", count);
    out.extend_from_slice(b" RECENT\r\n");
}

/// `* n EXPUNGE`.
pub fn expunge(out: &mut Vec<u8>, sequence: u32) {
    numbered(out, b"* ", sequence);
    out.extend_from_slice(b" EXPUNGE\r\n");
}

/// `* FLAGS (...)`: the system flags and the mailbox's keywords.
pub fn flags(out: &mut Vec<u8>, keywords: &[Arc<str>]) {
    out.extend_from_slice(b"* FLAGS (");
    known_flags(out, keywords);
    out.extend_from_slice(b")\r\n");
}

fn known_flags(out: &mut Vec<u8>, keywords: &[Arc<str>]) {
    out.extend_from_slice(b"\\Answered \\Flagged \\Deleted \\Seen \\Draft");
    for keyword in keywords {
        out.push(b' ');
        out.extend_from_slice(keyword.as_bytes());
    }
}

/// `* LIST (attributes) "/" name`; `verb` is LIST or LSUB, attributes come with their backslash, `delimiter` is `None`
/// for NIL.
pub fn list(out: &mut Vec<u8>, verb: &str, attributes: &[&str], delimiter: Option<char>, name: &str, utf8: bool) {
    out.extend_from_slice(b"* ");
    out.extend_from_slice(verb.as_bytes());
    out.extend_from_slice(b" (");
    for (at, attribute) in attributes.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(attribute.as_bytes());
    }
    out.extend_from_slice(b") ");
    self::delimiter(out, delimiter);
    out.push(b' ');
    mailbox(out, name, utf8);
    out.extend_from_slice(b"\r\n");
}

fn delimiter(out: &mut Vec<u8>, delimiter: Option<char>) {
    match delimiter {
        Some(delimiter) => string(out, delimiter.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.extend_from_slice(b"NIL"),
    }
}

/// `* STATUS name (item n ...)`.
pub fn status(out: &mut Vec<u8>, name: &str, items: &[(StatusItem, u64)], utf8: bool) {
    out.extend_from_slice(b"* STATUS ");
    mailbox(out, name, utf8);
    out.extend_from_slice(b" (");
    for (at, &(item, value)) in items.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(match item {
            StatusItem::Messages => b"MESSAGES ",
            StatusItem::Recent => b"RECENT ",
            StatusItem::UidNext => b"UIDNEXT ",
            StatusItem::UidValidity => b"UIDVALIDITY ",
            StatusItem::Unseen => b"UNSEEN ",
            StatusItem::Deleted => b"DELETED ",
            StatusItem::Size => b"SIZE ",
        });
        number(out, value);
    }
    out.extend_from_slice(b")\r\n");
}

/// `* SEARCH n n n`: one line per command, also without a number.
pub fn search(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    out.extend_from_slice(b"* SEARCH");
    for value in numbers {
        numbered(out, b" ", value);
    }
    out.extend_from_slice(b"\r\n");
}

/// A number in decimal.
#[inline]
pub fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut value = 0;
    while value < 100 {
        pairs[value * 2] = b'0' + (value / 10) as u8;
        pairs[value * 2 + 1] = b'0' + (value % 10) as u8;
        value += 1;
    }
    pairs
};

/// NIL or a string.
pub fn nstring(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => string(out, value),
        None => out.extend_from_slice(b"NIL"),
    }
}

/// Quoted strings longer than this are literals (RFC 2683 §3.2.1.5 advises short lines).
const QUOTED_BYTES_MAX: usize = 1024;
/// And those with more escapes than this, as in Dovecot.
const ESCAPES_MAX: usize = 4;

/// A string: quoted if it can be, else a literal. 8-bit octets only go into literals, so that no client which did not
/// ask for UTF-8 sees them in a quoted string; NUL, which neither may have, becomes 0x80.
pub fn string(out: &mut Vec<u8>, value: &[u8]) {
    string_with(out, value, ESCAPES_MAX);
}

/// A string for ENVELOPE, or NIL: a literal rather than any escape, as in Dovecot.
pub(super) fn nstring_unescaped(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => string_with(out, value, 0),
        None => out.extend_from_slice(b"NIL"),
    }
}

fn string_with(out: &mut Vec<u8>, value: &[u8], escapes_max: usize) {
    let mut escapes = 0;
    let mut literal = value.len() > QUOTED_BYTES_MAX;
    for &octet in value {
        match octet {
            b'"' | b'\\' => escapes += 1,
            0 | b'\r' | b'\n' | 0x80.. => literal = true,
            _ => {}
        }
    }
    if literal || escapes > escapes_max {
        self::literal(out, value.len() as u64);
        let start = out.len();
        out.extend_from_slice(value);
        out[start..].iter_mut().filter(|octet| **octet == 0).for_each(|octet| *octet = 0x80);
        return;
    }
    quoted(out, value, escapes > 0);
}

fn quoted(out: &mut Vec<u8>, value: &[u8], escape: bool) {
    out.push(b'"');
    if escape {
        for &octet in value {
            if matches!(octet, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(octet);
        }
    } else {
        out.extend_from_slice(value);
    }
    out.push(b'"');
}

/// The announcement of a literal: `{n}` and the line's end.
pub fn literal(out: &mut Vec<u8>, bytes: u64) {
    out.push(b'{');
    number(out, bytes);
    out.extend_from_slice(b"}\r\n");
}

/// A mailbox name: an atom if it can be, else a string.
pub fn mailbox(out: &mut Vec<u8>, name: &str, utf8: bool) {
    if utf8 {
        let control = name.bytes().any(|octet| octet < 0x20 || octet == 0x7f);
        if name.is_ascii() || control {
            astring(out, name.as_bytes())
        } else {
            quoted(out, name.as_bytes(), true)
        }
        return;
    }
    let plain = |octet: u8| (0x20..0x7f).contains(&octet) && octet != b'&';
    if name.bytes().all(plain) {
        astring(out, name.as_bytes());
    } else {
        let mut encoded = Vec::with_capacity(name.len() * 2);
        mutf7::encode(name, &mut encoded);
        astring(out, &encoded);
    }
}

fn astring(out: &mut Vec<u8>, value: &[u8]) {
    let is_atom = |octet: &u8| (0x21..0x7f).contains(octet) && !b"(){%*\"\\".contains(octet);
    if !value.is_empty() && value.iter().all(is_atom) && !value.eq_ignore_ascii_case(b"NIL") {
        out.extend_from_slice(value);
    } else {
        string(out, value);
    }
}

/// System flags as FETCH tells them.
const SYSTEM: [(Flags, &[u8]); 5] = [
    (Flags::ANSWERED, b"\\Answered "),
    (Flags::FLAGGED, b"\\Flagged "),
    (Flags::DELETED, b"\\Deleted "),
    (Flags::SEEN, b"\\Seen "),
    (Flags::DRAFT, b"\\Draft "),
];

/// `(\Seen keyword)`; bits beyond the keywords are not told.
pub fn flag_list(out: &mut Vec<u8>, flags: Flags, keywords: &[Arc<str>], recent: bool) {
    out.push(b'(');
    let start = out.len();
    for (flag, name) in SYSTEM {
        if flags.contains(flag) {
            out.extend_from_slice(name);
        }
    }
    if recent {
        out.extend_from_slice(b"\\Recent ");
    }
    let mut bits = flags.public().0 >> 8;
    while bits != 0 {
        let index = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        if let Some(keyword) = keywords.get(index) {
            out.extend_from_slice(keyword.as_bytes());
            out.push(b' ');
        }
    }
    // The space after the last flag gives way to the parenthesis.
    if out.len() > start {
        out.pop();
    }
    out.push(b')');
}

#[cfg(test)]
mod tests;
