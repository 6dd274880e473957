//! Hostile octets: a session neither panics nor stops others from being served, whatever comes.

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::rig::{Client, Door, USER, World};

/// Pieces that get further than noise.
const PIECES: &[&[u8]] = &[
    b"a NOOP\r\n",
    b"a SELECT INBOX\r\n",
    b"a EXAMINE INBOX\r\n",
    b"a FETCH 1:* (FLAGS UID BODY[] BODY[1.2.MIME]<5.9> ENVELOPE BODYSTRUCTURE)\r\n",
    b"a UID FETCH 4294967295:* RFC822\r\n",
    b"a STORE 1:* +FLAGS (\\Deleted $x)\r\n",
    b"a UID STORE 1:4294967295 FLAGS.SILENT ()\r\n",
    b"a EXPUNGE\r\n",
    b"a UID EXPUNGE 1:*\r\n",
    b"a SEARCH OR NOT SEEN (TEXT x) BODY {1+}\r\nx UID *:1\r\n",
    b"a COPY 1:* INBOX\r\n",
    b"a UID MOVE *:* Trash\r\n",
    b"a APPEND INBOX (\\Seen) {8+}\r\na: b\r\n\r\n\r\n",
    b"a APPEND INBOX {99}\r\nshort",
    b"a APPEND INBOX {99999999999999999999+}\r\n",
    b"a IDLE\r\n",
    b"DONE\r\n",
    b"a CREATE \"x/y\"\r\n",
    b"a DELETE x\r\n",
    b"a RENAME INBOX z\r\n",
    b"a LIST \"\" *\r\n",
    b"a LSUB \"\" %\r\n",
    b"a STATUS INBOX (MESSAGES RECENT UIDNEXT UIDVALIDITY UNSEEN SIZE)\r\n",
    b"a LOGIN ",
    b"a AUTHENTICATE PLAIN\r\n",
    b"a AUTHENTICATE PLAIN AGFubkBleGFtcGxlLnRlc3QAc2VjcmV0\r\n",
    b"a CLOSE\r\n",
    b"a UNSELECT\r\n",
    b"{3}\r\n",
    b"{3+}\r\n",
    b"((((((((((",
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff\xfe",
    b" ",
    b"\"",
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        5 => proptest::sample::select(PIECES).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// Sends octets, takes whatever comes back, hangs up.
async fn pour(mut client: Client, octets: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(client.stream.get_mut());
    let write = async {
        // The server may have said BYE before it read all.
        drop(writer.write_all(octets).await);
        drop(writer.shutdown().await);
    };
    let mut sink = tokio::io::sink();
    let (_, read) = tokio::join!(write, tokio::io::copy(&mut reader, &mut sink));
    read.unwrap();
    client.hang_up().await;
}

fn streams_are_survived(logged_in: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) };
    proptest!(config, |(octets in stream())| {
        runtime.block_on(async {
            let client = match logged_in {
                true => world.client().await,
                false => world.connect(Door::default()),
            };
            pour(client, &octets).await;
        });
    });
    runtime.block_on(async {
        let mut client = world.client().await;
        client.ok("SELECT INBOX").await;
        client.ok("UID FETCH 1:* (FLAGS)").await;
    });
}

#[test]
fn any_octets_before_login() {
    streams_are_survived(false);
}

#[test]
fn any_octets_after_login() {
    streams_are_survived(true);
}

#[tokio::test]
async fn endless_lines_and_nesting_before_login() {
    let world = World::new().await;
    for octet in [b'(', b'"', b'a', b' ', b'\r', b'\0'] {
        let mut client = world.connect(Door { pipe: 4096, ..Door::default() });
        client.line().await;
        let line = vec![octet; 64 << 10];
        for _ in 0..100 {
            client.send(&line).await;
        }
        client.send(b"\r\nx NOOP\r\n").await;
        loop {
            let line = client.line().await;
            if line.starts_with("x OK") {
                break;
            }
            assert!(line.starts_with("* BAD"), "{line}");
        }
    }
}

/// Broken MIME costs an answer, never a connection.
#[tokio::test]
async fn every_item_of_odd_messages() {
    let world = World::new().await;
    let mut client = world.client().await;
    let deep: String =
        (0..300).map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n")).collect();
    let wide = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--b\r\n\r\nx\r\n".repeat(3_000));
    let parameters: String = (0..3_000).map(|n| format!(";\r\n p*{n}=x")).collect();
    let odd = [
        "\r\n".to_owned(),
        "no header at all".to_owned(),
        "A: b".to_owned(),
        "Content-Type: multipart/mixed\r\n\r\n--\r\n".to_owned(),
        "Content-Type: message/rfc822\r\n\r\n".to_owned(),
        "From: \"\r\nTo: <<<>>>,,;\r\nSubject: =?x?y?z\r\n\r\n".to_owned(),
        format!("Content-Type: text/plain{parameters}\r\n\r\n"),
        deep,
        wide,
    ];
    for message in &odd {
        client.append("INBOX", "", message.as_bytes()).await;
    }
    client.ok("EXAMINE INBOX").await;
    let items = "(UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODY BODYSTRUCTURE BODY[HEADER] BODY[HEADER.FIELDS (To)] \
                 BODY[1.MIME] BODY[1.1] RFC822.TEXT BODY[TEXT]<0.10>)";
    for number in 1..=odd.len() {
        let answer = client.ok(&format!("FETCH {number} {items}")).await;
        assert!(answer[0].starts_with(&format!("* {number} FETCH (UID {number} ")), "{}", answer[0]);
    }
    client.ok(&format!("SEARCH TEXT {USER} NOT BODY x SENTSINCE 1-Jan-2000 HEADER X-Y \"\"")).await;
}
