//! SMTP, submission and LMTP in: receive, check, accept (RFC 5321, 6409, 2033 and the extensions named in
//! [`session`]).
//!
//! Bytes are framed and parsed in [`wire`], move the sans-IO [`session`], and [`serve`](mod@serve) does what it asks
//! for: read, write, look up, shake hands, deliver. A message's octets are streamed past the session into storage. What
//! is said to peers stands in [`reply`].

pub mod config;
pub mod error;
pub mod events;
#[doc(hidden)]
pub mod rehearsal;
pub mod reply;
pub mod serve;
pub mod session;
pub mod wire;

pub use config::SmtpConfig;
pub use serve::{Server, farewell, serve};
pub use session::Role;
