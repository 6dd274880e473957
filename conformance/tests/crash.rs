//! SIGKILL at any moment: what was acknowledged is there afterwards, exactly, once, and UIDs never repeat.
//!
//! 20 SMTP connections deliver and 5 IMAP sessions append, flag, move and expunge while the server is killed at a
//! random moment, restarted over the same data, and everything acknowledged so far is checked.

#![expect(clippy::unwrap_used, reason = "a lock is only poisoned when another thread failed the test already")]
#![expect(clippy::type_complexity, reason = "what was seen, per account and mailbox, is used in one place")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use posthouse_conformance::imap::Imap;
use posthouse_conformance::server::{ALICE, BOB, PASSWORD, Server};
use posthouse_conformance::smtp::Smtp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SMTP_CONNECTIONS: usize = 20;
const IMAP_SESSIONS: usize = 5;

/// A message that a session put somewhere: where it was when last acknowledged, and where the operation in flight
/// (if any) would take it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    mailbox: String,
    flagged: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// marker → exact octets sent, acknowledged by SMTP; per account.
    delivered: HashMap<(usize, u64), Vec<u8>>,
    /// marker → sent but never acknowledged (may be there).
    unsure: HashMap<(usize, u64), Vec<u8>>,
    /// marker → (acknowledged place or none, place if the last operation happened; None = gone).
    placed: BTreeMap<u64, (Option<Place>, Option<Place>)>,
}

fn message(marker: u64, rng: &mut StdRng) -> Vec<u8> {
    let mut octets =
        format!("From: <load@sender.test>\r\nSubject: marker {marker}\r\nX-Marker: {marker}\r\n\r\n").into_bytes();
    for _ in 0..rng.random_range(1..120) {
        octets.extend_from_slice(format!("line {} of something\r\n", rng.random::<u32>()).as_bytes());
    }
    octets
}

fn marker_of(octets: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(octets);
    let at = text.find("X-Marker: ")? + 10;
    text[at..].lines().next()?.trim().parse().ok()
}

fn deliverer(server: std::net::SocketAddr, seed: u64, next: &AtomicU64, stop: &AtomicBool, known: &Mutex<Known>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let accounts = [ALICE, BOB];
    let Ok(mut smtp) = Smtp::connect(server) else { return };
    while !stop.load(Ordering::Relaxed) {
        let marker = next.fetch_add(1, Ordering::Relaxed);
        let to: &[usize] = match rng.random_range(0..5) {
            0 => &[0, 1],
            1 | 2 => &[0],
            _ => &[1],
        };
        let octets = message(marker, &mut rng);
        for account in to {
            known.lock().unwrap().unsure.insert((*account, marker), octets.clone());
        }
        let names: Vec<&str> = to.iter().map(|&account| accounts[account]).collect();
        match smtp.deliver("load@sender.test", &names, &octets) {
            Ok(reply) if reply.code == 250 => {
                let mut known = known.lock().unwrap();
                for account in to {
                    let octets = known.unsure.remove(&(*account, marker)).expect("just put there");
                    known.delivered.insert((*account, marker), octets);
                }
            }
            Ok(reply) => panic!("refused: {reply:?}"),
            Err(_) => return,
        }
    }
}

