//! The bytes of a group's head partition: ring slots and the checkpoint pointer.
//!
//! Slot `seq % ring` holds the entry committed as `seq`; the pointer names the newest checkpoint's root row. Both end
//! in a checksum: what fails it is reported as damaged, never guessed at.

use bytes::Bytes;

use super::Seq;
use crate::wide::CommitId;

/// Key of the checkpoint pointer; sorts after every slot.
pub(super) const POINTER: &[u8] = b"p";

/// Key of the ring slot of `seq`.
pub(super) fn slot_key(seq: Seq, ring: u64) -> Bytes {
    let slot = (seq % ring) as u32;
    let mut key = Vec::with_capacity(5);
    key.push(b'j');
    key.extend_from_slice(&slot.to_be_bytes());
    key.into()
}

/// One committed journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) seq: Seq,
    pub(super) id: CommitId,
    /// The encoded entries, in order.
    pub(super) entries: Vec<Bytes>,
}

/// Where the newest checkpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The state it holds is as of this number.
    pub(super) at: Seq,
    /// Key of its root row.
    pub(super) root: Bytes,
}

const VERSION: u8 = 1;
const CHECKSUM: usize = 8;

fn seal(mut bytes: Vec<u8>) -> Bytes {
    let hash = blake3::hash(&bytes);
    bytes.extend_from_slice(&hash.as_bytes()[..CHECKSUM]);
    bytes.into()
}

fn opened(bytes: &[u8]) -> Result<&[u8], String> {
    let at = bytes.len().checked_sub(CHECKSUM).ok_or("too short")?;
    let (body, checksum) = bytes.split_at(at);
    if blake3::hash(body).as_bytes()[..CHECKSUM] != *checksum {
        return Err("the checksum does not hold".to_owned());
    }
    match body.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(format!("version {version} is not known")),
        None => Err("empty".to_owned()),
    }
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Result<&'a [u8], String> {
    let (head, rest) = bytes.split_at_checked(n).ok_or("ends early")?;
    *bytes = rest;
    Ok(head)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut octets = [0; 8];
    octets.copy_from_slice(take(bytes, 8)?);
    Ok(u64::from_be_bytes(octets))
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, String> {
    let mut octets = [0; 4];
    octets.copy_from_slice(take(bytes, 4)?);
    Ok(u32::from_be_bytes(octets))
}

impl Record {
    pub(super) fn to_bytes(&self) -> Bytes {
        let total: usize = self.entries.iter().map(|entry| entry.len() + 4).sum();
        let mut out = Vec::with_capacity(1 + 8 + 16 + 4 + total + CHECKSUM);
        out.push(VERSION);
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.id.0.to_be_bytes());
        out.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for entry in &self.entries {
            out.extend_from_slice(&(entry.len() as u32).to_be_bytes());
            out.extend_from_slice(entry);
        }
        seal(out)
    }

    pub(super) fn from_bytes(bytes: &Bytes) -> Result<Self, String> {
        let mut rest = opened(bytes)?;
        let seq = take_u64(&mut rest)?;
        let high = take_u64(&mut rest)?;
        let low = take_u64(&mut rest)?;
        let count = take_u32(&mut rest)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let length = take_u32(&mut rest)? as usize;
            entries.push(bytes.slice_ref(take(&mut rest, length)?));
        }
        if !rest.is_empty() {
            return Err("goes on after its end".to_owned());
        }
        Ok(Self { seq, id: CommitId((u128::from(high) << 64) | u128::from(low)), entries })
    }
}

impl Pointer {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend_from_slice(&self.root);
        seal(out)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = opened(bytes)?;
        let at = take_u64(&mut rest)?;
        Ok(Self { at, root: Bytes::copy_from_slice(rest) })
    }
}

/// A root row's bytes: the machine's root under a checksum.
pub(super) fn seal_root(root: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + root.len() + CHECKSUM);
    out.push(VERSION);
    out.extend_from_slice(root);
    seal(out)
}

/// The machine's root from its row.
pub(super) fn open_root(bytes: &[u8]) -> Result<&[u8], String> {
    opened(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_pointers_come_back_and_damage_is_noticed() {
        let record =
            Record { seq: 7, id: CommitId(u128::MAX - 5), entries: vec![Bytes::from_static(b"a"), Bytes::new()] };
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(&bytes), Ok(record));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(Record::from_bytes(&damaged.into()).is_err(), "byte {at}");
            assert!(Record::from_bytes(&bytes.slice(..at)).is_err(), "cut at {at}");
        }
        let pointer = Pointer { at: 9, root: Bytes::from_static(b"r\0x") };
        assert_eq!(Pointer::from_bytes(&pointer.to_bytes()), Ok(pointer));
    }
}
