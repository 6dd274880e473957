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

#[test]
fn whatever_fails_what_was_answered_holds() {
    if let Some(seed) = number("SIM_SEED") {
        let ended = run(seed, None);
        println!("seed {seed}: {ended:?}");
        assert!(ended.is_ok(), "{ended:?}");
        return;
    }
    let runs = number("SIM_RUNS").unwrap_or(10_000);
    let mut sum = Tally::default();
    let violated = find(0..runs, None, |tally| {
        sum.done += tally.done;
        sum.refused += tally.refused;
        sum.failed += tally.failed;
        sum.unsure += tally.unsure;
        sum.crashes += tally.crashes;
        sum.seq += tally.seq;
        sum.chunk_rows += tally.chunk_rows;
        sum.live_rows += tally.live_rows;
    });
    if let Some((seed, violation)) = violated {
        panic!("SIM_SEED={seed}: {violation}");
    }
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
        let found = find(0..2_000, Some(mutation), |_| ());
        let (seed, violation) = found.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
        println!("{mutation:?}: seed {seed}: {violation}");
    }
}
