//! IMAP sessions.
