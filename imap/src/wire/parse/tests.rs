use std::num::NonZeroU32;

use jiff::civil::date;
use posthouse_storage::account::{FlagChange, FlagNames, Flags};
use proptest::prelude::*;

use super::super::command::{
    Append, CommandBody as Body, FetchItem, List, ListReturn, ListSelect, Literal, Numbers, Partial, SearchKey, Secret,
    Section, SectionText, SeqNo, SequenceSet, StatusItem,
};
use super::*;

fn parse(text: &str) -> Result<Body, ParseError> {
    parse_command(format!("a1 {text}").as_bytes(), ParseOptions::default()).map(|command| {
        assert_eq!(command.tag, "a1");
        command.body
    })
}

fn ok(text: &str) -> Body {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn seq(text: &str) -> SequenceSet {
    let number = |text: &str| match text {
        "*" => SeqNo::Last,
        _ => SeqNo::Number(text.parse().unwrap()),
    };
    SequenceSet(
        text.split(',')
            .map(|range| match range.split_once(':') {
                Some((a, b)) => (number(a), number(b)),
                None => (number(range), number(range)),
            })
            .collect(),
    )
}

fn system(flags: Flags) -> FlagNames {
    FlagNames { system: flags, keywords: Vec::new() }
}

fn search(text: &str) -> SearchKey {
    match ok(&format!("SEARCH {text}")) {
        Body::Search { numbers: Numbers::Sequence, charset: None, key } => key,
        other => panic!("{text}: {other:?}"),
    }
}

fn fetch(text: &str) -> Vec<FetchItem> {
    match ok(&format!("FETCH 1 {text}")) {
        Body::Fetch { numbers: Numbers::Sequence, items, .. } => items,
        other => panic!("{text}: {other:?}"),
    }
}

fn section(part: &[u32], text: SectionText) -> FetchItem {
    let part = part.iter().map(|&number| NonZeroU32::new(number).unwrap()).collect();
    FetchItem::Section { peek: false, section: Section { part, text }, partial: None }
}

fn header(field: &str, text: &str) -> SearchKey {
    SearchKey::Header { field: field.into(), text: text.into() }
}

#[test]
fn commands_without_arguments() {
    for (text, body) in [
        ("CAPABILITY", Body::Capability),
        ("noop", Body::Noop),
        ("NoOp  ", Body::Noop),
        ("LOGOUT", Body::Logout),
        ("STARTTLS", Body::StartTls),
        ("IDLE", Body::Idle),
        ("CHECK", Body::Check),
        ("CLOSE", Body::Close),
        ("UNSELECT", Body::Unselect),
        ("EXPUNGE", Body::Expunge { uids: None }),
        ("UID EXPUNGE 1:3,*", Body::Expunge { uids: Some(seq("1:3,*")) }),
        ("NAMESPACE", Body::Namespace),
    ] {
        assert_eq!(ok(text), body, "{text}");
    }
}

#[test]
fn login_and_authenticate() {
    let login = |user: &[u8], password: &[u8]| Body::Login { user: user.into(), password: Secret(password.into()) };
    for (text, body) in [
        ("LOGIN alice secret", login(b"alice", b"secret")),
        ("login \"alice\" \"se\\\"c\\\\ret\"", login(b"alice", b"se\"c\\ret")),
        ("LOGIN a@b.c \"\"", login(b"a@b.c", b"")),
        ("LOGIN \"\" \"\"", login(b"", b"")),
        ("LOGIN a]b p]w", login(b"a]b", b"p]w")),
        ("LOGIN {5}\r\nalice {3+}\r\nx y", login(b"alice", b"x y")),
        ("LOGIN {1}\r\na {2}\r\nb ", login(b"a", b"b ")),
        ("LOGIN {0}\r\n {0+}\r\n", login(b"", b"")),
        ("LOGIN a \"p\u{e4}ss\"", login(b"a", "p\u{e4}ss".as_bytes())),
    ] {
        assert_eq!(ok(text), body, "{text}");
    }
    let plain = |initial: Option<&[u8]>| Body::Authenticate {
        mechanism: "PLAIN".into(),
        initial: initial.map(|initial| Secret(initial.into())),
    };
    assert_eq!(ok("AUTHENTICATE PLAIN"), plain(None));
    assert_eq!(ok("authenticate plain AGEAYg=="), plain(Some(b"AGEAYg==")));
    assert_eq!(ok("AUTHENTICATE PLAIN ="), plain(Some(b"=")));
    for text in [
        "LOGIN a",
        "LOGIN a hunter2 hunter2",
        "LOGIN a \"hunter2",
        "AUTHENTICATE PLAIN hunter2 hunter2",
        "AUTHENTICATE",
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.tag.as_deref(), error.kind), (Some("a1"), ParseErrorKind::Syntax));
        assert!(!error.text.contains("hunter2"), "{}", error.text);
    }
    assert!(!format!("{:?}", ok("LOGIN a hunter2")).contains("hunter2"));
}

