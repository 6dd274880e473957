//! The driver over in-memory streams and real sockets, on the memory store.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use posthouse_smtp_in::serve::connection;
use posthouse_smtp_in::{Role, Server, SmtpConfig, farewell, serve};
use posthouse_storage::account::AccountId;
use posthouse_storage::directory::DirectoryConfig;
use posthouse_storage::wide::memory::{Fault, Memory, Operation};
use posthouse_storage::{Storage, StorageConfig};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

struct World {
    storage: Arc<Storage>,
    store: Memory,
    server: Arc<Server>,
    tls: tokio_rustls::TlsConnector,
    token: CancellationToken,
    tracker: TaskTracker,
    alice: AccountId,
    bob: AccountId,
    _spool: tempfile::TempDir,
}

impl World {
    async fn new(config: SmtpConfig) -> Self {
        let spool = tempfile::tempdir().unwrap();
        std::fs::create_dir(spool.path().join("spool")).unwrap();
        let store = Memory::new();
        let settings = StorageConfig {
            data_dir: spool.path().to_owned(),
            directory: DirectoryConfig::cheap(),
            ..StorageConfig::default()
        };
        let storage = Storage::with_store(Arc::new(store.clone()), settings);
        storage.directory.domain_add("example.test").await.unwrap();
        let alice = storage.directory.account_add("alice@example.test", Some("secret"), 0).await.unwrap();
        let bob = storage.directory.account_add("bob@example.test", Some("secret"), 0).await.unwrap();
        storage.directory.alias_add("team@example.test", &["alice@example.test", "bob@example.test"]).await.unwrap();
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["mx.test".into()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let builder =
            rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let tls = builder.unwrap().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        let server = Server::new(config, "mx.example.test", storage.clone(), Some(Arc::new(tls)), false);
        Self {
            storage,
            store,
            server: Arc::new(server),
            tls: Arc::new(client).into(),
            token: CancellationToken::new(),
            tracker: TaskTracker::new(),
            alice,
            bob,
            _spool: spool,
        }
    }

    /// A connection through memory.
    fn connect(&self, role: Role) -> Client<DuplexStream> {
        let (near, far) = duplex(4_096);
        let (server, token) = (self.server.clone(), self.token.clone());
        self.tracker.spawn(async move { drop(connection(far, PEER, role, &server, &token).await) });
        Client { stream: near, seen: Vec::new() }
    }

    async fn hello(&self) -> Client<DuplexStream> {
        let mut client = self.connect(Role::Mx);
        client.expect("220 ").await;
        client.say("EHLO client.test\r\n", "250 ").await;
        client
    }

    /// The messages in an inbox, oldest first.
    async fn inbox(&self, account: AccountId) -> Vec<String> {
        let account = self.storage.accounts.open(account).await.unwrap();
        let state = account.refresh().await.unwrap();
        let mut messages = Vec::new();
        for slot in state.by_name("INBOX").unwrap().slots.iter() {
            for entry in &account.chunk(slot).await.unwrap().entries {
                let row = account.row(entry.email).await.unwrap();
                let mut octets = Vec::new();
                while (octets.len() as u64) < row.size {
                    let from = octets.len() as u64;
                    octets.extend(account.octets(entry.email, &row, from..row.size).await.unwrap());
                }
                messages.push(String::from_utf8_lossy(&octets).into_owned());
            }
        }
        messages
    }
}

struct Client<S> {
    stream: S,
    seen: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// One reply, all its lines.
    async fn reply(&mut self) -> String {
        let mut reply = String::new();
        loop {
            if let Some(end) = self.seen.windows(2).position(|octets| octets == b"\r\n") {
                let line = String::from_utf8_lossy(&self.seen[..end]).into_owned();
                self.seen.drain(..end + 2);
                reply.push_str(&line);
                if line.as_bytes().get(3) != Some(&b'-') {
                    return reply;
                }
                reply.push('\n');
                continue;
            }
            let read = tokio::time::timeout(Duration::from_secs(1_000_000), self.stream.read_buf(&mut self.seen)).await;
            match read.expect("an answer in time") {
                Ok(0) | Err(_) => return format!("{reply}<closed>"),
                Ok(_) => {}
            }
        }
    }

