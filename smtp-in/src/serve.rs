//! Connections: shakes hands, and drives one [`Session`] per connection. Decides nothing that a session can.
//!
//! Shutdown: a message whose final dot has arrived is delivered and answered; everybody
//! else is told 421.

mod connection;
mod input;
mod receive;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use posthouse_storage::Storage;
use rustls::ServerConfig;
use rustls::server::ServerSessionMemoryCache;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::config::SmtpConfig;
use crate::error::ConnectionError;
use crate::events;
use crate::reply::Reply;
use crate::session::{Role, Session, Settings, Tls};
use connection::{Connection, End};

/// TLS sessions remembered for resumption.
const TLS_SESSIONS: usize = 1_024;

/// What all SMTP connections share.
pub struct Server {
    config: Arc<SmtpConfig>,
    hostname: Arc<str>,
    storage: Arc<Storage>,
    tls: Option<TlsAcceptor>,
    plaintext_auth: bool,
}

impl Server {
    /// `hostname` is what the server calls itself. Without `tls` there is no STARTTLS. `plaintext_auth` lets peers on
    /// this machine, and nobody else, log in without it.
    pub fn new(
        config: SmtpConfig,
        hostname: &str,
        storage: Arc<Storage>,
        tls: Option<Arc<ServerConfig>>,
        plaintext_auth: bool,
    ) -> Self {
        let tls = tls.map(|tls| {
            let mut own = ServerConfig::clone(&tls);
            // Sessions of another service are not resumed here, and who believes to speak HTTP is not answered: a
            // certificate is often shared among services, and a dialogue with one must not pass for one with another.
            own.session_storage = ServerSessionMemoryCache::new(TLS_SESSIONS);
            own.alpn_protocols = vec![b"smtp".to_vec()];
            TlsAcceptor::from(Arc::new(own))
        });
        Self { config: Arc::new(config), hostname: hostname.into(), storage, tls, plaintext_auth }
    }

    fn session(&self, role: Role, tls: Tls, peer: IpAddr) -> Session {
        Session::new(Settings {
            role,
            config: Arc::clone(&self.config),
            hostname: Arc::clone(&self.hostname),
            tls,
            plaintext_auth: self.plaintext_auth && peer.to_canonical().is_loopback(),
        })
    }
}

/// The line that a connection is told for which there is no place; none where only TLS would be understood.
pub fn farewell(role: Role) -> Option<&'static str> {
    (role != Role::Submissions).then(|| Reply::TooManyConnections.line())
}

/// Serves one accepted connection to its end. When `token` is cancelled, a message whose final dot has arrived is
/// delivered and answered, and the peer is told 421.
pub async fn serve(stream: TcpStream, peer: SocketAddr, role: Role, server: Arc<Server>, token: CancellationToken) {
    events::connection_opened(role);
    if let Err(error) = connection(stream, peer.ip(), role, &server, &token).await {
        events::connection_failed(role, &error);
    }
    events::connection_closed(role);
}

/// Serves one connection over any stream, to its end.
///
/// # Errors
///
/// Why it ended before its time. The peer was told what there was to tell.
pub async fn connection<S>(
    stream: S,
    peer: IpAddr,
    role: Role,
    server: &Server,
    token: &CancellationToken,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (stream, mut session) = match (role, &server.tls) {
        (Role::Submissions, Some(acceptor)) => {
            let stream = handshake(stream, role, acceptor, server, token).await?;
            let session = server.session(role, Tls::Active, peer);
            return over_tls(stream, session, peer, role, server, token).await;
        }
        (_, tls) => {
            let tls = if tls.is_some() { Tls::Offered } else { Tls::Unavailable };
            let mut connection = Connection::new(stream, server.session(role, tls, peer), peer, role, server, token);
            match connection.dialogue().await? {
                End::Closed => return Ok(()),
                End::StartTls => connection.into_parts(),
            }
        }
    };
    let Some(acceptor) = &server.tls else { return Ok(()) };
    let stream = handshake(stream, role, acceptor, server, token).await?;
    session.tls_started();
    over_tls(stream, session, peer, role, server, token).await
}

async fn over_tls<S>(
    stream: TlsStream<S>,
    session: Session,
    peer: IpAddr,
    role: Role,
    server: &Server,
    token: &CancellationToken,
) -> Result<(), ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    // Boxed, so that connections without TLS do not carry the room for it.
    let mut connection = Box::new(Connection::new(stream, session, peer, role, server, token));
    Box::pin(connection.dialogue()).await.map(drop)
}

async fn handshake<S>(
    stream: S,
    role: Role,
    acceptor: &TlsAcceptor,
    server: &Server,
    token: &CancellationToken,
) -> Result<TlsStream<S>, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = tokio::time::timeout(server.config.handshake_timeout(), acceptor.accept(stream));
    let stream = tokio::select! {
        () = token.cancelled() => return Err(ConnectionError::Stopping),
        stream = Box::pin(handshake) => stream,
    };
    let stream = stream.map_err(|_| ConnectionError::Timeout)?.map_err(ConnectionError::Tls)?;
    events::tls_started(role);
    Ok(stream)
}
