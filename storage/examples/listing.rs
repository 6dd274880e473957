//! Newest-20 listing of a mailbox of any size, the store reopened cold.
//!
//! `cargo run --release --ignore-rust-version -p posthouse-storage --example listing -- DIR 1000 1000000`
//!
//! For each size: fills an account (unless the directory holds it already), closes, and then ten times opens the store
//! anew, opens the account, and reads what a client shows first: the counts and the rows of the newest twenty. The
//! engine's own opening is timed apart, and so are the three steps: the account's state, the newest chunk, the rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthouse_storage::account::{AccountId, AppendItem, FlagNames};
use posthouse_storage::message::NewMessage;
use posthouse_storage::{Storage, StorageConfig};

const BATCH: usize = 500;

fn config(dir: &std::path::Path) -> StorageConfig {
    StorageConfig { data_dir: dir.to_owned(), ..StorageConfig::default() }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = std::path::PathBuf::from(arguments.next().ok_or("a directory, then sizes")?);
    let mut medians = Vec::new();
    for size in arguments {
        let size: usize = size.parse()?;
        let dir = root.join(format!("listing-{size}"));
        let id = AccountId(1);
        let started = Instant::now();
        {
            let storage = Storage::open(config(&dir)).await?;
            let account = storage.accounts.open(id).await?;
            let inbox = account.current().by_name("INBOX").ok_or("no inbox")?.id;
            let held = account.current().used.messages as usize;
            for first in (held..size).step_by(BATCH) {
                let items: Vec<_> = (first..size.min(first + BATCH))
                    .map(|n| AppendItem {
                        message: Arc::new(NewMessage::from_octets(format!(
                            "From: Sender {} <s@sender.test>\r\nTo: me@x.test\r\nSubject: message {n}\r\nMessage-ID: <{n}@x>\r\n\r\nbody {n}\r\n",
                            n % 97
                        ))),
                        flags: FlagNames::default(),
                        // One a minute, so that a million span two years of weekly partitions.
                        received_at_ms: 1_700_000_000_000 + n as i64 * 60_000,
                        email: None,
                    })
                    .collect();
                account.append(inbox, &items).await?;
            }
            storage.close().await?;
        }
        println!("{size} messages: filled in {:.1} s", started.elapsed().as_secs_f64());
        let (mut opening, mut listing, mut steps) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
        for _ in 0..10 {
            let started = Instant::now();
            let storage = Storage::open(config(&dir)).await?;
            opening.push(started.elapsed());
            let started = Instant::now();
            let account = storage.accounts.open(id).await?;
            let state = account.refresh().await?;
            let inbox = state.by_name("INBOX").ok_or("no inbox")?;
            steps[0].push(started.elapsed());
            let mut emails = Vec::new();
            for slot in inbox.slots.newest_first() {
                let chunk = account.chunk(slot).await?;
                emails.extend(chunk.entries.iter().rev().map(|entry| entry.email).take(20 - emails.len()));
                if emails.len() == 20 {
                    break;
                }
            }
            steps[1].push(started.elapsed() - steps[0][steps[0].len() - 1]);
            let before = started.elapsed();
            let rows = account.rows(&emails).await?;
            steps[2].push(started.elapsed() - before);
            assert!(
                rows.iter().filter(|row| row.is_some()).count() == 20.min(size)
                    && inbox.counts.messages as usize == size
            );
            listing.push(started.elapsed());
            drop((account, state));
            storage.close().await?;
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let listed = median(&mut listing);
        println!(
            "{size} messages: engine opened in {:?}, then account and newest 20 in {listed:?} (state {:?}, chunk {:?}, rows {:?})",
            median(&mut opening),
            median(&mut steps[0]),
            median(&mut steps[1]),
            median(&mut steps[2])
        );
        medians.push(listed);
    }
    if let (Some(first), Some(last)) = (medians.first(), medians.last()) {
        println!("largest / smallest: {:.2}", last.as_secs_f64() / first.as_secs_f64());
    }
    Ok(())
}
