//! Takes calls on the Unix socket of a running server. Whoever may open the socket (its owner) may do everything.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use posthouse_storage::Storage;
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frames::{Decoder, Frame};
use super::import::Importer;
use super::known::Kept;
use super::operations;
use super::protocol::{Call, ImportInto, Refusal};
use super::socket::SocketPath;

/// Longest JSON of a call.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Administrators at one moment; more wait in the socket's backlog.
const CONNECTIONS_MAX: usize = 32;
/// Messages of an export ready to be sent before the reading of more waits.
const FRAMES_AHEAD: usize = 16;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A bound admin socket; its file is removed when it is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    file: PathBuf,
}

impl AdminSocket {
    /// Binds it for the owner alone. The data directory's lock must be held: a socket left by a crash is replaced.
    pub fn bind(data_dir: &Path) -> anyhow::Result<Self> {
        let file = data_dir.join(super::socket::NAME);
        let bound = || -> io::Result<UnixListener> {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let short = SocketPath::new(data_dir)?;
            let listener = UnixListener::bind(short.path())?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = bound().with_context(|| format!("cannot listen on the admin socket {}", file.display()))?;
        Ok(Self { listener, file })
    }

    /// Serves until `token` is cancelled; calls in hand are finished in `tracker`.
    pub async fn serve(self, storage: Arc<Storage>, tracker: TaskTracker, token: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let kept = Kept::default();
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let accepted = tokio::select! {
                () = token.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept admin connections for the moment");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (storage, kept, token) = (Arc::clone(&storage), kept.clone(), token.clone());
            tracker.spawn(async move {
                let service = service_fn(move |request| {
                    let (storage, kept) = (Arc::clone(&storage), kept.clone());
                    async move { Ok::<_, Infallible>(route(&storage, &kept, request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(60))
                    .serve_connection(TokioIo::new(stream), service);
                tokio::pin!(connection);
                let ended = tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = token.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "admin connection failed");
                }
                drop(place);
            });
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.file) {
            tracing::debug!(%error, "the admin socket's file stays");
        }
    }
}

async fn route(storage: &Arc<Storage>, kept: &Kept, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = match (request.method(), path.as_str()) {
        (&Method::POST, "/v1/call") => call(storage, request).await,
        (&Method::POST, "/v1/import") => import(storage, kept, request).await,
        (&Method::POST, "/v1/export") => export(storage, request).await,
        _ => return json(StatusCode::NOT_FOUND, &Refusal { error: "no such call".to_owned() }),
    };
    answer.unwrap_or_else(|error| {
        tracing::info!(path, error = format!("{error:#}"), "admin call refused");
        json(StatusCode::UNPROCESSABLE_ENTITY, &Refusal { error: format!("{error:#}") })
    })
}

async fn call(storage: &Arc<Storage>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    let body = Limited::new(request.into_body(), CALL_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the call could not be read: {error}"))?.to_bytes();
    let call: Call = serde_json::from_slice(&body).context("not a call that this version knows")?;
    // A call that was begun is finished even if its caller goes away.
    let storage = Arc::clone(storage);
    let answer = tokio::spawn(async move { operations::perform(&storage, call).await }).await??;
    Ok(json(StatusCode::OK, &answer))
}

async fn import(storage: &Arc<Storage>, kept: &Kept, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    let into: ImportInto = header(&request)?;
    let mut importer = Importer::new(storage, &into, kept).await?;
    let (mut body, mut decoder) = (request.into_body(), Decoder::default());
    loop {
        while let Some(frame) = decoder.next()? {
            match frame {
                Frame::Message(meta) => importer.begin(meta).await,
                Frame::Octets(octets) => importer.octets(&octets).await,
                Frame::End => return Ok(json(StatusCode::OK, &importer.commit().await)),
                Frame::Failed(error) => return Err(anyhow!("the sender failed: {error}")),
            }
        }
        let piece = body.frame().await.context("the stream of messages was cut")?.context("the stream broke")?;
        if let Some(bytes) = piece.data_ref() {
            decoder.feed(bytes);
        }
    }
}

async fn export(storage: &Arc<Storage>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    let from: ImportInto = header(&request)?;
    let source = operations::export_source(storage, &from.account, &from.mailbox).await?;
    let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
    // Ends by itself when the receiver goes away.
    tokio::spawn(operations::export(source, sender));
    let body = stream::unfold(receiver, |mut receiver| async move {
        let frame = receiver.recv().await?;
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        Some((Ok::<_, Infallible>(BodyFrame::data(bytes.freeze())), receiver))
    });
    Ok(Response::new(StreamBody::new(body).boxed_unsync()))
}

/// The argument of a bulk call, in a header field since the body is the messages.
fn header<T: serde::de::DeserializeOwned>(request: &Request<Incoming>) -> anyhow::Result<T> {
    let value = request.headers().get("posthouse-argument").context("the argument is missing")?;
    serde_json::from_slice(value.as_bytes()).context("the argument is not understood")
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(value).expect("answers are JSON");
    let mut response = Response::new(Full::from(text).boxed_unsync());
    *response.status_mut() = status;
    response
}
