//! Composition: opens the store, binds the roles, hands each what it needs, and stops everything in order.
//!
//! Shutdown: nothing is accepted any more; sessions finish the command being carried out and say goodbye (a message in
//! transfer is refused); after the grace they are cut; the store is closed last. A second signal ends the process at
//! once (nothing acknowledged is lost by it).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use metrics_exporter_prometheus::PrometheusHandle;
use posthouse_http::{App, Check, Listener};
use posthouse_smtp_in::Role;
use posthouse_storage::Storage;
use posthouse_storage::wide::{StoreError, Table};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::server::AdminSocket;
use crate::config::{Config, ListenSection};
use crate::listen::{self, Door, Places};
use crate::observe;
use crate::tls::Tls;

/// How often background work is looked at, and the store asked whether it still works.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// A server about to run.
pub struct Server {
    /// What was configured.
    pub config: Config,
    /// The certificate, if there is one.
    pub tls: Option<Tls>,
    /// True where a password may be sent unencrypted: over loopback, in a trial.
    pub plaintext_logins: bool,
    /// The store, open.
    pub storage: Arc<Storage>,
    /// The metrics' exporter.
    pub metrics: PrometheusHandle,
}

/// The sockets of all roles, bound.
#[derive(Debug, Default)]
pub struct Sockets {
    smtp: Vec<TcpListener>,
    submission: Vec<TcpListener>,
    submissions: Vec<TcpListener>,
    lmtp: Vec<TcpListener>,
    imap: Vec<TcpListener>,
    imaps: Vec<TcpListener>,
    http: Vec<TcpListener>,
    https: Vec<TcpListener>,
}

impl Sockets {
    /// Binds every address; roles with TLS from the first byte only where there is a certificate.
    ///
    /// # Errors
    /// Names the address, the key and what to do.
    pub async fn bind(listen: &ListenSection, tls: bool) -> anyhow::Result<Self> {
        let mut sockets = Self::default();
        for (role, addresses, implicit_tls) in listen.roles() {
            if implicit_tls && !tls {
                continue;
            }
            let bound = match role {
                "smtp" => &mut sockets.smtp,
                "submission" => &mut sockets.submission,
                "submissions" => &mut sockets.submissions,
                "lmtp" => &mut sockets.lmtp,
                "imap" => &mut sockets.imap,
                "imaps" => &mut sockets.imaps,
                "http" => &mut sockets.http,
                _ => &mut sockets.https,
            };
            for &address in addresses {
                bound.push(TcpListener::bind(address).await.map_err(|error| cannot_listen(role, address, &error))?);
            }
        }
        Ok(sockets)
    }
}

fn cannot_listen(role: &str, address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("port {} is taken; stop the program that has it, or change `listen.{role}`", address.port())
        }
        std::io::ErrorKind::PermissionDenied => format!(
            "port {} needs privileges (root, or CAP_NET_BIND_SERVICE); grant them, or change `listen.{role}`",
            address.port()
        ),
        std::io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no address {}; change `listen.{role}`", address.ip())
        }
        _ => format!("change `listen.{role}`"),
    };
    anyhow!("cannot listen on {address} for {role}: {error}; {advice}")
}

