//! What FETCH asks for (RFC 3501 §6.4.5).

use std::num::NonZeroU32;

use super::super::command::{FetchItem, Partial, Section, SectionText};
use super::ParseErrorKind;
use super::cursor::{Cursor, Parsed, ascii, fail, shown, syntax};

/// Sections in one FETCH.
const ITEMS_MAX: usize = 1000;

/// A macro, one item, or a list of items; what is asked twice is answered once.
pub(super) fn items(cursor: &mut Cursor<'_>) -> Parsed<Vec<FetchItem>> {
    let mut items = Vec::new();
    if cursor.peek() == Some(b'(') {
        cursor.list("items to fetch", |cursor| {
            let item = item(cursor)?;
            add(&mut items, item)
        })?;
        return if items.is_empty() { syntax("The list of items to fetch is empty") } else { Ok(items) };
    }
    use FetchItem::{Body, Envelope, Flags, InternalDate, Size};
    if cursor.keyword(b"ALL") {
        return Ok(vec![Flags, InternalDate, Size, Envelope]);
    }
    if cursor.keyword(b"FAST") {
        return Ok(vec![Flags, InternalDate, Size]);
    }
    if cursor.keyword(b"FULL") {
        return Ok(vec![Flags, InternalDate, Size, Envelope, Body]);
    }
    items.push(item(cursor)?);
    Ok(items)
}

fn add(items: &mut Vec<FetchItem>, item: FetchItem) -> Parsed<()> {
    if items.len() == ITEMS_MAX {
        return fail(ParseErrorKind::Limit, format!("FETCH can have {ITEMS_MAX} items"));
    }
    if !items.contains(&item) {
        items.push(item);
    }
    Ok(())
}

fn item(cursor: &mut Cursor<'_>) -> Parsed<FetchItem> {
    let name = cursor.word();
    if name.is_empty() {
        return syntax(format!("Expected an item to fetch, found {}", cursor.found()));
    }
    let section = cursor.peek() == Some(b'[');
    Ok(match (name.to_ascii_uppercase().as_slice(), section) {
        (b"BODY", true) => self::section(cursor, false)?,
        (b"BODY.PEEK", true) => self::section(cursor, true)?,
        (b"UID", false) => FetchItem::Uid,
        (b"FLAGS", false) => FetchItem::Flags,
        (b"INTERNALDATE", false) => FetchItem::InternalDate,
        (b"RFC822.SIZE", false) => FetchItem::Size,
        (b"ENVELOPE", false) => FetchItem::Envelope,
        (b"BODY", false) => FetchItem::Body,
        (b"BODYSTRUCTURE", false) => FetchItem::BodyStructure,
        (b"RFC822", false) => FetchItem::Rfc822,
        (b"RFC822.HEADER", false) => FetchItem::Rfc822Header,
        (b"RFC822.TEXT", false) => FetchItem::Rfc822Text,
        (b"ALL" | b"FAST" | b"FULL", false) => return syntax(format!("{} must stand alone", ascii(name))),
        (b"BODY.PEEK", false) => return syntax("BODY.PEEK needs a section in brackets"),
        _ => return syntax(format!("Unknown item {}", shown(name))),
    })
}

fn section(cursor: &mut Cursor<'_>, peek: bool) -> Parsed<FetchItem> {
    cursor.eat(b'[');
    let mut part: Vec<NonZeroU32> = Vec::new();
    let mut text = SectionText::All;
    while !cursor.eat(b']') {
        if !part.is_empty() && !cursor.eat(b'.') {
            return syntax(format!("Expected . or ] in the section, found {}", cursor.found()));
        }
        if cursor.peek().is_some_and(|octet| octet.is_ascii_digit()) {
            part.push(cursor.number_not_zero("A part number")?);
            continue;
        }
        text = section_text(cursor, part.is_empty())?;
        if !cursor.eat(b']') {
            return syntax(format!("Expected ] after the section, found {}", cursor.found()));
        }
        break;
    }
    let partial = if cursor.eat(b'<') { Some(partial(cursor)?) } else { None };
    Ok(FetchItem::Section { peek, section: Section { part, text }, partial })
}

fn section_text(cursor: &mut Cursor<'_>, whole: bool) -> Parsed<SectionText> {
    Ok(match cursor.word().to_ascii_uppercase().as_slice() {
        b"HEADER" => SectionText::Header,
        b"TEXT" => SectionText::Text,
        b"MIME" if whole => return syntax("MIME needs a part number before it"),
        b"MIME" => SectionText::Mime,
        b"HEADER.FIELDS" => SectionText::HeaderFields(fields(cursor)?),
        b"HEADER.FIELDS.NOT" => SectionText::HeaderFieldsNot(fields(cursor)?),
        b"" => return syntax(format!("Expected a section, found {}", cursor.found())),
        name => return syntax(format!("Unknown section {}", shown(name))),
    })
}

/// Names of header fields. An empty list is let through: some clients send it.
fn fields(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    cursor.space("a list of header fields")?;
    let mut fields = Vec::new();
    cursor.list("header fields", |cursor| {
        let name = cursor.astring("a header field")?;
        if name.is_empty() || !name.iter().all(|octet| (0x20..0x7f).contains(octet)) {
            return syntax("A header field's name is printable ASCII");
        }
        if fields.len() == ITEMS_MAX {
            return fail(ParseErrorKind::Limit, format!("A section can name {ITEMS_MAX} header fields"));
        }
        fields.push(ascii(&name));
        Ok(())
    })?;
    Ok(fields)
}

/// `<o.n>`; as Dovecot does, `<o>` is taken as "from o on".
fn partial(cursor: &mut Cursor<'_>) -> Parsed<Partial> {
    let offset = cursor.number("the first octet")?;
    let octets = if cursor.eat(b'.') { cursor.number("the number of octets")? } else { u64::MAX };
    if !cursor.eat(b'>') {
        return syntax("A partial fetch is <first octet.octets>");
    }
    Ok(Partial { offset, octets })
}
