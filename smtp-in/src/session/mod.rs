//! The session: a state machine that is fed what peers send and says what is to be done next. No sockets, no waiting.
//!
//! Implements RFC 5321 with SIZE (1870), PIPELINING (2920), 8BITMIME (6152), ENHANCEDSTATUSCODES (2034), STARTTLS
//! (3207), SMTPUTF8 (6531), AUTH (4954), and the roles of submission (6409) and LMTP (2033). CHUNKING is not offered.
//!
//! The caller [`advance`](Session::advance)s it with input and carries out the [`Action`] that comes back; every action
//! but [`Action::Read`] and [`Action::Close`] has a method that takes its outcome. Replies gather in
//! [`output`](Session::output) and are to be written before waiting for anything, so that a group of pipelined
//! commands is answered by one write. A message's text never comes here.

mod command;
mod envelope;
mod sasl;

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use posthouse_storage::directory::{Login, Resolved};

pub use envelope::{Address, Envelope, Recipient};
pub use sasl::Credentials;

use crate::config::SmtpConfig;
use crate::reply::{self, Reply};
use crate::wire::command::{Command, Hello, Malformed};
use crate::wire::header::HeaderPass;
use crate::wire::line::{COMMAND_MAX, EXTENDED_MAX, Framed, LineReader, SASL_MAX};
use crate::wire::trace::Trace;
use sasl::{Sasl, Step};

/// Commands that lead nowhere between two messages: those that do nothing (NOOP, RSET, EHLO, …), and those refused for
/// the moment.
const IDLE_COMMANDS_MAX: u32 = 100;
/// Octets skipped of one overlong line before the connection is given up.
const SKIPPED_MAX: u64 = 65_536;
/// Octets and fields of a message's header. What reads messages looks at no more of either.
const HEADER_BYTES_MAX: u64 = 1 << 20;
const HEADER_FIELDS_MAX: u32 = 1_000;
/// First octet of a TLS record with a handshake in it; no command begins so.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Mail from other servers, for the domains served here; no logins.
    Mx,
    /// Mail from our own users' programs; logins after STARTTLS.
    Submission,
    /// The same with TLS from the first octet (RFC 8314).
    Submissions,
    /// Mail from another server on the same machine, answered for each recipient.
    Lmtp,
}

impl Role {
    /// A label for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mx => "mx",
            Self::Submission => "submission",
            Self::Submissions => "submissions",
            Self::Lmtp => "lmtp",
        }
    }

    fn is_submission(self) -> bool {
        matches!(self, Self::Submission | Self::Submissions)
    }
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Not at all, and cannot be.
    Unavailable,
    /// Not yet; STARTTLS is offered.
    Offered,
    /// By TLS.
    Active,
}

/// What a session is told when it begins.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the listener is for.
    pub role: Role,
    /// Limits.
    pub config: Arc<SmtpConfig>,
    /// What we are called.
    pub hostname: Arc<str>,
    /// Whether there is TLS.
    pub tls: Tls,
    /// Logins without TLS are fine (on loopback, in a trial).
    pub plaintext_auth: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write the output, wait for more input.
    Read,
    /// Look up [`Session::asked`], for a sender after [`Session::login`] was found still valid, then call [`Session::resolved`].
    Resolve,
    /// Check these, then call [`Session::authenticated`].
    Authenticate(Credentials),
    /// Write the output, forget all input, shake hands, then call [`Session::tls_started`].
    StartTls,
    /// Write the output, read the message's text, deliver it, then call [`Session::received`].
    Receive,
    /// Write the output, close the connection.
    Close,
}

/// What became of a message.
#[derive(Debug, Clone, Copy)]
pub enum Verdict<'a> {
    /// It was not delivered to anybody.
    Refused(Reply),
    /// Delivered, but for the recipients that have a reply here; one entry for each recipient of the envelope.
    Delivered {
        /// Names it in the log and in the reply.
        id: &'a str,
        /// Why not, for those it was not delivered to.
        failed: &'a [Option<Reply>],
    },
}

#[derive(Debug)]
enum State {
    /// Between transactions.
    Ready,
    /// A sender, maybe recipients.
    Transaction(Envelope),
    /// Does this sender belong to who is logged in?
    AskingSender(Envelope),
    /// Who receives for this?
    AskingRecipient(Envelope, Address),
    /// The client's next line belongs to a login.
    Sasl(Sasl),
    /// A password is being checked.
    LoggingIn,
    /// A handshake comes next.
    Handshake,
    /// The text comes next.
    Receiving(Envelope),
    /// It is over.
    Closed,
}

