//! The simulations that are run.

use super::Mutation;
use super::world::{Tally, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds until one is violated: it, and what was.
fn find(seeds: std::ops::Range<u64>, mutation: Option<Mutation>, mut each: impl FnMut(Tally)) -> Option<(u64, String)> {
    for seed in seeds {
        match run(seed, mutation) {
            Ok(tally) => each(tally),
            Err(violation) => return Some((seed, violation)),
        }
    }
    None
}

fn add(sum: Tally, one: Tally) -> Tally {
    Tally {
        done: sum.done + one.done,
        refused: sum.refused + one.refused,
        failed: sum.failed + one.failed,
        unsure: sum.unsure + one.unsure,
        crashes: sum.crashes + one.crashes,
        seq: sum.seq + one.seq,
        chunk_rows: sum.chunk_rows + one.chunk_rows,
        live_rows: sum.live_rows + one.live_rows,
    }
}

/// Runs seeds none of which may be violated.
fn sum(seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    if let Some((seed, violation)) = find(seeds, None, |tally| sum = add(sum, tally)) {
        panic!("SIM_SEED={seed}: {violation}");
    }
    sum
}

#[test]
fn whatever_fails_what_was_answered_holds() {
    if let Some(seed) = number("SIM_SEED") {
        let ended = run(seed, None);
        println!("seed {seed}: {ended:?}");
        assert!(ended.is_ok(), "{ended:?}");
        return;
    }
    let runs = number("SIM_RUNS").unwrap_or(10_000);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let part = |at: u64| move || sum(runs * at / threads..runs * (at + 1) / threads);
    let sums: Vec<Tally> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|at| scope.spawn(part(at))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    });
    let sum = sums.into_iter().fold(Tally::default(), add);
    println!("{runs} runs: {sum:?}");
    // Something did happen in them.
    let least = runs as usize;
    assert!(
        sum.done > least * 20 && sum.refused > least && sum.failed > least / 10 && sum.unsure > least / 4,
        "{sum:?}"
    );
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..50 {
        assert_eq!(run(seed, None), run(seed, None), "seed {seed}");
    }
}

#[test]
fn every_mutation_is_noticed() {
    use Mutation::*;
    let mutations = [
        DropVersionCheck,
        SkipCatchUp,
        AckBeforeDurable,
        ForgetUnknown,
        TrustRefusal,
        TrimBeforeCheckpoint,
        DeleteBeforeCommit,
        SkipRebase,
    ];
    for mutation in mutations {
        let found = find(0..10_000, Some(mutation), |_| ());
        let (seed, violation) = found.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
        println!("{mutation:?}: seed {seed}: {violation}");
    }
}
