//! The wire beside imap-codec: commands read the same, answers read back.

mod oracle;

use std::sync::Arc;

use imap_codec::ResponseCodec;
use imap_codec::decode::Decoder;
use imap_codec::imap_types::body::BodyStructure;
use imap_codec::imap_types::fetch::MessageDataItem;
use imap_codec::imap_types::response::{Data, Response, Status};
use posthouse_imap::wire::command::{FetchItem, StatusItem};
use posthouse_imap::wire::write::{self, Code, Fetch};
use posthouse_storage::account::Flags;
use posthouse_storage::message::{Address, Envelope, Part, PartKind};
use proptest::prelude::*;

/// Commands that both read, each at least once in every form.
const COMMANDS: &[&str] = &[
    "CAPABILITY",
    "NOOP",
    "LOGOUT",
    "STARTTLS",
    "LOGIN alice secret",
    "LOGIN \"al\\\"ice\" {6}\r\nsecret",
    "LOGIN {5+}\r\nalice {0+}\r\n",
    "ID NIL",
    "ID (\"name\" \"x\" \"version\" NIL)",
    "ENABLE CONDSTORE",
    "ENABLE UTF8=ACCEPT X-Y",
    "SELECT inbox",
    "SELECT \"Sent Items\"",
    "EXAMINE {3}\r\na/b",
    "CREATE Entw&APw-rfe",
    "CREATE a/",
    "DELETE \"a&-b\"",
    "RENAME a \"b c\"",
    "SUBSCRIBE a]b",
    "UNSUBSCRIBE a",
    "LIST \"\" *",
    "LIST \"\" \"\"",
    "LIST a/ %/b",
    "LSUB \"\" \"INBOX\"",
    "STATUS x (MESSAGES RECENT UIDNEXT UIDVALIDITY UNSEEN DELETED)",
    "APPEND INBOX {5}\r\nhello",
    "APPEND x (\\Seen $Junk) \" 7-Feb-1994 21:52:25 -0800\" {5+}\r\nhello",
    "APPEND x () {1}\r\nx",
    "APPEND {1}\r\nx \"17-Jul-1996 02:44:25 +1400\" {0}\r\n",
    "CHECK",
    "CLOSE",
    "UNSELECT",
    "EXPUNGE",
    "UID EXPUNGE 1:3,7",
    "IDLE",
    "NAMESPACE",
    "SEARCH ALL",
    "SEARCH ANSWERED DELETED DRAFT FLAGGED SEEN NEW OLD RECENT",
    "SEARCH UNANSWERED UNDELETED UNDRAFT UNFLAGGED UNSEEN",
    "SEARCH KEYWORD a UNKEYWORD b",
    "SEARCH BEFORE 1-Feb-1994 ON \"01-Feb-1994\" SINCE 31-Dec-2020",
    "SEARCH SENTBEFORE 1-Feb-1994 SENTON 29-Feb-2000 SENTSINCE 1-Jan-0001",
    "SEARCH LARGER 1000 SMALLER 4294967295",
    "SEARCH BCC a CC b FROM \"c d\" SUBJECT {1}\r\nx TO e",
    "SEARCH HEADER Message-ID \"<a@b>\" BODY x TEXT y",
    "SEARCH 1:5,9,* UID 3:*",
    "SEARCH NOT (OR SEEN (FLAGGED UNSEEN)) OR OR NEW OLD ALL",
    "UID SEARCH CHARSET UTF-8 TEXT \"x\"",
    "SEARCH CHARSET KOI8-R TEXT x",
    "FETCH 1 ALL",
    "FETCH 1:* FAST",
    "FETCH 2,4:7,9,12:* FULL",
    "FETCH 1 (FLAGS INTERNALDATE RFC822.SIZE ENVELOPE UID)",
    "FETCH 1 (BODY BODYSTRUCTURE RFC822 RFC822.HEADER RFC822.TEXT)",
    "FETCH 1 BODY[]",
    "FETCH 1 BODY.PEEK[HEADER]",
    "FETCH 1 (BODY[1.2.3] BODY[1.MIME] BODY[2.HEADER] BODY[2.TEXT] BODY[TEXT])",
    "FETCH 1 BODY.PEEK[HEADER.FIELDS (From \"To\")]<0.100>",
    "FETCH 1 BODY[3.HEADER.FIELDS.NOT (X-Y)]<5.1>",
    "UID FETCH 5:* (UID FLAGS)",
    "STORE 1 FLAGS (\\Seen \\Deleted x)",
    "STORE 1 FLAGS.SILENT ()",
    "STORE 1:2 +FLAGS \\Seen \\Flagged",
    "STORE 1 -FLAGS.SILENT (\\Answered \\Draft)",
    "STORE 1 +FLAGS (\\Other)",
    "UID STORE 1 -FLAGS x",
    "COPY 2:4 x",
    "UID COPY * inbox",
    "MOVE 1,2 x",
    "UID MOVE 1 \"x y\"",
    "select a",
    "uid fetch 1 flags",
];

