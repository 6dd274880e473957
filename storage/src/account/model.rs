//! A plain model of an account, and random operations on it, for the tests of this module.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// An operation in the model's words: mailboxes by name, uids by number.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Append {
        mailbox: &'static str,
        flags: Vec<&'static str>,
        size: u32,
    },
    Store {
        mailbox: &'static str,
        uids: Vec<(u32, u32)>,
        change: FlagChange,
        flags: Vec<&'static str>,
    },
    Copy {
        from: &'static str,
        uids: Vec<(u32, u32)>,
        to: &'static str,
    },
    Move {
        from: &'static str,
        uids: Vec<(u32, u32)>,
        to: &'static str,
    },
    Expunge {
        mailbox: &'static str,
        only: Option<Vec<(u32, u32)>>,
    },
    Create {
        mailbox: &'static str,
    },
    Delete {
        mailbox: &'static str,
    },
    Rename {
        from: &'static str,
        to: &'static str,
    },
    Subscribe {
        mailbox: &'static str,
        on: bool,
    },
    /// The state is stored, and everything in memory forgotten.
    Reopen,
}

const NAMES: [&str; 7] = ["INBOX", "a", "a/b", "a/b/c", "d", "Trash", "INBOX/x"];
const FLAGS: [&str; 5] = ["\\Seen", "\\Deleted", "\\Flagged", "k1", "k2"];

fn mailbox() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("INBOX"), 5 => proptest::sample::select(NAMES.as_slice())]
}

fn uids() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let range = (1_u32..30, 0_u32..12).prop_map(|(first, more)| (first, first + more));
    proptest::collection::vec(range, 1..3)
}

fn flags() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(FLAGS.as_slice(), 0..3)
}

pub(super) fn any_op() -> impl Strategy<Value = Op> {
    let change = prop_oneof![Just(FlagChange::Replace), Just(FlagChange::Add), Just(FlagChange::Remove)];
    prop_oneof![
        12 => (mailbox(), flags(), 0_u32..1000).prop_map(|(mailbox, flags, size)| Op::Append { mailbox, flags, size }),
        6 => (mailbox(), uids(), change, flags()).prop_map(|(mailbox, uids, change, flags)| Op::Store { mailbox, uids, change, flags }),
        3 => (mailbox(), uids(), mailbox()).prop_map(|(from, uids, to)| Op::Copy { from, uids, to }),
        3 => (mailbox(), uids(), mailbox()).prop_map(|(from, uids, to)| Op::Move { from, uids, to }),
        3 => (mailbox(), proptest::option::of(uids())).prop_map(|(mailbox, only)| Op::Expunge { mailbox, only }),
        2 => mailbox().prop_map(|mailbox| Op::Create { mailbox }),
        1 => mailbox().prop_map(|mailbox| Op::Delete { mailbox }),
        1 => (mailbox(), mailbox()).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => (mailbox(), any::<bool>()).prop_map(|(mailbox, on)| Op::Subscribe { mailbox, on }),
        2 => Just(Op::Reopen),
    ]
}

pub(super) fn uid_set(ranges: &[(u32, u32)]) -> UidSet {
    UidSet(ranges.iter().map(|&(a, b)| (Uid::new(a).unwrap(), Uid::new(b).unwrap())).collect())
}

pub(super) fn flag_names(flags: &[&str]) -> FlagNames {
    let mut names = FlagNames::default();
    for flag in flags {
        match *flag {
            "\\Seen" => names.system = names.system.union(Flags::SEEN),
            "\\Deleted" => names.system = names.system.union(Flags::DELETED),
            "\\Flagged" => names.system = names.system.union(Flags::FLAGGED),
            keyword => names.keywords.push(keyword.to_owned()),
        }
    }
    names
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) email: EmailId,
    pub(super) size: u32,
    pub(super) flags: BTreeSet<String>,
    pub(super) modseq: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) selectable: bool,
    pub(super) subscribed: bool,
    pub(super) next: u32,
    pub(super) messages: BTreeMap<u32, Message>,
}

impl Folder {
    fn new() -> Self {
        Self { selectable: true, subscribed: false, next: 1, messages: BTreeMap::new() }
    }

