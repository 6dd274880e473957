//! From a command's octets to a [`Command`]: recursive descent by hand, bounded in depth, with a text for every
//! refusal. This file owns the entry and the commands; [`fetch`] and [`search`] their own arguments, [`cursor`] the words.

mod cursor;
mod fetch;
mod search;

use posthouse_storage::account::{FlagChange, FlagNames};

use self::cursor::{Cursor, Fail, Parsed, ascii, fail, shown, syntax};
use super::command::{Append, Command, CommandBody, List, ListReturn, ListSelect, Numbers, Secret, StatusItem};
use super::date;

pub(super) use self::cursor::is_tag_char;

/// The longest tag; clients use some ten octets.
pub(super) const TAG_BYTES_MAX: usize = 128;
/// Patterns of one LIST.
const PATTERNS_MAX: usize = 100;
/// Fields of one ID (RFC 2971 §3.3).
const ID_FIELDS_MAX: usize = 30;

/// What a session has switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// UTF8=ACCEPT or IMAP4rev2: mailbox names are raw UTF-8, not modified UTF-7.
    pub utf8: bool,
}

/// Why a command is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The tag, if the line began with one; else the answer is untagged.
    pub tag: Option<String>,
    /// What to answer with.
    pub kind: ParseErrorKind,
    /// One line of printable ASCII for the client: what was wrong. Never has a password.
    pub text: String,
}

/// What to answer a bad command with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParseErrorKind {
    /// BAD: not the grammar.
    Syntax,
    /// BAD: no such command.
    UnknownCommand,
    /// NO \[CANNOT\]: a mailbox name that is not valid modified UTF-7, or has control characters.
    MailboxName,
    /// NO \[BADCHARSET (US-ASCII UTF-8)\].
    Charset,
    /// NO \[LIMIT\]: nested too deeply, or too many of something.
    Limit,
}

/// Parses a frame's octets, without the final CRLF (a literal may end with one that counts). Never panics, whatever the octets; time is linear in them.
pub fn parse_command(octets: &[u8], options: ParseOptions) -> Result<Command, ParseError> {
    let mut cursor = Cursor::new(octets, options);
    let untagged = |kind, text: &str| ParseError { tag: None, kind, text: text.to_owned() };
    let Some(tag) = cursor.tag() else {
        return Err(untagged(ParseErrorKind::Syntax, "A command begins with a tag"));
    };
    if !matches!(cursor.peek(), None | Some(b' ')) {
        return Err(untagged(ParseErrorKind::Syntax, "The tag has a character that no tag can have"));
    }
    match cursor.space("a command").and_then(|()| command(&mut cursor)) {
        Ok(body) => Ok(Command { tag, body }),
        Err(Fail { kind, text }) => Err(ParseError { tag: Some(tag), kind, text: text.into_owned() }),
    }
}

fn command(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    let verb = cursor.word();
    let body = match verb.to_ascii_uppercase().as_slice() {
        b"CAPABILITY" => CommandBody::Capability,
        b"NOOP" => CommandBody::Noop,
        b"LOGOUT" => CommandBody::Logout,
        b"STARTTLS" => CommandBody::StartTls,
        // What a wrong LOGIN or AUTHENTICATE looks like is not repeated: it may be the password.
        b"LOGIN" => return login(cursor).or_else(|_| syntax("LOGIN takes a user name and a password")),
        b"AUTHENTICATE" => {
            return authenticate(cursor).or_else(|_| syntax("AUTHENTICATE takes a mechanism and one base64 response"));
        }
        b"ID" => id(cursor)?,
        b"ENABLE" => enable(cursor)?,
        b"SELECT" => CommandBody::Select { mailbox: only_mailbox(cursor)? },
        b"EXAMINE" => CommandBody::Examine { mailbox: only_mailbox(cursor)? },
        b"CREATE" => CommandBody::Create { mailbox: only_mailbox(cursor)? },
        b"DELETE" => CommandBody::Delete { mailbox: only_mailbox(cursor)? },
        b"RENAME" => {
            let from = only_mailbox(cursor)?;
            CommandBody::Rename { from, to: only_mailbox(cursor)? }
        }
        b"SUBSCRIBE" => CommandBody::Subscribe { mailbox: only_mailbox(cursor)? },
        b"UNSUBSCRIBE" => CommandBody::Unsubscribe { mailbox: only_mailbox(cursor)? },
        b"LIST" => list(cursor)?,
        b"LSUB" => {
            cursor.space("a reference name")?;
            let reference = cursor.pattern()?;
            cursor.space("a mailbox pattern")?;
            CommandBody::Lsub { reference, pattern: cursor.pattern()? }
        }
        b"NAMESPACE" => CommandBody::Namespace,
        b"STATUS" => {
            let mailbox = only_mailbox(cursor)?;
            cursor.space("a list of status items")?;
            CommandBody::Status { mailbox, items: status_items(cursor)? }
        }
        b"APPEND" => append(cursor)?,
        b"IDLE" => CommandBody::Idle,
        b"CHECK" => CommandBody::Check,
        b"CLOSE" => CommandBody::Close,
        b"UNSELECT" => CommandBody::Unselect,
        b"EXPUNGE" => CommandBody::Expunge { uids: None },
        b"UID" => {
            cursor.space("a command after UID")?;
            let verb = cursor.word();
            match verb.to_ascii_uppercase().as_slice() {
                b"EXPUNGE" => {
                    cursor.space("a set of uids")?;
                    CommandBody::Expunge { uids: Some(cursor.sequence_set()?) }
                }
                verb => match numbered(cursor, verb, Numbers::Uid)? {
                    Some(body) => body,
                    None => return unknown(verb),
                },
            }
        }
        verb => match numbered(cursor, verb, Numbers::Sequence)? {
            Some(body) => body,
            None => return unknown(verb),
        },
    };
    cursor.end()?;
    Ok(body)
}

