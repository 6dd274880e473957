//! Deliveries over the memory store: what each recipient gets, whatever fails and whenever a node dies.

use super::*;
use crate::account::AccountsConfig;
use crate::wide::memory::{Fault, Memory, Operation};

const TO: [AccountId; 3] = [AccountId(1), AccountId(2), AccountId(3)];

fn node(store: &Memory) -> Delivery {
    Delivery::new(Accounts::new(Arc::new(store.clone()), AccountsConfig::default()))
}

/// Small, or with pieces that are put before the commit.
fn mail(size: usize) -> Arc<NewMessage> {
    let mut octets = b"Message-ID: <m@x>\r\nSubject: m\r\n\r\n".to_vec();
    octets.extend((0..size).map(|at| b'a' + (at % 23) as u8));
    Arc::new(NewMessage::from_octets(octets))
}

/// The messages in an account's inbox, in full.
async fn inbox_of(store: &Memory, account: AccountId) -> Vec<Vec<u8>> {
    let account = node(store).accounts.open(account).await.unwrap();
    let state = account.current();
    let mut messages = Vec::new();
    for slot in state.by_role(Role::Inbox).unwrap().slots.iter() {
        for entry in &account.chunk(slot).await.unwrap().entries {
            let row = account.row(entry.email).await.unwrap();
            let mut octets = Vec::new();
            while (octets.len() as u64) < row.size {
                octets.extend(account.octets(entry.email, &row, octets.len() as u64..row.size).await.unwrap());
            }
            messages.push(octets);
        }
    }
    messages
}

fn intents(store: &Memory) -> usize {
    store.rows().iter().filter(|row| row.0 == Table::Intent).count()
}

async fn without_intents(store: &Memory) {
    for _ in 0..10_000 {
        if intents(store) == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("an intent stays");
}

#[tokio::test]
async fn everybody_gets_the_message_once_and_the_intent_goes() {
    let store = Memory::new();
    let delivery = node(&store);
    let message = mail(300_000);
    let to = [TO[0], TO[1], TO[2], TO[1]];
    let results = delivery.deliver(message.clone(), &to).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(results[1].as_ref().unwrap().uid, results[3].as_ref().unwrap().uid, "named twice, delivered once");
    without_intents(&store).await;
    let octets = message.read(0..message.size()).await.unwrap().to_vec();
    for account in TO {
        assert_eq!(inbox_of(&store, account).await, std::slice::from_ref(&octets));
    }
    delivery.sweep().await.unwrap();
    assert_eq!(inbox_of(&store, TO[0]).await.len(), 1);
    assert!(delivery.deliver(message, &[]).await.is_empty());
}

#[tokio::test]
async fn a_small_message_to_several_is_one_put_and_a_commit_each() {
    let store = Memory::new();
    let delivery = node(&store);
    delivery.deliver(mail(100), &TO).await;
    without_intents(&store).await;
    let before = store.counts();
    delivery.deliver(mail(100), &TO).await;
    without_intents(&store).await;
    let after = store.counts();
    assert_eq!((after.commits - before.commits, after.puts - before.puts), (3, 2), "the second put removes the intent");
    assert_eq!((after.gets, after.scans), (before.gets, before.scans));
}

#[tokio::test]
async fn who_is_over_quota_is_told_and_the_others_get_it() {
    for full in TO {
        let store = Memory::new();
        let delivery = node(&store);
        delivery.accounts.open(full).await.unwrap().set_quota(10).await.unwrap();
        let results = delivery.deliver(mail(100), &TO).await;
        for (account, result) in TO.iter().zip(&results) {
            let refused = matches!(result, Err(AccountError::OverQuota { used: 0, quota: 10 }));
            assert_eq!((refused, result.is_ok()), (*account == full, *account != full));
        }
        without_intents(&store).await;
        let all = delivery.deliver(mail(100), &[full, full]).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(intents(&store), 0);
    }
}

#[tokio::test]
async fn who_fills_up_meanwhile_is_refused_and_only_lends_the_message() {
    let store = Memory::new();
    let (delivery, other) = (node(&store), node(&store.node(1)));
    for account in TO {
        delivery.accounts.open(account).await.unwrap();
    }
    // Behind the delivering node's back: it passes the first look, and not the commit.
    other.accounts.open(TO[0]).await.unwrap().set_quota(10).await.unwrap();
    let results = delivery.deliver(mail(100), &TO).await;
    assert!(matches!(results[0], Err(AccountError::OverQuota { .. })));
    assert!(results[1].is_ok() && results[2].is_ok());
    without_intents(&store).await;
    let messages = store.rows().iter().filter(|row| row.0 == Table::Message).count();
    assert_eq!(messages, 2, "nothing is left of the refused one");
}

#[tokio::test]
async fn a_failing_store_defers_what_is_promised_and_the_sweep_delivers_it_once() {
    for size in [100, 300_000] {
        let store = Memory::new();
        let delivery = node(&store);
        for account in TO {
            delivery.accounts.open(account).await.unwrap();
        }
        store.inject(Operation::Commit, Fault::Unavailable);
        let results = delivery.deliver(mail(size), &TO).await;
        let deferred = results.iter().filter(|result| matches!(result, Err(AccountError::Deferred))).count();
        assert_eq!((deferred, results.iter().flatten().count()), (1, 2));
        for _ in 0..3 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            delivery.sweep().await.unwrap();
        }
        without_intents(&store).await;
        for account in TO {
            assert_eq!(inbox_of(&store, account).await.len(), 1);
        }
        // With no promise made, everybody is told to come again.
        store.inject(Operation::Put, Fault::Unavailable);
        let results = delivery.deliver(mail(size), &TO).await;
        assert!(results.iter().all(|result| matches!(result, Err(AccountError::Store(_)))));
    }
}

