//! What must hold for any octets, shared by the tests and the fuzz target: no panic, bounded memory, the same frames
//! whatever the split, and whatever imap-codec takes for a command ours takes for the same command.
//!
//! Deliberate differences, where ours refuses: names that are not modified UTF-7, strings that are not UTF-8, unknown
//! charsets and system flags, header field names that are not printable, more than the limits, literals with a binary marker outside of APPEND, and the commands
//! and modifiers of extensions that are not offered.

use imap_codec::CommandCodec;
use imap_codec::decode::Decoder;
use imap_codec::imap_types::command::{Command as Theirs, CommandBody as Their};
use imap_codec::imap_types::core::{AString, LiteralMode};
use imap_codec::imap_types::extensions::binary::LiteralOrLiteral8;
use imap_codec::imap_types::fetch::{
    Macro, MacroOrMessageDataItemNames, MessageDataItemName, Part, Section as TheirSection,
};
use imap_codec::imap_types::flag::{Flag, StoreResponse, StoreType};
use imap_codec::imap_types::mailbox::{ListMailbox, Mailbox};
use imap_codec::imap_types::search::SearchKey as TheirKey;
use imap_codec::imap_types::sequence::{SeqOrUid, Sequence, SequenceSet as TheirSet};
use imap_codec::imap_types::status::StatusDataItemName;
use posthouse_imap::wire::command::{
    Append, CommandBody, FetchItem, List, Literal, Numbers, Partial, SearchKey, Secret, Section, SectionText, SeqNo,
    SequenceSet, StatusItem,
};
use posthouse_imap::wire::framer::{Frame, Framer, Limits};
use posthouse_imap::wire::mutf7;
use posthouse_imap::wire::parse::{ParseErrorKind, ParseOptions, parse_command};
use posthouse_storage::account::{FlagChange, FlagNames, Flags};

/// Everything that must hold for any octets a peer sends.
pub(crate) fn check(octets: &[u8]) {
    let whole = frames(octets, octets.len().max(1));
    assert_eq!(frames(octets, 1), whole, "octet by octet");
    assert_eq!(frames(octets, 7), whole, "seven octets at a time");
    compare(octets);
}

fn frames(octets: &[u8], piece: usize) -> Vec<Frame> {
    let mut framer = Framer::new(Limits::UNAUTHENTICATED);
    let mut frames = Vec::new();
    for piece in octets.chunks(piece) {
        framer.feed(piece);
        while let Some(frame) = framer.next() {
            match &frame {
                Frame::Command(octets) => match parse_command(octets, ParseOptions::default()) {
                    Ok(command) if command.body == CommandBody::Idle => framer.expect_done(),
                    Ok(command) if command.body.verb() == "AUTHENTICATE" => framer.expect_sasl(),
                    Ok(command) if command.body.verb() == "LOGIN" => framer.set_limits(Limits::AUTHENTICATED),
                    _ => {}
                },
                Frame::Append { line, .. } => match parse_command(line, ParseOptions::default()) {
                    Ok(_) => framer.accept_literal(),
                    Err(_) => framer.refuse_literal(),
                },
                _ => {}
            }
            match (frames.last_mut(), frame) {
                (Some(Frame::Chunk(before)), Frame::Chunk(more)) => *before = [&before[..], &more].concat().into(),
                (_, frame) => frames.push(frame),
            }
        }
    }
    frames
}

