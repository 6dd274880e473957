//! Everything worth telling an operator: one function per event, which logs and counts together.

use std::net::SocketAddr;

use posthouse_storage::account::AccountError;

pub(crate) fn accept_failed(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
}

pub(crate) fn opened(tls: bool) {
    metrics::counter!("posthouse_imap_connections_total", "tls" => if tls { "yes" } else { "no" }).increment(1);
    metrics::gauge!("posthouse_imap_connections").increment(1.0);
    tracing::debug!("connection opened");
}

pub(crate) fn closed(why: &dyn std::fmt::Display) {
    metrics::gauge!("posthouse_imap_connections").decrement(1.0);
    tracing::debug!(%why, "connection closed");
}

pub(crate) fn refused(peer: SocketAddr) {
    metrics::counter!("posthouse_imap_refused_total").increment(1);
    tracing::warn!(%peer, "too many IMAP connections; one more was refused");
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

pub(crate) fn store_failed(verb: &'static str, error: &AccountError) {
    tracing::error!(verb, %error, "the store failed a command");
}
