//! The machine that simulations run: mailboxes of messages with rising uids, in small chunks.
//!
//! Every step leaves its tag and its number in the message it touches, and nothing is ever forgotten: the last state
//! tells which steps were applied, how often, in which order and where.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::super::{Checkpoint, Group, Halt, Machine, Seq};
use crate::wide::{BoxFuture, Store, StoreError, Table};

pub(in crate::group) const BOXES: usize = 2;
/// Uids in a chunk.
const CHUNK: u32 = 4;
pub(in crate::group) const PARTITION: &[u8] = b"toy";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::group) enum Entry {
    Append { mailbox: u8, tag: u32 },
    Flag { mailbox: u8, uid: u32, bits: u8, tag: u32 },
    Expunge { mailbox: u8, uid: u32, tag: u32 },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::group) struct Message {
    pub(in crate::group) flags: u8,
    pub(in crate::group) dead: bool,
    /// `(tag, seq)` of every step.
    pub(in crate::group) steps: Vec<(u32, Seq)>,
}

/// All messages by `(mailbox, uid)`.
pub(in crate::group) type View = BTreeMap<(u8, u32), Message>;

/// What an entry does to its message; shared by the state and by watchers' views.
pub(in crate::group) fn touch(message: &mut Message, seq: Seq, entry: &Entry) -> Result<(), &'static str> {
    let tag = match *entry {
        Entry::Append { tag, .. } => tag,
        _ if message.dead => return Err("a change of an expunged message"),
        Entry::Flag { bits, tag, .. } => {
            message.flags ^= bits;
            tag
        }
        Entry::Expunge { tag, .. } => {
            message.dead = true;
            tag
        }
    };
    message.steps.push((tag, seq));
    Ok(())
}

#[derive(Debug)]
pub(in crate::group) struct Slot {
    mailbox: u8,
    index: u32,
    cell: Mutex<Cell>,
}

#[derive(Debug, Clone)]
struct Cell {
    chunk: Option<Arc<Vec<Message>>>,
    stored: Option<Seq>,
}

impl Slot {
    fn cell(&self) -> MutexGuard<'_, Cell> {
        self.cell.lock().unwrap()
    }

    fn key(&self, at: Seq) -> Bytes {
        let mut key = self.cell().stored.unwrap_or(at).to_be_bytes().to_vec();
        key.push(self.mailbox);
        key.extend_from_slice(&self.index.to_be_bytes());
        key.into()
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::group) struct Boxes {
    slots: [Vec<Arc<Slot>>; BOXES],
    next: [u32; BOXES],
}

