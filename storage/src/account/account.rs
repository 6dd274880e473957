//! One open account: its state, and the operations that change it.
//!
//! Each operation is one commit, also when it is about many messages, and is durable when it returns. Dropping its
//! future does not take it back: it may still be carried out.

use std::sync::Arc;

use super::accounts::Shared;
use super::decide::{Item, Place};
use super::journal::{Failed, Journal};
use super::write::{Prepared, Spilled};
use super::*;
use crate::group::Halt;
use crate::wide::Batch;

/// One open account. Cheap to clone; it stays in memory as long as a clone does.
#[derive(Clone)]
pub struct Account {
    id: AccountId,
    pub(super) journal: Journal,
    pub(super) shared: Arc<Shared>,
}

impl Account {
    pub(super) fn new(id: AccountId, journal: Journal, shared: Arc<Shared>) -> Self {
        Self { id, journal, shared }
    }

    /// Its id.
    pub fn id(&self) -> AccountId {
        self.id
    }

    /// The latest state applied here; no I/O.
    pub fn current(&self) -> Arc<AccountState> {
        self.journal.current()
    }

    /// The state, caught up with what any node committed before this call.
    ///
    /// # Errors
    ///
    /// Only [`AccountError::Store`] and [`AccountError::Corrupt`].
    pub async fn refresh(&self) -> Result<Arc<AccountState>, AccountError> {
        self.journal.refresh().await
    }