    async fn expect(&mut self, start: &str) -> String {
        let reply = self.reply().await;
        let last = reply.rsplit('\n').next().unwrap_or_default();
        assert!(last.starts_with(start), "wanted {start:?}, got {reply:?}");
        reply
    }

    async fn say(&mut self, text: &str, start: &str) -> String {
        self.send(text).await;
        self.expect(start).await
    }

    /// MAIL to DATA.
    async fn begin(&mut self, to: &[&str]) {
        self.say("MAIL FROM:<a@sender.test>\r\n", "250 ").await;
        for to in to {
            self.say(&format!("RCPT TO:<{to}>\r\n"), "250 ").await;
        }
        self.say("DATA\r\n", "354 ").await;
    }
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.hello().await;
    client.begin(&["alice@example.test"]).await;
    client.say("Return-Path: <old@x>\r\nSubject: one\r\n\r\n..dot\r\nno dot\r\n.\r\n", "250 2.0.0 Stored as ").await;
    let inbox = world.inbox(world.alice).await;
    let [message] = inbox.as_slice() else { panic!("{inbox:?}") };
    let (trace, rest) = message.split_once("Subject: ").unwrap();
    assert_eq!(rest, "one\r\n\r\n.dot\r\nno dot\r\n");
    assert!(
        trace.starts_with(
            "Return-Path: <a@sender.test>\r\nReceived: from client.test ([192.0.2.7])\r\n\tby mx.example.test with ESMTP id "
        ) && trace.contains("\r\n\tfor <alice@example.test>;\r\n\t")
            && trace.ends_with(" +0000\r\n"),
        "{trace}"
    );
    // Two recipients and an alias of both: each gets it once; the trace tells nobody about the other.
    client.begin(&["bob@example.test", "team@example.test"]).await;
    client.say("Subject: two\r\n\r\n.\r\n", "250 2.0.0").await;
    client.say("QUIT\r\n", "221 ").await;
    client.expect("<closed>").await;
    assert_eq!((world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len()), (2, 1));
    assert!(!world.inbox(world.bob).await[0].contains("for <"));
}

#[tokio::test]
async fn a_large_message_and_many_small_writes() {
    let world = World::new(SmtpConfig { message_bytes_max: 1_000_000, ..SmtpConfig::default() }).await;
    let mut client = world.hello().await;
    client.begin(&["alice@example.test"]).await;
    let body = "0123456789abcdef\r\n.x\r\n".repeat(20_000).replace("\r\n.", "\r\n..");
    client.send("Subject: x\r\n\r\n").await;
    for piece in body.as_bytes().chunks(777) {
        client.send(piece).await;
    }
    client.say(".\r\n", "250 2.0.0").await;
    let inbox = world.inbox(world.alice).await;
    assert!(inbox[0].ends_with(&body.replace("\r\n..", "\r\n.")), "{} octets", inbox[0].len());
    // Too large, whether it says so or not.
    client.say("MAIL FROM:<a@b.c> SIZE=1000001\r\n", "552 5.3.4").await;
    client.begin(&["alice@example.test"]).await;
    for _ in 0..3 {
        client.send(&body).await;
    }
    client.say(".\r\n", "552 5.3.4").await;
    assert_eq!(world.inbox(world.alice).await.len(), 1);
    client.say("NOOP\r\n", "250 ").await;
}

#[tokio::test]
async fn refusals_after_the_text() {
    let world = World::new(SmtpConfig { received_max: 100, ..SmtpConfig::default() }).await;
    let mut client = world.hello().await;
    client.begin(&["alice@example.test"]).await;
    client.say(&format!("{}\r\n.\r\n", "Received: x\r\n".repeat(101)), "554 5.4.6").await;
    client.begin(&["alice@example.test"]).await;
    client.say(&format!("{}\r\n.\r\n", "Received: x\r\n".repeat(100)), "250 2.0.0").await;
    // The store is away: nothing is acknowledged, and the session goes on.
    client.begin(&["alice@example.test"]).await;
    for _ in 0..50 {
        world.store.inject(Operation::Commit, Fault::Unavailable);
        world.store.inject(Operation::Put, Fault::Unavailable);
    }
    client.say("Subject: x\r\n\r\n.\r\n", "451 4.3.0").await;
    client.say("DATA\r\n", "503 5.5.1").await;
    assert_eq!(world.inbox(world.alice).await.len(), 1);
    // A bare LF: refused at the true end, and no more is heard.
    client.begin(&["alice@example.test"]).await;
    client.say("a\n.\nMAIL FROM:<x@y.z>\r\n.\r\nNOOP\r\n", "550 5.6.0").await;
    client.expect("<closed>").await;
    assert_eq!(world.inbox(world.alice).await.len(), 1);
}

#[tokio::test]
async fn headers_beyond_measure_are_refused_after_the_dot_and_the_connection_goes_on() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.hello().await;
    let fields = |count: usize| "X:\r\n".repeat(count);
    // `X:` and CR LF around the filling: 4 octets.
    let octets = |count: usize| format!("X:{}\r\n", "x".repeat(count - 4));
    let cases = [
        (fields(1_000), "250 2.0.0"),
        (fields(1_001), "554 5.6.0"),
        (octets(1 << 20), "250 2.0.0"),
        (octets((1 << 20) + 1), "552 5.3.4 The header"),
        // Also where the fields would not be kept.
        ("Return-Path: x\r\n".repeat(1_001), "554 5.6.0"),
        ("From: a\r\n".repeat(2), "550 5.7.1"),
        // The first reason is told, and what follows is read to its end.
        (fields(3_000) + &octets(20 << 20) + &octets(20 << 20), "554 5.6.0"),
    ];
    for (header, reply) in cases {
        client.begin(&["alice@example.test"]).await;
        client.say(&format!("{header}\r\nFrom: body\r\nFrom: body\r\n.\r\n"), reply).await;
    }
    client.say("NOOP\r\n", "250 ").await;
    assert_eq!(world.inbox(world.alice).await.len(), 2);
    // RFC 2033 §4.2: an answer for each recipient.
    let mut client = world.connect(Role::Lmtp);
    client.expect("220 ").await;
    client.say("LHLO x\r\n", "250 ").await;
    client.begin(&["bob@example.test", "alice@example.test"]).await;
    client.say(&format!("{}\r\n.\r\n", fields(1_001)), "554 5.6.0").await;
    client.expect("554 5.6.0").await;
    client.begin(&["bob@example.test"]).await;
    client.say("\r\n.\r\n", "250 2.0.0").await;
}

