//! Deleting what nothing refers to any more: rows of messages expunged a grace period ago, and pieces of messages
//! whose commit never came.
//!
//! Each step may be repeated: rows are deleted before the commit that forgets their grave, and deleting twice is no
//! error. Which accounts have something to sweep is noted with the commit that expunges, by the hour it falls due, so
//! that nobody walks over all accounts.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::change::Change;
use super::rows::{home, row_key};
use super::write::{delete_pieces, spill_partition};
use super::{Account, AccountError, AccountId, AccountState, Accounts, Flags, Slot, Uid};
use crate::message::EmailId;
use crate::wide::{Batch, Order, Table};

/// Graves swept by one step, about.
const GRAVES_MAX: usize = 256;
/// Graves forgotten by one commit.
const GRAVES_AT_ONCE: usize = 16;
/// Deletes put at one time.
const DELETES_MAX: usize = 2_048;
/// Accounts, or marks, looked at in one scan.
const SCAN_MAX: usize = 64;
/// Chunks joined by one visit of an account.
const JOINS_MAX: usize = 8;
/// How far back a node looks that never swept before, hours; and for marks of spilled pieces, days.
const HOURS_BACK: u32 = 8 * 24;
const DAYS_BACK: u32 = 8;
/// Age from which spilled pieces are nobody's, seconds.
const SPILL_SECS: u32 = 3_600;

const HOUR_SECS: u32 = 3_600;
const DAY_SECS: u32 = 24 * HOUR_SECS;

fn note_partition(hour: u32) -> Bytes {
    [b"sweep".as_slice(), &hour.to_be_bytes()].concat().into()
}

const CURSOR_PARTITION: &[u8] = b"sweep-cursor";

impl Account {
    /// What must be durable with a commit that expunges: a note of the hour in which its rows may be deleted. Empty
    /// if it was noted before.
    pub(super) fn doom(&self, now_secs: u32) -> (Batch, u32) {
        let grace = u32::try_from(self.shared.config.grace.as_secs()).unwrap_or(u32::MAX);
        let hour = now_secs.saturating_add(grace) / HOUR_SECS;
        let mut first = Batch::default();
        if self.journal.noted_hour().load(Ordering::Relaxed) != hour {
            let key = Bytes::copy_from_slice(&self.id().0.to_be_bytes());
            first.put(Table::Intent, note_partition(hour), key, Bytes::new());
        }
        (first, hour)
    }

    /// The commit with that note is durable.
    pub(super) fn doomed(&self, hour: u32) {
        self.journal.noted_hour().store(hour, Ordering::Relaxed);
    }

    /// Sweeps up to `left` graves; true if no more are due.
    async fn sweep(&self, left: &mut usize) -> Result<bool, AccountError> {
        let now = self.shared.now_secs();
        let grace = u32::try_from(self.shared.config.grace.as_secs()).unwrap_or(u32::MAX);
        loop {
            let state = self.refresh().await?;
            let due = state.graves.iter().filter(|grave| grave.until_secs.saturating_add(grace) <= now);
            let due: Vec<(NonZeroU32, Arc<Slot>)> =
                due.take(GRAVES_AT_ONCE).map(|grave| (grave.number, grave.slot.clone())).collect();
            if due.is_empty() {
                self.join_sparse(&state).await?;
                return Ok(true);
            }
            if *left == 0 {
                return Ok(false);
            }
            self.delete_rows(&state, &due).await?;
            let graves: Vec<NonZeroU32> = due.iter().map(|(number, _)| *number).collect();
            *left = left.saturating_sub(graves.len());
            let swept = move |state: &AccountState| {
                let there = state.graves.iter().any(|grave| graves.contains(&grave.number));
                Ok((if there { vec![Change::Swept { graves: graves.clone() }] } else { Vec::new() }, ()))
            };
            self.journal.change(Batch::default(), swept).await?;
        }
    }

    async fn delete_rows(&self, state: &AccountState, graves: &[(NonZeroU32, Arc<Slot>)]) -> Result<(), AccountError> {
        let mut doomed = Vec::new();
        let mut shared = HashSet::new();
        for (_, slot) in graves {
            for entry in &self.chunk(slot).await?.entries {
                if entry.flags.contains(Flags::SHARED) {
                    shared.insert(entry.email);
                }
                doomed.push((entry.email, u64::from(entry.size)));
            }
        }
        // What has no other place now cannot get one: places are only made from places.
        let used = self.used_elsewhere(state, graves, shared).await?;
        let mut batch = Batch::default();
        for (email, size) in doomed.into_iter().filter(|(email, _)| !used.contains(email)) {
            self.delete_message(&mut batch, email, size);
            if batch.writes.len() >= DELETES_MAX {
                self.shared.store.put(std::mem::take(&mut batch)).await?;
            }
        }
        if !batch.is_empty() {
            self.shared.store.put(batch).await?;
        }
        Ok(())
    }

    /// Those of `emails` that have a place besides `graves`; a later grave is one too, with a grace of its own.
    async fn used_elsewhere(
        &self,
        state: &AccountState,
        graves: &[(NonZeroU32, Arc<Slot>)],
        mut emails: HashSet<EmailId>,
    ) -> Result<HashSet<EmailId>, AccountError> {
        let mut used = HashSet::new();
        let elsewhere = state.slots().filter(|slot| !graves.iter().any(|(_, grave)| Arc::ptr_eq(grave, slot)));
        for slot in elsewhere {
            if emails.is_empty() {
                break;
            }
            let chunk = self.chunk(slot).await?;
            used.extend(chunk.entries.iter().filter_map(|entry| emails.take(&entry.email)));
        }
        Ok(used)
    }

