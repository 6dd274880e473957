//! Sessions from the outside, in process: octets in, octets out, on the memory store.

#![allow(clippy::unwrap_used, reason = "a test that fails is to say where")]

mod damage;
mod hostile;
mod limits;
mod model;
mod rig;
mod tls;
mod transcripts;