#[test]
fn id_and_enable() {
    assert_eq!(ok("ID NIL"), Body::Id(None));
    assert_eq!(ok("ID nil"), Body::Id(None));
    assert_eq!(ok("ID ()"), Body::Id(Some(vec![])));
    assert_eq!(
        ok("ID (\"name\" \"x y\" \"version\" NIL)"),
        Body::Id(Some(vec![("name".into(), Some("x y".into())), ("version".into(), None)]))
    );
    assert_eq!(ok("ENABLE condstore X"), Body::Enable(vec!["CONDSTORE".into(), "X".into()]));
}

#[test]
fn mailbox_commands() {
    let name = |name: &str| name.to_owned();
    for (text, body) in [
        ("SELECT INBOX", Body::Select { mailbox: name("INBOX") }),
        ("SELECT inbox", Body::Select { mailbox: name("INBOX") }),
        ("SELECT \"InBox\"", Body::Select { mailbox: name("INBOX") }),
        ("SELECT inbox/Sub", Body::Select { mailbox: name("INBOX/Sub") }),
        ("SELECT inboxes", Body::Select { mailbox: name("inboxes") }),
        ("SELECT {7}\r\nTrash x", Body::Select { mailbox: name("Trash x") }),
        ("EXAMINE \"a b\"", Body::Examine { mailbox: name("a b") }),
        ("SELECT Entw&APw-rfe", Body::Select { mailbox: name("Entw\u{fc}rfe") }),
        ("CREATE \"a&-b/\"", Body::Create { mailbox: name("a&b/") }),
        ("DELETE &U,BTFw-/&ZeVnLIqe-", Body::Delete { mailbox: name("\u{53f0}\u{5317}/\u{65e5}\u{672c}\u{8a9e}") }),
        ("RENAME a \"b c\"", Body::Rename { from: name("a"), to: name("b c") }),
        ("RENAME inbox old", Body::Rename { from: name("INBOX"), to: name("old") }),
        ("SUBSCRIBE x", Body::Subscribe { mailbox: name("x") }),
        ("UNSUBSCRIBE x", Body::Unsubscribe { mailbox: name("x") }),
        ("LSUB \"\" *", Body::Lsub { reference: name(""), pattern: name("*") }),
        ("LSUB a/ \"%\"", Body::Lsub { reference: name("a/"), pattern: name("%") }),
        ("STATUS INBOX (MESSAGES)", Body::Status { mailbox: name("INBOX"), items: vec![StatusItem::Messages] }),
        (
            "STATUS x (messages RECENT UIDNEXT UIDVALIDITY UNSEEN DELETED SIZE MESSAGES)",
            Body::Status {
                mailbox: name("x"),
                items: vec![
                    StatusItem::Messages,
                    StatusItem::Recent,
                    StatusItem::UidNext,
                    StatusItem::UidValidity,
                    StatusItem::Unseen,
                    StatusItem::Deleted,
                    StatusItem::Size,
                ],
            },
        ),
    ] {
        assert_eq!(ok(text), body, "{text}");
    }
    for text in ["SELECT a&", "CREATE &AGE-", "STATUS \"\u{fc}\" (MESSAGES)", "SELECT {1}\r\n\u{1}", "DELETE &AAE-"] {
        assert_eq!(parse(text).unwrap_err().kind, ParseErrorKind::MailboxName, "{text}");
    }
    let utf8 = ParseOptions { utf8: true };
    let parsed = parse_command("a SELECT \"\u{fc} &x\"".as_bytes(), utf8).unwrap();
    assert_eq!(parsed.body, Body::Select { mailbox: "\u{fc} &x".into() });
    assert_eq!(parse_command(b"a SELECT \"\xff\"", utf8).unwrap_err().kind, ParseErrorKind::MailboxName);
}

