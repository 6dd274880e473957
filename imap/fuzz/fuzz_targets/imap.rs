//! `cargo +nightly fuzz run imap`: any octets at the framer and the command parser, beside imap-codec.
#![no_main]

#[path = "../../tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| oracle::check(octets));
