//! Connections: shakes hands, and hands each to its session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_storage::Storage;
use posthouse_storage::account::AccountId;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::ImapConfig;
use crate::events;
use crate::output::Stream;
use crate::session::{Connection, Session};

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
    sessions: Mutex<HashMap<AccountId, usize>>,
}

impl Server {
    /// A server over `storage`; without `tls` there is neither STARTTLS nor, but for what the configuration allows,
    /// LOGIN.
    pub fn new(config: ImapConfig, storage: Arc<Storage>, tls: Option<Arc<rustls::ServerConfig>>) -> Arc<Self> {
        Arc::new(Self { config, storage, tls, sessions: Mutex::default() })
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

/// The line that a connection is told for which there is no place; none where only TLS would be understood.
pub fn farewell(role: Role) -> Option<&'static str> {
    match role {
        Role::Imap => Some("* BYE [UNAVAILABLE] Too many connections; try again later"),
        Role::Imaps => None,
    }
}

/// Serves one accepted connection to its end. When `token` is cancelled it finishes the command being carried out, says
/// BYE and ends.
pub async fn serve(stream: TcpStream, peer: SocketAddr, role: Role, server: Arc<Server>, token: CancellationToken) {
    match (role, &server.tls) {
        (Role::Imap, _) => server.session(stream, peer, false, token).await,
        (Role::Imaps, None) => tracing::error!("an IMAPS listener without a certificate"),
        (Role::Imaps, Some(tls)) => {
            let limit = Duration::from_secs(server.config.handshake_timeout_seconds);
            let handshake = tokio::time::timeout(limit, TlsAcceptor::from(Arc::clone(tls)).accept(stream));
            // The handshake's future is large; the session that follows should not carry it.
            match Box::pin(token.run_until_cancelled(handshake)).await {
                Some(Ok(Ok(stream))) => server.session(stream, peer, true, token).await,
                Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
                Some(Err(_)) => tracing::debug!("TLS handshake timed out"),
                None => tracing::debug!("stopping amid a TLS handshake"),
            }
        }
    }
}
