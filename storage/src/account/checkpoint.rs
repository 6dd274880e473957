//! How an account is stored: a root (mailboxes and the directory of their chunks) and the chunks' entries.
//!
//! The root is all that opening an account reads: about 20 bytes for a chunk of a thousand messages.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::change::{DeliveryId, role_number, role_of};
use super::codec::{Read, Reader, put_bytes, put_delta, put_strings, put_varint};
use super::state::{Delivered, Grave};
use super::{AccountState, Chunk, Counts, Entry, Flags, Mailbox, MailboxId, Slot, Slots, Uid};
use crate::group::Seq;
use crate::message::{EmailId, ThreadId};

const ROOT_FORMAT: u8 = 1;
const CHUNK_FORMAT: u8 = 1;

/// The octets of a chunk.
pub(super) fn encode_chunk(chunk: &Chunk) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + chunk.entries.len() * 36);
    out.push(CHUNK_FORMAT);
    put_varint(&mut out, chunk.entries.len() as u64);
    let (mut uid, mut modseq) = (0, 0);
    for entry in &chunk.entries {
        put_delta(&mut out, entry.uid.get().into(), uid);
        put_varint(&mut out, entry.size.into());
        put_delta(&mut out, entry.modseq, modseq);
        // The marks in the top bits come first: they would make every number long.
        put_varint(&mut out, entry.flags.0.rotate_left(2));
        out.extend_from_slice(&entry.email.0);
        out.extend_from_slice(&entry.thread.0.to_be_bytes());
        (uid, modseq) = (entry.uid.get().into(), entry.modseq);
    }
    out
}

/// Reads a chunk back.
pub(super) fn decode_chunk(bytes: &[u8]) -> Read<Chunk> {
    let mut reader = Reader(bytes);
    if reader.octet()? != CHUNK_FORMAT {
        return Err("a chunk of another release");
    }
    let count = reader.count(28)?;
    let mut entries = Vec::with_capacity(count);
    let (mut uid, mut modseq) = (0, 0);
    for _ in 0..count {
        uid = reader.delta(uid)?;
        let number = u32::try_from(uid).ok().and_then(Uid::new).ok_or("not a uid")?;
        let size = reader.number()?;
        modseq = reader.delta(modseq)?;
        let flags = Flags(reader.varint()?.rotate_right(2));
        let email = EmailId(reader.array()?);
        let thread = ThreadId(u64::from_be_bytes(reader.array()?));
        entries.push(Entry { uid: number, size, modseq, flags, email, thread });
    }
    reader.end()?;
    Ok(Chunk { entries })
}

/// A slot stored by the root's own checkpoint, `at`, or one before it.
pub(super) fn put_slot(out: &mut Vec<u8>, slot: &Slot, at: Seq) {
    put_varint(out, slot.home.0.into());
    put_varint(out, slot.first.get().into());
    put_varint(out, (slot.last.get() - slot.first.get()).into());
    put_varint(out, slot.counts.messages.into());
    put_varint(out, slot.counts.unseen.into());
    put_varint(out, slot.counts.deleted.into());
    put_varint(out, slot.counts.bytes);
    put_varint(out, at.saturating_sub(slot.stored().unwrap_or(at)));
}

pub(super) fn read_slot(reader: &mut Reader<'_>, at: Seq) -> Read<Slot> {
    let home = MailboxId(reader.number()?);
    let first = reader.uid()?;
    let last = first.0.checked_add(reader.number()?).map(Uid).ok_or("not a uid")?;
    let counts = Counts {
        messages: reader.number()?,
        unseen: reader.number()?,
        deleted: reader.number()?,
        bytes: reader.varint()?,
    };
    let whole = counts.messages > 0 && counts.unseen.max(counts.deleted) <= counts.messages;
    if !whole || counts.bytes > u64::from(counts.messages) * u64::from(u32::MAX) {
        return Err("counts that cannot be");
    }
    let stored = at.checked_sub(reader.varint()?).ok_or("a chunk of a later checkpoint")?;
    Ok(Slot::stored_at(home, first, last, counts, stored))
}

