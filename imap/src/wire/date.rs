//! IMAP's dates: `date`, `date-time`.
