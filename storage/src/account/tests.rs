//! The state machine against the model, without a store.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::change::Change;
use super::checkpoint::{decode_chunk, encode_chunk};
use super::decide::{Decided, Item};
use super::machine::AccountMachine;
use super::model::{Message, Model, Op, any_op, flag_names, uid_set};
use super::slot::Residency;
use super::state::Missing;
use super::*;
use crate::group::{Halt, Machine};

/// One account's state on a bench: changes are decided, written, read back and applied; chunks live in a map.
struct Bench {
    machine: AccountMachine,
    state: Arc<AccountState>,
    chunks: HashMap<Bytes, Bytes>,
    emails: u128,
}

impl Bench {
    fn new(chunk_max: usize) -> Self {
        let machine = AccountMachine::new(AccountId(1), chunk_max, Arc::new(Residency::new(0)));
        let state = machine.empty();
        let mut bench = Self { machine, state, chunks: HashMap::new(), emails: 0 };
        bench.run(|state| state.decide_first(1, 0)).unwrap();
        bench
    }

    fn run<T>(&mut self, decide: impl Fn(&AccountState) -> Decided<T>) -> Result<T, AccountError> {
        let (changes, answer) = loop {
            match decide(&self.state) {
                Ok(decided) => break decided,
                Err(Halt::Missing(missing)) => self.load(&missing),
                Err(Halt::Refused(error)) => return Err(error),
                Err(Halt::Corrupt(what)) => panic!("{what}"),
            }
        };
        let seq = self.state.seq + 1;
        let mut next = self.state.clone();
        for change in &changes {
            let mut bytes = Vec::new();
            self.machine.encode(change, &mut bytes);
            self.apply(&mut next, seq, &self.machine.decode(&bytes).unwrap());
        }
        self.state = next;
        Ok(answer)
    }

    fn apply(&self, state: &mut Arc<AccountState>, seq: Seq, change: &Change) {
        loop {
            match self.machine.apply(state, seq, change) {
                Ok(()) => return,
                Err(Halt::Missing(missing)) => self.load(&missing),
                Err(other) => panic!("{other:?} of {change:?}"),
            }
        }
    }

    fn load(&self, missing: &Missing) {
        missing.0.iter().for_each(|slot| _ = self.chunk(slot));
    }

    fn chunk(&self, slot: &Arc<Slot>) -> Arc<Chunk> {
        slot.resident().unwrap_or_else(|| {
            let bytes = &self.chunks[&slot.key(slot.stored().unwrap())[..]];
            slot.fill(Arc::new(decode_chunk(bytes).unwrap()))
        })
    }

    fn store_all(&mut self) -> Vec<u8> {
        let at = self.state.seq;
        let checkpoint = self.machine.checkpoint(&self.state, at);
        for (key, value) in checkpoint.chunks {
            assert!(self.chunks.insert(key, value).is_none(), "a chunk's key is used twice");
        }
        for key in checkpoint.superseded {
            assert!(self.chunks.remove(&key).is_some(), "a chunk is given up twice");
        }
        // With no budget at all, every clean chunk leaves memory at once.
        self.machine.checkpointed(&self.state, at);
        self.machine.checkpointed(&self.state, at);
        checkpoint.root
    }

    fn reopen(&mut self) {
        let root = self.store_all();
        self.state = self.machine.restore(&root).unwrap();
        assert_eq!(self.state.slots().count(), self.chunks.len(), "chunks leak");
    }

    fn id(&self, name: &str) -> MailboxId {
        self.state.by_name(name).map_or(MailboxId(0), |mailbox| mailbox.id)
    }

    fn append(&mut self, name: &str, flags: &[&str], size: u32) -> Result<(Uid, EmailId), AccountError> {
        self.emails += 1;
        let email = EmailId::new(1_000, self.emails);
        let thread = ThreadId(self.emails as u64);
        let item = Item { email, size, thread, flags: flag_names(flags), delivery: None };
        let id = self.id(name);
        self.run(|state| state.decide_append(id, std::slice::from_ref(&item))).map(|places| (places[0].uid, email))
    }
}

