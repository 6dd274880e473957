//! Delivery of one message to accounts' inboxes; to several: intent first, then idempotent steps.
//!
//! For one recipient the commit is all: row, octets and journal entry in one write. For several, the first
//! recipient's row and octets are put together with an *intent* that names all of them; then every account is
//! committed to, concurrently, so that they share flushes; then the intent is removed. What a crash or a failing
//! store left is finished by [`Delivery::sweep`], which takes the message from the first recipient's rows; an account
//! remembers the last deliveries made to it, so that none is made twice.
//!
//! What the sender is told: once the intent is durable, a recipient for whom the store fails is promised
//! ([`AccountError::Deferred`]): that counts as accepted, and a sender told otherwise would send a second copy. If the
//! account is full when its turn comes, the message waits for room as long as intents are tried. Who is
//! refused for good (over quota, say) is taken off the intent and told so, whatever became of the others: per
//! recipient in LMTP; in SMTP, which has one answer for all, by an early refusal where that can be. After a crash the
//! sender was told nothing and sends again: a second copy for everybody, which RFC 5321 §6.1 prefers to a lost one.
//!
//! Whether an account still has a name is the directory's knowledge, and not asked here. Removing an account takes its
//! name away and keeps its data, under an id that is never given again. A delivery that was asked for before that and
//! commits after it is stored with the rest of the removed account's mail, as if it had come a moment earlier: what was
//! acknowledged is there, and is never seen by whoever gets the name next. Should data ever be erased, an account has to
//! be closed first by a change of its own, since only its own journal puts the end and the deliveries in one order.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::account::stage::{DeliveryId, Prepared, Source};
use crate::account::{Account, AccountError, AccountId, Accounts, Appended, FlagNames, MailboxId, NewMessage, Role};
use crate::message::EmailId;
use crate::wide::{Batch, Order, StoreError, Table};

/// Accounts committed to at one time for one message.
const ACCOUNTS_AT_ONCE: usize = 64;
/// Intents finished by one sweep.
const INTENTS_MAX: usize = 256;
/// For how long an intent is tried, days.
const DAYS_MAX: u32 = 7;
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// Delivers messages to accounts' inboxes. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    accounts: Accounts,
    /// Deliveries this process is at: not for its sweep.
    at_work: Arc<Mutex<HashSet<DeliveryId>>>,
}

/// What is promised, and where the message is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Intent {
    id: DeliveryId,
    received_at_ms: i64,
    /// Whose rows hold the message.
    holder: AccountId,
    /// The holder itself was refused: its rows are only lent, and deleted at the end.
    lent: bool,
    /// Who is still to receive it.
    to: Vec<AccountId>,
}

impl Intent {
    /// The message's id in an account: the same at each try, so that what a failed one wrote is written over.
    fn email(&self, account: AccountId) -> EmailId {
        let name = [self.id.0.to_be_bytes().as_slice(), &account.0.to_be_bytes()].concat();
        let mut random = [0; 16];
        random.copy_from_slice(&blake3::hash(&name).as_bytes()[..16]);
        EmailId::new(self.received_at_ms, u128::from_be_bytes(random))
    }

    fn place(&self) -> (Bytes, Bytes) {
        (partition(day(self.received_at_ms)), Bytes::copy_from_slice(&self.id.0.to_be_bytes()))
    }

    fn encode(&self) -> Bytes {
        let mut out = vec![1, self.lent.into()];
        out.extend_from_slice(&self.received_at_ms.to_be_bytes());
        for account in std::iter::once(&self.holder).chain(&self.to) {
            out.extend_from_slice(&account.0.to_be_bytes());
        }
        out.into()
    }

    fn decode(id: &[u8], bytes: &[u8]) -> Option<Self> {
        let id = DeliveryId(u128::from_be_bytes(id.try_into().ok()?));
        let (lent, rest) = bytes.strip_prefix(&[1])?.split_first()?;
        let (received, accounts) = rest.split_first_chunk()?;
        let (accounts, rest) = accounts.as_chunks();
        let mut accounts = accounts.iter().map(|account| AccountId(u64::from_be_bytes(*account)));
        let holder = accounts.next().filter(|_| rest.is_empty())?;
        Some(Self {
            id,
            received_at_ms: i64::from_be_bytes(*received),
            holder,
            lent: *lent != 0,
            to: accounts.collect(),
        })
    }

