//! The MIME pass and all that reads headers, over random octets, random mail, published mail, and input made to be slow.

mod invariants;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use invariants::check;
use posthouse_storage::message::{
    MessageRow, NewMessage, ThreadId, base_subject, decode_header, decode_text, envelope, header_fields, thread_ids,
};
use proptest::prelude::*;

/// Pieces that mean something to the pass, put together without sense.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    const FRAGMENTS: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"\n\n",
        b"--b",
        b"--b--",
        b"--b\r\n",
        b"--b--\r\n",
        b"--c\r\n",
        b"--bc\n",
        b"--c--x\n",
        b"Content-Type: multipart/mixed; boundary=b\r\n",
        b"Content-Type: multipart/digest; boundary=\"c\"\r\n",
        b"Content-Type: multipart/x; boundary=bc\n\n",
        b"Content-Type: message/rfc822\r\n",
        b"Content-Type: message/rfc822\r\n\r\n",
        b"Content-Type: text/html; charset=utf-7\r\n",
        b"Content-Type: a/b; n*0*=x; n*1=\"y\\\r\n\"; n*01=z; \0=\0\r\n",
        b"Content-Transfer-Encoding: quoted-printable\r\n",
        b"Content-Transfer-Encoding: base64\r\n",
        b"Content-Disposition: ; filename=\"a\\\"b\"\r\n",
        b"From: a@b, \"x\" <c@d>\r\n",
        b"To: g: a@b (c), <@r:d@e>;",
        b"Subject: =?utf-8?q?x",
        b"Received: x\r\n",
        b" folded\r\n",
        b"text",
        b"<p>",
        b"(",
        b"\\",
        b"\"",
        b"\0",
        b"\xff",
    ];
    let one = prop_oneof![
        20 => proptest::sample::select(FRAGMENTS).prop_map(<[u8]>::to_vec),
        // Lines longer than what is kept of a line that is not whole.
        1 => (proptest::sample::select(&[b'x', b' ', b'-'][..]), 900..5_000_usize).prop_map(|(byte, n)| vec![byte; n]),
    ];
    proptest::collection::vec(one, 0..40).prop_map(|fragments| fragments.concat())
}

/// An entity as its grammar has it (with either line end), nested up to four deep.
fn entity() -> impl Strategy<Value = String> {
    let text = prop_oneof![Just(""), Just("x"), Just("one\ntwo\n"), Just("--\n"), Just("--b1x\n"), Just("\n\n")];
    let kind = prop_oneof![
        Just(""),
        Just("Content-Type: text/html; charset=utf-8\n"),
        Just("Content-Type: image/png;\n\tname*0*=utf-8''%C3;\n\tname*1*=%BC\nContent-Transfer-Encoding: base64\n"),
    ];
    let leaf = (kind, text).prop_map(|(kind, text)| format!("{kind}\n{text}"));
    leaf.prop_recursive(4, 24, 4, |inner| {
        let subtype = proptest::sample::select(&["mixed", "digest", "alternative"][..]);
        let boundary = proptest::sample::select(&["b", "b1", "b12", "b b", "'()+_,-./:=?"][..]);
        let children = proptest::collection::vec(inner.clone(), 0..4);
        let around = (any::<bool>(), any::<bool>(), any::<bool>());
        let multipart = (subtype, boundary, children, around).prop_map(|(subtype, boundary, children, around)| {
            let (preamble, close, epilogue) = around;
            let mut out = format!("Content-Type: multipart/{subtype}; boundary=\"{boundary}\"\n\n");
            out += if preamble { "preamble\n" } else { "" };
            children.iter().for_each(|child| out += &format!("--{boundary}\n{child}\n"));
            out += &if close { format!("--{boundary}--\n") } else { String::new() };
            out += if epilogue { "epilogue\n" } else { "" };
            out
        });
        let message = inner.prop_map(|inner| {
            format!("Content-Type: message/rfc822\n\nFrom: a@b\nSubject: s\nReferences: <a@b> <c@d>\n{inner}")
        });
        prop_oneof![2 => multipart, 1 => message]
    })
}

