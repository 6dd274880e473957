//! Sockets: accepts, counts, shakes hands, and hands each connection to its session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_storage::Storage;
use posthouse_storage::account::AccountId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::config::ImapConfig;
use crate::events;
use crate::output::Stream;
use crate::session::{Connection, Session};

/// How long a connection is silent before the system asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(120);

/// What a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// IMAP, plain at first; STARTTLS when there is a certificate.
    Imap,
    /// IMAP inside TLS from the first octet (RFC 8314 §3.2).
    Imaps,
}

/// What all IMAP connections share.
pub struct Server {
    pub(crate) config: ImapConfig,
    pub(crate) storage: Arc<Storage>,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    connections: Arc<Semaphore>,
    sessions: Mutex<HashMap<AccountId, usize>>,
}

impl Server {
    /// A server over `storage`; without `tls` there is neither STARTTLS nor, but for what the configuration allows,
    /// LOGIN.
    pub fn new(config: ImapConfig, storage: Arc<Storage>, tls: Option<Arc<rustls::ServerConfig>>) -> Arc<Self> {
        let connections = Arc::new(Semaphore::new(config.connections_max));
        Arc::new(Self { config, storage, tls, connections, sessions: Mutex::default() })
    }

    /// A place among the account's sessions; `None` when all are taken.
    pub(crate) fn session_place(self: &Arc<Self>, account: AccountId) -> Option<SessionPlace> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sessions.entry(account).or_default();
        if *count >= self.config.sessions_per_account_max {
            return None;
        }
        *count += 1;
        Some(SessionPlace { server: Arc::clone(self), account })
    }

    /// Serves one connection that is already there; returns when it has ended. `tls`: the stream is encrypted already.
    pub async fn session<S>(self: &Arc<Self>, stream: S, peer: SocketAddr, tls: bool, token: CancellationToken)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Connection { stream: Box::new(stream) as Box<dyn Stream>, peer, tls };
        events::opened(tls);
        let why = Session::new(Arc::clone(self), connection, token).run().await;
        events::closed(&why);
    }
}

/// Counts one session of an account while it lives.
pub(crate) struct SessionPlace {
    server: Arc<Server>,
    account: AccountId,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut sessions = self.server.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sessions.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.account);
            }
        }
    }
}

/// Accepts on `listener` until `token` is cancelled. Connections run in `tracker`; when the token is cancelled they
/// finish the command being carried out, say BYE and end.
pub async fn serve(
    listener: TcpListener,
    role: Role,
    server: Arc<Server>,
    tracker: TaskTracker,
    token: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: others may end meanwhile.
                events::accept_failed(&error);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&server.connections).try_acquire_owned() else {
            events::refused(peer);
            if role == Role::Imap {
                // One line that fits any socket's buffer; whoever does not take it is closed all the same.
                drop(stream.try_write(b"* BYE [UNAVAILABLE] Too many connections; try again later\r\n"));
            }
            continue;
        };
        let span = tracing::info_span!("connection", protocol = "imap", %peer, account = tracing::field::Empty);
        let (server, token) = (Arc::clone(&server), token.clone());
        tracker.spawn(
            async move {
                connection(stream, peer, role, &server, token).await;
                drop(place);
            }
            .instrument(span),
        );
    }
}

/// A phone that left the network without a word is noticed within some minutes, and its place becomes free.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4).with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(KEEPALIVE * 2))?;
    Ok(())
}

async fn connection(stream: TcpStream, peer: SocketAddr, role: Role, server: &Arc<Server>, token: CancellationToken) {
    if prepare(&stream).is_err() {
        return;
    }
    match (role, &server.tls) {
        (Role::Imap, _) => server.session(stream, peer, false, token).await,
        (Role::Imaps, None) => tracing::error!("an IMAPS listener without a certificate"),
        (Role::Imaps, Some(tls)) => {
            let limit = Duration::from_secs(server.config.handshake_timeout_seconds);
            // The handshake's future is large; the session that follows should not carry it.
            let handshake =
                Box::pin(tokio::time::timeout(limit, TlsAcceptor::from(Arc::clone(tls)).accept(stream))).await;
            match handshake {
                Ok(Ok(stream)) => server.session(stream, peer, true, token).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            }
        }
    }
}
