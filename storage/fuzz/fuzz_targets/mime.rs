//! `cargo +nightly fuzz run mime`: any octets as a message, its header fields, and a stored row.
#![no_main]

#[path = "../../tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| invariants::check(octets));
