//! `posthouse try`: a server on loopback with a demo domain, two accounts and a certificate made on the spot.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use posthouse_storage::Storage;
use posthouse_storage::directory::DirectoryError;
use serde_json::json;

use super::{password, runtime};
use crate::cli::Try;
use crate::config::{self, Config, ListenSection};
use crate::data as data_dir;
use crate::failure::Result;
use crate::observe;
use crate::run::{Server, Signals};
use crate::tls::Tls;

const DOMAIN: &str = "example.test";
const ACCOUNTS: [&str; 2] = ["alice@example.test", "bob@example.test"];

/// The eight ports, in the order that `--ports-from` counts them.
#[derive(Debug, Clone, Copy)]
struct Ports([u16; 8]);

impl Ports {
    const NAMES: [&'static str; 8] = ["smtp", "submission", "submissions", "lmtp", "imap", "imaps", "http", "https"];

    fn new(from: Option<u16>) -> Self {
        Self(match from {
            None => [2525, 2587, 2465, 2424, 2143, 2993, 2080, 2443],
            // The command line has seen to it that eight ports are there.
            Some(from) => std::array::from_fn(|offset| from + offset as u16),
        })
    }

    fn listen(self) -> ListenSection {
        let [smtp, submission, submissions, lmtp, imap, imaps, http, https] =
            self.0.map(|port| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]);
        ListenSection { smtp, submission, submissions, lmtp, imap, imaps, http, https }
    }

    fn json(self) -> serde_json::Value {
        Self::NAMES.into_iter().zip(self.0).map(|(name, port)| (name.to_owned(), json!(port))).collect()
    }
}

/// Carries it out.
pub fn run(arguments: Try) -> Result<ExitCode> {
    // Removed when dropped: at the end of this function, however it ends.
    let mut temporary = None;
    let data = match &arguments.data {
        Some(data) => std::path::absolute(data).context("--data")?,
        None => {
            let made =
                tempfile::Builder::new().prefix("posthouse-").tempdir().context("cannot make a data directory")?;
            temporary.insert(made).path().to_owned()
        }
    };
    let ports = Ports::new(arguments.ports_from);
    let mut base = Config { listen: ports.listen(), ..Config::default() };
    base.server.hostname = format!("mail.{DOMAIN}");
    base.server.data_dir.clone_from(&data);
    base.server.log = "warn".to_owned();
    base.server.grace_seconds = 5;
    let (config, _) = config::load::from_text("posthouse try", "", std::env::vars(), &base)?;
    // The environment may move a role elsewhere; passwords in the clear stay on this machine.
    let loopback_only =
        config.listen.roles().iter().all(|(_, addresses, _)| addresses.iter().all(|a| a.ip().is_loopback()));
    let password = arguments.password.clone().unwrap_or_else(password::make);
    observe::logs(&config.server)?;
    let metrics = observe::metrics()?;
    let tls = Tls::self_signed(&["localhost", "127.0.0.1", &config.server.hostname])?;

    let served = runtime()?.block_on(async {
        let signals = Signals::new()?;
        data_dir::make_private(&data)?;
        let storage = data_dir::open(config.storage.with_data_dir(data.clone())).await?;
        demo(&storage, &password).await?;
        let kept = arguments.data.is_some();
        let ready = || {
            if arguments.json { print_json(&data, &password, ports) } else { print_tour(&data, kept, &password, ports) }
        };
        let server = Server { config, tls: Some(tls), plaintext_logins: loopback_only, storage, metrics };
        server.run(signals, ready).await
    });
    if let Some(temporary) = temporary {
        let path = temporary.path().to_owned();
        if let Err(error) = temporary.close() {
            eprintln!("posthouse: {} could not be removed: {error}", path.display());
        }
    }
    match served {
        Err(error) if error.to_string().starts_with("cannot listen") => {
            // There is no configuration file here to change.
            let text = error.to_string();
            let (what, _) = text.split_once("change `listen.").unwrap_or((&text, ""));
            Err(anyhow::anyhow!("{what}move all ports with `--ports-from N`").into())
        }
        other => Ok(other.map(|()| ExitCode::SUCCESS)?),
    }
}