#[tokio::test]
async fn quota() {
    let world = World::new(SmtpConfig::default()).await;
    let bob = world.storage.accounts.open(world.bob).await.unwrap();
    bob.set_quota(1_000).await.unwrap();
    let mut client = world.hello().await;
    client.say("MAIL FROM:<a@b.c> SIZE=2000\r\n", "250 ").await;
    client.say("RCPT TO:<bob@example.test>\r\n", "452 4.2.2").await;
    client.say("RCPT TO:<alice@example.test>\r\n", "250 ").await;
    client.say("RSET\r\n", "250 ").await;
    let text = "x".repeat(900);
    for (to, reply) in
        [("bob@example.test", "452 4.2.2"), ("team@example.test", "452 4.2.2"), ("alice@example.test", "250 ")]
    {
        client.begin(&[to]).await;
        client.say(&format!("\r\n{text}\r\n.\r\n"), reply).await;
    }
    assert_eq!((world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len()), (1, 0));
    // LMTP tells them apart.
    let mut client = world.connect(Role::Lmtp);
    client.expect("220 ").await;
    client.say("LHLO x\r\n", "250 ").await;
    client.begin(&["bob@example.test", "alice@example.test"]).await;
    client.say(&format!("\r\n{text}\r\n.\r\n"), "452 4.2.2").await;
    client.expect("250 2.0.0").await;
    assert_eq!((world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len()), (2, 0));
    // One recipient that leads to both: who has it must not get it again with each new try.
    client.begin(&["team@example.test"]).await;
    client.say(&format!("\r\n{text}\r\n.\r\n"), "552 5.2.2").await;
    assert_eq!((world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len()), (3, 0));
}

