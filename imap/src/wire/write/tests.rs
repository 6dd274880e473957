use std::num::NonZeroU32;

use posthouse_storage::message::{Address, Envelope, Part, PartKind};
use proptest::prelude::*;

use super::super::bodystructure;
use super::super::command::{FetchItem, Partial, Section, SectionText};
use super::*;

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

fn keywords(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|&name| name.into()).collect()
}

fn uid(number: u32) -> Uid {
    Uid(NonZeroU32::new(number).unwrap())
}

#[test]
fn status_responses() {
    let pairs: Vec<(Uid, Uid)> =
        [(1, 10), (2, 11), (3, 12), (7, 13), (9, 20)].map(|(old, new)| (uid(old), uid(new))).to_vec();
    let junk = keywords(&["$Junk"]);
    for (code, line) in [
        (None, "a OK Done\r\n"),
        (Some(Code::Word("READ-ONLY")), "a OK [READ-ONLY] Done\r\n"),
        (Some(Code::Capability(&["IMAP4rev1", "IDLE"])), "a OK [CAPABILITY IMAP4rev1 IDLE] Done\r\n"),
        (
            Some(Code::PermanentFlags { keywords: &junk, more: true }),
            "a OK [PERMANENTFLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft $Junk \\*)] Done\r\n",
        ),
        (Some(Code::NoPermanentFlags), "a OK [PERMANENTFLAGS ()] Done\r\n"),
        (Some(Code::UidNext(7)), "a OK [UIDNEXT 7] Done\r\n"),
        (Some(Code::UidValidity(u32::MAX)), "a OK [UIDVALIDITY 4294967295] Done\r\n"),
        (Some(Code::Unseen(3)), "a OK [UNSEEN 3] Done\r\n"),
        (Some(Code::AppendUid { uid_validity: 5, uid: 6 }), "a OK [APPENDUID 5 6] Done\r\n"),
        (Some(Code::CopyUid { uid_validity: 5, pairs: &pairs }), "a OK [COPYUID 5 1:3,7,9 10:13,20] Done\r\n"),
        (Some(Code::BadCharset), "a OK [BADCHARSET (US-ASCII UTF-8)] Done\r\n"),
    ] {
        assert_eq!(text(|out| tagged(out, "a", Status::Ok, code, "Done")), line);
    }
    assert_eq!(text(|out| untagged(out, Status::Bye, None, "x\r\ny\u{e4}")), "* BYE x??y?\r\n");
    assert_eq!(text(|out| untagged(out, Status::PreAuth, None, "")), "* PREAUTH Done\r\n");
    assert_eq!(text(|out| tagged(out, "a", Status::No, None, "x")), "a NO x\r\n");
    assert_eq!(text(|out| tagged(out, "a", Status::Bad, None, "x")), "a BAD x\r\n");
}

#[test]
fn lines() {
    let none: [&str; 0] = [];
    assert_eq!(text(|out| continuation(out, "idling")), "+ idling\r\n");
    assert_eq!(text(|out| capability(out, &["IMAP4rev1"])), "* CAPABILITY IMAP4rev1\r\n");
    assert_eq!(text(|out| enabled(out, &none)), "* ENABLED\r\n");
    assert_eq!(text(|out| id(out, &[("name", "Posthouse")])), "* ID (\"name\" \"Posthouse\")\r\n");
    assert_eq!(text(|out| namespace(out, '/')), "* NAMESPACE ((\"\" \"/\")) NIL NIL\r\n");
    assert_eq!(text(|out| exists(out, 0)), "* 0 EXISTS\r\n");
    assert_eq!(text(|out| recent(out, 12)), "* 12 RECENT\r\n");
    assert_eq!(text(|out| expunge(out, 123)), "* 123 EXPUNGE\r\n");
    assert_eq!(text(|out| flags(out, &[])), "* FLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft)\r\n");
    assert_eq!(text(|out| search(out, [])), "* SEARCH\r\n");
    assert_eq!(text(|out| search(out, [2, 84, 882])), "* SEARCH 2 84 882\r\n");
    let items = [(StatusItem::Messages, 3), (StatusItem::Size, 5_000_000_000)];
    assert_eq!(text(|out| status(out, "a b", &items, false)), "* STATUS \"a b\" (MESSAGES 3 SIZE 5000000000)\r\n");
}

