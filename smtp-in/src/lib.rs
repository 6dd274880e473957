//! SMTP, submission and LMTP sessions: receive, check, accept.
