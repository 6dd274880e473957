//! A server on the memory store, and a client that speaks to it through a pipe.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthouse_imap::{ImapConfig, Server};
use posthouse_storage::directory::DirectoryConfig;
use posthouse_storage::wide::Store;
use posthouse_storage::wide::memory::Memory;
use posthouse_storage::{Storage, StorageConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Who logs in; the password is `secret`.
pub(crate) const USER: &str = "ann@example.test";
/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One server with one account.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) memory: Memory,
    pub(crate) stop: CancellationToken,
    _spool: tempfile::TempDir,
}

/// How a client comes in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    pub(crate) peer: &'static str,
    pub(crate) tls: bool,
    /// Octets that fit into the pipe.
    pub(crate) pipe: usize,
}

impl Default for Door {
    fn default() -> Self {
        Self { peer: "127.0.0.1:1", tls: false, pipe: 1 << 20 }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(ImapConfig::default(), 0).await
    }

    pub(crate) async fn with(config: ImapConfig, quota_bytes: u64) -> Self {
        let config = ImapConfig { plaintext_login_on_loopback: true, ..config };
        let spool = tempfile::tempdir().unwrap();
        std::fs::create_dir(spool.path().join("spool")).unwrap();
        let memory = Memory::new();
        let storage = open(Arc::new(memory.clone()), spool.path(), quota_bytes);
        storage.directory.domain_add("example.test").await.unwrap();
        storage.directory.account_add(USER, Some("secret"), quota_bytes).await.unwrap();
        let server = Server::new(config, Arc::clone(&storage), None);
        Self { server, storage, memory, stop: CancellationToken::new(), _spool: spool }
    }

    /// The same data with nothing of it in memory.
    pub(crate) fn reopened(self) -> Self {
        let store = Arc::new(self.memory.clone());
        self.reopened_over(store)
    }

    /// The same through another way to the data.
    pub(crate) fn reopened_over(self, store: Arc<dyn Store>) -> Self {
        let storage = open(store, self._spool.path(), 0);
        let config = ImapConfig { plaintext_login_on_loopback: true, ..ImapConfig::default() };
        Self { server: Server::new(config, Arc::clone(&storage), None), storage, ..self }
    }

    /// A connection before its greeting.
    pub(crate) fn connect(&self, door: Door) -> Client {
        let (near, far) = tokio::io::duplex(door.pipe);
        let (server, stop) = (Arc::clone(&self.server), self.stop.clone());
        let peer: SocketAddr = door.peer.parse().unwrap();
        let session = tokio::spawn(async move { server.session(far, peer, door.tls, stop).await });
        Client { stream: BufReader::new(near), session, tag: 0 }
    }

    /// A connection that is greeted and logged in.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.connect(Door::default());
        let greeting = client.line().await;
        assert!(greeting.starts_with("* OK [CAPABILITY IMAP4rev1 "), "{greeting}");
        let answer = client.command(&format!("LOGIN {USER} secret")).await;
        let answer = answer.last().unwrap();
        assert!(answer.contains("OK [CAPABILITY IMAP4rev1 "), "{answer}");
        client
    }
}

fn open(store: Arc<dyn Store>, data_dir: &std::path::Path, quota_bytes: u64) -> Arc<Storage> {
    let config = StorageConfig {
        data_dir: data_dir.to_owned(),
        directory: DirectoryConfig::cheap(),
        default_quota_bytes: quota_bytes,
        ..StorageConfig::default()
    };
    Storage::with_store(store, config)
}

/// One end of a connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<DuplexStream>,
    session: JoinHandle<()>,
    tag: u32,
}

impl Client {
    /// The next line without its end; empty at the end of the stream.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.stream.read_until(b'\n', &mut line)).await;
        read.expect("an answer in time").unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.strip_suffix("\r\n").map(str::to_owned).unwrap_or(line)
    }

    /// Whether nothing more comes; waits for something if need be.
    async fn at_end(&mut self) -> bool {
        let more = tokio::time::timeout(PATIENCE, self.stream.fill_buf()).await;
        more.expect("an answer in time").unwrap().is_empty()
    }

    /// So many octets.
    pub(crate) async fn octets(&mut self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        let read = tokio::time::timeout(PATIENCE, self.stream.read_exact(&mut octets)).await;
        read.expect("octets in time").unwrap();
        octets
    }

    pub(crate) async fn send(&mut self, octets: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(octets.as_ref()).await.unwrap();
    }

    /// Sends a command and returns all lines up to its tagged answer. Not for answers with literals that hold tags.
    pub(crate) async fn command(&mut self, command: &str) -> Vec<String> {
        self.tag += 1;
        let tag = format!("t{}", self.tag);
        self.send(format!("{tag} {command}\r\n")).await;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            // An empty line may as well stand in a literal.
            assert!(!line.is_empty() || !self.at_end().await, "closed during {command}");
            let done = line.starts_with(&format!("{tag} "));
            lines.push(line);
            if done {
                return lines;
            }
        }
    }

    /// The same for a command that must succeed.
    pub(crate) async fn ok(&mut self, command: &str) -> Vec<String> {
        let lines = self.command(command).await;
        let last = lines.last().unwrap();
        assert!(last.contains(" OK "), "{command}: {last}");
        lines
    }

    /// Adds a message.
    pub(crate) async fn append(&mut self, mailbox: &str, flags: &str, octets: &[u8]) -> Vec<String> {
        let mut command = format!("APPEND {mailbox} ({flags}) {{{}+}}\r\n", octets.len()).into_bytes();
        command.extend_from_slice(octets);
        self.ok(std::str::from_utf8(&command).expect("ASCII messages in tests")).await
    }

    /// Hangs up; the session must end, and not by a panic.
    pub(crate) async fn hang_up(self) {
        drop(self.stream);
        tokio::time::timeout(PATIENCE, self.session).await.expect("an end in time").expect("no panic");
    }

    /// The server ends the session, read or not.
    pub(crate) async fn ended(&mut self) {
        let patience = PATIENCE.max(Duration::from_secs(3_600));
        tokio::time::timeout(patience, &mut self.session).await.expect("an end in time").expect("no panic");
    }

    /// What is read until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await;
        read.expect("an end in time").unwrap();
        rest
    }
}