    fn put(&self, batch: &mut Batch) {
        let (partition, key) = self.place();
        batch.put(Table::Intent, partition, key, self.encode());
    }

    fn delete(&self, batch: &mut Batch) {
        let (partition, key) = self.place();
        batch.delete(Table::Intent, partition, key);
    }
}

fn day(at_ms: i64) -> u32 {
    u32::try_from(at_ms / DAY_MS).unwrap_or(0)
}

fn partition(day: u32) -> Bytes {
    [b"deliver".as_slice(), &day.to_be_bytes()].concat().into()
}

/// True if trying again may help.
fn is_temporary(error: &AccountError) -> bool {
    matches!(error, AccountError::Store(_) | AccountError::Corrupt(_))
}

impl Delivery {
    /// Delivers to these accounts.
    pub fn new(accounts: Accounts) -> Self {
        Self { accounts, at_work: Arc::default() }
    }

    /// Delivers `message` to every account's INBOX: one result per recipient, in order; durable on return.
    ///
    /// # Errors
    ///
    /// Per recipient: `OverQuota`, `Store`; and [`AccountError::Deferred`], which counts as accepted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take a delivery to several accounts back.
    pub async fn deliver(&self, message: Arc<NewMessage>, to: &[AccountId]) -> Vec<Result<Appended, AccountError>> {
        let results = match to {
            [] => Vec::new(),
            [account] => vec![self.deliver_to_one(&message, *account).await],
            _ => {
                let count = to.len();
                let (this, to) = (self.clone(), to.to_vec());
                let task = tokio::spawn(async move { this.deliver_to_many(&message, &to).await });
                task.await.unwrap_or_else(|error| {
                    let failed = || StoreError::Unavailable(format!("a delivery was cut short: {error}"));
                    (0..count).map(|_| Err(failed().into())).collect()
                })
            }
        };
        for result in &results {
            let outcome = match result {
                Ok(_) => "delivered",
                Err(AccountError::Deferred) => "deferred",
                Err(error) if is_temporary(error) => "failed",
                Err(_) => "refused",
            };
            metrics::counter!("posthouse_deliveries_total", "outcome" => outcome).increment(1);
        }
        results
    }

    async fn deliver_to_one(&self, message: &NewMessage, account: AccountId) -> Result<Appended, AccountError> {
        let account = self.accounts.open(account).await?;
        let inbox = inbox(&account)?;
        account.can_append(inbox, message.size())?;
        let email = EmailId::new(self.accounts.now_ms(), rand::random());
        let prepared = account.prepare_from(&Source::New(message), email, FlagNames::default(), None).await?;
        first(account.append_prepared(inbox, vec![prepared]).await?)
    }

