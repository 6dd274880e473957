//! A mailbox's chunks, of which those that a root names are put together only when somebody looks at more than the
//! newest: opening an account costs little however many messages it holds.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::checkpoint::read_slot;
use super::codec::{Read, Reader};
use super::{Counts, Slot};
use crate::group::Seq;

/// A mailbox's chunks, rising by uid: a slice of them. [`Slots::newest_first`] does with what is in memory for the
/// newest.
#[derive(Debug, Default)]
pub struct Slots {
    all: OnceLock<Vec<Arc<Slot>>>,
    stored: Option<StoredSlots>,
}

/// What a root says of them, read through once already.
#[derive(Debug)]
struct StoredSlots {
    /// The checkpoint whose root it is.
    at: Seq,
    count: usize,
    /// All but the newest, as in the root.
    older: Bytes,
    newest: Arc<Slot>,
}

impl Slots {
    /// Reads what a root says: `count` slots, and what they hold together.
    pub(super) fn read(reader: &mut Reader<'_>, count: usize, at: Seq) -> Read<(Self, Counts)> {
        let mut counts = Counts::default();
        let (start, mut older) = (reader.0, 0);
        let mut newest: Option<Slot> = None;
        for _ in 0..count {
            older = start.len() - reader.0.len();
            let slot = read_slot(reader, at)?;
            if newest.as_ref().is_some_and(|before| before.last >= slot.first) {
                return Err("chunks out of order");
            }
            if counts.messages.checked_add(slot.counts.messages).is_none() {
                return Err("counts that cannot be");
            }
            counts = counts.plus(slot.counts);
            newest = Some(slot);
        }
        let older = &start[..older];
        let stored = newest.map(|newest| StoredSlots {
            at,
            count,
            older: Bytes::copy_from_slice(older),
            newest: Arc::new(newest),
        });
        Ok((Self { all: OnceLock::new(), stored }, counts))
    }

    /// The newest first; the older ones are put together only when they are asked for.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let newest = match &self.stored {
            Some(stored) if self.all.get().is_none() => Some(&stored.newest),
            _ => None,
        };
        let skip = usize::from(newest.is_some());
        let older = std::iter::once_with(move || self.iter().rev().skip(skip)).flatten();
        newest.into_iter().chain(older)
    }

    /// For changing them: copied if somebody else holds them as they are now.
    pub(super) fn edit(slots: &mut Arc<Self>) -> &mut Vec<Arc<Slot>> {
        slots.all();
        let slots = Arc::make_mut(slots);
        slots.stored = None;
        slots.all.get_mut().expect("they were put together above")
    }

    /// Memory they take, bytes: the chunks of dirty ones too.
    pub(super) fn bytes(&self) -> usize {
        match (self.all.get(), &self.stored) {
            (Some(all), _) => all.iter().map(|slot| slot.bytes()).sum(),
            (None, Some(stored)) => stored.older.len() + stored.newest.bytes(),
            (None, None) => 0,
        }
    }

    fn all(&self) -> &Vec<Arc<Slot>> {
        self.all.get_or_init(|| {
            let Some(stored) = &self.stored else { return Vec::new() };
            let mut reader = Reader(&stored.older);
            let mut all = Vec::with_capacity(stored.count + 1);
            // They were read before, so that every one is there.
            all.extend(std::iter::from_fn(|| read_slot(&mut reader, stored.at).ok()).map(Arc::new));
            debug_assert_eq!(all.len() + 1, stored.count);
            all.push(stored.newest.clone());
            all
        })
    }
}

impl Clone for Slots {
    /// The same slots, not equal ones: so they are put together before they are copied.
    fn clone(&self) -> Self {
        Self { all: OnceLock::from(self.all().clone()), stored: None }
    }
}

impl Deref for Slots {
    type Target = [Arc<Slot>];

    fn deref(&self) -> &[Arc<Slot>] {
        self.all()
    }
}

#[cfg(test)]
mod tests {
    use super::super::checkpoint::put_slot;
    use super::super::{MailboxId, Uid};
    use super::*;

    fn uid(uid: u32) -> Uid {
        Uid::new(uid).unwrap()
    }

    fn root(firsts: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for &first in firsts {
            let counts = Counts { messages: 2, unseen: 1, deleted: 0, bytes: 100 };
            put_slot(&mut out, &Slot::stored_at(MailboxId(1), uid(first), uid(first + 5), counts, 7), 9);
        }
        out
    }

    fn read(bytes: &[u8], count: usize) -> Read<(Arc<Slots>, Counts)> {
        let (slots, counts) = Slots::read(&mut Reader(bytes), count, 9)?;
        Ok((Arc::new(slots), counts))
    }

    #[test]
    fn the_newest_is_known_without_the_others() {
        let (slots, counts) = read(&root(&[1, 11, 21]), 3).unwrap();
        assert_eq!((counts.messages, counts.bytes), (6, 300));
        let newest = slots.newest_first().next().unwrap().clone();
        assert_eq!(newest.first().get(), 21);
        assert!(slots.all.get().is_none(), "nobody asked for the others");
        let firsts: Vec<u32> = slots.newest_first().map(|slot| slot.first().get()).collect();
        assert_eq!(firsts, [21, 11, 1]);
        assert!(slots.all.get().is_some());
        assert_eq!(slots.newest_first().count(), 3);
        assert!(Arc::ptr_eq(&newest, &slots[2]));
    }

    #[test]
    fn a_changed_copy_holds_the_same_slots() {
        let (mut slots, _) = read(&root(&[1, 11, 21]), 3).unwrap();
        let before = slots.clone();
        Slots::edit(&mut slots).remove(1);
        assert_eq!((before.len(), slots.len()), (3, 2));
        assert!(Arc::ptr_eq(&before[0], &slots[0]) && Arc::ptr_eq(&before[2], &slots[1]));
        let mut none = Arc::<Slots>::default();
        assert!(none.is_empty() && none.newest_first().next().is_none());
        Slots::edit(&mut none).push(before[0].clone());
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn what_does_not_rise_or_ends_early_is_refused() {
        assert!(read(&root(&[11, 1]), 2).is_err());
        assert!(read(&root(&[1, 6]), 2).is_err(), "they overlap");
        let bytes = root(&[1, 11]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end], 2).is_err(), "cut at {end}");
        }
    }
}
