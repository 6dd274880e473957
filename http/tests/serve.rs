//! The HTTP front over real sockets: routes, limits, hostile bytes, TLS, shutdown.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthouse_http::{App, Check, HttpConfig, Listener, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

struct Front {
    address: SocketAddr,
    token: CancellationToken,
    tracker: TaskTracker,
    ready: Arc<AtomicBool>,
}

async fn start(config: HttpConfig) -> Front {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (token, tracker, ready) = (CancellationToken::new(), TaskTracker::new(), Arc::new(AtomicBool::new(true)));
    let flag = Arc::clone(&ready);
    let check = Check::new("store", move || {
        let ready = flag.load(Ordering::Relaxed);
        async move { if ready { Ok(()) } else { Err("secret reason".to_owned()) } }
    });
    let app = Arc::new(App { metrics: Box::new(|| "posthouse_up 1\n".to_owned()), checks: vec![check] });
    let listener = Listener { socket, tls: None };
    tokio::spawn(serve(vec![listener], app, config, tracker.clone(), token.clone()));
    Front { address, token, tracker, ready }
}

/// Sends `bytes`, then reads until the server closes (bounded).
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has already answered and closed is fine.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "still open after 10 s: {:?}", String::from_utf8_lossy(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn routes() {
    let front = start(HttpConfig::default()).await;
    let cases = [
        ("GET /metrics", "200 OK", "posthouse_up 1"),
        ("GET /metrics?x=1", "200 OK", "posthouse_up 1"),
        ("GET /healthz", "200 OK", "ok\n"),
        ("GET /readyz", "200 OK", "store ok\nready\n"),
        ("HEAD /healthz", "200 OK", "\r\n\r\n"),
        ("GET /", "404 Not Found", "\"status\":404"),
        ("GET /metrics/", "404 Not Found", "application/problem+json"),
        ("POST /metrics", "405 Method Not Allowed", "allow: GET, HEAD"),
        ("DELETE /readyz", "405 Method Not Allowed", "\"status\":405"),
    ];
    for (request, status, contains) in cases {
        let answer =
            exchange(front.address, format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
                .await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(answer.contains(contains), "{request}: {answer}");
    }
}

#[tokio::test]
async fn not_ready_is_503_and_keeps_its_reason() {
    let front = start(HttpConfig::default()).await;
    front.ready.store(false, Ordering::Relaxed);
    let answer = exchange(front.address, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("store not ready") && !answer.contains("secret"), "{answer}");
}

#[tokio::test]
async fn a_kept_connection_serves_several_requests() {
    let front = start(HttpConfig::default()).await;
    let twice =
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(front.address, twice).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
}

#[tokio::test]
async fn garbage_and_oversized_headers_are_answered_and_closed() {
    let front = start(HttpConfig::default()).await;
    let long = [b"GET /".as_slice(), &[b'a'; 70_000], b" HTTP/1.1\r\n\r\n"].concat();
    let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(100));
    let cases: [(&str, &[u8], &[&str]); 6] = [
        ("nul bytes", &[0; 100], &["HTTP/1.1 400"]),
        ("tls to plain", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", &["HTTP/1.1 400"]),
        ("smtp", b"EHLO client.test\r\n\r\n", &["HTTP/1.1 400"]),
        ("http2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &["HTTP/1.1 400", "HTTP/1.1 505", ""]),
        ("long line", &long, &["HTTP/1.1 414", "HTTP/1.1 431"]),
        ("many fields", many.as_bytes(), &["HTTP/1.1 431"]),
    ];
    for (name, bytes, starts) in cases {
        let answer = exchange(front.address, bytes).await;
        assert!(starts.iter().any(|start| answer.starts_with(start)), "{name}: {answer}");
    }
    // A deterministic stream of noise on many connections; the server still serves afterwards.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let noise: Vec<u8> = (0..300)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .chain(*b"\r\n\r\n")
            .collect();
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        drop(stream.write_all(&noise).await);
    }
    let answer = exchange(front.address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let front = start(HttpConfig::default()).await;
    let cases = [
        ("GET /healthz HTTP/1.1", "Host: mail.example.org\r\n", 200),
        ("GET /healthz HTTP/1.1", "hOST: mail.example.org:2080\r\n", 200),
        ("GET /healthz HTTP/1.1", "Host: [::1]:2080\r\n", 200),
        ("GET /healthz HTTP/1.1", "Host:\r\n", 200),
        ("GET http://x/healthz HTTP/1.1", "Host: x\r\n", 200),
        ("GET /healthz HTTP/1.0", "", 200),
        ("GET /healthz HTTP/1.1", "", 400),
        ("GET http://x/healthz HTTP/1.1", "", 400),
        ("HEAD /nothing HTTP/1.1", "", 400),
        ("GET /healthz HTTP/1.1", "Host: x\r\nHost: x\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: x\r\nAccept: */*\r\nhost: y\r\n", 400),
        ("GET /healthz HTTP/1.0", "Host: x\r\nHost: y\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: x y\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: x, y\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: someone@x\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: x/healthz\r\n", 400),
        ("GET /healthz HTTP/1.1", "Host: \u{fc}\r\n", 400),
    ];
    for (line, fields, status) in cases {
        let close = if status == 200 { "Connection: close\r\n" } else { "" };
        // A refused request is the connection's last, whatever follows it.
        let behind = if status == 200 { "" } else { "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" };
        let answer = exchange(front.address, format!("{line}\r\n{fields}{close}\r\n{behind}").as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{line} {fields:?}: {answer}");
        assert_eq!(&answer[9..12], status.to_string(), "{line} {fields:?}: {answer}");
    }
}

#[tokio::test]
async fn the_size_of_a_header_is_limited() {
    let front = start(HttpConfig { header_bytes_max: 8192, headers_max: 10, ..HttpConfig::default() }).await;
    let with = |fields: &str| format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
    let cases = [
        ("as large as may be", with(&format!("X: {}\r\n", "a".repeat(7_900))), "200"),
        ("as many as may be", with(&"X: a\r\n".repeat(8)), "200"),
        ("one field too large", with(&format!("X: {}\r\n", "a".repeat(9_000))), "431"),
        ("too large together", with(&format!("X: {}\r\n", "a".repeat(2_000)).repeat(6)), "431"),
        ("too many", with(&"X: a\r\n".repeat(9)), "431"),
        ("no end", with(&"X: a\r\n".repeat(20_000)), "431"),
    ];
    for (name, request, status) in cases {
        let answer = exchange(front.address, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
    }
}

/// Octets that come one by one do not move the limit on: it is for the header as a whole, on the first request as on
/// a later one of a connection that is kept open.
#[tokio::test]
async fn a_header_that_trickles_in_is_cut() {
    let front = start(HttpConfig { header_timeout_seconds: 1, ..HttpConfig::default() }).await;
    let trickle = async |before: &'static [u8]| {
        let started = Instant::now();
        let stream = TcpStream::connect(front.address).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        writer.write_all(before).await.unwrap();
        writer.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ").await.unwrap();
        let writing = async {
            while writer.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let mut answer = Vec::new();
        let reading = async { drop(reader.read_to_end(&mut answer).await) };
        tokio::time::timeout(Duration::from_secs(10), async {
            tokio::select! { () = writing => {}, () = reading => {} }
        })
        .await
        .expect("it is cut");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "cut after {took:?}");
    };
    tokio::join!(trickle(b""), trickle(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    let close = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(exchange(front.address, close).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_request_body_is_not_read() {
    let front = start(HttpConfig::default()).await;
    let answer =
        exchange(front.address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nxxxx").await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test]
async fn slow_and_idle_clients_are_closed() {
    let front = start(HttpConfig { header_timeout_seconds: 1, ..HttpConfig::default() }).await;
    for opening in [b"".as_slice(), b"GET /healthz HTTP/1.1\r\nHost:", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let started = Instant::now();
        exchange(front.address, opening).await;
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "{opening:?}: {took:?}");
    }
}

#[tokio::test]
async fn connections_are_capped() {
    let front = start(HttpConfig { connections_max: 2, ..HttpConfig::default() }).await;
    let ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        stream.write_all(ask).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        kept.push(stream);
    }
    assert_eq!(exchange(front.address, ask).await, "", "the third is closed unserved");
    drop(kept);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let close = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        if exchange(front.address, close).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < deadline, "places are given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn shutdown_closes_idle_connections() {
    let front = start(HttpConfig::default()).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    front.token.cancel();
    front.tracker.close();
    let ended = tokio::time::timeout(Duration::from_secs(5), front.tracker.wait()).await;
    assert!(ended.is_ok(), "connections end when told to");
    assert!(TcpStream::connect(front.address).await.is_err(), "nothing listens any more");
}