    async fn deliver_to_many(&self, message: &NewMessage, to: &[AccountId]) -> Vec<Result<Appended, AccountError>> {
        // Who cannot receive it is found before anything is promised.
        let opened = stream::iter(to.to_vec()).map(|account| async move {
            let account = self.accounts.open(account).await?;
            account.can_append(inbox(&account)?, message.size())?;
            Ok::<_, AccountError>(account)
        });
        let opened: Vec<Result<Account, AccountError>> = opened.buffered(ACCOUNTS_AT_ONCE).collect().await;
        let Some(holder) = opened.iter().flatten().next().cloned() else {
            return opened.into_iter().map(|refused| refused.and(Err(AccountError::NoMailbox))).collect();
        };
        let intent = Intent {
            id: DeliveryId(rand::random()),
            received_at_ms: self.accounts.now_ms(),
            holder: holder.id(),
            lent: false,
            to: opened.iter().flatten().map(Account::id).collect(),
        };
        let _at_work = AtWork::new(self, intent.id);
        let mut held = match self.promise(&intent, &holder, message).await {
            Ok(held) => Some(held),
            Err(error) => {
                let failed = || Err(StoreError::Unavailable(error.to_string()).into());
                return opened.into_iter().map(|opened| opened.and_then(|_| failed())).collect();
            }
        };
        let mut steps = Vec::with_capacity(opened.len());
        for opened in opened {
            steps.push(opened.map(|account| {
                let held = if account.id() == holder.id() { held.take() } else { None };
                (account, held)
            }));
        }
        let (source, this) = (&Source::New(message), &intent);
        let results = stream::iter(steps).map(|step| async move {
            let (account, held) = step?;
            self.step(this, &account, source, held).await
        });
        let mut results: Vec<Result<Appended, AccountError>> = results.buffered(ACCOUNTS_AT_ONCE).collect().await;
        let promised = intent.to.clone();
        let outcomes = to.iter().copied().zip(&results).filter(|(account, _)| promised.contains(account));
        let write = self.conclude(&intent, &holder, message.size(), outcomes, Told::Yes);
        for (account, result) in to.iter().zip(&mut results) {
            if promised.contains(account) && result.as_ref().is_err_and(is_temporary) {
                *result = Err(AccountError::Deferred);
            }
        }
        // An intent that stays too long is only looked at in vain: nobody need wait for its removal.
        let store = self.accounts.store().clone();
        tokio::spawn(async move {
            if let Err(error) = store.put(write).await {
                tracing::debug!(%error, "an intent is left to the sweep");
            }
        });
        results
    }

    /// One recipient's step; harmless to repeat.
    async fn step(
        &self,
        intent: &Intent,
        account: &Account,
        source: &Source<'_>,
        held: Option<Prepared>,
    ) -> Result<Appended, AccountError> {
        let prepared = match held {
            Some(held) => held,
            None => {
                let email = intent.email(account.id());
                account.prepare_from(source, email, FlagNames::default(), Some(intent.id)).await?
            }
        };
        first(account.append_prepared(inbox(account)?, vec![prepared]).await?)
    }