#[derive(Debug)]
struct Greeted {
    kind: Hello,
    name: Box<str>,
}

/// One connection's dialogue.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    lines: LineReader,
    state: State,
    hello: Option<Greeted>,
    login: Option<Login>,
    errors: u32,
    auth_failures: u32,
    idle_commands: u32,
    output: Vec<u8>,
}

impl Session {
    /// A session with its greeting in the output.
    pub fn new(settings: Settings) -> Self {
        let mut session = Self {
            settings,
            lines: LineReader::default(),
            state: State::Ready,
            hello: None,
            login: None,
            errors: 0,
            auth_failures: 0,
            idle_commands: 0,
            output: Vec::new(),
        };
        let protocol = if session.settings.role == Role::Lmtp { "LMTP" } else { "ESMTP" };
        reply::greeting(&session.settings.hostname, protocol, &mut session.output);
        session
    }

    /// What is to be written. The caller empties it.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Takes commands from the start of `input` until something is to be done: how many octets were consumed, and
    /// what it is. What was not consumed is to be offered again.
    pub fn advance(&mut self, input: &[u8]) -> (usize, Action) {
        let mut used = 0;
        loop {
            match &self.state {
                State::Closed => return (input.len(), Action::Close),
                State::AskingSender(_) | State::AskingRecipient(..) => return (used, Action::Resolve),
                State::Handshake => return (used, Action::StartTls),
                State::Receiving(_) => return (used, Action::Receive),
                State::LoggingIn | State::Ready | State::Transaction(_) | State::Sasl(_) => {}
            }
            let rest = &input[used..];
            if rest.first() == Some(&TLS_HANDSHAKE) && self.lines.at_start() && !matches!(self.state, State::Sasl(_)) {
                // Somebody expects TLS from the first octet: nothing we could say would be understood.
                self.state = State::Closed;
                continue;
            }
            let (taken, framed) = self.lines.read(rest, self.line_max(rest));
            used += taken;
            match framed {
                Framed::Incomplete if self.lines.skipped() > SKIPPED_MAX => self.close(Reply::LineTooLong),
                Framed::Incomplete if taken == 0 => return (used, Action::Read),
                Framed::Incomplete => {}
                Framed::TooLong => match std::mem::replace(&mut self.state, State::Ready) {
                    State::Sasl(_) => self.refuse(Reply::AuthTooLong),
                    state => {
                        self.state = state;
                        self.refuse(Reply::LineTooLong);
                    }
                },
                Framed::Bare => {
                    if matches!(self.state, State::Sasl(_)) {
                        self.state = State::Ready;
                    }
                    self.refuse(Reply::BareLineEnd);
                }
                Framed::Line(line) => {
                    let more = used < input.len();
                    if let Some(credentials) = self.line(line, more) {
                        return (used, Action::Authenticate(credentials));
                    }
                }
            }
        }
    }

    /// Who is logged in.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// The address to be looked up: local part and domain. The domain is empty for `<postmaster>`. `None` when only
    /// the login is to be checked.
    pub fn asked(&self) -> Option<&Address> {
        match &self.state {
            State::AskingSender(envelope) => envelope.from.as_ref().filter(|from| !self.is_own(Some(from))),
            State::AskingRecipient(_, address) => Some(address),
            _ => None,
        }
    }

    /// True when the address to be looked up is to receive, and its mailbox must not be full.
    pub fn asks_recipient(&self) -> bool {
        matches!(self.state, State::AskingRecipient(..))
    }

    /// What the look-up found; `Err` when it failed or the mailbox is full.
    pub fn resolved(&mut self, found: Result<Resolved, Reply>) {
        match std::mem::replace(&mut self.state, State::Ready) {
            State::AskingSender(envelope) => self.sender_resolved(envelope, found),
            State::AskingRecipient(envelope, address) => self.recipient_resolved(envelope, address, found),
            state => self.state = state,
        }
    }

    /// Whether the credentials were right; `Err` says what the client is told.
    pub fn authenticated(&mut self, outcome: Result<Login, Reply>) {
        if !matches!(self.state, State::LoggingIn) {
            return;
        }
        self.state = State::Ready;
        match outcome {
            Ok(login) => {
                self.login = Some(login);
                self.say(Reply::LoggedIn);
            }
            Err(reply) => {
                self.refuse(reply);
                self.auth_failures += 1;
                if self.auth_failures >= self.settings.config.auth_failures_max {
                    self.close(Reply::TooManyLogins);
                }
            }
        }
    }

