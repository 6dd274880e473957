//! Octets that cannot be read: the other messages are answered, and no answer is left half written.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use posthouse_storage::wide::memory::Memory;
use posthouse_storage::wide::{
    Batch, BoxFuture, Commit, KeyRange, Order, Outcome, Result, Store, StoreError, Table, Version,
};

use super::rig::{Client, World};

/// Makes the error of a failing read.
type Fails = fn() -> StoreError;

/// The memory store with body pieces that cannot be read.
#[derive(Clone)]
struct Worn {
    memory: Memory,
    /// Partition, key, and what reading them gives.
    bad: Arc<Mutex<Option<(Bytes, Bytes, Fails)>>>,
}

impl Store for Worn {
    fn get<'a>(&'a self, table: Table, partition: &'a [u8], key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>>> {
        if let Some((bad_partition, bad_key, fails)) = &*self.bad.lock().unwrap()
            && table == Table::Body
            && (partition, key) == (&bad_partition[..], &bad_key[..])
        {
            let error = fails();
            return Box::pin(async { Err(error) });
        }
        self.memory.get(table, partition, key)
    }

    fn scan<'a>(
        &'a self,
        table: Table,
        partition: &'a [u8],
        range: KeyRange,
        order: Order,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Bytes, Bytes)>>> {
        self.memory.scan(table, partition, range, order, limit)
    }

    fn version<'a>(&'a self, table: Table, partition: &'a [u8]) -> BoxFuture<'a, Result<Version>> {
        self.memory.version(table, partition)
    }

    fn put(&self, batch: Batch) -> BoxFuture<'_, Result<()>> {
        self.memory.put(batch)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<Outcome>> {
        self.memory.commit(commit)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.memory.close()
    }
}

impl Worn {
    /// From now on, reading the last body piece that holds `text` fails.
    fn wear(&self, text: &str, fails: Fails) {
        let holds = |value: &[u8]| value.windows(text.len()).any(|octets| octets == text.as_bytes());
        let mut rows = self.memory.rows();
        rows.retain(|(table, _, _, value)| *table == Table::Body && holds(value));
        let (_, partition, key, _) = rows.pop().expect("a piece that holds it");
        *self.bad.lock().unwrap() = Some((partition, key, fails));
    }
}

/// A mailbox with these bodies, selected.
async fn world(bodies: &[String]) -> (World, Worn, Client) {
    let world = World::new().await;
    let worn = Worn { memory: world.memory.clone(), bad: Arc::default() };
    let world = world.reopened_over(Arc::new(worn.clone()));
    let mut client = world.client().await;
    for body in bodies {
        client.append("INBOX", "", format!("Subject: x\r\n\r\n{body}").as_bytes()).await;
    }
    client.ok("EXAMINE INBOX").await;
    (world, worn, client)
}

const TRANSIENT: Fails = || StoreError::Unavailable("too busy".to_owned());
const DAMAGES: [Fails; 2] =
    [|| StoreError::Corrupt("a block fails its check".to_owned()), || StoreError::Io(std::io::ErrorKind::Other.into())];

#[tokio::test]
async fn a_body_that_cannot_be_read_hides_no_other() {
    for fails in DAMAGES {
        let (_world, worn, mut client) = world(&["first".into(), "second".into(), "third".into()]).await;
        worn.wear("second", fails);
        for (items, first, third) in [
            ("(UID BODY.PEEK[])", "* 1 FETCH (UID 1 BODY[] {19}", "* 3 FETCH (UID 3 BODY[] {19}"),
            ("BODY.PEEK[TEXT]", "* 1 FETCH (BODY[TEXT] {5}", "* 3 FETCH (BODY[TEXT] {5}"),
            ("(BODY.PEEK[HEADER] BODY.PEEK[1])", "* 1 FETCH (BODY[HEADER] {14}", "* 3 FETCH (BODY[HEADER] {14}"),
        ] {
            let lines = client.command(&format!("FETCH 1:3 {items}")).await;
            let fetches: Vec<&str> = lines.iter().filter(|line| line.contains("FETCH (")).map(String::as_str).collect();
            assert_eq!(fetches, [first, third], "{lines:?}");
            assert!(lines.iter().any(|line| line == "third)" || line.ends_with("third)")), "{lines:?}");
            assert!(lines.last().unwrap().contains(" NO [SERVERBUG] "), "{lines:?}");
        }
        // What needs no octets is still told.
        let lines = client.ok("FETCH 2 (UID RFC822.SIZE ENVELOPE)").await;
        assert!(lines[0].starts_with("* 2 FETCH (UID 2 RFC822.SIZE 20 "), "{lines:?}");
    }
}

#[tokio::test]
async fn a_store_that_is_away_leaves_no_half_answer() {
    let (_world, worn, mut client) = world(&["first".into(), "second".into()]).await;
    worn.wear("second", TRANSIENT);
    let lines = client.command("FETCH 1:2 (UID BODY.PEEK[TEXT])").await;
    assert_eq!(lines[..2], ["* 1 FETCH (UID 1 BODY[TEXT] {5}", "first)"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].contains(" NO [UNAVAILABLE] "), "{lines:?}");
    *worn.bad.lock().unwrap() = None;
    client.ok("FETCH 1:2 (UID BODY.PEEK[TEXT])").await;
}

#[tokio::test]
async fn a_literal_that_breaks_off_ends_the_connection() {
    for fails in [DAMAGES[0], DAMAGES[1], TRANSIENT] {
        let body = "0123456789abcde\n".repeat(200_000) + "the end";
        let (_world, worn, mut client) = world(&[body]).await;
        worn.wear("the end", fails);
        client.send("x FETCH 1 BODY.PEEK[TEXT]\r\n").await;
        let rest = client.rest().await;
        let announced = b"* 1 FETCH (BODY[TEXT] {3200007}\r\n";
        assert!(rest.starts_with(announced));
        let octets = &rest[announced.len()..];
        assert!(octets.len() < 3_200_007 && octets.chunks(16).all(|line| b"0123456789abcde\n".starts_with(line)));
    }
}

#[tokio::test]
async fn what_is_damaged_after_other_octets_left_is_nil() {
    let large = "0123456789abcde\n".repeat(10_000);
    let parts = format!(
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n{large}\r\n--b\r\n\r\n{large}the end\r\n--b--\r\n"
    );
    let world = World::new().await;
    let worn = Worn { memory: world.memory.clone(), bad: Arc::default() };
    let world = world.reopened_over(Arc::new(worn.clone()));
    let mut client = world.client().await;
    client.append("INBOX", "", parts.as_bytes()).await;
    client.ok("EXAMINE INBOX").await;
    worn.wear("the end", DAMAGES[0]);
    let lines = client.command("FETCH 1 (BODY.PEEK[1] BODY.PEEK[2]<159990.10>)").await;
    assert!(lines.len() > 2);
    let last = &lines[lines.len() - 2..];
    // The pieces are small enough that the first part can be read.
    assert!(last[0].ends_with("BODY[2]<159990> NIL)"), "{last:?}");
    assert!(last[1].contains(" NO [SERVERBUG] "), "{last:?}");
}
