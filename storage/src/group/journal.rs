//! The bytes of a group's head partition: ring slots and the checkpoint pointer.
//!
//! Slot `seq % ring` holds the entry committed as `seq`; the pointer names the newest checkpoint's root row. Both, and
//! the root row, end in a checksum: what fails it is reported as damaged, never guessed at.

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
    /// The checkpoint that the pointer was moved to by the same commit.
    pub(super) pointer: Option<Pointer>,
    /// The encoded entries, in order.
    pub(super) entries: Vec<Bytes>,
}

/// Where the newest checkpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The state it holds is as of this number.
    pub(super) at: Seq,
    /// Key of its root row; never the same for two attempts, at most 255 bytes.
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
    /// Its bytes in the journal, about.
    pub(super) fn size(&self) -> usize {
        self.entries.iter().map(|entry| entry.len() + 4).sum::<usize>() + 38
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        let total: usize = self.entries.iter().map(|entry| entry.len() + 4).sum();
        let root = self.pointer.as_ref().map_or(0, |pointer| pointer.root.len() + 8);
        let mut out = Vec::with_capacity(1 + 8 + 16 + 1 + root + 4 + total + CHECKSUM);
        out.push(VERSION);
        out.extend_from_slice(&self.seq.to_be_bytes());
        out.extend_from_slice(&self.id.0.to_be_bytes());
        match &self.pointer {
            None => out.push(0),
            Some(pointer) => {
                out.push(pointer.root.len() as u8);
                out.extend_from_slice(&pointer.root);
                out.extend_from_slice(&pointer.at.to_be_bytes());
            }
        }
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
        let pointer = match take(&mut rest, 1)? {
            [0] => None,
            length => {
                let root = bytes.slice_ref(take(&mut rest, length[0].into())?);
                Some(Pointer { at: take_u64(&mut rest)?, root })
            }
        };
        let count = take_u32(&mut rest)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let length = take_u32(&mut rest)? as usize;
            entries.push(bytes.slice_ref(take(&mut rest, length)?));
        }
        if !rest.is_empty() {
            return Err("goes on after its end".to_owned());
        }
        Ok(Self { seq, id: CommitId((u128::from(high) << 64) | u128::from(low)), pointer, entries })
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

/// Key of the root row that the attempt `id` at the checkpoint `at` writes. Chunks' keys begin with a number and never
/// come so far.
pub(super) fn root_key(at: Seq, id: CommitId) -> Bytes {
    let mut key = root_prefix(at);
    key.extend_from_slice(&id.0.to_be_bytes());
    key.into()
}

/// What the keys of all attempts at the checkpoint `at` begin with.
pub(super) fn root_prefix(at: Seq) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 + 16);
    key.push(b'r');
    key.extend_from_slice(&at.to_be_bytes());
    key
}

/// A root row: the machine's root, and the keys it supersedes, which whoever opens from it deletes once more.
pub(super) struct Root {
    pub(super) superseded: Vec<Bytes>,
    pub(super) root: Bytes,
}

impl Root {
    pub(super) fn to_bytes(superseded: &[Bytes], root: &[u8]) -> Bytes {
        let keys: usize = superseded.iter().map(|key| key.len() + 4).sum();
        let mut out = Vec::with_capacity(1 + 4 + keys + root.len() + CHECKSUM);
        out.push(VERSION);
        out.extend_from_slice(&(superseded.len() as u32).to_be_bytes());
        for key in superseded {
            out.extend_from_slice(&(key.len() as u32).to_be_bytes());
            out.extend_from_slice(key);
        }
        out.extend_from_slice(root);
        seal(out)
    }

    pub(super) fn from_bytes(bytes: &Bytes) -> Result<Self, String> {
        let mut rest = opened(bytes)?;
        let mut superseded = Vec::new();
        for _ in 0..take_u32(&mut rest)? {
            let length = take_u32(&mut rest)? as usize;
            superseded.push(bytes.slice_ref(take(&mut rest, length)?));
        }
        Ok(Self { superseded, root: bytes.slice_ref(rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_and_damage_is_noticed() {
        let pointer = Pointer { at: 9, root: root_key(9, CommitId(3)) };
        assert_eq!(Pointer::from_bytes(&pointer.to_bytes()), Ok(pointer.clone()));
        for pointer in [None, Some(pointer)] {
            let entries = vec![Bytes::from_static(b"a"), Bytes::new()];
            let record = Record { seq: 7, id: CommitId(u128::MAX - 5), pointer, entries };
            let bytes = record.to_bytes();
            assert_eq!(Record::from_bytes(&bytes), Ok(record));
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1;
                assert!(Record::from_bytes(&damaged.into()).is_err(), "byte {at}");
                assert!(Record::from_bytes(&bytes.slice(..at)).is_err(), "cut at {at}");
            }
        }
        let superseded = vec![Bytes::from_static(b"one"), Bytes::new()];
        let bytes = Root::to_bytes(&superseded, b"root");
        let root = Root::from_bytes(&bytes).unwrap();
        assert_eq!((root.superseded, &root.root[..]), (superseded, &b"root"[..]));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(Root::from_bytes(&damaged.into()).is_err());
        }
    }
}
