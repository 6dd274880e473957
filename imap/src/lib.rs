//! IMAP sessions.

pub mod search;
pub mod wire;
