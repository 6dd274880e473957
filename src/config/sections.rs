//! The sections that belong to the binary itself; the others are the crates' own structs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use posthouse_storage::StorageConfig;
use serde::{Deserialize, Serialize};

/// The process as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSection {
    /// The name this server gives itself in greetings and trace fields: its public DNS name.
    pub hostname: String,
    /// Where all data is kept; made if missing, held by one process at a time. A relative path starts at the
    /// configuration file's directory.
    pub data_dir: PathBuf,
    /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, also by target, as in `info,posthouse_imap=debug`.
    pub log: String,
    /// How a log line looks on standard error: `text` for people, `json` for machines.
    pub log_format: LogFormat,
    /// Seconds that the commands being carried out have to finish at shutdown; then connections are cut.
    pub grace_seconds: u64,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            data_dir: PathBuf::from("data"),
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            grace_seconds: 20,
        }
    }
}

impl ServerSection {
    /// `grace_seconds` as a duration.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

/// Where each role listens: lists of `"ADDRESS:PORT"`; an empty list turns a role off. `0.0.0.0` is every IPv4
/// address, `[::]` every IPv6 address (and on most systems IPv4 too).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenSection {
    /// Mail from other servers (SMTP, STARTTLS when a certificate is configured).
    pub smtp: Vec<SocketAddr>,
    /// Mail from this server's users (SMTP with login; STARTTLS).
    pub submission: Vec<SocketAddr>,
    /// The same with TLS from the first byte. Needs `[tls]`.
    pub submissions: Vec<SocketAddr>,
    /// Mail from a local relay, without login (LMTP). Whoever reaches it delivers: keep it on loopback.
    pub lmtp: Vec<SocketAddr>,
    /// Reading mail (IMAP; STARTTLS).
    pub imap: Vec<SocketAddr>,
    /// The same with TLS from the first byte. Needs `[tls]`.
    pub imaps: Vec<SocketAddr>,
    /// Metrics and health over HTTP. Open to whoever reaches it: keep it on loopback or behind a firewall.
    pub http: Vec<SocketAddr>,
    /// The same over HTTPS. Needs `[tls]`.
    pub https: Vec<SocketAddr>,
}

impl Default for ListenSection {
    fn default() -> Self {
        let any = |port| vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        Self {
            smtp: any(25),
            submission: any(587),
            submissions: any(465),
            lmtp: Vec::new(),
            imap: any(143),
            imaps: any(993),
            http: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 2080))],
            https: Vec::new(),
        }
    }
}

impl ListenSection {
    /// Every role with its key, and whether it speaks TLS from the first byte.
    pub fn roles(&self) -> [(&'static str, &[SocketAddr], bool); 8] {
        [
            ("smtp", &self.smtp, false),
            ("submission", &self.submission, false),
            ("submissions", &self.submissions, true),
            ("lmtp", &self.lmtp, false),
            ("imap", &self.imap, false),
            ("imaps", &self.imaps, true),
            ("http", &self.http, false),
            ("https", &self.https, true),
        ]
    }
}

/// The certificate for every role. Without one there is no STARTTLS, the roles with TLS from the first byte stay off
/// (a warning says so), and since logins are never taken unencrypted, nobody can log in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    /// PEM file of the certificate, followed by its intermediates. Read again on SIGHUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// How much of the machine the store may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSection {
    /// Bytes of memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Bytes of memory for writes not yet in their final files (they are durable in the log).
    pub memtable_bytes: u64,
    /// Bytes of memory for accounts' mailboxes and flags.
    pub account_memory_bytes: usize,
    /// Quota of a new account in bytes; 0 for none.
    pub default_quota_bytes: u64,
    /// Seconds that an expunged message stays readable for sessions that still show it.
    pub expunge_grace_seconds: u64,
    /// Bytes of a message being received that stay in memory; the rest goes to a temporary file in the data directory.
    pub spool_memory_bytes_max: usize,
}

impl Default for StorageSection {
    fn default() -> Self {
        let storage = StorageConfig::default();
        Self {
            cache_bytes: storage.cache_bytes,
            memtable_bytes: storage.memtable_bytes,
            account_memory_bytes: storage.account_memory_bytes,
            default_quota_bytes: storage.default_quota_bytes,
            expunge_grace_seconds: storage.expunge_grace.as_secs(),
            spool_memory_bytes_max: storage.spool_memory_bytes_max,
        }
    }
}

impl StorageSection {
    /// What storage is opened with.
    pub fn with_data_dir(&self, data_dir: PathBuf) -> StorageConfig {
        StorageConfig {
            data_dir,
            cache_bytes: self.cache_bytes,
            memtable_bytes: self.memtable_bytes,
            account_memory_bytes: self.account_memory_bytes,
            default_quota_bytes: self.default_quota_bytes,
            expunge_grace: Duration::from_secs(self.expunge_grace_seconds),
            spool_memory_bytes_max: self.spool_memory_bytes_max,
            ..StorageConfig::default()
        }
    }
}