/// If imap-codec takes `octets` (without the final CRLF) for one command, ours must take them for the same one.
pub(crate) fn compare(octets: &[u8]) -> bool {
    let line = [octets, b"\r\n"].concat();
    let Ok((b"", theirs)) = CommandCodec::default().decode(&line) else { return false };
    let ours = parse_command(octets, ParseOptions::default());
    let Some(expected) = translate(&theirs) else { return false };
    match (expected, ours) {
        (Ok(expected), Ok(ours)) => {
            assert_eq!(ours.tag, theirs.tag.as_ref());
            assert_eq!(flat(ours.body), flat(expected), "{}", octets.escape_ascii());
        }
        (_, Err(error)) if error.kind == ParseErrorKind::Limit => {}
        (Err(kind), Err(error)) => assert_eq!(error.kind, kind, "{}: {}", octets.escape_ascii(), error.text),
        (Ok(_), Err(error)) => panic!("{}: {}", octets.escape_ascii(), error.text),
        (Err(kind), Ok(ours)) => panic!("{}: {ours:?} but {kind:?}", octets.escape_ascii()),
    }
    true
}

/// Without the parentheses that make no difference; theirs are gone already.
fn flat(body: CommandBody) -> CommandBody {
    match body {
        CommandBody::Search { numbers, charset, key } => CommandBody::Search { numbers, charset, key: flat_key(key) },
        other => other,
    }
}

fn flat_key(key: SearchKey) -> SearchKey {
    let inner = |keys: Vec<SearchKey>, all: bool| {
        let mut flat = Vec::new();
        for key in keys.into_iter().map(flat_key) {
            match key {
                SearchKey::And(keys) if all => flat.extend(keys),
                SearchKey::Or(keys) if !all => flat.extend(keys),
                key => flat.push(key),
            }
        }
        flat
    };
    match key {
        SearchKey::And(mut keys) if keys.len() == 1 => flat_key(keys.remove(0)),
        SearchKey::And(keys) => SearchKey::And(inner(keys, true)),
        SearchKey::Or(keys) => SearchKey::Or(inner(keys, false)),
        SearchKey::Not(key) => match flat_key(*key) {
            SearchKey::Not(key) => *key,
            key => SearchKey::Not(Box::new(key)),
        },
        key => key,
    }
}

type Translated<T> = Result<T, ParseErrorKind>;

/// `None`: something that is not offered. `Err`: what ours refuses on purpose, and how.
fn translate(theirs: &Theirs<'_>) -> Option<Translated<CommandBody>> {
    if theirs.tag.as_ref().len() > 128 {
        return None;
    }
    Some(body(match &theirs.body {
        Their::Sort { .. } | Their::Thread { .. } | Their::Compress { .. } | Their::GetQuota { .. } => return None,
        Their::Select { parameters, .. } | Their::Examine { parameters, .. } if !parameters.is_empty() => return None,
        Their::Fetch { modifiers, .. } if !modifiers.is_empty() => return None,
        Their::Store { modifiers, .. } if !modifiers.is_empty() => return None,
        Their::Status { item_names, .. }
            if item_names.is_empty()
                || item_names.iter().any(|item| {
                    matches!(item, StatusDataItemName::DeletedStorage | StatusDataItemName::HighestModSeq)
                }) =>
        {
            return None;
        }
        Their::Fetch { macro_or_item_names: MacroOrMessageDataItemNames::MessageDataItemNames(items), .. }
            if items.is_empty()
                || items.iter().any(|item| {
                    matches!(
                        item,
                        MessageDataItemName::Binary { .. }
                            | MessageDataItemName::BinarySize { .. }
                            | MessageDataItemName::ModSeq
                    )
                }) =>
        {
            return None;
        }
        Their::Search { criteria, .. } if criteria.as_ref().iter().any(not_offered) => return None,
        // A base64 response is kept as it was written.
        Their::Authenticate { .. } => return None,
        body => body,
    }))
}

fn not_offered(key: &TheirKey<'_>) -> bool {
    match key {
        TheirKey::And(keys) => keys.as_ref().iter().any(not_offered),
        TheirKey::Or(a, b) => not_offered(a) || not_offered(b),
        TheirKey::Not(key) => not_offered(key),
        TheirKey::ModSequence { .. } => true,
        _ => false,
    }
}

