//! IMAP sessions (RFC 3501 and the extensions named in [`session`]).
//!
//! `wire` frames and parses (bytes in any split, no waiting), `session` holds what a connection is and decides,
//! `command/<verb>` carries commands out over an account, `view` knows what a session has told its client, `tell` tells
//! it what is new, `serve` owns the connections.

mod command;
mod config;
mod error;
mod events;
mod output;
mod reply;
pub mod search;
mod serve;
pub(crate) mod session;
mod tell;
mod view;
pub mod wire;

pub use config::ImapConfig;
pub use serve::{Role, Server, farewell, serve};