    /// Joins neighbouring chunks that hold little, so that a mailbox much is moved out of does not stay one of many
    /// small chunks.
    async fn join_sparse(&self, state: &AccountState) -> Result<(), AccountError> {
        let runs = state.mailboxes.values().flat_map(|mailbox| {
            sparse_runs(&mailbox.slots, state.chunk_max).into_iter().map(|(first, last)| (mailbox.id, first, last))
        });
        for (mailbox, first, last) in runs.take(JOINS_MAX) {
            let join = move |state: &AccountState| {
                let there = state.mailboxes.contains_key(&mailbox);
                Ok((if there { vec![Change::Join { mailbox, first, last }] } else { Vec::new() }, ()))
            };
            self.journal.change(Batch::default(), join).await?;
        }
        Ok(())
    }
}

/// Runs of at least four neighbours that fill at most half a chunk together.
fn sparse_runs(slots: &[Arc<Slot>], chunk_max: usize) -> Vec<(Uid, Uid)> {
    let mut runs = Vec::new();
    let mut from = 0;
    while from < slots.len() {
        let mut total = 0;
        let run = slots[from..].iter().take_while(|slot| {
            total += slot.counts().messages as usize;
            total <= chunk_max / 2
        });
        let len = run.count();
        if len >= 4 {
            runs.push((slots[from].first(), slots[from + len - 1].last()));
        }
        from += len.max(1);
    }
    runs
}

impl Accounts {
    /// One bounded background step: deletes rows of messages expunged longer ago than the grace period, and what
    /// writers left that never came to their commit. Call it every minute or so; several nodes may.
    ///
    /// # Errors
    ///
    /// `Store`; the next call goes on where this one stopped.
    pub async fn sweep(&self) -> Result<(), AccountError> {
        self.sweep_spilled().await?;
        let (store, now) = (&self.shared.store, self.shared.now_secs());
        let this_hour = now / HOUR_SECS;
        let cursor = store.get(Table::Intent, CURSOR_PARTITION, b"").await?;
        let cursor = cursor.and_then(|bytes| Some(u32::from_be_bytes(bytes.as_ref().try_into().ok()?)));
        let since = cursor.unwrap_or_else(|| this_hour.saturating_sub(HOURS_BACK));
        let mut left = GRAVES_MAX;
        for hour in since..this_hour {
            loop {
                let notes = self.scan_intents(&note_partition(hour)).await?;
                for (key, _) in &notes {
                    if let Ok(id) = key.as_ref().try_into().map(u64::from_be_bytes)
                        && !self.sweep_noted(AccountId(id), this_hour, &mut left).await?
                    {
                        return Ok(());
                    }
                    let mut done = Batch::default();
                    done.delete(Table::Intent, note_partition(hour), key.clone());
                    store.put(done).await?;
                }
                if notes.len() < SCAN_MAX {
                    break;
                }
            }
        }
        if cursor != Some(this_hour) {
            let mut batch = Batch::default();
            batch.put(Table::Intent, CURSOR_PARTITION, Bytes::new(), this_hour.to_be_bytes().to_vec());
            store.put(batch).await?;
        }
        Ok(())
    }

    /// True if the account is done with, for now.
    async fn sweep_noted(&self, id: AccountId, this_hour: u32, left: &mut usize) -> Result<bool, AccountError> {
        let swept = async { self.open(id).await?.sweep(left).await };
        match swept.await {
            Ok(done) => Ok(done),
            Err(error) => {
                // One account in trouble must not keep the others' rows: it is tried again with the next hour's.
                tracing::warn!(account = id.0, %error, "an account could not be swept");
                let mut again = Batch::default();
                let key = Bytes::copy_from_slice(&id.0.to_be_bytes());
                again.put(Table::Intent, note_partition(this_hour), key, Bytes::new());
                self.shared.store.put(again).await?;
                Ok(true)
            }
        }
    }

    async fn sweep_spilled(&self) -> Result<(), AccountError> {
        let now = self.shared.now_secs();
        let today = now / DAY_SECS;
        for day in today.saturating_sub(DAYS_BACK)..=today {
            let partition = spill_partition(day);
            for (key, value) in self.scan_intents(&partition).await? {
                let (Some((account, email)), Some((since, pieces))) =
                    (key.split_first_chunk::<8>(), value.split_first_chunk::<4>())
                else {
                    continue;
                };
                let (Ok(email), Ok(pieces)) = (email.try_into().map(EmailId), pieces.try_into()) else { continue };
                if u32::from_be_bytes(*since).saturating_add(SPILL_SECS) > now {
                    continue;
                }
                let (account, pieces) = (AccountId(u64::from_be_bytes(*account)), u32::from_be_bytes(pieces));
                let mut batch = Batch::default();
                batch.delete(Table::Intent, partition.clone(), key.clone());
                let account = self.open(account).await?;
                let state = account.refresh().await?;
                // The commit may have come and only its writer have gone before it took the mark away.
                if account.used_elsewhere(&state, &[], HashSet::from([email])).await?.is_empty() {
                    batch.delete(Table::Message, home(account.id(), email), row_key(email));
                    delete_pieces(&mut batch, account.id(), email, pieces);
                }
                self.shared.store.put(batch).await?;
            }
        }
        Ok(())
    }

    async fn scan_intents(&self, partition: &[u8]) -> Result<Vec<(Bytes, Bytes)>, AccountError> {
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        Ok(self.shared.store.scan(Table::Intent, partition, all, Order::Forward, SCAN_MAX).await?)
    }
}
