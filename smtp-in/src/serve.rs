//! Sockets: accepts, counts, shakes hands, and drives one [`Session`] per connection. Decides nothing that a session
//! can.
//!
//! Shutdown: nothing is accepted any more; a message whose final dot has arrived is delivered and answered; everybody
//! else is told 421.

mod connection;
mod input;
mod places;
mod receive;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use posthouse_storage::Storage;
use rustls::ServerConfig;
use rustls::server::ServerSessionMemoryCache;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::config::SmtpConfig;
use crate::error::ConnectionError;
use crate::events;
use crate::reply::Reply;
use crate::session::{Role, Session, Settings, Tls};
use connection::{Connection, End};
use places::Places;

/// TLS sessions remembered for resumption.
const TLS_SESSIONS: usize = 1_024;

/// What all SMTP listeners share.
pub struct Server {
    config: Arc<SmtpConfig>,
    hostname: Arc<str>,
    storage: Arc<Storage>,
    tls: Option<TlsAcceptor>,
    plaintext_auth: bool,
    places: Places,
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
        let places = Places::new(config.connections_max, config.connections_per_peer_max);
        let tls = tls.map(|tls| {
            let mut own = ServerConfig::clone(&tls);
            // Sessions of another service are not resumed here, and who believes to speak HTTP is not answered: a
            // certificate is often shared among services, and a dialogue with one must not pass for one with another.
            own.session_storage = ServerSessionMemoryCache::new(TLS_SESSIONS);
            own.alpn_protocols = vec![b"smtp".to_vec()];
            TlsAcceptor::from(Arc::new(own))
        });
        Self { config: Arc::new(config), hostname: hostname.into(), storage, tls, plaintext_auth, places }
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

/// Serves one listener until `token` is cancelled; connections run in `tracker`. Returns when nothing is accepted any
/// more; wait for `tracker` to see the connections end.
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
        let (mut stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                events::accept_failed(role, &error);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = server.places.take(peer.ip()) else {
            events::connection_refused(role, peer);
            if role != Role::Submissions {
                // A fresh socket takes a line without waiting; if not, the peer learns by the close.
                let line = [Reply::TooManyConnections.line(), "\r\n"].concat();
                drop(tokio::time::timeout(Duration::from_millis(10), stream.write_all(line.as_bytes())).await);
            }
            continue;
        };
        let span = tracing::info_span!("connection", protocol = "smtp", role = role.label(), %peer);
        let (server, token) = (Arc::clone(&server), token.clone());
        let task = async move {
            events::connection_opened(role);
            if let Err(error) = tcp(stream, peer.ip(), role, &server, &token).await {
                events::connection_failed(role, &error);
            }
            events::connection_closed(role);
            drop(place);
        };
        tracker.spawn(task.instrument(span));
    }
}

async fn tcp(
    stream: TcpStream,
    peer: IpAddr,
    role: Role,
    server: &Server,
    token: &CancellationToken,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true).map_err(ConnectionError::Lost)?;
    connection(stream, peer, role, server, token).await
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
