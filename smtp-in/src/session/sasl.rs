//! Login exchanges: PLAIN (RFC 4616) and LOGIN (as it is spoken) over AUTH (RFC 4954).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::reply::Reply;

/// A name and a password to be checked. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The account's address.
    pub login: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// An exchange, by what the client is to say next.
#[derive(Debug)]
pub(super) enum Sasl {
    /// PLAIN: its one message.
    Plain,
    /// LOGIN: the name.
    LoginName,
    /// LOGIN: the password that goes with the name.
    LoginPassword(String),
}

/// What a client's message led to.
#[derive(Debug)]
pub(super) enum Step {
    /// Say this and wait for the next message.
    Continue(Sasl, Reply),
    /// All there is to know.
    Done(Credentials),
    /// The exchange is over.
    Refuse(Reply),
}

impl Sasl {
    /// The exchange of a mechanism, and what asks for the first message.
    pub(super) fn begin(mechanism: &str) -> Option<(Self, Reply)> {
        if mechanism.eq_ignore_ascii_case("PLAIN") {
            Some((Self::Plain, Reply::SaslEmptyChallenge))
        } else if mechanism.eq_ignore_ascii_case("LOGIN") {
            Some((Self::LoginName, Reply::SaslUserName))
        } else {
            None
        }
    }

    /// Takes a message as it stands on the line.
    pub(super) fn step(self, line: &[u8]) -> Step {
        if line == b"*" {
            return Step::Refuse(Reply::AuthCancelled);
        }
        let decoded = STANDARD.decode(line).ok().and_then(|octets| String::from_utf8(octets).ok());
        let Some(text) = decoded else { return Step::Refuse(Reply::AuthBadEncoding) };
        match self {
            Self::Plain => plain(&text),
            Self::LoginName => Step::Continue(Self::LoginPassword(text), Reply::SaslPassword),
            Self::LoginPassword(login) => Step::Done(Credentials { login, password: text }),
        }
    }
}

/// RFC 4616 §2: `[authzid] NUL authcid NUL passwd`.
fn plain(text: &str) -> Step {
    let mut parts = text.split('\0');
    let (Some(acting_for), Some(login), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Step::Refuse(Reply::AuthBadEncoding);
    };
    // Nobody acts for anybody else here.
    if !acting_for.is_empty() && !acting_for.eq_ignore_ascii_case(login) {
        return Step::Refuse(Reply::AuthFailed);
    }
    Step::Done(Credentials { login: login.to_owned(), password: password.to_owned() })
}
