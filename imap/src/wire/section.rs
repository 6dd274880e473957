//! Which octets of a message a section names (RFC 3501 §6.4.5): plain arithmetic on its structure, no I/O.

use std::num::NonZeroU32;
use std::ops::Range;

use posthouse_storage::message::{Part, PartKind};

use super::command::{FetchItem, Partial, Section, SectionText};

/// Where a section's octets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located<'s> {
    /// There, as they stand; may be empty.
    Octets(Range<u64>),
    /// The header in this range, after [`filter_header`].
    Fields {
        /// A whole header with its empty line.
        header: Range<u64>,
        /// Names of fields.
        fields: &'s [String],
        /// Leave these out instead of everything else.
        not: bool,
    },
    /// No such part: Dovecot answers with an empty literal, and so should we; NIL is as valid.
    Missing,
}

/// Finds a section in the structure of a message.
pub fn locate<'s>(root: &Part, section: &'s Section) -> Located<'s> {
    let Some(found) = find(root, &section.part) else { return Located::Missing };
    let whole = section.part.is_empty();
    // HEADER and TEXT are of a message: the whole one, or one that a part is (or, for BODY[1.HEADER], nothing else).
    let message = if whole {
        Some(root)
    } else {
        match &found.kind {
            PartKind::Message { root, .. } => Some(&**root),
            _ => None,
        }
    };
    match (&section.text, message) {
        (SectionText::All, _) if whole => Located::Octets(root.header.start..root.body.end.max(root.header.end)),
        (SectionText::All, _) => Located::Octets(found.body.clone()),
        (SectionText::Mime, _) if whole => Located::Missing,
        (SectionText::Mime, _) => Located::Octets(found.header.clone()),
        (_, None) => Located::Missing,
        (SectionText::Header, Some(message)) => Located::Octets(message.header.clone()),
        (SectionText::Text, Some(message)) => Located::Octets(message.body.clone()),
        (SectionText::HeaderFields(fields), Some(message)) => {
            Located::Fields { header: message.header.clone(), fields, not: false }
        }
        (SectionText::HeaderFieldsNot(fields), Some(message)) => {
            Located::Fields { header: message.header.clone(), fields, not: true }
        }
    }
}

/// Walks the part numbers. A message that is not multipart has exactly the part 1, which is its body.
fn find<'p>(root: &'p Part, numbers: &[NonZeroU32]) -> Option<&'p Part> {
    let mut at = root;
    // Whether `at` is the root of a message, so that 1 may still mean its own body.
    let mut is_root = true;
    for number in numbers {
        let index = number.get() as usize - 1;
        if !is_root {
            // The parts of a message/rfc822 part are those of the message in it.
            if let PartKind::Message { root, .. } = &at.kind {
                at = root;
                is_root = true;
            }
        }
        match &at.kind {
            PartKind::Multipart(parts) => {
                at = parts.get(index)?;
                is_root = false;
            }
            _ if is_root && index == 0 => is_root = false,
            _ => return None,
        }
    }
    Some(at)
}

/// The section that a FETCH item asks for, if it asks for octets: RFC822 is `BODY[]`, and so on.
pub fn of_item(item: &FetchItem) -> Option<Section> {
    let text = match item {
        FetchItem::Section { section, .. } => return Some(section.clone()),
        FetchItem::Rfc822 => SectionText::All,
        FetchItem::Rfc822Header => SectionText::Header,
        FetchItem::Rfc822Text => SectionText::Text,
        _ => return None,
    };
    Some(Section { part: Vec::new(), text })
}

/// What a partial fetch leaves of a range: nothing if it begins after the end.
pub fn cut(octets: Range<u64>, partial: Option<Partial>) -> Range<u64> {
    let Some(partial) = partial else { return octets };
    let start = octets.start.saturating_add(partial.offset).min(octets.end);
    start..start.saturating_add(partial.octets).min(octets.end)
}

/// A header's octets with only (or without) the named fields, in their order, folded lines whole, ended by an empty
/// line.
pub fn filter_header(header: &[u8], fields: &[String], not: bool) -> Vec<u8> {
    let mut filtered = Vec::new();
    let mut keep = false;
    let mut rest = header;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |line_feed| line_feed + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        if line == b"\r\n" || line == b"\n" {
            break;
        }
        if !matches!(line[0], b' ' | b'\t') {
            keep = match memchr::memchr(b':', line) {
                Some(colon) => {
                    let name = line[..colon].trim_ascii_end();
                    fields.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes())) != not
                }
                // A line that is no field (an mbox "From " line): only "everything but" has it.
                None => not,
            };
        }
        if keep {
            filtered.extend_from_slice(line);
        }
    }
    if filtered.last().is_some_and(|&last| last != b'\n') {
        filtered.extend_from_slice(b"\r\n");
    }
    filtered.extend_from_slice(b"\r\n");
    filtered
}

#[cfg(test)]
mod tests;
