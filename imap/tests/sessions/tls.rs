//! STARTTLS: the handshake, and that nothing said before it counts after it.

use std::net::SocketAddr;
use std::sync::Arc;

use posthouse_imap::{ImapConfig, Server};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::rig::{USER, World};

/// A certificate of our own, and a client that trusts it.
fn certificate() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["mail.example.test".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

#[tokio::test]
async fn what_comes_along_with_starttls_ends_the_connection() {
    let world = World::new().await;
    let (server_tls, _) = certificate();
    let server = Server::new(ImapConfig::default(), Arc::clone(&world.storage), Some(server_tls));
    let (near, far) = tokio::io::duplex(1 << 16);
    let peer: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let session = tokio::spawn(async move { server.session(far, peer, false, CancellationToken::new()).await });
    let mut plain = BufReader::new(near);
    let mut line = String::new();
    plain.read_line(&mut line).await.unwrap();
    // A command injected before the handshake (CVE-2011-0411).
    plain.get_mut().write_all(b"a STARTTLS\r\nevil NOOP\r\n").await.unwrap();
    line.clear();
    assert_eq!(plain.read_line(&mut line).await.unwrap(), 0, "{line}");
    session.await.unwrap();
}

#[tokio::test]
async fn starttls_gives_a_session_that_is_private() {
    let world = World::new().await;
    let (server_tls, client_tls) = certificate();
    let server = Server::new(ImapConfig::default(), Arc::clone(&world.storage), Some(server_tls));
    let (near, far) = tokio::io::duplex(1 << 16);
    let peer: SocketAddr = "192.0.2.1:1".parse().unwrap();
    tokio::spawn(async move { server.session(far, peer, false, CancellationToken::new()).await });
    let mut plain = BufReader::new(near);
    let mut line = String::new();
    plain.read_line(&mut line).await.unwrap();
    assert!(line.contains(" STARTTLS LOGINDISABLED]"), "{line}");
    plain.get_mut().write_all(b"a STARTTLS\r\n").await.unwrap();
    line.clear();
    plain.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("a OK "), "{line}");
    assert!(plain.buffer().is_empty());

    let connector = tokio_rustls::TlsConnector::from(client_tls);
    let name = ServerName::try_from("mail.example.test").unwrap();
    let mut tls = BufReader::new(connector.connect(name, plain.into_inner()).await.unwrap());
    let command = format!("b CAPABILITY\r\nc STARTTLS\r\nd LOGIN {USER} secret\r\n");
    tls.get_mut().write_all(command.as_bytes()).await.unwrap();
    for expected in ["* CAPABILITY IMAP4rev1 SASL-IR ID ENABLE LITERAL- AUTH=PLAIN\r\n", "b OK ", "c BAD ", "d OK "] {
        line.clear();
        tls.read_line(&mut line).await.unwrap();
        assert!(line.starts_with(expected), "{line}");
    }
}
