//! Sockets and limits: accepts, handshakes, and drives HTTP/1 connections. Decides nothing about requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::config::HttpConfig;
use crate::events;
use crate::routes::{App, route};

/// A bound socket and what is spoken on it.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// `Some` for HTTPS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Serves all `listeners` until `token` is cancelled; connections run in `tracker`, finish the request in hand and
/// close. Returns when nothing is accepted any more; wait for `tracker` to see the connections end.
pub async fn serve(
    listeners: Vec<Listener>,
    app: Arc<App>,
    config: HttpConfig,
    tracker: TaskTracker,
    token: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(config.connections_max));
    let config = Arc::new(config);
    let loops = listeners.into_iter().map(|listener| {
        tracker.spawn(accept(
            listener,
            Arc::clone(&app),
            Arc::clone(&config),
            Arc::clone(&places),
            tracker.clone(),
            token.clone(),
        ))
    });
    for accepting in loops.collect::<Vec<_>>() {
        if let Err(error) = accepting.await {
            tracing::error!(%error, "an HTTP listener ended");
        }
    }
}

async fn accept(
    listener: Listener,
    app: Arc<App>,
    config: Arc<HttpConfig>,
    places: Arc<Semaphore>,
    tracker: TaskTracker,
    token: CancellationToken,
) {
    let acceptor = listener.tls.map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => return,
            accepted = listener.socket.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                events::accept_failed(&error);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // When all places are taken the newcomer is closed at once, so that the backlog never hides a full server.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            events::connection_refused(peer);
            continue;
        };
        let span = tracing::info_span!("connection", protocol = "http", %peer);
        let (acceptor, app, config, token) = (acceptor.clone(), Arc::clone(&app), Arc::clone(&config), token.clone());
        let connection = async move {
            events::connection_opened(peer, acceptor.is_some());
            let limit = config.connection_time_max();
            if tokio::time::timeout(limit, connection(stream, acceptor, app, &config, &token)).await.is_err() {
                events::connection_failed("lifetime", &"open for too long");
            }
            events::connection_closed();
            drop(place);
        };
        tracker.spawn(connection.instrument(span));
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    app: Arc<App>,
    config: &HttpConfig,
    token: &CancellationToken,
) {
    let Some(acceptor) = acceptor else {
        return http1(stream, app, config, token).await;
    };
    let handshake = tokio::time::timeout(config.header_timeout(), acceptor.accept(stream));
    let stream = tokio::select! {
        () = token.cancelled() => return,
        stream = handshake => stream,
    };
    match stream {
        Ok(Ok(stream)) => http1(stream, app, config, token).await,
        Ok(Err(error)) => events::connection_failed("tls", &error),
        Err(_) => events::connection_failed("tls", &"handshake timed out"),
    }
}

async fn http1<S>(stream: S, app: Arc<App>, config: &HttpConfig, token: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(route(&app, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout())
        .max_buf_size(config.header_bytes_max.max(8192))
        .max_headers(config.headers_max)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    events::connection_failed("http", &error);
                }
                return;
            }
            () = token.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
