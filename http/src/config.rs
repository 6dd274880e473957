//! Limits of the HTTP listeners.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of the HTTP listeners. Every field has a default that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Connections served at one moment, all HTTP listeners together. One more is closed at once, and counted.
    pub connections_max: usize,
    /// Seconds a client has for its TLS handshake, and for the whole header of each request (also the first byte of
    /// the next one on a connection that is kept open).
    pub header_timeout_seconds: u64,
    /// Bytes of a request's line and header fields together; 8192 or more. Above it the answer is 431.
    pub header_bytes_max: usize,
    /// Header fields of one request. Above it the answer is 431.
    pub headers_max: usize,
    /// Seconds after which a connection is closed whatever it does; bounds a client that reads its answer slowly.
    pub connection_seconds_max: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connections_max: 1000,
            header_timeout_seconds: 10,
            header_bytes_max: 16_384,
            headers_max: 64,
            connection_seconds_max: 300,
        }
    }
}

impl HttpConfig {
    /// `header_timeout_seconds` as a duration.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_seconds)
    }

    /// `connection_seconds_max` as a duration.
    pub fn connection_time_max(&self) -> Duration {
        Duration::from_secs(self.connection_seconds_max)
    }
}