/// One IMAP session working on its own mailbox and the shared Archive.
fn worker(
    server: std::net::SocketAddr,
    id: usize,
    seed: u64,
    next: &AtomicU64,
    stop: &AtomicBool,
    known: &Mutex<Known>,
) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let home = format!("Work{id}");
    let mut imap = Imap::login(server, ALICE, PASSWORD)?;
    drop(imap.command(&format!("CREATE {home}"))?);
    imap.select(&home)?;
    while !stop.load(Ordering::Relaxed) {
        let marker = next.fetch_add(1, Ordering::Relaxed);
        let octets = message(marker, &mut rng);
        let here = Place { mailbox: home.clone(), flagged: false };
        known.lock().unwrap().placed.insert(marker, (None, Some(here.clone())));
        let answer = imap.append(&home, "", &octets)?;
        ensure!(answer.ok(), "APPEND: {}", answer.tagged);
        let uid: u32 =
            answer.tagged.split(|c: char| !c.is_ascii_digit()).rfind(|s| !s.is_empty()).context("uid")?.parse()?;
        let tagged_uid = answer.tagged.split("APPENDUID ").nth(1).and_then(|rest| rest.split([' ', ']']).nth(1));
        let uid = tagged_uid.map_or(Ok(uid), str::parse)?;
        let mut place = here;
        known.lock().unwrap().placed.insert(marker, (Some(place.clone()), Some(place.clone())));
        let steps = rng.random_range(0..3);
        for step in 0..steps {
            let (command, after) = match (step, rng.random_range(0..4)) {
                (0, _) => {
                    let flagged = !place.flagged;
                    let sign = if flagged { '+' } else { '-' };
                    (format!("UID STORE {uid} {sign}FLAGS (\\Flagged)"), Some(Place { flagged, ..place.clone() }))
                }
                (_, 0) => {
                    (format!("UID MOVE {uid} Archive"), Some(Place { mailbox: "Archive".into(), ..place.clone() }))
                }
                _ => (format!("UID STORE {uid} +FLAGS.SILENT (\\Deleted)"), Some(place.clone())),
            };
            known.lock().unwrap().placed.insert(marker, (Some(place.clone()), after.clone()));
            imap.ok(&command)?;
            known.lock().unwrap().placed.insert(marker, (after.clone(), after.clone()));
            if command.ends_with("(\\Deleted)") {
                known.lock().unwrap().placed.insert(marker, (after.clone(), None));
                imap.ok(&format!("UID EXPUNGE {uid}"))?;
                known.lock().unwrap().placed.insert(marker, (None, None));
                break;
            }
            match after {
                Some(after) if after.mailbox == home => place = after,
                _ => break,
            }
        }
    }
    Ok(())
}

/// Per mailbox: uid → marker, as seen so far; and the highest UIDNEXT seen.
#[derive(Debug, Default)]
struct Seen {
    uids: HashMap<(usize, String), (u32, BTreeMap<u32, u64>, u32)>,
}

fn check(server: &Server, known: &mut Known, seen: &mut Seen, round: usize) -> Result<()> {
    for (account, name) in [ALICE, BOB].into_iter().enumerate() {
        let mut imap = Imap::login(server.imap(), name, PASSWORD)?;
        let mut found: HashMap<u64, Vec<Place>> = HashMap::new();
        let mut boxes = vec!["INBOX".to_owned()];
        if account == 0 {
            boxes.push("Archive".to_owned());
            boxes.extend((0..IMAP_SESSIONS).map(|id| format!("Work{id}")));
        }
        for mailbox in boxes {
            let answer = imap.command(&format!("STATUS {mailbox} (UIDNEXT UIDVALIDITY MESSAGES)"))?;
            if !answer.ok() {
                continue;
            }
            let status = &answer.untagged[0];
            let next = status.item_number("UIDNEXT").context("UIDNEXT")? as u32;
            let validity = status.item_number("UIDVALIDITY").context("UIDVALIDITY")? as u32;
            imap.ok(&format!("EXAMINE {mailbox}"))?;
            let entry = seen.uids.entry((account, mailbox.clone())).or_insert((validity, BTreeMap::new(), 1));
            ensure!(entry.0 == validity, "{mailbox}: UIDVALIDITY changed");
            ensure!(next >= entry.2, "{mailbox}: UIDNEXT went back from {} to {next}", entry.2);
            let already = entry.1.last_key_value().map_or(0, |(&uid, _)| uid);
            entry.2 = next;
            for line in imap.uid_fetch_all("(UID FLAGS)")? {
                let uid = line.item_number("UID").context("UID")? as u32;
                ensure!(uid < next, "{mailbox}: uid {uid} not below UIDNEXT {next}");
                if uid <= already {
                    let marker = entry.1.get(&uid).with_context(|| {
                        format!("{mailbox}: uid {uid} was never seen before, yet lies below {already}")
                    })?;
                    found
                        .entry(*marker)
                        .or_default()
                        .push(Place { mailbox: mailbox.clone(), flagged: line.line.contains("\\Flagged") });
                }
            }
            let answer = imap.ok(&format!("UID FETCH {}:* (UID FLAGS BODY.PEEK[])", already + 1))?;
            for line in answer.untagged.iter().filter(|line| line.numbered("FETCH").is_some()) {
                let uid = line.item_number("UID").context("UID")? as u32;
                if uid <= already {
                    continue; // `n:*` always includes the last message
                }
                let octets = line.literals.first().context("no body")?;
                let marker = marker_of(octets).context("no marker")?;
                found
                    .entry(marker)
                    .or_default()
                    .push(Place { mailbox: mailbox.clone(), flagged: line.line.contains("\\Flagged") });
                entry.1.insert(uid, marker);
                if mailbox == "INBOX" {
                    let sent = known.delivered.get(&(account, marker)).or_else(|| known.unsure.get(&(account, marker)));
                    let sent = sent.with_context(|| format!("marker {marker} was never sent to {name}"))?;
                    ensure!(octets.ends_with(sent), "marker {marker}: octets differ");
                }
            }
        }
        for ((to, marker), _) in known.delivered.iter().filter(|((to, _), _)| *to == account) {
            let places = found.get(marker).map_or(0, Vec::len);
            ensure!(
                places == 1,
                "round {round}: marker {marker}, acknowledged to account {to}, is there {places} times"
            );
        }
        if account == 0 {
            for (marker, (acknowledged, attempted)) in &mut known.placed {
                let places = found.get(marker).cloned().unwrap_or_default();
                ensure!(places.len() <= 1, "marker {marker} is in {places:?}");
                let now = places.first().cloned();
                ensure!(
                    now == *acknowledged || now == *attempted,
                    "round {round}: marker {marker} is at {now:?}; acknowledged {acknowledged:?}, attempted {attempted:?}"
                );
                // Settled now: from here on it must stay so.
                *acknowledged = now.clone();
                *attempted = now;
            }
            known.placed.retain(|_, (now, _)| now.is_some());
        }
        // What was never acknowledged may be there, once; and then it must stay. It may also come later: a delivery to
        // several accounts that was durably begun is finished after the restart.
        let arrived: Vec<_> =
            known.unsure.keys().filter(|(to, marker)| *to == account && found.contains_key(marker)).copied().collect();
        for key in arrived {
            let places = found.get(&key.1).map_or(0, Vec::len);
            ensure!(places == 1, "round {round}: marker {}, never acknowledged, is there {places} times", key.1);
            let octets = known.unsure.remove(&key).context("listed")?;
            known.delivered.insert(key, octets);
        }
    }
    Ok(())
}

