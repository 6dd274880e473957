//! Delivery of one message to several accounts: intent first, then idempotent steps.

use std::sync::Arc;

use crate::account::{AccountError, AccountId, Accounts, Appended};
use crate::message::NewMessage;
use crate::wide::StoreError;

/// Delivers messages to accounts' inboxes. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    accounts: Accounts,
}

#[allow(missing_docs)]
impl Delivery {
    pub fn new(accounts: Accounts) -> Self {
        Self { accounts }
    }

    /// Delivers `message` to every account's INBOX: one result per recipient, in order; durable on return.
    pub async fn deliver(&self, _message: Arc<NewMessage>, to: &[AccountId]) -> Vec<Result<Appended, AccountError>> {
        to.iter().map(|_| Err(StoreError::Unavailable("not built".to_owned()).into())).collect()
    }

    /// Finishes what a crash or a failing store left unfinished.
    pub async fn sweep(&self) -> Result<(), AccountError> {
        self.accounts.sweep().await
    }
}