/// Signals that a server heeds.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
enum Told {
    Stop(&'static str),
    Reload,
}

impl Signals {
    /// From here on they no longer end the process by themselves.
    pub fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    async fn stop(&mut self) -> &'static str {
        loop {
            if let Told::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

impl Server {
    /// Serves until a signal, then stops in order. `ready` is called once everything listens.
    ///
    /// # Errors
    /// What kept it from starting, or a store that failed; then everything else was stopped in order too.
    pub async fn run(self, mut signals: Signals, ready: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Self { config, tls, plaintext_logins, storage, metrics } = self;
        let sockets = Sockets::bind(&config.listen, tls.is_some()).await?;
        let admin = AdminSocket::bind(&config.server.data_dir)?;
        let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
        let served = Roles { config: &config, tls: tls.as_ref(), plaintext_logins, storage: &storage, metrics };
        served.start(sockets, &tracker, &token);
        tracker.spawn(admin.serve(Arc::clone(&storage), tracker.clone(), token.clone()));
        tracker.spawn(sweep(Arc::clone(&storage), token.clone()));
        let mut failed = tracker.spawn(probe(Arc::clone(&storage), config.server.data_dir.clone(), token.clone()));
        tracing::info!(hostname = config.server.hostname, data = %config.server.data_dir.display(), "serving");
        ready()?;

        let failure = loop {
            tokio::select! {
                told = signals.next() => match told {
                    Told::Reload => reload(tls.as_ref()),
                    Told::Stop(name) => {
                        tracing::info!(signal = name, grace = ?config.server.grace(), "stopping");
                        break None;
                    }
                },
                failure = &mut failed => break failure.unwrap_or_else(|error| Some(anyhow!(error))),
            }
        };
        token.cancel();
        tracker.close();
        tokio::select! {
            () = tracker.wait() => {}
            () = tokio::time::sleep(config.server.grace()) => {
                tracing::warn!(tasks = tracker.len(), "the grace is over: connections are cut");
            }
            name = signals.stop() => {
                tracing::warn!(signal = name, "told to stop again: ending at once");
                std::process::exit(1);
            }
        }
        let closed = storage.close().await.context("the store did not close");
        tracing::info!("stopped");
        // A store that has failed does not close either: the first reason is the one to tell.
        failure.map_or(closed, Err)
    }
}

fn reload(tls: Option<&Tls>) {
    match tls.map(Tls::reload) {
        None => tracing::info!("SIGHUP: there is no certificate to read again; other changes need a restart"),
        Some(Ok(())) => tracing::info!("SIGHUP: the certificate was read again; other changes need a restart"),
        Some(Err(error)) => tracing::error!(
            error = format!("{error:#}"),
            "SIGHUP: the new certificate cannot be used, the old one stays; mend the files and send SIGHUP again"
        ),
    }
}

/// What the roles are made of.
struct Roles<'a> {
    config: &'a Config,
    tls: Option<&'a Tls>,
    plaintext_logins: bool,
    storage: &'a Arc<Storage>,
    metrics: PrometheusHandle,
}

impl Roles<'_> {
    fn start(self, sockets: Sockets, tracker: &TaskTracker, token: &CancellationToken) {
        let Sockets { smtp, submission, submissions, lmtp, imap, imaps, http, https } = sockets;
        let roles =
            [(smtp, Role::Mx), (submission, Role::Submission), (submissions, Role::Submissions), (lmtp, Role::Lmtp)];
        self.smtp(roles, tracker, token);
        self.imap([(imap, posthouse_imap::Role::Imap), (imaps, posthouse_imap::Role::Imaps)], tracker, token);
        self.http(http, https, tracker, token);
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.map(|tls| Arc::clone(&tls.config))
    }

    fn smtp(&self, roles: [(Vec<TcpListener>, Role); 4], tracker: &TaskTracker, token: &CancellationToken) {
        let server = Arc::new(posthouse_smtp_in::Server::new(
            self.config.smtp.clone(),
            &self.config.server.hostname,
            Arc::clone(self.storage),
            self.tls(),
            self.plaintext_logins,
        ));
        let smtp = &self.config.smtp;
        let places = Arc::new(Places::new(smtp.connections_max, Some(smtp.connections_per_peer_max)));
        for (listeners, role) in roles {
            for listener in listeners {
                let farewell = posthouse_smtp_in::farewell(role);
                let door = Door { protocol: "smtp", role: role.label(), places: Arc::clone(&places), farewell };
                let (server, stop) = (Arc::clone(&server), token.clone());
                let serve =
                    move |stream, peer| posthouse_smtp_in::serve(stream, peer, role, Arc::clone(&server), stop.clone());
                tracker.spawn(listen::accept(listener, door, serve, tracker.clone(), token.clone()));
            }
        }
    }

    fn imap(
        &self,
        roles: [(Vec<TcpListener>, posthouse_imap::Role); 2],
        tracker: &TaskTracker,
        token: &CancellationToken,
    ) {
        let mut config = self.config.imap.clone();
        config.plaintext_login_on_loopback = self.plaintext_logins;
        let server = posthouse_imap::Server::new(config, Arc::clone(self.storage), self.tls());
        // Not limited for one peer: behind one address there may be a whole office, with some connections each.
        let places = Arc::new(Places::new(self.config.imap.connections_max, None));
        for (listeners, role) in roles {
            for listener in listeners {
                let farewell = posthouse_imap::farewell(role);
                let label = if role == posthouse_imap::Role::Imaps { "imaps" } else { "imap" };
                let door = Door { protocol: "imap", role: label, places: Arc::clone(&places), farewell };
                let (server, stop) = (Arc::clone(&server), token.clone());
                let serve =
                    move |stream, peer| posthouse_imap::serve(stream, peer, role, Arc::clone(&server), stop.clone());
                tracker.spawn(listen::accept(listener, door, serve, tracker.clone(), token.clone()));
            }
        }
    }