#[tokio::test]
async fn submission_over_starttls_and_implicit_tls() {
    let world = World::new(SmtpConfig::default()).await;
    let name = ServerName::try_from("mx.test").unwrap();
    for role in [Role::Submission, Role::Submissions] {
        let mut client = world.connect(role);
        if role == Role::Submission {
            client.expect("220 ").await;
            let offer = client.say("EHLO x\r\n", "250 ").await;
            assert!(offer.contains("STARTTLS") && !offer.contains("AUTH"), "{offer}");
            client.say("AUTH PLAIN AGEAYg==\r\n", "538 5.7.11").await;
            client.say("STARTTLS\r\n", "220 ").await;
        }
        let stream = world.tls.connect(name.clone(), client.stream).await.unwrap();
        let mut client = Client { stream, seen: Vec::new() };
        if role == Role::Submissions {
            client.expect("220 ").await;
        }
        let offer = client.say("EHLO x\r\n", "250 ").await;
        assert!(!offer.contains("STARTTLS") && offer.contains("AUTH PLAIN LOGIN"), "{offer}");
        client.say("MAIL FROM:<alice@example.test>\r\n", "530 5.7.0").await;
        client.say("AUTH PLAIN AGFsaWNlQGV4YW1wbGUudGVzdAB3cm9uZw==\r\n", "535 5.7.8").await;
        client.say("AUTH PLAIN AGFsaWNlQGV4YW1wbGUudGVzdABzZWNyZXQ=\r\n", "235 2.7.0").await;
        client.say("MAIL FROM:<bob@example.test>\r\n", "553 5.7.1").await;
        client.say("MAIL FROM:<alice+x@example.test>\r\n", "250 ").await;
        client.say("RCPT TO:<u@other.test>\r\n", "451 4.4.4").await;
        client.say("RCPT TO:<bob@example.test>\r\n", "250 ").await;
        client.say("DATA\r\n", "354 ").await;
        client.say("Subject: x\r\n\r\n.\r\n", "250 2.0.0").await;
        client.say("QUIT\r\n", "221 ").await;
        client.expect("<closed>").await;
    }
    let inbox = world.inbox(world.bob).await;
    assert!(inbox.len() == 2 && inbox.iter().all(|message| message.contains("with ESMTPSA id")), "{inbox:?}");
}

#[tokio::test]
async fn plaintext_behind_starttls_is_never_heard() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.connect(Role::Submission);
    client.expect("220 ").await;
    client.say("EHLO x\r\n", "250 ").await;
    client.say("STARTTLS\r\nNOOP\r\n", "<closed>").await;
    // Not TLS at all after it.
    let mut client = world.connect(Role::Submission);
    client.expect("220 ").await;
    client.say("STARTTLS\r\n", "220 ").await;
    client.send("EHLO x\r\nNOOP\r\n").await;
    let said = client.reply().await;
    assert!(said.ends_with("<closed>") && !said.contains("250"), "{said}");
}

#[tokio::test]
async fn passwords_in_the_clear_only_from_this_machine() {
    let world = World::new(SmtpConfig::default()).await;
    let server = Arc::new(Server::new(SmtpConfig::default(), "mx.example.test", world.storage.clone(), None, true));
    for (peer, reply) in [(PEER, "538 5.7.11"), ("::ffff:127.0.0.1".parse().unwrap(), "235 2.7.0")] {
        let (near, far) = duplex(4_096);
        let (server, token) = (server.clone(), world.token.clone());
        tokio::spawn(async move { drop(connection(far, peer, Role::Submission, &server, &token).await) });
        let mut client = Client { stream: near, seen: Vec::new() };
        client.expect("220 ").await;
        client.say("EHLO x\r\n", "250 ").await;
        client.say("AUTH PLAIN AGFsaWNlQGV4YW1wbGUudGVzdABzZWNyZXQ=\r\n", reply).await;
    }
}

#[tokio::test]
async fn postmaster_needs_no_domain() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.hello().await;
    client.begin(&["postmaster", "Postmaster@example.test"]).await;
    client.say("Subject: x\r\n\r\n.\r\n", "250 ").await;
    assert_eq!(world.inbox(world.alice).await.len(), 1, "the first account is the contact");
}