    /// What is left of an intent after its steps: nothing, or those for whom the store failed, or who filled up after
    /// their message was promised.
    fn conclude<'a, T: 'a>(
        &self,
        intent: &Intent,
        holder: &Account,
        size: u64,
        outcomes: impl Iterator<Item = (AccountId, &'a Result<T, AccountError>)>,
        told: Told,
    ) -> Batch {
        let mut rest = Intent { to: Vec::new(), ..intent.clone() };
        for (account, outcome) in outcomes {
            match outcome {
                Ok(_) => {}
                Err(error) if is_temporary(error) => {
                    tracing::warn!(account = account.0, %error, "a promised delivery has to be tried again");
                    rest.to.push(account);
                }
                Err(error @ AccountError::OverQuota { .. }) if told == Told::No => {
                    // The sender was told that it is taken: it waits for room.
                    tracing::warn!(account = account.0, %error, "a promised delivery waits for room");
                    rest.to.push(account);
                }
                Err(error) => {
                    tracing::info!(account = account.0, %error, "a promised delivery was refused");
                    rest.lent |= account == intent.holder;
                }
            }
        }
        let mut batch = Batch::default();
        if !rest.to.is_empty() {
            rest.put(&mut batch);
        } else {
            if rest.lent {
                holder.delete_message(&mut batch, intent.email(holder.id()), size);
            }
            intent.delete(&mut batch);
        }
        batch
    }

    /// Makes the intent durable, with the message in its holder's rows.
    async fn promise(&self, intent: &Intent, holder: &Account, message: &NewMessage) -> Result<Prepared, AccountError> {
        let email = intent.email(holder.id());
        let source = Source::New(message);
        let mut held = holder.prepare_from(&source, email, FlagNames::default(), Some(intent.id)).await?;
        let mut batch = std::mem::take(&mut held.first);
        intent.put(&mut batch);
        held.spilled.iter().for_each(|spilled| spilled.unmark(&mut batch));
        let put = self.accounts.store().put(batch).await;
        let spilled = held.spilled.take();
        if let Err(error) = put {
            // It may be there all the same; then a sweep delivers what the sender was not told of, and he repeats it.
            let mut batch = Batch::default();
            intent.delete(&mut batch);
            holder.delete_message(&mut batch, email, message.size());
            if let Err(error) = self.accounts.store().put(batch).await {
                tracing::debug!(%error, "a failed promise is left to the sweep");
            }
            holder.discard(spilled).await;
            return Err(error.into());
        }
        Ok(held)
    }

    /// Finishes what a crash or a failing store left: at start-up, and every minute or so after.
    ///
    /// # Errors
    ///
    /// `Store`, when the intents cannot be read; one that cannot be finished yet is left for the next time.
    pub async fn sweep(&self) -> Result<(), AccountError> {
        let today = day(self.accounts.now_ms());
        for day in today.saturating_sub(DAYS_MAX)..=today {
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            let rows =
                self.accounts.store().scan(Table::Intent, &partition(day), all, Order::Forward, INTENTS_MAX).await?;
            for (key, value) in rows {
                let Some(intent) = Intent::decode(&key, &value) else {
                    tracing::error!(?key, "an intent to deliver cannot be read");
                    continue;
                };
                if self.at_work().contains(&intent.id) {
                    continue;
                }
                let _at_work = AtWork::new(self, intent.id);
                if let Err(error) = self.finish(&intent).await {
                    tracing::warn!(holder = intent.holder.0, %error, "a delivery could not be finished yet");
                }
            }
        }
        Ok(())
    }

    async fn finish(&self, intent: &Intent) -> Result<(), AccountError> {
        let holder = self.accounts.open(intent.holder).await?;
        let email = intent.email(holder.id());
        let row = match holder.row(email).await {
            Err(AccountError::NoMessage) => {
                // Its first recipient expunged it and the grace period is over: nothing is left to deliver.
                tracing::error!(holder = holder.id().0, "a promised delivery lost its message");
                let mut batch = Batch::default();
                intent.delete(&mut batch);
                return Ok(self.accounts.store().put(batch).await?);
            }
            row => row?,
        };
        let source = &Source::Stored(&holder, email, &row);
        let (holder_, row_) = (&holder, &row);
        let results = stream::iter(intent.to.clone()).map(|account| async move {
            let account = self.accounts.open(account).await?;
            if account.refresh().await?.has_delivery(intent.id) {
                return Ok(());
            }
            let is_holder = account.id() == holder_.id();
            let held = is_holder.then(|| Prepared::stored(email, row_.clone(), intent.id));
            self.step(intent, &account, source, held).await.map(drop)
        });
        let results: Vec<Result<(), AccountError>> = results.buffered(ACCOUNTS_AT_ONCE).collect().await;
        let outcomes = intent.to.iter().copied().zip(&results);
        let batch = self.conclude(intent, &holder, row.size, outcomes, Told::No);
        Ok(self.accounts.store().put(batch).await?)
    }

    fn at_work(&self) -> MutexGuard<'_, HashSet<DeliveryId>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the sender hears of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It is the answer to the delivery.
    Yes,
    /// The answer was given before, and was a promise; or it never came.
    No,
}

/// Marks a delivery as being worked at.
struct AtWork<'a>(&'a Delivery, DeliveryId);

impl<'a> AtWork<'a> {
    fn new(delivery: &'a Delivery, id: DeliveryId) -> Self {
        delivery.at_work().insert(id);
        Self(delivery, id)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.at_work().remove(&self.1);
    }
}

fn inbox(account: &Account) -> Result<MailboxId, AccountError> {
    account.current().by_role(Role::Inbox).map(|inbox| inbox.id).ok_or(AccountError::NoMailbox)
}

fn first(appended: Vec<Appended>) -> Result<Appended, AccountError> {
    appended.into_iter().next().ok_or(AccountError::NoMessage)
}

#[cfg(test)]
mod tests;
