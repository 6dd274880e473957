//! What a value may be beyond its type: names, ranges, addresses that clash, certificates that cannot be used.

use std::collections::HashMap;

use super::Config;
use super::load::Places;
use super::mistake::Mistake;

/// Adds every mistake of `config`.
pub fn validate(config: &Config, places: &Places, mistakes: &mut Vec<Mistake>) {
    let mut wrong = |section: &'static str, key: &str, problem: String, help: &str| {
        let problem = format!("`{section}.{key}` {problem}");
        mistakes.push(Mistake { place: places.of(section, key), problem, help: vec![help.to_owned()] });
    };
    if !is_host_name(&config.server.hostname) {
        wrong(
            "server",
            "hostname",
            format!("cannot be {:?}: not a host name", config.server.hostname),
            "letters, digits, `-` and `.`, at most 253 characters; example: hostname = \"mail.example.org\"",
        );
    }
    if let Err(error) = config.server.log.parse::<tracing_subscriber::filter::Targets>() {
        wrong(
            "server",
            "log",
            format!("cannot be {:?}: {error}", config.server.log),
            "example: log = \"info,posthouse_imap=debug\"",
        );
    }
    if config.server.data_dir.as_os_str().is_empty() {
        wrong("server", "data_dir", "is empty".to_owned(), "example: data_dir = \"/var/lib/posthouse\"");
    }
    for (section, key, value, minimum) in [
        ("smtp", "message_bytes_max", config.smtp.message_bytes_max, 65_536),
        ("smtp", "recipients_max", config.smtp.recipients_max as u64, 100),
        ("smtp", "received_max", config.smtp.received_max.into(), 100),
        ("smtp", "errors_max", config.smtp.errors_max.into(), 1),
        ("smtp", "auth_failures_max", config.smtp.auth_failures_max.into(), 1),
        ("smtp", "connections_max", config.smtp.connections_max as u64, 1),
        ("smtp", "connections_per_peer_max", config.smtp.connections_per_peer_max as u64, 1),
        ("smtp", "command_timeout_seconds", config.smtp.command_timeout_seconds, 1),
        ("smtp", "data_block_timeout_seconds", config.smtp.data_block_timeout_seconds, 1),
        ("smtp", "message_seconds_max", config.smtp.message_seconds_max, 1),
        ("smtp", "handshake_timeout_seconds", config.smtp.handshake_timeout_seconds, 1),
        ("imap", "message_bytes_max", config.imap.message_bytes_max, 65_536),
        ("imap", "connections_max", config.imap.connections_max as u64, 1),
        ("imap", "sessions_per_account_max", config.imap.sessions_per_account_max as u64, 1),
        // RFC 3501 §5.4: a client is not logged out before 30 minutes.
        ("imap", "idle_timeout_seconds", config.imap.idle_timeout_seconds, 1_800),
        ("imap", "login_timeout_seconds", config.imap.login_timeout_seconds, 1),
        ("imap", "idle_notify_seconds", config.imap.idle_notify_seconds, 1),
        ("imap", "write_timeout_seconds", config.imap.write_timeout_seconds, 1),
        ("imap", "handshake_timeout_seconds", config.imap.handshake_timeout_seconds, 1),
        ("imap", "errors_max", config.imap.errors_max as u64, 1),
        ("imap", "login_failures_max", config.imap.login_failures_max as u64, 1),
        ("http", "connections_max", config.http.connections_max as u64, 1),
        ("http", "header_timeout_seconds", config.http.header_timeout_seconds, 1),
        ("http", "header_bytes_max", config.http.header_bytes_max as u64, 8192),
        ("http", "headers_max", config.http.headers_max as u64, 1),
        ("http", "connection_seconds_max", config.http.connection_seconds_max, 1),
        ("storage", "cache_bytes", config.storage.cache_bytes, 1 << 20),
        ("storage", "memtable_bytes", config.storage.memtable_bytes, 1 << 20),
        ("storage", "account_memory_bytes", config.storage.account_memory_bytes as u64, 1 << 20),
        ("storage", "spool_memory_bytes_max", config.storage.spool_memory_bytes_max as u64, 1 << 10),
    ] {
        if value < minimum {
            let help = format!("example: {key} = {minimum}");
            wrong(section, key, format!("cannot be {value}: at least {minimum}"), &help);
        }
    }
    listeners(config, places, &mut wrong);
    match (&config.tls.certificate, &config.tls.key) {
        (Some(_), None) => wrong("tls", "certificate", "is set without `tls.key`".to_owned(), "set both, or neither"),
        (None, Some(_)) => wrong("tls", "key", "is set without `tls.certificate`".to_owned(), "set both, or neither"),
        _ => {}
    }
}

fn listeners(config: &Config, places: &Places, wrong: &mut impl FnMut(&'static str, &str, String, &str)) {
    let mut taken = HashMap::new();
    for (key, addresses, tls) in config.listen.roles() {
        for &address in addresses {
            // Port 0 is a port of its own each time.
            let other = if address.port() == 0 { None } else { taken.insert(address, key) };
            if let Some(other) = other {
                let problem = format!("has {address}, which `listen.{other}` has already");
                wrong("listen", key, problem, "give each role an address or a port of its own");
            }
        }
        let no_certificate = config.tls.certificate.is_none() && config.tls.key.is_none();
        if tls && no_certificate && !addresses.is_empty() && places.written("listen", key) {
            let help = "set `certificate` and `key` in [tls], or leave this role out";
            wrong("listen", key, "needs a certificate".to_owned(), help);
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
