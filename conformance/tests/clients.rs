//! Real clients: what a person's programs do, done by those programs.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use posthouse_conformance::imap::Imap;
use posthouse_conformance::require;
use posthouse_conformance::server::{ALICE, PASSWORD, Server};

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// The Python to use: `POSTHOUSE_PYTHON` (where imapclient is installed), else `python3`.
fn python(server: &Server, script: &str) -> Result<()> {
    let interpreter = std::env::var("POSTHOUSE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
    let output = run(Command::new(interpreter).arg(script).arg(server.base.to_string()).arg(PASSWORD))?;
    ensure!(String::from_utf8_lossy(&output.stdout).contains("all as expected"));
    Ok(())
}

fn start() -> Result<(tempfile::TempDir, Server)> {
    let directory = tempfile::tempdir()?;
    let server = Server::start(&directory.path().join("data"))?;
    Ok((directory, server))
}

#[test]
#[ignore = "needs python3"]
fn python_smtplib_and_imaplib() -> Result<()> {
    let (_directory, server) = start()?;
    python(&server, "smtplib_imaplib.py")
}

#[test]
#[ignore = "needs python3 with imapclient (set POSTHOUSE_PYTHON)"]
fn python_imapclient() -> Result<()> {
    let (_directory, server) = start()?;
    python(&server, "imapclient_tour.py")
}

#[test]
#[ignore = "needs swaks"]
fn swaks_sends_on_every_port() -> Result<()> {
    require("swaks", "swaks");
    let (_directory, server) = start()?;
    let swaks = |port: u16, extra: &[&str]| {
        run(Command::new("swaks")
            .args(["--server", &format!("127.0.0.1:{port}"), "--to", ALICE, "--from", "x@sender.test", "--body", "hi"])
            .args(extra))
    };
    swaks(server.base, &["--h-Subject", "plain"])?;
    swaks(server.base, &["--h-Subject", "starttls", "-tls"])?;
    let sender = ["--from", "bob@example.test", "--auth-user", "bob@example.test", "--auth-password", PASSWORD];
    swaks(server.base + 1, &[&sender[..], &["-tls", "--auth", "PLAIN", "--h-Subject", "submission"]].concat())?;
    swaks(server.base + 2, &[&sender[..], &["-tlsc", "--auth", "LOGIN", "--h-Subject", "submissions"]].concat())?;
    swaks(server.base + 3, &["--protocol", "LMTP", "--h-Subject", "lmtp"])?;
    swaks(server.base, &["--pipeline", "--h-Subject", "pipelined"])?;
    let refused = Command::new("swaks")
        .args([
            "--server",
            &format!("127.0.0.1:{}", server.base),
            "--to",
            "nobody@example.test",
            "--from",
            "x@sender.test",
        ])
        .output()?;
    ensure!(!refused.status.success() && String::from_utf8_lossy(&refused.stdout).contains("550 5.1.1"));
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    ensure!(imap.select("INBOX")? == 6);
    Ok(())
}

#[test]
#[ignore = "needs curl with IMAP and SMTP"]
fn curl_sends_reads_flags_moves_and_deletes() -> Result<()> {
    require("curl", "curl");
    let (directory, server) = start()?;
    let file = directory.path().join("mail.eml");
    let octets = b"From: <x@sender.test>\r\nTo: <alice@example.test>\r\nSubject: by curl\r\n\r\nbody of curl\r\n";
    std::fs::write(&file, octets)?;
    let smtp = format!("smtp://127.0.0.1:{}", server.base);
    run(Command::new("curl")
        .args(["-sS", &smtp, "--mail-from", "x@sender.test", "--mail-rcpt", ALICE, "-T"])
        .arg(&file))?;
    let smtps = format!("smtps://127.0.0.1:{}", server.base + 2);
    let bob = format!("bob@example.test:{PASSWORD}");
    run(Command::new("curl")
        .args(["-sS", "-k", &smtps, "-u", &bob, "--mail-from", "bob@example.test", "--mail-rcpt", ALICE, "-T"])
        .arg(&file))?;
    let user = format!("{ALICE}:{PASSWORD}");
    let imap = |path: &str, extra: &[&str]| -> Result<Vec<u8>> {
        let url = format!("imap://127.0.0.1:{}/{path}", server.base + 4);
        Ok(run(Command::new("curl").args(["-sS", &url, "-u", &user]).args(extra))?.stdout)
    };
    let fetched = imap("INBOX;MAILINDEX=1", &[])?;
    ensure!(fetched.ends_with(octets), "{}", String::from_utf8_lossy(&fetched));
    ensure!(imap("", &["-X", "LIST \"\" *"])?.windows(5).any(|w| w == b"Trash"));
    imap("INBOX", &["-X", "STORE 1 +FLAGS (\\Flagged)"])?;
    let hits = imap("INBOX?FLAGGED", &[])?;
    ensure!(String::from_utf8_lossy(&hits).contains("SEARCH 1"), "{}", String::from_utf8_lossy(&hits));
    imap("INBOX", &["-X", "MOVE 1 Archive"])?;
    run(Command::new("curl")
        .args(["-sS", &format!("imap://127.0.0.1:{}/Drafts", server.base + 4), "-u", &user, "-T"])
        .arg(&file))?;
    let mut check = Imap::login(server.imap(), ALICE, PASSWORD)?;
    for (mailbox, count) in [("INBOX", 1), ("Archive", 1), ("Drafts", 1)] {
        ensure!(check.select(mailbox)? == count, "{mailbox}");
    }
    Ok(())
}

fn mbsync_config(directory: &Path, server: &Server, side: &str) -> Result<std::path::PathBuf> {
    let local = directory.join(side);
    std::fs::create_dir_all(&local)?;
    let config = directory.join(format!("{side}.rc"));
    std::fs::write(
        &config,
        format!(
            "IMAPAccount posthouse\nHost 127.0.0.1\nPort {}\nUser {ALICE}\nPass \"{PASSWORD}\"\nSSLType None\nAuthMechs LOGIN\n\n\
             IMAPStore far\nAccount posthouse\n\nMaildirStore near\nPath {local}/\nInbox {local}/INBOX\nSubFolders Verbatim\n\n\
             Channel all\nFar :far:\nNear :near:\nPatterns *\nCreate Both\nExpunge Both\nSync All\nSyncState *\n",
            server.base + 4,
            local = local.display()
        ),
    )?;
    Ok(config)
}

/// Every message of a Maildir tree: mailbox → sorted (subject, flags).
fn maildir(root: &Path) -> Result<std::collections::BTreeMap<String, Vec<(String, String)>>> {
    let mut out = std::collections::BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if !path.is_dir() || name == "tmp" {
                continue;
            }
            if name != "new" && name != "cur" {
                folders.push(path);
                continue;
            }
            let mailbox = folder.strip_prefix(root)?.display().to_string();
            let messages: &mut Vec<_> = out.entry(mailbox).or_default();
            for file in std::fs::read_dir(&path)? {
                let file = file?;
                let text = String::from_utf8_lossy(&std::fs::read(file.path())?).into_owned();
                let subject =
                    text.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or("").trim().to_owned();
                let name = file.file_name().to_string_lossy().into_owned();
                let flags = name.rsplit_once(":2,").map_or("", |(_, flags)| flags);
                messages.push((subject, flags.chars().filter(|c| "FRSDPT".contains(*c)).collect()));
            }
            messages.sort();
        }
    }
    Ok(out)
}