#[test]
fn list() {
    let basic = |reference: &str, pattern: &str| List {
        reference: reference.into(),
        patterns: vec![pattern.into()],
        ..List::default()
    };
    let special = ListSelect { special_use: true, ..ListSelect::default() };
    for (text, list) in [
        ("LIST \"\" *", basic("", "*")),
        ("LIST \"\" \"\"", basic("", "")),
        ("LIST a/ %/b*", basic("a/", "%/b*")),
        ("LIST \"\" inbox", basic("", "INBOX")),
        ("LIST \"\" {1}\r\n*", basic("", "*")),
        ("LIST \"\" &AOQ-*", basic("", "\u{e4}*")),
        ("LIST \"\" a&", basic("", "a&")),
        ("LIST (SPECIAL-USE) \"\" *", List { select: special, extended: true, ..basic("", "*") }),
        ("LIST () \"\" *", List { extended: true, ..basic("", "*") }),
        (
            "LIST (SUBSCRIBED RECURSIVEMATCH REMOTE) \"\" (INBOX \"Sent*\")",
            List {
                reference: String::new(),
                patterns: vec!["INBOX".into(), "Sent*".into()],
                select: ListSelect { subscribed: true, recursive_match: true, remote: true, special_use: false },
                returns: ListReturn::default(),
                extended: true,
            },
        ),
        (
            "LIST \"\" \"*\" RETURN (SPECIAL-USE CHILDREN SUBSCRIBED STATUS (MESSAGES UNSEEN))",
            List {
                returns: ListReturn {
                    subscribed: true,
                    children: true,
                    special_use: true,
                    status: vec![StatusItem::Messages, StatusItem::Unseen],
                },
                extended: true,
                ..basic("", "*")
            },
        ),
        ("LIST \"\" % RETURN ()", List { extended: true, ..basic("", "%") }),
    ] {
        assert_eq!(ok(text), Body::List(list), "{text}");
    }
}

#[test]
fn append() {
    let literal = |size, synchronizing, binary| Literal { size, synchronizing, binary };
    let plain = Append {
        mailbox: "INBOX".into(),
        flags: FlagNames::default(),
        received_at_ms: None,
        literal: literal(310, true, false),
    };
    let flags = FlagNames { system: Flags::SEEN.union(Flags::DRAFT), keywords: vec!["$MDNSent".into()] };
    for (text, append) in [
        ("APPEND INBOX {310}", plain.clone()),
        ("append inbox {310+}", Append { literal: literal(310, false, false), ..plain.clone() }),
        ("APPEND INBOX () ~{310}", Append { literal: literal(310, true, true), ..plain.clone() }),
        ("APPEND INBOX (\\Seen $MDNSent \\draft) {310}", Append { flags: flags.clone(), ..plain.clone() }),
        (
            "APPEND {6}\r\nSent x \" 7-Feb-1994 21:52:25 -0800\" {5000000000}",
            Append {
                mailbox: "Sent x".into(),
                received_at_ms: Some(760_686_745_000),
                literal: literal(5_000_000_000, true, false),
                ..plain.clone()
            },
        ),
        (
            "APPEND \"a\" (\\Seen \\Draft $MDNSent) \"17-Jul-1996 02:44:25 -0700\" {3+}\r\nabc",
            Append {
                mailbox: "a".into(),
                flags,
                received_at_ms: Some(837_596_665_000),
                literal: literal(3, false, false),
            },
        ),
    ] {
        assert_eq!(ok(text), Body::Append(append), "{text}");
    }
}

