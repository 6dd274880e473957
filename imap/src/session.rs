//! One connection: its state, its commands in order, its output.
//!
//! RFC 3501, with RFC 2177 (IDLE), 2342 (NAMESPACE), 2971 (ID), 3348 (CHILDREN), 3691 (UNSELECT), 4315 (UIDPLUS), 4959
//! (SASL-IR), 5161 (ENABLE), 6154 (SPECIAL-USE), 6851 (MOVE), 7888 (LITERAL+, and LITERAL- before login), 8438
//! (STATUS=SIZE).
//!
//! Commands are carried out one after the other in the order they came, also when many come at once; the answers go out
//! when nothing more waits to be read. Before a tagged answer, the session tells what changed in the selected mailbox.

mod append;
mod login;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthouse_storage::account::{Account, AccountState, Mailbox};
use posthouse_storage::directory::Login;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::command::append::Appending;
use crate::command::{self, Context};
use crate::error::{CommandError, Result};
use crate::events;
use crate::output::{FLUSH_BYTES, Output, Stream};
use crate::reply::{Done, account_error};
use crate::serve::{Server, SessionPlace};
use crate::tell::{self, Manner};
use crate::view::{Expunges, View};
use crate::wire::command::{Command, CommandBody, Numbers};
use crate::wire::framer::{Frame, Framer, Limits, Refusal};
use crate::wire::parse::{ParseError, ParseErrorKind, ParseOptions, parse_command};
use crate::wire::write::{self, Code, Status};

/// A connection as it was accepted.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) peer: SocketAddr,
    pub(crate) tls: bool,
}

/// The selected mailbox.
pub(crate) struct Selected {
    pub(crate) view: View,
    pub(crate) read_only: bool,
}

/// Who is logged in.
pub(crate) struct LoggedIn {
    pub(crate) account: Account,
    login: Login,
    _place: SessionPlace,
}

/// RFC 3501 §3.
pub(crate) enum State {
    NotAuthenticated,
    Authenticated(LoggedIn),
    Selected(LoggedIn, Box<Selected>),
}

/// What the session waits for beside commands.
enum Waiting {
    /// Commands only.
    Commands,
    /// The response to a SASL challenge.
    Sasl { tag: String },
    /// DONE.
    Idle { tag: String },
    /// The rest of a message.
    Append(Box<Appending>),
}

/// Said to sessions whose login is no longer good.
const REVOKED: &str = "The account was changed; log in again";

/// What happens after a frame.
enum Flow {
    Continue,
    StartTls,
    Close(&'static str),
}

/// One connection at work.
pub(crate) struct Session {
    server: Arc<Server>,
    connection: Connection,
    token: CancellationToken,
    framer: Framer,
    state: State,
    waiting: Waiting,
    out: Vec<u8>,
    errors: usize,
    login_failures: usize,
}

impl Session {
    pub(crate) fn new(server: Arc<Server>, connection: Connection, token: CancellationToken) -> Self {
        Self {
            server,
            connection,
            token,
            framer: Framer::new(Limits::UNAUTHENTICATED),
            state: State::NotAuthenticated,
            waiting: Waiting::Commands,
            out: Vec::new(),
            errors: 0,
            login_failures: 0,
        }
    }

