//! The MIME pass, previews and the spool, over tables. What holds of any input is in `tests/mime.rs`.

use super::*;

fn parse(octets: &[u8]) -> Parsed {
    let mut pass = MimePass::default();
    pass.feed(octets);
    pass.finish()
}

/// `type/subtype "body" lines` of each entity, indented.
fn shown(octets: &[u8]) -> String {
    fn show(part: &Part, octets: &[u8], depth: usize, out: &mut String) {
        let body = String::from_utf8_lossy(&octets[part.body.start as usize..part.body.end as usize]);
        let kind =
            format!("{}/{}", String::from_utf8_lossy(&part.media_type), String::from_utf8_lossy(&part.media_subtype));
        let line = match &part.kind {
            PartKind::Leaf => format!("{kind} {body:?} {}", part.lines),
            PartKind::Multipart(_) => format!("{kind} [{}] {}", body.len(), part.lines),
            PartKind::Message { .. } => format!("{kind} ({}) {}", body.len(), part.lines),
        };
        out.push_str(&format!("{}{line}\n", "  ".repeat(depth)));
        match &part.kind {
            PartKind::Leaf => {}
            PartKind::Multipart(children) => children.iter().for_each(|child| show(child, octets, depth + 1, out)),
            PartKind::Message { root, .. } => show(root, octets, depth + 1, out),
        }
    }
    let mut out = String::new();
    show(&parse(octets).structure, octets, 0, &mut out);
    out
}

#[test]
fn structures() {
    for (message, expected) in [
        ("", "text/plain \"\" 0\n"),
        ("Subject: x\r\n\r\nhello\r\nyou", "text/plain \"hello\\r\\nyou\" 1\n"),
        ("Subject: x\r\n", "text/plain \"\" 0\n"),
        ("\r\nbody\r\n", "text/plain \"body\\r\\n\" 1\n"),
        (
            "Content-Type: multipart/mixed; boundary=b\r\n\r\npre\r\n--b\r\n\r\none\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>\r\n\r\n--b--\r\nepi\r\n",
            "multipart/mixed [68] 11\n  text/plain \"one\" 0\n  text/html \"<p>\\r\\n\" 1\n",
        ),
        // The close delimiter is missing: the end of the message closes.
        (
            "Content-Type: multipart/x; boundary=\"b b\"\n\n--b b\n\none\n",
            "multipart/x [11] 3\n  text/plain \"one\\n\" 1\n",
        ),
        // No boundary: a leaf.
        ("Content-Type: multipart/mixed\r\n\r\n--x\r\n", "multipart/mixed \"--x\\r\\n\" 1\n"),
        // No part at all.
        ("Content-Type: multipart/mixed; boundary=b\r\n\r\nnothing\r\n", "multipart/mixed [9] 1\n"),
        // What follows a boundary in its line does not matter.
        (
            "Content-Type: multipart/a; boundary=b\r\n\r\n--b \t\r\n\r\nx\r\n--bc\r\n--b--",
            "multipart/a [23] 4\n  text/plain \"x\" 0\n  text/plain \"\" 0\n",
        ),
        // The longest boundary that a line begins with is meant, of equal ones the innermost.
        (
            "Content-Type: multipart/a; boundary=b\n\n--b\nContent-Type: multipart/a; boundary=bc\n\n--bc\n\nx\n--bc--\n--bd\n\ny\n",
            "multipart/a [67] 10\n  multipart/a [15] 4\n    text/plain \"x\" 0\n  text/plain \"y\\n\" 1\n",
        ),
        // A delimiter's own line end is part of it: it stays in the message that the delimiter closed.
        (
            "Content-Type: multipart/a; boundary=o\n\n--o\nContent-Type: message/rfc822\n\nContent-Type: multipart/b; boundary=i\n\n--i\n\nx\n--i--\n--o--\n",
            "multipart/a [92] 10\n  message/rfc822 (52) 6\n    multipart/b [13] 4\n      text/plain \"x\" 0\n",
        ),
        // An empty body: the line end is cut from the header, and stays in what holds the part.
        (
            "Content-Type: multipart/a; boundary=o\n\n--o\nContent-Type: message/rfc822\n\nSubject: x\n\n--o--\n",
            "multipart/a [52] 6\n  message/rfc822 (12) 2\n    text/plain \"\" 0\n",
        ),
        // The outer boundary ends the inner multipart.
        (
            "Content-Type: multipart/a; boundary=o\r\n\r\n--o\r\nContent-Type: multipart/b; boundary=i\r\n\r\n--i\r\n\r\nx\r\n--o\r\n\r\ny\r\n--o--\r\n",
            "multipart/a [73] 10\n  multipart/b [8] 2\n    text/plain \"x\" 0\n  text/plain \"y\" 0\n",
        ),
        (
            "Content-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\ninner\r\n",
            "message/rfc822 (22) 3\n  text/plain \"inner\\r\\n\" 1\n",
        ),
        // An encoded message is a leaf.
        (
            "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n",
            "message/rfc822 \"eA==\\r\\n\" 1\n",
        ),
        (
            "Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n\r\nSubject: s\r\n\r\nt\r\n--b--\r\n",
            "multipart/digest [31] 6\n  message/rfc822 (15) 2\n    text/plain \"t\" 0\n",
        ),
        // A part that is only its header, ended by the delimiter.
        (
            "Content-Type: multipart/a; boundary=b\r\n\r\n--b\r\nContent-Type: a/b\r\n--b\r\n--b--\r\n",
            "multipart/a [36] 4\n  a/b \"\" 0\n  text/plain \"\" 0\n",
        ),
        ("Content-Type: nonsense\r\n\r\nx", "text/plain \"x\" 0\n"),
        ("Content-Type: TEXT/Html (c) ; Charset=X\r\n\r\nx", "text/html \"x\" 0\n"),
    ] {
        assert_eq!(shown(message.as_bytes()), expected, "{message:?}");
    }
}

