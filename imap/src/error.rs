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
}

impl CommandError {
    /// NO with a code.
    pub(crate) fn no(code: &'static str, text: impl Into<String>) -> Self {
        Self::No { code: Some(code), text: text.into() }
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