fn step(bench: &mut Bench, model: &mut Model, op: &Op) {
    let seq = bench.state.seq + 1;
    let before = bench.state.seq;
    match op {
        Op::Append { mailbox, flags, size } => {
            let answer = bench.append(mailbox, flags, *size).ok();
            let email = EmailId::new(1_000, bench.emails);
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let expected = model.append(mailbox, Message { email, size: *size, flags, modseq: seq });
            assert_eq!(answer.map(|(uid, _)| uid.get()), expected);
        }
        Op::Store { mailbox, uids, change, flags } => {
            let (id, set, names) = (bench.id(mailbox), uid_set(uids), flag_names(flags));
            let set = set.sorted();
            let answer = bench.run(|state| state.decide_store(id, &set, *change, &names, None));
            let changed = model.store(mailbox, uids, *change, flags, seq);
            assert_eq!(answer.is_ok(), changed.is_some());
            assert_eq!(
                bench.state.seq > before,
                changed.is_some_and(|changed| changed > 0),
                "no commit without change"
            );
            if let Ok(stored) = answer {
                let folder = &model.folders[*mailbox];
                let asked: Vec<u32> = (1..60).filter(|uid| uids.iter().any(|(a, b)| (a..=b).contains(&uid))).collect();
                let missing: Vec<u32> = asked.into_iter().filter(|uid| !folder.messages.contains_key(uid)).collect();
                assert_eq!(stored.missing.iter().map(|uid| uid.get()).collect::<Vec<_>>(), missing);
            }
        }
        Op::Copy { from, uids, to } | Op::Move { from, uids, to } => {
            let moving = matches!(op, Op::Move { .. });
            let (source, target, set) = (bench.id(from), bench.id(to), uid_set(uids));
            let answer = bench.run(|state| state.decide_transfer(source, &set.sorted(), target, moving)).ok();
            let answer = answer.map(|pairs| pairs.into_iter().map(|(a, b)| (a.get(), b.get())).collect());
            assert_eq!(answer, model.transfer(from, uids, to, moving, seq));
        }
        Op::Expunge { mailbox, only } => {
            let (id, set) = (bench.id(mailbox), only.as_deref().map(uid_set));
            let set = set.as_ref().map(|set| set.sorted().into_owned());
            let answer = bench.run(|state| state.decide_expunge(9, id, set.as_ref())).ok();
            let answer = answer.map(|uids| uids.into_iter().map(Uid::get).collect());
            assert_eq!(answer, model.expunge(mailbox, only.as_deref()));
        }
        Op::Create { mailbox } => {
            let answer = bench.run(|state| state.decide_create(9, mailbox, None)).ok();
            assert_eq!(answer.is_some(), model.create(mailbox).is_some());
            if let Some(id) = answer {
                assert_eq!(id, bench.id(mailbox), "the id told is the id given");
            }
        }
        Op::Delete { mailbox } => {
            assert_eq!(bench.run(|state| state.decide_delete(9, mailbox)).ok(), model.delete(mailbox));
        }
        Op::Rename { from, to } => {
            assert_eq!(bench.run(|state| state.decide_rename(9, from, to)).ok(), model.rename(from, to, seq));
        }
        Op::Subscribe { mailbox, on } => {
            bench.run(|state| state.decide_subscribe(mailbox, *on)).unwrap();
            model.subscribe(mailbox, *on);
        }
        Op::Reopen => bench.reopen(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_state_is_what_the_model_says(ops in proptest::collection::vec(any_op(), 0..80), chunk_max in 1_usize..6) {
        let mut bench = Bench::new(chunk_max);
        let mut model = Model::first();
        let mut validities: HashMap<MailboxId, (NonZeroU32, Uid)> = HashMap::new();
        for op in &ops {
            let kept = (bench.state.clone(), model.clone());
            step(&mut bench, &mut model, op);
            prop_assert_eq!(&Model::of(&bench.state, |slot| bench.chunk(slot)), &model);
            // What a session still shows is untouched by what happened since.
            if !matches!(op, Op::Reopen) {
                prop_assert_eq!(&Model::of(&kept.0, |slot| bench.chunk(slot)), &kept.1);
            }
            for mailbox in bench.state.mailboxes.values() {
                let (validity, next) = validities.entry(mailbox.id).or_insert((mailbox.uid_validity, mailbox.uid_next));
                prop_assert_eq!(*validity, mailbox.uid_validity);
                prop_assert!(mailbox.uid_next >= *next, "uidnext goes back");
                *next = mailbox.uid_next;
            }
        }
        let mut given: Vec<_> = validities.values().map(|(validity, _)| *validity).collect();
        given.sort();
        given.dedup();
        prop_assert_eq!(given.len(), validities.len(), "a uidvalidity is given twice");
    }

    /// A damaged journal never panics, and a change that cannot be applied leaves everything as it was.
    #[test]
    fn any_change_is_applied_or_refused(changes in proptest::collection::vec(super::change::tests::any_change(), 0..40)) {
        let mut bench = Bench::new(3);
        for change in changes {
            let before = bench.state.clone();
            let model = Model::of(&before, |slot| bench.chunk(slot));
            let seq = before.seq + 1;
            let mut next = before.clone();
            if let Err(halt) = bench.machine.apply(&mut next, seq, &change) {
                prop_assert!(matches!(halt, Halt::Corrupt(_)), "all is in memory");
                prop_assert_eq!(next.seq, before.seq);
                prop_assert_eq!(&Model::of(&next, |slot| bench.chunk(slot)), &model);
            }
            Model::of(&next, |slot| bench.chunk(slot));
            bench.state = next;
        }
        bench.reopen();
    }

    #[test]
    fn a_chunk_is_read_back(entries in proptest::collection::vec(any::<(u32, u32, u64, u64, [u8; 16], u64)>(), 0..50)) {
        let entry = |(uid, size, modseq, flags, email, thread): (u32, _, _, _, _, _)| {
            Entry { uid: Uid::new(uid.max(1)).unwrap(), size, modseq, flags: Flags(flags), email: EmailId(email), thread: ThreadId(thread) }
        };
        let chunk = Chunk { entries: entries.into_iter().map(entry).collect() };
        let bytes = encode_chunk(&chunk);
        prop_assert_eq!(decode_chunk(&bytes), Ok(chunk));
        for len in 0..bytes.len() {
            prop_assert!(decode_chunk(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn any_octets_are_a_root_or_refused(bytes: Vec<u8>, at: proptest::sample::Index, octet: u8) {
        AccountState::decode_root(&bytes, 4).ok();
        decode_chunk(&bytes).ok();
        let mut bench = Bench::new(2);
        for _ in 0..5 {
            bench.append("INBOX", &["k1"], 7).unwrap();
        }
        let mut root = bench.store_all();
        let at = at.index(root.len());
        root[at] = octet;
        AccountState::decode_root(&root, 4).ok();
    }
}

#[test]
fn an_expunged_message_has_a_grave_until_it_is_swept() {
    let mut bench = Bench::new(4);
    for _ in 0..6 {
        bench.append("INBOX", &["\\Deleted"], 10).unwrap();
    }
    let inbox = bench.id("INBOX");
    bench.run(|state| state.decide_expunge(100, inbox, Some(&uid_set(&[(2, 3)])))).unwrap();
    bench.reopen();
    bench.run(|state| state.decide_expunge(200, inbox, None)).unwrap();
    let graves: Vec<_> = bench
        .state
        .graves
        .iter()
        .map(|grave| (grave.since_secs, grave.until_secs, grave.slot.counts.messages))
        .collect();
    assert_eq!(graves, [(100, 200, 4), (200, 200, 2)]);
    let emails: Vec<_> = bench
        .state
        .graves
        .iter()
        .flat_map(|grave| bench.chunk(&grave.slot).entries.clone())
        .map(|entry| entry.email)
        .collect();
    assert_eq!(emails, [2, 3, 1, 4, 5, 6].map(|n| EmailId::new(1_000, n)));
    let graves = bench.state.graves.iter().map(|grave| grave.number).collect();
    bench.run(|_| Ok((vec![Change::Swept { graves: Vec::clone(&graves) }], ()))).unwrap();
    assert!(bench.state.graves.is_empty());
    bench.reopen();
    assert!(bench.chunks.is_empty());
}

#[test]
fn a_copied_message_is_marked_in_both_places_and_clients_do_not_see_it() {
    let mut bench = Bench::new(4);
    bench.append("INBOX", &["\\Seen"], 10).unwrap();
    let (inbox, trash) = (bench.id("INBOX"), bench.id("Trash"));
    let before = bench.state.mailboxes[&inbox].highest_modseq;
    bench.run(|state| state.decide_transfer(inbox, &uid_set(&[(1, 1)]), trash, false)).unwrap();
    for id in [inbox, trash] {
        let entry = bench.chunk(&bench.state.mailboxes[&id].slots[0]).entries[0];
        assert!(entry.flags.contains(Flags::SHARED));
        assert_eq!(entry.flags.public(), Flags::SEEN);
    }
    assert_eq!(bench.state.mailboxes[&inbox].highest_modseq, before);
    // A client cannot take the mark away.
    bench
        .run(|state| state.decide_store(inbox, &uid_set(&[(1, 1)]), FlagChange::Replace, &FlagNames::default(), None))
        .unwrap();
    assert!(bench.chunk(&bench.state.mailboxes[&inbox].slots[0]).entries[0].flags.contains(Flags::SHARED));
}

#[test]
fn unchanged_since_is_judged_message_by_message() {
    let mut bench = Bench::new(2);
    for _ in 0..4 {
        bench.append("INBOX", &[], 1).unwrap();
    }
    let inbox = bench.id("INBOX");
    let since = bench.state.seq;
    let seen = flag_names(&["\\Seen"]);
    bench.run(|state| state.decide_store(inbox, &uid_set(&[(2, 2)]), FlagChange::Add, &seen, None)).unwrap();
    let flagged = flag_names(&["\\Flagged"]);
    let stored = bench
        .run(|state| state.decide_store(inbox, &uid_set(&[(1, 9)]), FlagChange::Add, &flagged, Some(since)))
        .unwrap();
    assert_eq!(stored.modified, [Uid::new(2).unwrap()]);
    assert_eq!(bench.state.mailboxes[&inbox].highest_modseq, since + 2);
}

#[test]
fn keywords_keep_their_first_spelling_and_are_bounded() {
    let mut bench = Bench::new(2);
    bench.append("INBOX", &["Work"], 1).unwrap();
    bench.append("INBOX", &["WORK", "k1"], 1).unwrap();
    let inbox = bench.id("INBOX");
    assert_eq!(bench.state.mailboxes[&inbox].keywords.iter().map(|k| &**k).collect::<Vec<_>>(), ["Work", "k1"]);
    let many: Vec<String> = (0..52).map(|n| format!("n{n}")).collect();
    let names = FlagNames { system: Flags::default(), keywords: many };
    bench.run(|state| state.decide_store(inbox, &uid_set(&[(1, 1)]), FlagChange::Add, &names, None)).unwrap();
    assert!(matches!(bench.append("INBOX", &["more"], 1), Err(AccountError::TooMany { max: 54, .. })));
    assert!(matches!(bench.append("INBOX", &["not an atom"], 1), Err(AccountError::BadKeyword)));
    // Moved where other keywords fill the table, a message keeps those that fit.
    let names = FlagNames { system: Flags::default(), keywords: (0..53).map(|n| format!("other{n}")).collect() };
    bench.append("Trash", &[], 1).unwrap();
    let trash = bench.id("Trash");
    bench.run(|state| state.decide_store(trash, &uid_set(&[(1, 1)]), FlagChange::Add, &names, None)).unwrap();
    bench.run(|state| state.decide_transfer(inbox, &uid_set(&[(2, 2)]), trash, true)).unwrap();
    let trash = &bench.state.mailboxes[&trash];
    assert_eq!(&*trash.keywords[53], "Work");
    assert_eq!(bench.chunk(&trash.slots[0]).entries[1].flags.public(), Flags::keyword(53));
}

#[test]
fn the_quota_counts_every_place() {
    let mut bench = Bench::new(2);
    bench.run(|state| state.decide_quota(100)).unwrap();
    bench.append("INBOX", &[], 60).unwrap();
    assert!(matches!(bench.append("INBOX", &[], 41), Err(AccountError::OverQuota { used: 60, quota: 100 })));
    let (inbox, trash) = (bench.id("INBOX"), bench.id("Trash"));
    let all = uid_set(&[(1, 9)]);
    assert!(bench.run(|state| state.decide_transfer(inbox, &all, trash, false)).is_err());
    bench.run(|state| state.decide_transfer(inbox, &all, trash, true)).unwrap();
    bench.append("INBOX", &[], 40).unwrap();
    bench.run(|state| state.decide_quota(10)).unwrap();
    bench.append("INBOX", &[], 0).unwrap();
    assert!(bench.append("INBOX", &[], 1).is_err());
}

#[test]
fn mailbox_operations_refuse_with_their_reason() {
    use AccountError as E;
    let mut bench = Bench::new(2);
    let create = |bench: &mut Bench, name: &str, role| bench.run(|state| state.decide_create(1, name, role));
    create(&mut bench, "p/q/", None).unwrap();
    assert!(bench.state.by_name("p").is_some() && bench.state.by_name("p/q").is_some());
    assert!(matches!(create(&mut bench, "p", None), Err(E::MailboxExists)));
    assert!(matches!(create(&mut bench, "iNbOx", None), Err(E::MailboxExists)));
    assert!(matches!(create(&mut bench, "x//y", None), Err(E::BadName(_))));
    assert!(matches!(create(&mut bench, "More sent", Some(Role::Sent)), Err(E::RoleTaken(Role::Sent))));
    assert!(matches!(bench.run(|state| state.decide_delete(1, "inbox")), Err(E::Inbox)));
    assert!(matches!(bench.run(|state| state.decide_delete(1, "none")), Err(E::NoMailbox)));
    assert!(matches!(bench.run(|state| state.decide_rename(1, "p", "p/q/r")), Err(E::BadName(_))));
    assert!(matches!(bench.run(|state| state.decide_rename(1, "none", "x")), Err(E::NoMailbox)));
    assert!(matches!(bench.run(|state| state.decide_rename(1, "p", "Sent")), Err(E::MailboxExists)));
    bench.run(|state| state.decide_delete(1, "p")).unwrap();
    let husk = bench.id("p");
    assert!(!bench.state.mailboxes[&husk].selectable);
    assert!(matches!(bench.append("p", &[], 1), Err(E::NoMailbox)));
    assert!(matches!(bench.run(|state| state.decide_delete(1, "p")), Err(E::HasChildren)));
    create(&mut bench, "p", None).unwrap();
    assert_ne!(bench.id("p"), husk, "made anew");
    bench.run(|state| state.decide_delete(1, "Sent")).unwrap();
    create(&mut bench, "More sent", Some(Role::Sent)).unwrap();
    let deep = vec!["y"; 20].join("/");
    create(&mut bench, &deep, None).unwrap();
    bench.run(|state| state.decide_rename(1, "y", &vec!["z"; 13].join("/"))).unwrap();
    assert!(matches!(
        bench.run(|state| state.decide_rename(1, &vec!["z"; 13].join("/"), &vec!["w"; 14].join("/"))),
        Err(E::BadName(_))
    ));
    let chunk_max = bench.state.chunk_max;
    let mut full = AccountState::empty(chunk_max);
    let many = (0..20_000).map(|n| super::change::NewMailbox { name: format!("m{n}"), role: None, subscribed: false });
    full.apply(1, &Change::Create { at_secs: 1, mailboxes: many.collect() }).unwrap();
    assert!(matches!(full.decide_create(1, "x", None), Err(Halt::Refused(E::TooMany { max: 20_000, .. }))));
}

#[test]
fn a_repeated_delivery_changes_nothing_and_answers_the_same() {
    let mut bench = Bench::new(2);
    let inbox = bench.id("INBOX");
    let item = |n: u128| Item {
        email: EmailId::new(1, n),
        size: 5,
        thread: ThreadId(1),
        flags: FlagNames::default(),
        delivery: Some(change::DeliveryId(n)),
    };
    let first = bench.run(|state| state.decide_append(inbox, &[item(7)])).unwrap();
    bench.reopen();
    let seq = bench.state.seq;
    assert_eq!(bench.run(|state| state.decide_append(inbox, &[item(7)])).unwrap(), first);
    assert_eq!(bench.state.seq, seq);
    for n in 100..100 + super::state::DELIVERIES_MAX as u128 {
        bench.run(|state| state.decide_append(inbox, &[item(n)])).unwrap();
    }
    assert_eq!(bench.state.deliveries.len(), super::state::DELIVERIES_MAX);
}

#[test]
fn sparse_neighbours_are_joined() {
    let mut bench = Bench::new(4);
    for n in 0..16 {
        bench.append("INBOX", if n % 4 == 0 { &[] } else { &["\\Deleted"] }, 1).unwrap();
    }
    let inbox = bench.id("INBOX");
    bench.run(|state| state.decide_expunge(1, inbox, None)).unwrap();
    bench.reopen();
    let before = Model::of(&bench.state, |slot| bench.chunk(slot));
    assert_eq!(bench.state.mailboxes[&inbox].slots.len(), 4);
    let (first, last) = (Uid::new(1).unwrap(), Uid::new(13).unwrap());
    bench.run(|_| Ok((vec![Change::Join { mailbox: inbox, first, last }], ()))).unwrap();
    assert_eq!(bench.state.mailboxes[&inbox].slots.len(), 1);
    assert_eq!(Model::of(&bench.state, |slot| bench.chunk(slot)), before);
    bench.reopen();
}

#[test]
fn a_change_copies_one_chunk_once() {
    let mut bench = Bench::new(1_000);
    for _ in 0..2_500 {
        bench.append("INBOX", &[], 1).unwrap();
    }
    let inbox = bench.id("INBOX");
    let before = bench.state.clone();
    let mut next = before.clone();
    let seen = |uid| Change::Store {
        mailbox: inbox,
        uids: uid_set(&[(uid, uid)]),
        change: FlagChange::Add,
        flags: Flags::SEEN,
        keywords: vec![],
    };
    Arc::make_mut(&mut next).apply(9_999, &seen(1_500)).unwrap();
    let slots = |state: &AccountState| state.mailboxes[&inbox].slots.clone();
    let same: Vec<bool> = slots(&before).iter().zip(slots(&next).iter()).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false, true]);
    let slot = Arc::as_ptr(&next.mailboxes[&inbox].slots[1]);
    Arc::make_mut(&mut next).apply(9_999, &seen(1_501)).unwrap();
    assert_eq!(slot, Arc::as_ptr(&next.mailboxes[&inbox].slots[1]), "changed in place");
}

#[test]
fn an_account_of_empty_mailboxes_is_small() {
    let mut bench = Bench::new(1_024);
    let root = bench.store_all();
    assert!(root.len() < 300, "{} bytes", root.len());
}
