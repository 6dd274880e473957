//! Memory: what an idle connection and a message in flight cost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use posthouse_conformance::imap::Imap;
use posthouse_conformance::server::{ALICE, BOB, PASSWORD, Server};
use posthouse_conformance::smtp::Smtp;

fn idle(connections: u64) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let server =
        Server::start_with(&directory.path().join("data"), &[("POSTHOUSE_IMAP__SESSIONS_PER_ACCOUNT_MAX", "100000")])?;
    let open = |n: u64| -> Result<TcpStream> {
        let mut socket = TcpStream::connect(server.imap())?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        let user = if n.is_multiple_of(2) { ALICE } else { BOB };
        socket.write_all(format!("a LOGIN {user} \"{PASSWORD}\"\r\nb SELECT INBOX\r\nc IDLE\r\n").as_bytes())?;
        let mut seen = Vec::new();
        let mut piece = [0; 2048];
        while !seen.windows(4).any(|octets| octets == b"\r\n+ ") {
            let n = socket.read(&mut piece)?;
            ensure!(n > 0, "closed after {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..n]);
        }
        Ok(socket)
    };
    let warm: Vec<TcpStream> = (0..50).map(open).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_millis(300));
    let (before, _) = server.memory_kb()?;
    let held: Vec<TcpStream> = (0..connections).map(open).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_secs(2));
    let (after, _) = server.memory_kb()?;
    let each = (after.saturating_sub(before)) * 1024 / connections;
    println!("{connections} idle connections: {before} kB before, {after} kB after = {each} bytes each");
    drop((warm, held));
    Ok(each)
}

#[test]
fn an_idle_connection_costs_at_most_20_kb() -> Result<()> {
    // 2,000 in the release run; fewer here keep the limit on open files of an ordinary user.
    let each = idle(std::env::var("IDLE_CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(400))?;
    ensure!(each <= 20_000, "{each} bytes each");
    Ok(())
}

#[test]
fn a_large_message_in_flight_does_not_sit_in_memory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let server = Server::start(&directory.path().join("data"))?;
    let line = [b"0123456789abcdef".repeat(4).as_slice(), b"\r\n"].concat();
    let block = line.repeat(1_000);
    let size = 25_000_000 / block.len() * block.len();
    // Warm up with one, then eight at once: all but their last octets sent, and held there.
    let send = |finish: bool| -> Result<Smtp> {
        let mut smtp = Smtp::connect(server.smtp())?;
        smtp.begin("a@sender.test", &[ALICE])?;
        smtp.send(b"Subject: large\r\n\r\n")?;
        for _ in 0..size / block.len() {
            smtp.send(&block)?;
        }
        if finish {
            smtp.send(b".\r\n")?;
            smtp.expect(250)?;
        }
        Ok(smtp)
    };
    drop(send(true)?);
    let (before, _) = server.memory_kb()?;
    let held: Vec<Smtp> = (0..8).map(|_| send(false)).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_millis(500));
    let (during, _) = server.memory_kb()?;
    let each = during.saturating_sub(before) * 1024 / 8;
    println!("8 messages of {size} bytes in flight: {before} kB before, {during} kB during = {each} bytes each");
    ensure!(each < 2_000_000, "{each} bytes for each message in flight");
    for mut smtp in held {
        smtp.send(b".\r\n")?;
        smtp.expect(250)?;
    }
    // And out again: the octets are right, and reading them does not buffer the whole either.
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    ensure!(imap.select("INBOX")? == 9);
    let answer = imap.ok("FETCH 9 (BODY.PEEK[TEXT])")?;
    let body = answer.untagged.iter().find_map(|line| line.literals.first()).context("no body")?;
    ensure!(body.len() == size && body.chunks(block.len()).all(|piece| piece == block), "octets differ");
    Ok(())
}