#[test]
fn fetch_items() {
    use FetchItem::*;
    let fields = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    for (text, items) in [
        ("FLAGS", vec![Flags]),
        ("(flags)", vec![Flags]),
        ("( UID  FLAGS )", vec![Uid, Flags]),
        ("(UID FLAGS UID)", vec![Uid, Flags]),
        ("ALL", vec![Flags, InternalDate, Size, Envelope]),
        ("full", vec![Flags, InternalDate, Size, Envelope, Body]),
        ("FAST", vec![Flags, InternalDate, Size]),
        ("(BODY BODYSTRUCTURE ENVELOPE)", vec![Body, BodyStructure, Envelope]),
        ("(RFC822 RFC822.HEADER RFC822.TEXT RFC822.SIZE)", vec![Rfc822, Rfc822Header, Rfc822Text, Size]),
        ("(INTERNALDATE)", vec![InternalDate]),
        ("BODY[]", vec![section(&[], SectionText::All)]),
        ("BODY[1]", vec![section(&[1], SectionText::All)]),
        ("body[1.20.3]", vec![section(&[1, 20, 3], SectionText::All)]),
        ("BODY[HEADER]", vec![section(&[], SectionText::Header)]),
        ("BODY[TEXT]", vec![section(&[], SectionText::Text)]),
        ("BODY[1.mime]", vec![section(&[1], SectionText::Mime)]),
        ("BODY[2.1.HEADER]", vec![section(&[2, 1], SectionText::Header)]),
        ("BODY[2.TEXT]", vec![section(&[2], SectionText::Text)]),
        (
            "BODY[HEADER.FIELDS (Date \"From\" {2}\r\nTo)]",
            vec![section(&[], SectionText::HeaderFields(fields(&["Date", "From", "To"])))],
        ),
        ("BODY[HEADER.FIELDS ()]", vec![section(&[], SectionText::HeaderFields(vec![]))]),
        ("BODY[1.HEADER.FIELDS.NOT (X)]", vec![section(&[1], SectionText::HeaderFieldsNot(fields(&["X"])))]),
        (
            "BODY.PEEK[TEXT]<10.20>",
            vec![Section {
                peek: true,
                section: super::super::command::Section { part: vec![], text: SectionText::Text },
                partial: Some(Partial { offset: 10, octets: 20 }),
            }],
        ),
        (
            "BODY[]<0>",
            vec![Section {
                peek: false,
                section: super::super::command::Section::default(),
                partial: Some(Partial { offset: 0, octets: u64::MAX }),
            }],
        ),
        ("(BODY[1] BODY[2])", vec![section(&[1], SectionText::All), section(&[2], SectionText::All)]),
    ] {
        assert_eq!(fetch(text), items, "{text}");
    }
    assert!(fetch("BODY[]")[0].sets_seen() && fetch("RFC822")[0].sets_seen());
    assert!(!fetch("BODY.PEEK[]")[0].sets_seen() && !fetch("RFC822.HEADER")[0].sets_seen());
    let uid = CommandBody::Fetch { numbers: Numbers::Uid, set: seq("5:*,3"), items: vec![Flags] };
    assert_eq!(ok("UID FETCH 5:*,3 FLAGS"), uid);
    assert_eq!(ok("uid  fetch  5:*,3  (FLAGS) "), uid);
}

#[test]
fn store_copy_move() {
    let store =
        |change, silent, flags| Body::Store { numbers: Numbers::Sequence, set: seq("1"), change, silent, flags };
    let seen = system(Flags::SEEN);
    for (text, body) in [
        ("STORE 1 FLAGS (\\Seen)", store(FlagChange::Replace, false, seen.clone())),
        ("STORE 1 FLAGS.SILENT \\Seen", store(FlagChange::Replace, true, seen.clone())),
        ("STORE 1 +FLAGS (\\sEEN)", store(FlagChange::Add, false, seen.clone())),
        ("STORE 1 +flags.silent \\Seen", store(FlagChange::Add, true, seen.clone())),
        ("STORE 1 -FLAGS (\\Seen)", store(FlagChange::Remove, false, seen.clone())),
        ("STORE 1 -FLAGS.SILENT (\\Seen)", store(FlagChange::Remove, true, seen)),
        ("STORE 1 FLAGS ()", store(FlagChange::Replace, false, FlagNames::default())),
        (
            "STORE 1 +FLAGS \\Deleted \\Flagged \\Answered $Forwarded junk JUNK",
            store(
                FlagChange::Add,
                false,
                FlagNames {
                    system: Flags::DELETED.union(Flags::FLAGGED).union(Flags::ANSWERED),
                    keywords: vec!["$Forwarded".into(), "junk".into()],
                },
            ),
        ),
        (
            "UID STORE 7 -FLAGS x",
            Body::Store {
                numbers: Numbers::Uid,
                set: seq("7"),
                change: FlagChange::Remove,
                silent: false,
                flags: FlagNames { system: Flags::default(), keywords: vec!["x".into()] },
            },
        ),
        ("COPY 2:4 x", Body::Copy { numbers: Numbers::Sequence, set: seq("2:4"), mailbox: "x".into() }),
        ("UID COPY * inbox", Body::Copy { numbers: Numbers::Uid, set: seq("*"), mailbox: "INBOX".into() }),
        ("MOVE 1,2,3 \"x y\"", Body::Move { numbers: Numbers::Sequence, set: seq("1,2,3"), mailbox: "x y".into() }),
        ("UID MOVE 4294967295 x", Body::Move { numbers: Numbers::Uid, set: seq("4294967295"), mailbox: "x".into() }),
    ] {
        assert_eq!(ok(text), body, "{text}");
    }
}