#[test]
fn mailbox_names() {
    for (name, utf8, written) in [
        ("INBOX", false, "INBOX"),
        ("a/b]c", false, "a/b]c"),
        ("", false, "\"\""),
        ("nil", false, "\"nil\""),
        ("a b", false, "\"a b\""),
        ("a\"b\\", false, "\"a\\\"b\\\\\""),
        ("a%", false, "\"a%\""),
        ("a&b", false, "a&-b"),
        ("a&b", true, "a&b"),
        ("Entw\u{fc}rfe", false, "Entw&APw-rfe"),
        ("Entw\u{fc}rfe", true, "\"Entw\u{fc}rfe\""),
        ("\u{fc} x", false, "\"&APw- x\""),
    ] {
        assert_eq!(text(|out| mailbox(out, name, utf8)), written, "{name}");
    }
    assert_eq!(
        text(|out| list(out, "LIST", &["\\HasNoChildren", "\\Sent"], Some('/'), "Sent Items", false)),
        "* LIST (\\HasNoChildren \\Sent) \"/\" \"Sent Items\"\r\n"
    );
    assert_eq!(text(|out| list(out, "LSUB", &[], None, "x", false)), "* LSUB () NIL x\r\n");
}

#[test]
fn strings() {
    let bytes = |value: &[u8]| {
        let mut out = Vec::new();
        string(&mut out, value);
        out
    };
    for (value, written) in [
        (&b""[..], &b"\"\""[..]),
        (b"x y", b"\"x y\""),
        (b"a\"b\\c", b"\"a\\\"b\\\\c\""),
        (b"\\\\\\\\\\", b"{5}\r\n\\\\\\\\\\"),
        (b"a\rb", b"{3}\r\na\rb"),
        (b"\xe4", b"{1}\r\n\xe4"),
        (b"a\0b", b"{3}\r\na\x80b"),
        (b"\t\x01", b"\"\t\x01\""),
    ] {
        assert_eq!(bytes(value), written, "{}", value.escape_ascii());
    }
    assert_eq!(bytes(&[b'x'; 1024]).len(), 1026);
    assert!(bytes(&[b'x'; 1025]).starts_with(b"{1025}\r\n"));
    assert_eq!(text(|out| nstring(out, None)), "NIL");
}

#[test]
fn flag_lists() {
    let names = keywords(&["$Forwarded", "x"]);
    let all = Flags(0x1f).union(Flags::keyword(0)).union(Flags::keyword(1)).union(Flags::SHARED);
    for (flags, recent, written) in [
        (Flags::default(), false, "()"),
        (Flags::default(), true, "(\\Recent)"),
        (Flags::SEEN, false, "(\\Seen)"),
        (all, true, "(\\Answered \\Flagged \\Deleted \\Seen \\Draft \\Recent $Forwarded x)"),
        (Flags::keyword(1).union(Flags::keyword(40)), false, "(x)"),
        (Flags::keyword(40), false, "()"),
    ] {
        assert_eq!(text(|out| flag_list(out, flags, &names, recent)), written);
    }
}

fn part(media_type: &str, subtype: &str, kind: PartKind) -> Part {
    Part {
        header: 0..10,
        body: 10..25,
        lines: 2,
        media_type: media_type.into(),
        media_subtype: subtype.into(),
        params: vec![],
        id: None,
        description: None,
        encoding: b"7bit".to_vec(),
        md5: None,
        disposition: None,
        language: vec![],
        location: None,
        kind,
    }
}