    fn http(&self, http: Vec<TcpListener>, https: Vec<TcpListener>, tracker: &TaskTracker, token: &CancellationToken) {
        let handle = self.metrics.clone();
        let upkeep = (self.metrics.clone(), token.clone());
        tracker.spawn(async move {
            let (handle, token) = upkeep;
            while token.run_until_cancelled(tokio::time::sleep(observe::UPKEEP)).await.is_some() {
                handle.run_upkeep();
            }
        });
        let storage = Arc::clone(self.storage);
        let store = Check::new("store", move || {
            let storage = Arc::clone(&storage);
            async move { ask(&storage).await.map_err(|error| error.to_string()) }
        });
        let stopping = token.clone();
        let running = Check::new("running", move || {
            let stopping = stopping.is_cancelled();
            async move { if stopping { Err("stopping".to_owned()) } else { Ok(()) } }
        });
        let app = App { metrics: Box::new(move || handle.render()), checks: vec![running, store] };
        let plain = http.into_iter().map(|socket| Listener { socket, tls: None });
        let tls = self.tls();
        let secure = https.into_iter().map(|socket| Listener { socket, tls: tls.clone() });
        let listeners: Vec<_> = plain.chain(secure).collect();
        if listeners.is_empty() {
            return;
        }
        let serving =
            posthouse_http::serve(listeners, Arc::new(app), self.config.http.clone(), tracker.clone(), token.clone());
        tracker.spawn(serving);
    }
}

/// One small read: does the store answer?
async fn ask(storage: &Storage) -> Result<(), StoreError> {
    storage.store.get(Table::Directory, b"posthouse.probe", b"").await.map(drop)
}

/// Ends with the failure when the store can no longer be used: the process then stops, and recovers by starting again.
async fn probe(storage: Arc<Storage>, data_dir: PathBuf, token: CancellationToken) -> Option<anyhow::Error> {
    while token.run_until_cancelled(tokio::time::sleep(PROBE_EVERY)).await.is_some() {
        match ask(&storage).await {
            Err(StoreError::Poisoned(why)) => return Some(store_failed(&why, &data_dir)),
            Err(error) => tracing::warn!(%error, "the store does not answer"),
            Ok(()) => {}
        }
    }
    None
}

/// What ended the server, and what to do; the store itself has logged the moment.
fn store_failed(why: &str, data_dir: &Path) -> anyhow::Error {
    let full = ["os error 28", "os error 122"].iter().any(|code| why.contains(code));
    let first = if full { format!("free space at {}, then start", data_dir.display()) } else { "start".to_owned() };
    anyhow!("the store failed and the server stopped: {why}; {first} again: all that was acknowledged is there")
}

/// Finishes what a crash left, and gives up what nobody needs any more.
async fn sweep(storage: Arc<Storage>, token: CancellationToken) {
    loop {
        if let Err(error) = storage.delivery.sweep().await {
            tracing::warn!(%error, "unfinished deliveries are tried again later");
        }
        if let Err(error) = storage.accounts.sweep().await {
            tracing::warn!(%error, "expunged messages are given up later");
        }
        if token.run_until_cancelled(tokio::time::sleep(SWEEP_EVERY)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_store_is_told_with_what_to_do() {
        let (full, data) = (std::io::Error::from_raw_os_error(28), Path::new("/var/lib/posthouse"));
        assert_eq!(
            store_failed(&format!("store I/O failed: {full}"), data).to_string(),
            "the store failed and the server stopped: store I/O failed: No space left on device (os error 28); free \
             space at /var/lib/posthouse, then start again: all that was acknowledged is there"
        );
        assert!(store_failed("store I/O failed: bad disk", data).to_string().contains("bad disk; start again"));
    }
}