/// The demo domain and its accounts; those that are there already get the password of this run.
async fn demo(storage: &Arc<Storage>, password: &str) -> anyhow::Result<()> {
    match storage.directory.domain_add(DOMAIN).await {
        Ok(()) | Err(DirectoryError::DomainExists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    for address in ACCOUNTS {
        match storage.directory.account_add(address, Some(password), 0).await {
            Ok(_) => {}
            Err(DirectoryError::Exists(_)) => storage.directory.account_set_password(address, Some(password)).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn print_json(data: &Path, password: &str, ports: Ports) -> anyhow::Result<()> {
    let line = json!({
        "ready": true,
        "data": data,
        "accounts": ACCOUNTS,
        "password": password,
        "ports": ports.json(),
    });
    print(&format!("{line}\n"))
}

fn print_tour(data: &Path, kept: bool, password: &str, ports: Ports) -> anyhow::Result<()> {
    print(&tour(data, kept, password, ports))
}

/// A pipe that nobody reads is no reason to stop a server.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

fn tour(data: &Path, kept: bool, password: &str, ports: Ports) -> String {
    let [alice, bob] = ACCOUNTS;
    let [smtp, submission, submissions, lmtp, imap, imaps, http, https] = ports.0;
    let quoted = quote(password);
    let login = quote(&format!("{alice}:{password}"));
    let sender = quote(&format!("{bob}:{password}"));
    let fate = if kept { "kept" } else { "removed at the end; keep it with --data DIR" };
    format!(
        "\
Posthouse is running on this machine only. Ctrl-C stops it.

  accounts  {alice}, {bob}
  password  {password}
  data      {data} ({fate})
  ports     SMTP {smtp}, submission {submission} and {submissions} (TLS), LMTP {lmtp},
            IMAP {imap} and {imaps} (TLS), HTTP {http}, HTTPS {https}

Send a message to alice:

  printf 'From: {bob}\\r\\nTo: {alice}\\r\\nSubject: Hello\\r\\n\\r\\nIt works.\\r\\n' | curl -sS smtp://127.0.0.1:{smtp} --mail-from {bob} --mail-rcpt {alice} --upload-file -

  swaks --server 127.0.0.1:{smtp} --from {bob} --to {alice} --header 'Subject: Hello'

Send as bob, logged in (with curl over TLS):

  printf 'From: {bob}\\r\\nTo: {alice}\\r\\nSubject: Hello again\\r\\n\\r\\nFrom bob.\\r\\n' | curl -sS --insecure smtps://127.0.0.1:{submissions} --user {sender} --mail-from {bob} --mail-rcpt {alice} --upload-file -

  swaks --server 127.0.0.1:{submission} --auth PLAIN --auth-user {bob} --auth-password {quoted} --from {bob} --to {alice}

Read it:

  curl -sS --user {login} 'imap://127.0.0.1:{imap}/INBOX;MAILINDEX=1'

  curl -sS --insecure --user {login} 'imaps://127.0.0.1:{imaps}/INBOX' --request 'FETCH 1:* (FLAGS ENVELOPE)'

Settings for a mail program (server 127.0.0.1, the whole address is the user name):

  IMAP   port {imaps} with SSL/TLS, or {imap} without encryption
  SMTP   port {submissions} with SSL/TLS, or {submission} without encryption
  The certificate was made a moment ago and nobody vouches for it: accept it once.

Look inside:

  curl -sS http://127.0.0.1:{http}/metrics
  posthouse account list --data {where_}
",
        data = data.display(),
        where_ = quote(&data.display().to_string()),
    )
}

/// `text` as one word of a shell.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        for (text, word) in [("abc", "abc"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$(x)", "'$(x)'")] {
            assert_eq!(quote(text), word);
        }
    }

    #[test]
    fn ports_are_those_of_the_contract() {
        assert_eq!(
            Ports::new(None).json().to_string(),
            r#"{"http":2080,"https":2443,"imap":2143,"imaps":2993,"lmtp":2424,"smtp":2525,"submission":2587,"submissions":2465}"#
        );
        assert_eq!(Ports::new(Some(65528)).0, [65528, 65529, 65530, 65531, 65532, 65533, 65534, 65535]);
    }

    #[test]
    fn the_tour_fits_the_ports_and_quotes_the_password() {
        let text = tour(Path::new("/tmp/x y"), true, "it's", Ports::new(Some(3000)));
        for expected in [
            "smtp://127.0.0.1:3000",
            "127.0.0.1:3001",
            "smtps://127.0.0.1:3002",
            "imap://127.0.0.1:3004",
            "'it'\\''s'",
            "'/tmp/x y'",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn the_readme_shows_the_tour() {
        let readme = include_str!("../../README.md");
        let text = tour(Path::new("/tmp/posthouse-Xo3fQ1"), false, "h7kqm3xw9fz2pdr4tnb8", Ports::new(None));
        let indented: Vec<String> =
            text.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") }).collect();
        assert!(readme.contains(&indented.join("\n")), "put into README.md:\n{}", indented.join("\n"));
    }
}