fn sample() -> (Envelope, Part) {
    let address = |name: Option<&str>, mailbox: Option<&str>, host: Option<&str>| Address {
        name: name.map(Into::into),
        route: None,
        mailbox: mailbox.map(Into::into),
        host: host.map(Into::into),
    };
    let envelope = Envelope {
        date: Some(b"Mon, 1 Jan 2024 00:00:00 +0000".to_vec()),
        subject: Some("\u{e4} raw".into()),
        from: vec![address(Some("Q \"x\""), Some("a"), Some("x.y"))],
        to: vec![address(None, Some("grp"), None), address(None, Some("b"), Some("c.d")), address(None, None, None)],
        message_id: Some(b"<m@x>".to_vec()),
        ..Envelope::default()
    };
    let mut plain = part("text", "plain", PartKind::Leaf);
    plain.params = vec![(b"format".to_vec(), b"flowed".to_vec())];
    let mut attachment = part("application", "pdf", PartKind::Leaf);
    attachment.id = Some(b"<i@d>".to_vec());
    attachment.description = Some(b"\"d\"".to_vec());
    attachment.md5 = Some(b"abc=".to_vec());
    attachment.disposition = Some((b"attachment".to_vec(), vec![(b"filename".to_vec(), b"x y".to_vec())]));
    attachment.language = vec![b"de".to_vec(), b"en".to_vec()];
    attachment.location = Some(b"http://x/".to_vec());
    let inner = part("multipart", "alternative", PartKind::Multipart(vec![]));
    let message = PartKind::Message { envelope: Box::new(Envelope::default()), root: Box::new(inner) };
    let mut root =
        part("multipart", "mixed", PartKind::Multipart(vec![plain, attachment, part("message", "rfc822", message)]));
    root.params = vec![(b"boundary".to_vec(), b"x".to_vec())];
    (envelope, root)
}

#[test]
fn envelope_as_dovecot_writes_it() {
    let (envelope, _) = sample();
    assert_eq!(
        text(|out| {
            let mut fetch = Fetch::begin(out, 3);
            fetch.envelope(&envelope);
            fetch.end();
        }),
        "* 3 FETCH (ENVELOPE (\"Mon, 1 Jan 2024 00:00:00 +0000\" {6}\r\n\u{e4} raw (({5}\r\nQ \"x\" NIL \"a\" \"x.y\")) \
         (({5}\r\nQ \"x\" NIL \"a\" \"x.y\")) (({5}\r\nQ \"x\" NIL \"a\" \"x.y\")) \
         ((NIL NIL \"grp\" NIL)(NIL NIL \"b\" \"c.d\")(NIL NIL NIL NIL)) NIL NIL NIL \"<m@x>\"))\r\n"
    );
}

#[test]
fn structures_as_dovecot_writes_them() {
    let (_, root) = sample();
    let of = |extended| {
        text(|out| {
            let mut fetch = Fetch::begin(out, 1);
            if extended {
                fetch.body_structure(&root)
            } else {
                fetch.body(&root)
            }
            fetch.end();
        })
    };
    assert_eq!(
        of(false),
        "* 1 FETCH (BODY ((\"text\" \"plain\" (\"format\" \"flowed\" \"charset\" \"us-ascii\") NIL NIL \"7bit\" 15 2)\
         (\"application\" \"pdf\" NIL \"<i@d>\" \"\\\"d\\\"\" \"7bit\" 15)\
         (\"message\" \"rfc822\" NIL NIL NIL \"7bit\" 15 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) \
         ((\"text\" \"plain\" (\"charset\" \"us-ascii\") NIL NIL \"7bit\" 0 0) \"alternative\") 2) \"mixed\"))\r\n"
    );
    assert_eq!(
        of(true),
        "* 1 FETCH (BODYSTRUCTURE ((\"text\" \"plain\" (\"format\" \"flowed\" \"charset\" \"us-ascii\") NIL NIL \"7bit\" 15 2 \
         NIL NIL NIL NIL)\
         (\"application\" \"pdf\" NIL \"<i@d>\" \"\\\"d\\\"\" \"7bit\" 15 \"abc=\" (\"attachment\" (\"filename\" \"x y\")) \
         (\"de\" \"en\") \"http://x/\")\
         (\"message\" \"rfc822\" NIL NIL NIL \"7bit\" 15 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) \
         ((\"text\" \"plain\" (\"charset\" \"us-ascii\") NIL NIL \"7bit\" 0 0 NIL NIL NIL NIL) \"alternative\" NIL NIL NIL NIL) \
         2 NIL NIL NIL NIL) \"mixed\" (\"boundary\" \"x\") NIL NIL NIL))\r\n"
    );
}

