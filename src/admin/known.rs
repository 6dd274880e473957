//! Which messages a mailbox has already, so that an import that is run again adds only what is missing.
//!
//! A message is known by its size and by the second it was received; what is found by these is compared by its octets.
//! 16 bytes and some per message of one mailbox are kept, from one batch to the next.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use posthouse_storage::account::{Account, AccountError, AccountId, MailboxId, OCTETS_MAX, Uid};

/// What stays between the batches of an import: the places of the mailbox asked for last.
#[derive(Debug, Clone, Default)]
pub struct Kept(Arc<Mutex<Option<Known>>>);

/// The places of one mailbox.
#[derive(Debug)]
pub struct Known {
    mailbox: (AccountId, MailboxId),
    /// Below it everything is in `places`.
    next: u32,
    /// Second received, size, uid; also of messages that went since.
    places: BTreeSet<(i64, u64, u32)>,
}

impl Kept {
    /// The places of a mailbox, those that were added since read now.
    pub async fn take(&self, id: AccountId, account: &Account, mailbox: MailboxId) -> Result<Known, AccountError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An id of a mailbox is never given again, and its uids only rise.
        let kept = kept.filter(|known| known.mailbox == (id, mailbox));
        let mut known = kept.unwrap_or(Known { mailbox: (id, mailbox), next: 1, places: BTreeSet::new() });
        let state = account.refresh().await?;
        if let Some(mailbox) = state.mailboxes.get(&mailbox) {
            for slot in mailbox.slots.iter().filter(|slot| slot.last().get() >= known.next) {
                for entry in &account.chunk(slot).await?.entries {
                    let received = entry.email.received_at_ms().div_euclid(1000);
                    known.places.insert((received, entry.size.into(), entry.uid.get()));
                }
            }
            known.next = mailbox.uid_next.get();
        }
        Ok(known)
    }

    /// Keeps them for the next batch.
    pub fn put(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }
}

impl Known {
    /// True when the mailbox has a message of these octets (by their hash), received in the same second.
    pub async fn has(
        &self,
        account: &Account,
        received_at_ms: i64,
        size: u64,
        hash: &blake3::Hash,
    ) -> Result<bool, AccountError> {
        let received = received(received_at_ms);
        let same = self.places.range((received, size, 0)..=(received, size, u32::MAX));
        for uid in same.filter_map(|&(.., uid)| Uid::new(uid)) {
            let state = account.refresh().await?;
            let Some(mailbox) = state.mailboxes.get(&self.mailbox.1) else { return Ok(false) };
            let Some(slot) = mailbox.slots.iter().find(|slot| slot.first() <= uid && uid <= slot.last()) else {
                continue;
            };
            let chunk = account.chunk(slot).await?;
            // It may have been expunged since.
            let Ok(at) = chunk.entries.binary_search_by_key(&uid, |entry| entry.uid) else { continue };
            let email = chunk.entries[at].email;
            let Some(row) = account.rows(&[email]).await?.pop().flatten() else { continue };
            let (mut hasher, mut from) = (blake3::Hasher::new(), 0);
            while from < row.size {
                let octets = account.octets(email, &row, from..row.size.min(from + OCTETS_MAX)).await?;
                if octets.is_empty() {
                    break;
                }
                from += octets.len() as u64;
                hasher.update(&octets);
            }
            if hasher.finalize() == *hash {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The second a message will have been received in, as its place will say.
pub fn received(received_at_ms: i64) -> i64 {
    received_at_ms.clamp(0, (1 << 48) - 1) / 1000
}
