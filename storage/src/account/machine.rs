//! An account as an entity group's state machine.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::change::Change;
use super::checkpoint::{decode_chunk, encode_chunk};
use super::slot::{ChunkKey, Residency};
use super::state::Missing;
use super::{AccountId, AccountState, Chunk, Slot};
use crate::group::{Checkpoint, Halt, Machine, Seq};
use crate::wide::{BoxFuture, Store, StoreError, Table};

/// Chunks loaded at one time for one change.
const LOADS_MAX: usize = 8;

/// The chunks that the last checkpoint known here refers to.
#[derive(Debug)]
enum Stored {
    /// As its root says.
    Root(Bytes),
    Chunks(Vec<ChunkKey>),
}

/// The machine of one account.
#[derive(Debug)]
pub(super) struct AccountMachine {
    id: AccountId,
    chunk_max: usize,
    residency: Arc<Residency>,
    stored: Mutex<Stored>,
    /// What was loaded for the change being decided: it stays in memory until that is done, however small the budget.
    held: Mutex<Vec<Weak<Slot>>>,
    /// Since the last load a change was applied.
    applied: AtomicBool,
}

impl AccountMachine {
    pub(super) fn new(id: AccountId, chunk_max: usize, residency: Arc<Residency>) -> Self {
        Self {
            id,
            chunk_max,
            residency,
            stored: Mutex::new(Stored::Chunks(Vec::new())),
            held: Mutex::default(),
            applied: AtomicBool::new(false),
        }
    }

    /// The slot's entries, from memory or the store.
    pub(super) async fn chunk(&self, store: &dyn Store, slot: &Arc<Slot>) -> Result<Arc<Chunk>, StoreError> {
        if let Some(chunk) = slot.resident() {
            return Ok(chunk);
        }
        self.release();
        let chunk = self.fetch(store, slot).await?;
        self.residency.admit([slot]);
        Ok(chunk)
    }

    /// Lets go what was loaded for changes that are done.
    fn release(&self) {
        if !self.applied.swap(false, Ordering::AcqRel) {
            return;
        }
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        let held: Vec<_> = held.iter().filter_map(Weak::upgrade).collect();
        held.iter().for_each(|slot| slot.hold(false));
        self.residency.admit(&held);
    }

    async fn fetch(&self, store: &dyn Store, slot: &Arc<Slot>) -> Result<Arc<Chunk>, StoreError> {
        if let Some(chunk) = slot.resident() {
            return Ok(chunk);
        }
        let corrupt = |what: &str| StoreError::Corrupt(format!("account {}: {what}", self.id.0));
        let stored = slot.stored().ok_or_else(|| corrupt("entries that are neither stored nor in memory"))?;
        let bytes = store.get(Table::Chunk, &partition(self.id), &slot.key(stored)).await?;
        // Another node may have stored a newer state and deleted this chunk: whoever holds a state that old must
        // catch up first. If nobody did, it is the same answer, and the entries are lost.
        let bytes = bytes.ok_or_else(|| {
            StoreError::Unavailable(format!("account {}: a chunk of an older state is gone", self.id.0))
        })?;
        let chunk = decode_chunk(&bytes).map_err(corrupt)?;
        if chunk.entries.len() != slot.counts.messages as usize {
            return Err(corrupt("a chunk has another number of entries than its root says"));
        }
        Ok(slot.fill(Arc::new(chunk)))
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account's partition in `Head`, `Chunk` and, followed by more, elsewhere.
pub(super) fn partition(id: AccountId) -> Bytes {
    Bytes::copy_from_slice(&[b"a".as_slice(), &id.0.to_be_bytes()].concat())
}

fn keys(state: &AccountState, at: Seq) -> Vec<ChunkKey> {
    state.slots().map(|slot| slot.key(slot.stored().unwrap_or(at))).collect()
}

impl Machine for AccountMachine {
    type State = Arc<AccountState>;
    type Entry = Change;
    type Missing = Missing;

    fn partition(&self) -> Bytes {
        partition(self.id)
    }

    fn empty(&self) -> Arc<AccountState> {
        Arc::new(AccountState::empty(self.chunk_max))
    }

    fn apply(&self, state: &mut Self::State, seq: Seq, entry: &Change) -> Result<(), Halt<Infallible, Missing>> {
        let _held = self.residency.hold();
        Arc::make_mut(state).apply(seq, entry)?;
        self.applied.store(true, Ordering::Release);
        Ok(())
    }

    fn encode(&self, entry: &Change, out: &mut Vec<u8>) {
        entry.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Change, String> {
        Change::decode(bytes).map_err(str::to_owned)
    }

    fn checkpoint(&self, state: &Self::State, at: Seq) -> Checkpoint {
        let now: HashSet<ChunkKey> = keys(state, at).into_iter().collect();
        let chunk = |slot: &Arc<Slot>| {
            slot.dirty().map(|chunk| (Bytes::copy_from_slice(&slot.key(at)), encode_chunk(&chunk).into()))
        };
        let before = match &*self.stored() {
            Stored::Chunks(keys) => keys.clone(),
            // It was read when the state was restored from it.
            Stored::Root(root) => {
                AccountState::decode_root(root, self.chunk_max).map_or_else(|_| Vec::new(), |state| keys(&state, 0))
            }
        };
        let superseded =
            before.iter().filter(|key| !now.contains(*key)).map(|key| Bytes::copy_from_slice(key)).collect();
        Checkpoint { root: state.encode_root(at), chunks: state.slots().filter_map(chunk).collect(), superseded }
    }

    fn restore(&self, root: &[u8]) -> Result<Self::State, String> {
        let state = AccountState::decode_root(root, self.chunk_max)?;
        *self.stored() = Stored::Root(Bytes::copy_from_slice(root));
        Ok(Arc::new(state))
    }

    fn checkpointed(&self, state: &Self::State, at: Seq) {
        let cleaned: Vec<_> = state.slots().filter(|slot| slot.clean(at)).collect();
        *self.stored() = Stored::Chunks(keys(state, at));
        self.residency.admit(cleaned);
        self.release();
    }

    fn load<'a>(&'a self, store: &'a dyn Store, missing: Missing) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.release();
            missing.0.iter().for_each(|slot| slot.hold(true));
            {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                held.extend(missing.0.iter().map(Arc::downgrade));
            }
            let slots = missing.0.clone();
            let loads = stream::iter(slots).map(|slot| async move { self.fetch(store, &slot).await.map(drop) });
            loads.buffer_unordered(LOADS_MAX).try_collect::<()>().await
        })
    }
}
