//! Everything worth telling an operator: one function per event, which logs and counts together.

use std::net::SocketAddr;

use posthouse_storage::account::{AccountError, Uid};

pub(crate) fn opened(tls: bool) {
    metrics::counter!("posthouse_imap_connections_total", "tls" => if tls { "yes" } else { "no" }).increment(1);
    metrics::gauge!("posthouse_imap_connections").increment(1.0);
    tracing::debug!("connection opened");
}

pub(crate) fn closed(why: &dyn std::fmt::Display) {
    metrics::gauge!("posthouse_imap_connections").decrement(1.0);
    tracing::debug!(%why, "connection closed");
}

pub(crate) fn logged_in(address: &str, mechanism: &'static str) {
    metrics::counter!("posthouse_imap_logins_total", "outcome" => "ok").increment(1);
    tracing::info!(address, mechanism, "logged in");
}

pub(crate) fn login_failed(peer: SocketAddr, outcome: &'static str) {
    metrics::counter!("posthouse_imap_logins_total", "outcome" => outcome).increment(1);
    tracing::info!(%peer, outcome, "login failed");
}

pub(crate) fn command(verb: &'static str, outcome: &'static str, took: std::time::Duration) {
    metrics::counter!("posthouse_imap_commands_total", "verb" => verb, "outcome" => outcome).increment(1);
    metrics::histogram!("posthouse_imap_command_seconds", "verb" => verb).record(took);
    tracing::debug!(verb, outcome, ?took, "command");
}

/// A client went away amid an answer, or stopped reading.
pub(crate) fn connection_lost(error: &std::io::Error) {
    metrics::counter!("posthouse_imap_connections_lost_total").increment(1);
    tracing::debug!(%error, "connection lost amid an answer");
}

/// A message's stored data is damaged.
pub(crate) fn message_damaged(uid: Uid, what: &str) {
    metrics::counter!("posthouse_imap_damaged_messages_total").increment(1);
    tracing::error!(uid = uid.get(), what, "a message is damaged");
}

/// What was announced to a client could not be sent.
pub(crate) fn answer_broken(what: &str) {
    metrics::counter!("posthouse_imap_broken_answers_total").increment(1);
    tracing::error!(what, "an answer broke off");
}

pub(crate) fn store_failed(verb: &'static str, error: &AccountError) {
    tracing::error!(verb, %error, "the store failed a command");
}
