//! The command line's end: asks the server that holds the data directory, or opens the directory when nobody does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use posthouse_storage::{Storage, StorageConfig};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::frames::{Decoder, Frame};
use super::import::Importer;
use super::known::Kept;
use super::operations;
use super::protocol::{Answer, Call, ImportInto, Imported, MessageMeta, Refusal};
use super::socket::SocketPath;
use crate::data;

/// A message to import, whole.
#[derive(Debug)]
pub struct Outgoing {
    /// Flags and date.
    pub meta: MessageMeta,
    /// Its octets.
    pub octets: Bytes,
}

/// The way to a data directory.
pub enum Admin {
    /// Nobody holds it: it is open here.
    Here(Arc<Storage>, Kept),
    /// A server holds it.
    Server(Server),
}

/// A server reached by its socket.
#[derive(Debug)]
pub struct Server {
    data_dir: PathBuf,
}

impl Admin {
    /// Finds the way to the data directory of `config`.
    pub async fn connect(config: StorageConfig) -> anyhow::Result<Self> {
        let data_dir = config.data_dir.clone();
        if !data_dir.is_dir() {
            bail!(
                "there is no data directory {}; `posthouse serve` makes it, and so does `posthouse domain add` with \
                 --config",
                data_dir.display()
            );
        }
        match connect(&data_dir).await {
            Ok(_) => Ok(Self::Server(Server { data_dir })),
            // Nobody listens: the socket is missing, or was left by a server that was killed.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                belongs_to_posthouse(&data_dir)?;
                Ok(Self::Here(data::open(config).await?, Kept::default()))
            }
            Err(error) => Err(error).with_context(|| {
                format!("cannot reach the server of {}; run this as the user it runs as", data_dir.display())
            }),
        }
    }

    /// One operation.
    pub async fn call(&self, call: Call) -> anyhow::Result<Answer> {
        match self {
            Self::Here(storage, _) => operations::perform(storage, call).await,
            Self::Server(server) => {
                let body = Full::from(serde_json::to_vec(&call)?);
                let response = server.ask(Request::post("/v1/call").body(body)?).await?;
                let bytes = response.into_body().collect().await.context("the answer was cut")?.to_bytes();
                serde_json::from_slice(&bytes).context("the server answers in another version's way")
            }
        }
    }

    /// Adds messages to a mailbox, made when missing; what became of each, in order.
    pub async fn import(&self, into: &ImportInto, messages: Vec<Outgoing>) -> anyhow::Result<Imported> {
        match self {
            Self::Here(storage, kept) => {
                let mut importer = Importer::new(storage, into, kept).await?;
                for message in messages {
                    importer.begin(message.meta).await;
                    importer.octets(&message.octets).await;
                }
                Ok(importer.commit().await)
            }
            Self::Server(server) => {
                let mut body = BytesMut::new();
                for message in messages {
                    Frame::Message(message.meta).encode(&mut body);
                    Frame::Octets(message.octets).encode(&mut body);
                }
                Frame::End.encode(&mut body);
                let response = server.ask(bulk("/v1/import", into, body.freeze())?).await?;
                let bytes = response.into_body().collect().await.context("the answer was cut")?.to_bytes();
                serde_json::from_slice(&bytes).context("the server answers in another version's way")
            }
        }
    }

    /// All messages of a mailbox as frames, in order of their uids.
    pub async fn export(&self, from: &ImportInto) -> anyhow::Result<mpsc::Receiver<Frame>> {
        let (sender, receiver) = mpsc::channel(16);
        match self {
            Self::Here(storage, _) => {
                let source = operations::export_source(storage, &from.account, &from.mailbox).await?;
                tokio::spawn(operations::export(source, sender));
            }
            Self::Server(server) => {
                let response = server.ask(bulk("/v1/export", from, Bytes::new())?).await?;
                tokio::spawn(receive(response.into_body(), sender));
            }
        }
        Ok(receiver)
    }

    /// Ends well: what was written here is flushed.
    pub async fn close(&self) -> anyhow::Result<()> {
        match self {
            Self::Here(storage, _) => Ok(storage.close().await?),
            Self::Server(_) => Ok(()),
        }
    }
}

/// Refuses a directory that holds something else's files: a mistyped path must not be written into.
fn belongs_to_posthouse(data_dir: &Path) -> anyhow::Result<()> {
    /// What a server that was cut short before it had a store, or a file system of its own, may have left.
    const HARMLESS: [&str; 3] = ["admin.sock", "spool", "lost+found"];
    if data_dir.join("store").exists() {
        return Ok(());
    }
    let unread = || format!("cannot read the data directory {}", data_dir.display());
    for entry in std::fs::read_dir(data_dir).with_context(unread)? {
        let name = entry.with_context(unread)?.file_name();
        if !HARMLESS.iter().any(|harmless| name == *harmless) {
            bail!(
                "{} is not empty and not a data directory of Posthouse (it holds {}); choose another one",
                data_dir.display(),
                name.display()
            );
        }
    }
    Ok(())
}

fn bulk(path: &str, argument: &ImportInto, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
    // Header fields are ASCII: what is not gets JSON's escapes.
    let json: String = serde_json::to_string(argument)?
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        })
        .collect();
    Ok(Request::post(path).header("posthouse-argument", json).body(Full::from(body))?)
}

async fn receive(mut body: Incoming, sender: mpsc::Sender<Frame>) {
    let mut decoder = Decoder::default();
    let failure = loop {
        match decoder.next() {
            Ok(Some(frame)) => {
                let last = matches!(frame, Frame::End | Frame::Failed(_));
                if sender.send(frame).await.is_err() || last {
                    return;
                }
            }
            Err(error) => break format!("{error:#}"),
            Ok(None) => match body.frame().await {
                Some(Ok(piece)) => {
                    if let Some(bytes) = piece.data_ref() {
                        decoder.feed(bytes);
                    }
                }
                Some(Err(error)) => break error.to_string(),
                None => break "the server's answer was cut".to_owned(),
            },
        }
    };
    // Whoever gave up on the frames does not need the reason either.
    drop(sender.send(Frame::Failed(failure)).await);
}

async fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let socket = SocketPath::new(data_dir)?;
    UnixStream::connect(socket.path()).await
}

impl Server {
    async fn ask(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let stream = connect(&self.data_dir).await.context("the server has gone away")?;
        let (mut sender, connection): (SendRequest<Full<Bytes>>, _) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.context("the server did not answer")?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.context("the answer was cut")?.to_bytes();
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(anyhow!(refusal.error)),
            Err(_) => Err(anyhow!("the server answered {status}")),
        }
    }
}