    /// The handshake succeeded. RFC 3207 §4.2: whatever was said before it is forgotten.
    pub fn tls_started(&mut self) {
        self.settings.tls = Tls::Active;
        self.state = State::Ready;
        self.hello = None;
        self.login = None;
        self.lines = LineReader::default();
        self.output.clear();
    }

    /// The transaction whose text is to be read.
    pub fn receiving(&self) -> Option<&Envelope> {
        match &self.state {
            State::Receiving(envelope) => Some(envelope),
            _ => None,
        }
    }

    /// The size declared for the message of the transaction at hand.
    pub fn declared_size(&self) -> Option<u64> {
        match &self.state {
            State::Transaction(envelope) | State::AskingRecipient(envelope, _) | State::Receiving(envelope) => {
                envelope.size
            }
            _ => None,
        }
    }

    /// Appends the trace fields of the message to be read.
    pub fn trace(&self, id: &str, peer: IpAddr, at: Timestamp, out: &mut Vec<u8>) {
        let State::Receiving(envelope) = &self.state else { return };
        let recipient = match envelope.recipients.as_slice() {
            [one] => Some(one.address.as_str()),
            _ => None,
        };
        let trace = Trace {
            from: envelope.from.as_ref().map_or("", Address::as_str),
            hello: self.hello.as_ref().map_or("unknown", |hello| &hello.name),
            peer,
            hostname: &self.settings.hostname,
            protocol: self.protocol(envelope.smtputf8),
            id,
            recipient,
            at,
        };
        trace.write(out);
    }

    /// Why a message with such a header is not taken, as soon as so much of it has passed. It is told after the final
    /// dot.
    ///
    /// Of the fields that RFC 5322 §3.6 wants no more than once, only From is insisted on: readers, filters and DMARC
    /// would each choose their own. The others come doubled from honest senders (RFC 7103 §7.5), and mislead nobody
    /// about who writes.
    pub fn refuses(&self, header: &HeaderPass) -> Option<Reply> {
        if header.bytes() > HEADER_BYTES_MAX {
            Some(Reply::HeaderTooLarge)
        } else if header.fields() > HEADER_FIELDS_MAX {
            Some(Reply::TooManyFields)
        } else if header.received() > self.settings.config.received_max {
            Some(Reply::MailLoop)
        } else if header.from() > 1 {
            Some(Reply::SeveralFrom)
        } else {
            None
        }
    }

    /// What became of the message. Its transaction is over, whatever it was.
    pub fn received(&mut self, verdict: Verdict<'_>) {
        let envelope = match std::mem::replace(&mut self.state, State::Ready) {
            State::Receiving(envelope) => envelope,
            state => return self.state = state,
        };
        let lmtp = self.settings.role == Role::Lmtp;
        match verdict {
            Verdict::Refused(Reply::LoginEnded) => self.close(Reply::LoginEnded),
            Verdict::Refused(reply) => {
                // RFC 2033 §4.2: one reply for each recipient.
                for _ in 0..if lmtp { envelope.recipients.len() } else { 1 } {
                    self.say(reply);
                }
                self.count(reply);
                if reply == Reply::MessageSpoiled {
                    // The peer's idea of where texts end is not ours: nothing it sends can be trusted any more.
                    self.state = State::Closed;
                }
            }
            Verdict::Delivered { id, failed } if lmtp => {
                for at in 0..envelope.recipients.len() {
                    match failed.get(at).copied().flatten() {
                        Some(reply) => self.say(reply),
                        None => reply::stored(id, &mut self.output),
                    }
                }
                self.delivered();
            }
            Verdict::Delivered { id, failed } => match one_reply(failed) {
                Some(reply) => self.refuse(reply),
                None => {
                    reply::stored(id, &mut self.output);
                    self.delivered();
                }
            },
        }
    }

    /// Ends it from outside: time is up, the server stops.
    pub fn close(&mut self, last: Reply) {
        if !matches!(self.state, State::Closed) {
            self.say(last);
            self.state = State::Closed;
        }
    }