fn rounds(count: usize) -> Result<()> {
    let seed: u64 = std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("CRASH_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    let known = Arc::new(Mutex::new(Known::default()));
    let next = Arc::new(AtomicU64::new(1));
    let mut seen = Seen::default();
    let mut server = Server::start(&data)?;
    let started = Instant::now();
    for round in 0..count {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            for _ in 0..SMTP_CONNECTIONS {
                let seed = rng.random();
                let (address, next, stop, known) = (server.smtp(), &next, &stop, &known);
                scope.spawn(move || deliverer(address, seed, next, stop, known));
            }
            for id in 0..IMAP_SESSIONS {
                let seed = rng.random();
                let (address, next, stop, known) = (server.imap(), &next, &stop, &known);
                scope.spawn(move || {
                    // A lost connection is how every session ends here; anything else is a fault.
                    if let Err(error) = worker(address, id, seed, next, stop, known) {
                        let lost = error.root_cause().is::<std::io::Error>() || error.to_string().contains("closed");
                        assert!(lost, "session {id}: {error:#}");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(rng.random_range(30..500)));
            let alive = server.alive();
            server.kill()?;
            stop.store(true, Ordering::Relaxed);
            ensure!(alive, "round {round}: the server had ended by itself");
            Ok(())
        })?;
        server = Server::start(&data)?;
        let mut known = known.lock().unwrap();
        check(&server, &mut known, &mut seen, round).with_context(|| format!("round {round}, seed {seed}"))?;
    }
    let known = known.lock().unwrap();
    println!(
        "{count} kills in {:.0} s: {} deliveries and {} placed messages checked, nothing acknowledged was lost",
        started.elapsed().as_secs_f64(),
        known.delivered.len(),
        known.placed.len()
    );
    ensure!(known.delivered.len() > count * 10, "too little was delivered to mean anything: {}", known.delivered.len());
    ensure!(server.terminate()? == 0, "the server did not stop cleanly");
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_in_five_kills() -> Result<()> {
    rounds(5)
}

#[test]
#[ignore = "takes minutes; the continuous integration runs it"]
fn nothing_acknowledged_is_lost_in_fifty_kills() -> Result<()> {
    rounds(std::env::var("CRASH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(50))
}