    fn add(&mut self, message: Message) -> u32 {
        self.next += 1;
        self.messages.insert(self.next - 1, message);
        self.next - 1
    }
}

/// The account as the model sees it. Its operations answer `None` where an account refuses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Model {
    pub(super) folders: BTreeMap<String, Folder>,
    pub(super) orphans: BTreeSet<String>,
}

fn chosen<'a>(folder: &'a Folder, ranges: &'a [(u32, u32)]) -> Vec<u32> {
    let within = |uid: &u32| ranges.iter().any(|(a, b)| (a..=b).contains(&uid));
    folder.messages.keys().copied().filter(within).collect()
}

impl Model {
    pub(super) fn first() -> Self {
        let names = ["INBOX", "Drafts", "Sent", "Junk", "Trash", "Archive"];
        let folder = Folder { subscribed: true, ..Folder::new() };
        Self { folders: names.map(|name| (name.to_owned(), folder.clone())).into(), ..Self::default() }
    }

    fn open(&mut self, name: &str) -> Option<&mut Folder> {
        self.folders.get_mut(name).filter(|folder| folder.selectable)
    }

    pub(super) fn append(&mut self, mailbox: &str, message: Message) -> Option<u32> {
        self.open(mailbox).map(|folder| folder.add(message))
    }

    /// How many messages changed.
    pub(super) fn store(
        &mut self,
        mailbox: &str,
        uids: &[(u32, u32)],
        change: FlagChange,
        flags: &[&str],
        seq: Seq,
    ) -> Option<usize> {
        let folder = self.open(mailbox)?;
        let flags: BTreeSet<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut changed = 0;
        for uid in chosen(folder, uids) {
            let message = folder.messages.get_mut(&uid).unwrap();
            let new = match change {
                FlagChange::Replace => flags.clone(),
                FlagChange::Add => &message.flags | &flags,
                FlagChange::Remove => &message.flags - &flags,
            };
            if new != message.flags {
                (message.flags, message.modseq) = (new, seq);
                changed += 1;
            }
        }
        Some(changed)
    }

    pub(super) fn transfer(
        &mut self,
        from: &str,
        uids: &[(u32, u32)],
        to: &str,
        moving: bool,
        seq: Seq,
    ) -> Option<Vec<(u32, u32)>> {
        self.open(to)?;
        let source = self.open(from)?;
        let uids = chosen(source, uids);
        let messages: Vec<Message> = uids.iter().map(|uid| source.messages[uid].clone()).collect();
        if moving {
            uids.iter().for_each(|uid| _ = source.messages.remove(uid));
        }
        let target = self.open(to)?;
        Some(
            uids.into_iter()
                .zip(messages)
                .map(|(uid, message)| (uid, target.add(Message { modseq: seq, ..message })))
                .collect(),
        )
    }

    pub(super) fn expunge(&mut self, mailbox: &str, only: Option<&[(u32, u32)]>) -> Option<Vec<u32>> {
        let folder = self.open(mailbox)?;
        let mut gone = chosen(folder, only.unwrap_or(&[(1, u32::MAX)]));
        gone.retain(|uid| folder.messages[uid].flags.contains("\\Deleted"));
        gone.iter().for_each(|uid| _ = folder.messages.remove(uid));
        Some(gone)
    }

    pub(super) fn create(&mut self, name: &str) -> Option<()> {
        if self.open(name).is_some() {
            return None;
        }
        let levels = name.match_indices('/').map(|(at, _)| &name[..at]).chain([name]);
        for level in levels {
            let made = self.folders.get(level).is_none_or(|folder| level == name && !folder.selectable);
            if made {
                let subscribed =
                    self.orphans.remove(level) || self.folders.get(level).is_some_and(|old| old.subscribed);
                self.folders.insert(level.to_owned(), Folder { subscribed, ..Folder::new() });
            }
        }
        Some(())
    }

    fn below(&self, name: &str) -> Vec<String> {
        self.folders.keys().filter(|other| other.starts_with(&format!("{name}/"))).cloned().collect()
    }

