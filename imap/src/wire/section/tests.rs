use posthouse_storage::message::Envelope;

use super::super::command::CommandBody;
use super::super::parse::{ParseOptions, parse_command};
use super::*;

fn part(header: Range<u64>, body: Range<u64>, kind: PartKind) -> Part {
    Part {
        header,
        body,
        lines: 0,
        media_type: vec![],
        media_subtype: vec![],
        params: vec![],
        id: None,
        description: None,
        encoding: vec![],
        md5: None,
        disposition: None,
        language: vec![],
        location: None,
        kind,
    }
}

fn message(header: Range<u64>, body: Range<u64>, root: Part) -> Part {
    part(header, body, PartKind::Message { envelope: Box::new(Envelope::default()), root: Box::new(root) })
}

fn section(text: &str) -> Section {
    let command = parse_command(format!("a FETCH 1 BODY[{text}]").as_bytes(), ParseOptions::default()).unwrap();
    match command.body {
        CommandBody::Fetch { items, .. } => of_item(&items[0]).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn check(root: &Part, table: &[(&str, Option<Range<u64>>)]) {
    for (text, range) in table {
        let section = section(text);
        let found = match locate(root, &section) {
            Located::Octets(range) => Some(range),
            Located::Fields { header, .. } => Some(header),
            Located::Missing => None,
        };
        assert_eq!(&found, range, "BODY[{text}]");
    }
}

#[test]
fn single_part_message() {
    let root = part(0..10, 10..30, PartKind::Leaf);
    check(
        &root,
        &[
            ("", Some(0..30)),
            ("HEADER", Some(0..10)),
            ("TEXT", Some(10..30)),
            ("HEADER.FIELDS (x)", Some(0..10)),
            ("1", Some(10..30)),
            ("1.MIME", Some(0..10)),
            ("1.HEADER", None),
            ("1.TEXT", None),
            ("1.1", None),
            ("2", None),
            ("4294967295", None),
        ],
    );
}

/// The example of RFC 3501 §6.4.5: a multipart with a text, a message, and a multipart.
#[test]
fn nested_message() {
    let alternative = part(
        210..220,
        220..300,
        PartKind::Multipart(vec![part(230..240, 240..250, PartKind::Leaf), part(260..270, 270..280, PartKind::Leaf)]),
    );
    let inner =
        part(110..150, 150..310, PartKind::Multipart(vec![part(160..170, 170..200, PartKind::Leaf), alternative]));
    let root = part(
        0..50,
        50..500,
        PartKind::Multipart(vec![
            part(60..70, 70..90, PartKind::Leaf),
            message(100..110, 110..310, inner),
            message(320..330, 330..400, part(330..350, 350..400, PartKind::Leaf)),
        ]),
    );
    check(
        &root,
        &[
            ("", Some(0..500)),
            ("TEXT", Some(50..500)),
            ("1", Some(70..90)),
            ("1.MIME", Some(60..70)),
            ("1.HEADER", None),
            ("1.1", None),
            ("2", Some(110..310)),
            ("2.MIME", Some(100..110)),
            ("2.HEADER", Some(110..150)),
            ("2.TEXT", Some(150..310)),
            ("2.HEADER.FIELDS.NOT (x)", Some(110..150)),
            ("2.1", Some(170..200)),
            ("2.1.MIME", Some(160..170)),
            ("2.2", Some(220..300)),
            ("2.2.1", Some(240..250)),
            ("2.2.2.MIME", Some(260..270)),
            ("2.2.3", None),
            ("2.3", None),
            ("3", Some(330..400)),
            ("3.HEADER", Some(330..350)),
            ("3.1", Some(350..400)),
            ("3.1.MIME", Some(330..350)),
            ("3.1.1", None),
            ("3.2", None),
            ("4", None),
        ],
    );
}

#[test]
fn message_that_is_a_message_and_empty_multipart() {
    let root = message(0..10, 10..60, part(10..30, 30..60, PartKind::Leaf));
    check(
        &root,
        &[
            ("HEADER", Some(0..10)),
            ("TEXT", Some(10..60)),
            ("1", Some(10..60)),
            ("1.HEADER", Some(10..30)),
            ("1.TEXT", Some(30..60)),
            ("1.MIME", Some(0..10)),
            ("1.1", Some(30..60)),
            ("1.1.MIME", Some(10..30)),
            ("1.1.1", None),
        ],
    );
    check(&part(0..10, 10..20, PartKind::Multipart(vec![])), &[("", Some(0..20)), ("TEXT", Some(10..20)), ("1", None)]);
}

#[test]
fn rfc822_items() {
    let root = part(0..10, 10..30, PartKind::Leaf);
    for (item, range) in [(FetchItem::Rfc822, 0..30), (FetchItem::Rfc822Header, 0..10), (FetchItem::Rfc822Text, 10..30)]
    {
        assert_eq!(locate(&root, &of_item(&item).unwrap()), Located::Octets(range));
    }
    assert_eq!(of_item(&FetchItem::Uid), None);
}

#[test]
fn partial() {
    for (offset, octets, range) in [
        (0, 5, 10..15),
        (5, 100, 15..30),
        (20, 1, 30..30),
        (21, 1, 30..30),
        (0, 0, 10..10),
        (u64::MAX, u64::MAX, 30..30),
        (19, u64::MAX, 29..30),
    ] {
        assert_eq!(cut(10..30, Some(Partial { offset, octets })), range, "<{offset}.{octets}>");
    }
    assert_eq!(cut(10..30, None), 10..30);
}

#[test]
fn header_fields() {
    let header =
        b"From x y\r\nFrom: a@b\r\nX: 1\r\n 2\r\n\t3\r\nfrom : c@d\r\nbroken\r\n cont\r\nSubject: s\r\n\r\nbody: x\r\n";
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    for (fields, not, expected) in [
        (names(&["FROM"]), false, &b"From: a@b\r\nfrom : c@d\r\n\r\n"[..]),
        (names(&["x", "subject"]), false, b"X: 1\r\n 2\r\n\t3\r\nSubject: s\r\n\r\n"),
        (names(&["nothing"]), false, b"\r\n"),
        (names(&[]), false, b"\r\n"),
        (names(&["From"]), true, b"From x y\r\nX: 1\r\n 2\r\n\t3\r\nbroken\r\n cont\r\nSubject: s\r\n\r\n"),
    ] {
        assert_eq!(filter_header(header, &fields, not), expected, "{fields:?} {not}");
    }
    assert_eq!(filter_header(b"", &[], true), b"\r\n");
    assert_eq!(filter_header(b"A: b", &names(&["a"]), false), b"A: b\r\n\r\n");
    assert_eq!(filter_header(b"A: b\nC: d\n e\n\n", &names(&["c"]), false), b"C: d\n e\n\r\n");
}
