//! Wrong command lines and configurations: exit code 2, and what to change.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Dialogue, Killed, expect, free_ports, posthouse};

#[test]
fn bad_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("posthouse.toml");
    let name = file.to_str().unwrap();
    let cases: [(&str, &[&str]); 13] = [
        ("[server]\nhostnme = \"x\"\n", &["posthouse.toml:2", "did you mean `hostname`?"]),
        ("[sever]\n", &["unknown section [sever]", "did you mean [server]?"]),
        ("hostname = \"x\"\n", &["belongs into section [server]"]),
        ("[server]\nhostname = \"under_score\"\n", &["not a host name", "mail.example.org"]),
        ("[server]\ngrace_seconds = \"long\"\n", &["a whole number", "example: grace_seconds = 20"]),
        ("[server]\nlog = \"info,x=loud\"\n", &["server.log", "example: log = "]),
        ("[listen]\nsmtp = [\"25\"]\n", &["an address with a port", "0.0.0.0:25"]),
        ("[listen]\nimaps = [\"127.0.0.1:993\"]\n", &["needs a certificate", "[tls]"]),
        ("[tls]\nkey = \"k.pem\"\n", &["without `tls.certificate`"]),
        (
            "[tls]\ncertificate = \"nowhere.pem\"\nkey = \"k.pem\"\n",
            &["nowhere.pem", "tls.certificate", "No such file"],
        ),
        (
            "[tls]\ncertificate = \"posthouse.toml\"\nkey = \"k.pem\"\n",
            &["posthouse.toml", "tls.certificate", "BEGIN CERTIFICATE"],
        ),
        ("[server\n", &["posthouse.toml:1:8", "not valid TOML", "[server]\n1 mistake"]),
        ("[http]\nheaders_max = 0\n[storage]\ncache_bytes = 1\n", &["2 mistakes", "at least 1", "at least 1048576"]),
    ];
    for (text, parts) in cases {
        std::fs::write(&file, text).unwrap();
        for arguments in [&["check-config", name][..], &["serve", "--config", name]] {
            let (_, error) = expect(2, arguments);
            for part in parts {
                assert!(error.contains(part), "{text:?}: {part:?} in {error}");
            }
        }
    }
    assert!(!directory.path().join("data").exists(), "nothing was begun");
}

#[test]
fn bad_command_lines() {
    let nowhere = "/nowhere/posthouse.toml";
    let cases: [(&[&str], &str); 9] = [
        (&[], "Usage"),
        (&["dance"], "unrecognized subcommand"),
        (&["serve"], "--config"),
        (&["serve", "--config", nowhere], "cannot be read"),
        (&["try", "--ports-from", "70000"], "70000"),
        (&["try", "--ports-from", "65530"], "65528"),
        (&["account", "list"], "--data"),
        (&["account", "quota", "a@b.test", "many", "--data", "/x"], "a number of bytes"),
        (&["import", "/nowhere/mail", "--account", "a@b.test", "--data", "/x"], "there is no /nowhere/mail"),
    ];
    for (arguments, part) in cases {
        let (_, error) = expect(2, arguments);
        assert!(error.contains(part), "{arguments:?}: {part:?} in {error}");
    }
}

#[test]
fn a_good_configuration_is_said_to_be_good() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("posthouse.toml");
    std::fs::write(&file, "[server]\nhostname = \"mail.example.org\"\n").unwrap();
    let (out, _) = expect(0, &["check-config", file.to_str().unwrap()]);
    assert!(out.contains("no mistakes"), "{out}");
}

/// Writes a configuration with every role on a loopback port.
fn configuration(directory: &Path, base: u16, more: &str) -> std::path::PathBuf {
    let file = directory.join("posthouse.toml");
    let text = format!(
        "[server]\nhostname = \"mail.example.org\"\ndata_dir = \"mail\"\nlog_format = \"json\"\n[listen]\n\
         smtp = [\"127.0.0.1:{base}\"]\nsubmission = [\"127.0.0.1:{}\"]\nimap = [\"127.0.0.1:{}\"]\n\
         http = [\"127.0.0.1:{}\"]\n{more}",
        base + 1,
        base + 4,
        base + 6
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn without_a_certificate_nobody_is_asked_for_a_password() {
    let directory = tempfile::tempdir().unwrap();
    let base = free_ports();
    let file = configuration(directory.path(), base, "");
    let log = directory.path().join("log");
    let mut command = posthouse();
    let child =
        command.arg("serve").arg("--config").arg(&file).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut child = Killed(child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", base + 6)).is_err() {
        assert!(Instant::now() < deadline && child.0.try_wait().unwrap().is_none(), "it listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut submission = Dialogue::connect(base + 1);
    submission.reply(220);
    let offered = submission.smtp("EHLO client.test", 250);
    assert!(!offered.contains("AUTH") && !offered.contains("STARTTLS"), "{offered}");
    let mut imap = Dialogue::connect(base + 4);
    imap.line();
    let offered = String::from_utf8(imap.imap("CAPABILITY")).unwrap();
    assert!(
        offered.contains("LOGINDISABLED") && !offered.contains("AUTH=") && !offered.contains("STARTTLS"),
        "{offered}"
    );
    assert!(directory.path().join("mail").is_dir(), "the data directory is beside the file");

    let id = child.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let code = child.0.wait().unwrap().code();
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = lines.iter().any(|line| {
        line["level"] == "WARN"
            && line["fields"]["message"].as_str().is_some_and(|text| text.contains("no certificate"))
    });
    assert!(warned, "{log}");
}

#[test]
fn a_taken_port_names_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let base = free_ports();
    let file = configuration(directory.path(), base, "");
    let _taken = TcpListener::bind(("127.0.0.1", base + 4)).unwrap();
    let (_, error) = expect(1, &["serve", "--config", file.to_str().unwrap()]);
    assert!(error.contains("`listen.imap`") && error.contains(&format!("port {}", base + 4)), "{error}");
}

#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = configuration(directory.path(), free_ports(), "");
    let file = file.to_str().unwrap();
    let mail = directory.path().join("mail");
    let refused = |parts: &[&str]| {
        for arguments in [&["serve", "--config", file][..], &["domain", "list", "--config", file]] {
            let (_, error) = expect(1, arguments);
            for part in [mail.to_str().unwrap(), "name another one (`server.data_dir`"].iter().chain(parts) {
                assert!(error.contains(part), "{arguments:?}: {part:?} in {error}");
            }
        }
    };
    // A file where the directory should be, or where one inside of it should be.
    std::fs::write(&mail, "").unwrap();
    refused(&["cannot make the data directory", "File exists"]);
    std::fs::remove_file(&mail).unwrap();
    std::fs::create_dir(&mail).unwrap();
    std::fs::write(mail.join("store"), "").unwrap();
    refused(&["cannot use the data directory"]);
}