#[tokio::test]
async fn who_fills_up_after_a_promise_gets_it_when_there_is_room() {
    for full in [0, 1] {
        let store = Memory::new();
        let delivery = node(&store);
        for account in TO {
            delivery.accounts.open(account).await.unwrap();
        }
        // The steps run one after the other here: so many commits go well before the one that fails.
        (0..full).for_each(|_| store.inject(Operation::Commit, Fault::None));
        store.inject(Operation::Commit, Fault::Unavailable);
        let results = delivery.deliver(mail(100), &TO).await;
        assert!(matches!(results[full], Err(AccountError::Deferred)), "{results:?}");
        let account = delivery.accounts.open(TO[full]).await.unwrap();
        account.set_quota(10).await.unwrap();
        for _ in 0..3 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            delivery.sweep().await.unwrap();
            assert_eq!((inbox_of(&store, TO[full]).await.len(), intents(&store)), (0, 1));
        }
        account.set_quota(0).await.unwrap();
        delivery.sweep().await.unwrap();
        without_intents(&store).await;
        for account in TO {
            assert_eq!(inbox_of(&store, account).await.len(), 1);
        }
    }
}

/// The node dies at any of its writes: afterwards everybody has the message once, or nobody has it.
#[tokio::test]
async fn a_crash_at_any_write_leaves_all_or_nothing_after_the_sweep() {
    for size in [100, 300_000] {
        for operation in [Operation::Put, Operation::Commit] {
            for at in 0..5 {
                for crash in [Fault::CrashBefore, Fault::CrashAfter, Fault::Torn, Fault::Unavailable] {
                    let store = Memory::new();
                    for account in TO {
                        node(&store).accounts.open(account).await.unwrap();
                    }
                    let dying = store.node(1);
                    (0..at).for_each(|_| dying.inject(operation, Fault::None));
                    dying.inject(operation, crash);
                    let delivery = node(&dying);
                    let results = delivery.deliver(mail(size), &TO).await;
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    let swept = node(&store);
                    swept.sweep().await.unwrap();
                    swept.sweep().await.unwrap();
                    let case = format!("{size} {operation:?} {at} {crash:?} {results:?}");
                    let mut copies = Vec::new();
                    for account in TO {
                        copies.push(inbox_of(&store, account).await.len());
                    }
                    assert!(copies == [1; 3] || copies == [0; 3], "{copies:?} {case}");
                    let accepted = |result: &Result<_, _>| matches!(result, Ok(_) | Err(AccountError::Deferred));
                    assert!(copies == [1; 3] || !results.iter().any(accepted), "accepted and lost: {case}");
                    let left = store.rows().into_iter().filter(|row| row.0 == Table::Intent);
                    assert_eq!(left.filter(|row| row.1.starts_with(b"deliver")).count(), 0, "{case}");
                }
            }
        }
    }
}

#[test]
fn an_intent_is_read_back_and_damage_refused() {
    let intent = Intent {
        id: DeliveryId(7 << 100),
        received_at_ms: 1_700_000_000_000,
        holder: TO[1],
        lent: true,
        to: TO.to_vec(),
    };
    let (_, key) = intent.place();
    let bytes = intent.encode();
    assert_eq!(Intent::decode(&key, &bytes), Some(intent.clone()));
    assert!(Intent::decode(&key[1..], &bytes).is_none());
    assert!(Intent::decode(&key, &bytes[..bytes.len() - 1]).is_none());
    assert!(Intent::decode(&key, &[]).is_none());
    assert_ne!(intent.email(TO[0]), intent.email(TO[1]));
}
