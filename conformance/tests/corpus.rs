//! Real mail: everything others published as test data goes in by SMTP and by APPEND, comes back octet for octet, and
//! every FETCH item on it is answered. Broken MIME never costs a connection.

use anyhow::{Context, Result, ensure};
use posthouse_conformance::corpus::{self, Sample};
use posthouse_conformance::imap::Imap;
use posthouse_conformance::server::{ALICE, BOB, PASSWORD, Server};
use posthouse_conformance::smtp::Smtp;

/// Every item of RFC 3501 §6.4.5 that can be asked for on any message.
const ITEMS: &[&str] = &[
    "ALL",
    "FULL",
    "FAST",
    "FLAGS",
    "UID",
    "INTERNALDATE",
    "RFC822.SIZE",
    "ENVELOPE",
    "BODY",
    "BODYSTRUCTURE",
    "RFC822.HEADER",
    "BODY.PEEK[HEADER]",
    "BODY.PEEK[TEXT]",
    "BODY.PEEK[HEADER.FIELDS (SUBJECT FROM X-NONE)]",
    "BODY.PEEK[HEADER.FIELDS.NOT (RECEIVED)]",
    "BODY.PEEK[1]",
    "BODY.PEEK[1.MIME]",
    "BODY.PEEK[1.1]",
    "BODY.PEEK[2]",
    "BODY.PEEK[2.MIME]",
    "BODY.PEEK[2.HEADER]",
    "BODY.PEEK[2.TEXT]",
    "BODY.PEEK[1.2.3.4]",
    "BODY.PEEK[]<0.100>",
    "BODY.PEEK[]<999999999.5>",
    "BODY.PEEK[TEXT]<1.1>",
    "RFC822",
    "RFC822.TEXT",
    "BODY[]",
];

fn without_return_paths(mut octets: &[u8]) -> &[u8] {
    let is_return_path = |octets: &[u8]| octets.len() > 12 && octets[..12].eq_ignore_ascii_case(b"Return-Path:");
    let line = |octets: &[u8]| octets.iter().position(|&octet| octet == b'\n').map_or(octets.len(), |at| at + 1);
    while is_return_path(octets) {
        octets = &octets[line(octets)..];
        while matches!(octets.first(), Some(b' ' | b'\t')) {
            octets = &octets[line(octets)..];
        }
    }
    octets
}

fn round_trip(samples: &[Sample]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = Server::start(&directory.path().join("data"))?;
    let mut smtp = Smtp::connect(server.smtp())?;
    let mut bob = Imap::login(server.imap(), BOB, PASSWORD)?;
    let (mut looping, mut several_from) = (0, 0);
    let mut sent = Vec::new();
    for sample in samples {
        let reply =
            smtp.deliver("corpus@sender.test", &[ALICE], &sample.octets).with_context(|| sample.name.clone())?;
        if reply.code == 554 && reply.text.contains("5.4.6") {
            looping += 1; // more Received fields than a server may accept
        } else if reply.code == 550 && reply.text.contains("5.7.1") {
            several_from += 1;
        } else {
            ensure!(reply.code == 250, "{}: {reply:?}", sample.name);
            sent.push(sample);
        }
        let answer = bob.append("INBOX", "(\\Seen) ", &sample.octets).with_context(|| sample.name.clone())?;
        ensure!(answer.ok(), "{}: {}", sample.name, answer.tagged);
    }
    ensure!(looping < 3, "{looping} taken for loops");
    ensure!(several_from < 3, "{several_from} with several From fields");
    let mut alice = Imap::login(server.imap(), ALICE, PASSWORD)?;
    for (imap, expected, exact) in [(&mut alice, &sent, false), (&mut bob, &samples.iter().collect(), true)] {
        ensure!(imap.select("INBOX")? as usize == expected.len());
        for (n, sample) in expected.iter().enumerate() {
            let context = || format!("{} (message {})", sample.name, n + 1);
            for item in ITEMS {
                let answer = imap.command(&format!("FETCH {} {item}", n + 1)).with_context(context)?;
                ensure!(answer.ok(), "{}: {item}: {}", context(), answer.tagged);
                ensure!(
                    answer.untagged.iter().any(|line| line.numbered("FETCH").is_some()),
                    "{}: {item}: no answer",
                    context()
                );
                if *item == "BODY[]" {
                    let fetch =
                        answer.untagged.iter().find(|line| line.numbered("FETCH").is_some()).context("FETCH")?;
                    let octets = fetch.literals.first().with_context(context)?;
                    if exact {
                        ensure!(octets == &sample.octets, "{}: octets differ", context());
                    } else {
                        // RFC 5321 §4.4: Return-Path is the final server's to write; others at the top are taken out.
                        let sent = without_return_paths(&sample.octets);
                        ensure!(octets.ends_with(sent), "{}: octets differ", context());
                        let added = &octets[..octets.len() - sent.len()];
                        ensure!(
                            added.starts_with(b"Return-Path: <corpus@sender.test>\r\nReceived: from "),
                            "{}: {:?}",
                            context(),
                            String::from_utf8_lossy(added)
                        );
                    }
                }
            }
        }
        for search in [
            "TEXT invoice",
            "BODY the",
            "SUBJECT test",
            "FROM a",
            "HEADER Message-ID \"\"",
            "SENTSINCE 1-Jan-1990",
            "LARGER 1000",
            "OR SEEN NOT SEEN",
        ] {
            imap.ok(&format!("SEARCH {search}"))?;
        }
    }
    ensure!(server.alive());
    println!("{} messages in and out, {} FETCH items each", samples.len(), ITEMS.len());
    Ok(())
}

#[test]
fn published_messages_of_mail_parser() -> Result<()> {
    round_trip(&corpus::mail_parser()?)
}

#[test]
fn generated_messages() -> Result<()> {
    round_trip(&corpus::generated(1, 150))
}

#[test]
#[ignore = "needs python3 with its test package (Debian: libpython3.X-testsuite)"]
fn published_messages_of_python() -> Result<()> {
    round_trip(&corpus::python()?)
}
