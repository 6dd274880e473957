//! Modified UTF-7 of mailbox names (RFC 3501 §5.1.3).
