//! IMAP sessions.

pub mod wire;
