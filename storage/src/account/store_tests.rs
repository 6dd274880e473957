//! Accounts over the memory store: against the model on two nodes, and what each operation costs and leaves behind.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::change::Change;
use super::model::{Message, Model, Op, any_op, flag_names, uid_set};
use super::rows::PIECE_BYTES;
use super::*;
use crate::delivery::Delivery;
use crate::group::GroupConfig;
use crate::wide::memory::{Fault, Memory, Operation};
use crate::wide::{Batch, Store, StoreError, Table};

const START_MS: i64 = 1_700_000_000_000;
const ID: AccountId = AccountId(7);

/// A node: accounts on a handle of the store, with a clock of its own.
struct Node {
    accounts: Accounts,
    clock: Arc<AtomicI64>,
}

impl Node {
    fn new(store: &Memory) -> Self {
        Self::with(store, 1 << 20, 4, GroupConfig::default())
    }

    /// Little memory, small chunks, frequent checkpoints, other nodes.
    fn small(store: &Memory, chunk_max: usize) -> Self {
        let pause = |_| -> crate::wide::BoxFuture<'static, ()> { Box::pin(tokio::task::yield_now()) };
        let group = GroupConfig { ring: 12, checkpoint_entries: 5, shared: true, pause, ..GroupConfig::default() };
        Self::with(store, 4_000, chunk_max, group)
    }

    fn with(store: &Memory, memory_bytes: usize, chunk_max: usize, group: GroupConfig) -> Self {
        let clock = Arc::new(AtomicI64::new(START_MS));
        let config = AccountsConfig { memory_bytes, shared: group.shared, ..AccountsConfig::default() };
        let told = clock.clone();
        let store = Arc::new(store.clone());
        let accounts = Accounts::with(store, config, chunk_max, group, move || told.load(Ordering::Relaxed));
        Self { accounts, clock }
    }

    fn pass(&self, time: Duration) {
        self.clock.fetch_add(time.as_millis() as i64, Ordering::Relaxed);
    }
}

fn mail(subject: &str, size: usize) -> Arc<NewMessage> {
    let mut text = format!("Subject: {subject}\r\nMessage-ID: <{subject}@x>\r\n\r\n").into_bytes();
    let body = (0..size.saturating_sub(text.len())).map(|at| b'a' + (at % 23) as u8);
    text.extend(body.collect::<Vec<_>>());
    Arc::new(NewMessage::from_octets(text))
}

fn item(message: &Arc<NewMessage>) -> AppendItem {
    AppendItem { message: message.clone(), flags: FlagNames::default(), received_at_ms: START_MS, email: None }
}

fn id(account: &Account, name: &str) -> MailboxId {
    account.current().by_name(name).map_or(MailboxId(0), |mailbox| mailbox.id)
}

async fn model(account: &Account) -> Model {
    let state = account.refresh().await.unwrap();
    let mut chunks = std::collections::HashMap::new();
    for slot in state.slots() {
        chunks.insert(Arc::as_ptr(slot), account.chunk(slot).await.unwrap());
    }
    Model::of(&state, |slot| chunks[&Arc::as_ptr(slot)].clone())
}

async fn whole(account: &Account, email: EmailId) -> Vec<u8> {
    let row = account.row(email).await.unwrap();
    let mut octets = Vec::new();
    while (octets.len() as u64) < row.size {
        octets.extend(account.octets(email, &row, octets.len() as u64..u64::MAX).await.unwrap());
    }
    octets
}