proptest! {
    #[test]
    fn fragments_of_mail(octets in fragments()) {
        check(&octets);
    }

    #[test]
    fn mail(text in entity()) {
        check(text.as_bytes());
        check(text.replace('\n', "\r\n").as_bytes());
    }

    #[test]
    fn octets(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        check(&octets);
    }

    #[test]
    fn damaged_rows(text in entity(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let row = NewMessage::from_octets(text.into_bytes()).row(ThreadId(1)).encode();
        let mut damaged = row.to_vec();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        drop(MessageRow::decode(&damaged.into()));
        drop(MessageRow::decode(&row.slice(..at)));
    }
}

#[test]
fn named_cases() {
    for case in [
        // A digest's entity that ends in its header: an embedded message of nothing.
        &b"Content-Type: multipart/digest; boundary=\"c\"\r\n\r\n--c\r\nFrom: a@b\r\n--b\r\n--c\r\n"[..],
        b"Content-Type: multipart/digest; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n",
        b"Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: message/rfc822\r\n\r\n--c--\r\n",
        b"Content-Type: multipart/mixed; boundary=c\n\n--c\n--c\n--c--",
        b"Content-Type: multipart/mixed; boundary=\"\"\r\n\r\n--\r\n\r\n----\r\n",
        b"Content-Type: message/rfc822\r\n",
        b"--",
        b"\r",
    ] {
        check(case);
    }
}

/// The folder of test messages that mail-parser is published with, where cargo keeps its source.
fn published() -> std::io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only for this platform: packages for others need not be on this machine.
    let rustc = std::process::Command::new("rustc").arg("-vV").output()?;
    let rustc = String::from_utf8_lossy(&rustc.stdout);
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc says what it runs on");
    let output = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().expect("cargo metadata has packages");
    let package = packages.iter().find(|package| package["name"] == "mail-parser").expect("we depend on it");
    let manifest = package["manifest_path"].as_str().expect("a package has a manifest");
    Ok(Path::new(manifest).with_file_name("resources"))
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, out)?;
        } else if path.extension().is_some_and(|extension| extension == "eml") {
            out.push(path);
        }
    }
    Ok(())
}

#[test]
fn published_mail() {
    let mut paths = Vec::new();
    files(&published().unwrap(), &mut paths).unwrap();
    assert!(paths.len() >= 100, "only {} messages", paths.len());
    for path in paths {
        let octets = std::fs::read(path).unwrap();
        check(&octets);
        check(&octets[..octets.len() / 2]);
    }
}

/// Everything that reads a message takes time in proportion to it: these are long enough that squares take minutes.
#[test]
fn nothing_is_slow() {
    const BYTES: usize = 1 << 20;
    let repeated = |head: &str, piece: &str, tail: &str| {
        let count = (BYTES - head.len() - tail.len()) / piece.len();
        [head, &piece.repeat(count), tail].concat()
    };
    let mut nested = String::new();
    for n in 0..63 {
        let boundary = format!("{}{n}", "-".repeat(60));
        nested += &format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n--{boundary}\r\n");
    }
    nested += "\r\n";
    let mut cases = vec![
        repeated(&nested, &format!("--{}\r\n", "-".repeat(61)), ""),
        repeated(&nested, "--\r\n", ""),
        repeated("", "\n", ""),
        repeated("", "--", ""),
        repeated("", ":", ""),
        repeated("X: ", "\r\n ", "\r\n\r\n"),
        repeated("Content-Type: multipart/mixed; boundary=b\r\n\r\n", "--b\r\n", ""),
        repeated("Content-Type: multipart/digest; boundary=b\r\n\r\n", "--b\r\n\r\n", ""),
        repeated("", "Content-Type: message/rfc822\r\n\r\n", ""),
        repeated("\r\n", "<", ""),
        repeated("Content-Type: text/html\r\n\r\n", "<a ", ""),
        repeated("Content-Type: text/html\r\n\r\n", "&", ""),
        repeated("Content-Type: text/plain; charset=utf-7\r\nContent-Transfer-Encoding: base64\r\n\r\n", "+A", ""),
    ];
    for field in ["From", "Subject", "References", "Content-Type: a/b", "Content-Disposition: a", "Content-Language"] {
        for piece in [
            "a,",
            "(a)",
            "(",
            ")",
            "\\",
            "\"",
            "\"a\"",
            "<",
            ">",
            "<a>",
            "<a@b>,",
            "@",
            "@a:",
            ":",
            ";",
            "[",
            "[]",
            "[a",
            "a ",
            ".",
            "re:",
            "re ",
            "[a]",
            "[a] re: ",
            "(fwd)",
            "[fwd:",
            "=?",
            "=?utf-8?q?",
            "=?utf-8?q?a?= ",
            "=?utf-8?b?AA==?=",
            "a:;",
            ";a=b",
            ";n*0=a",
            ";a*1*=b;",
            "=",
            "a=(",
            "\t\r\n ",
        ] {
            cases.push(repeated(
                &format!("{field}{} ", if field.contains(':') { ";" } else { ":" }),
                piece,
                "\r\n\r\n",
            ));
        }
    }
    for case in cases {
        let started = Instant::now();
        let octets = case.as_bytes();
        let message = NewMessage::from_octets(octets.to_vec());
        drop((envelope(octets), thread_ids(octets), decode_text(message.structure(), octets)));
        for field in header_fields(octets) {
            drop(base_subject(&decode_header(field.value)));
        }
        drop(MessageRow::decode(&message.row(ThreadId(1)).encode()));
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?} for {:?}…", &case[..100]);
    }
}
