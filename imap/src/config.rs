//! Limits and times of the IMAP listeners.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits and times of IMAP. Every field has a default that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImapConfig {
    /// Largest message APPEND takes, bytes.
    pub message_bytes_max: u64,
    /// Connections at one moment, all listeners together. One more is told BYE.
    pub connections_max: usize,
    /// Sessions logged in to one account at one moment. Phones leave dead ones behind, so be generous.
    pub sessions_per_account_max: usize,
    /// Seconds a silent session is kept; RFC 3501 §5.4 asks for at least 1800.
    pub idle_timeout_seconds: u64,
    /// Seconds a client has to log in.
    pub login_timeout_seconds: u64,
    /// Seconds between the signs of life sent during IDLE, by which dead peers are found.
    pub idle_notify_seconds: u64,
    /// Seconds a client may take to read what was sent before the connection is given up.
    pub write_timeout_seconds: u64,
    /// Seconds for a TLS handshake.
    pub handshake_timeout_seconds: u64,
    /// Commands refused as malformed before the connection is closed with BYE.
    pub errors_max: usize,
    /// Failed logins on one connection before it is closed with BYE.
    pub login_failures_max: usize,
    /// Allow LOGIN without TLS from loopback addresses. Not a key of the file: only a trial server is allowed to.
    #[serde(skip)]
    pub plaintext_login_on_loopback: bool,
}

impl Default for ImapConfig {
    fn default() -> Self {
        Self {
            message_bytes_max: 36 * 1024 * 1024,
            connections_max: 20_000,
            sessions_per_account_max: 100,
            idle_timeout_seconds: 1_860,
            login_timeout_seconds: 180,
            idle_notify_seconds: 120,
            write_timeout_seconds: 300,
            handshake_timeout_seconds: 60,
            errors_max: 50,
            login_failures_max: 5,
            plaintext_login_on_loopback: false,
        }
    }
}

impl ImapConfig {
    /// `idle_timeout_seconds` as a duration.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds)
    }

    /// `login_timeout_seconds` as a duration.
    pub fn login_timeout(&self) -> Duration {
        Duration::from_secs(self.login_timeout_seconds)
    }

    /// `write_timeout_seconds` as a duration.
    pub fn write_timeout(&self) -> Duration {
        Duration::from_secs(self.write_timeout_seconds)
    }
}
