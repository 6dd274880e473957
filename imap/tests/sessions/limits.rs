//! Limits: what they refuse, how the client is told, and that nothing half done is left.

use posthouse_imap::ImapConfig;
use posthouse_storage::wide::memory::{Fault, Faults, Operation};
use posthouse_storage::wide::{Batch, Store, Table};

use super::rig::{Door, USER, World};

/// Octets that are not all the same, so that a wrong piece shows.
fn octets(count: usize) -> Vec<u8> {
    let mut message = b"Subject: large\r\n\r\n".to_vec();
    let mut line = 0;
    while message.len() < count {
        message.extend_from_slice(format!("line {line} of many\r\n").as_bytes());
        line += 1;
    }
    message.truncate(count);
    message
}

#[tokio::test]
async fn a_large_message_goes_in_and_out_in_pieces() {
    let world = World::new().await;
    let message = octets(3_000_001);
    let mut client = world.client().await;
    client.append("INBOX", "", &message).await;
    // A pipe this small makes every piece wait for the reader.
    let mut client = world.connect(Door { pipe: 1_000, ..Door::default() });
    client.line().await;
    client.ok(&format!("LOGIN {USER} secret")).await;
    client.ok("EXAMINE INBOX").await;
    client.send(b"x FETCH 1 (BODY[] UID)\r\n").await;
    assert_eq!(client.line().await, "* 1 FETCH (UID 1 BODY[] {3000001}");
    assert!(client.octets(message.len()).await == message);
    assert_eq!(client.line().await, ")");
    assert!(client.line().await.starts_with("x OK"));
    client.send(b"y FETCH 1 BODY[]<299999.2000000>\r\n").await;
    assert_eq!(client.line().await, "* 1 FETCH (BODY[]<299999> {2000000}");
    assert!(client.octets(2_000_000).await == message[299_999..2_299_999]);
    assert_eq!(client.line().await, ")");
    client.line().await;
    client.hang_up().await;
}