    /// Serves the connection to its end; why it ended, for the log.
    pub(crate) async fn run(mut self) -> &'static str {
        let capabilities = self.capabilities();
        write::untagged(&mut self.out, Status::Ok, Some(Code::Capability(&capabilities)), "Posthouse is ready");
        drop(capabilities);
        let started = Instant::now();
        loop {
            while let Some(frame) = self.framer.next() {
                // Boxed: the future of a rare large command must not be part of every idle connection.
                let flow = Box::pin(self.frame(frame)).await;
                match flow {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::StartTls) => {
                        if let Err(why) = Box::pin(self.start_tls()).await {
                            return why;
                        }
                    }
                    Ok(Flow::Close(why)) => {
                        drop(self.flush().await);
                        return why;
                    }
                    Err(CommandError::Broken(what)) => {
                        events::answer_broken(&what);
                        return "an answer broke off";
                    }
                    Err(CommandError::Io(error)) => {
                        events::connection_lost(&error);
                        return "connection lost";
                    }
                    Err(_) => return "connection lost",
                }
                if self.out.len() >= FLUSH_BYTES && self.flush().await.is_err() {
                    return "connection lost";
                }
            }
            if self.flush().await.is_err() {
                return "connection lost";
            }
            if let Err(why) = self.wait(started).await {
                drop(self.flush().await);
                return why;
            }
        }
    }

    /// Waits for octets, for changes to tell (in IDLE), for the time to be up, or for the server to stop.
    async fn wait(&mut self, started: Instant) -> std::result::Result<(), &'static str> {
        let config = &self.server.config;
        let limit = match self.state {
            State::NotAuthenticated => config.login_timeout().saturating_sub(started.elapsed()),
            _ => config.idle_timeout(),
        };
        let deadline = Instant::now() + limit;
        let idle = matches!(self.waiting, Waiting::Idle { .. });
        let mut watch = match (&self.state, idle) {
            (State::Selected(login, _), true) => Some(login.account.watch()),
            _ => None,
        };
        let notify = Duration::from_secs(config.idle_notify_seconds.max(1));
        if watch.is_some() {
            // What was committed before the watch began.
            self.tell_idle().await?;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let pause = if idle { left.min(notify) } else { left };
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.connection.stream.read_buf(self.framer.read_buffer()) => return match read {
                    Ok(0) => Err("closed by the client"),
                    Ok(_) => Ok(()),
                    Err(_) => Err("connection lost"),
                },
                alive = changed => {
                    if !alive {
                        // The account is no longer served here; the next command says why.
                        watch = None;
                    }
                    self.tell_idle().await?;
                }
                () = self.token.cancelled() => {
                    write::untagged(&mut self.out, Status::Bye, Some(Code::Word("UNAVAILABLE")), "The server is stopping");
                    return Err("server stopping");
                }
                () = tokio::time::sleep(pause) => {
                    if left > pause {
                        if Box::pin(self.revoked()).await {
                            self.bye(REVOKED);
                            return Err(REVOKED);
                        }
                        write::untagged(&mut self.out, Status::Ok, None, "Still here");
                        self.flush().await.map_err(|_| "connection lost")?;
                    } else {
                        write::untagged(&mut self.out, Status::Bye, None, "Idle for too long");
                        return Err("idle for too long");
                    }
                }
            }
        }
    }

    /// In IDLE: tells what changed.
    async fn tell_idle(&mut self) -> std::result::Result<(), &'static str> {
        // Boxed for the same reason as commands are.
        let told = Box::pin(async {
            if self.revoked().await {
                return Err(CommandError::Bye(REVOKED));
            }
            self.announce(Manner::FREE).await
        });
        match told.await {
            Ok(()) => {}
            Err(CommandError::Bye(text)) => {
                self.bye(text);
                return Err(text);
            }
            // Told at the next wake or command.
            Err(CommandError::Account(error)) => events::store_failed("IDLE", &error),
            Err(_) => return Err("connection lost"),
        }
        if self.out.is_empty() { Ok(()) } else { self.flush().await.map_err(|_| "connection lost") }
    }

    /// True when somebody is logged in who could not log in any more. That it cannot be told ends no session.
    async fn revoked(&mut self) -> bool {
        let (State::Authenticated(on) | State::Selected(on, _)) = &self.state else { return false };
        matches!(self.server.storage.directory.still_valid(&on.login).await, Ok(false))
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        if !self.out.is_empty() {
            let timeout = self.server.config.write_timeout();
            Output::new(&mut self.out, &mut *self.connection.stream, timeout).flush().await?;
            // Nothing is kept for the idle time.
            self.out = Vec::new();
        }
        Ok(())
    }

    fn plaintext_allowed(&self) -> bool {
        self.connection.tls
            || self.server.config.plaintext_login_on_loopback && self.connection.peer.ip().to_canonical().is_loopback()
    }

    /// What CAPABILITY says now.
    fn capabilities(&self) -> Vec<&'static str> {
        let mut list = vec!["IMAP4rev1", "SASL-IR", "ID", "ENABLE"];
        if matches!(self.state, State::NotAuthenticated) {
            list.push("LITERAL-");
            if !self.connection.tls && self.server.tls.is_some() {
                list.push("STARTTLS");
            }
            list.push(if self.plaintext_allowed() { "AUTH=PLAIN" } else { "LOGINDISABLED" });
        } else {
            list.extend([
                "LITERAL+",
                "IDLE",
                "NAMESPACE",
                "UIDPLUS",
                "UNSELECT",
                "CHILDREN",
                "MOVE",
                "SPECIAL-USE",
                "STATUS=SIZE",
            ]);
        }
        list
    }

    async fn frame(&mut self, frame: Frame) -> Result<Flow> {
        // Also before a message is added whose octets took their time, and at the end of IDLE.
        let asks =
            matches!(frame, Frame::Command(_) | Frame::Append { .. } | Frame::AppendEnd { .. } | Frame::IdleDone);
        if asks && self.revoked().await {
            return Ok(self.bye(REVOKED));
        }
        match frame {
            Frame::Command(octets) => match parse_command(&octets, ParseOptions::default()) {
                Ok(command) => self.command(command).await,
                Err(error) => Ok(self.not_understood(&error)),
            },
            Frame::ContinuationNeeded => {
                write::continuation(&mut self.out, "Go on");
                self.flush().await?;
                Ok(Flow::Continue)
            }
            Frame::Append { line, literal } => self.append_begins(&line, literal).await,
            Frame::Chunk(octets) => self.append_goes_on(&octets).await,
            Frame::AppendEnd { well_formed } => self.append_ends(well_formed).await,
            Frame::IdleDone => {
                if let Waiting::Idle { tag } = std::mem::replace(&mut self.waiting, Waiting::Commands) {
                    self.finish(&tag, "IDLE", Manner::FREE, Ok(Done::plain("IDLE ended"))).await
                } else {
                    Ok(Flow::Continue)
                }
            }
            Frame::Sasl(line) => {
                if let Waiting::Sasl { tag } = std::mem::replace(&mut self.waiting, Waiting::Commands) {
                    self.sasl(&tag, &line).await
                } else {
                    Ok(Flow::Continue)
                }
            }
            Frame::Refused { tag, reason } => {
                let waiting = std::mem::replace(&mut self.waiting, Waiting::Commands);
                let tag = match (&waiting, tag) {
                    (_, Some(tag)) => tag,
                    (Waiting::Idle { tag } | Waiting::Sasl { tag }, None) => tag.clone(),
                    (Waiting::Append(appending), None) => appending.tag.clone(),
                    (Waiting::Commands, None) => "*".to_owned(),
                };
                let text = reason.to_string();
                if reason == Refusal::MessageTooBig {
                    // RFC 4469 §4.2.
                    write::tagged(&mut self.out, &tag, Status::No, Some(Code::Word("TOOBIG")), &text);
                    return Ok(Flow::Continue);
                }
                write::tagged(&mut self.out, &tag, Status::Bad, None, &text);
                if reason == Refusal::Hopeless {
                    write::untagged(&mut self.out, Status::Bye, None, "That cannot be read past");
                    return Ok(Flow::Close("hopeless literal"));
                }
                Ok(self.mistake())
            }
        }
    }

    /// Answers a command that the parser refused.
    fn not_understood(&mut self, error: &ParseError) -> Flow {
        let tag = error.tag.as_deref().unwrap_or("*");
        let (status, code) = match error.kind {
            ParseErrorKind::Syntax | ParseErrorKind::UnknownCommand => (Status::Bad, None),
            ParseErrorKind::MailboxName => (Status::No, Some(Code::Word("CANNOT"))),
            ParseErrorKind::Charset => (Status::No, Some(Code::BadCharset)),
            ParseErrorKind::Limit => (Status::No, Some(Code::Word("LIMIT"))),
        };
        write::tagged(&mut self.out, tag, status, code, &error.text);
        if status == Status::Bad { self.mistake() } else { Flow::Continue }
    }

    /// Counts a malformed command.
    fn mistake(&mut self) -> Flow {
        self.errors += 1;
        if self.errors < self.server.config.errors_max {
            return Flow::Continue;
        }
        write::untagged(&mut self.out, Status::Bye, None, "Too many malformed commands");
        Flow::Close("too many malformed commands")
    }

    async fn command(&mut self, Command { tag, body }: Command) -> Result<Flow> {
        let verb = body.verb();
        let started = Instant::now();
        let manner = manner(&body);
        let done = match body {
            CommandBody::Capability => {
                let capabilities = self.capabilities();
                write::capability(&mut self.out, &capabilities);
                Ok(Done::plain("CAPABILITY done"))
            }
            CommandBody::Noop => Ok(Done::plain("NOOP done")),
            CommandBody::Logout => {
                write::untagged(&mut self.out, Status::Bye, None, "Goodbye");
                write::tagged(&mut self.out, &tag, Status::Ok, None, "LOGOUT done");
                return Ok(Flow::Close("logout"));
            }
            CommandBody::Id(_) => {
                write::id(&mut self.out, &[("name", "Posthouse"), ("version", env!("CARGO_PKG_VERSION"))]);
                Ok(Done::plain("ID done"))
            }
            CommandBody::StartTls => match self.may_start_tls() {
                Ok(()) => {
                    write::tagged(&mut self.out, &tag, Status::Ok, None, "Begin TLS now");
                    return Ok(Flow::StartTls);
                }
                Err(error) => Err(error),
            },
            CommandBody::Login { user, password } => return self.login(&tag, "LOGIN", &user, &password.0).await,
            CommandBody::Authenticate { mechanism, initial } => {
                return self.authenticate(tag, &mechanism, initial).await;
            }
            CommandBody::Idle => {
                if matches!(self.state, State::NotAuthenticated) {
                    Err(CommandError::Bad("Log in first".to_owned()))
                } else {
                    write::continuation(&mut self.out, "idling");
                    self.framer.expect_done();
                    self.waiting = Waiting::Idle { tag };
                    return Ok(Flow::Continue);
                }
            }
            body => self.on_account(body, manner).await,
        };
        let outcome = match &done {
            Ok(_) => "ok",
            Err(CommandError::Bad(_)) => "bad",
            Err(_) => "no",
        };
        if let Err(CommandError::Account(error)) = &done
            && matches!(account_error(error).0, Some("UNAVAILABLE" | "SERVERBUG"))
        {
            events::store_failed(verb, error);
        }
        let flow = self.finish(&tag, verb, manner, done).await;
        events::command(verb, outcome, started.elapsed());
        flow
    }

    /// Commands that need somebody logged in.
    async fn on_account(&mut self, body: CommandBody, manner: Manner) -> Result<Done> {
        let timeout = self.server.config.write_timeout();
        let mut out = Output::new(&mut self.out, &mut *self.connection.stream, timeout);
        match body {
            CommandBody::Select { mailbox } => {
                command::select::select(&mut self.state, &mailbox, false, &mut out).await
            }
            CommandBody::Examine { mailbox } => {
                command::select::select(&mut self.state, &mailbox, true, &mut out).await
            }
            CommandBody::Close => command::select::close(&mut self.state, true).await,
            CommandBody::Unselect => command::select::close(&mut self.state, false).await,
            CommandBody::Check
            | CommandBody::Expunge { .. }
            | CommandBody::Search { .. }
            | CommandBody::Fetch { .. }
            | CommandBody::Store { .. }
            | CommandBody::Copy { .. }
            | CommandBody::Move { .. } => match &mut self.state {
                State::Selected(login, selected) => {
                    command::on_selected(body, &login.account, selected, manner, &mut out).await
                }
                State::Authenticated(_) => Err(CommandError::Bad("Select a mailbox first".to_owned())),
                State::NotAuthenticated => Err(CommandError::Bad("Log in first".to_owned())),
            },
            body => match &self.state {
                State::Authenticated(login) | State::Selected(login, _) => {
                    command::on_mailboxes(body, Context { account: &login.account }, &mut out).await
                }
                State::NotAuthenticated => Err(CommandError::Bad("Log in first".to_owned())),
            },
        }
    }

    /// Tells what changed, then gives the tagged answer.
    async fn finish(&mut self, tag: &str, verb: &'static str, manner: Manner, done: Result<Done>) -> Result<Flow> {
        if let Err(lost @ (CommandError::Io(_) | CommandError::Broken(_))) = done {
            return Err(lost);
        }
        if let Err(error) = self.announce(manner).await {
            match error {
                CommandError::Account(error) => events::store_failed(verb, &error),
                CommandError::Bye(text) => return Ok(self.bye(text)),
                lost => return Err(lost),
            }
        }
        match done {
            Ok(done) => done.write(tag, &mut self.out),
            Err(CommandError::Account(error)) => {
                let (word, text) = account_error(&error);
                write::tagged(&mut self.out, tag, Status::No, word.map(Code::Word), &text);
            }
            Err(CommandError::No { code, text }) => {
                write::tagged(&mut self.out, tag, Status::No, code.map(Code::Word), &text)
            }
            Err(CommandError::Bad(text)) => {
                write::tagged(&mut self.out, tag, Status::Bad, None, &text);
                return Ok(self.mistake());
            }
            Err(CommandError::Bye(text)) => return Ok(self.bye(text)),
            Err(lost @ (CommandError::Io(_) | CommandError::Broken(_))) => return Err(lost),
        }
        Ok(Flow::Continue)
    }

    fn bye(&mut self, text: &'static str) -> Flow {
        write::untagged(&mut self.out, Status::Bye, Some(Code::Word("UNAVAILABLE")), text);
        Flow::Close(text)
    }

    /// Tells what changed in the selected mailbox.
    async fn announce(&mut self, manner: Manner) -> Result<()> {
        let State::Selected(login, selected) = &mut self.state else { return Ok(()) };
        let newest = login.account.refresh().await?;
        let timeout = self.server.config.write_timeout();
        let mut out = Output::new(&mut self.out, &mut *self.connection.stream, timeout);
        tell::changes(&login.account, selected, &newest, manner, &mut |_, _| false, &mut out).await
    }
}

/// What a command lets be told.
fn manner(body: &CommandBody) -> Manner {
    match body {
        // RFC 3501 §7.4.1: no EXPUNGE while sequence numbers of these are on their way.
        CommandBody::Fetch { numbers: Numbers::Sequence, .. }
        | CommandBody::Store { numbers: Numbers::Sequence, .. }
        | CommandBody::Search { numbers: Numbers::Sequence, .. } => Manner { expunges: Expunges::Held, uids: false },
        CommandBody::Fetch { .. }
        | CommandBody::Store { .. }
        | CommandBody::Search { .. }
        | CommandBody::Copy { numbers: Numbers::Uid, .. }
        | CommandBody::Move { numbers: Numbers::Uid, .. }
        | CommandBody::Expunge { uids: Some(_) } => Manner { expunges: Expunges::Told, uids: true },
        _ => Manner::FREE,
    }
}

/// The mailbox a client names: INBOX in any case (RFC 3501 §5.1).
pub(crate) fn find_mailbox<'a>(state: &'a AccountState, name: &str) -> Option<&'a Arc<Mailbox>> {
    if name.eq_ignore_ascii_case("INBOX") { state.by_name("INBOX") } else { state.by_name(name) }
}
