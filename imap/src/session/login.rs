//! STARTTLS, AUTHENTICATE and LOGIN (RFC 3501 §6.2, RFC 4959, RFC 4616): from a stranger to somebody.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use posthouse_storage::directory::AuthError;
use tokio_rustls::TlsAcceptor;

use super::{Flow, LoggedIn, Session, State, Waiting};
use crate::error::{CommandError, Result};
use crate::events;
use crate::wire::command::Secret;
use crate::wire::framer::{Framer, Limits};
use crate::wire::write::{self, Code, Status};

impl Session {
    pub(super) fn may_start_tls(&self) -> Result<()> {
        if self.connection.tls {
            return Err(CommandError::Bad("TLS is active already".to_owned()));
        }
        if !matches!(self.state, State::NotAuthenticated) {
            return Err(CommandError::Bad("STARTTLS comes before login".to_owned()));
        }
        if self.server.tls.is_none() {
            return Err(CommandError::Bad("TLS is not available".to_owned()));
        }
        Ok(())
    }

    pub(super) async fn start_tls(&mut self) -> std::result::Result<(), &'static str> {
        // RFC 3501 §6.2.1: nothing said before TLS counts after it. What came along with STARTTLS was put there by somebody
        // in between (CVE-2011-0411), or by a client that is wrong: neither is to be talked to.
        if self.framer.buffered() > 0 {
            return Err("octets after STARTTLS");
        }
        self.flush().await.map_err(|_| "connection lost")?;
        self.framer = Framer::new(Limits::UNAUTHENTICATED);
        let Some(tls) = self.server.tls.clone() else { return Err("no certificate") };
        let (placeholder, _) = tokio::io::duplex(1);
        let plain = std::mem::replace(&mut self.connection.stream, Box::new(placeholder));
        let limit = Duration::from_secs(self.server.config.handshake_timeout_seconds);
        match tokio::time::timeout(limit, TlsAcceptor::from(tls).accept(plain)).await {
            Ok(Ok(stream)) => {
                self.connection.stream = Box::new(stream);
                self.connection.tls = true;
                Ok(())
            }
            Ok(Err(_)) => Err("TLS handshake failed"),
            Err(_) => Err("TLS handshake timed out"),
        }
    }

    pub(super) async fn authenticate(&mut self, tag: String, mechanism: &str, initial: Option<Secret>) -> Result<Flow> {
        if mechanism != "PLAIN" {
            write::tagged(
                &mut self.out,
                &tag,
                Status::No,
                Some(Code::Word("CANNOT")),
                "No such mechanism; PLAIN is there",
            );
            return Ok(Flow::Continue);
        }
        if let Some(refused) = self.login_refused(&tag) {
            return Ok(refused);
        }
        match initial {
            // RFC 4959 §3: `=` is an empty initial response.
            Some(Secret(octets)) if octets == b"=" => self.sasl(&tag, b"").await,
            Some(Secret(octets)) => self.sasl(&tag, &octets).await,
            None => {
                // An empty challenge is `+` and a blank (RFC 3501 §7.5).
                self.out.extend_from_slice(b"+ \r\n");
                self.framer.expect_sasl();
                self.waiting = Waiting::Sasl { tag };
                Ok(Flow::Continue)
            }
        }
    }

    /// The client's PLAIN response (RFC 4616): `authzid NUL authcid NUL password`.
    pub(super) async fn sasl(&mut self, tag: &str, line: &[u8]) -> Result<Flow> {
        if line == b"*" {
            write::tagged(&mut self.out, tag, Status::Bad, None, "AUTHENTICATE cancelled");
            return Ok(Flow::Continue);
        }
        let decoded = STANDARD.decode(line.trim_ascii()).ok();
        let fields = decoded.as_deref().map(|octets| octets.split(|&octet| octet == 0).collect::<Vec<_>>());
        match fields.as_deref() {
            Some([authzid, user, password]) if authzid.is_empty() || authzid == user => {
                self.login(tag, "PLAIN", user, password).await
            }
            Some([_, _, _]) => {
                write::tagged(
                    &mut self.out,
                    tag,
                    Status::No,
                    Some(Code::Word("AUTHORIZATIONFAILED")),
                    "Only as yourself",
                );
                Ok(Flow::Continue)
            }
            _ => {
                write::tagged(&mut self.out, tag, Status::Bad, None, "Not a PLAIN response");
                Ok(self.mistake())
            }
        }
    }

    /// Answers when a login cannot even be tried.
    pub(super) fn login_refused(&mut self, tag: &str) -> Option<Flow> {
        if !matches!(self.state, State::NotAuthenticated) {
            write::tagged(&mut self.out, tag, Status::Bad, None, "Logged in already");
            return Some(self.mistake());
        }
        if !self.plaintext_allowed() {
            write::tagged(&mut self.out, tag, Status::No, Some(Code::Word("PRIVACYREQUIRED")), "Use TLS to log in");
            return Some(Flow::Continue);
        }
        None
    }

    pub(super) async fn login(
        &mut self,
        tag: &str,
        mechanism: &'static str,
        user: &[u8],
        password: &[u8],
    ) -> Result<Flow> {
        if let Some(refused) = self.login_refused(tag) {
            return Ok(refused);
        }
        let peer = self.connection.peer;
        let storage = Arc::clone(&self.server.storage);
        let answer = match (std::str::from_utf8(user), std::str::from_utf8(password)) {
            (Ok(user), Ok(password)) => storage.directory.authenticate(user, password, peer.ip()).await,
            _ => Err(AuthError::Invalid),
        };
        let (code, text) = match answer {
            Ok(login) => {
                let Some(place) = self.server.session_place(login.account) else {
                    events::login_failed(peer, "sessions");
                    write::tagged(
                        &mut self.out,
                        tag,
                        Status::No,
                        Some(Code::Word("LIMIT")),
                        "Too many sessions of this account",
                    );
                    return Ok(Flow::Continue);
                };
                match storage.accounts.open(login.account).await {
                    Ok(account) => {
                        tracing::Span::current().record("account", login.account.0);
                        events::logged_in(&login.address, mechanism);
                        self.state = State::Authenticated(LoggedIn { account, login, _place: place });
                        let append_bytes_max = self.server.config.message_bytes_max;
                        self.framer.set_limits(Limits { append_bytes_max, ..Limits::AUTHENTICATED });
                        let capabilities = self.capabilities();
                        write::tagged(
                            &mut self.out,
                            tag,
                            Status::Ok,
                            Some(Code::Capability(&capabilities)),
                            "Logged in",
                        );
                        return Ok(Flow::Continue);
                    }
                    Err(error) => {
                        events::store_failed("LOGIN", &error);
                        ("UNAVAILABLE", "The account cannot be opened now; try again later".to_owned())
                    }
                }
            }
            Err(AuthError::Invalid) => {
                events::login_failed(peer, "invalid");
                ("AUTHENTICATIONFAILED", "The name or the password is wrong".to_owned())
            }
            Err(error @ AuthError::Throttled { .. }) => {
                events::login_failed(peer, "throttled");
                ("UNAVAILABLE", error.to_string())
            }
            Err(AuthError::Directory(error)) => {
                tracing::error!(%error, "the directory failed a login");
                events::login_failed(peer, "store");
                ("UNAVAILABLE", "Logins cannot be checked now; try again later".to_owned())
            }
        };
        write::tagged(&mut self.out, tag, Status::No, Some(Code::Word(code)), &text);
        self.login_failures += 1;
        if self.login_failures >= self.server.config.login_failures_max {
            write::untagged(&mut self.out, Status::Bye, None, "Too many failed logins");
            return Ok(Flow::Close("too many failed logins"));
        }
        Ok(Flow::Continue)
    }
}