#[test]
#[ignore = "needs mbsync"]
fn two_mbsync_replicas_converge() -> Result<()> {
    require("mbsync", "isync");
    let (directory, server) = start()?;
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    imap.ok("CREATE Lists/rust")?;
    for n in 0..30 {
        let mailbox = ["INBOX", "Lists/rust", "Archive"][n % 3];
        ensure!(
            imap.append(
                mailbox,
                "",
                format!("Subject: m{n}\r\nMessage-ID: <m{n}@x.test>\r\n\r\nbody {n}\r\n").as_bytes()
            )?
            .ok()
        );
    }
    let (one, two) =
        (mbsync_config(directory.path(), &server, "one")?, mbsync_config(directory.path(), &server, "two")?);
    let sync = |config: &Path| run(Command::new("mbsync").arg("-c").arg(config).arg("-a"));
    sync(&one)?;
    sync(&two)?;
    // Changes on all three sides: replica one flags and deletes, replica two adds, the server moves.
    let inbox = directory.path().join("one/INBOX");
    let mut files: Vec<_> = ["new", "cur"]
        .iter()
        .flat_map(|sub| std::fs::read_dir(inbox.join(sub)).into_iter().flatten())
        .collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    for (n, file) in files.iter().enumerate().take(6) {
        let name = file.file_name().to_string_lossy().into_owned();
        let stem = name.split(":2,").next().context("name")?.to_owned();
        let flags = if n < 3 { "FS" } else { "ST" };
        std::fs::rename(file.path(), inbox.join("cur").join(format!("{stem}:2,{flags}")))?;
    }
    std::fs::write(directory.path().join("two/Archive/new/1.fresh.host"), "Subject: fresh\n\nmade on replica two\n")?;
    imap.select("Lists/rust")?;
    imap.ok("MOVE 1:4 Archive")?;
    for _ in 0..3 {
        sync(&one)?;
        sync(&two)?;
    }
    let (one, two) = (maildir(&directory.path().join("one"))?, maildir(&directory.path().join("two"))?);
    ensure!(one == two, "{one:?}\n{two:?}");
    let counts: Vec<usize> =
        ["INBOX", "Lists/rust", "Archive"].iter().map(|name| one.get(*name).map_or(0, Vec::len)).collect();
    ensure!(counts == [7, 6, 15], "{counts:?}");
    for (mailbox, count) in [("INBOX", 7), ("Lists/rust", 6), ("Archive", 15)] {
        ensure!(imap.select(mailbox)? == count, "{mailbox} on the server");
    }
    ensure!(imap.ok("SEARCH ALL")?.untagged.iter().any(|line| line.line.starts_with("SEARCH")));
    Ok(())
}

