//! How a group keeps its journal, and why a change fails.

use std::time::Duration;

use crate::wide::{BoxFuture, StoreError};

/// How a group keeps its journal. The ring has the same size on every node of a store, for ever.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// Ring slots: how many journal entries are kept (at least twice `checkpoint_entries`).
    pub ring: u64,
    /// A checkpoint is due after so many entries.
    pub checkpoint_entries: u64,
    /// A checkpoint is due after so many bytes of journal.
    pub checkpoint_bytes: usize,
    /// Changes coalesced into one entry at most.
    pub changes_max: usize,
    /// Bytes of `first` coalesced into one commit, about.
    pub first_bytes_max: usize,
    /// Changes that may wait at one time; one more is `Unavailable`.
    pub waiting_max: usize,
    /// Other nodes may commit to the same store: [`super::Group::refresh`] asks it, and so does a change that records
    /// nothing.
    pub shared: bool,
    /// Tries of one commit (unknown outcomes) and of one change (conflicts), before its caller is told.
    pub tries: u32,
    /// Waits before try number `n` (from 1); a simulation only yields here.
    pub pause: fn(u32) -> BoxFuture<'static, ()>,
    /// What is broken on purpose, to show that the simulation notices.
    #[cfg(test)]
    pub(crate) mutation: Option<super::sim::Mutation>,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            ring: 1024,
            checkpoint_entries: 128,
            checkpoint_bytes: 512 * 1024,
            changes_max: 512,
            first_bytes_max: 8 << 20,
            waiting_max: 16 * 1024,
            shared: false,
            tries: 12,
            pause: |n| {
                // Full jitter: two nodes that meet do not meet again.
                let most = 1_u64 << n.min(9);
                let wait = Duration::from_millis(rand::random_range(0..=most));
                Box::pin(tokio::time::sleep(wait))
            },
            #[cfg(test)]
            mutation: None,
        }
    }
}

/// Why a change failed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<E> {
    /// The closure refused; nothing was changed.
    #[error("refused")]
    Refused(E),
    /// The store failed; nothing was changed. (After `Poisoned` it may be found changed when the store is reopened.)
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not say, within all tries, whether it was applied. It is applied once or not at all.
    #[error("the outcome is not known")]
    Unknown,
}
