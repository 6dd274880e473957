//! Limits of the SMTP, submission and LMTP listeners.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// SMTP, submission and LMTP: limits and the few choices there are. Every field has a default that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmtpConfig {
    /// Bytes of the largest message accepted, header fields included; announced by SIZE (RFC 1870). Attachments grow
    /// by a third on their way, so 25 MB of files need 35 MB here. 65,536 or more (RFC 5321 §4.5.3.1.7).
    pub message_bytes_max: u64,
    /// Recipients of one message; 100 or more (RFC 5321 §4.5.3.1.8). The next one is told to wait for another
    /// transaction, which senders do by themselves.
    pub recipients_max: usize,
    /// Received header fields a message may carry before it counts as running in a loop; 100 or more (RFC 5321 §6.3).
    pub received_max: u32,
    /// Commands and messages refused for good after which a connection is closed with 421. What is refused for the
    /// moment does not count here; but of commands that lead nowhere, 100 are taken between two messages. A delivered
    /// message sets both counts back.
    pub errors_max: u32,
    /// Failed logins after which a connection is closed with 421.
    pub auth_failures_max: u32,
    /// Connections served at one moment, all listeners together. One more is told 421.
    pub connections_max: usize,
    /// Connections served at one moment for one peer (an IPv4 address, or an IPv6 /64). One more is told 421. Loopback
    /// is not counted: what runs on this machine is not a stranger.
    pub connections_per_peer_max: usize,
    /// Seconds a peer may take for each whole command, and to take our answer. RFC 5321 §4.5.3.2.7 asks for 300.
    pub command_timeout_seconds: u64,
    /// Seconds between two pieces of a message's text. RFC 5321 §4.5.3.2.5 asks for 180.
    pub data_block_timeout_seconds: u64,
    /// Seconds from a message's first octet to its last, however steadily they drip: what keeps a slow peer from
    /// holding a connection for ever.
    pub message_seconds_max: u64,
    /// Seconds for a TLS handshake.
    pub handshake_timeout_seconds: u64,
    /// The domain whose postmaster gets mail to `<postmaster>` without a domain (RFC 5321 §4.5.1). Empty: the first
    /// domain served here.
    pub default_domain: String,
    /// What a sender is told when a mailbox is full: false = 452, try again later; true = 552, give up.
    pub over_quota_permanent: bool,
    /// Close the connection of a peer that sends on after a refused DATA, as if it had been accepted: the text of a
    /// message must never be taken for commands.
    pub strict_pipelining: bool,
}

impl Default for SmtpConfig {
    fn default() -> Self {
        Self {
            message_bytes_max: 37_748_736,
            recipients_max: 1_000,
            received_max: 100,
            errors_max: 20,
            auth_failures_max: 5,
            connections_max: 2_000,
            connections_per_peer_max: 100,
            command_timeout_seconds: 300,
            data_block_timeout_seconds: 180,
            message_seconds_max: 3_600,
            handshake_timeout_seconds: 60,
            default_domain: String::new(),
            over_quota_permanent: false,
            strict_pipelining: true,
        }
    }
}

impl SmtpConfig {
    /// `command_timeout_seconds` as a duration.
    pub fn command_timeout(&self) -> Duration {
        Duration::from_secs(self.command_timeout_seconds)
    }

    /// `data_block_timeout_seconds` as a duration.
    pub fn data_block_timeout(&self) -> Duration {
        Duration::from_secs(self.data_block_timeout_seconds)
    }

    /// `message_seconds_max` as a duration.
    pub fn message_time_max(&self) -> Duration {
        Duration::from_secs(self.message_seconds_max)
    }

    /// `handshake_timeout_seconds` as a duration.
    pub fn handshake_timeout(&self) -> Duration {
        Duration::from_secs(self.handshake_timeout_seconds)
    }
}
