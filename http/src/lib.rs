//! The HTTP front. Today it serves what an operator's tools ask for: `/metrics`, `/healthz` and `/readyz`.
//!
//! [`serve`](serve::serve) owns sockets and limits and decides nothing; [`routes`] maps a method and a path to a
//! handler. A later module (mail over JMAP, web pages, links) adds its own function beside
//! [`routes::operations`] and one line in [`routes::route`]; listeners, limits and TLS stay as they are.
//!
//! It never touches the store: what it reports is handed in as closures by the binary.

pub mod config;
pub mod error;
pub mod events;
pub mod routes;
pub mod serve;

pub use config::HttpConfig;
pub use error::Problem;
pub use routes::{App, Check};
pub use serve::{Listener, serve};