async fn step(account: &Account, model: &mut Model, op: &Op) {
    account.refresh().await.unwrap();
    let seq = account.current().seq + 1;
    match op {
        Op::Append { mailbox, flags, size } => {
            let one = AppendItem { flags: flag_names(flags), ..item(&mail("x", 60 + *size as usize)) };
            let appended = account.append(id(account, mailbox), std::slice::from_ref(&one)).await.ok();
            let email = appended.as_ref().map_or(EmailId::new(0, 0), |appended| appended[0].email);
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let expected = model.append(mailbox, Message { email, size: 60 + *size, flags, modseq: seq });
            assert_eq!(
                appended.map(|appended| (appended[0].uid.get(), appended[0].seq)),
                expected.map(|uid| (uid, seq))
            );
        }
        Op::Store { mailbox, uids, change, flags } => {
            let stored =
                account.store_flags(id(account, mailbox), &uid_set(uids), *change, &flag_names(flags), None).await;
            let changed = model.store(mailbox, uids, *change, flags, seq);
            assert_eq!(
                stored.ok().map(|stored| stored.seq),
                changed.map(|changed| if changed > 0 { seq } else { seq - 1 })
            );
        }
        Op::Copy { from, uids, to } | Op::Move { from, uids, to } => {
            let moving = matches!(op, Op::Move { .. });
            let (source, target, set) = (id(account, from), id(account, to), uid_set(uids));
            let copied = match moving {
                true => account.move_to(source, &set, target).await,
                false => account.copy(source, &set, target).await,
            };
            let pairs = copied.ok().map(|copied| copied.pairs.iter().map(|(a, b)| (a.get(), b.get())).collect());
            assert_eq!(pairs, model.transfer(from, uids, to, moving, seq));
        }
        Op::Expunge { mailbox, only } => {
            let set = only.as_deref().map(uid_set);
            let gone = account.expunge(id(account, mailbox), set.as_ref()).await.ok();
            assert_eq!(
                gone.map(|uids| uids.into_iter().map(Uid::get).collect()),
                model.expunge(mailbox, only.as_deref())
            );
        }
        Op::Create { mailbox } => {
            assert_eq!(account.create(mailbox, None).await.is_ok(), model.create(mailbox).is_some());
        }
        Op::Delete { mailbox } => assert_eq!(account.delete(mailbox).await.ok(), model.delete(mailbox)),
        Op::Rename { from, to } => assert_eq!(account.rename(from, to).await.ok(), model.rename(from, to, seq)),
        Op::Subscribe { mailbox, on } => {
            account.subscribe(mailbox, *on).await.unwrap();
            model.subscribe(mailbox, *on);
        }
        Op::Reopen => {}
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn two_nodes_agree_with_the_model(ops in proptest::collection::vec((any_op(), 0_usize..2), 0..60), chunk_max in 1_usize..6) {
        block_on(async {
            let store = Memory::new();
            let handles = [store.clone(), store.node(1)];
            let mut nodes = [Node::small(&handles[0], chunk_max), Node::small(&handles[1], chunk_max)];
            let mut accounts = [nodes[0].accounts.open(ID).await.unwrap(), nodes[1].accounts.open(ID).await.unwrap()];
            let mut expected = Model::first();
            for (op, node) in &ops {
                if matches!(op, Op::Reopen) {
                    nodes[*node] = Node::small(&handles[*node], chunk_max);
                    accounts[*node] = nodes[*node].accounts.open(ID).await.unwrap();
                }
                step(&accounts[*node], &mut expected, op).await;
                assert_eq!(model(&accounts[*node]).await, expected);
            }
            for account in &accounts {
                assert_eq!(model(account).await, expected);
            }
            nodes[0].pass(Duration::from_secs(9 * 3_600));
            nodes[0].accounts.sweep().await.unwrap();
            assert_eq!(model(&accounts[1]).await, expected, "sweeping changes nothing that is seen");
            // Every message that has a place has its row, no other has one.
            let emails: std::collections::BTreeSet<_> =
                expected.folders.values().flat_map(|folder| folder.messages.values().map(|message| message.email)).collect();
            let rows = store.rows().into_iter().filter(|row| row.0 == Table::Message);
            let rows: std::collections::BTreeSet<_> = rows.map(|row| super::rows::row_email(&row.2).unwrap()).collect();
            assert_eq!(rows, emails);
        });
    }
}

#[tokio::test]
async fn a_message_is_given_back_octet_for_octet() {
    let store = Memory::new();
    let node = Node::new(&store);
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let piece = PIECE_BYTES as usize;
    for size in [0, 1, 60, piece, piece + 40, 2 * piece, 9 * piece + 77] {
        let message = mail("a", size);
        let expected = message.read(0..message.size()).await.unwrap();
        let appended = account.append(inbox, &[item(&message)]).await.unwrap()[0];
        assert_eq!(whole(&account, appended.email).await, expected, "{size}");
        // The same from the store, by another node.
        let account = Node::new(&store).accounts.open(ID).await.unwrap();
        assert_eq!(whole(&account, appended.email).await, expected, "{size}");
        let row = account.row(appended.email).await.unwrap();
        for range in [0..0, 3..7, 40..90, 100..100_000, 130_000..140_000, 5..u64::MAX] {
            let octets = account.octets(appended.email, &row, range.clone()).await.unwrap();
            let from = (range.start as usize).min(expected.len());
            let upto = (range.end.min(expected.len() as u64) as usize).min(from + OCTETS_MAX as usize).max(from);
            assert_eq!(octets, expected[from..upto], "{size} {range:?}");
        }
    }
    while store.rows().iter().any(|row| row.0 == Table::Intent) {
        tokio::task::yield_now().await; // marks are taken away in the background
    }
}

#[tokio::test]
async fn a_delivery_is_one_commit_and_reads_nothing() {
    let store = Memory::new();
    let node = Node::new(&store);
    let delivery = Delivery::new(node.accounts.clone());
    delivery.deliver(mail("first", 500), &[ID]).await.remove(0).unwrap();
    let before = store.counts();
    delivery.deliver(mail("second", 500), &[ID]).await.remove(0).unwrap();
    let after = store.counts();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(
        (after.puts, after.gets, after.scans, after.versions),
        (before.puts, before.gets, before.scans, before.versions)
    );
    let reply =
        NewMessage::from_octets(&b"Message-ID: <r@x>\r\nIn-Reply-To: <second@x>\r\nSubject: Re: second\r\n\r\n"[..]);
    delivery.deliver(Arc::new(reply), &[ID]).await.remove(0).unwrap();
    assert_eq!(store.counts().gets - after.gets, 1, "one for the message it names");
    let account = node.accounts.open(ID).await.unwrap();
    let state = account.current();
    let chunk = account.chunk(&state.by_name("INBOX").unwrap().slots[0]).await.unwrap();
    assert_eq!(chunk.entries[1].thread, chunk.entries[2].thread);
    assert_ne!(chunk.entries[0].thread, chunk.entries[1].thread);
}

#[tokio::test]
async fn changes_that_change_nothing_commit_nothing() {
    let node = Node::new(&Memory::new());
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    account.append(inbox, &[item(&mail("a", 60))]).await.unwrap();
    let all = uid_set(&[(1, 9)]);
    let seen = flag_names(&["\\Seen"]);
    let stored = account.store_flags(inbox, &all, FlagChange::Add, &seen, None).await.unwrap();
    let again = account.store_flags(inbox, &all, FlagChange::Add, &seen, None).await.unwrap();
    assert_eq!(again.seq, stored.seq);
    assert_eq!(again.missing.len(), 8);
    account.subscribe("INBOX", true).await.unwrap();
    account.set_quota(0).await.unwrap();
    assert!(account.expunge(inbox, None).await.unwrap().is_empty());
    assert!(account.copy(inbox, &uid_set(&[(5, 9)]), inbox).await.unwrap().pairs.is_empty());
    assert_eq!(account.current().seq, stored.seq);
}

#[tokio::test]
async fn several_messages_are_added_all_or_none() {
    let store = Memory::new();
    let node = Node::new(&store);
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let bad = AppendItem { flags: flag_names(&["not an atom"]), ..item(&mail("b", 3 * PIECE_BYTES as usize)) };
    let rows = store.rows().len();
    let result = account.append(inbox, &[item(&mail("a", 3 * PIECE_BYTES as usize)), bad]).await;
    assert!(matches!(result, Err(AccountError::BadKeyword)));
    assert_eq!(account.current().by_name("INBOX").unwrap().counts.messages, 0);
    assert_eq!(store.rows().len(), rows, "nothing is left behind");
    account.set_quota(1_000).await.unwrap();
    let result = account.append(inbox, &[item(&mail("a", 600)), item(&mail("b", 600))]).await;
    assert!(matches!(result, Err(AccountError::OverQuota { used: 0, quota: 1_000 })));
    let uids = account.append(inbox, &[item(&mail("a", 300)), item(&mail("b", 300))]).await.unwrap();
    assert_eq!((uids[0].seq, uids[1].uid.get()), (uids[1].seq, 2));
}

#[tokio::test]
async fn pieces_without_a_commit_are_swept() {
    let store = Memory::new();
    let node = Node::new(&store);
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let big = mail("a", 20 * PIECE_BYTES as usize);
    store.inject(Operation::Commit, Fault::CrashBefore);
    assert!(matches!(account.append(inbox, &[item(&big)]).await, Err(AccountError::Store(_))));
    let store = store.node(2);
    let node = Node::new(&store);
    node.accounts.sweep().await.unwrap();
    let bodies = |store: &Memory| store.rows().iter().filter(|row| row.0 == Table::Body).count();
    assert!(bodies(&store) >= 20, "they may belong to a commit on its way");
    node.pass(Duration::from_secs(3_601));
    let account = node.accounts.open(ID).await.unwrap();
    // One whose commit came, and whose writer then went before it could take the mark away.
    let marks: Vec<_> = store.rows().into_iter().filter(|row| row.0 == Table::Intent).collect();
    let kept = account.append(inbox, &[item(&big)]).await.unwrap()[0];
    let mut mark = marks[0].2.to_vec();
    mark.truncate(8);
    mark.extend(kept.email.0);
    let mut batch = Batch::default();
    batch.put(Table::Intent, marks[0].1.clone(), mark, marks[0].3.clone());
    store.put(batch).await.unwrap();
    node.accounts.sweep().await.unwrap();
    assert_eq!(bodies(&store), 20);
    assert_eq!(whole(&account, kept.email).await.len(), 20 * PIECE_BYTES as usize);
}

#[tokio::test]
async fn expunged_messages_stay_readable_for_the_grace_period() {
    let store = Memory::new();
    let node = Node::new(&store);
    let account = node.accounts.open(ID).await.unwrap();
    let (inbox, trash) = (id(&account, "INBOX"), id(&account, "Trash"));
    let mut emails = Vec::new();
    for n in 0..12 {
        emails.push(account.append(inbox, &[item(&mail(&format!("m{n}"), 200))]).await.unwrap()[0].email);
    }
    account.copy(inbox, &uid_set(&[(1, 2)]), trash).await.unwrap();
    let deleted = flag_names(&["\\Deleted"]);
    account.store_flags(inbox, &uid_set(&[(1, 11)]), FlagChange::Add, &deleted, None).await.unwrap();
    account.expunge(inbox, None).await.unwrap();
    node.accounts.sweep().await.unwrap();
    assert_eq!(whole(&account, emails[3]).await.len(), 200, "a session may still show it");
    node.pass(Duration::from_secs(2 * 3_600));
    node.accounts.sweep().await.unwrap();
    assert!(matches!(account.row(emails[3]).await, Err(AccountError::NoMessage)));
    assert_eq!(whole(&account, emails[1]).await.len(), 200, "it has another place");
    assert_eq!(whole(&account, emails[11]).await.len(), 200);
    assert!(account.current().graves.is_empty());
    // The copies go with their mailbox.
    account.delete("Trash").await.unwrap();
    node.pass(Duration::from_secs(2 * 3_600));
    node.accounts.sweep().await.unwrap();
    assert!(matches!(account.row(emails[1]).await, Err(AccountError::NoMessage)));
    let rows = account.rows(&emails).await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.is_some()).count(), 1);
    let left = store.rows().into_iter().filter(|row| matches!(row.0, Table::Message | Table::Body)).count();
    assert_eq!(left, 2, "one row, one piece");
}