/// Idle connections are this and what the stream needs: large futures of rare commands are boxed.
#[tokio::test]
async fn a_waiting_session_is_small() {
    let world = World::new().await;
    let (_, far) = tokio::io::duplex(1);
    let session = world.server.session(far, "127.0.0.1:1".parse().unwrap(), false, world.stop.clone());
    let bytes = std::mem::size_of_val(&session);
    assert!(bytes <= 2_048, "{bytes} bytes");
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_given_up() {
    let world = World::with(ImapConfig { write_timeout_seconds: 1, ..ImapConfig::default() }, 0).await;
    world.client().await.append("INBOX", "", &octets(500_000)).await;
    let mut client = world.connect(Door { pipe: 1_000, ..Door::default() });
    client.line().await;
    client.ok(&format!("LOGIN {USER} secret")).await;
    client.ok("EXAMINE INBOX").await;
    client.send(b"x FETCH 1 BODY[]\r\n").await;
    client.ended().await;
}

#[tokio::test]
async fn an_append_broken_off_leaves_nothing() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(b"x APPEND INBOX {1000+}\r\nSubject: half").await;
    client.hang_up().await;
    let mut client = world.client().await;
    let status = client.ok("STATUS INBOX (MESSAGES UIDNEXT)").await;
    assert_eq!(status[0], "* STATUS INBOX (MESSAGES 0 UIDNEXT 1)");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_sent() {
    let config = ImapConfig { message_bytes_max: 10_000, ..ImapConfig::default() };
    let world = World::with(config, 5_000).await;
    let mut client = world.client().await;
    assert!(client.command("APPEND INBOX {10001}").await[0].contains("NO [TOOBIG]"));
    assert!(client.command("APPEND INBOX {6000}").await[0].contains("NO [OVERQUOTA]"));
    client.append("INBOX", "", &octets(3_000)).await;
    client.ok("SELECT INBOX").await;
    assert!(client.command("COPY 1 Trash").await[0].contains("NO [OVERQUOTA]"));
    client.ok("MOVE 1 Trash").await;
}

#[tokio::test]
async fn connections_that_only_err_are_closed() {
    let config = ImapConfig { errors_max: 3, login_failures_max: 2, ..ImapConfig::default() };
    let world = World::with(config, 0).await;
    let mut client = world.client().await;
    client.send(b"a X\r\nb X\r\nc X\r\nd NOOP\r\n").await;
    let rest = String::from_utf8(client.rest().await).unwrap();
    let starts: Vec<&str> = rest.lines().map(|line| &line[..5]).collect();
    assert_eq!(starts, ["a BAD", "b BAD", "c BAD", "* BYE"]);

    let mut client = world.connect(Door::default());
    client.line().await;
    client.send(b"a LOGIN x y\r\nb LOGIN x y\r\nc NOOP\r\n").await;
    let rest = String::from_utf8(client.rest().await).unwrap();
    let starts: Vec<&str> = rest.lines().map(|line| &line[..5]).collect();
    assert_eq!(starts, ["a NO ", "b NO ", "* BYE"]);
}

#[tokio::test]
async fn an_account_has_so_many_sessions() {
    let world = World::with(ImapConfig { sessions_per_account_max: 2, ..ImapConfig::default() }, 0).await;
    let first = world.client().await;
    let _second = world.client().await;
    let mut third = world.connect(Door::default());
    third.line().await;
    let login = format!("LOGIN {USER} secret");
    assert!(third.command(&login).await[0].contains("NO [LIMIT]"));
    first.hang_up().await;
    third.ok(&login).await;
}

#[tokio::test]
async fn a_stopping_server_says_so() {
    let world = World::new().await;
    let mut idle = world.client().await;
    idle.ok("SELECT INBOX").await;
    idle.send(b"x IDLE\r\n").await;
    idle.line().await;
    let mut waiting = world.client().await;
    world.stop.cancel();
    for client in [&mut idle, &mut waiting] {
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(rest.starts_with("* BYE "), "{rest}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_connections_are_closed_in_time() {
    let world = World::new().await;
    let start = tokio::time::Instant::now();
    let mut stranger = world.connect(Door::default());
    stranger.line().await;
    stranger.ended().await;
    assert_eq!(start.elapsed().as_secs(), 180);

    let mut client = world.client().await;
    client.ok("SELECT INBOX").await;
    let start = tokio::time::Instant::now();
    client.ended().await;
    // RFC 3501 §5.4: not before 30 minutes.
    assert!((1_800..2_000).contains(&start.elapsed().as_secs()));
}

#[tokio::test]
async fn a_store_that_fails_is_told_and_the_session_goes_on() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.append("INBOX", "", b"Subject: x\r\n\r\n").await;
    client.ok("SELECT INBOX").await;
    world.memory.inject(Operation::Commit, Fault::Unavailable);
    let refused = client.command("STORE 1 +FLAGS (\\Seen)").await;
    assert!(refused[0].contains("NO [UNAVAILABLE]"), "{refused:?}");
    world.memory.set_faults(Faults { unavailable: 1_000, ..Faults::default() });
    for command in ["STORE 1 +FLAGS (\\Seen)", "COPY 1 Trash", "CREATE x", "EXPUNGE", "APPEND INBOX {1+}\r\nx"] {
        let refused = client.command(command).await;
        // What changes nothing may succeed.
        assert!(refused[0].contains("NO [UNAVAILABLE]") || command == "EXPUNGE", "{command}: {refused:?}");
    }
    world.memory.set_faults(Faults::default());
    assert_eq!(client.ok("STORE 1 +FLAGS (\\Seen)").await[0], "* 1 FETCH (FLAGS (\\Seen \\Recent))");
}

#[tokio::test]
async fn a_damaged_message_is_answered_as_far_as_possible() {
    let world = World::new().await;
    let mut client = world.client().await;
    for number in 0..3 {
        client.append("INBOX", "", format!("Subject: {number}\r\n\r\n").as_bytes()).await;
    }
    let of_second = |value: &[u8]| value.windows(10).any(|octets| octets == b"Subject: 1");
    let rows = world.memory.rows();
    let (_, partition, key, _) =
        rows.into_iter().find(|(table, _, _, value)| *table == Table::Message && of_second(value)).unwrap();
    let mut batch = Batch::default();
    batch.put(Table::Message, partition, key, "damaged");
    world.memory.put(batch).await.unwrap();
    // Read anew, not from memory.
    let world = world.reopened();
    let mut client = world.client().await;
    client.ok("EXAMINE INBOX").await;
    let answer = client.command("FETCH 1:3 (RFC822.SIZE BODY.PEEK[HEADER.FIELDS (Subject)])").await;
    let text = answer.join("\n");
    assert!(text.contains("* 1 FETCH (RFC822.SIZE 14 BODY[HEADER.FIELDS (Subject)] {14}\nSubject: 0"), "{text}");
    assert!(text.contains("* 2 FETCH (RFC822.SIZE 14)\n"), "{text}");
    assert!(text.contains("* 3 FETCH (RFC822.SIZE 14 BODY[HEADER.FIELDS (Subject)] {14}\nSubject: 2"), "{text}");
    assert!(answer.last().unwrap().contains("NO [SERVERBUG]"), "{text}");
    client.ok("NOOP").await;
}

#[tokio::test]
async fn sessions_end_with_what_their_login_stood_on() {
    let world = World::with(ImapConfig { idle_notify_seconds: 1, ..ImapConfig::default() }, 0).await;
    let directory = &world.storage.directory;
    let gone = "* BYE [UNAVAILABLE] The account was changed; log in again";
    for change in 0..3 {
        let (mut quiet, mut adding, mut idle, mut waiting) =
            (world.client().await, world.client().await, world.client().await, world.client().await);
        idle.ok("SELECT INBOX").await;
        for client in [&mut idle, &mut waiting] {
            client.send("i IDLE\r\n").await;
            assert_eq!(client.line().await, "+ idling");
        }
        adding.send("a APPEND INBOX {4}\r\n").await;
        assert_eq!(adding.line().await, "+ Go on");
        // A quota has nothing to do with it.
        directory.account_set_quota(USER, 1_000_000).await.unwrap();
        quiet.ok("NOOP").await;
        match change {
            0 => directory.account_set_password(USER, Some("secret")).await.unwrap(),
            1 => directory.account_set_enabled(USER, false).await.unwrap(),
            _ => drop(directory.account_remove(USER).await.unwrap()),
        }
        for client in [&mut idle, &mut waiting] {
            assert_eq!(client.line().await, gone, "at the next sign of life");
            client.ended().await;
        }
        quiet.send("x NOOP\r\n").await;
        assert_eq!(String::from_utf8(quiet.rest().await).unwrap(), format!("{gone}\r\n"));
        adding.send("\r\n\r\n\r\n").await;
        assert_eq!(String::from_utf8(adding.rest().await).unwrap(), format!("{gone}\r\n"));
        directory.account_set_enabled(USER, true).await.ok();
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_asked_ends_no_session() {
    let world = World::new().await;
    let mut client = world.client().await;
    world.memory.inject(Operation::Read, Fault::Unavailable);
    client.ok("NOOP").await;
    client.ok("NOOP").await;
}
