//! How a command ends when it does not end well.

use posthouse_storage::account::AccountError;

/// Why a command was not carried out.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The connection is gone.
    Io(std::io::Error),
    /// The account refused or failed.
    Account(AccountError),
    /// NO with a response code that is only a word.
    No {
        /// RFC 5530 and others.
        code: Option<&'static str>,
        /// For people.
        text: String,
    },
    /// BAD.
    Bad(String),
    /// BYE: the session cannot go on.
    Bye(&'static str),
    /// What was announced cannot be sent: the connection has to be closed at once.
    Broken(String),
}

impl CommandError {
    /// NO with a code.
    pub(crate) fn no(code: &'static str, text: impl Into<String>) -> Self {
        Self::No { code: Some(code), text: text.into() }
    }

    /// There is no such target; RFC 3501 §6.3.11 and §6.4.7: the client learns that CREATE may help.
    pub(crate) fn try_create() -> Self {
        Self::no("TRYCREATE", "No such mailbox")
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<AccountError> for CommandError {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, CommandError>;
