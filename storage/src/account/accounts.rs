//! The accounts open on this node.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};

use super::journal::{Journal, Journals};
use super::rows::RowCache;
use super::slot::Residency;
use super::state::CHUNK_MAX;
use super::{Account, AccountError, AccountId};
use crate::group::GroupConfig;
use crate::wide::{Batch, Store};

/// Accounts settled at one time: enough that they share flushes.
const SETTLED_AT_ONCE: usize = 64;

/// Bounds and defaults of accounts.
#[derive(Debug, Clone)]
pub struct AccountsConfig {
    /// Memory for the accounts' state and for message rows read lately, bytes.
    pub memory_bytes: usize,
    /// Quota of a new account, bytes; 0 = none.
    pub default_quota_bytes: u64,
    /// How long an expunged message's octets stay readable for sessions that still show it.
    pub grace: Duration,
    /// Other nodes work on the same store: [`Account::refresh`] asks it.
    pub shared: bool,
}

impl Default for AccountsConfig {
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, default_quota_bytes: 0, grace: Duration::from_secs(3600), shared: false }
    }
}

/// The accounts open on this node: shared by all sessions, evicted under a memory budget. Cheap to clone.
#[derive(Clone)]
pub struct Accounts {
    pub(super) shared: Arc<Shared>,
}

/// What all accounts of a node share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: AccountsConfig,
    pub(super) journals: Journals,
    pub(super) rows: RowCache,
    clock: Clock,
}

/// Milliseconds since 1970.
type Clock = Box<dyn Fn() -> i64 + Send + Sync>;

impl Shared {
    pub(super) fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    pub(super) fn now_secs(&self) -> u32 {
        // Good until 2106; from then on uidvalidities go on counting and graves are swept late.
        u32::try_from(self.now_ms() / 1_000).unwrap_or(u32::MAX)
    }
}

impl Accounts {
    /// The accounts in `store`.
    pub fn new(store: Arc<dyn Store>, config: AccountsConfig) -> Self {
        let group = GroupConfig { shared: config.shared, ..GroupConfig::default() };
        Self::with(store, config, CHUNK_MAX, group, || {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// With chunks of another size and other journals (the same on all nodes of a store), and another clock.
    pub(super) fn with(
        store: Arc<dyn Store>,
        config: AccountsConfig,
        chunk_max: usize,
        group: GroupConfig,
        clock: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Self {
        // Half for chunks, a quarter for what journals hold, a quarter for rows.
        let residency = Arc::new(Residency::new(config.memory_bytes / 2));
        let journals = Journals::new(store.clone(), residency, chunk_max, group, config.memory_bytes / 4);
        let rows = RowCache::new(config.memory_bytes / 4);
        Self { shared: Arc::new(Shared { store, config, journals, rows, clock: Box::new(clock) }) }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// Before the store is closed: the accounts open here leave checkpoints, so that they open fast again. At most so
    /// long; nothing is lost where it does not come to it.
    pub(crate) async fn settle(&self, time_max: Duration) {
        let journals = stream::iter(self.shared.journals.all());
        let settled = journals.for_each_concurrent(SETTLED_AT_ONCE, |journal| async move {
            if let Err(error) = journal.settle().await {
                tracing::debug!(%error, "an account is closed without a checkpoint");
            }
        });
        if tokio::time::timeout(time_max, settled).await.is_err() {
            tracing::debug!("some accounts are closed without a checkpoint");
        }
    }

    /// Opens an account; makes INBOX and the role mailboxes on first use.
    ///
    /// # Errors
    ///
    /// Only [`AccountError::Store`] and [`AccountError::Corrupt`].
    pub async fn open(&self, id: AccountId) -> Result<Account, AccountError> {
        let journal: Journal = self.shared.journals.open(id).await?;
        if journal.current().mailboxes.is_empty() {
            let (now, quota) = (self.shared.now_secs(), self.shared.config.default_quota_bytes);
            journal.change(Batch::default(), move |state| state.decide_first(now, quota)).await?;
        }
        Ok(Account::new(id, journal, self.shared.clone()))
    }
}