fn unknown(verb: &[u8]) -> Parsed<CommandBody> {
    fail(ParseErrorKind::UnknownCommand, format!("Unknown command {}", shown(verb)))
}

/// The commands that have a UID form.
fn numbered(cursor: &mut Cursor<'_>, verb: &[u8], numbers: Numbers) -> Parsed<Option<CommandBody>> {
    if !matches!(verb, b"SEARCH" | b"FETCH" | b"STORE" | b"COPY" | b"MOVE") {
        return Ok(None);
    }
    if verb == b"SEARCH" {
        return search::search(cursor, numbers).map(Some);
    }
    cursor.space("a set of messages")?;
    let set = cursor.sequence_set()?;
    Ok(Some(match verb {
        b"FETCH" => {
            cursor.space("what to fetch")?;
            CommandBody::Fetch { numbers, set, items: fetch::items(cursor)? }
        }
        b"STORE" => {
            let (change, silent, flags) = store(cursor)?;
            CommandBody::Store { numbers, set, change, silent, flags }
        }
        b"COPY" => CommandBody::Copy { numbers, set, mailbox: only_mailbox(cursor)? },
        _ => CommandBody::Move { numbers, set, mailbox: only_mailbox(cursor)? },
    }))
}

fn only_mailbox(cursor: &mut Cursor<'_>) -> Parsed<String> {
    cursor.space("a mailbox name")?;
    cursor.mailbox()
}

fn login(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    cursor.space("a user name")?;
    let user = cursor.astring("a user name")?.into_owned();
    cursor.space("a password")?;
    let password = Secret(cursor.astring("a password")?.into_owned());
    cursor.end()?;
    Ok(CommandBody::Login { user, password })
}

fn authenticate(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    cursor.space("a mechanism")?;
    let mechanism = ascii(cursor.atom("a mechanism")?).to_ascii_uppercase();
    let initial = if cursor.more()? { Some(cursor.until_space()) } else { None };
    // Whether it is valid base64 is for the exchange to say; here it only must be one word of it.
    let base64 = |octet: &u8| octet.is_ascii_alphanumeric() || b"+/=".contains(octet);
    if initial.is_some_and(|initial| !initial.iter().all(base64)) {
        return syntax("not base64");
    }
    cursor.end()?;
    Ok(CommandBody::Authenticate { mechanism, initial: initial.map(|initial| Secret(initial.to_vec())) })
}

fn id(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    cursor.space("a list of fields or NIL")?;
    if cursor.keyword(b"NIL") {
        return Ok(CommandBody::Id(None));
    }
    let lossy = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let mut fields = Vec::new();
    cursor.list("fields", |cursor| {
        let field = lossy(&cursor.astring("a field name")?);
        cursor.space("the field's value")?;
        let value = cursor.nstring("the field's value")?.map(|value| lossy(&value));
        if fields.len() == ID_FIELDS_MAX {
            return fail(ParseErrorKind::Limit, format!("ID can have {ID_FIELDS_MAX} fields"));
        }
        fields.push((field, value));
        Ok(())
    })?;
    Ok(CommandBody::Id(Some(fields)))
}

fn enable(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    cursor.space("a capability")?;
    let mut names = Vec::new();
    loop {
        names.push(ascii(cursor.atom("a capability")?).to_ascii_uppercase());
        if !cursor.more()? {
            return Ok(CommandBody::Enable(names));
        }
    }
}

fn list(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    let mut list = List::default();
    cursor.space("a reference name")?;
    if cursor.peek() == Some(b'(') {
        list.extended = true;
        list.select = list_select(cursor)?;
        cursor.space("a reference name")?;
    }
    list.reference = cursor.pattern()?;
    cursor.space("a mailbox pattern")?;
    if cursor.peek() == Some(b'(') {
        list.extended = true;
        cursor.list("patterns", |cursor| {
            if list.patterns.len() == PATTERNS_MAX {
                return fail(ParseErrorKind::Limit, format!("LIST can have {PATTERNS_MAX} patterns"));
            }
            list.patterns.push(cursor.pattern()?);
            Ok(())
        })?;
        if list.patterns.is_empty() {
            return syntax("The list of patterns is empty");
        }
    } else {
        list.patterns.push(cursor.pattern()?);
    }
    if cursor.more()? {
        if !cursor.keyword(b"RETURN") {
            return syntax(format!("Expected RETURN, found {}", cursor.found()));
        }
        cursor.space("return options")?;
        list.extended = true;
        list.returns = list_return(cursor)?;
    }
    Ok(CommandBody::List(list))
}