/// What only claims to be composite is told as something that a client can read.
#[test]
fn structures_that_do_not_fit_their_type() {
    let of = |part: Part| text(|out| bodystructure::write(out, &part, false));
    assert_eq!(
        of(part("multipart", "mixed", PartKind::Leaf)),
        "(\"application\" \"octet-stream\" NIL NIL NIL \"7bit\" 15)"
    );
    assert_eq!(
        of(part("message", "rfc822", PartKind::Leaf)),
        "(\"message\" \"rfc822\" NIL NIL NIL \"7bit\" 15 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) \
         (\"text\" \"plain\" (\"charset\" \"us-ascii\") NIL NIL \"7bit\" 0 0) 2)"
    );
    assert_eq!(
        of(part("text", "", PartKind::Leaf)),
        "(\"text\" \"\" (\"charset\" \"us-ascii\") NIL NIL \"7bit\" 15 2)"
    );
}

#[test]
fn fetch_answers() {
    let section = |part: &[u32], text: SectionText, offset: Option<u64>| FetchItem::Section {
        peek: true,
        section: Section { part: part.iter().map(|&number| NonZeroU32::new(number).unwrap()).collect(), text },
        partial: offset.map(|offset| Partial { offset, octets: 5 }),
    };
    let written = text(|out| {
        let mut fetch = Fetch::begin(out, 7);
        assert!(fetch.is_empty());
        fetch.uid(9);
        fetch.flags(Flags::SEEN, &[], false);
        fetch.internal_date(0);
        fetch.size(3);
        fetch.section_literal(&section(&[], SectionText::All, Some(5)), 2);
        fetch.out().extend_from_slice(b"hi");
        let fields = vec!["From".to_owned(), "X Y".to_owned()];
        fetch.section_nil(&section(&[1, 2], SectionText::HeaderFieldsNot(fields), None));
        fetch.end();
    });
    assert_eq!(
        written,
        "* 7 FETCH (UID 9 FLAGS (\\Seen) INTERNALDATE \" 1-Jan-1970 00:00:00 +0000\" RFC822.SIZE 3 BODY[]<5> {2}\r\nhi \
         BODY[1.2.HEADER.FIELDS.NOT (From \"X Y\")] NIL)\r\n"
    );
    for (item, name) in [
        (FetchItem::Rfc822, "RFC822 NIL"),
        (FetchItem::Rfc822Header, "RFC822.HEADER NIL"),
        (FetchItem::Rfc822Text, "RFC822.TEXT NIL"),
        (section(&[3], SectionText::Mime, None), "BODY[3.MIME] NIL"),
        (section(&[3], SectionText::All, None), "BODY[3] NIL"),
        (section(&[], SectionText::Header, None), "BODY[HEADER] NIL"),
        (section(&[], SectionText::HeaderFields(vec![]), None), "BODY[HEADER.FIELDS ()] NIL"),
        (section(&[2, 1], SectionText::Text, Some(0)), "BODY[2.1.TEXT]<0> NIL"),
    ] {
        assert_eq!(text(|out| Fetch::resume(out).section_nil(&item)), format!(" {name}"));
    }
}

proptest! {
    #[test]
    fn numbers(value in any::<u64>(), bits in 0u32..64) {
        let value = value >> bits;
        prop_assert_eq!(text(|out| number(out, value)), value.to_string());
    }

    /// What is written as a string is read back as the same by our own parser.
    #[test]
    fn strings_round_trip(value in proptest::collection::vec(1u8..=255, 0..40)) {
        use super::super::{command::CommandBody, parse::{ParseOptions, parse_command}};
        let mut line = b"t LOGIN x ".to_vec();
        string(&mut line, &value);
        match parse_command(&line, ParseOptions::default()).map(|command| command.body) {
            Ok(CommandBody::Login { password, .. }) => prop_assert_eq!(password.0, value),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn mailboxes_round_trip(name in "[^\\p{C}]{1,12}", utf8 in any::<bool>()) {
        use super::super::{command::CommandBody, parse::{ParseOptions, parse_command}};
        let mut line = b"t SELECT ".to_vec();
        mailbox(&mut line, &name, utf8);
        match parse_command(&line, ParseOptions { utf8 }).map(|command| command.body) {
            Ok(CommandBody::Select { mailbox }) => prop_assert!(mailbox == name || name.to_ascii_uppercase().starts_with("INBOX")),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
