//! Administration: one set of operations, carried out by whoever holds the data directory.
//!
//! [`protocol`] says what can be asked, [`operations`] does it over an opened storage, [`server`] takes calls on a
//! Unix socket inside the data directory, and [`client`] finds out whether a server is there or opens the storage
//! itself. [`frames`] carries messages in bulk; [`import`] adds them, [`known`] passes over
//! those that are there. [`leads`] finds aliases that lead to nobody.

pub mod client;
pub mod frames;
pub mod import;
pub mod known;
pub mod leads;
pub mod operations;
pub mod protocol;
pub mod server;
pub mod socket;

pub use client::Admin;
