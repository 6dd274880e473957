//! The envelope of a mail transaction (RFC 5321 §2.3.1), as far as it has come.

use posthouse_storage::account::AccountId;

use crate::wire::path::Mailbox;

/// An address that outlives its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    text: Box<str>,
    at: Option<usize>,
}

impl Address {
    /// As it was written, without `<>`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The local part; quotes are kept.
    pub fn local(&self) -> &str {
        &self.text[..self.at.unwrap_or(self.text.len())]
    }

    /// The domain or address literal; empty in `<postmaster>`.
    pub fn domain(&self) -> &str {
        self.at.map_or("", |at| &self.text[at + 1..])
    }
}

impl From<Mailbox<'_>> for Address {
    fn from(mailbox: Mailbox<'_>) -> Self {
        Self { text: mailbox.text.into(), at: mailbox.at }
    }
}

/// A recipient that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// As the client named it.
    pub address: Address,
    /// Who receives for it.
    pub accounts: Vec<AccountId>,
}

/// What MAIL and RCPT gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// `None` for the null path.
    pub from: Option<Address>,
    /// As declared.
    pub size: Option<u64>,
    /// SMTPUTF8 was asked for.
    pub smtputf8: bool,
    /// In the order they were accepted. LMTP answers for each; elsewhere no two lead to the same accounts.
    pub recipients: Vec<Recipient>,
    /// Recipients accepted, also those that were named again.
    pub(super) accepted: usize,
    /// Recipients refused since there were too many.
    pub(super) overshoot: usize,
}