#[tokio::test(start_paused = true)]
async fn slow_peers_are_sent_away() {
    let config = SmtpConfig { message_seconds_max: 600, ..SmtpConfig::default() };
    let world = World::new(config).await;
    let start = tokio::time::Instant::now();
    let mut silent = world.connect(Role::Mx);
    silent.expect("220 ").await;
    silent.expect("421 4.4.2").await;
    silent.expect("<closed>").await;
    assert!((300..310).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());

    // An octet each 20 seconds: not for more than one command's time, nor one message's.
    for text in [false, true] {
        let mut client = world.hello().await;
        if text {
            client.begin(&["alice@example.test"]).await;
        }
        let start = tokio::time::Instant::now();
        let mut closed = false;
        for _ in 0..200 {
            closed |= client.stream.write_all(b"x").await.is_err();
            if closed {
                break;
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        let limit = if text { 600..660 } else { 300..360 };
        assert!(closed && limit.contains(&start.elapsed().as_secs()), "{text}: {:?}", start.elapsed());
        client.expect("421 4.4.2").await;
    }
    // Silence within a text.
    let mut client = world.hello().await;
    client.begin(&["alice@example.test"]).await;
    let start = tokio::time::Instant::now();
    client.say("Subject: x\r\n", "421 4.4.2").await;
    assert!((180..190).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(world.inbox(world.alice).await.len(), 0);
}

#[tokio::test]
async fn shutdown_answers_what_is_whole_and_says_goodbye() {
    let world = World::new(SmtpConfig::default()).await;
    let mut idle = world.hello().await;
    let mut half = world.hello().await;
    half.begin(&["alice@example.test"]).await;
    half.send("Subject: half\r\n\r\n").await;
    let mut whole = world.hello().await;
    whole.begin(&["alice@example.test"]).await;
    world.store.inject(Operation::Commit, Fault::Delay(50));
    whole.send("Subject: whole\r\n\r\n.\r\n").await;
    // Give the server the octets, but not the time to be done with them.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    world.token.cancel();
    idle.expect("421 4.3.2").await;
    half.expect("421 4.3.2").await;
    whole.expect("250 2.0.0").await;
    whole.expect("421 4.3.2").await;
    for client in [&mut idle, &mut half, &mut whole] {
        client.expect("<closed>").await;
    }
    drop((idle, half, whole));
    world.tracker.close();
    tokio::time::timeout(Duration::from_secs(10), world.tracker.wait()).await.unwrap();
    assert_eq!(world.inbox(world.alice).await.len(), 1);
}

#[tokio::test]
async fn over_sockets() {
    let world = World::new(SmtpConfig::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, peer) = listener.accept().await.unwrap();
    let serving = tokio::spawn(serve(accepted, peer, Role::Mx, world.server.clone(), world.token.clone()));
    let mut client = Client { stream, seen: Vec::new() };
    client.expect("220 ").await;
    client.say("EHLO x\r\n", "250 ").await;
    client.begin(&["alice@example.test"]).await;
    client.say("Subject: x\r\n\r\n.\r\n", "250 2.0.0").await;
    world.token.cancel();
    client.expect("421 4.3.2").await;
    client.expect("<closed>").await;
    drop(client);
    serving.await.unwrap();
    assert!(farewell(Role::Mx).unwrap().starts_with("421 4.7.0") && farewell(Role::Submissions).is_none());
}

/// Random streams, many at once, some closed early: nothing panics, and mail still arrives.
#[tokio::test]
async fn hostile_octets() {
    let world = World::new(SmtpConfig::default()).await;
    let fragments: &[&[u8]] = &[
        b"EHLO x\r\n",
        b"LHLO x\r\n",
        b"MAIL FROM:<a@b.c>\r\n",
        b"RCPT TO:<bob@example.test>\r\n",
        b"DATA\r\n",
        b"Subject: x\r\n\r\n",
        b"\r\n.\r\n",
        b"\n.\n",
        b"STARTTLS\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"AUTH PLAIN ",
        b"QUIT\r\n",
        b"\0\xff\r",
        &[b'A'; 5_000],
    ];
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    for _ in 0..40 {
        let mut tasks = Vec::new();
        for n in 0..50 {
            let octets: Vec<u8> = (0..roll(14)).flat_map(|_| fragments[roll(fragments.len())].to_vec()).collect();
            let mut client = world.connect([Role::Mx, Role::Submission, Role::Submissions, Role::Lmtp][n % 4]);
            tasks.push(tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(&mut client.stream);
                let sink = async {
                    let mut sink = Vec::new();
                    drop(read.read_to_end(&mut sink).await);
                };
                let send = async {
                    drop(write.write_all(&octets).await);
                    drop(write.shutdown().await);
                };
                tokio::join!(sink, send);
            }));
        }
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(30), task).await.expect("the server lets go").unwrap();
        }
    }
    world.tracker.close();
    tokio::time::timeout(Duration::from_secs(30), world.tracker.wait()).await.unwrap();
    let mut client = world.hello().await;
    client.begin(&["alice@example.test"]).await;
    client.say("Subject: honest\r\n\r\n.\r\n", "250 2.0.0").await;
    assert_eq!(world.inbox(world.alice).await.len(), 1);
}