#[test]
fn both_read_the_same() {
    for command in COMMANDS {
        let line = format!("A.1 {command}");
        assert!(oracle::compare(line.as_bytes()), "imap-codec does not read {command}");
        oracle::check(format!("{line}\r\n").as_bytes());
    }
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4u8,
        prop::sample::select(&b" ()[]{}<>.,:*%\"\\\r\n+-&~019aAzZ\0\x7f\xe4"[..]),
    );
    (
        prop::sample::select(COMMANDS),
        prop::sample::select(COMMANDS),
        any::<prop::sample::Index>(),
        prop::collection::vec(edit, 0..4),
    )
        .prop_map(|(command, other, at, edits)| {
            let mut octets = format!("t {command}").into_bytes();
            for (index, kind, octet) in edits {
                let place = index.index(octets.len());
                match kind {
                    0 => octets[place] = octet,
                    1 => octets.insert(place, octet),
                    2 => drop(octets.remove(place)),
                    // The rest of another command.
                    _ => {
                        octets.truncate(place);
                        octets.extend_from_slice(&other.as_bytes()[at.index(other.len())..]);
                    }
                }
                if octets.is_empty() {
                    octets.push(octet);
                }
            }
            octets
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn near_commands(octets in mutated()) {
        oracle::compare(&octets);
        oracle::check(&[&octets[..], b"\r\nb NOOP\r\n"].concat());
    }

    #[test]
    fn any_octets(octets in prop::collection::vec(any::<u8>(), 0..100)) {
        oracle::check(&octets);
    }
}

fn response(octets: &[u8]) -> Response<'_> {
    match ResponseCodec::default().decode(octets) {
        Ok((b"", response)) => response,
        other => panic!("{}: {other:?}", octets.escape_ascii()),
    }
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-zA-Z0-9 ]{0,10}".prop_map(String::into_bytes),
        prop::collection::vec(1u8..=255, 0..12),
        Just(b"a\"b\\c".to_vec()),
    ]
}

fn maybe() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(octets())
}

fn addresses() -> impl Strategy<Value = Vec<Address>> {
    let address = (maybe(), maybe(), maybe(), maybe()).prop_map(|(name, route, mailbox, host)| Address {
        name,
        route,
        mailbox,
        host,
    });
    prop::collection::vec(address, 0..3)
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (
        maybe(),
        maybe(),
        [addresses(), addresses(), addresses()],
        [addresses(), addresses(), addresses()],
        maybe(),
        maybe(),
    )
        .prop_map(|(date, subject, [from, sender, reply_to], [to, cc, bcc], in_reply_to, message_id)| Envelope {
            date,
            subject,
            from,
            sender,
            reply_to,
            to,
            cc,
            bcc,
            in_reply_to,
            message_id,
        })
}

fn params() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    prop::collection::vec((octets(), octets()), 0..3)
}

fn leaf() -> impl Strategy<Value = Part> {
    let types =
        prop::sample::select(&[("text", "plain"), ("image", "png"), ("message", "rfc822"), ("multipart", "mixed")][..]);
    (
        types,
        params(),
        maybe(),
        maybe(),
        maybe(),
        prop::option::of((octets(), params())),
        prop::collection::vec(octets(), 0..3),
        maybe(),
        0..1000u64,
    )
        .prop_map(
            |((media_type, subtype), params, id, description, md5, disposition, language, location, size)| Part {
                header: 0..10,
                body: 10..10 + size,
                lines: 3,
                media_type: media_type.into(),
                media_subtype: subtype.into(),
                params,
                id,
                description,
                encoding: b"7bit".to_vec(),
                md5,
                disposition,
                language,
                location,
                kind: PartKind::Leaf,
            },
        )
}

fn part() -> impl Strategy<Value = Part> {
    leaf().prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            (leaf(), prop::collection::vec(inner.clone(), 0..3)).prop_map(|(part, parts)| Part {
                media_type: b"multipart".to_vec(),
                media_subtype: b"mixed".to_vec(),
                kind: PartKind::Multipart(parts),
                ..part
            }),
            (leaf(), envelope(), inner).prop_map(|(part, envelope, root)| Part {
                media_type: b"message".to_vec(),
                media_subtype: b"rfc822".to_vec(),
                kind: PartKind::Message { envelope: Box::new(envelope), root: Box::new(root) },
                ..part
            }),
        ]
    })
}

fn shape(structure: &BodyStructure<'_>) -> usize {
    use imap_codec::imap_types::body::SpecificFields;
    match structure {
        BodyStructure::Multi { bodies, .. } => 1 + bodies.as_ref().iter().map(shape).sum::<usize>(),
        BodyStructure::Single { body, .. } => match &body.specific {
            SpecificFields::Message { body_structure, .. } => 1 + shape(body_structure),
            _ => 1,
        },
    }
}