#[test]
fn search_keys() {
    let keyword = |name: &str| FlagNames { system: Flags::default(), keywords: vec![name.into()] };
    let day = date(1994, 2, 1);
    for (text, key) in [
        ("ALL", SearchKey::All),
        ("ANSWERED", SearchKey::Flag(system(Flags::ANSWERED))),
        ("deleted", SearchKey::Flag(system(Flags::DELETED))),
        ("DRAFT", SearchKey::Flag(system(Flags::DRAFT))),
        ("FLAGGED", SearchKey::Flag(system(Flags::FLAGGED))),
        ("SEEN", SearchKey::Flag(system(Flags::SEEN))),
        ("UNANSWERED", SearchKey::NotFlag(system(Flags::ANSWERED))),
        ("UNDELETED", SearchKey::NotFlag(system(Flags::DELETED))),
        ("UNDRAFT", SearchKey::NotFlag(system(Flags::DRAFT))),
        ("UNFLAGGED", SearchKey::NotFlag(system(Flags::FLAGGED))),
        ("UNSEEN", SearchKey::NotFlag(system(Flags::SEEN))),
        ("KEYWORD $Junk", SearchKey::Flag(keyword("$Junk"))),
        ("UNKEYWORD x", SearchKey::NotFlag(keyword("x"))),
        ("NEW", SearchKey::New),
        ("OLD", SearchKey::Old),
        ("RECENT", SearchKey::Recent),
        ("BEFORE 1-Feb-1994", SearchKey::Before(day)),
        ("ON \"01-feb-1994\"", SearchKey::On(day)),
        ("SINCE 1-Feb-1994", SearchKey::Since(day)),
        ("SENTBEFORE 1-Feb-1994", SearchKey::SentBefore(day)),
        ("SENTON 1-Feb-1994", SearchKey::SentOn(day)),
        ("SENTSINCE 1-Feb-1994", SearchKey::SentSince(day)),
        ("LARGER 5000000000", SearchKey::Larger(5_000_000_000)),
        ("SMALLER 0", SearchKey::Smaller(0)),
        ("BCC x", header("Bcc", "x")),
        ("CC x", header("Cc", "x")),
        ("FROM \"x y\"", header("From", "x y")),
        ("SUBJECT {2}\r\n()", header("Subject", "()")),
        ("SUBJECT \"\u{e4}\"", header("Subject", "\u{e4}")),
        ("TO x", header("To", "x")),
        ("HEADER Message-ID \"<a@b>\"", header("Message-ID", "<a@b>")),
        ("HEADER X-Foo \"\"", header("X-Foo", "")),
        ("BODY x", SearchKey::Body("x".into())),
        ("TEXT x", SearchKey::Text("x".into())),
        ("1:5,9", SearchKey::Sequence(seq("1:5,9"))),
        ("*", SearchKey::Sequence(seq("*"))),
        ("UID 3:*", SearchKey::Uid(seq("3:*"))),
        ("NOT ALL", SearchKey::Not(Box::new(SearchKey::All))),
        ("NOT NOT ALL", SearchKey::All),
        ("NOT NOT NOT NEW", SearchKey::Not(Box::new(SearchKey::New))),
        ("(ALL)", SearchKey::All),
        ("((( ALL )))", SearchKey::All),
        ("ALL NEW", SearchKey::And(vec![SearchKey::All, SearchKey::New])),
        ("(ALL NEW) OLD", SearchKey::And(vec![SearchKey::And(vec![SearchKey::All, SearchKey::New]), SearchKey::Old])),
        ("OR NEW OLD", SearchKey::Or(vec![SearchKey::New, SearchKey::Old])),
        ("OR NEW OR OLD ALL", SearchKey::Or(vec![SearchKey::New, SearchKey::Old, SearchKey::All])),
        ("OR OR NEW OLD ALL", SearchKey::Or(vec![SearchKey::New, SearchKey::Old, SearchKey::All])),
        (
            "OR (NEW OLD) ALL RECENT",
            SearchKey::And(vec![
                SearchKey::Or(vec![SearchKey::And(vec![SearchKey::New, SearchKey::Old]), SearchKey::All]),
                SearchKey::Recent,
            ]),
        ),
        (
            "NOT OR NEW NOT OLD",
            SearchKey::Not(Box::new(SearchKey::Or(vec![SearchKey::New, SearchKey::Not(Box::new(SearchKey::Old))]))),
        ),
    ] {
        assert_eq!(search(text), key, "{text}");
    }
    assert_eq!(
        ok("UID SEARCH CHARSET utf-8 TEXT \"\u{4e2d}\""),
        Body::Search { numbers: Numbers::Uid, charset: Some("UTF-8".into()), key: SearchKey::Text("\u{4e2d}".into()) }
    );
}

