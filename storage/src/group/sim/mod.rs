//! Simulations: several nodes at work on one group over a store with faults, everything drawn from one seed.
//!
//! A run repeats exactly: one thread, no clock, and every back-off only yields. `SIM_RUNS` says how many seeds a test
//! runs, `SIM_SEED` runs that one alone and tells more.

mod tests;
pub(super) mod toy;
mod world;

/// What is broken on purpose, to show that the simulation notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The expected version is whatever the store's is.
    DropVersionCheck,
    /// After a conflict the new number is taken over without the entries.
    SkipCatchUp,
    /// Changes are answered before their commit.
    AckBeforeDurable,
    /// An unknown outcome counts as a refusal.
    ForgetUnknown,
    /// A refusal after an unknown outcome counts as certain.
    TrustRefusal,
    /// Slots are overwritten though no checkpoint covers them.
    TrimBeforeCheckpoint,
    /// Superseded chunks are deleted before the checkpoint is the newest.
    DeleteBeforeCommit,
    /// A checkpoint is written from a state that knows nothing of another node's checkpoint.
    SkipRebase,
}
