//! What SEARCH looks for (RFC 3501 §6.4.4).

use jiff::civil::Date;
use posthouse_storage::account::{FlagNames, Flags};

use super::super::command::{CommandBody, Numbers, SearchKey};
use super::super::date;
use super::ParseErrorKind;
use super::cursor::{Cursor, Parsed, ascii, fail, shown, syntax};

/// How deep NOT and parentheses may nest. Chains of OR and of NOT do not nest.
const DEPTH_MAX: usize = 100;

pub(super) fn search(cursor: &mut Cursor<'_>, numbers: Numbers) -> Parsed<CommandBody> {
    cursor.space("a search key")?;
    if cursor.keyword(b"RETURN") {
        return syntax("SEARCH RETURN is not supported");
    }
    let mut charset = None;
    if cursor.keyword(b"CHARSET") {
        cursor.space("a charset")?;
        let name = cursor.astring("a charset")?.to_ascii_uppercase();
        if !matches!(name.as_slice(), b"US-ASCII" | b"ASCII" | b"UTF-8" | b"UTF8") {
            return fail(ParseErrorKind::Charset, "Unknown charset");
        }
        charset = Some(ascii(&name));
        cursor.space("a search key")?;
    }
    let mut keys = vec![key(cursor, DEPTH_MAX)?];
    while cursor.more()? {
        keys.push(key(cursor, DEPTH_MAX)?);
    }
    Ok(CommandBody::Search { numbers, charset, key: all_of(keys) })
}

fn all_of(mut keys: Vec<SearchKey>) -> SearchKey {
    match keys.pop() {
        Some(only) if keys.is_empty() => only,
        Some(last) => {
            keys.push(last);
            SearchKey::And(keys)
        }
        None => SearchKey::All,
    }
}

/// One key; `OR` of any length without recursion, as clients write long ones.
fn key(cursor: &mut Cursor<'_>, depth: usize) -> Parsed<SearchKey> {
    if !cursor.keyword(b"OR") {
        return operand(cursor, depth);
    }
    let mut alternatives = Vec::new();
    let mut wanted = 2usize;
    while wanted > 0 {
        cursor.space("two keys after OR")?;
        // OR OR a b c and OR a OR b c are both a or b or c.
        if cursor.keyword(b"OR") {
            wanted += 1;
            continue;
        }
        alternatives.push(operand(cursor, depth)?);
        wanted -= 1;
    }
    Ok(SearchKey::Or(alternatives))
}

fn operand(cursor: &mut Cursor<'_>, depth: usize) -> Parsed<SearchKey> {
    let mut negated = false;
    let mut any = false;
    while cursor.keyword(b"NOT") {
        cursor.space("a key after NOT")?;
        negated = !negated;
        any = true;
    }
    let key = if any && cursor.keyword_next(b"OR") {
        key(cursor, deeper(depth)?)?
    } else if cursor.peek() == Some(b'(') {
        let depth = deeper(depth)?;
        let mut keys = Vec::new();
        cursor.list("search keys", |cursor| {
            keys.push(key(cursor, depth)?);
            Ok(())
        })?;
        if keys.is_empty() {
            return syntax("The list of search keys is empty");
        }
        all_of(keys)
    } else {
        simple(cursor)?
    };
    Ok(if negated { SearchKey::Not(Box::new(key)) } else { key })
}

fn deeper(depth: usize) -> Parsed<usize> {
    match depth.checked_sub(1) {
        Some(depth) => Ok(depth),
        None => fail(ParseErrorKind::Limit, format!("Search keys can nest {DEPTH_MAX} deep")),
    }
}

fn simple(cursor: &mut Cursor<'_>) -> Parsed<SearchKey> {
    if cursor.peek().is_some_and(|octet| octet.is_ascii_digit() || octet == b'*') {
        return cursor.sequence_set().map(SearchKey::Sequence);
    }
    let name = cursor.word();
    Ok(match name.to_ascii_uppercase().as_slice() {
        b"ALL" => SearchKey::All,
        b"ANSWERED" => flag(Flags::ANSWERED),
        b"BCC" => header(cursor, "Bcc")?,
        b"BEFORE" => SearchKey::Before(day(cursor)?),
        b"BODY" => SearchKey::Body(string(cursor)?),
        b"CC" => header(cursor, "Cc")?,
        b"DELETED" => flag(Flags::DELETED),
        b"DRAFT" => flag(Flags::DRAFT),
        b"FLAGGED" => flag(Flags::FLAGGED),
        b"FROM" => header(cursor, "From")?,
        b"HEADER" => {
            cursor.space("a header field")?;
            let field = cursor.text("The header field")?;
            SearchKey::Header { field, text: string(cursor)? }
        }
        b"KEYWORD" => SearchKey::Flag(keyword(cursor)?),
        b"LARGER" => SearchKey::Larger(number(cursor)?),
        b"NEW" => SearchKey::New,
        b"OLD" => SearchKey::Old,
        b"ON" => SearchKey::On(day(cursor)?),
        b"RECENT" => SearchKey::Recent,
        b"SEEN" => flag(Flags::SEEN),
        b"SENTBEFORE" => SearchKey::SentBefore(day(cursor)?),
        b"SENTON" => SearchKey::SentOn(day(cursor)?),
        b"SENTSINCE" => SearchKey::SentSince(day(cursor)?),
        b"SINCE" => SearchKey::Since(day(cursor)?),
        b"SMALLER" => SearchKey::Smaller(number(cursor)?),
        b"SUBJECT" => header(cursor, "Subject")?,
        b"TEXT" => SearchKey::Text(string(cursor)?),
        b"TO" => header(cursor, "To")?,
        b"UID" => {
            cursor.space("a set of uids")?;
            SearchKey::Uid(cursor.sequence_set()?)
        }
        b"UNANSWERED" => not_flag(Flags::ANSWERED),
        b"UNDELETED" => not_flag(Flags::DELETED),
        b"UNDRAFT" => not_flag(Flags::DRAFT),
        b"UNFLAGGED" => not_flag(Flags::FLAGGED),
        b"UNKEYWORD" => SearchKey::NotFlag(keyword(cursor)?),
        b"UNSEEN" => not_flag(Flags::SEEN),
        b"" => return syntax(format!("Expected a search key, found {}", cursor.found())),
        _ => return syntax(format!("Unknown search key {}", shown(name))),
    })
}

fn flag(system: Flags) -> SearchKey {
    SearchKey::Flag(FlagNames { system, keywords: Vec::new() })
}

fn not_flag(system: Flags) -> SearchKey {
    SearchKey::NotFlag(FlagNames { system, keywords: Vec::new() })
}

fn keyword(cursor: &mut Cursor<'_>) -> Parsed<FlagNames> {
    cursor.space("a keyword")?;
    let mut flags = FlagNames::default();
    cursor.flag_keyword(&mut flags)?;
    Ok(flags)
}

fn header(cursor: &mut Cursor<'_>, field: &str) -> Parsed<SearchKey> {
    Ok(SearchKey::Header { field: field.to_owned(), text: string(cursor)? })
}

fn string(cursor: &mut Cursor<'_>) -> Parsed<String> {
    cursor.space("the text to look for")?;
    cursor.text("The text to look for")
}

fn number(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    cursor.space("a number of octets")?;
    cursor.number("a number of octets")
}

fn day(cursor: &mut Cursor<'_>) -> Parsed<Date> {
    cursor.space("a date")?;
    let text = cursor.astring("a date")?;
    match date::parse_date(&text) {
        Some(day) => Ok(day),
        None => syntax("Bad date; it looks like 1-Feb-2026"),
    }
}
