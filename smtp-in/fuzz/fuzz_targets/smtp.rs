//! Any octets, in pieces of any sizes, to a session of each role. The first octets say how they are split.
//!
//! `cargo +nightly fuzz run smtp` in `smtp-in/`. The same function runs under proptest on stable (`tests/session.rs`).

#![no_main]

use libfuzzer_sys::fuzz_target;
use posthouse_smtp_in::rehearsal::however_split;

fuzz_target!(|octets: &[u8]| {
    let (sizes, octets) = octets.split_at(octets.len().min(4));
    however_split(octets, sizes);
});
