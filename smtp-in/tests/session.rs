//! Sessions against scripted outcomes: transcripts, the table of replies, random bytes, smuggling.
//!
//! A transcript has `C:` lines (sent with CR LF, each as one read), `C+` lines (sent together with the next `C:` line),
//! and `S:` lines: exactly what is said until the next `C`. `role` and settings stand on the first line.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use posthouse_smtp_in::SmtpConfig;
use posthouse_smtp_in::rehearsal::{Rehearsal, however_split, settings};
use posthouse_smtp_in::reply::Reply;
use posthouse_smtp_in::session::{Role, Settings, Tls};
use proptest::prelude::*;

fn play(name: &str, transcript: &str) {
    let mut lines = transcript.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    let head = lines.next().unwrap_or_default();
    let mut config = SmtpConfig { message_bytes_max: 1_000_000, ..SmtpConfig::default() };
    let (mut role, mut tls, mut plaintext_auth) = (Role::Mx, Tls::Unavailable, true);
    for word in head.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("mx", _) => role = Role::Mx,
            ("submission", _) => role = Role::Submission,
            ("lmtp", _) => role = Role::Lmtp,
            ("tls", _) => tls = Tls::Offered,
            ("secure", _) => plaintext_auth = false,
            ("recipients_max", n) => config.recipients_max = n.parse().unwrap(),
            ("errors_max", n) => config.errors_max = n.parse().unwrap(),
            ("auth_failures_max", n) => config.auth_failures_max = n.parse().unwrap(),
            other => panic!("{name}: what is {other:?}?"),
        }
    }
    let mut rehearsal = Rehearsal::new(Settings { tls, plaintext_auth, ..settings(role, config) });
    rehearsal.feed(b"");
    let (mut seen, mut together, mut said) = (0, Vec::new(), String::new());
    while let Some(line) = lines.next() {
        let (mark, text) = line.split_at_checked(2).unwrap_or((line, ""));
        let text = text.strip_prefix(' ').unwrap_or(text);
        match mark {
            "S:" => said.push_str(&format!("{text}\r\n")),
            "C+" | "C:" => together.extend_from_slice(format!("{text}\r\n").as_bytes()),
            "--" => {}
            _ => panic!("{name}: {line:?}"),
        }
        if mark == "C:" {
            rehearsal.feed(&std::mem::take(&mut together));
        }
        if !lines.peek().is_some_and(|next| next.starts_with("S:")) && mark != "C+" {
            let output = &rehearsal.outcome().output;
            let heard = String::from_utf8_lossy(&output[seen..]);
            assert_eq!(heard, said, "{name}: until after {line:?}");
            seen = output.len();
            said.clear();
        }
        if mark == "--" {
            assert_eq!(rehearsal.outcome().closed, text == "closed", "{name}: {line:?}");
        }
    }
}

#[test]
fn transcripts() {
    let mut count = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for (n, transcript) in text.split("\n====\n").enumerate() {
            play(&format!("{} #{}", path.file_name().unwrap().to_string_lossy(), n + 1), transcript);
            count += 1;
        }
    }
    assert!(count >= 17, "{count} transcripts");
}

#[test]
fn every_reply_is_well_formed() {
    let mut table = String::new();
    for reply in Reply::ALL {
        let line = reply.line();
        assert!(line.is_ascii() && line.len() <= 510 && !line.contains(['\r', '\n']), "{line}");
        let class = &line[..1];
        // RFC 2034 §4: 2yz, 4yz and 5yz have an enhanced code of the same class.
        if ["2", "4", "5"].contains(&class) {
            let code = line[4..].split(' ').next().unwrap_or_default();
            assert!(code.starts_with(class) && code.split('.').count() == 3, "{line}");
        }
        assert_eq!(reply.is_negative(), class >= "4");
        table.push_str(&format!("{:<20} {line}\n", reply.name()));
    }
    expect_test::expect_file!["replies.txt"].assert_eq(&table);
}

