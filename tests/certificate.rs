//! The certificate on real listeners: shown over HTTPS, IMAPS and STARTTLS, and changed by SIGHUP while they run.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::{Killed, free_ports, posthouse};

const NAME: &str = "mail.example.org";
/// How long a change may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that has been encrypted.
struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    /// Shakes hands over `stream`; the server must prove itself with one of the certificates trusted.
    fn new(stream: TcpStream, trusted: &Arc<ClientConfig>) -> Self {
        let session = ClientConnection::new(Arc::clone(trusted), ServerName::try_from(NAME).unwrap()).unwrap();
        let mut secure = StreamOwned::new(session, stream);
        while secure.conn.is_handshaking() {
            secure.conn.complete_io(&mut secure.sock).unwrap();
        }
        Self(secure)
    }

    fn certificate(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Sends `text`, and reads until the answer ends with `end`.
    fn ask(&mut self, text: &str, end: &str) -> String {
        self.0.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            let mut piece = [0; 4096];
            let read = self.0.read(&mut piece).unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
        }
        String::from_utf8(answer).unwrap()
    }

    /// One request on a connection that stays open.
    fn healthy(&mut self) {
        let answer = self.ask("GET /healthz HTTP/1.1\r\nHost: mail.example.org\r\n\r\n", "ok\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

fn tcp(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server with every role that encrypts, and its files.
struct Served {
    child: Killed,
    base: u16,
    trusted: Arc<ClientConfig>,
    directory: PathBuf,
}

impl Served {
    fn start(directory: &Path, first: &CertifiedKey<KeyPair>, trusted: &[&CertifiedKey<KeyPair>]) -> Self {
        show(directory, first);
        let base = free_ports();
        let text = format!(
            "[server]\nhostname = \"{NAME}\"\ndata_dir = \"data\"\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n\
             [listen]\nsmtp = [\"127.0.0.1:{base}\"]\nsubmission = []\nsubmissions = [\"127.0.0.1:{}\"]\nimap = []\n\
             imaps = [\"127.0.0.1:{}\"]\nhttp = []\nhttps = [\"127.0.0.1:{}\"]\n",
            base + 2,
            base + 5,
            base + 7
        );
        fs::write(directory.join("posthouse.toml"), text).unwrap();
        let mut command = posthouse();
        command.arg("serve").arg("--config").arg(directory.join("posthouse.toml"));
        let child = command.stderr(fs::File::create(directory.join("log")).unwrap()).spawn().unwrap();
        let mut roots = RootCertStore::empty();
        for made in trusted {
            roots.add(made.cert.der().clone()).unwrap();
        }
        let trusted = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut served =
            Self { child: Killed(child), base, trusted: Arc::new(trusted), directory: directory.to_owned() };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", base + 7)).is_err() {
            assert!(Instant::now() < deadline && served.child.0.try_wait().unwrap().is_none(), "{}", served.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.0.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// SIGHUP, and the log until it tells of this one.
    fn reload(&self) -> String {
        let before = self.log().len();
        self.signal("-HUP");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log();
            if log[before..].contains("SIGHUP") && log.ends_with('\n') {
                return log[before..].to_owned();
            }
            assert!(Instant::now() < deadline, "{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn https(&self) -> Secure {
        Secure::new(tcp(self.base + 7), &self.trusted)
    }

    fn imaps(&self) -> Secure {
        let mut secure = Secure::new(tcp(self.base + 5), &self.trusted);
        assert!(secure.ask("", "\r\n").starts_with("* OK"));
        secure
    }

    fn submissions(&self) -> Secure {
        let mut secure = Secure::new(tcp(self.base + 2), &self.trusted);
        assert!(secure.ask("", "\r\n").starts_with("220 "));
        secure
    }

    fn starttls(&self) -> Secure {
        let mut stream = tcp(self.base);
        for (command, code) in [("", "220 "), ("EHLO client.test\r\n", "250 "), ("STARTTLS\r\n", "220 ")] {
            stream.write_all(command.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let last = |answer: &[u8]| {
                answer.ends_with(b"\r\n")
                    && answer.split_inclusive(|&byte| byte == b'\n').any(|line| line.starts_with(code.as_bytes()))
            };
            while !last(&answer) {
                let mut piece = [0; 1024];
                let read = stream.read(&mut piece).unwrap();
                assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
                answer.extend_from_slice(&piece[..read]);
            }
        }
        let mut secure = Secure::new(stream, &self.trusted);
        assert!(secure.ask("EHLO client.test\r\n", "\r\n").starts_with("250"));
        secure
    }
}

fn made() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec![NAME.to_owned()]).unwrap()
}

fn show(directory: &Path, made: &CertifiedKey<KeyPair>) {
    fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn a_new_certificate_is_shown_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (made(), made());
    let mut server = Served::start(directory.path(), &one, &[&one, &two]);
    let everywhere = |expected: &CertifiedKey<KeyPair>| {
        let mut https = server.https();
        https.healthy();
        let connections = [
            ("https", https),
            ("imaps", server.imaps()),
            ("submissions", server.submissions()),
            ("starttls", server.starttls()),
        ];
        for (role, connection) in &connections {
            assert!(connection.certificate() == expected.cert.der().as_ref(), "{role} shows the other certificate");
        }
        connections.map(|(_, connection)| connection)
    };
    let lives = |[https, imaps, submissions, smtp]: &mut [Secure; 4]| {
        https.healthy();
        assert!(imaps.ask("a NOOP\r\n", "\r\n").starts_with("a OK"));
        for smtp in [submissions, smtp] {
            assert!(smtp.ask("NOOP\r\n", "\r\n").starts_with("250 "));
        }
    };
    let mut old = everywhere(&one);

    show(directory.path(), &two);
    // Files alone change nothing: they may be half written.
    assert!(server.https().certificate() == one.cert.der().as_ref());
    let told = server.reload();
    assert!(told.contains("INFO") && told.contains("the certificate was read again"), "{told}");
    let mut new = everywhere(&two);
    lives(&mut old);
    lives(&mut new);

    // Each of these keeps the certificate in use, and says what to change.
    let pem = (two.cert.pem(), two.signing_key.serialize_pem());
    let cases: [(&str, &str, &[&str]); 4] = [
        ("key.pem", &one.signing_key.serialize_pem(), &["cannot be used together", "name the two"]),
        ("key.pem", "", &["tls.key", "BEGIN PRIVATE KEY"]),
        ("cert.pem", "no certificate", &["tls.certificate", "BEGIN CERTIFICATE"]),
        ("cert.pem", &pem.0[..200], &["tls.certificate", "is damaged"]),
    ];
    for (file, text, parts) in cases {
        show(directory.path(), &two);
        fs::write(directory.path().join(file), text).unwrap();
        let told = server.reload();
        let expected = ["ERROR", "the old one stays", "send SIGHUP again", file];
        for part in expected.iter().chain(parts) {
            assert!(told.contains(part), "{part:?} in {told}");
        }
        assert!(!told.contains(pem.1.lines().nth(1).unwrap()), "a key is never logged");
        drop(everywhere(&two));
    }
    lives(&mut old);

    // Put right, the next signal takes it.
    show(directory.path(), &one);
    assert!(server.reload().contains("the certificate was read again"));
    drop(everywhere(&one));
    lives(&mut new);

    server.signal("-TERM");
    assert_eq!(server.child.0.wait().unwrap().code(), Some(0), "{}", server.log());
}
