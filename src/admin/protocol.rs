//! What can be asked of a server, as JSON over HTTP/1 on a Unix socket.
//!
//! `POST /v1/call` takes a [`Call`] and answers an [`Answer`]; `POST /v1/import` and `POST /v1/export` carry messages
//! as [`super::frames`]. Anything refused is answered 4xx or 5xx with a [`Refusal`].

use serde::{Deserialize, Serialize};

/// One operation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    /// Add a domain.
    DomainAdd { domain: String },
    /// List domains.
    DomainList,
    /// Remove a domain.
    DomainRemove { domain: String },
    /// Make an account.
    AccountAdd { address: String, password: String, quota_bytes: Option<u64> },
    /// List accounts.
    AccountList,
    /// Remove an account.
    AccountRemove {
        address: String,
        /// Also when aliases lead to it.
        #[serde(default)]
        force: bool,
    },
    /// Change a password.
    AccountSetPassword { address: String, password: String },
    /// Allow or refuse logins and mail.
    AccountEnable { address: String, enabled: bool },
    /// Change how much it may hold.
    AccountQuota { address: String, bytes: u64 },
    /// Add an alias.
    AliasAdd { alias: String, targets: Vec<String> },
    /// List aliases.
    AliasList,
    /// Remove an alias.
    AliasRemove { alias: String },
    /// List an account's mailboxes.
    Mailboxes { account: String },
}

/// What a [`Call`] brought.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// It was done, and this is to be known about it.
    Noted(Vec<String>),
    /// Domains.
    Domains(Vec<String>),
    /// Accounts.
    Accounts(Vec<AccountLine>),
    /// Aliases.
    Aliases(Vec<AliasLine>),
    /// Mailboxes.
    Mailboxes(Vec<MailboxLine>),
}

/// One account of a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct AccountLine {
    /// Its address.
    pub address: String,
    /// False when it is disabled.
    pub enabled: bool,
    /// Most it may hold, bytes; 0 for no limit.
    pub quota_bytes: u64,
    /// What it holds, bytes.
    pub used_bytes: u64,
    /// Messages it holds.
    pub messages: u64,
}

/// One alias of a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct AliasLine {
    /// The alias.
    pub alias: String,
    /// Where it leads.
    pub targets: Vec<String>,
    /// Targets that receive nothing: removed since, or disabled.
    #[serde(default)]
    pub dangling: Vec<String>,
}

/// One mailbox of an account.
#[derive(Debug, Serialize, Deserialize)]
pub struct MailboxLine {
    /// Its full name, `/` between levels.
    pub name: String,
    /// Messages in it.
    pub messages: u64,
}

/// Where an import goes.
#[derive(Debug, Serialize, Deserialize)]
pub struct ImportInto {
    /// The account's address.
    pub account: String,
    /// The mailbox; made when missing.
    pub mailbox: String,
    /// Also messages that the mailbox has already.
    #[serde(default)]
    pub duplicates: bool,
}

/// What is known of a message besides its octets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageMeta {
    /// `S`een, a`R`nswered, `F`lagged, `T`rashed (deleted), `D`raft: letters as in a Maildir.
    pub flags: String,
    /// Keywords.
    pub keywords: Vec<String>,
    /// INTERNALDATE, milliseconds since 1970.
    pub received_at_ms: i64,
    /// Its uid (when exported).
    #[serde(default)]
    pub uid: u32,
}

/// What became of each message of an import, in order.
pub type Imported = Vec<Outcome>;

/// What became of one message of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was added, under this uid.
    Added(u32),
    /// The mailbox had it already.
    Known,
    /// It cannot be added, and why.
    Refused(String),
}

/// Why something was not done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// For the person at the terminal.
    pub error: String,
}