/// What may look like an end of data to another server, and the text of a second message behind it.
#[test]
fn smuggling_makes_one_message_or_none() {
    let ends: &[&[u8]] = &[
        b"\n.\n",
        b"\n.\r\n",
        b"\r.\r",
        b"\r.\r\n",
        b"\r\n.\r",
        b"\r\n.\n",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
        b"\n\r\n.\n",
        b"\r\r\n.\r",
        b"\n.\r",
        b"\r.\n",
    ];
    for role in [Role::Mx, Role::Lmtp] {
        for end in ends {
            let hello: &[u8] = if role == Role::Lmtp { b"LHLO x\r\n" } else { b"EHLO x\r\n" };
            let octets = [
                hello,
                b"MAIL FROM:<a@b.c>\r\nRCPT TO:<alice@example.test>\r\nDATA\r\nSubject: 1\r\n\r\none",
                end,
                b"MAIL FROM:<evil@b.c>\r\nRCPT TO:<bob@example.test>\r\nDATA\r\nSubject: 2\r\n\r\ntwo\r\n.\r\nQUIT\r\n",
            ];
            let mut rehearsal = Rehearsal::new(settings(role, SmtpConfig::default()));
            rehearsal.feed(&octets.concat());
            let outcome = rehearsal.outcome();
            assert_eq!(outcome.messages, [], "{end:?}");
            assert!(outcome.closed, "{end:?}");
            let output = String::from_utf8_lossy(&outcome.output);
            assert!(
                output.ends_with("550 5.6.0 The text holds a bare CR, a bare LF or a NUL\r\n"),
                "{end:?}: {output}"
            );
        }
    }
}

#[test]
fn what_follows_starttls_in_the_clear_ends_the_connection() {
    for behind in ["NOOP\r\n", "\r\n", "x"] {
        let tls = Settings { tls: Tls::Offered, ..settings(Role::Submission, SmtpConfig::default()) };
        let mut rehearsal = Rehearsal::new(tls);
        rehearsal.feed(format!("EHLO x\r\nSTARTTLS\r\n{behind}").as_bytes());
        let outcome = rehearsal.outcome();
        assert!(outcome.closed);
        assert!(!String::from_utf8_lossy(&outcome.output).contains("220 2.0.0"), "{behind:?}");
    }
}

#[test]
fn the_open_relay_list() {
    let foreign = [
        "u@other.test",
        "U@OTHER.TEST",
        "u@other.test.",
        "u%other.test@example.test",
        "other.test!u@example.test",
        "\"u@other.test\"@example.test",
        "\"u%other.test\"@example.test",
        "u@[192.0.2.1]",
        "u@[IPv6:2001:db8::1]",
        "@example.test:u@other.test",
        "@example.test,@other.test:u@other.test",
        "u@sub.example.test",
        "alice@example.test@other.test",
        "alice@example.test,u@other.test",
        "u@other.test(comment)",
    ];
    for from in ["a@sender.test", "", "alice@example.test"] {
        for to in foreign {
            let mut rehearsal = Rehearsal::new(settings(Role::Mx, SmtpConfig::default()));
            rehearsal.feed(format!("EHLO x\r\nMAIL FROM:<{from}>\r\n").as_bytes());
            let before = rehearsal.outcome().output.len();
            rehearsal.feed(format!("RCPT TO:<{to}>\r\nDATA\r\n").as_bytes());
            let output = String::from_utf8_lossy(&rehearsal.outcome().output[before..]);
            let syntax = to.matches('@').count() == 2 && !to.starts_with(['@', '"']) || to.contains('(');
            let code = if syntax { "501 5.1.3" } else { "550 5.7.1" };
            assert!(output.starts_with(code) && output.contains("\r\n503 5.5.1"), "{to}: {output}");
        }
    }
}

/// A TLS handshake's first octet ends a connection only where a command could begin.
#[test]
fn an_octet_of_tls_within_a_skipped_line_is_skipped() {
    let octets = [vec![b'x'; 600].as_slice(), &[0x16; 200], b"\r\nNOOP\r\n"].concat();
    however_split(&octets, &[92]);
    let mut rehearsal = Rehearsal::new(settings(Role::Mx, SmtpConfig::default()));
    rehearsal.feed(&octets);
    let output = String::from_utf8_lossy(&rehearsal.outcome().output).into_owned();
    assert!(output.ends_with("\r\n500 5.5.2 Line too long\r\n250 2.0.0 Ok\r\n"), "{output}");
    rehearsal.feed(b"\x16\x03\x01");
    assert!(rehearsal.outcome().closed);
}