fn list_select(cursor: &mut Cursor<'_>) -> Parsed<ListSelect> {
    let mut select = ListSelect::default();
    cursor.list("selection options", |cursor| {
        match cursor.word().to_ascii_uppercase().as_slice() {
            b"SUBSCRIBED" => select.subscribed = true,
            b"REMOTE" => select.remote = true,
            b"RECURSIVEMATCH" => select.recursive_match = true,
            b"SPECIAL-USE" => select.special_use = true,
            option => return syntax(format!("Unknown selection option {}", shown(option))),
        }
        Ok(())
    })?;
    // RFC 5258 §3.1: it says which of the matches' parents to tell, so there must be something to match.
    if select.recursive_match && !select.subscribed && !select.special_use {
        return syntax("RECURSIVEMATCH needs another selection option");
    }
    Ok(select)
}

fn list_return(cursor: &mut Cursor<'_>) -> Parsed<ListReturn> {
    let mut returns = ListReturn::default();
    cursor.list("return options", |cursor| {
        match cursor.word().to_ascii_uppercase().as_slice() {
            b"SUBSCRIBED" => returns.subscribed = true,
            b"CHILDREN" => returns.children = true,
            b"SPECIAL-USE" => returns.special_use = true,
            b"STATUS" => {
                cursor.space("a list of status items")?;
                returns.status = status_items(cursor)?;
            }
            option => return syntax(format!("Unknown return option {}", shown(option))),
        }
        Ok(())
    })?;
    Ok(returns)
}

fn status_items(cursor: &mut Cursor<'_>) -> Parsed<Vec<StatusItem>> {
    let mut items = Vec::new();
    cursor.list("status items", |cursor| {
        let item = match cursor.word().to_ascii_uppercase().as_slice() {
            b"MESSAGES" => StatusItem::Messages,
            b"RECENT" => StatusItem::Recent,
            b"UIDNEXT" => StatusItem::UidNext,
            b"UIDVALIDITY" => StatusItem::UidValidity,
            b"UNSEEN" => StatusItem::Unseen,
            b"DELETED" => StatusItem::Deleted,
            b"SIZE" => StatusItem::Size,
            item => return syntax(format!("Unknown status item {}", shown(item))),
        };
        if !items.contains(&item) {
            items.push(item);
        }
        Ok(())
    })?;
    if items.is_empty() { syntax("The list of status items is empty") } else { Ok(items) }
}

fn append(cursor: &mut Cursor<'_>) -> Parsed<CommandBody> {
    let mailbox = only_mailbox(cursor)?;
    cursor.space("the message")?;
    let mut flags = FlagNames::default();
    if cursor.peek() == Some(b'(') {
        flags = cursor.flag_list()?;
        cursor.space("the message")?;
    }
    let mut received_at_ms = None;
    if cursor.peek() == Some(b'"') {
        let text = cursor.astring("a date and time")?;
        let Some(ms) = date::parse_date_time(&text) else {
            return syntax("Bad date and time; it looks like \" 1-Feb-2026 03:04:05 +0000\"");
        };
        received_at_ms = Some(ms);
        cursor.space("the message")?;
    }
    let literal = cursor.message()?;
    Ok(CommandBody::Append(Append { mailbox, flags, received_at_ms, literal }))
}

fn store(cursor: &mut Cursor<'_>) -> Parsed<(FlagChange, bool, FlagNames)> {
    cursor.space("FLAGS, +FLAGS or -FLAGS")?;
    let (change, silent) = match cursor.word().to_ascii_uppercase().as_slice() {
        b"FLAGS" => (FlagChange::Replace, false),
        b"FLAGS.SILENT" => (FlagChange::Replace, true),
        b"+FLAGS" => (FlagChange::Add, false),
        b"+FLAGS.SILENT" => (FlagChange::Add, true),
        b"-FLAGS" => (FlagChange::Remove, false),
        b"-FLAGS.SILENT" => (FlagChange::Remove, true),
        b"" => return syntax(format!("Expected FLAGS, +FLAGS or -FLAGS, found {}", cursor.found())),
        item => return syntax(format!("Expected FLAGS, +FLAGS or -FLAGS, found {}", shown(item))),
    };
    cursor.space("flags")?;
    if cursor.peek() == Some(b'(') {
        return Ok((change, silent, cursor.flag_list()?));
    }
    let mut flags = FlagNames::default();
    loop {
        cursor.flag(&mut flags)?;
        if !cursor.more()? {
            return Ok((change, silent, flags));
        }
    }
}

#[cfg(test)]
mod tests;