impl Boxes {
    pub(in crate::group) fn next(&self, mailbox: u8) -> u32 {
        self.next[mailbox as usize]
    }

    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter().flatten()
    }

    fn slot(&self, mailbox: u8, uid: u32) -> Option<&Arc<Slot>> {
        self.slots[mailbox as usize].get((uid.checked_sub(1)? / CHUNK) as usize)
    }

    /// One message, if there is one of the uid.
    pub(in crate::group) fn message<E>(&self, mailbox: u8, uid: u32) -> Result<Option<Message>, Halt<E, Arc<Slot>>> {
        let Some(slot) = self.slot(mailbox, uid) else { return Ok(None) };
        match &slot.cell().chunk {
            Some(chunk) => Ok(chunk.get(((uid - 1) % CHUNK) as usize).cloned()),
            None => Err(Halt::Missing(slot.clone())),
        }
    }

    fn keys(&self, at: Seq) -> BTreeSet<Bytes> {
        self.slots().map(|slot| slot.key(at)).collect()
    }

    /// Forgets chunks that can be loaded again.
    pub(in crate::group) fn evict(&self, mut chosen: impl FnMut() -> bool) {
        for slot in self.slots() {
            let mut cell = slot.cell();
            if cell.stored.is_some() && chosen() {
                cell.chunk = None;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(in crate::group) struct Toy {
    stored: Mutex<BTreeSet<Bytes>>,
}

impl Machine for Toy {
    type State = Arc<Boxes>;
    type Entry = Entry;
    type Missing = Arc<Slot>;

    fn partition(&self) -> Bytes {
        Bytes::from_static(PARTITION)
    }

    fn empty(&self) -> Arc<Boxes> {
        Arc::new(Boxes { next: [1; BOXES], ..Boxes::default() })
    }

    fn apply(&self, state: &mut Arc<Boxes>, seq: Seq, entry: &Entry) -> Result<(), Halt<Infallible, Arc<Slot>>> {
        let corrupt = |what: &str| Halt::Corrupt(format!("{what}: {seq} {entry:?}"));
        let (mailbox, uid) = match *entry {
            Entry::Append { mailbox, .. } => (mailbox, state.next(mailbox)),
            Entry::Flag { mailbox, uid, .. } | Entry::Expunge { mailbox, uid, .. } => (mailbox, uid),
        };
        let new = uid == state.next(mailbox);
        let mut message = match state.message(mailbox, uid)? {
            Some(message) if !new => message,
            None if new => Message::default(),
            _ => return Err(corrupt("no such uid, or one too many")),
        };
        touch(&mut message, seq, entry).map_err(corrupt)?;
        let boxes = Arc::make_mut(state);
        let index = (uid - 1) / CHUNK;
        let slots = &mut boxes.slots[mailbox as usize];
        let chunk = match slots.get(index as usize) {
            Some(slot) => slot.cell().chunk.clone(),
            None => Some(Arc::default()),
        };
        let mut chunk = chunk.ok_or_else(|| corrupt("not resident"))?;
        let messages = Arc::make_mut(&mut chunk);
        if new {
            messages.push(message);
            boxes.next[mailbox as usize] += 1;
        } else {
            messages[((uid - 1) % CHUNK) as usize] = message;
        }
        let slot = Slot { mailbox, index, cell: Mutex::new(Cell { chunk: Some(chunk), stored: None }) };
        match slots.get_mut(index as usize) {
            Some(place) => *place = Arc::new(slot),
            None => slots.push(Arc::new(slot)),
        }
        Ok(())
    }

    fn encode(&self, entry: &Entry, out: &mut Vec<u8>) {
        let (kind, mailbox, uid, bits, tag) = match *entry {
            Entry::Append { mailbox, tag } => (0, mailbox, 0, 0, tag),
            Entry::Flag { mailbox, uid, bits, tag } => (1, mailbox, uid, bits, tag),
            Entry::Expunge { mailbox, uid, tag } => (2, mailbox, uid, 0, tag),
        };
        out.extend_from_slice(&[kind, mailbox, bits]);
        out.extend_from_slice(&uid.to_be_bytes());
        out.extend_from_slice(&tag.to_be_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Result<Entry, String> {
        let &[kind, mailbox, bits, a, b, c, d, e, f, g, h] = bytes else { return Err("length".to_owned()) };
        let (uid, tag) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Ok(match kind {
            0 => Entry::Append { mailbox, tag },
            1 => Entry::Flag { mailbox, uid, bits, tag },
            2 => Entry::Expunge { mailbox, uid, tag },
            _ => return Err("kind".to_owned()),
        })
    }

    fn checkpoint(&self, state: &Arc<Boxes>, at: Seq) -> Checkpoint {
        let mut root = Vec::new();
        for mailbox in 0..BOXES {
            root.extend_from_slice(&state.next[mailbox].to_be_bytes());
            for slot in &state.slots[mailbox] {
                root.extend_from_slice(&slot.cell().stored.unwrap_or(at).to_be_bytes());
            }
        }
        let dirty = state.slots().filter(|slot| slot.cell().stored.is_none());
        let chunks = dirty.map(|slot| (slot.key(at), encode_chunk(slot.cell().chunk.as_ref().unwrap()))).collect();
        let now = state.keys(at);
        let superseded = self.stored.lock().unwrap().difference(&now).cloned().collect();
        Checkpoint { root, chunks, superseded }
    }

    fn restore(&self, root: &[u8]) -> Result<Arc<Boxes>, String> {
        let mut boxes = Boxes::default();
        let mut rest = root;
        for mailbox in 0..BOXES {
            let (next, tail) = rest.split_first_chunk::<4>().ok_or("short root")?;
            (boxes.next[mailbox], rest) = (u32::from_be_bytes(*next), tail);
            for index in 0..(boxes.next[mailbox] - 1).div_ceil(CHUNK) {
                let (stored, tail) = rest.split_first_chunk::<8>().ok_or("short root")?;
                rest = tail;
                let cell = Mutex::new(Cell { chunk: None, stored: Some(Seq::from_be_bytes(*stored)) });
                boxes.slots[mailbox].push(Arc::new(Slot { mailbox: mailbox as u8, index, cell }));
            }
        }
        *self.stored.lock().unwrap() = boxes.keys(0);
        Ok(Arc::new(boxes))
    }

    fn checkpointed(&self, state: &Arc<Boxes>, at: Seq) {
        for slot in state.slots() {
            slot.cell().stored.get_or_insert(at);
        }
        *self.stored.lock().unwrap() = state.keys(at);
    }

    fn load<'a>(&'a self, store: &'a dyn Store, slot: Arc<Slot>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let bytes = store.get(Table::Chunk, PARTITION, &slot.key(0)).await?;
            let bytes = bytes.ok_or_else(|| StoreError::Unavailable("the chunk is gone".to_owned()))?;
            let chunk = decode_chunk(&bytes).ok_or_else(|| StoreError::Corrupt("chunk".to_owned()))?;
            slot.cell().chunk.get_or_insert(Arc::new(chunk));
            Ok(())
        })
    }
}

fn encode_chunk(messages: &[Message]) -> Bytes {
    let mut out = Vec::new();
    for message in messages {
        out.extend_from_slice(&[message.flags, message.dead.into(), message.steps.len() as u8]);
        for (tag, seq) in &message.steps {
            out.extend_from_slice(&tag.to_be_bytes());
            out.extend_from_slice(&seq.to_be_bytes());
        }
    }
    out.into()
}

fn decode_chunk(mut bytes: &[u8]) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while let Some((&[flags, dead, count], mut rest)) = bytes.split_first_chunk::<3>() {
        let mut message = Message { flags, dead: dead == 1, steps: Vec::new() };
        for _ in 0..count {
            let (tag, tail) = rest.split_first_chunk::<4>()?;
            let (seq, tail) = tail.split_first_chunk::<8>()?;
            message.steps.push((u32::from_be_bytes(*tag), Seq::from_be_bytes(*seq)));
            rest = tail;
        }
        messages.push(message);
        bytes = rest;
    }
    Some(messages)
}

/// Everything in the group's latest state, with its number; `None` if it cannot be read now.
pub(in crate::group) async fn view(group: &Arc<Group<Toy>>) -> Result<(Seq, View), StoreError> {
    let now = group.current();
    let mut view = View::new();
    for slot in now.state.slots() {
        if slot.cell().chunk.is_none() {
            group.machine().load(&**group.store(), slot.clone()).await?;
        }
        let chunk = slot.cell().chunk.clone();
        for (at, message) in chunk.iter().flat_map(|chunk| chunk.iter()).enumerate() {
            view.insert((slot.mailbox, slot.index * CHUNK + at as u32 + 1), message.clone());
        }
    }
    Ok((now.seq, view))
}
