//! A session driven in memory with scripted outcomes: what fuzzing, properties and transcripts share.
//!
//! The directory has `alice`, `bob`, `team` (both of them), `full` (over quota) and `broken` (the store is down) at
//! `example.test`; the password of `alice@example.test` is `secret`. Every message is delivered.

use posthouse_storage::account::AccountId;
use posthouse_storage::directory::{Login, Resolved};

use crate::reply::Reply;
use crate::session::{Action, Address, Session, Settings, Verdict};
use crate::wire::data::{DataReader, Piece};

/// What came of a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Everything said to the client.
    pub output: Vec<u8>,
    /// Messages delivered: recipients, octets.
    pub messages: Vec<(Vec<String>, Vec<u8>)>,
    /// The session closed the connection.
    pub closed: bool,
    /// The session asked for a handshake, which is where a rehearsal ends.
    pub handshake: bool,
}

/// Runs a session on `pieces`, each as one read from the network.
pub fn rehearse<'a>(settings: Settings, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut session = Session::new(settings);
    let mut outcome = Outcome::default();
    let mut text: Option<(DataReader, Vec<u8>)> = None;
    let mut input = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            if let Some((reader, octets)) = &mut text {
                let (used, found) = reader.read(&input);
                let ended = found == Piece::End;
                if let Piece::Octets(found) = found {
                    octets.extend_from_slice(found);
                }
                input.drain(..used);
                if ended {
                    let envelope = session.receiving().expect("a text is being read");
                    if reader.spoiled() {
                        session.received(Verdict::Refused(Reply::MessageSpoiled));
                    } else {
                        let names = envelope.recipients.iter().map(|recipient| recipient.address.as_str().to_owned());
                        outcome.messages.push((names.collect(), std::mem::take(octets)));
                        session.received(Verdict::Delivered { id: "ID", failed: &[] });
                    }
                    text = None;
                } else if used == 0 {
                    break;
                }
                continue;
            }
            let (used, action) = session.advance(&input);
            input.drain(..used);
            match action {
                Action::Read => break,
                Action::Resolve => {
                    let found = resolve(session.asked().expect("an address is asked for"));
                    session.resolved(found);
                }
                Action::Authenticate(credentials) => {
                    let right = credentials.login == "alice@example.test" && credentials.password == "secret";
                    let login = Login { account: AccountId(1), address: credentials.login };
                    session.authenticated(if right { Ok(login) } else { Err(Reply::AuthFailed) });
                }
                Action::Receive => text = Some((DataReader::new(), Vec::new())),
                Action::StartTls | Action::Close => {
                    outcome.handshake = action == Action::StartTls;
                    outcome.closed = action == Action::Close;
                    outcome.output.append(session.output());
                    return outcome;
                }
            }
        }
        outcome.output.append(session.output());
    }
    outcome
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
