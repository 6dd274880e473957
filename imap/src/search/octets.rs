//! What SEARCH reads of a message: its header, and its text part by part.

use std::borrow::Cow;
use std::ops::Range;

use posthouse_storage::message::{EmailId, MessageRow, Part, PartKind, decode_header, decode_text, header_fields};

use super::{Messages, Needle};

/// Octets of one part's text that are searched. Longer text is searched up to here: one condition may not make the
/// server hold more than this.
const PART_BYTES_MAX: u64 = 8 << 20;
/// Octets of a header that are searched.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// The message's header: the row has it, or most of it.
pub(super) async fn header<'r, M: Messages>(
    messages: &M,
    email: EmailId,
    row: &'r MessageRow,
) -> Result<Cow<'r, [u8]>, M::Error> {
    let whole = &row.structure.header;
    let kept = whole.start + row.header.len() as u64;
    if kept >= whole.end {
        return Ok(Cow::Borrowed(&row.header));
    }
    let rest = read(messages, email, row, kept..whole.end, HEADER_BYTES_MAX).await?;
    Ok(Cow::Owned([&row.header[..], &rest].concat()))
}

/// Decoded values of the fields, in lower case: one list for each of `fields`.
pub(super) fn values(header: &[u8], fields: &[String]) -> Vec<Vec<String>> {
    let mut values = vec![Vec::new(); fields.len()];
    if fields.is_empty() {
        return values;
    }
    for field in header_fields(header) {
        if let Some(at) = fields.iter().position(|name| field.is(name)) {
            values[at].push(lower(decode_header(field.value)));
        }
    }
    values
}

fn lower(text: String) -> String {
    if text.is_ascii() {
        let mut text = text;
        text.make_ascii_lowercase();
        text
    } else {
        text.to_lowercase()
    }
}

/// Which of the needles are in the message's text parts (and, for TEXT, in its headers): parts of type text, also in
/// messages in it, decoded, one after the other until all are found.
pub(super) async fn scan<M: Messages>(
    messages: &M,
    email: EmailId,
    row: &MessageRow,
    header: &[u8],
    needles: &[Needle],
) -> Result<Vec<bool>, M::Error> {
    let mut found = vec![false; needles.len()];
    let with_headers = needles.iter().any(|needle| needle.in_headers);
    if with_headers {
        look(&header_text(header), needles, true, &mut found);
    }
    // A worklist instead of recursion; the structure's size is bounded where it is made.
    let mut parts = vec![(&row.structure, true)];
    while let Some((part, is_root)) = parts.pop() {
        if found.iter().all(|&found| found) {
            break;
        }
        if with_headers && !is_root && !part.header.is_empty() {
            let octets = read(messages, email, row, part.header.clone(), HEADER_BYTES_MAX).await?;
            look(&header_text(&octets), needles, true, &mut found);
        }
        match &part.kind {
            PartKind::Multipart(inner) => parts.extend(inner.iter().rev().map(|part| (part, false))),
            PartKind::Message { root, .. } => parts.push((root, false)),
            PartKind::Leaf if is_text(part) => {
                let octets = read(messages, email, row, part.body.clone(), PART_BYTES_MAX).await?;
                look(&lower(decode_text(part, &octets)), needles, false, &mut found);
            }
            PartKind::Leaf => {}
        }
    }
    Ok(found)
}

fn is_text(part: &Part) -> bool {
    part.media_type == b"text"
}

/// `name: value` of each field, decoded, in lower case.
fn header_text(header: &[u8]) -> String {
    let mut text = String::with_capacity(header.len());
    for field in header_fields(header) {
        text.push_str(&String::from_utf8_lossy(field.name));
        text.push_str(": ");
        text.push_str(&decode_header(field.value));
        text.push('\n');
    }
    lower(text)
}

fn look(text: &str, needles: &[Needle], in_header: bool, found: &mut [bool]) {
    for (needle, found) in needles.iter().zip(found) {
        if !*found && (needle.in_headers || !in_header) {
            *found = text.contains(&needle.text);
        }
    }
}

/// A range's octets, at most `max` of them.
async fn read<M: Messages>(
    messages: &M,
    email: EmailId,
    row: &MessageRow,
    range: Range<u64>,
    max: u64,
) -> Result<Vec<u8>, M::Error> {
    let end = range.end.min(range.start.saturating_add(max));
    let mut read = Vec::new();
    let mut at = range.start;
    while at < end {
        let octets = messages.octets(email, row, at..end).await?;
        if octets.is_empty() {
            break;
        }
        read.extend_from_slice(&octets);
        at += octets.len() as u64;
    }
    Ok(read)
}