impl AccountState {
    /// The root of the checkpoint `at`: what is dirty is stored with it.
    pub(super) fn encode_root(&self, at: Seq) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let slot = |out: &mut Vec<u8>, slot: &Slot| put_slot(out, slot, at);
        out.push(ROOT_FORMAT);
        put_varint(&mut out, at);
        put_varint(&mut out, self.seq);
        put_varint(&mut out, self.quota_bytes);
        put_varint(&mut out, self.mailbox_next.into());
        put_varint(&mut out, self.uid_validity_max.into());
        put_varint(&mut out, self.mailboxes.len() as u64);
        for mailbox in self.mailboxes.values() {
            put_varint(&mut out, mailbox.id.0.into());
            put_bytes(&mut out, mailbox.name.as_bytes());
            out.push(role_number(mailbox.role));
            out.push(u8::from(mailbox.subscribed) | u8::from(mailbox.selectable) << 1);
            put_varint(&mut out, mailbox.uid_validity.get().into());
            put_varint(&mut out, mailbox.uid_next.get().into());
            put_varint(&mut out, mailbox.recent_from.get().into());
            put_varint(&mut out, mailbox.highest_modseq);
            put_strings(&mut out, &mailbox.keywords);
            put_varint(&mut out, mailbox.slots.len() as u64);
            mailbox.slots.iter().for_each(|each| slot(&mut out, each));
        }
        put_varint(&mut out, self.orphan_subscriptions.len() as u64);
        self.orphan_subscriptions.iter().for_each(|name| put_bytes(&mut out, name.as_bytes()));
        put_varint(&mut out, self.grave_next.get().into());
        put_varint(&mut out, self.graves.len() as u64);
        for grave in self.graves.iter() {
            put_varint(&mut out, grave.number.get().into());
            put_varint(&mut out, grave.since_secs.into());
            put_varint(&mut out, grave.until_secs.into());
            slot(&mut out, &grave.slot);
        }
        put_varint(&mut out, self.deliveries.len() as u64);
        for done in self.deliveries.iter() {
            out.extend_from_slice(&done.id.0.to_be_bytes());
            put_varint(&mut out, done.mailbox.0.into());
            put_varint(&mut out, done.uid.get().into());
            out.extend_from_slice(&done.email.0);
        }
        out
    }

    /// Reads a root back.
    pub(super) fn decode_root(bytes: &[u8], chunk_max: usize) -> Read<Self> {
        let mut reader = Reader(bytes);
        if reader.octet()? != ROOT_FORMAT {
            return Err("an account of another release");
        }
        let at = reader.varint()?;
        let mut state = Self::empty(chunk_max);
        state.seq = reader.varint()?;
        state.quota_bytes = reader.varint()?;
        state.mailbox_next = reader.number()?;
        state.uid_validity_max = reader.number()?;
        let (mut mailboxes, mut names) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..reader.count(10)? {
            let mailbox = read_mailbox(&mut reader, at)?;
            let used = state.used;
            let fits = used.messages.checked_add(mailbox.counts.messages).is_some();
            if !fits || used.bytes.checked_add(mailbox.counts.bytes).is_none() {
                return Err("counts that cannot be");
            }
            state.used = used.plus(mailbox.counts);
            let (id, name) = (mailbox.id, mailbox.name.clone());
            if names.insert(name, id).is_some() || mailboxes.insert(id, Arc::new(mailbox)).is_some() {
                return Err("a mailbox twice");
            }
        }
        (state.mailboxes, state.names) = (Arc::new(mailboxes), Arc::new(names));
        let orphans = (0..reader.count(1)?).map(|_| reader.string().map(Arc::from));
        state.orphan_subscriptions = Arc::new(orphans.collect::<Read<_>>()?);
        state.grave_next = reader.nonzero()?;
        let mut graves = Vec::with_capacity(reader.count(11)?);
        for _ in 0..graves.capacity() {
            graves.push(Grave {
                number: reader.nonzero()?,
                since_secs: reader.number()?,
                until_secs: reader.number()?,
                slot: Arc::new(read_slot(&mut reader, at)?),
            });
        }
        state.graves = Arc::new(graves);
        let deliveries = (0..reader.count(34)?).map(|_| {
            Ok(Delivered {
                id: DeliveryId(u128::from_be_bytes(reader.array()?)),
                mailbox: MailboxId(reader.number()?),
                uid: reader.uid()?,
                email: EmailId(reader.array()?),
            })
        });
        state.deliveries = Arc::new(deliveries.collect::<Read<_>>()?);
        reader.end()?;
        Ok(state)
    }
}

fn read_mailbox(reader: &mut Reader<'_>, at: Seq) -> Read<Mailbox> {
    let id = MailboxId(reader.number()?);
    let mut mailbox = Mailbox::new(id, reader.string()?, NonZeroU32::MIN, 0);
    mailbox.role = role_of(reader.octet()?)?;
    let marks = reader.octet()?;
    (mailbox.subscribed, mailbox.selectable) = (marks & 1 != 0, marks & 2 != 0);
    mailbox.uid_validity = reader.nonzero()?;
    mailbox.uid_next = reader.uid()?;
    mailbox.recent_from = reader.uid()?;
    mailbox.highest_modseq = reader.varint()?;
    let keywords: Vec<Arc<str>> = reader.strings()?.into_iter().map(Arc::from).collect();
    if keywords.len() > Flags::KEYWORDS_MAX {
        return Err("more keywords than bits");
    }
    mailbox.keywords = Arc::new(keywords);
    let count = reader.count(8)?;
    let (slots, counts) = Slots::read(reader, count, at)?;
    if slots.newest_first().next().is_some_and(|newest| newest.last >= mailbox.uid_next) {
        return Err("a chunk beyond the next uid");
    }
    (mailbox.slots, mailbox.counts) = (Arc::new(slots), counts);
    Ok(mailbox)
}
