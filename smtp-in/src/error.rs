//! Errors, and what peers are told of them.

use posthouse_storage::account::AccountError;
use posthouse_storage::directory::{AuthError, DirectoryError};
use posthouse_storage::wide::StoreError;

use crate::config::SmtpConfig;
use crate::reply::Reply;

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer went away, or the network did.
    #[error("the connection was lost")]
    Lost(#[source] std::io::Error),
    /// The peer took too long.
    #[error("the peer took too long")]
    Timeout,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Tls(#[source] std::io::Error),
    /// The server stops.
    #[error("the server stops")]
    Stopping,
}

/// What a failed look-up means for a recipient.
pub fn lookup_reply(error: &DirectoryError) -> Reply {
    match error {
        DirectoryError::Loop(_) | DirectoryError::TooManyTargets { .. } => Reply::Misconfigured,
        DirectoryError::Store(error) => store_reply(error),
        _ => Reply::StoreUnavailable,
    }
}

/// What a failed login means.
pub fn auth_reply(error: &AuthError) -> Reply {
    match error {
        AuthError::Invalid => Reply::AuthFailed,
        AuthError::Throttled { .. } => Reply::AuthThrottled,
        AuthError::Directory(_) => Reply::AuthUnavailable,
    }
}

/// What a failed delivery means; `None` when the message counts as accepted.
pub fn delivery_reply(error: &AccountError, config: &SmtpConfig) -> Option<Reply> {
    match error {
        AccountError::Deferred => None,
        AccountError::OverQuota { .. } if config.over_quota_permanent => Some(Reply::MailboxFullForGood),
        AccountError::OverQuota { .. } | AccountError::TooMany { .. } => Some(Reply::MailboxFull),
        AccountError::Store(error) => Some(store_reply(error)),
        _ => Some(Reply::StoreUnavailable),
    }
}

/// What a failed store operation means.
pub fn store_reply(error: &StoreError) -> Reply {
    match error {
        StoreError::Io(error) => spool_reply(error),
        _ => Reply::StoreUnavailable,
    }
}

/// What a failed write of the spool means.
pub fn spool_reply(error: &std::io::Error) -> Reply {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Reply::DiskFull,
        _ => Reply::StoreUnavailable,
    }
}