    /// Changes when a commit is applied here; its value is the state's `seq`.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Seq> {
        self.journal.watch()
    }

    /// The entries of a slot of this account, loaded if they are not in memory.
    ///
    /// # Errors
    ///
    /// [`AccountError::Store`]: also when the slot is of a state so old that its entries were given up; take a newer.
    pub async fn chunk(&self, slot: &Arc<Slot>) -> Result<Arc<Chunk>, AccountError> {
        match slot.resident() {
            Some(chunk) => Ok(chunk),
            None => Ok(self.journal.machine().chunk(&*self.shared.store, slot).await?),
        }
    }

    /// Adds messages to a mailbox, all or none.
    ///
    /// # Errors
    ///
    /// `NoMailbox`, `OverQuota`, `TooMany` (keywords, or a message of 4 GiB or more) and `BadKeyword` before anything
    /// is written; `Store`.
    pub async fn append(&self, mailbox: MailboxId, messages: &[AppendItem]) -> Result<Vec<Appended>, AccountError> {
        let size = messages.iter().map(|item| item.message.size()).sum();
        self.can_append(mailbox, size)?;
        let mut prepared = Vec::with_capacity(messages.len());
        for item in messages {
            prepared.push(self.prepare(item).await?);
        }
        self.append_prepared(mailbox, prepared).await
    }

    /// Refuses early what would be refused after the octets are written.
    pub(crate) fn can_append(&self, mailbox: MailboxId, size: u64) -> Result<(), AccountError> {
        let state = self.current();
        if !state.mailboxes.get(&mailbox).is_some_and(|mailbox| mailbox.selectable) {
            return Err(AccountError::NoMailbox);
        }
        match state.has_room(size) {
            Err(Halt::Refused(error)) => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) async fn append_prepared(
        &self,
        mailbox: MailboxId,
        prepared: Vec<Prepared>,
    ) -> Result<Vec<Appended>, AccountError> {
        let mut first = Batch::default();
        let mut items: Vec<Item> = Vec::with_capacity(prepared.len());
        let mut spilled: Vec<Spilled> = Vec::new();
        let mut rows = Vec::with_capacity(prepared.len());
        for message in prepared {
            rows.push((message.item.email, message.row));
            spilled.extend(message.spilled);
            first.writes.extend(message.first.writes);
            items.push(message.item);
        }
        let done = self.journal.change(first, move |state| state.decide_append(mailbox, &items)).await;
        let (places, seq) = match done {
            Ok(done) => done,
            Err(failed) => {
                if let Failed::Refused(_) = failed {
                    self.discard(spilled).await;
                }
                return Err(failed.into());
            }
        };
        let mut unmark = Batch::default();
        spilled.iter().for_each(|spilled| spilled.unmark(&mut unmark));
        if !unmark.is_empty() {
            let store = self.shared.store.clone();
            // A mark that stays costs a sweep a look, nothing else: nobody need wait.
            tokio::spawn(async move {
                if let Err(error) = store.put(unmark).await {
                    tracing::debug!(%error, "the mark of a big message is left to the sweep");
                }
            });
        }
        for (email, row) in rows {
            self.shared.rows.insert(self.id, email, row);
        }
        let appended = |Place { uid_validity, uid, email }| Appended { mailbox, uid_validity, uid, email, seq };
        Ok(places.into_iter().map(appended).collect())
    }

    /// Changes flags of those of `uids` that are there.
    ///
    /// # Errors
    ///
    /// `NoMailbox`, `TooMany` keywords, `BadKeyword`, `Store`.
    pub async fn store_flags(
        &self,
        mailbox: MailboxId,
        uids: &UidSet,
        change: FlagChange,
        flags: &FlagNames,
        unchanged_since: Option<Seq>,
    ) -> Result<Stored, AccountError> {
        let (uids, flags) = (uids.sorted().into_owned(), flags.clone());
        let decide = move |state: &AccountState| state.decide_store(mailbox, &uids, change, &flags, unchanged_since);
        let (stored, seq) = self.journal.change(Batch::default(), decide).await?;
        Ok(Stored { seq, ..stored })
    }

    /// Adds those of `uids` that are there to another mailbox, or again to the same.
    ///
    /// # Errors
    ///
    /// `NoMailbox` for either, `OverQuota`, `Store`.
    pub async fn copy(&self, from: MailboxId, uids: &UidSet, to: MailboxId) -> Result<Copied, AccountError> {
        self.transfer(from, uids, to, false).await
    }

    /// Moves those of `uids` that are there to another mailbox; within a mailbox it gives them new uids (RFC 6851
    /// §3.3).
    ///
    /// # Errors
    ///
    /// `NoMailbox` for either, `Store`.
    pub async fn move_to(&self, from: MailboxId, uids: &UidSet, to: MailboxId) -> Result<Copied, AccountError> {
        self.transfer(from, uids, to, true).await
    }

    async fn transfer(
        &self,
        from: MailboxId,
        uids: &UidSet,
        to: MailboxId,
        moving: bool,
    ) -> Result<Copied, AccountError> {
        let uids = uids.sorted().into_owned();
        let decide = move |state: &AccountState| {
            let (changes, pairs) = state.decide_transfer(from, &uids, to, moving)?;
            // Decided on the same state, so that it is the validity of these very uids.
            let uid_validity = state.mailboxes.get(&to).map(|mailbox| mailbox.uid_validity);
            Ok((changes, (pairs, uid_validity.unwrap_or(NonZeroU32::MIN))))
        };
        let ((pairs, uid_validity), seq) = self.journal.change(Batch::default(), decide).await?;
        Ok(Copied { uid_validity, pairs, seq })
    }

    /// Removes the messages with \Deleted, of `only` those, and returns their uids.
    ///
    /// # Errors
    ///
    /// `NoMailbox`, `Store`.
    pub async fn expunge(&self, mailbox: MailboxId, only: Option<&UidSet>) -> Result<Vec<Uid>, AccountError> {
        let only = only.map(|uids| uids.sorted().into_owned());
        let now = self.shared.now_secs();
        let (first, hour) = self.doom(now);
        let decide = move |state: &AccountState| state.decide_expunge(now, mailbox, only.as_ref());
        let (gone, _) = self.journal.change(first, decide).await?;
        if !gone.is_empty() {
            self.doomed(hour);
        }
        Ok(gone)
    }

    /// Makes a mailbox, and those above it that do not exist.
    ///
    /// # Errors
    ///
    /// `MailboxExists`, `BadName`, `RoleTaken`, `TooMany` mailboxes, `Store`.
    pub async fn create(&self, name: &str, role: Option<Role>) -> Result<MailboxId, AccountError> {
        let (name, now) = (name.to_owned(), self.shared.now_secs());
        Ok(self.journal.change(Batch::default(), move |state| state.decide_create(now, &name, role)).await?.0)
    }

    /// Removes a mailbox with its messages; its name stays, \Noselect, if there are mailboxes below it.
    ///
    /// # Errors
    ///
    /// `NoMailbox`, `Inbox`, `HasChildren` (for a name that is only there for these), `Store`.
    pub async fn delete(&self, name: &str) -> Result<(), AccountError> {
        let (name, now) = (name.to_owned(), self.shared.now_secs());
        let (first, hour) = self.doom(now);
        self.journal.change(first, move |state| state.decide_delete(now, &name)).await?;
        self.doomed(hour);
        Ok(())
    }

    /// Renames a mailbox; those below move along. Renaming the inbox moves its messages to a new mailbox.
    ///
    /// # Errors
    ///
    /// `NoMailbox`, `MailboxExists`, `BadName`, `TooMany` mailboxes, `Store`.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), AccountError> {
        let (from, to, now) = (from.to_owned(), to.to_owned(), self.shared.now_secs());
        self.journal.change(Batch::default(), move |state| state.decide_rename(now, &from, &to)).await?;
        Ok(())
    }

    /// Subscribes to a name or no longer; it need not exist.
    ///
    /// # Errors
    ///
    /// `BadName`, `TooMany` subscriptions, `Store`.
    pub async fn subscribe(&self, name: &str, on: bool) -> Result<(), AccountError> {
        let name = name.to_owned();
        self.journal.change(Batch::default(), move |state| state.decide_subscribe(&name, on)).await?;
        Ok(())
    }

    /// Sets the quota, bytes; 0 = none. What is over it already stays.
    ///
    /// # Errors
    ///
    /// `Store`.
    pub async fn set_quota(&self, bytes: u64) -> Result<(), AccountError> {
        self.journal.change(Batch::default(), move |state| state.decide_quota(bytes)).await?;
        Ok(())
    }

    /// Gives the caller all messages that no session had as \Recent yet: those from the uid returned on.
    ///
    /// On this node no message is given twice; that others learn of it follows in the background, so after a crash, or
    /// on two nodes at the same moment, a message may be \Recent twice (RFC 3501 §2.3.2 allows it).
    pub fn claim_recent(&self, mailbox: MailboxId) -> Uid {
        let state = self.current();
        let Some(at) = state.mailboxes.get(&mailbox) else { return Uid(NonZeroU32::MIN) };
        let (from, upto) = (at.recent_from, at.uid_next);
        let mut claims = self.journal.claims();
        let claimed = claims.entry(mailbox).or_insert(from);
        let first = from.max(*claimed);
        if upto <= first {
            return first;
        }
        *claimed = upto;
        drop(claims);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let journal = self.journal.clone();
            runtime.spawn(async move {
                let done = journal.change(Batch::default(), move |state| state.decide_recent(mailbox, upto)).await;
                if let Err(Failed::Store(error)) = done {
                    // The claim holds on this node; elsewhere the messages are \Recent once more.
                    tracing::debug!(%error, "a claim of recent messages was not recorded");
                }
            });
        }
        first
    }
}