#[tokio::test]
async fn who_went_between_rcpt_and_the_dot_gets_nothing() {
    let world = World::new(SmtpConfig::default()).await;
    let directory = &world.storage.directory;
    let mut client = world.hello().await;
    client.begin(&["bob@example.test"]).await;
    let mut both = world.hello().await;
    both.begin(&["alice@example.test", "bob@example.test"]).await;
    let mut team = world.hello().await;
    team.begin(&["team@example.test"]).await;
    let mut lmtp = world.connect(Role::Lmtp);
    lmtp.expect("220 ").await;
    lmtp.say("LHLO x\r\n", "250 ").await;
    lmtp.begin(&["bob@example.test", "alice@example.test"]).await;
    directory.account_remove("bob@example.test").await.unwrap();
    client.say("\r\n.\r\n", "550 5.1.1").await;
    // One answer for two: to nobody, and the next time RCPT tells them apart.
    both.say("\r\n.\r\n", "451 4.2.0").await;
    both.say("MAIL FROM:<a@sender.test>\r\n", "250 ").await;
    both.say("RCPT TO:<alice@example.test>\r\n", "250 ").await;
    both.say("RCPT TO:<bob@example.test>\r\n", "550 5.1.1").await;
    both.say("DATA\r\n", "354 ").await;
    both.say("\r\n.\r\n", "250 ").await;
    team.say("\r\n.\r\n", "250 ").await;
    lmtp.say("\r\n.\r\n", "550 5.1.1").await;
    lmtp.expect("250 ").await;
    assert_eq!((world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len()), (3, 0));
    client.begin(&["alice@example.test"]).await;
    directory.account_set_enabled("alice@example.test", false).await.unwrap();
    client.say("\r\n.\r\n", "550 5.1.1").await;
    assert_eq!(world.inbox(world.alice).await.len(), 3);
}

/// Removal takes the name away and keeps the account: a delivery that asked before it and commits after it counts as
/// one before it, and what was acknowledged is there.
#[tokio::test]
async fn who_is_removed_between_the_last_question_and_the_commit_has_the_message() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.hello().await;
    client.begin(&["bob@example.test"]).await;
    world.store.inject(Operation::Commit, Fault::Delay(255));
    client.send("Subject: x\r\n\r\n.\r\n").await;
    // The directory is asked, the commit begins and waits.
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    world.storage.directory.account_remove("bob@example.test").await.unwrap();
    assert_eq!(world.inbox(world.bob).await.len(), 0, "removed before the commit");
    client.expect("250 2.0.0").await;
    assert_eq!(world.inbox(world.bob).await.len(), 1);
    // Whoever gets the name gets nothing of it.
    let next = world.storage.directory.account_add("bob@example.test", Some("secret"), 0).await.unwrap();
    assert_eq!((next == world.bob, world.inbox(next).await.len()), (false, 0));
    client.begin(&["bob@example.test"]).await;
    client.say("\r\n.\r\n", "250 2.0.0").await;
    assert_eq!((world.inbox(next).await.len(), world.inbox(world.bob).await.len()), (1, 1));
}

