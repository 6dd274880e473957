//! One TOML file and the environment, checked as a whole before anything starts.
//!
//! [`sections`] holds the binary's own keys, the crates hold theirs; [`schema`] knows all of them from their types;
//! [`load`] reads and reports; [`syntax`] says what is not TOML; [`validate`] checks what a type cannot say; [`reference`](mod@reference) writes the page.

pub mod load;
pub mod mistake;
pub mod reference;
pub mod schema;
pub mod sections;
pub mod syntax;
pub mod validate;

use posthouse_http::HttpConfig;
use posthouse_imap::ImapConfig;
use posthouse_smtp_in::SmtpConfig;
use serde::{Deserialize, Serialize};

pub use mistake::Mistakes;
pub use sections::{ListenSection, LogFormat, ServerSection, StorageSection, TlsSection};

/// Everything that can be configured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The process.
    pub server: ServerSection,
    /// Addresses.
    pub listen: ListenSection,
    /// The certificate.
    pub tls: TlsSection,
    /// SMTP, submission and LMTP.
    pub smtp: SmtpConfig,
    /// IMAP.
    pub imap: ImapConfig,
    /// HTTP.
    pub http: HttpConfig,
    /// The store.
    pub storage: StorageSection,
}
