//! A session driven in memory with scripted outcomes: what fuzzing, properties and transcripts share.
//!
//! The directory has `alice`, `bob`, `team` (both of them), `full` (over quota) and `broken` (the store is down) at
//! `example.test`, each also with `+tag`; the password of `alice@example.test` is `secret`. Every message is delivered,
//! but those that say `refuse` are not.

use std::sync::Arc;

use posthouse_storage::account::AccountId;
use posthouse_storage::directory::{Login, Resolved};

use crate::config::SmtpConfig;
use crate::reply::Reply;
use crate::session::{Action, Address, Role, Session, Settings, Tls, Verdict};
use crate::wire::data::{DataReader, Piece};
use crate::wire::header::HeaderPass;

/// What came of a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Everything said to the client.
    pub output: Vec<u8>,
    /// Messages delivered: recipients, octets.
    pub messages: Vec<(Vec<String>, Vec<u8>)>,
    /// The session closed the connection.
    pub closed: bool,
}

/// A session and what it sees of the world.
#[derive(Debug)]
pub struct Rehearsal {
    session: Session,
    text: Option<(DataReader, Vec<u8>)>,
    input: Vec<u8>,
    outcome: Outcome,
}

/// Settings of a session without TLS in which passwords may be sent.
pub fn settings(role: Role, config: SmtpConfig) -> Settings {
    let hostname = "mx.example.test".into();
    Settings { role, config: Arc::new(config), hostname, tls: Tls::Unavailable, plaintext_auth: true }
}

impl Rehearsal {
    /// Before anything was said.
    pub fn new(settings: Settings) -> Self {
        let session = Session::new(settings);
        Self { session, text: None, input: Vec::new(), outcome: Outcome::default() }
    }

    /// One read from the network. A handshake that is asked for succeeds.
    pub fn feed(&mut self, piece: &[u8]) {
        self.input.extend_from_slice(piece);
        while !self.outcome.closed && self.step() {}
        self.outcome.output.append(self.session.output());
    }

    /// What came of it so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// False when more input is needed.
    fn step(&mut self) -> bool {
        if self.text.is_some() {
            return self.read_text();
        }
        let (used, action) = self.session.advance(&self.input);
        self.input.drain(..used);
        match action {
            Action::Read => return false,
            Action::Resolve => {
                let found = self.session.asked().map_or(Ok(Resolved::UnknownUser), resolve);
                self.session.resolved(found);
            }
            Action::Authenticate(credentials) => {
                let right = credentials.login == "alice@example.test" && credentials.password == "secret";
                let login = Login { account: AccountId(1), address: credentials.login, mark: 0 };
                self.session.authenticated(if right { Ok(login) } else { Err(Reply::AuthFailed) });
            }
            Action::Receive => self.text = Some((DataReader::new(), Vec::new())),
            Action::StartTls => {
                self.outcome.output.append(self.session.output());
                self.session.tls_started();
            }
            Action::Close => self.outcome.closed = true,
        }
        true
    }

    fn read_text(&mut self) -> bool {
        let Some((reader, octets)) = &mut self.text else { return false };
        let (used, piece) = reader.read(&self.input);
        let ended = piece == Piece::End;
        if let Piece::Octets(found) = piece {
            octets.extend_from_slice(found);
        }
        self.input.drain(..used);
        if !ended {
            return used > 0;
        }
        let (spoiled, octets) = (reader.spoiled(), std::mem::take(octets));
        self.text = None;
        let Some(envelope) = self.session.receiving() else { return true };
        let mut header = HeaderPass::default();
        header.feed(&octets);
        if spoiled {
            self.session.received(Verdict::Refused(Reply::MessageSpoiled));
        } else if let Some(reply) = self.session.refuses(&header) {
            self.session.received(Verdict::Refused(reply));
        } else if octets.starts_with(b"refuse") {
            self.session.received(Verdict::Refused(Reply::StoreUnavailable));
        } else {
            let names = envelope.recipients.iter().map(|recipient| recipient.address.as_str().to_owned());
            self.outcome.messages.push((names.collect(), octets));
            self.session.received(Verdict::Delivered { id: "ID", failed: &[] });
        }
        true
    }
}

/// Any octets, in pieces of any sizes, to a session of any role: nothing may panic, and the sizes must make no
/// difference. This is what the fuzz target calls.
pub fn however_split(octets: &[u8], sizes: &[u8]) {
    for role in [Role::Mx, Role::Submission, Role::Lmtp] {
        // What stands behind a refused DATA is told by how it arrives; that is the one difference there is.
        let config = SmtpConfig { strict_pipelining: false, errors_max: 50, ..SmtpConfig::default() };
        let mut whole = Rehearsal::new(settings(role, config.clone()));
        whole.feed(octets);
        let mut split = Rehearsal::new(settings(role, config));
        let mut sizes = sizes.iter().cycle();
        let mut rest = octets;
        split.feed(b"");
        while !rest.is_empty() {
            let size = sizes.next().map_or(rest.len(), |size| usize::from(*size) + 1).min(rest.len());
            split.feed(&rest[..size]);
            rest = &rest[size..];
        }
        assert_eq!(split.outcome(), whole.outcome(), "{role:?}");
    }
}

fn resolve(address: &Address) -> Result<Resolved, Reply> {
    let domain = address.domain();
    if !(domain.is_empty() || domain.trim_end_matches('.').eq_ignore_ascii_case("example.test")) {
        return Ok(Resolved::ForeignDomain);
    }
    let local = address.local().to_ascii_lowercase();
    match local.split('+').next().unwrap_or_default() {
        "alice" | "postmaster" => Ok(Resolved::Accounts(vec![AccountId(1)])),
        "bob" => Ok(Resolved::Accounts(vec![AccountId(2)])),
        "team" => Ok(Resolved::Accounts(vec![AccountId(1), AccountId(2)])),
        "full" => Err(Reply::MailboxFull),
        "broken" => Err(Reply::StoreUnavailable),
        _ => Ok(Resolved::UnknownUser),
    }
}
