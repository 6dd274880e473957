//! One function per event: it logs and counts together. Labels come from closed sets.

use std::time::Duration;

use posthouse_storage::account::AccountId;

use crate::error::ConnectionError;
use crate::reply::Reply;
use crate::session::Role;

/// A connection was taken.
pub fn connection_opened(role: Role) {
    metrics::counter!("posthouse_smtp_connections_total", "role" => role.label()).increment(1);
    metrics::gauge!("posthouse_smtp_connections", "role" => role.label()).increment(1.0);
    tracing::debug!("connection opened");
}

/// A connection ended.
pub fn connection_closed(role: Role) {
    metrics::gauge!("posthouse_smtp_connections", "role" => role.label()).decrement(1.0);
    tracing::debug!("connection closed");
}

/// A connection failed: the peer was too slow, spoke bad TLS, or went away.
pub fn connection_failed(role: Role, error: &ConnectionError) {
    let step = match error {
        ConnectionError::Lost(_) => "lost",
        ConnectionError::Timeout => "timeout",
        ConnectionError::Tls(_) => "tls",
        ConnectionError::Stopping => "stopping",
    };
    metrics::counter!("posthouse_smtp_connection_errors_total", "role" => role.label(), "step" => step).increment(1);
    tracing::debug!(step, error = error as &dyn std::error::Error, "connection failed");
}

/// A peer was told no.
pub fn refused(role: Role, reply: Reply) {
    metrics::counter!("posthouse_smtp_refused_total", "role" => role.label(), "reply" => reply.name()).increment(1);
    tracing::debug!(reply = reply.line(), "refused");
}

/// A TLS handshake succeeded.
pub fn tls_started(role: Role) {
    metrics::counter!("posthouse_smtp_tls_total", "role" => role.label()).increment(1);
    tracing::debug!("TLS started");
}

/// A login succeeded or failed.
pub fn login(role: Role, good: bool) {
    let outcome = if good { "ok" } else { "failed" };
    metrics::counter!("posthouse_smtp_logins_total", "role" => role.label(), "outcome" => outcome).increment(1);
    if good {
        tracing::debug!("logged in");
    } else {
        tracing::info!("login failed");
    }
}

/// A message is stored and acknowledged.
pub fn message_accepted(role: Role, id: &str, size: u64, recipients: usize, took: Duration) {
    metrics::counter!("posthouse_smtp_messages_total", "role" => role.label()).increment(1);
    metrics::counter!("posthouse_smtp_message_bytes_total", "role" => role.label()).increment(size);
    metrics::histogram!("posthouse_smtp_delivery_seconds", "role" => role.label()).record(took.as_secs_f64());
    tracing::info!(id, size, recipients, ?took, "message stored");
}

/// A message, or its delivery to one recipient, failed for a reason of ours.
pub fn delivery_failed(role: Role, id: &str, error: &(dyn std::error::Error + 'static)) {
    metrics::counter!("posthouse_smtp_delivery_errors_total", "role" => role.label()).increment(1);
    tracing::warn!(id, error, "a delivery failed; the sender keeps the message");
}

/// A recipient's account cannot be opened, for a reason of ours.
pub fn account_failed(role: Role, account: AccountId, error: &(dyn std::error::Error + 'static)) {
    metrics::counter!("posthouse_smtp_account_errors_total", "role" => role.label()).increment(1);
    tracing::warn!(account = account.0, error, "a recipient's account cannot be opened");
}

/// Others got the message, this account did not, and there was one answer for all.
pub fn recipient_missed(role: Role, id: &str, account: AccountId, reply: Reply) {
    let (role, name) = (role.label(), reply.name());
    metrics::counter!("posthouse_smtp_recipients_missed_total", "role" => role, "reply" => name).increment(1);
    tracing::warn!(id, account = account.0, reply = name, "a message reached others and not this account");
}

/// A directory look-up failed for a reason of ours.
pub fn lookup_failed(role: Role, error: &(dyn std::error::Error + 'static)) {
    metrics::counter!("posthouse_smtp_lookup_errors_total", "role" => role.label()).increment(1);
    tracing::warn!(error, "an address could not be looked up");
}