#[test]
#[ignore = "needs neomutt and tmux"]
fn neomutt_flags_and_deletes() -> Result<()> {
    require("neomutt", "neomutt");
    require("tmux", "tmux");
    let (directory, server) = start()?;
    let mut imap = Imap::login(server.imap(), ALICE, PASSWORD)?;
    for n in 1..=3 {
        ensure!(
            imap.append("INBOX", "", format!("From: ann@x.test\r\nSubject: mutt{n}\r\n\r\nbody {n}\r\n").as_bytes())?
                .ok()
        );
    }
    std::fs::create_dir_all(directory.path().join("Mail"))?;
    let config = directory.path().join("muttrc");
    std::fs::write(
        &config,
        format!(
            "set folder=imap://127.0.0.1:{port}/\nset spoolfile=imap://127.0.0.1:{port}/INBOX\nset imap_user={ALICE}\nset imap_pass=\"{PASSWORD}\"\n\
             set ssl_force_tls=no\nset ssl_starttls=no\nset delete=yes\nset quit=yes\nset sort=date-received\nset imap_authenticators=login\n",
            port = server.base + 4
        ),
    )?;
    let socket = directory.path().join("tmux");
    let tmux = |args: &[&str]| run(Command::new("tmux").arg("-S").arg(&socket).args(args));
    let command = format!("HOME={} TERM=screen neomutt -n -F {}", directory.path().display(), config.display());
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", &command])?;
    let screen =
        || -> Result<String> { Ok(String::from_utf8_lossy(&tmux(&["capture-pane", "-p"])?.stdout).into_owned()) };
    let wait = |what: &str| -> Result<()> {
        for _ in 0..150 {
            if screen()?.contains(what) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        anyhow::bail!("neomutt never showed {what:?}; its screen:\n{}", screen()?)
    };
    wait("mutt3")?;
    // First message: flag; second: open (reads it); third: delete; then leave, which expunges.
    tmux(&["send-keys", "1", "Enter", "F"])?;
    tmux(&["send-keys", "2", "Enter", "Enter"])?;
    wait("body 2")?;
    tmux(&["send-keys", "i", "3", "Enter", "d", "q"])?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let count = imap.select("INBOX")?;
        let flagged = imap.ok("SEARCH FLAGGED SUBJECT mutt1")?.untagged.iter().any(|line| line.line == "SEARCH 1");
        let seen = imap.ok("SEARCH SEEN SUBJECT mutt2")?.untagged.iter().any(|line| line.line == "SEARCH 2");
        if count == 2 && flagged && seen {
            break;
        }
        if std::time::Instant::now() > deadline {
            let shown = screen().unwrap_or_default();
            drop(tmux(&["kill-server"]));
            anyhow::bail!("{count} messages, flagged {flagged}, seen {seen}; screen:\n{shown}");
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    drop(tmux(&["kill-server"]));
    Ok(())
}
