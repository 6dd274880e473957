//! Where messages' rows and octets are, and the rows kept in memory.
//!
//! A message is one row (structure, preview, the header's octets) and the octets after the header in pieces. Both are
//! in the partition of the account and the week of received-at. Rows sort newest first, as they are read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use super::AccountId;
use super::machine::partition;
use crate::message::{EmailId, MessageRow};

/// Octets of one piece.
pub(super) const PIECE_BYTES: u64 = 128 * 1_024;
const WEEK_MS: i64 = 7 * 24 * 3_600 * 1_000;

/// The week a message is in.
pub(super) fn week(email: EmailId) -> u32 {
    // 48 bits of milliseconds are fewer than 2^19 weeks.
    (email.received_at_ms() / WEEK_MS) as u32
}

/// The partition of a message's row and pieces.
pub(super) fn home(account: AccountId, email: EmailId) -> Bytes {
    [&partition(account)[..], &week(email).to_be_bytes()].concat().into()
}

/// The key of a message's row: the id's complement, so that the newest sorts first.
pub(super) fn row_key(email: EmailId) -> Bytes {
    Bytes::copy_from_slice(&email.0.map(|octet| !octet))
}

/// The message of a row's key.
pub(super) fn row_email(key: &[u8]) -> Option<EmailId> {
    <[u8; 16]>::try_from(key).ok().map(|key| EmailId(key.map(|octet| !octet)))
}

/// The key of a message's piece.
pub(super) fn piece_key(email: EmailId, piece: u32) -> Bytes {
    [&email.0[..], &piece.to_be_bytes()].concat().into()
}

/// How many pieces a message has.
pub(super) fn pieces(size: u64, header: u64) -> u32 {
    // A message's size fits 32 bits, so the count does by far.
    size.saturating_sub(header).div_ceil(PIECE_BYTES) as u32
}

/// The pieces, and the octets of each, that hold `range` of the octets after the header.
pub(super) fn within_pieces(range: Range<u64>) -> impl Iterator<Item = (u32, Range<usize>)> {
    let first = range.start / PIECE_BYTES;
    let end = if range.is_empty() { first } else { range.end.div_ceil(PIECE_BYTES) };
    (first..end).map(move |piece| {
        let start = piece * PIECE_BYTES;
        let from = range.start.saturating_sub(start);
        let upto = (range.end - start).min(PIECE_BYTES);
        (piece as u32, from as usize..upto as usize)
    })
}

/// One run of octets out of several; not copied if it is one.
pub(super) fn joined(mut runs: Vec<Bytes>) -> Bytes {
    runs.retain(|run| !run.is_empty());
    match runs.len() {
        0 => Bytes::new(),
        1 => runs.swap_remove(0),
        _ => {
            let mut all = BytesMut::with_capacity(runs.iter().map(Bytes::len).sum());
            runs.iter().for_each(|run| all.extend_from_slice(run));
            all.freeze()
        }
    }
}

type RowKey = (AccountId, EmailId);

/// Rows read lately, of all accounts: two generations, the older of which is dropped whole when the younger is full.
/// Nearly as good as LRU, and without its lists.
#[derive(Debug)]
pub(super) struct RowCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: HashMap<RowKey, Arc<MessageRow>>,
    old: HashMap<RowKey, Arc<MessageRow>>,
    young_bytes: usize,
}

const SHARDS: usize = 16;

impl RowCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, shard_bytes_max: bytes_max / SHARDS / 2 }
    }

    pub(super) fn find(&self, account: AccountId, email: EmailId) -> Option<Arc<MessageRow>> {
        let key = (account, email);
        let mut shard = self.shard(email);
        if let Some(row) = shard.young.get(&key) {
            return Some(row.clone());
        }
        let row = shard.old.remove(&key)?;
        self.keep(&mut shard, key, row.clone());
        Some(row)
    }

    pub(super) fn insert(&self, account: AccountId, email: EmailId, row: Arc<MessageRow>) {
        self.keep(&mut self.shard(email), (account, email), row);
    }

    pub(super) fn remove(&self, account: AccountId, email: EmailId) {
        let mut shard = self.shard(email);
        shard.young.remove(&(account, email));
        shard.old.remove(&(account, email));
    }

    fn keep(&self, shard: &mut Shard, key: RowKey, row: Arc<MessageRow>) {
        // The header's octets, and about what a structure of a few parts takes.
        let bytes = 1_024 + row.header.len() + row.preview.len();
        if bytes > self.shard_bytes_max {
            return;
        }
        if shard.young_bytes + bytes > self.shard_bytes_max {
            shard.old = std::mem::take(&mut shard.young);
            shard.young_bytes = 0;
        }
        shard.young_bytes += bytes;
        shard.young.insert(key, row);
    }

    fn shard(&self, email: EmailId) -> std::sync::MutexGuard<'_, Shard> {
        // The last octet of an id is random.
        let shard = &self.shards[usize::from(email.0[15]) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