fn body(theirs: &Their<'_>) -> Translated<CommandBody> {
    Ok(match theirs {
        Their::Capability => CommandBody::Capability,
        Their::Noop => CommandBody::Noop,
        Their::Logout => CommandBody::Logout,
        Their::StartTLS => CommandBody::StartTls,
        Their::Login { username, password } => CommandBody::Login {
            user: username.as_ref().to_vec(),
            password: Secret(password.declassify().as_ref().to_vec()),
        },
        Their::Select { mailbox, .. } => CommandBody::Select { mailbox: name(mailbox)? },
        Their::Unselect => CommandBody::Unselect,
        Their::Examine { mailbox, .. } => CommandBody::Examine { mailbox: name(mailbox)? },
        Their::Create { mailbox } => CommandBody::Create { mailbox: name(mailbox)? },
        Their::Delete { mailbox } => CommandBody::Delete { mailbox: name(mailbox)? },
        Their::Rename { from, to } => CommandBody::Rename { from: name(from)?, to: name(to)? },
        Their::Subscribe { mailbox } => CommandBody::Subscribe { mailbox: name(mailbox)? },
        Their::Unsubscribe { mailbox } => CommandBody::Unsubscribe { mailbox: name(mailbox)? },
        Their::List { reference, mailbox_wildcard } => CommandBody::List(List {
            reference: pattern(&raw(reference)),
            patterns: vec![pattern(wildcard(mailbox_wildcard))],
            ..List::default()
        }),
        Their::Lsub { reference, mailbox_wildcard } => {
            CommandBody::Lsub { reference: pattern(&raw(reference)), pattern: pattern(wildcard(mailbox_wildcard)) }
        }
        Their::Status { mailbox, item_names } => {
            let mut items = Vec::new();
            for item in item_names.iter() {
                let item = match item {
                    StatusDataItemName::Messages => StatusItem::Messages,
                    StatusDataItemName::Recent => StatusItem::Recent,
                    StatusDataItemName::UidNext => StatusItem::UidNext,
                    StatusDataItemName::UidValidity => StatusItem::UidValidity,
                    StatusDataItemName::Unseen => StatusItem::Unseen,
                    _ => StatusItem::Deleted,
                };
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            CommandBody::Status { mailbox: name(mailbox)?, items }
        }
        Their::Append { mailbox, flags, date, message } => {
            let (size, mode, binary) = match message {
                LiteralOrLiteral8::Literal(literal) => (literal.as_ref().len(), literal.mode(), false),
                LiteralOrLiteral8::Literal8(literal) => (literal.data.len(), literal.mode, true),
            };
            CommandBody::Append(Append {
                mailbox: name(mailbox)?,
                flags: flag_names(flags)?,
                received_at_ms: date.as_ref().map(|date| date.as_ref().timestamp_millis()),
                literal: Literal { size: size as u64, synchronizing: mode == LiteralMode::Sync, binary },
            })
        }
        Their::Check => CommandBody::Check,
        Their::Close => CommandBody::Close,
        Their::Expunge => CommandBody::Expunge { uids: None },
        Their::ExpungeUid { sequence_set } => CommandBody::Expunge { uids: Some(set(sequence_set)) },
        Their::Search { charset, criteria, uid } => {
            let charset = charset.as_ref().map(|charset| charset.as_ref().to_ascii_uppercase());
            if charset.as_ref().is_some_and(|name| !["US-ASCII", "ASCII", "UTF-8", "UTF8"].contains(&name.as_str())) {
                return Err(ParseErrorKind::Charset);
            }
            let mut keys = criteria.as_ref().iter().map(key).collect::<Translated<Vec<_>>>()?;
            let key = if keys.len() == 1 { keys.remove(0) } else { SearchKey::And(keys) };
            CommandBody::Search { numbers: numbers(*uid), charset, key }
        }
        Their::Fetch { sequence_set, macro_or_item_names, uid, .. } => {
            use FetchItem::{Body, Envelope, Flags, InternalDate, Size};
            let items = match macro_or_item_names {
                MacroOrMessageDataItemNames::Macro(Macro::Fast) => vec![Flags, InternalDate, Size],
                MacroOrMessageDataItemNames::Macro(Macro::All) => vec![Flags, InternalDate, Size, Envelope],
                MacroOrMessageDataItemNames::Macro(_) => vec![Flags, InternalDate, Size, Envelope, Body],
                MacroOrMessageDataItemNames::MessageDataItemNames(names) => {
                    let mut items = Vec::new();
                    for item in names.iter().map(fetch_item) {
                        if !items.contains(&item) {
                            items.push(item);
                        }
                    }
                    items
                }
            };
            let printable = |name: &String| !name.is_empty() && name.bytes().all(|octet| (0x20..0x7f).contains(&octet));
            let named = |item: &FetchItem| match item {
                FetchItem::Section { section, .. } => match &section.text {
                    SectionText::HeaderFields(names) | SectionText::HeaderFieldsNot(names) => {
                        names.iter().all(printable)
                    }
                    _ => true,
                },
                _ => true,
            };
            if !items.iter().all(named) {
                return Err(ParseErrorKind::Syntax);
            }
            CommandBody::Fetch { numbers: numbers(*uid), set: set(sequence_set), items }
        }
        Their::Store { sequence_set, kind, response, flags, uid, .. } => CommandBody::Store {
            numbers: numbers(*uid),
            set: set(sequence_set),
            change: match kind {
                StoreType::Replace => FlagChange::Replace,
                StoreType::Add => FlagChange::Add,
                StoreType::Remove => FlagChange::Remove,
            },
            silent: *response == StoreResponse::Silent,
            flags: flag_names(flags)?,
        },
        Their::Copy { sequence_set, mailbox, uid } => {
            CommandBody::Copy { numbers: numbers(*uid), set: set(sequence_set), mailbox: name(mailbox)? }
        }
        Their::Move { sequence_set, mailbox, uid } => {
            CommandBody::Move { numbers: numbers(*uid), set: set(sequence_set), mailbox: name(mailbox)? }
        }
        Their::Idle => CommandBody::Idle,
        Their::Enable { capabilities } => CommandBody::Enable(
            capabilities.as_ref().iter().map(|name| name.to_string().to_ascii_uppercase()).collect(),
        ),
        Their::Id { parameters } => CommandBody::Id(parameters.as_ref().map(|fields| {
            let lossy = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
            let pair = |(field, value): &(imap_codec::imap_types::core::IString<'_>, _)| {
                let value: &imap_codec::imap_types::core::NString<'_> = value;
                (lossy(field.as_ref()), value.0.as_ref().map(|value| lossy(value.as_ref())))
            };
            fields.iter().map(pair).collect()
        })),
        Their::Namespace => CommandBody::Namespace,
        other => panic!("not translated: {other:?}"),
    })
}

fn numbers(uid: bool) -> Numbers {
    if uid { Numbers::Uid } else { Numbers::Sequence }
}

fn raw(mailbox: &Mailbox<'_>) -> Vec<u8> {
    match mailbox {
        Mailbox::Inbox => b"INBOX".to_vec(),
        Mailbox::Other(other) => other.as_ref().to_vec(),
    }
}

fn wildcard<'a>(mailbox: &'a ListMailbox<'_>) -> &'a [u8] {
    match mailbox {
        ListMailbox::Token(token) => token.as_ref(),
        ListMailbox::String(string) => string.as_ref(),
    }
}

fn inbox(name: String) -> String {
    match name.split_once('/') {
        Some((first, rest)) if first.eq_ignore_ascii_case("INBOX") => format!("INBOX/{rest}"),
        None if name.eq_ignore_ascii_case("INBOX") => "INBOX".to_owned(),
        _ => name,
    }
}

fn name(mailbox: &Mailbox<'_>) -> Translated<String> {
    let name = mutf7::decode(&raw(mailbox)).ok_or(ParseErrorKind::MailboxName)?;
    if name.chars().any(char::is_control) {
        return Err(ParseErrorKind::MailboxName);
    }
    Ok(inbox(name))
}

fn pattern(raw: &[u8]) -> String {
    inbox(mutf7::decode(raw).unwrap_or_else(|| String::from_utf8_lossy(raw).into_owned()))
}

fn flag_names(flags: &[Flag<'_>]) -> Translated<FlagNames> {
    let mut names = FlagNames::default();
    for flag in flags {
        let system = match flag {
            Flag::Answered => Flags::ANSWERED,
            Flag::Deleted => Flags::DELETED,
            Flag::Draft => Flags::DRAFT,
            Flag::Flagged => Flags::FLAGGED,
            Flag::Seen => Flags::SEEN,
            Flag::Extension(_) => return Err(ParseErrorKind::Syntax),
            Flag::Keyword(keyword) => {
                let keyword = keyword.as_ref();
                if !names.keywords.iter().any(|known| known.eq_ignore_ascii_case(keyword)) {
                    names.keywords.push(keyword.to_owned());
                }
                continue;
            }
        };
        names.system = names.system.union(system);
    }
    Ok(names)
}

fn set(theirs: &TheirSet) -> SequenceSet {
    let number = |number: &SeqOrUid| match number {
        SeqOrUid::Value(number) => SeqNo::Number(*number),
        SeqOrUid::Asterisk => SeqNo::Last,
    };
    SequenceSet(
        theirs
            .0
            .as_ref()
            .iter()
            .map(|sequence| match sequence {
                Sequence::Single(a) => (number(a), number(a)),
                Sequence::Range(a, b) => (number(a), number(b)),
            })
            .collect(),
    )
}

fn fetch_item(theirs: &MessageDataItemName<'_>) -> FetchItem {
    match theirs {
        MessageDataItemName::Body => FetchItem::Body,
        MessageDataItemName::BodyStructure => FetchItem::BodyStructure,
        MessageDataItemName::Envelope => FetchItem::Envelope,
        MessageDataItemName::Flags => FetchItem::Flags,
        MessageDataItemName::InternalDate => FetchItem::InternalDate,
        MessageDataItemName::Rfc822 => FetchItem::Rfc822,
        MessageDataItemName::Rfc822Header => FetchItem::Rfc822Header,
        MessageDataItemName::Rfc822Size => FetchItem::Size,
        MessageDataItemName::Rfc822Text => FetchItem::Rfc822Text,
        MessageDataItemName::Uid => FetchItem::Uid,
        MessageDataItemName::BodyExt { section, partial, peek } => FetchItem::Section {
            peek: *peek,
            section: section.as_ref().map(self::section).unwrap_or_default(),
            partial: partial
                .map(|(offset, octets)| Partial { offset: u64::from(offset), octets: u64::from(octets.get()) }),
        },
        other => panic!("not translated: {other:?}"),
    }
}

fn section(theirs: &TheirSection<'_>) -> Section {
    let part = |part: &Option<Part>| part.as_ref().map(|part| part.0.as_ref().to_vec()).unwrap_or_default();
    let fields =
        |fields: &[AString<'_>]| fields.iter().map(|field| String::from_utf8_lossy(field.as_ref()).into()).collect();
    match theirs {
        TheirSection::Part(numbers) => Section { part: numbers.0.as_ref().to_vec(), text: SectionText::All },
        TheirSection::Mime(numbers) => Section { part: numbers.0.as_ref().to_vec(), text: SectionText::Mime },
        TheirSection::Header(numbers) => Section { part: part(numbers), text: SectionText::Header },
        TheirSection::Text(numbers) => Section { part: part(numbers), text: SectionText::Text },
        TheirSection::HeaderFields(numbers, names) => {
            Section { part: part(numbers), text: SectionText::HeaderFields(fields(names.as_ref())) }
        }
        TheirSection::HeaderFieldsNot(numbers, names) => {
            Section { part: part(numbers), text: SectionText::HeaderFieldsNot(fields(names.as_ref())) }
        }
    }
}

fn key(theirs: &TheirKey<'_>) -> Translated<SearchKey> {
    let system = |system| FlagNames { system, keywords: Vec::new() };
    let keyword = |name: &str| FlagNames { system: Flags::default(), keywords: vec![name.to_owned()] };
    let text =
        |text: &AString<'_>| std::str::from_utf8(text.as_ref()).map(str::to_owned).map_err(|_| ParseErrorKind::Charset);
    let header =
        |field: &str, value: &AString<'_>| Ok(SearchKey::Header { field: field.to_owned(), text: text(value)? });
    let day = |date: &imap_codec::imap_types::datetime::NaiveDate| {
        date.as_ref().to_string().parse().map_err(|_| ParseErrorKind::Syntax)
    };
    Ok(match theirs {
        TheirKey::And(keys) => SearchKey::And(keys.as_ref().iter().map(key).collect::<Translated<_>>()?),
        TheirKey::Or(a, b) => SearchKey::Or(vec![key(a)?, key(b)?]),
        TheirKey::Not(inner) => SearchKey::Not(Box::new(key(inner)?)),
        TheirKey::SequenceSet(numbers) => SearchKey::Sequence(set(numbers)),
        TheirKey::Uid(numbers) => SearchKey::Uid(set(numbers)),
        TheirKey::All => SearchKey::All,
        TheirKey::Answered => SearchKey::Flag(system(Flags::ANSWERED)),
        TheirKey::Deleted => SearchKey::Flag(system(Flags::DELETED)),
        TheirKey::Draft => SearchKey::Flag(system(Flags::DRAFT)),
        TheirKey::Flagged => SearchKey::Flag(system(Flags::FLAGGED)),
        TheirKey::Seen => SearchKey::Flag(system(Flags::SEEN)),
        TheirKey::Unanswered => SearchKey::NotFlag(system(Flags::ANSWERED)),
        TheirKey::Undeleted => SearchKey::NotFlag(system(Flags::DELETED)),
        TheirKey::Undraft => SearchKey::NotFlag(system(Flags::DRAFT)),
        TheirKey::Unflagged => SearchKey::NotFlag(system(Flags::FLAGGED)),
        TheirKey::Unseen => SearchKey::NotFlag(system(Flags::SEEN)),
        TheirKey::Keyword(name) => SearchKey::Flag(keyword(name.as_ref())),
        TheirKey::Unkeyword(name) => SearchKey::NotFlag(keyword(name.as_ref())),
        TheirKey::New => SearchKey::New,
        TheirKey::Old => SearchKey::Old,
        TheirKey::Recent => SearchKey::Recent,
        TheirKey::Before(date) => SearchKey::Before(day(date)?),
        TheirKey::On(date) => SearchKey::On(day(date)?),
        TheirKey::Since(date) => SearchKey::Since(day(date)?),
        TheirKey::SentBefore(date) => SearchKey::SentBefore(day(date)?),
        TheirKey::SentOn(date) => SearchKey::SentOn(day(date)?),
        TheirKey::SentSince(date) => SearchKey::SentSince(day(date)?),
        TheirKey::Larger(octets) => SearchKey::Larger(u64::from(*octets)),
        TheirKey::Smaller(octets) => SearchKey::Smaller(u64::from(*octets)),
        TheirKey::Bcc(value) => header("Bcc", value)?,
        TheirKey::Cc(value) => header("Cc", value)?,
        TheirKey::From(value) => header("From", value)?,
        TheirKey::Subject(value) => header("Subject", value)?,
        TheirKey::To(value) => header("To", value)?,
        TheirKey::Header(field, value) => SearchKey::Header { field: text(field)?, text: text(value)? },
        TheirKey::Body(value) => SearchKey::Body(text(value)?),
        TheirKey::Text(value) => SearchKey::Text(text(value)?),
        other => panic!("not translated: {other:?}"),
    })
}
