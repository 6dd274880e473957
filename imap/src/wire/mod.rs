//! The wire of IMAP4rev1 (RFC 3501): octets to commands, answers to octets. Nothing here waits, does I/O or decides.
//!
//! In: the driver reads into [`framer::Framer::read_buffer`] and pulls [`framer::Frame`]s; a frame that holds a command
//! goes through [`parse::parse_command`] and comes out as a [`command::Command`] that owns its data.
//! Out: [`write`](mod@write) appends answers to the session's output buffer; [`section`] says which octets of a message
//! a `BODY[...]` item names.

pub mod bodystructure;
pub mod command;
pub mod date;
pub mod envelope;
pub mod framer;
pub mod mutf7;
pub mod parse;
pub mod section;
pub mod write;
