//! Accepts connections: how many at one moment, from whom, and what happens when there are no descriptors left. What
//! is spoken on them is the business of whoever is handed them.

mod places;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

pub use places::Places;

/// How long a connection is silent before the system asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(120);
/// How long nothing is accepted after accepting failed: others may end meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one too many is given to take its farewell.
const FAREWELL: Duration = Duration::from_millis(10);
/// What goes wrong again and again is said this often.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// What a listener lets in.
pub struct Door {
    /// For logs and metrics.
    pub protocol: &'static str,
    /// The same, and what `listen` calls it.
    pub role: &'static str,
    /// Shared by the listeners that are counted together.
    pub places: Arc<Places>,
    /// The line that one too many is told; none where it could not be understood, as before a TLS handshake.
    pub farewell: Option<&'static str>,
}

/// Serves one listener until `token` is cancelled. What `serve` makes of a connection runs in `tracker`, in a span that
/// names the peer. Returns when nothing is accepted any more; wait for `tracker` to see the connections end.
pub async fn accept<F>(
    listener: TcpListener,
    door: Door,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
    tracker: TaskTracker,
    token: CancellationToken,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut failures, mut refusals) = (Notice::default(), Notice::default());
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (mut stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The peer gave up before its turn: nothing is wrong here, and the next one need not wait.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                door.failed(&error, &mut failures);
                if token.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                    return;
                }
                continue;
            }
        };
        let Some(place) = door.places.take(peer.ip()) else {
            door.refused(peer, &mut refusals);
            if let Some(line) = door.farewell {
                // A fresh socket takes a line without waiting; if not, the peer learns by the close.
                let line = [line, "\r\n"].concat();
                drop(tokio::time::timeout(FAREWELL, stream.write_all(line.as_bytes())).await);
            }
            continue;
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%peer, %error, "gone before it was served");
            continue;
        }
        let (protocol, role) = (door.protocol, door.role);
        let span = tracing::info_span!("connection", protocol, role, %peer, account = tracing::field::Empty);
        let serving = serve(stream, peer);
        let connection = async move {
            serving.await;
            drop(place);
        };
        tracker.spawn(connection.instrument(span));
    }
}

/// An answer leaves at once. A peer that left the network without a word is noticed within some minutes, and its place
/// becomes free.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4).with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(KEEPALIVE * 2))?;
    Ok(())
}

impl Door {
    /// Accepting failed: descriptors are used up, most likely.
    fn failed(&self, error: &std::io::Error, notice: &mut Notice) {
        let (protocol, role) = (self.protocol, self.role);
        metrics::counter!("posthouse_accept_errors_total", "protocol" => protocol, "role" => role).increment(1);
        if let Some(times) = notice.happened(Instant::now()) {
            tracing::warn!(protocol, role, times, %error, "cannot accept connections for the moment");
        }
    }

    /// There was one too many, in all or from this peer.
    fn refused(&self, peer: SocketAddr, notice: &mut Notice) {
        let (protocol, role) = (self.protocol, self.role);
        metrics::counter!("posthouse_connections_refused_total", "protocol" => protocol, "role" => role).increment(1);
        if let Some(times) = notice.happened(Instant::now()) {
            tracing::warn!(protocol, role, times, %peer, "too many connections");
        }
    }
}

/// Something that is said the first time, and then at most once a second with how often it happened.
#[derive(Debug, Default)]
struct Notice {
    unsaid: u64,
    said: Option<Instant>,
}

impl Notice {
    /// It happened again. How often since it was last said, if it is to be said now.
    fn happened(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| now < said + NOTICE_EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests;
