//! `posthouse try`: the contract that scripts and the README rely on.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use support::{Killed, PASSWORD, Server, expect, free_ports, literal, posthouse};

const MESSAGE: &str = "From: Bob <bob@example.test>\r\nTo: alice@example.test\r\nSubject: Hello\r\n\r\n\
                       One line.\r\n.dot\r\n..dots\r\n\r\nLast line.\r\n";

#[test]
fn a_message_sent_is_read_back_octet_for_octet() {
    let mut server = Server::start(&["--password", PASSWORD]);
    let base = server.base;
    let data = server.ready["data"].as_str().unwrap().to_owned();
    assert!(Path::new(&data).is_dir());
    assert_eq!(
        server.ready,
        serde_json::json!({
            "ready": true,
            "data": data,
            "accounts": ["alice@example.test", "bob@example.test"],
            "password": PASSWORD,
            "ports": { "smtp": base, "submission": base + 1, "submissions": base + 2, "lmtp": base + 3,
                       "imap": base + 4, "imaps": base + 5, "http": base + 6, "https": base + 7 },
        })
    );

    let mut smtp = server.smtp();
    smtp.reply(220);
    smtp.smtp("EHLO client.test", 250);
    smtp.smtp("MAIL FROM:<bob@example.test>", 250);
    smtp.smtp("RCPT TO:<nobody@example.test>", 550);
    smtp.smtp("RCPT TO:<alice@example.test>", 250);
    smtp.smtp("DATA", 354);
    smtp.send(format!("{}.\r\n", MESSAGE.replace("\r\n.", "\r\n..")).as_bytes());
    smtp.reply(250);
    smtp.smtp("QUIT", 221);

    let mut imap = server.imap();
    assert!(imap.line().starts_with("* OK"));
    imap.imap(&format!("LOGIN alice@example.test \"{PASSWORD}\""));
    let selected = imap.imap("SELECT INBOX");
    assert!(String::from_utf8_lossy(&selected).contains("* 1 EXISTS"));
    let fetched = imap.imap("FETCH 1 BODY.PEEK[]");
    let message = String::from_utf8(literal(&fetched).to_vec()).unwrap();
    let (trace, body) = message.split_at(message.len() - MESSAGE.len());
    assert_eq!(body, MESSAGE);
    assert!(trace.starts_with("Return-Path: <bob@example.test>\r\n") && trace.contains("Received: "), "{trace}");
    drop(imap);

    assert!(server.http("/readyz").starts_with("HTTP/1.1 200"));
    assert!(server.http("/metrics").contains("posthouse_build_info"));

    assert_eq!(server.terminate(), 0);
    assert!(!Path::new(&data).exists(), "the temporary directory is gone");
}

#[test]
fn a_data_directory_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::trial(&data);
    let mut smtp = server.smtp();
    smtp.reply(220);
    for command in ["HELO x", "MAIL FROM:<bob@example.test>", "RCPT TO:<alice@example.test>"] {
        smtp.smtp(command, 250);
    }
    smtp.smtp("DATA", 354);
    smtp.send(format!("{}.\r\n", MESSAGE.replace("\r\n.", "\r\n..")).as_bytes());
    smtp.reply(250);
    server.signal("-KILL");
    drop(server);

    let mut server = Server::start(&["--data", data.to_str().unwrap()]);
    let password = server.ready["password"].as_str().unwrap().to_owned();
    assert!(password.len() >= 16, "one is made");
    let mut imap = server.imap();
    imap.line();
    imap.imap(&format!("LOGIN alice@example.test {password}"));
    let status = imap.imap("STATUS INBOX (MESSAGES)");
    assert!(String::from_utf8_lossy(&status).contains("MESSAGES 1"));
    assert_eq!(server.terminate(), 0);
    assert!(data.is_dir(), "kept");
}

#[test]
fn a_second_server_on_the_same_data_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::trial(directory.path());
    let ports = free_ports().to_string();
    let data = directory.path().to_str().unwrap();
    let (_, error) = expect(1, &["try", "--data", data, "--ports-from", &ports]);
    assert!(error.contains("in use by another process") && error.contains(data), "{error}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().min(65528);
    let (_, error) = expect(1, &["try", "--ports-from", &port.to_string()]);
    assert!(error.contains("--ports-from") && error.contains(&port.to_string()) && error.contains("taken"), "{error}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&[]);
    // A session that never says anything does not keep it from ending.
    let _idle = server.imap();
    server.signal("-INT");
    // 1 when the second one came while it was still stopping.
    assert!(matches!(server.terminate(), 0 | 1));
}

#[test]
fn people_get_instructions() {
    let base = free_ports().to_string();
    let mut command = posthouse();
    command.args(["try", "--ports-from", &base]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(command.spawn().unwrap());
    let mut out = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("account list") {
        assert!(std::io::BufRead::read_line(&mut out, &mut text).unwrap() > 0, "ended after {text}");
    }
    for expected in
        ["curl -sS smtp://127.0.0.1", "swaks --server", "curl -sS --user alice@example.test:", "Settings for"]
    {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let id = child.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}
