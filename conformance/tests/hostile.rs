//! Bytes from the network: random streams, slow and broken peers. The server must neither end, nor grow, nor stop
//! serving others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use posthouse_conformance::imap::Imap;
use posthouse_conformance::server::{ALICE, PASSWORD, Server};
use posthouse_conformance::smtp::Smtp;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Fragments that take a stream deeper than pure noise would.
const FRAGMENTS: &[&[u8]] = &[
    b"EHLO x\r\n",
    b"LHLO x\r\n",
    b"MAIL FROM:<a@b.c>\r\n",
    b"MAIL FROM:<>\r\n",
    b"RCPT TO:<alice@example.test>\r\n",
    b"DATA\r\n",
    b".\r\n",
    b"\r\n.\r\n",
    b"\n.\r\n",
    b"\r.\r",
    b"RSET\r\n",
    b"STARTTLS\r\n",
    b"AUTH PLAIN ",
    b"AUTH LOGIN\r\n",
    b"QUIT\r\n",
    b"BDAT 99999999999999999999999 LAST\r\n",
    b"a LOGIN \"alice@example.test\" \"correct horse\"\r\n",
    b"b SELECT INBOX\r\n",
    b"c FETCH 1:* (FLAGS BODY[])\r\n",
    b"d APPEND INBOX {10+}\r\n0123456789\r\n",
    b"e APPEND INBOX {99999999999}\r\n",
    b"f SEARCH ",
    b"OR ",
    b"NOT ",
    b"(",
    b")",
    b"{5}\r\n",
    b"{4096+}\r\n",
    b"\"",
    b"\\",
    b"\r\n",
    b"\0",
    b"\xff\xfe",
    b"g IDLE\r\n",
    b"DONE\r\n",
    b"h UID FETCH 4294967295:1 BODY.PEEK[1.2.3.4.MIME]<0.1>\r\n",
    b"i LIST \"\" %*%\r\n",
    b"j STORE 1:* +FLAGS (\\Deleted x)\r\n",
    b"k CREATE \"a/b/&AAA-\"\r\n",
    b"GET /metrics HTTP/1.1\r\n",
    b"Host: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n",
    b"AUTHENTICATE PLAIN =\r\n",
    b"l COPY * Trash\r\n",
];

fn stream(rng: &mut StdRng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.random_range(1..14) {
        if rng.random_bool(0.75) {
            out.extend_from_slice(FRAGMENTS.choose(rng).expect("not empty"));
        } else {
            let n = rng.random_range(1..200);
            out.extend((0..n).map(|_| rng.random::<u8>()));
        }
    }
    out
}

fn throw(address: SocketAddr, octets: &[u8], read: bool) {
    let Ok(mut socket) = TcpStream::connect_timeout(&address, Duration::from_secs(10)) else { return };
    // Whatever the server does with the connection is fine here; what counts is checked afterwards.
    drop(socket.set_write_timeout(Some(Duration::from_millis(500))));
    drop(socket.set_read_timeout(Some(Duration::from_millis(5))));
    drop(socket.write_all(octets));
    if read {
        let mut sink = [0; 4096];
        while matches!(socket.read(&mut sink), Ok(n) if n > 0) {}
    }
}

fn still_serves(server: &mut Server, marker: &str) -> Result<()> {
    ensure!(server.alive(), "the server ended");
    let mut smtp = Smtp::connect(server.smtp())?;
    let reply = smtp.deliver("x@sender.test", &[ALICE], format!("Subject: {marker}\r\n\r\nhello\r\n").as_bytes())?;
    ensure!(reply.code == 250, "{reply:?}");
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    imap.select("INBOX")?;
    let answer = imap.ok(&format!("SEARCH SUBJECT {marker}"))?;
    let hits = answer.untagged.iter().find(|line| line.line.starts_with("SEARCH")).context("no SEARCH")?;
    ensure!(hits.line.split_whitespace().count() == 2, "{hits:?}");
    Ok(())
}

fn noise(streams: usize) -> Result<()> {
    let seed: u64 = std::env::var("NOISE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("NOISE_SEED={seed}");
    let directory = tempfile::tempdir()?;
    let mut server = Server::start(&directory.path().join("data"))?;
    still_serves(&mut server, "before")?;
    let (_, before) = server.memory_kb()?;
    let base = server.base;
    for (port, address) in (0..8).map(|offset| SocketAddr::from(([127, 0, 0, 1], base + offset))).enumerate() {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(seed ^ (thread << 32) ^ port as u64);
                    for n in 0..streams / 4 {
                        throw(address, &stream(&mut rng), n % 8 == 0);
                    }
                });
            }
        });
        still_serves(&mut server, &format!("after{port}"))?;
    }
    let (_, after) = server.memory_kb()?;
    println!("{streams} streams at each of 8 ports; highest resident memory {before} kB before, {after} kB after");
    ensure!(after < before + 300_000, "resident memory grew from {before} kB to {after} kB");
    let log = std::fs::read_to_string(server.data.with_extension("log"))?;
    ensure!(
        !log.contains("panicked"),
        "a panic in the log: {}",
        log.lines().find(|line| line.contains("panicked")).unwrap_or("")
    );
    Ok(())
}

#[test]
fn a_thousand_random_streams_at_each_port() -> Result<()> {
    noise(1_000)
}

#[test]
#[ignore = "takes minutes; the continuous integration runs it"]
fn ten_thousand_random_streams_at_each_port() -> Result<()> {
    noise(10_000)
}

/// Smuggling: what looks like an end of data to a lenient server never is one here, and never makes two messages.
#[test]
fn smuggled_ends_of_data_make_at_most_one_message() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = Server::start(&directory.path().join("data"))?;
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
    for (n, end) in ends.iter().enumerate() {
        let mut smtp = Smtp::connect(server.smtp())?;
        smtp.begin("a@sender.test", &[ALICE])?;
        let mut octets = format!("Subject: outer{n}\r\n\r\nfirst").into_bytes();
        octets.extend_from_slice(end);
        octets.extend_from_slice(b"MAIL FROM:<evil@sender.test>\r\nRCPT TO:<alice@example.test>\r\nDATA\r\n");
        octets.extend_from_slice(format!("Subject: smuggled{n}\r\n\r\nx\r\n.\r\n").as_bytes());
        smtp.send(&octets)?;
        let reply = smtp.reply()?;
        ensure!(reply.code == 550, "{end:?}: {reply:?}");
        ensure!(smtp.reply().is_err(), "{end:?}: the connection goes on");
    }
    still_serves(&mut server, "honest")?;
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    ensure!(imap.select("INBOX")? == 1, "something was smuggled in");
    Ok(())
}
