//! One connection: reads, writes and waits for its session.

use std::net::IpAddr;
use std::time::Duration;

use posthouse_storage::account::AccountId;
use posthouse_storage::directory::{AuthError, DirectoryError, Login, Resolved};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Server;
use super::input::Input;
use crate::error::{ConnectionError, auth_reply, delivery_reply, lookup_reply};
use crate::events;
use crate::reply::Reply;
use crate::session::{Action, Address, Credentials, Role, Session};

/// After this long without input a connection gives its buffers back.
const RESTS_AFTER: Duration = Duration::from_secs(2);
/// How long, and for how many octets, a peer that is sent away may go on talking: closed earlier, the last reply would
/// be lost with the octets nobody read.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;
/// Output kept allocated between replies.
const OUTPUT_KEPT: usize = 1_024;

/// How a dialogue ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection is closed.
    Closed,
    /// A handshake comes next.
    StartTls,
}

/// What waiting for input came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Octets,
    Eof,
}

pub(super) struct Connection<'a, S> {
    stream: S,
    pub(super) session: Session,
    pub(super) input: Input,
    pub(super) peer: IpAddr,
    pub(super) role: Role,
    pub(super) server: &'a Server,
    token: &'a CancellationToken,
}

impl<'a, S> Connection<'a, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    pub(super) fn new(
        stream: S,
        session: Session,
        peer: IpAddr,
        role: Role,
        server: &'a Server,
        token: &'a CancellationToken,
    ) -> Self {
        Self { stream, session, input: Input::default(), peer, role, server, token }
    }

    pub(super) fn into_parts(self) -> (S, Session) {
        (self.stream, self.session)
    }

    /// Serves until the session ends it or asks for a handshake.
    pub(super) async fn dialogue(&mut self) -> Result<End, ConnectionError> {
        let ended = self.talk().await;
        match &ended {
            Ok(End::StartTls) | Err(ConnectionError::Lost(_) | ConnectionError::Tls(_)) => {}
            Ok(End::Closed) => self.hang_up().await,
            Err(ConnectionError::Timeout) => {
                self.session.close(Reply::Timeout);
                self.hang_up().await;
            }
            Err(ConnectionError::Stopping) => {
                self.session.close(Reply::ShuttingDown);
                self.hang_up().await;
            }
        }
        ended
    }

    async fn talk(&mut self) -> Result<End, ConnectionError> {
        // RFC 5321 §4.5.3.2.7: for the whole of each command; octets that drip in do not move it.
        let mut deadline = Instant::now() + self.server.config.command_timeout();
        loop {
            let (used, action) = self.session.advance(self.input.octets());
            self.input.consume(used);
            match action {
                Action::Read => {
                    if self.flush().await? {
                        deadline = Instant::now() + self.server.config.command_timeout();
                    }
                    if self.more(deadline).await? == Got::Eof {
                        return Ok(End::Closed);
                    }
                }
                Action::Resolve => {
                    let found = self.resolve().await;
                    self.session.resolved(found);
                }
                Action::Authenticate(credentials) => {
                    let outcome = self.authenticate(&credentials).await;
                    self.session.authenticated(outcome);
                }
                Action::Receive => self.receive().await?,
                Action::StartTls => {
                    self.flush().await?;
                    self.input.clear();
                    return Ok(End::StartTls);
                }
                Action::Close => return Ok(End::Closed),
            }
        }
    }

    /// Writes the output; true if there was any.
    ///
    /// # Cancel safety
    ///
    /// None: it is never raced against anything but time.
    pub(super) async fn flush(&mut self) -> Result<bool, ConnectionError> {
        let output = self.session.output();
        if output.is_empty() {
            return Ok(false);
        }
        let written = timeout(self.server.config.command_timeout(), async {
            self.stream.write_all(output).await?;
            self.stream.flush().await
        });
        written.await.map_err(|_| ConnectionError::Timeout)?.map_err(ConnectionError::Lost)?;
        output.clear();
        output.shrink_to(OUTPUT_KEPT);
        Ok(true)
    }

    /// Waits for input until `deadline`.
    pub(super) async fn more(&mut self, deadline: Instant) -> Result<Got, ConnectionError> {
        // A peer that never stops talking must not hide it.
        if self.token.is_cancelled() {
            return Err(ConnectionError::Stopping);
        }
        let mut wake = deadline.min(Instant::now() + RESTS_AFTER);
        loop {
            let read = tokio::select! {
                biased;
                read = timeout_at(wake, self.stream.read(self.input.space())) => read,
                () = self.token.cancelled() => return Err(ConnectionError::Stopping),
            };
            match read {
                Ok(Ok(0)) => return Ok(Got::Eof),
                Ok(Ok(octets)) => {
                    self.input.filled(octets);
                    return Ok(Got::Octets);
                }
                Ok(Err(error)) => return Err(ConnectionError::Lost(error)),
                Err(_) if wake == deadline => return Err(ConnectionError::Timeout),
                Err(_) => {
                    self.input.rest();
                    self.session.output().shrink_to(0);
                    wake = deadline;
                }
            }
        }
    }

    /// Writes what is left to say and closes, so that the peer gets to read it.
    async fn hang_up(&mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        if !matches!(timeout_at(until, self.stream.shutdown()).await, Ok(Ok(()))) {
            return;
        }
        self.input.clear();
        let mut left = LINGER_BYTES;
        while let Ok(Ok(octets @ 1..)) = timeout_at(until, self.stream.read(self.input.space())).await {
            left = left.saturating_sub(octets);
            if left == 0 {
                return;
            }
        }
    }

    async fn resolve(&mut self) -> Result<Resolved, Reply> {
        if !self.session.asks_recipient() && self.login_ended().await {
            return Err(Reply::LoginEnded);
        }
        let Some(address) = self.session.asked() else { return Ok(Resolved::UnknownUser) };
        let found = self.look_up(address).await.map_err(|error| {
            events::lookup_failed(self.role, &error);
            lookup_reply(&error)
        })?;
        if self.session.asks_recipient()
            && let Resolved::Accounts(accounts) = &found
            && let [account] = accounts.as_slice()
        {
            self.has_room(*account, self.session.declared_size().unwrap_or(0)).await?;
        }
        Ok(found)
    }

    pub(super) async fn look_up(&self, address: &Address) -> Result<Resolved, DirectoryError> {
        let directory = &self.server.storage.directory;
        match address.domain() {
            "" => match self.default_domain().await {
                Some(domain) => directory.resolve(address.local(), &domain).await,
                None => Ok(Resolved::UnknownUser),
            },
            domain => directory.resolve(address.local(), domain).await,
        }
    }

    /// True when somebody is logged in who could not log in any more. That it cannot be told ends nothing.
    pub(super) async fn login_ended(&self) -> bool {
        let Some(login) = self.session.login() else { return false };
        matches!(self.server.storage.directory.still_valid(login).await, Ok(false))
    }

    /// Whose postmaster `<postmaster>` is.
    async fn default_domain(&self) -> Option<String> {
        let configured = &self.server.config.default_domain;
        if !configured.is_empty() {
            return Some(configured.clone());
        }
        let domains = self.server.storage.directory.domain_list().await.ok()?;
        domains.into_iter().next().map(|domain| domain.name)
    }

    /// Whether so many more octets go into an account.
    ///
    /// # Errors
    ///
    /// What to say when it is full, or cannot be opened: also at RCPT, so that one account that is broken holds up
    /// nobody else's mail.
    pub(super) async fn has_room(&self, account: AccountId, octets: u64) -> Result<(), Reply> {
        let state = match self.server.storage.accounts.open(account).await {
            Ok(account) => account.current(),
            Err(error) => {
                events::account_failed(self.role, account, &error);
                return Err(delivery_reply(&error, &self.server.config).unwrap_or(Reply::StoreUnavailable));
            }
        };
        let (used, quota) = (state.used.bytes, state.quota_bytes);
        let full = quota > 0 && used.saturating_add(octets.max(1)) > quota;
        match (full, self.server.config.over_quota_permanent) {
            (false, _) => Ok(()),
            (true, true) => Err(Reply::MailboxFullForGood),
            (true, false) => Err(Reply::MailboxFull),
        }
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Login, Reply> {
        let directory = &self.server.storage.directory;
        let outcome = directory.authenticate(&credentials.login, &credentials.password, self.peer).await;
        events::login(self.role, outcome.is_ok());
        outcome.map_err(|error| {
            if let AuthError::Directory(error) = &error {
                events::lookup_failed(self.role, error);
            }
            auth_reply(&error)
        })
    }
}
