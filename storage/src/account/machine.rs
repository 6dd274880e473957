//! An account as an entity group's state machine.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::change::Change;
use super::checkpoint::{decode_chunk, encode_chunk};
use super::slot::Residency;
use super::state::Missing;
use super::{AccountId, AccountState, Chunk, Slot};
use crate::group::{Checkpoint, Halt, Machine, Seq};
use crate::wide::{BoxFuture, Store, StoreError, Table};

/// Chunks loaded at one time for one change.
const LOADS_MAX: usize = 8;

/// The machine of one account.
#[derive(Debug)]
pub(super) struct AccountMachine {
    id: AccountId,
    chunk_max: usize,
    residency: Arc<Residency>,
    /// Keys of the chunks that the last checkpoint known here refers to.
    stored: Mutex<HashSet<Bytes>>,
}

impl AccountMachine {
    pub(super) fn new(id: AccountId, chunk_max: usize, residency: Arc<Residency>) -> Self {
        Self { id, chunk_max, residency, stored: Mutex::default() }
    }

    /// The slot's entries, from memory or the store.
    pub(super) async fn chunk(&self, store: &dyn Store, slot: &Arc<Slot>) -> Result<Arc<Chunk>, StoreError> {
        if let Some(chunk) = slot.resident() {
            return Ok(chunk);
        }
        let chunk = self.fetch(store, slot).await?;
        self.residency.admit([slot]);
        Ok(chunk)
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

    fn stored(&self) -> std::sync::MutexGuard<'_, HashSet<Bytes>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account's partition in `Head`, `Chunk` and, followed by more, elsewhere.
pub(super) fn partition(id: AccountId) -> Bytes {
    Bytes::copy_from_slice(&[b"a".as_slice(), &id.0.to_be_bytes()].concat())
}

fn keys(state: &AccountState, at: Seq) -> HashSet<Bytes> {
    state.slots().map(|slot| slot.key(slot.stored().unwrap_or(at))).collect()
}

impl Machine for AccountMachine {
    type State = AccountState;
    type Entry = Change;
    type Missing = Missing;

    fn partition(&self) -> Bytes {
        partition(self.id)
    }

    fn empty(&self) -> AccountState {
        AccountState::empty(self.chunk_max)
    }

    fn apply(&self, state: &mut AccountState, seq: Seq, entry: &Change) -> Result<(), Halt<Infallible, Missing>> {
        let _held = self.residency.hold();
        state.apply(seq, entry)
    }

    fn encode(&self, entry: &Change, out: &mut Vec<u8>) {
        entry.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<Change, String> {
        Change::decode(bytes).map_err(str::to_owned)
    }

    fn checkpoint(&self, state: &AccountState, at: Seq) -> Checkpoint {
        let chunk = |slot: &Arc<Slot>| slot.dirty().map(|chunk| (slot.key(at), encode_chunk(&chunk).into()));
        let now = keys(state, at);
        let superseded = self.stored().iter().filter(|key| !now.contains(*key)).cloned().collect();
        Checkpoint { root: state.encode_root(at), chunks: state.slots().filter_map(chunk).collect(), superseded }
    }

    fn restore(&self, root: &[u8]) -> Result<AccountState, String> {
        let state = AccountState::decode_root(root, self.chunk_max)?;
        *self.stored() = keys(&state, state.seq);
        Ok(state)
    }

    fn checkpointed(&self, state: &AccountState, at: Seq) {
        let cleaned: Vec<_> = state.slots().filter(|slot| slot.clean(at)).collect();
        self.residency.admit(cleaned);
        *self.stored() = keys(state, at);
    }

    fn load<'a>(&'a self, store: &'a dyn Store, missing: Missing) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let slots = missing.0.clone();
            let loads = stream::iter(slots).map(|slot| async move { self.fetch(store, &slot).await.map(drop) });
            loads.buffer_unordered(LOADS_MAX).try_collect::<()>().await?;
            self.residency.admit(&missing.0);
            Ok(())
        })
    }
}
