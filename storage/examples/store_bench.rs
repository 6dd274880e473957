//! The limit other figures are compared with: group commit of the embedded store on this disk.
//!
//! `cargo run --release -p posthouse-storage --example store_bench -- [--dir DIR] [--writers N] [--seconds S]
//! [--bytes B] [--random]`: N tasks commit one value of B bytes after the other, each to its own partition; then the
//! store is dropped without being closed, as a kill leaves it, and opened again. Values are text-like unless
//! `--random`, since the engine compresses. One line of JSON is printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthouse_storage::wide::{Batch, Commit, CommitId, Embedded, EmbeddedConfig, Outcome, Store, StoreError, Table};

struct Options {
    dir: Option<String>,
    writers: u64,
    seconds: u64,
    bytes: usize,
    random: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options { dir: None, writers: 32, seconds: 5, bytes: 8 * 1_024, random: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--random" {
            options.random = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
        match name.as_str() {
            "--dir" => options.dir = Some(value),
            "--writers" => options.writers = number()?,
            "--seconds" => options.seconds = number()?,
            "--bytes" => options.bytes = number()? as usize,
            _ => return Err(format!("{name} is not known; see the top of this file")),
        }
    }
    Ok(options)
}

/// A value that compresses as mail does, or not at all.
fn value(options: &Options, seed: u64) -> Bytes {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let words = ["the ", "of ", "mail ", "today ", "delivery ", "and ", "posthouse ", "regards ", "\r\n"];
    let mut out = Vec::with_capacity(options.bytes + 16);
    while out.len() < options.bytes {
        if options.random || next() % 3 == 0 {
            out.extend_from_slice(&next().to_le_bytes()[..4]);
        } else {
            out.extend_from_slice(words[next() as usize % words.len()].as_bytes());
        }
    }
    out.truncate(options.bytes);
    Bytes::from(out)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Arc::new(options()?);
    let temporary = std::env::temp_dir().join(format!("store-bench-{}", std::process::id()));
    let dir = options.dir.as_ref().map_or(temporary.clone(), Into::into);
    let config = EmbeddedConfig::new(&dir);
    let store = Arc::new(Embedded::open(&config)?);
    let stop = Arc::new(AtomicBool::new(false));
    let commits = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut writers = Vec::new();
    for writer in 0..options.writers {
        let (store, stop, commits, options) = (store.clone(), stop.clone(), commits.clone(), options.clone());
        writers.push(tokio::spawn(async move {
            let partition = Bytes::from(format!("{writer}-{}", std::process::id()));
            let values: Vec<Bytes> = (0..16).map(|seed| value(&options, writer * 16 + seed)).collect();
            let mut expected = 0_u64;
            let mut waits = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let mut first = Batch::default();
                let key = expected.to_be_bytes().to_vec();
                first.put(Table::Body, partition.clone(), key.clone(), values[expected as usize % 16].clone());
                let commit = Commit {
                    table: Table::Head,
                    partition: partition.clone(),
                    expected,
                    id: CommitId(u128::from(expected) + 1),
                    writes: vec![(key.into(), Some(Bytes::from_static(&[7; 64])))],
                    first,
                };
                let asked = Instant::now();
                match store.commit(commit).await? {
                    Outcome::Applied => expected += 1,
                    other => return Err(StoreError::Corrupt(format!("{other:?}"))),
                }
                waits.push(asked.elapsed());
                commits.fetch_add(1, Ordering::Relaxed);
            }
            Ok(waits)
        }));
    }
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for writer in writers {
        waits.extend(writer.await??);
    }
    let elapsed = started.elapsed().as_secs_f64();
    waits.sort();
    let percentile = |of_hundred: usize| waits.get(waits.len() * of_hundred / 100).copied().unwrap_or_default();
    let (total, syncs) = (commits.load(Ordering::Relaxed), store.syncs());
    drop(store);
    let mut reopened = Instant::now();
    let store = loop {
        match Embedded::open(&config) {
            // Its threads are still ending.
            Err(StoreError::Locked { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                reopened = Instant::now();
            }
            other => break other?,
        }
    };
    println!(
        "{{\"writers\":{},\"bytes\":{},\"commits_per_s\":{:.0},\"syncs_per_s\":{:.0},\"p50_us\":{},\"p99_us\":{},\"reopen_ms\":{}}}",
        options.writers,
        options.bytes,
        total as f64 / elapsed,
        syncs as f64 / elapsed,
        percentile(50).as_micros(),
        percentile(99).as_micros(),
        reopened.elapsed().as_millis(),
    );
    store.close().await?;
    if options.dir.is_none() {
        std::fs::remove_dir_all(temporary)?;
    }
    Ok(())
}