    pub(super) fn delete(&mut self, name: &str) -> Option<()> {
        let parent = !self.below(name).is_empty();
        let folder = self.folders.get(name)?.clone();
        if name == "INBOX" || (parent && !folder.selectable) {
            return None;
        }
        self.folders.remove(name);
        if parent {
            let husk = Folder { selectable: false, subscribed: folder.subscribed, ..Folder::new() };
            self.folders.insert(name.to_owned(), husk);
        } else if folder.subscribed {
            self.orphans.insert(name.to_owned());
        }
        Some(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, seq: Seq) -> Option<()> {
        self.folders.get(from)?;
        if self.folders.contains_key(to) {
            return None;
        }
        if from == "INBOX" {
            self.create(to)?;
            self.transfer(from, &[(1, u32::MAX)], to, true, seq)?;
            return Some(());
        }
        if to.starts_with(&format!("{from}/")) {
            return None;
        }
        if let Some((parent, _)) = to.rsplit_once('/')
            && !self.folders.contains_key(parent)
        {
            self.create(parent)?;
        }
        for old in self.below(from).into_iter().chain([from.to_owned()]) {
            let new = format!("{to}{}", &old[from.len()..]);
            let mut folder = self.folders.remove(&old)?;
            folder.subscribed |= self.orphans.remove(&new);
            self.folders.insert(new, folder);
        }
        Some(())
    }

    pub(super) fn subscribe(&mut self, name: &str, on: bool) {
        match self.folders.get_mut(name) {
            Some(folder) => folder.subscribed = on,
            None if on => _ = self.orphans.insert(name.to_owned()),
            None => _ = self.orphans.remove(name),
        }
    }

    /// What the model would say of `state`, given every chunk's entries; checks the counts on the way.
    pub(super) fn of(state: &AccountState, mut chunk: impl FnMut(&Arc<Slot>) -> Arc<Chunk>) -> Self {
        let mut model = Self::default();
        let mut used = Counts::default();
        for mailbox in state.mailboxes.values() {
            let mut folder = Folder { selectable: mailbox.selectable, subscribed: mailbox.subscribed, ..Folder::new() };
            folder.next = mailbox.uid_next.get();
            let mut counts = Counts::default();
            for slot in mailbox.slots.iter() {
                let entries = &chunk(slot).entries;
                assert_eq!((entries[0].uid, entries[entries.len() - 1].uid), (slot.first(), slot.last()));
                assert!(entries.len() <= state.chunk_max);
                let mut own = Counts::default();
                entries.iter().for_each(|entry| own.add(entry));
                assert_eq!(own, slot.counts());
                counts = counts.plus(own);
                for entry in entries {
                    let mut flags = BTreeSet::new();
                    for (name, bit) in
                        [("\\Seen", Flags::SEEN), ("\\Deleted", Flags::DELETED), ("\\Flagged", Flags::FLAGGED)]
                    {
                        flags.extend(entry.flags.contains(bit).then(|| name.to_owned()));
                    }
                    for (index, keyword) in mailbox.keywords.iter().enumerate() {
                        flags.extend(entry.flags.contains(Flags::keyword(index)).then(|| keyword.to_string()));
                    }
                    let message = Message { email: entry.email, size: entry.size, flags, modseq: entry.modseq };
                    assert!(entry.modseq <= mailbox.highest_modseq);
                    assert!(folder.messages.insert(entry.uid.get(), message).is_none());
                }
            }
            assert!(mailbox.slots.is_sorted_by(|a, b| a.last() < b.first()));
            assert!(mailbox.slots.last().is_none_or(|slot| slot.last() < mailbox.uid_next));
            assert_eq!(counts, mailbox.counts, "{}", mailbox.name);
            used = used.plus(counts);
            assert_eq!(state.by_name(&mailbox.name).map(|found| found.id), Some(mailbox.id));
            model.folders.insert(mailbox.name.to_string(), folder);
        }
        assert_eq!(used, state.used);
        assert_eq!(state.names.len(), state.mailboxes.len());
        model.orphans = state.orphan_subscriptions.iter().map(|name| name.to_string()).collect();
        model
    }
}
