//! Posthouse's storage: a wide-column store, entity groups on it, and on those the accounts, messages and directory
//! that the protocol crates work with.
//!
//! The layers, from the bottom: [`wide`] (the engine), [`group`] (journal + checkpoint), [`account`] and [`message`]
//! (mail), [`directory`] (who exists), [`delivery`] (one message to several accounts), and [`Storage`], which puts
//! them together.

pub mod account;
pub mod delivery;
pub mod directory;
pub mod group;
pub mod message;
mod storage;
pub mod wide;

pub use storage::{Storage, StorageConfig};
