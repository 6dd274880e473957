//! Rows of the directory: compact JSON with a version, in one partition per domain.
//!
//! | partition | key | row |
//! |---|---|---|
//! | `domains` | domain | nothing: a list to walk, written before the domain itself |
//! | `d:` domain | empty | [`DomainRow`] |
//! | `d:` domain | `u` and the local part as compared | [`Named`] |
//! | `i:` account id, 16 hexadecimal digits | empty | the address it was made for; never removed |

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::account::AccountId;
use crate::wide::StoreError;

/// The version this program writes; later ones are refused.
const VERSION: u8 = 1;

/// The list of domains.
pub(super) const DOMAINS: &[u8] = b"domains";

/// A domain's partition.
pub(super) fn domain_partition(domain: &str) -> Bytes {
    Bytes::from(format!("d:{domain}"))
}

/// The partition that reserves an id.
pub(super) fn id_partition(id: AccountId) -> Bytes {
    Bytes::from(format!("i:{:016x}", id.0))
}

/// The key of a name in its domain.
pub(super) fn name_key(key: &str) -> Bytes {
    Bytes::from(format!("u{key}"))
}

/// A domain's own row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct DomainRow {
    v: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) catch_all: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) contact: Option<String>,
}

/// What a name in a domain is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Named {
    Account(AccountRow),
    Alias(AliasRow),
}

/// An account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AccountRow {
    v: u8,
    /// The local part as it was written.
    pub(super) local: String,
    pub(super) id: u64,
    /// PHC string; `None` cannot log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) password: Option<String>,
    pub(super) enabled: bool,
    #[serde(default)]
    pub(super) quota_bytes: u64,
}

/// An alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AliasRow {
    v: u8,
    /// The local part as it was written.
    pub(super) local: String,
    pub(super) targets: Vec<String>,
}

impl DomainRow {
    pub(super) fn new() -> Self {
        Self { v: VERSION, ..Self::default() }
    }
}

impl AccountRow {
    pub(super) fn new(local: String, id: AccountId, password: Option<String>, quota_bytes: u64) -> Self {
        Self { v: VERSION, local, id: id.0, password, enabled: true, quota_bytes }
    }
}

impl AliasRow {
    pub(super) fn new(local: String, targets: Vec<String>) -> Self {
        Self { v: VERSION, local, targets }
    }
}

/// A row that says which version wrote it.
pub(super) trait Row: Serialize + for<'a> Deserialize<'a> {
    fn version(&self) -> u8;

    fn encode(&self) -> Result<Bytes, StoreError> {
        let json = serde_json::to_vec(self);
        json.map(Bytes::from).map_err(|error| StoreError::Refused(format!("a directory row: {error}")))
    }

    fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let row: Self = serde_json::from_slice(bytes)
            .map_err(|error| StoreError::Corrupt(format!("a directory row cannot be read: {error}")))?;
        if row.version() != VERSION {
            return Err(StoreError::Refused(format!(
                "a directory row has version {}, this program reads {VERSION}",
                row.version()
            )));
        }
        Ok(row)
    }
}

impl Row for DomainRow {
    fn version(&self) -> u8 {
        self.v
    }
}

impl Row for Named {
    fn version(&self) -> u8 {
        match self {
            Self::Account(row) => row.v,
            Self::Alias(row) => row.v,
        }
    }
}