/// What is refused, how, and that the text names what is wrong.
#[test]
fn refused() {
    use ParseErrorKind::*;
    for (text, kind, said) in [
        ("", Syntax, "Missing a command"),
        ("FOO", UnknownCommand, "FOO"),
        ("UID NOOP", UnknownCommand, "NOOP"),
        ("UID", Syntax, "Missing a command after UID"),
        ("NOOP x", Syntax, "Unexpected x"),
        ("CAPABILITY ()", Syntax, "Unexpected ("),
        ("SELECT", Syntax, "mailbox name"),
        ("SELECT a b", Syntax, "Unexpected b"),
        ("SELECT a (CONDSTORE)", Syntax, "(CONDSTORE)"),
        ("SELECT \"a", Syntax, "not closed"),
        ("SELECT a\rb", Syntax, "Unexpected"),
        ("SELECT \"a\nb\"", Syntax, "control character"),
        ("SELECT {5}\r\nabc", Syntax, "not complete"),
        ("SELECT {3}", Syntax, "not complete"),
        ("SELECT ~{3}\r\nabc", Syntax, "binary"),
        ("SELECT {3}\r\na\0b", Syntax, "NUL"),
        ("SELECT (a)", Syntax, "mailbox name"),
        ("RENAME a", Syntax, "Missing a mailbox name"),
        ("STATUS INBOX", Syntax, "status items"),
        ("STATUS INBOX ()", Syntax, "empty"),
        ("STATUS INBOX (FOO)", Syntax, "FOO"),
        ("STATUS INBOX (MESSAGES", Syntax, "not closed"),
        ("STATUS INBOX MESSAGES", Syntax, "list of status items"),
        ("LIST \"\"", Syntax, "Missing a mailbox pattern"),
        ("LIST (FOO) \"\" *", Syntax, "FOO"),
        ("LIST (RECURSIVEMATCH) \"\" *", Syntax, "RECURSIVEMATCH"),
        ("LIST \"\" ()", Syntax, "empty"),
        ("LIST \"\" * RETURN", Syntax, "return options"),
        ("LIST \"\" * RETURN (FOO)", Syntax, "FOO"),
        ("LIST \"\" * FOO", Syntax, "Expected RETURN"),
        ("APPEND INBOX", Syntax, "Missing the message"),
        ("APPEND INBOX abc", Syntax, "literal"),
        ("APPEND INBOX (\\Recent) {3}", Syntax, "Recent"),
        ("APPEND INBOX \"yesterday\" {3}", Syntax, "date"),
        ("APPEND INBOX {3", Syntax, "literal"),
        ("FETCH", Syntax, "set of messages"),
        ("FETCH 1", Syntax, "what to fetch"),
        ("FETCH 1 ()", Syntax, "empty"),
        ("FETCH 0 FLAGS", Syntax, "from 1"),
        ("FETCH 4294967296 FLAGS", Syntax, "from 1"),
        ("FETCH 99999999999999999999999 FLAGS", Syntax, "too large"),
        ("FETCH 1, FLAGS", Syntax, "message number"),
        ("FETCH 1: FLAGS", Syntax, "message number"),
        ("FETCH ,1 FLAGS", Syntax, "message number"),
        ("FETCH a FLAGS", Syntax, "message number"),
        ("FETCH $ FLAGS", Syntax, "message number"),
        ("FETCH 1 FOO", Syntax, "FOO"),
        ("FETCH 1 FLAGS UID", Syntax, "UID"),
        ("FETCH 1 (FLAGS) (CHANGEDSINCE 3)", Syntax, "(CHANGEDSINCE"),
        ("FETCH 1 (ALL)", Syntax, "alone"),
        ("FETCH 1 (FLAGS", Syntax, "not closed"),
        ("FETCH 1 BODY[", Syntax, "section"),
        ("FETCH 1 BODY[1", Syntax, "Expected . or ]"),
        ("FETCH 1 BODY[1.]", Syntax, "section"),
        ("FETCH 1 BODY[0]", Syntax, "part number"),
        ("FETCH 1 BODY[MIME]", Syntax, "part number"),
        ("FETCH 1 BODY[HEADER.FIELDS]", Syntax, "header fields"),
        ("FETCH 1 BODY[HEADER.FIELDS (a]", Syntax, "not closed"),
        ("FETCH 1 BODY[FOO]", Syntax, "FOO"),
        ("FETCH 1 BODY[TEXT", Syntax, "Expected ]"),
        ("FETCH 1 BODY[]<>", Syntax, "first octet"),
        ("FETCH 1 BODY[]<1.2", Syntax, "partial"),
        ("FETCH 1 BODY.PEEK", Syntax, "brackets"),
        ("FETCH 1 RFC822[]", Syntax, "RFC822"),
        ("STORE 1", Syntax, "FLAGS"),
        ("STORE 1 FLAGS", Syntax, "Missing flags"),
        ("STORE 1 *FLAGS x", Syntax, "*FLAGS"),
        ("STORE 1 FLAGS (\\Foo)", Syntax, "\\Foo"),
        ("STORE 1 FLAGS (\\Seen", Syntax, "not closed"),
        ("STORE 1 FLAGS (a(b))", Syntax, "(b))"),
        ("STORE 1 (UNCHANGEDSINCE 1) FLAGS x", Syntax, "(UNCHANGEDSINCE"),
        ("COPY 1", Syntax, "mailbox name"),
        ("UID EXPUNGE", Syntax, "set of uids"),
        ("SEARCH", Syntax, "search key"),
        ("SEARCH FOO", Syntax, "FOO"),
        ("SEARCH ()", Syntax, "empty"),
        ("SEARCH (ALL", Syntax, "not closed"),
        ("SEARCH NOT", Syntax, "key after NOT"),
        ("SEARCH OR ALL", Syntax, "two keys"),
        ("SEARCH ALL)", Syntax, "Expected a space, found )"),
        ("SEARCH BEFORE 1-Feb-26", Syntax, "date"),
        ("SEARCH LARGER x", Syntax, "octets"),
        ("SEARCH SUBJECT", Syntax, "text"),
        ("SEARCH RETURN (ALL) ALL", Syntax, "RETURN"),
        ("SEARCH CHARSET KOI8-R TEXT x", Charset, "charset"),
        ("ID", Syntax, "fields"),
        ("ID (\"a\")", Syntax, "value"),
        ("ENABLE", Syntax, "capability"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.tag.as_deref(), error.kind), (Some("a1"), kind), "{text}: {}", error.text);
        assert!(error.text.contains(said), "{text}: {}", error.text);
        assert!(error.text.bytes().all(|octet| (0x20..0x7f).contains(&octet)), "{text}: {}", error.text);
    }
    for text in ["", " ", " NOOP", "a\"b NOOP", "+ NOOP", "a+b NOOP", "(a NOOP", "\u{e4} NOOP", "a\tNOOP"] {
        assert_eq!(parse_command(text.as_bytes(), ParseOptions::default()).unwrap_err().tag, None, "{text:?}");
    }
    let invalid = parse_command(b"a SEARCH TEXT \"\xe4\"", ParseOptions::default()).unwrap_err();
    assert_eq!(invalid.kind, Charset);
}