fn our_shape(part: &Part) -> usize {
    match &part.kind {
        PartKind::Leaf if part.media_type == b"message" => 2,
        PartKind::Leaf => 1,
        PartKind::Multipart(parts) if parts.is_empty() => 2,
        PartKind::Multipart(parts) => 1 + parts.iter().map(our_shape).sum::<usize>(),
        PartKind::Message { root, .. } => 1 + our_shape(root),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a message holds, a client reads its envelope and structure back.
    #[test]
    fn envelopes_and_structures_read_back(envelope in envelope(), root in part()) {
        let mut out = Vec::new();
        let mut fetch = Fetch::begin(&mut out, 7);
        fetch.uid(9);
        fetch.flags(Flags::SEEN.union(Flags::keyword(0)), &[Arc::from("$Junk")], true);
        fetch.internal_date(1_000_000_000_000);
        fetch.size(4096);
        fetch.envelope(&envelope);
        fetch.body(&root);
        fetch.body_structure(&root);
        fetch.section_literal(&FetchItem::Rfc822Text, 3);
        fetch.out().extend_from_slice(b"a)b");
        fetch.end();
        let Response::Data(Data::Fetch { seq, items }) = response(&out) else { panic!("not FETCH") };
        prop_assert_eq!(seq.get(), 7);
        let items = items.as_ref();
        prop_assert_eq!(items.len(), 8);
        for item in items {
            match item {
                MessageDataItem::Uid(uid) => prop_assert_eq!(uid.get(), 9),
                MessageDataItem::Flags(flags) => prop_assert_eq!(flags.len(), 3),
                MessageDataItem::InternalDate(date) => prop_assert_eq!(date.as_ref().timestamp(), 1_000_000_000),
                MessageDataItem::Rfc822Size(size) => prop_assert_eq!(*size, 4096),
                MessageDataItem::Envelope(theirs) => {
                    let theirs_subject = theirs.subject.0.as_ref().map(|subject| subject.as_ref().to_vec());
                    prop_assert_eq!(&theirs_subject, &envelope.subject);
                    let sender = if envelope.sender.is_empty() { &envelope.from } else { &envelope.sender };
                    prop_assert_eq!(theirs.sender.len(), sender.len());
                    prop_assert_eq!(theirs.to.len(), envelope.to.len());
                }
                MessageDataItem::Body(structure) | MessageDataItem::BodyStructure(structure) => {
                    prop_assert_eq!(shape(structure), our_shape(&root));
                }
                MessageDataItem::Rfc822Text(text) => {
                    prop_assert_eq!(text.0.as_ref().map(|text| text.as_ref().to_vec()), Some(b"a)b".to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn mailbox_answers_read_back(name in "[^\\p{C}]{0,12}") {
        let mut out = Vec::new();
        write::list(&mut out, "LIST", &["\\HasNoChildren", "\\Trash"], Some('/'), &name, false);
        let read = matches!(response(&out), Response::Data(Data::List { .. }));
        prop_assert!(read);
        out.clear();
        write::list(&mut out, "LSUB", &[], None, &name, false);
        let read = matches!(response(&out), Response::Data(Data::Lsub { .. }));
        prop_assert!(read);
        out.clear();
        write::status(&mut out, &name, &[(StatusItem::Messages, 1), (StatusItem::UidNext, 2)], false);
        let read = matches!(response(&out), Response::Data(Data::Status { .. }));
        prop_assert!(read);
    }
}

#[test]
fn lines_read_back() {
    let keywords = [Arc::from("$Junk")];
    for write in [
        (|out: &mut Vec<u8>, _: &[Arc<str>]| write::exists(out, 3)) as fn(&mut Vec<u8>, &[Arc<str>]),
        |out, _| write::recent(out, 3),
        |out, _| write::expunge(out, 3),
        |out, keywords| write::flags(out, keywords),
        |out, _| write::search(out, [1, 2, 3]),
        |out, _| write::search(out, []),
        |out, _| write::capability(out, &["IMAP4rev1", "IDLE", "SPECIAL-USE"]),
        |out, _| write::enabled(out, &["CONDSTORE"]),
        |out, _| write::id(out, &[("name", "Posthouse")]),
        |out, _| write::namespace(out, '/'),
    ] {
        let mut out = Vec::new();
        write(&mut out, &keywords);
        assert!(matches!(response(&out), Response::Data(_)), "{}", out.escape_ascii());
    }
    for code in [
        Code::Capability(&["IMAP4rev1"]),
        Code::PermanentFlags { keywords: &keywords, more: true },
        Code::NoPermanentFlags,
        Code::UidNext(1),
        Code::UidValidity(1),
        Code::Unseen(1),
        Code::AppendUid { uid_validity: 1, uid: 2 },
        Code::BadCharset,
        Code::Word("READ-ONLY"),
        Code::Word("TRYCREATE"),
    ] {
        let mut out = Vec::new();
        write::tagged(&mut out, "a1", write::Status::No, Some(code), "text");
        match response(&out) {
            Response::Status(Status::Tagged(tagged)) => assert!(tagged.body.code.is_some(), "{code:?}"),
            other => panic!("{other:?}"),
        }
    }
    let mut out = Vec::new();
    write::continuation(&mut out, "idling");
    assert!(matches!(response(&out), Response::CommandContinuationRequest(_)));
}