#[tokio::test]
async fn rows_are_read_together_in_the_order_asked() {
    let store = Memory::new();
    let account = Node::new(&store).accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let mut emails = Vec::new();
    for n in 0..60 {
        // Some days apart: several weeks, several messages in each.
        let received_at_ms = START_MS + n * 24 * 3_600_000;
        let one = AppendItem { received_at_ms, ..item(&mail(&format!("m{n}"), 100 + n as usize)) };
        emails.push(account.append(inbox, &[one]).await.unwrap()[0].email);
    }
    let account = Node::new(&store).accounts.open(ID).await.unwrap();
    let before = store.counts();
    let newest: Vec<_> = emails.iter().rev().take(20).copied().collect();
    let rows = account.rows(&newest).await.unwrap();
    let sizes: Vec<u64> = rows.iter().map(|row| row.as_ref().unwrap().size).collect();
    assert_eq!(sizes, (140..160).rev().collect::<Vec<u64>>());
    let after = store.counts();
    assert!(after.gets + after.scans - before.gets - before.scans <= 5, "{before:?} {after:?}");
    assert!(account.rows(&newest).await.unwrap().iter().all(Option::is_some));
    assert_eq!(store.counts(), after, "they are remembered");
    let mut asked = emails.clone();
    asked.insert(7, EmailId::new(START_MS, 1));
    asked.push(emails[0]);
    let rows = account.rows(&asked).await.unwrap();
    assert_eq!(rows.iter().position(Option::is_none), Some(7));
    assert_eq!(rows.iter().flatten().count(), 61);
    // Far apart within a week, what lies between is not read.
    let sparse: Vec<_> = emails.iter().step_by(2).copied().collect();
    let account = Node::new(&store).accounts.open(ID).await.unwrap();
    assert!(account.rows(&sparse).await.unwrap().iter().all(Option::is_some));
}

