//! The entity groups of the accounts open on this node: one for each, kept while it is used and while there is room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, watch};

use super::decide::Decided;
use super::machine::AccountMachine;
use super::slot::Residency;
use super::{AccountError, AccountId, AccountState, MailboxId, Uid};
use crate::group::{ChangeError, Group, GroupConfig, Seq};
use crate::wide::{Batch, Store, StoreError};

/// One account's group, and what this node alone remembers of it.
#[derive(Clone)]
pub(super) struct Journal(Arc<Open>);

struct Open {
    group: Arc<Group<AccountMachine>>,
    claims: Mutex<HashMap<MailboxId, Uid>>,
    /// The last hour for which it was noted that something is to be swept.
    noted_hour: AtomicU32,
}

impl Journal {
    pub(super) fn machine(&self) -> &AccountMachine {
        self.0.group.machine()
    }

    pub(super) fn current(&self) -> Arc<AccountState> {
        self.0.group.current().state.clone()
    }

    pub(super) async fn refresh(&self) -> Result<Arc<AccountState>, AccountError> {
        Ok(self.0.group.refresh().await.map_err(stored)?.state.clone())
    }

    pub(super) fn watch(&self) -> watch::Receiver<Seq> {
        self.0.group.watch()
    }

    /// Up to which uid messages were given to sessions of this node as \Recent.
    pub(super) fn claims(&self) -> MutexGuard<'_, HashMap<MailboxId, Uid>> {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves little of its journal to be read by whoever opens it next.
    pub(super) async fn settle(&self) -> Result<(), AccountError> {
        self.0.group.settle().await.map_err(stored)
    }

    pub(super) fn noted_hour(&self) -> &AtomicU32 {
        &self.0.noted_hour
    }

    /// Records what `decide` comes to over the latest state; `first` is durable with it.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        first: Batch,
        mut decide: impl FnMut(&AccountState) -> Decided<T> + Send + 'static,
    ) -> Result<(T, Seq), Failed> {
        let done = self.0.group.change(first, move |draft| {
            let (changes, answer) = decide(draft.state())?;
            changes.into_iter().try_for_each(|change| draft.emit(change))?;
            Ok(answer)
        });
        done.await.map_err(|error| match error {
            ChangeError::Refused(error) => Failed::Refused(error),
            ChangeError::Store(error) => Failed::Store(error),
            ChangeError::Unknown => Failed::Store(StoreError::Unavailable("the outcome is not known".to_owned())),
        })
    }
}

/// How a change failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// For good: nothing was changed.
    Refused(AccountError),
    /// The store failed; the change may even have been made.
    Store(StoreError),
}

impl From<Failed> for AccountError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(error) => error,
            Failed::Store(error) => stored(error),
        }
    }
}

fn stored(error: StoreError) -> AccountError {
    match error {
        StoreError::Corrupt(what) => AccountError::Corrupt(what),
        error => AccountError::Store(error),
    }
}

/// The registry.
pub(super) struct Journals {
    store: Arc<dyn Store>,
    residency: Arc<Residency>,
    chunk_max: usize,
    config: GroupConfig,
    bytes_max: usize,
    open: Mutex<Registry>,
    ticks: AtomicU64,
}

#[derive(Default)]
struct Registry {
    accounts: HashMap<AccountId, Kept>,
    /// Openings since it was last looked whether they all fit.
    opened: usize,
}

struct Kept {
    journal: Arc<OnceCell<Journal>>,
    /// When it was last asked for, in openings.
    used: u64,
}

/// What an open account takes besides its chunks and slots: its group, its mailboxes, allocations.
const ACCOUNT_BYTES: usize = 6 * 1024;
/// What a slot takes besides the entries.
const SLOT_BYTES: usize = 144;

impl Journals {
    pub(super) fn new(
        store: Arc<dyn Store>,
        residency: Arc<Residency>,
        chunk_max: usize,
        config: GroupConfig,
        bytes_max: usize,
    ) -> Self {
        Self { store, residency, chunk_max, config, bytes_max, open: Mutex::default(), ticks: AtomicU64::new(0) }
    }

    /// The account's journal, opened if it is not.
    pub(super) async fn open(&self, id: AccountId) -> Result<Journal, AccountError> {
        let used = self.ticks.fetch_add(1, Ordering::Relaxed);
        let cell = {
            let mut registry = self.registry();
            if !registry.accounts.contains_key(&id) {
                self.make_room(&mut registry);
            }
            let kept = registry.accounts.entry(id).or_insert_with(|| Kept { journal: Arc::default(), used });
            kept.used = used;
            kept.journal.clone()
        };
        let opened = cell.get_or_try_init(|| async {
            let machine = AccountMachine::new(id, self.chunk_max, self.residency.clone());
            let group = Group::open(machine, self.store.clone(), self.config.clone()).await?;
            let open = Open { group, claims: Mutex::default(), noted_hour: AtomicU32::new(0) };
            Ok::<_, StoreError>(Journal(Arc::new(open)))
        });
        opened.await.cloned().map_err(stored)
    }

    /// The journals in memory now.
    pub(super) fn all(&self) -> Vec<Journal> {
        self.registry().accounts.values().filter_map(|kept| kept.journal.get().cloned()).collect()
    }

    /// The accounts in memory now.
    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<AccountId> {
        self.registry().accounts.keys().copied().collect()
    }

    /// Forgets the accounts nobody uses, longest unused first, until the rest fits. Nothing is lost: what is not in
    /// their checkpoints is in their journals.
    fn make_room(&self, registry: &mut Registry) {
        registry.opened += 1;
        // Looking at all of them costs their number: so only after that many openings, or the budget's sixteenth.
        let allowed = self.bytes_max / ACCOUNT_BYTES;
        if registry.accounts.len() * 16 < allowed || registry.opened * 16 < allowed.min(registry.accounts.len()) {
            return;
        }
        registry.opened = 0;
        let mut bytes = 0;
        let mut idle = Vec::new();
        for (id, kept) in &registry.accounts {
            let Some(journal) = kept.journal.get() else { continue };
            let state = journal.current();
            let slots: usize = state.mailboxes.values().map(|mailbox| 512 + mailbox.slots.bytes()).sum();
            let graves: usize = state.graves.iter().map(|grave| grave.slot.bytes()).sum();
            let size = ACCOUNT_BYTES + slots + graves;
            bytes += size;
            // The registry's own and the cell's: whoever opens it again clones the cell under this lock.
            let unused = Arc::strong_count(&journal.0) == 1 && Arc::strong_count(&kept.journal) == 1;
            if unused && !journal.0.group.busy() {
                idle.push((kept.used, *id, size));
            }
        }
        idle.sort_unstable();
        // Down to seven eighths, so that the next opening finds room.
        for (_, id, size) in idle {
            if bytes <= self.bytes_max / 8 * 7 {
                break;
            }
            registry.accounts.remove(&id);
            bytes -= size;
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl super::Slot {
    /// Memory that belongs to the account alone: the chunk's too if it is dirty.
    pub(super) fn bytes(&self) -> usize {
        let entries = if self.stored().is_none() { self.counts.messages as usize } else { 0 };
        SLOT_BYTES + entries * size_of::<super::Entry>()
    }
}
