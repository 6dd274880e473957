//! Transcripts: what clients say and what the server answers, in process on the memory store.
//!
//! A transcript is lines `C: ` (sent with CRLF), `C+ ` (sent as it is, `\r\n` written out), `S: ` (a line that must
//! come next; `*` at its end stands for anything), `S? ` (lines that must come, in any order, until the next other
//! line), and `SESSION n` (the connection that follows; a new one is greeted and logged in). `$NAME` in an expected
//! line takes whatever word stands there the first time and must be the same later.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthouse_imap::{ImapConfig, Server};
use posthouse_storage::directory::DirectoryConfig;
use posthouse_storage::wide::memory::Memory;
use posthouse_storage::{Storage, StorageConfig};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio_util::sync::CancellationToken;

const USER: &str = "ann@example.test";

struct World {
    server: Arc<Server>,
    _spool: tempfile::TempDir,
}

async fn world() -> World {
    let spool = tempfile::tempdir().unwrap();
    std::fs::create_dir(spool.path().join("spool")).unwrap();
    let config = StorageConfig {
        data_dir: spool.path().to_owned(),
        directory: DirectoryConfig::cheap(),
        ..StorageConfig::default()
    };
    let storage = Storage::with_store(Arc::new(Memory::new()), config);
    storage.directory.domain_add("example.test").await.unwrap();
    storage.directory.account_add(USER, Some("secret"), 0).await.unwrap();
    let config = ImapConfig { plaintext_login_on_loopback: true, ..ImapConfig::default() };
    World { server: Server::new(config, storage, None), _spool: spool }
}

struct Client {
    stream: BufReader<DuplexStream>,
}

impl World {
    fn connect(&self) -> Client {
        let (near, far) = tokio::io::duplex(1 << 20);
        let server = Arc::clone(&self.server);
        let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
        tokio::spawn(async move { server.session(far, peer, false, CancellationToken::new()).await });
        Client { stream: BufReader::new(near) }
    }
}

impl Client {
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read_line(&mut line)).await;
        read.expect("an answer within 10 s").expect("UTF-8");
        line.trim_end_matches("\r\n").to_owned()
    }

    async fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).await.unwrap();
    }
}

/// Whether a line is what was expected; takes and compares variables.
fn agrees(expected: &str, line: &str, variables: &mut HashMap<String, String>) -> bool {
    let (prefix, open) = match expected.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (expected, false),
    };
    let mut rest = line;
    let mut pieces = prefix.split('$');
    let Some(after) = rest.strip_prefix(pieces.next().unwrap_or("")) else { return false };
    rest = after;
    for piece in pieces {
        let name_end = piece.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(piece.len());
        let (name, text) = piece.split_at(name_end);
        let value_end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (value, after) = rest.split_at(value_end);
        let known = variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        if known != value {
            return false;
        }
        let Some(after) = after.strip_prefix(text) else { return false };
        rest = after;
    }
    open || rest.is_empty()
}

async fn play(name: &str, transcript: &str) {
    let world = world().await;
    let mut clients: HashMap<&str, Client> = HashMap::new();
    let mut variables = HashMap::new();
    let mut current = "1";
    let mut any: Vec<&str> = Vec::new();
    let lines: Vec<&str> = transcript.lines().chain(["END"]).collect();
    for (number, line) in lines.into_iter().enumerate() {
        let at = format!("{name}:{}", number + 1);
        if let Some(expected) = line.strip_prefix("S? ") {
            any.push(expected);
            continue;
        }
        if !any.is_empty() {
            let client = clients.get_mut(current).unwrap();
            for _ in 0..any.len() {
                let got = client.line().await;
                let found = any.iter().position(|expected| agrees(expected, &got, &mut variables));
                let found = found.unwrap_or_else(|| panic!("{at}: got {got:?}, expected one of {any:?}"));
                any.remove(found);
            }
        }
        if let Some(session) = line.strip_prefix("SESSION ") {
            current = session;
        }
        if !clients.contains_key(current)
            && (line.starts_with("SESSION") || line.starts_with("C") || line.starts_with("S:"))
        {
            let mut client = world.connect();
            let greeting = client.line().await;
            assert!(greeting.starts_with("* OK [CAPABILITY IMAP4rev1 "), "{greeting}");
            if current != "0" {
                client.send(&format!("in LOGIN {USER} secret\r\n")).await;
                let answer = client.line().await;
                assert!(answer.starts_with("in OK [CAPABILITY IMAP4rev1 "), "{answer}");
            }
            clients.insert(current, client);
        }
        if let Some(text) = line.strip_prefix("C: ") {
            clients.get_mut(current).unwrap().send(&format!("{text}\r\n")).await;
        } else if let Some(text) = line.strip_prefix("C+ ") {
            let text = text.replace("\\r\\n", "\r\n");
            clients.get_mut(current).unwrap().send(&text).await;
        } else if let Some(expected) = line.strip_prefix("S: ") {
            let got = clients.get_mut(current).unwrap().line().await;
            assert!(agrees(expected, &got, &mut variables), "{at}: got {got:?}, expected {expected:?}");
        } else {
            let known = line.is_empty() || line.starts_with('#') || line.starts_with("SESSION ") || line == "END";
            assert!(known, "{at}: {line:?} is no line of a transcript");
        }
    }
}

#[tokio::test]
async fn transcripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8);
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        play(&name, &std::fs::read_to_string(&file).unwrap()).await;
    }
}