#[tokio::test]
async fn recent_messages_are_given_once() {
    let store = Memory::new();
    let node = Node::new(&store);
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let mut watch = account.watch();
    account.append(inbox, &[item(&mail("a", 60)), item(&mail("b", 60))]).await.unwrap();
    watch.mark_unchanged();
    assert_eq!(account.claim_recent(inbox).get(), 1);
    assert_eq!(account.claim_recent(inbox).get(), 3);
    watch.changed().await.unwrap();
    assert_eq!(account.current().by_name("INBOX").unwrap().recent_from.get(), 3, "recorded in the background");
    account.append(inbox, &[item(&mail("c", 60))]).await.unwrap();
    let elsewhere = Node::new(&store).accounts.open(ID).await.unwrap();
    assert_eq!(elsewhere.claim_recent(inbox).get(), 3);
    assert_eq!(elsewhere.claim_recent(MailboxId(99)).get(), 1);
}

#[tokio::test]
async fn new_accounts_have_their_mailboxes_quota_and_rising_uidvalidities() {
    let store = Memory::new();
    let config = AccountsConfig { default_quota_bytes: 5_000, ..AccountsConfig::default() };
    let accounts = Accounts::with(Arc::new(store.clone()), config, 4, GroupConfig::default(), || START_MS);
    let account = accounts.open(ID).await.unwrap();
    assert_eq!(store.counts().commits, 1);
    let state = account.current();
    assert_eq!(state.quota_bytes, 5_000);
    let names: Vec<_> = state.by_names().map(|mailbox| &*mailbox.name).collect();
    assert_eq!(names, ["Archive", "Drafts", "INBOX", "Junk", "Sent", "Trash"]);
    assert!(state.mailboxes.values().all(|mailbox| mailbox.subscribed && mailbox.role.is_some()));
    assert_eq!(state.by_role(Role::Inbox).unwrap().name, state.by_name("inbox").unwrap().name);
    let first = state.by_name("INBOX").unwrap().uid_validity;
    assert_eq!(i64::from(first.get()), START_MS / 1_000);
    let validity = |name: &str| account.current().by_name(name).unwrap().uid_validity;
    account.create("x", None).await.unwrap();
    let old = validity("x");
    account.rename("x", "y").await.unwrap();
    assert_eq!(validity("y"), old, "a rename keeps it");
    account.delete("y").await.unwrap();
    account.create("y", None).await.unwrap();
    assert!(validity("y") > old, "a name made again has a greater one");
}