#[test]
fn deep_and_long_search() {
    let nested = |open: &str, close: &str, depth: usize| format!("{}ALL{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [("(", ")"), ("NOT (", ")"), ("NOT OR NEW ", "")] {
        search(&nested(open, close, 100));
        let error = parse(&format!("SEARCH {}", nested(open, close, 101))).unwrap_err();
        assert_eq!(error.kind, ParseErrorKind::Limit, "{open}");
        let error = parse(&format!("SEARCH {}", nested(open, close, 20_000))).unwrap_err();
        assert_eq!(error.kind, ParseErrorKind::Limit, "{open}");
    }
    for chain in ["OR NEW ".repeat(20_000) + "OLD", "OR ".repeat(20_000) + &"NEW ".repeat(20_000) + "OLD"] {
        match search(&chain) {
            SearchKey::Or(keys) => assert_eq!(keys.len(), 20_001),
            other => panic!("{other:?}"),
        }
    }
    search(&("NOT ".repeat(20_000) + "OLD"));
}

#[test]
fn large_sets() {
    let set: Vec<String> = (1..=10_000).map(|number| (number * 2).to_string()).collect();
    match ok(&format!("UID FETCH {} FLAGS", set.join(","))) {
        Body::Fetch { set, .. } => {
            assert_eq!(set.0.len(), 10_000);
            assert_eq!(set.resolve(30_000).len(), 10_000);
            assert_eq!(set.largest_written(), 20_000);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sets_resolve() {
    for (text, last, ranges) in [
        ("1", 9, vec![(1, 1)]),
        ("1:*", 9, vec![(1, 9)]),
        ("*", 9, vec![(9, 9)]),
        ("559:*", 9, vec![(9, 559)]),
        ("*:3", 9, vec![(3, 9)]),
        ("5:3", 9, vec![(3, 5)]),
        ("7,1:2,3,9:8", 9, vec![(1, 3), (7, 9)]),
        ("2:4,1:9,3", 9, vec![(1, 9)]),
        ("4294967295,1", 9, vec![(1, 1), (u32::MAX, u32::MAX)]),
        ("*", 0, vec![]),
        ("1:*", 0, vec![(1, 1)]),
        ("*,2", 0, vec![(2, 2)]),
    ] {
        assert_eq!(seq(text).resolve(last), ranges, "{text}");
    }
}

#[test]
fn limits_of_counts() {
    for (text, kind) in [
        (format!("STORE 1 FLAGS ({})", "k".repeat(129)), ParseErrorKind::Limit),
        (
            format!("STORE 1 FLAGS ({})", (0..129).map(|n| format!("k{n}")).collect::<Vec<_>>().join(" ")),
            ParseErrorKind::Limit,
        ),
        (format!("LIST \"\" ({})", "a ".repeat(101)), ParseErrorKind::Limit),
        (format!("ID ({})", "\"a\" \"b\" ".repeat(31)), ParseErrorKind::Limit),
        (
            format!("FETCH 1 ({})", (1..1002).map(|n| format!("BODY[{n}]")).collect::<Vec<_>>().join(" ")),
            ParseErrorKind::Limit,
        ),
    ] {
        assert_eq!(parse(&text).unwrap_err().kind, kind, "{}", &text[..30]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..200), utf8 in any::<bool>()) {
        super::parse_command(&octets, ParseOptions { utf8 }).map(drop).unwrap_or_else(drop);
    }

    /// Near misses: pieces of real commands in any order.
    #[test]
    fn any_words(words in proptest::collection::vec(prop_oneof![
        Just("UID "), Just("FETCH "), Just("SEARCH "), Just("STORE "), Just("LIST "), Just("APPEND "), Just("1:*"),
        Just(" ("), Just(")"), Just("BODY["), Just("]"), Just("<1.2>"), Just("HEADER.FIELDS"), Just("OR "), Just("NOT "),
        Just("\"a\\\""), Just("{3}\r\nabc"), Just("{9}\r\n"), Just("{1+}"), Just("\\Seen"), Just(" "), Just("&AOQ-"),
        Just("RETURN "), Just("STATUS "), Just("FLAGS"), Just("*"), Just("\""), Just("\r"), Just("1"),
    ], 0..12)) {
        let text = format!("t {}", words.concat());
        match super::parse_command(text.as_bytes(), ParseOptions::default()) {
            Ok(command) => prop_assert_eq!(command.tag, "t"),
            Err(error) => prop_assert!(error.text.bytes().all(|octet| (0x20..0x7f).contains(&octet))),
        }
    }
}