    /// RFC 3848 and RFC 6531 §4.3.
    fn protocol(&self, utf8: bool) -> &'static str {
        let lmtp = self.settings.role == Role::Lmtp;
        let extended = lmtp || self.hello.as_ref().is_none_or(|hello| hello.kind != Hello::Helo);
        match (lmtp, utf8, self.settings.tls == Tls::Active, self.login.is_some()) {
            (true, false, false, _) => "LMTP",
            (true, false, true, _) => "LMTPS",
            (true, true, false, _) => "UTF8LMTP",
            (true, true, true, _) => "UTF8LMTPS",
            (false, true, false, false) => "UTF8SMTP",
            (false, true, false, true) => "UTF8SMTPA",
            (false, true, true, false) => "UTF8SMTPS",
            (false, true, true, true) => "UTF8SMTPSA",
            (false, false, false, false) if extended => "ESMTP",
            (false, false, false, false) => "SMTP",
            (false, false, false, true) => "ESMTPA",
            (false, false, true, false) => "ESMTPS",
            (false, false, true, true) => "ESMTPSA",
        }
    }

    /// Octets that the line at the start of `input` may have.
    fn line_max(&self, input: &[u8]) -> usize {
        if matches!(self.state, State::Sasl(_)) {
            return SASL_MAX;
        }
        match input.get(..5) {
            Some(verb) if verb.eq_ignore_ascii_case(b"AUTH ") && self.settings.role.is_submission() => SASL_MAX,
            Some(verb) if [b"MAIL ", b"RCPT ", b"VRFY "].iter().any(|long| verb.eq_ignore_ascii_case(*long)) => {
                EXTENDED_MAX
            }
            _ => COMMAND_MAX,
        }
    }

    /// Takes one line; `more` input stands behind it. Returns credentials that are to be checked.
    fn line(&mut self, line: &[u8], more: bool) -> Option<Credentials> {
        if let State::Sasl(_) = self.state
            && let State::Sasl(sasl) = std::mem::replace(&mut self.state, State::Ready)
        {
            return self.sasl(sasl.step(line));
        }
        match Command::parse(line) {
            Ok(command) => self.command(command, more),
            Err(malformed) => {
                self.refuse(match malformed {
                    Malformed::Octets => Reply::NotPrintable,
                    Malformed::Verb => Reply::UnknownCommand,
                    Malformed::Arguments => Reply::BadArguments,
                    Malformed::HelloName => Reply::BadHelloName,
                    Malformed::ReversePath => Reply::BadSender,
                    Malformed::ForwardPath => Reply::BadRecipient,
                    Malformed::UnknownParameter => Reply::UnknownParameter,
                    Malformed::BadParameter => Reply::BadParameter,
                });
                None
            }
        }
    }

    fn sasl(&mut self, step: Step) -> Option<Credentials> {
        match step {
            Step::Continue(sasl, challenge) => {
                self.state = State::Sasl(sasl);
                self.say(challenge);
                None
            }
            Step::Done(credentials) => {
                self.state = State::LoggingIn;
                Some(credentials)
            }
            Step::Refuse(reply) => {
                self.refuse(reply);
                None
            }
        }
    }

    fn say(&mut self, reply: Reply) {
        if reply.is_negative() {
            crate::events::refused(self.settings.role, reply);
        }
        reply.write(&mut self.output);
    }

    /// Says no, and counts it.
    fn refuse(&mut self, reply: Reply) {
        self.say(reply);
        self.count(reply);
    }

    /// What is refused for good is the client's error. For the moment, it is not: who has 20 full mailboxes among 100
    /// recipients must not be sent away at the 20th, time and again.
    fn count(&mut self, refusal: Reply) {
        if refusal.code() >= 500 { self.count_error() } else { self.count_idle() }
    }

    fn count_error(&mut self) {
        self.errors += 1;
        if self.errors >= self.settings.config.errors_max {
            self.close(Reply::TooManyErrors);
        }
    }

    /// Says yes to a command that leads nowhere.
    fn idle(&mut self, reply: Reply) {
        self.say(reply);
        self.count_idle();
    }

    fn count_idle(&mut self) {
        self.idle_commands += 1;
        if self.idle_commands > IDLE_COMMANDS_MAX {
            self.close(Reply::TooManyCommands);
        }
    }

    /// A message was delivered: whoever brings mail may make mistakes.
    fn delivered(&mut self) {
        self.errors = 0;
        self.idle_commands = 0;
    }
}

/// One answer for several: SMTP has one for all recipients, and a recipient may lead to several accounts. A temporary
/// failure of one wins, so that no mail is lost (those who have it get it twice), except for a full mailbox beside others
/// that were served: that would go on for days.
pub(crate) fn one_reply(failed: &[Option<Reply>]) -> Option<Reply> {
    let some_served = failed.iter().any(Option::is_none);
    let worst = failed.iter().flatten().min_by_key(|reply| reply.code() >= 500)?;
    Some(match worst {
        Reply::MailboxFull if some_served => Reply::MailboxFullForGood,
        worst => *worst,
    })
}
