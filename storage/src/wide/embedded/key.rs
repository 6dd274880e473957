//! How a cell's name becomes one engine key.
//!
//! `length of partition (u16) · partition · class · clustering key`. The length makes no partition a prefix of
//! another one; the class keeps a partition's version apart from its rows; what follows the class is the clustering
//! key as it is, so rows sort as their keys do, whatever octets they hold.

use std::ops::Bound;

use fjall::Slice;

use crate::wide::{CommitId, KeyRange, StoreError, Version};

const VERSION: u8 = 0;
const ROW: u8 = 1;
const AFTER_ROWS: u8 = 2;

/// Octets before the clustering key of a row.
pub(super) fn prefix_len(partition: &[u8]) -> usize {
    2 + partition.len() + 1
}

fn build(partition: &[u8], class: u8, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefix_len(partition) + key.len());
    // Callers check the partition's bound (512) first, so the length fits.
    out.extend_from_slice(&(partition.len() as u16).to_be_bytes());
    out.extend_from_slice(partition);
    out.push(class);
    out.extend_from_slice(key);
    out
}

/// A row's key.
pub(super) fn row(partition: &[u8], key: &[u8]) -> Vec<u8> {
    build(partition, ROW, key)
}

/// The key of a partition's version.
pub(super) fn version(partition: &[u8]) -> Vec<u8> {
    build(partition, VERSION, &[])
}

/// Engine keys around the rows of `range`.
pub(super) fn range(partition: &[u8], range: &KeyRange) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let bound = |bound: &Bound<bytes::Bytes>, open: Bound<Vec<u8>>| match bound {
        Bound::Included(key) => Bound::Included(row(partition, key)),
        Bound::Excluded(key) => Bound::Excluded(row(partition, key)),
        Bound::Unbounded => open,
    };
    (
        bound(&range.0, Bound::Included(row(partition, &[]))),
        bound(&range.1, Bound::Excluded(build(partition, AFTER_ROWS, &[]))),
    )
}

/// A partition's version and the commit that made it, as a value.
pub(super) fn encode_version(version: Version, id: CommitId) -> Slice {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&version.to_be_bytes());
    out[8..].copy_from_slice(&id.0.to_be_bytes());
    Slice::from(&out)
}

/// Reads what [`encode_version`] wrote.
pub(super) fn decode_version(value: &[u8]) -> Result<(Version, CommitId), StoreError> {
    let damaged = || StoreError::Corrupt("a partition's version is not 24 bytes".to_owned());
    let (version, id) = value.split_first_chunk::<8>().ok_or_else(damaged)?;
    let id = <[u8; 16]>::try_from(id).map_err(|_| damaged())?;
    Ok((Version::from_be_bytes(*version), CommitId(u128::from_be_bytes(id))))
}
