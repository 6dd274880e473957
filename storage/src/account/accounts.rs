//! The accounts open on this node, and one account's operations.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::message::MessageRow;
use crate::wide::{Store, StoreError};

/// Most octets that [`Account::octets`] returns at once.
pub const OCTETS_MAX: u64 = 256 * 1024;

/// Bounds and defaults of accounts.
#[derive(Debug, Clone)]
pub struct AccountsConfig {
    /// Memory for the accounts' state, bytes.
    pub memory_bytes: usize,
    /// Quota of a new account, bytes; 0 = none.
    pub default_quota_bytes: u64,
    /// How long an expunged message's octets stay readable for sessions that still show it.
    pub grace: std::time::Duration,
}

impl Default for AccountsConfig {
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, default_quota_bytes: 0, grace: std::time::Duration::from_secs(3600) }
    }
}

/// The accounts open on this node: shared by all sessions, evicted under a memory budget. Cheap to clone.
#[derive(Clone)]
pub struct Accounts {
    _store: Arc<dyn Store>,
}

fn later<T>() -> Result<T, AccountError> {
    Err(StoreError::Unavailable("not built".to_owned()).into())
}

#[allow(unused_variables, missing_docs)]
impl Accounts {
    pub fn new(store: Arc<dyn Store>, config: AccountsConfig) -> Self {
        Self { _store: store }
    }

    /// Opens an account; makes INBOX and the role mailboxes on first use.
    pub async fn open(&self, id: AccountId) -> Result<Account, AccountError> {
        later()
    }

    /// One bounded background step: deletes rows of messages expunged longer ago than the grace period.
    pub async fn sweep(&self) -> Result<(), AccountError> {
        later()
    }
}

/// One open account. Cheap to clone.
#[derive(Clone)]
pub struct Account {
    id: AccountId,
    state: Arc<AccountState>,
    watch: tokio::sync::watch::Receiver<Seq>,
}

#[allow(unused_variables, missing_docs)]
impl Account {
    /// Its id.
    pub fn id(&self) -> AccountId {
        self.id
    }

    /// The latest state applied here; no I/O.
    pub fn current(&self) -> Arc<AccountState> {
        self.state.clone()
    }

    /// The state, caught up with the store.
    pub async fn refresh(&self) -> Result<Arc<AccountState>, AccountError> {
        later()
    }

    /// Changes when a commit was applied here.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Seq> {
        self.watch.clone()
    }

    pub async fn chunk(&self, slot: &Slot) -> Result<Arc<Chunk>, AccountError> {
        later()
    }

    pub async fn append(&self, mailbox: MailboxId, messages: &[AppendItem]) -> Result<Vec<Appended>, AccountError> {
        later()
    }

    pub async fn store_flags(
        &self,
        mailbox: MailboxId,
        uids: &UidSet,
        change: FlagChange,
        flags: &FlagNames,
        unchanged_since: Option<Seq>,
    ) -> Result<Stored, AccountError> {
        later()
    }

    pub async fn copy(&self, from: MailboxId, uids: &UidSet, to: MailboxId) -> Result<Copied, AccountError> {
        later()
    }

    pub async fn move_to(&self, from: MailboxId, uids: &UidSet, to: MailboxId) -> Result<Copied, AccountError> {
        later()
    }

    pub async fn expunge(&self, mailbox: MailboxId, only: Option<&UidSet>) -> Result<Vec<Uid>, AccountError> {
        later()
    }

    pub async fn create(&self, name: &str, role: Option<Role>) -> Result<MailboxId, AccountError> {
        later()
    }

    pub async fn delete(&self, name: &str) -> Result<(), AccountError> {
        later()
    }

    pub async fn rename(&self, from: &str, to: &str) -> Result<(), AccountError> {
        later()
    }

    pub async fn subscribe(&self, name: &str, on: bool) -> Result<(), AccountError> {
        later()
    }

    pub async fn set_quota(&self, bytes: u64) -> Result<(), AccountError> {
        later()
    }

    pub fn claim_recent(&self, mailbox: MailboxId) -> Uid {
        Uid(NonZeroU32::MIN)
    }

    pub async fn row(&self, email: EmailId) -> Result<Arc<MessageRow>, AccountError> {
        later()
    }

    pub async fn rows(&self, emails: &[EmailId]) -> Result<Vec<Option<Arc<MessageRow>>>, AccountError> {
        later()
    }

    pub async fn octets(&self, email: EmailId, row: &MessageRow, range: Range<u64>) -> Result<Bytes, AccountError> {
        later()
    }
}
