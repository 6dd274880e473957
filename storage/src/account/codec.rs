//! How numbers, strings and uid sets are written in journal entries, chunks and roots: LEB128 varints, lengths first.
//!
//! Reading is total: any octets give a value or an error, and memory taken is bounded by the octets given.

use std::num::NonZeroU32;

use super::{Uid, UidSet};

/// What a failed read says.
pub(super) type Read<T> = Result<T, &'static str>;

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small for small distances of either sign.
pub(super) fn put_delta(out: &mut Vec<u8>, value: u64, base: u64) {
    let delta = value.wrapping_sub(base) as i64;
    put_varint(out, ((delta << 1) ^ (delta >> 63)) as u64);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_strings<S: AsRef<str>>(out: &mut Vec<u8>, strings: &[S]) {
    put_varint(out, strings.len() as u64);
    for string in strings {
        put_bytes(out, string.as_ref().as_bytes());
    }
}

pub(super) fn put_uids(out: &mut Vec<u8>, uids: &UidSet) {
    put_varint(out, uids.0.len() as u64);
    let mut next = 0;
    for (first, last) in &uids.0 {
        put_varint(out, u64::from(first.get()) - next);
        put_varint(out, u64::from(last.get() - first.get()));
        next = u64::from(last.get()) + 1;
    }
}

/// Reads what the functions above wrote.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn octet(&mut self) -> Read<u8> {
        let (&octet, rest) = self.0.split_first().ok_or("it ends early")?;
        self.0 = rest;
        Ok(octet)
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        match self.octet()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("neither true nor false"),
        }
    }

    pub(super) fn varint(&mut self) -> Read<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let octet = self.octet()?;
            if shift == 63 && octet > 1 {
                break;
            }
            value |= u64::from(octet & 0x7f) << shift;
            if octet < 0x80 {
                return Ok(value);
            }
        }
        Err("a number beyond 64 bits")
    }

    pub(super) fn number(&mut self) -> Read<u32> {
        self.varint()?.try_into().map_err(|_| "a number beyond 32 bits")
    }

    pub(super) fn delta(&mut self, base: u64) -> Read<u64> {
        let folded = self.varint()?;
        let delta = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Ok(base.wrapping_add(delta as u64))
    }

    pub(super) fn nonzero(&mut self) -> Read<NonZeroU32> {
        NonZeroU32::new(self.number()?).ok_or("a zero that cannot be one")
    }

    pub(super) fn uid(&mut self) -> Read<Uid> {
        self.nonzero().map(Uid)
    }

    pub(super) fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or("it ends early")?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or("it ends early")?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// How many items follow that take at least `bytes_min` octets each.
    pub(super) fn count(&mut self, bytes_min: usize) -> Read<usize> {
        let count = usize::try_from(self.varint()?).map_err(|_| "it ends early")?;
        if count > self.0.len() / bytes_min { Err("it ends early") } else { Ok(count) }
    }

    pub(super) fn string(&mut self) -> Read<&'a str> {
        let len = self.count(1)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| "text that is not UTF-8")
    }

    pub(super) fn strings(&mut self) -> Read<Vec<String>> {
        (0..self.count(1)?).map(|_| self.string().map(str::to_owned)).collect()
    }

    pub(super) fn uids(&mut self) -> Read<UidSet> {
        let mut next = 0_u64;
        let mut ranges = Vec::with_capacity(self.count(2)?);
        for _ in 0..ranges.capacity() {
            let first = next.checked_add(self.varint()?).ok_or("a uid beyond 32 bits")?;
            let last = first.checked_add(self.varint()?).ok_or("a uid beyond 32 bits")?;
            let uid = |value: u64| u32::try_from(value).ok().and_then(Uid::new).ok_or("not a uid");
            ranges.push((uid(first)?, uid(last)?));
            next = last + 1;
        }
        Ok(UidSet(ranges))
    }

    pub(super) fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err("it goes on after its end") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64, base: u64, text: String, uids in proptest::collection::btree_set(1_u32.., 0..40)) {
            let uids: UidSet = uids.into_iter().filter_map(Uid::new).collect();
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_delta(&mut out, value, base);
            put_bytes(&mut out, text.as_bytes());
            put_uids(&mut out, &uids);
            put_strings(&mut out, &[&text, "x"]);
            let mut reader = Reader(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.delta(base), Ok(value));
            prop_assert_eq!(reader.string(), Ok(&*text));
            prop_assert_eq!(reader.uids(), Ok(uids));
            prop_assert_eq!(reader.strings(), Ok(vec![text.clone(), "x".to_owned()]));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn any_octets_are_read_or_refused(bytes: Vec<u8>) {
            // Only that none of them panics or takes memory beyond what the octets account for.
            Reader(&bytes).uids().ok();
            Reader(&bytes).strings().ok();
            Reader(&bytes).delta(7).ok();
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        assert!(Reader(&[0xff; 10]).varint().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint().is_err());
        assert!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).varint() == Ok(u64::MAX));
        assert!(Reader(&[1, 0, 0]).uids().is_err(), "uid 0");
        assert!(Reader(&[0xff, 0xff, 0xff, 0x7f]).strings().is_err(), "more strings than octets");
    }
}
