//! Domains, accounts and aliases: against a running server, and on a data directory that nobody holds.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Server, expect, expect_with_input, literal};

/// Everything an administrator does, with the data directory held by a server or not.
fn administer(data: &str) {
    let at = ["--data", data];
    let with =
        |arguments: &[&str]| -> Vec<String> { arguments.iter().chain(&at).map(|&word| word.to_owned()).collect() };
    let ok = |arguments: &[&str]| {
        let arguments = with(arguments);
        expect(0, &arguments.iter().map(String::as_str).collect::<Vec<_>>()).0
    };
    let fails = |arguments: &[&str], part: &str| {
        let arguments = with(arguments);
        let (_, error) = expect(1, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(error.contains(part), "{arguments:?}: {part:?} in {error}");
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&ok(&arguments)).unwrap()
    };

    ok(&["domain", "add", "example.org"]);
    fails(&["domain", "add", "example.org"], "exists already");
    fails(&["account", "add", "ann@nowhere.test", "--generate"], "add it first");
    assert!(json(&["domain", "list"]).as_array().unwrap().contains(&"example.org".into()));

    let made = json(&["account", "add", "ann@example.org", "--generate", "--quota", "1M"]);
    assert!(made["password"].as_str().is_some_and(|password| password.len() >= 16), "{made}");
    let arguments = with(&["account", "add", "bo@example.org"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (out, _) = expect_with_input(0, &arguments, "battery staple\n");
    assert!(!out.contains("battery"), "a given password is not repeated: {out}");
    fails(&["account", "add", "bo@example.org", "--generate"], "exists already");
    ok(&["account", "quota", "bo@example.org", "2G"]);
    ok(&["account", "disable", "bo@example.org"]);
    let accounts = json(&["account", "list"]);
    let find = |address: &str| accounts.as_array().unwrap().iter().find(|line| line["address"] == address).unwrap();
    assert_eq!(
        (&find("ann@example.org")["quota_bytes"], &find("ann@example.org")["enabled"]),
        (&(1 << 20).into(), &true.into())
    );
    assert_eq!(
        (&find("bo@example.org")["quota_bytes"], &find("bo@example.org")["enabled"]),
        (&(2_u64 << 30).into(), &false.into())
    );
    ok(&["account", "enable", "bo@example.org"]);
    assert!(ok(&["account", "set-password", "ann@example.org", "--generate"]).contains("password: "));
    fails(&["account", "set-password", "cy@example.org", "--generate"], "no account");

    ok(&["alias", "add", "all@example.org", "ann@example.org", "bo@example.org"]);
    ok(&["alias", "add", "@example.org", "ann@example.org"]);
    let aliases = json(&["alias", "list"]);
    let line = |alias: &str| aliases.as_array().unwrap().iter().find(|line| line["alias"] == alias).cloned();
    assert_eq!(line("all@example.org").unwrap()["targets"], serde_json::json!(["ann@example.org", "bo@example.org"]));
    assert_eq!(line("@example.org").unwrap()["targets"], serde_json::json!(["ann@example.org"]));
    assert!(ok(&["alias", "list"]).contains("ALIAS"));
    assert_eq!(line("all@example.org").unwrap()["dangling"], serde_json::json!([]));

    // What leads to an account keeps it from being removed unawares; told are the targets that receive nothing.
    fails(&["account", "remove", "Ann@example.org"], "all@example.org, @example.org still lead to");
    fails(&["account", "remove", "ann@example.org"], "`posthouse alias add all@example.org TARGET…`");
    let notes = |value: serde_json::Value| -> Vec<String> { serde_json::from_value(value["notes"].clone()).unwrap() };
    ok(&["alias", "add", "tag@example.org", "bo+news@example.org"]);
    fails(&["account", "remove", "bo@example.org"], "all@example.org, tag@example.org still lead to");
    assert_eq!(
        notes(json(&["account", "disable", "bo@example.org"])),
        [
            "all@example.org leads to bo@example.org, who receives nothing now",
            "tag@example.org leads to bo+news@example.org, who receives nothing now, and mail to tag@example.org is \
             refused"
        ]
    );
    assert_eq!(notes(json(&["account", "enable", "bo@example.org"])), Vec::<String>::new());
    ok(&["alias", "remove", "tag@example.org"]);
    assert_eq!(
        notes(json(&["account", "remove", "ann@example.org", "--force"])),
        [
            "all@example.org leads to ann@example.org, who receives nothing now",
            "the catch-all @example.org is gone with it",
            "nobody reads postmaster@example.org any more, which every domain must have: `posthouse alias add \
             postmaster@example.org TARGET`",
            "nobody reads abuse@example.org any more, which every domain must have: `posthouse alias add \
             abuse@example.org TARGET`"
        ]
    );
    let aliases = json(&["alias", "list"]);
    assert_eq!(aliases[0]["dangling"], serde_json::json!(["ann@example.org"]), "{aliases}");
    assert!(ok(&["alias", "list"]).lines().nth(1).unwrap().ends_with("  ann@example.org"));
    fails(&["alias", "add", "@example.org", "ann@example.org"], "nobody here receives mail for ann@example.org");
    ok(&["account", "add", "ann@example.org", "--generate"]);
    ok(&["alias", "add", "@example.org", "ann@example.org"]);

    fails(&["domain", "remove", "example.org"], "remove them first");
    ok(&["alias", "remove", "all@example.org"]);
    ok(&["alias", "remove", "@example.org"]);
    fails(&["alias", "remove", "all@example.org"], "no alias");
    for account in ["ann@example.org", "bo@example.org"] {
        ok(&["account", "remove", account]);
    }
    ok(&["domain", "remove", "example.org"]);
}

#[test]
fn on_a_running_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::trial(&data);
    let socket = data.join("admin.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let text = data.to_str().unwrap();
    administer(text);

    // What was changed holds at once in the server.
    expect_with_input(0, &["account", "set-password", "alice@example.test", "--data", text], "new one\n");
    let mut imap = server.imap();
    imap.line();
    imap.imap("LOGIN alice@example.test \"new one\"");

    assert_eq!(server.terminate(), 0);
    assert!(!socket.exists(), "the socket is removed");
    // The same directory, now that nobody holds it.
    let (out, _) = expect(0, &["account", "list", "--data", text]);
    assert!(out.contains("alice@example.test"), "{out}");
}

/// What leads to nobody is refused before the message is sent.
#[test]
fn an_alias_without_a_reader_refuses_mail() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::trial(directory.path());
    let at = ["--data", directory.path().to_str().unwrap()];
    let ok = |arguments: &[&str]| expect(0, &[arguments, &at].concat());
    ok(&["alias", "add", "sales@example.test", "alice@example.test"]);
    ok(&["alias", "add", "team@example.test", "alice@example.test", "bob@example.test"]);
    let rcpt = |address: &str, code: u16| {
        let mut smtp = server.smtp();
        smtp.reply(220);
        smtp.smtp("EHLO client.test", 250);
        smtp.smtp("MAIL FROM:<a@b.test>", 250);
        smtp.smtp(&format!("RCPT TO:<{address}>"), code)
    };
    rcpt("sales@example.test", 250);
    let (_, error) = ok(&["account", "remove", "alice@example.test", "--force"]);
    assert!(
        error.contains("note: sales@example.test leads to alice@example.test, who receives nothing now"),
        "{error}"
    );
    let refused = rcpt("sales@example.test", 550);
    assert!(refused.starts_with("550 5.1.1 "), "{refused}");
    rcpt("team@example.test", 250);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn on_a_directory_nobody_holds() {
    let directory = tempfile::tempdir().unwrap();
    administer(directory.path().to_str().unwrap());
}

#[test]
fn a_killed_servers_socket_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::trial(directory.path());
    server.signal("-KILL");
    drop(server);
    assert!(directory.path().join("admin.sock").exists());
    expect(0, &["domain", "list", "--data", directory.path().to_str().unwrap()]);
    let mut server = Server::trial(directory.path());
    expect(0, &["domain", "list", "--data", directory.path().to_str().unwrap()]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_long_path_works_too() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("long".repeat(30)).join("data");
    std::fs::create_dir_all(&data).unwrap();
    let mut server = Server::trial(&data);
    let (out, _) = expect(0, &["domain", "list", "--data", data.to_str().unwrap()]);
    assert_eq!(out, "example.test\n");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_missing_directory_is_not_made() {
    let (_, error) = expect(1, &["domain", "list", "--data", "/nowhere/data"]);
    assert!(error.contains("no data directory /nowhere/data"), "{error}");
    assert!(!Path::new("/nowhere").exists());
}

#[test]
fn domains_and_accounts_may_come_before_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("var/data"), directory.path().join("posthouse.toml"));
    let text = format!("[server]\nhostname = \"mail.example.org\"\ndata_dir = \"{}\"\n", data.display());
    std::fs::write(&file, text).unwrap();
    let at = ["--config", file.to_str().unwrap()];
    expect(0, &[&["domain", "add", "example.org"][..], &at].concat());
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    expect(0, &[&["account", "add", "ann@example.org", "--generate"][..], &at].concat());
    assert_eq!(expect(0, &[&["domain", "list"][..], &at].concat()).0, "example.org\n");
}

#[test]
fn both_ways_to_name_the_directory_are_told() {
    let (_, error) = expect(2, &["account", "list"]);
    assert!(error.contains("--data") && error.contains("--config"), "{error}");
}

#[test]
fn somebody_elses_directory_is_not_written_into() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("thesis.txt"), "mine").unwrap();
    let (_, error) = expect(1, &["domain", "add", "example.org", "--data", directory.path().to_str().unwrap()]);
    assert!(error.contains("it holds thesis.txt"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Mail, flags, keywords, dates and mailboxes survive a way out and back in, whoever holds the data.
#[test]
fn import_and_export_round_trip() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let text = data.to_str().unwrap();
    let mail = directory.path().join("mail");
    let messages: [(&str, &[u8]); 4] = [
        ("cur/1700000000.a:2,FS", b"Subject: one\r\n\r\nFrom here\r\n>From there\r\n\r\nx\r\n"),
        ("new/1700000001.b", b"Subject: two\n\nunix line ends\n"),
        (".Work.Plans/cur/1600000000.c:2,RTa", b"Subject: three\r\n\r\n\xff\x00 octets\r\n"),
        (".Work.Plans/cur/1600000001.d:2,", b""),
    ];
    for folder in ["", ".Work.Plans"] {
        for inside in ["cur", "new", "tmp"] {
            std::fs::create_dir_all(mail.join(folder).join(inside)).unwrap();
        }
    }
    for (name, octets) in messages {
        std::fs::write(mail.join(name), octets).unwrap();
    }
    std::fs::write(mail.join(".Work.Plans/dovecot-keywords"), "0 $Label\n").unwrap();

    let mut server = Server::trial(&data);
    let source = mail.to_str().unwrap();
    let (out, error) = expect(1, &["import", source, "--account", "alice@example.test", "--data", text]);
    assert!(out.contains("3 messages imported, 1 skipped"), "{out}");
    assert!(error.contains("1600000001.d:2,: skipped: the file is empty"), "{error}");

    let mut imap = server.imap();
    imap.line();
    imap.imap("LOGIN alice@example.test \"correct horse\"");
    imap.imap("SELECT Work/Plans");
    let fetched = imap.imap("FETCH 1 (FLAGS BODY.PEEK[])");
    assert_eq!(literal(&fetched), messages[2].1);
    let flags = String::from_utf8_lossy(&fetched).into_owned();
    assert!(["\\Answered", "\\Deleted", "$Label"].iter().all(|flag| flags.contains(flag)), "{flags}");
    imap.imap("SELECT INBOX");
    let fetched = imap.imap("FETCH 2 (FLAGS BODY.PEEK[])");
    assert_eq!(literal(&fetched), b"Subject: two\r\n\r\nunix line ends\r\n");
    drop(imap);

    let first = directory.path().join("first");
    let alice = ["--account", "alice@example.test", "--data", text];
    let export = |to: &Path, more: &[&str], at: &[&str]| {
        let arguments: Vec<&str> = ["export", to.to_str().unwrap()].iter().chain(more).chain(at).copied().collect();
        expect(0, &arguments).0
    };
    assert!(export(&first, &[], &alice).contains("3 messages of "));
    let (_, error) = expect(2, &["export", first.to_str().unwrap(), "--account", "x@y.test", "--data", text]);
    assert!(error.contains("is not empty"), "{error}");
    assert_eq!(server.terminate(), 0);

    // The order is the same each time, so a part can be passed over.
    let arguments: Vec<&str> = ["import", first.to_str().unwrap(), "--mailbox", "Rest", "--skip", "1", "--duplicates"]
        .iter()
        .chain(&alice)
        .copied()
        .collect();
    assert!(expect(0, &arguments).0.starts_with("2 messages imported"));

    // Back in for bob, now without a server, and out again: the same files.
    let bob = ["--account", "bob@example.test", "--data", text];
    let arguments: Vec<&str> = ["import", first.to_str().unwrap()].iter().chain(&bob).copied().collect();
    expect(0, &arguments);
    let second = directory.path().join("second");
    export(&second, &[], &bob);
    assert_eq!(files(&first), files(&second));

    // By mbox as well.
    let boxes = directory.path().join("boxes");
    export(&boxes, &["--format", "mbox"], &bob);
    expect_with_input(0, &["account", "add", "cy@example.test", "--data", text], "secret words\n");
    let cy = ["--account", "cy@example.test", "--data", text];
    for (file, mailbox) in [("INBOX.mbox", "INBOX"), ("Work.Plans.mbox", "Work/Plans")] {
        let file = boxes.join(file);
        let arguments: Vec<&str> =
            ["import", file.to_str().unwrap(), "--mailbox", mailbox].iter().chain(&cy).copied().collect();
        expect(0, &arguments);
    }
    let third = directory.path().join("third");
    export(&third, &[], &cy);
    // An mbox keeps seconds.
    let seconds = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        let name = |name: String| {
            let (start, rest) = name.split_once(".M").unwrap_or((&name, ""));
            format!("{start}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        };
        files.into_iter().map(|(file, octets)| (name(file), octets)).collect()
    };
    assert_eq!(seconds(files(&first)), seconds(files(&third)));
}

/// An import that is run again adds what is missing, whoever holds the data.
#[test]
fn an_import_is_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::trial(&data);
    let file = directory.path().join("old.mbox");
    // One size, one second, so that octets decide; and more than one batch.
    let mbox = |count: usize| -> String {
        let message = |i| format!("From a@b.test Thu Jan  1 00:00:02 1970\nSubject: {i:04}\n\nx\n\n");
        (0..count).map(message).collect()
    };
    let import = |count: usize, more: &[&str]| -> (u64, u64) {
        std::fs::write(&file, mbox(count)).unwrap();
        let arguments = ["import", file.to_str().unwrap(), "--account", "alice@example.test", "--json", "--data"];
        let (out, _) = expect(0, &[&arguments[..], &[data.to_str().unwrap()], more].concat());
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        (answer["imported"].as_u64().unwrap(), answer["known"].as_u64().unwrap())
    };
    assert_eq!(import(70, &[]), (70, 0));
    assert_eq!(import(70, &[]), (0, 70));
    assert_eq!(import(100, &[]), (30, 70), "what an interrupted import left out");
    assert_eq!(import(3, &["--mailbox", "Other"]), (3, 0), "each mailbox by itself");
    assert_eq!(import(3, &["--duplicates"]), (3, 0));
    let mut imap = server.imap();
    imap.line();
    imap.imap("LOGIN alice@example.test \"correct horse\"");
    imap.imap("SELECT INBOX");
    imap.imap("STORE 1:103 +FLAGS (\\Deleted)");
    imap.imap("EXPUNGE");
    drop(imap);
    assert_eq!(import(2, &[]), (2, 0), "what was expunged is not there");
    assert_eq!(server.terminate(), 0);
    assert_eq!(import(4, &[]), (2, 2), "and without a server");
}

/// Every file below a directory, with its octets.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