/// Fragments that take a stream deeper than noise would.
const FRAGMENTS: &[&[u8]] = &[
    b"EHLO x\r\n",
    b"LHLO x\r\n",
    b"MAIL FROM:<a@b.c>\r\n",
    b"MAIL FROM:<> SIZE=99 BODY=8BITMIME\r\n",
    b"MAIL FROM:<alice@example.test>\r\n",
    b"RCPT TO:<alice@example.test>\r\n",
    b"RCPT TO:<team@example.test>\r\n",
    b"RCPT TO:<nobody@example.test>\r\n",
    b"RCPT TO:<postmaster>\r\n",
    b"DATA\r\n",
    b"Subject: x\r\n\r\nbody\r\n.\r\n",
    b".\r\n",
    b"\r\n.\r\n",
    b"\n.\r\n",
    b"\r.\r",
    b"RSET\r\n",
    b"STARTTLS\r\n",
    b"AUTH PLAIN ",
    b"AGFsaWNlQGV4YW1wbGUudGVzdABzZWNyZXQ=\r\n",
    b"AUTH LOGIN\r\n",
    b"YWxpY2VAZXhhbXBsZS50ZXN0\r\n",
    b"*\r\n",
    b"QUIT\r\n",
    b"BDAT 9 LAST\r\n",
    b"VRFY x\r\n",
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\xff\xfe",
    &[b'x'; 600],
];

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        6 => prop::sample::select(FRAGMENTS).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}

proptest! {
    // Three roles each: 12,000 sessions.
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn any_split_of_any_stream_is_answered_the_same(octets in stream(), sizes in prop::collection::vec(any::<u8>(), 1..6)) {
        however_split(&octets, &sizes);
    }
}

#[test]
fn commands_that_lead_nowhere_end_with_a_word_that_fits() {
    let begin = "MAIL FROM:<alice@example.test>\r\n";
    let log_in = "EHLO x\r\nAUTH PLAIN AGFsaWNlQGV4YW1wbGUudGVzdABzZWNyZXQ=\r\n";
    let (commands, errors) = ("Too many commands without a message", "Too many errors");
    // What is said first, and again and again; how often it is heard; what is said at the end.
    let cases = [
        (Role::Mx, String::new(), "EHLO x\r\n", 101, commands),
        (Role::Mx, String::new(), "HELO x\r\n", 101, commands),
        (Role::Mx, String::new(), "NOOP\r\n", 101, commands),
        (Role::Mx, String::new(), "VRFY x\r\n", 101, commands),
        (Role::Mx, "EHLO x\r\n".into(), "RSET\r\n", 100, commands),
        (Role::Mx, "EHLO x\r\n".into(), "MAIL FROM:<a@b.c>\r\nRSET\r\n", 100, commands),
        (Role::Mx, format!("EHLO x\r\n{begin}"), "RCPT TO:<full@example.test>\r\n", 100, commands),
        (Role::Mx, format!("EHLO x\r\n{begin}"), "RCPT TO:<nobody@example.test>\r\n", 20, errors),
        (Role::Mx, String::new(), "FOO\r\n", 20, errors),
        (Role::Lmtp, String::new(), "LHLO x\r\n", 101, commands),
        (Role::Lmtp, String::new(), "NOOP\r\n", 101, commands),
        (Role::Lmtp, String::new(), "HELO x\r\n", 20, errors),
        (Role::Submission, String::new(), "NOOP\r\n", 101, commands),
        (Role::Submission, log_in.into(), "HELP\r\n", 100, commands),
        (Role::Submission, format!("{log_in}{begin}"), "RCPT TO:<u@other.test>\r\n", 100, commands),
        (Role::Submission, "EHLO x\r\n".into(), "MAIL FROM:<a@b.c>\r\n", 20, errors),
    ];
    for (role, first, again, heard, word) in cases {
        let mut rehearsal = Rehearsal::new(settings(role, SmtpConfig::default()));
        rehearsal.feed(first.as_bytes());
        let mut count = 0;
        while !rehearsal.outcome().closed && count < 1_000 {
            rehearsal.feed(again.as_bytes());
            count += 1;
        }
        let output = String::from_utf8_lossy(&rehearsal.outcome().output).into_owned();
        let last = format!("\r\n421 4.7.0 {word}; closing\r\n");
        assert!(output.ends_with(&last) && count == heard, "{role:?} {again:?}: {count} {output}");
    }
    // A message in between forgives.
    let mut rehearsal = Rehearsal::new(settings(Role::Mx, SmtpConfig::default()));
    rehearsal.feed(b"EHLO x\r\n");
    for _ in 0..5 {
        rehearsal.feed("NOOP\r\n".repeat(90).as_bytes());
        rehearsal.feed(b"MAIL FROM:<a@b.c>\r\nRCPT TO:<alice@example.test>\r\nDATA\r\n");
        rehearsal.feed(b".\r\n");
    }
    assert!(!rehearsal.outcome().closed);
    // One line without an end.
    rehearsal.feed(&[b'x'; 80_000]);
    let output = String::from_utf8_lossy(&rehearsal.outcome().output).into_owned();
    assert!(rehearsal.outcome().closed && output.ends_with("500 5.5.2 Line too long\r\n"), "{output}");
}
