//! One function per event: it logs and counts together. Labels come from closed sets.

use std::net::SocketAddr;
use std::time::Duration;

/// A connection was taken.
pub fn connection_opened(peer: SocketAddr, tls: bool) {
    metrics::counter!("posthouse_http_connections_total", "tls" => if tls { "yes" } else { "no" }).increment(1);
    metrics::gauge!("posthouse_http_connections").increment(1.0);
    tracing::debug!(%peer, tls, "connection opened");
}

/// A connection ended.
pub fn connection_closed() {
    metrics::gauge!("posthouse_http_connections").decrement(1.0);
    tracing::debug!("connection closed");
}

/// A connection was closed unserved since there are too many.
pub fn connection_refused(peer: SocketAddr) {
    metrics::counter!("posthouse_http_connections_refused_total").increment(1);
    tracing::debug!(%peer, "too many connections");
}

/// A connection failed: the peer misbehaved, was too slow, or went away.
pub fn connection_failed(step: &'static str, error: &dyn std::fmt::Display) {
    metrics::counter!("posthouse_http_connection_errors_total", "step" => step).increment(1);
    tracing::debug!(step, %error, "connection failed");
}

/// Taking connections failed (descriptors used up, for instance); tried again shortly.
pub fn accept_failed(error: &std::io::Error) {
    metrics::counter!("posthouse_http_accept_errors_total").increment(1);
    tracing::warn!(%error, "cannot accept HTTP connections for the moment");
}

/// A request was answered.
pub fn answered(route: &'static str, status: u16, took: Duration) {
    let class = match status {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    metrics::counter!("posthouse_http_requests_total", "route" => route, "status" => class).increment(1);
    metrics::histogram!("posthouse_http_request_seconds", "route" => route).record(took.as_secs_f64());
    tracing::debug!(route, status, ?took, "answered");
}

/// A readiness check said no.
pub fn not_ready(check: &'static str, reason: &str) {
    metrics::counter!("posthouse_http_not_ready_total", "check" => check).increment(1);
    tracing::warn!(check, reason, "not ready");
}