#[tokio::test]
async fn who_fills_up_between_rcpt_and_the_dot_costs_nobody_the_message() {
    let world = World::new(SmtpConfig::default()).await;
    let bob = world.storage.accounts.open(world.bob).await.unwrap();
    let text = format!("\r\n{}\r\n.\r\n", "x".repeat(900));
    let count = async || (world.inbox(world.alice).await.len(), world.inbox(world.bob).await.len());
    let mut client = world.hello().await;
    client.say("MAIL FROM:<a@b.c> SIZE=900\r\n", "250 ").await;
    for to in ["bob", "alice"] {
        client.say(&format!("RCPT TO:<{to}@example.test>\r\n"), "250 ").await;
    }
    client.say("DATA\r\n", "354 ").await;
    bob.set_quota(100).await.unwrap();
    client.say(&text, "451 4.2.0").await;
    assert_eq!(count().await, (0, 0));
    client.say("MAIL FROM:<a@b.c> SIZE=900\r\n", "250 ").await;
    client.say("RCPT TO:<bob@example.test>\r\n", "452 4.2.2").await;
    client.say("RCPT TO:<alice@example.test>\r\n", "250 ").await;
    client.say("DATA\r\n", "354 ").await;
    client.say(&text, "250 2.0.0").await;
    assert_eq!(count().await, (1, 0));
    // Where RCPT would take him again, asking again would never end.
    client.begin(&["bob@example.test", "alice@example.test"]).await;
    client.say(&text, "552 5.2.2").await;
    assert_eq!(count().await, (2, 0));
}

#[tokio::test]
async fn an_account_that_cannot_be_opened_is_told_at_rcpt() {
    let world = World::new(SmtpConfig::default()).await;
    let mut client = world.hello().await;
    client.say("MAIL FROM:<a@b.c>\r\n", "250 ").await;
    client.say("RCPT TO:<alice@example.test>\r\n", "250 ").await;
    for _ in 0..50 {
        world.store.inject(Operation::Commit, Fault::Unavailable);
    }
    client.say("RCPT TO:<bob@example.test>\r\n", "451 4.3.0").await;
}

#[tokio::test]
async fn a_login_ends_with_what_it_stood_on() {
    let world = World::new(SmtpConfig::default()).await;
    let server = Server::new(SmtpConfig::default(), "mx.example.test", world.storage.clone(), None, true);
    let world = World { server: Arc::new(server), ..world };
    let log_in = async || {
        let (near, far) = duplex(4_096);
        let (server, token) = (world.server.clone(), world.token.clone());
        let peer = "127.0.0.1".parse().unwrap();
        world.tracker.spawn(async move { drop(connection(far, peer, Role::Submission, &server, &token).await) });
        let mut client = Client { stream: near, seen: Vec::new() };
        client.expect("220 ").await;
        client.say("EHLO client.test\r\n", "250 ").await;
        client.say("AUTH PLAIN AGFsaWNlQGV4YW1wbGUudGVzdABzZWNyZXQ=\r\n", "235 ").await;
        client
    };
    let (mut own, mut null, mut text) = (log_in().await, log_in().await, log_in().await);
    for client in [&mut own, &mut text] {
        client.say("MAIL FROM:<alice@example.test>\r\n", "250 ").await;
        client.say("RCPT TO:<bob@example.test>\r\n", "250 ").await;
        client.say("DATA\r\n", "354 ").await;
    }
    own.say("\r\n.\r\n", "250 ").await;
    world.storage.directory.account_set_password("alice@example.test", Some("other")).await.unwrap();
    own.say("MAIL FROM:<alice@example.test>\r\n", "421 4.7.0").await;
    null.say("MAIL FROM:<>\r\n", "421 4.7.0").await;
    text.say("\r\n.\r\n", "421 4.7.0").await;
    for client in [&mut own, &mut null, &mut text] {
        client.expect("<closed>").await;
    }
    assert_eq!(world.inbox(world.bob).await.len(), 1);
}