#[test]
fn fields_of_an_entity() {
    let part = parse(
        b"Content-Type: image/png; name=\"a b.png\"\r\nContent-ID: <1@x>\r\nContent-Description: d\r\n e\r\nContent-Transfer-Encoding: BASE64 \r\n\
          Content-MD5: q\r\nContent-Disposition: Attachment; filename=x\r\nContent-Language: de, en\r\nContent-Location: http://x\r\n\r\n",
    )
    .structure;
    assert_eq!(part.params, [(b"name".to_vec(), b"a b.png".to_vec())]);
    assert_eq!(part.id.as_deref(), Some(&b"<1@x>"[..]));
    assert_eq!(part.description.as_deref(), Some(&b"d e"[..]));
    assert_eq!(part.encoding, b"base64");
    assert_eq!(part.md5.as_deref(), Some(&b"q"[..]));
    assert_eq!(part.disposition, Some((b"attachment".to_vec(), vec![(b"filename".to_vec(), b"x".to_vec())])));
    assert_eq!(part.language, [b"de".to_vec(), b"en".to_vec()]);
    assert_eq!(part.location.as_deref(), Some(&b"http://x"[..]));
    let plain = parse(b"X: y\r\n\r\n").structure;
    assert_eq!(plain.params, [(b"charset".to_vec(), b"us-ascii".to_vec())]);
}

#[test]
fn previews() {
    for (message, preview) in [
        ("\r\nHello\r\n\r\n  World \r\n", "Hello World"),
        (
            "Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=\r\n=DFe\r\n",
            "Grüße",
        ),
        ("Content-Type: text/html\r\n\r\n<p>Hi <b>there</b></p>\r\n", "Hi there"),
        (
            "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>html</p>\r\n--b\r\n\r\nplain\r\n--b--\r\n",
            "plain",
        ),
        ("Content-Type: image/png\r\n\r\nx", ""),
    ] {
        assert_eq!(parse(message.as_bytes()).preview, preview, "{message:?}");
    }
    let long = parse(format!("\r\n{}\r\n", "ü".repeat(9_000)).as_bytes()).preview;
    assert_eq!(long.chars().count(), 256);
}

#[test]
fn depth_and_number_are_bounded() {
    let mut nested = Vec::new();
    for n in 0..1_000 {
        nested.extend_from_slice(format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n").as_bytes());
    }
    let mut depth = 0;
    let parsed = parse(&nested);
    let mut part = &parsed.structure;
    while let PartKind::Multipart(children) = &part.kind {
        part = &children[0];
        depth += 1;
    }
    assert!(depth < DEPTH_MAX, "{depth}");
    let mut messages = Vec::new();
    for _ in 0..1_000 {
        messages.extend_from_slice(b"Content-Type: message/rfc822\r\n\r\n");
    }
    parse(&messages);
    let mut wide = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_vec();
    for _ in 0..30_000 {
        wide.extend_from_slice(b"--b\r\n\r\nx\r\n");
    }
    let PartKind::Multipart(children) = parse(&wide).structure.kind else { panic!("no multipart") };
    assert_eq!(children.len(), PARTS_MAX - 1);
    // The last part holds what is left, octet for octet.
    assert_eq!(children[PARTS_MAX - 2].body.end, wide.len() as u64);
}

#[tokio::test]
async fn large_messages_go_to_disk_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let config = SpoolConfig { dir: dir.path().to_owned(), memory_bytes_max: 1_000 };
    let body = (0..50_000_u32).flat_map(|n| format!("line {n}\r\n").into_bytes()).collect::<Vec<u8>>();
    let octets = [b"Received: a\r\nReceived: b\r\nSubject: large\r\n\r\n".as_slice(), &body].concat();
    let mut writer = MessageWriter::new(&config);
    for piece in octets.chunks(777) {
        writer.write(piece).await.unwrap();
    }
    let message = writer.finish().await.unwrap();
    assert_eq!(message.size(), octets.len() as u64);
    assert_eq!(message.received_count(), 2);
    assert_eq!(&message.header()[..], &octets[..44]);
    assert_eq!(message.read(0..u64::MAX).await.unwrap(), octets);
    assert_eq!(message.read(1_000..1_010).await.unwrap(), &octets[1_000..1_010]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    // A folder that cannot be written to is an error, not a loss of anything else.
    let mut writer = MessageWriter::new(&SpoolConfig { dir: dir.path().join("missing"), memory_bytes_max: 10 });
    assert!(writer.write(&octets).await.is_err());
    assert!(writer.write(b"more").await.is_err(), "what was lost stays lost");
    assert!(writer.finish().await.is_err());
}