#[tokio::test]
async fn a_store_that_fails_fails_the_operation_and_nothing_more() {
    let store = Memory::new();
    let account = Node::new(&store).accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    store.inject(Operation::Commit, Fault::Unavailable);
    let failed = account.append(inbox, &[item(&mail("a", 60))]).await;
    assert!(matches!(failed, Err(AccountError::Store(StoreError::Unavailable(_)))));
    store.inject(Operation::Commit, Fault::UnknownApplied);
    account.append(inbox, &[item(&mail("b", 60))]).await.unwrap();
    assert_eq!(account.current().by_name("INBOX").unwrap().counts.messages, 1);
    // Damage is told apart from trouble.
    let mut batch = Batch::default();
    for (table, partition, key, _) in store.rows().into_iter().filter(|row| row.0 == Table::Message) {
        batch.put(table, partition, key, vec![0xff; 3]);
    }
    store.put(batch).await.unwrap();
    let account = Node::new(&store).accounts.open(ID).await.unwrap();
    let state = account.current();
    let email = account.chunk(&state.by_name("INBOX").unwrap().slots[0]).await.unwrap().entries[0].email;
    assert!(matches!(account.row(email).await, Err(AccountError::Corrupt(_))));
}

#[tokio::test]
async fn a_million_messages_open_with_a_few_reads() {
    let store = Memory::new();
    let node = Node::with(&store, 8 << 20, state::CHUNK_MAX, GroupConfig::default());
    let account = node.accounts.open(ID).await.unwrap();
    let inbox = id(&account, "INBOX");
    let mut made = 0;
    while made < 1_000_000 {
        let append = move |n: u32| Change::Append {
            mailbox: inbox,
            email: EmailId::new(START_MS + i64::from(n), n.into()),
            size: 1_000,
            thread: crate::message::ThreadId(n.into()),
            flags: Flags::SEEN,
            keywords: Vec::new(),
            delivery: None,
        };
        let from = made;
        let change = move |_: &AccountState| Ok(((from..from + 12_500).map(append).collect(), ()));
        account.journal.change(Batch::default(), change).await.unwrap();
        made += 12_500;
    }
    drop((account, node));
    let before = store.counts();
    let node = Node::with(&store, 8 << 20, state::CHUNK_MAX, GroupConfig::default());
    let account = node.accounts.open(ID).await.unwrap();
    let after = store.counts();
    let state = account.current();
    assert_eq!(state.used.messages, 1_000_000);
    assert_eq!(state.mailboxes[&inbox].slots.len(), 977);
    assert!(after.gets + after.scans + after.versions - before.gets - before.scans - before.versions <= 6);
    // Only what the journal changed since the last checkpoint.
    let resident = state.slots().filter(|slot| slot.is_resident()).count();
    assert!(resident < 60, "{resident} chunks in memory");
    // One flag: one chunk is read, one is copied.
    let one = uid_set(&[(500_000, 500_000)]);
    account.store_flags(inbox, &one, FlagChange::Remove, &flag_names(&["\\Seen"]), None).await.unwrap();
    assert_eq!(store.counts().gets - after.gets, 1);
    let now = account.current();
    let changed = now.mailboxes[&inbox]
        .slots
        .iter()
        .zip(state.mailboxes[&inbox].slots.iter())
        .filter(|(a, b)| !Arc::ptr_eq(a, b));
    assert_eq!(changed.count(), 1);
    // All of it goes by in bounded memory.
    let mut messages = 0;
    for slot in now.mailboxes[&inbox].slots.iter() {
        messages += account.chunk(slot).await.unwrap().entries.len();
    }
    assert_eq!(messages, 1_000_000);
    let resident = now.slots().filter(|slot| slot.is_resident()).count();
    assert!(resident < 85 + 60, "{resident} chunks of 48 kB in memory, of 4 MiB allowed and what is dirty");
}

#[tokio::test]
async fn idle_accounts_leave_memory() {
    let store = Memory::new();
    let node = Node::with(&store, 4 * 40 * 6 * 1024, 4, GroupConfig::default());
    let used = node.accounts.open(AccountId(1)).await.unwrap();
    for n in 2..200 {
        node.accounts.open(AccountId(n)).await.unwrap();
    }
    let open = node.accounts.shared.journals.ids();
    assert!(open.len() <= 40, "{} accounts", open.len());
    assert!(open.contains(&AccountId(1)), "one in use stays");
    used.append(id(&used, "INBOX"), &[item(&mail("a", 60))]).await.unwrap();
    let again = node.accounts.open(AccountId(1)).await.unwrap();
    assert_eq!(again.current().used.messages, 1);
    assert_eq!(node.accounts.open(AccountId(2)).await.unwrap().current().mailboxes.len(), 6);
}
