//! The directory: which domains are ours, which accounts and aliases they have, and who may log in.
//!
//! Everything about one domain is one partition, changed by commits, so that a name is given once. Domains are compared
//! as lower-case A-labels, local parts without regard to case; both are stored and shown as written.
//!
//! Looking an address up goes: account, alias, the same without `+tag`, `postmaster` and `abuse` to the domain's
//! contact, the domain's catch-all. Aliases may point at aliases; each account is named once in the answer.

mod address;
mod admin;
mod login;
mod lookup;
mod row;
#[cfg(test)]
mod tests;
mod throttle;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::account::AccountId;
use crate::wide::{Store, StoreError};

pub use address::Address;

/// What an address stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// These accounts receive; at least one, each once.
    Accounts(Vec<AccountId>),
    /// The domain is ours, nobody there has this name (or only disabled accounts have).
    UnknownUser,
    /// The domain is not ours.
    ForeignDomain,
}

/// Who logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The account.
    pub account: AccountId,
    /// Its address, as it was created.
    pub address: String,
    /// Tells which password it was granted on; for [`Directory::still_valid`] of the same process.
    pub mark: u64,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// One answer for no such user, wrong password and disabled.
    #[error("the name or the password is wrong")]
    Invalid,
    /// Too many failures from there; say so, and try again later.
    #[error("too many failed logins; try again in {} s", retry_after.as_secs().max(1))]
    Throttled {
        /// How long to wait.
        retry_after: Duration,
    },
    /// The directory could not be asked. Temporary.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Why the directory refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DirectoryError {
    #[error("{address:?} is not a mail address: {why}; write it as name@example.org")]
    BadAddress { address: String, why: &'static str },
    #[error("{domain:?} is not a domain: {why}")]
    BadDomain { domain: String, why: &'static str },
    #[error("the domain {0} is not served here; add it first")]
    NoDomain(String),
    #[error("the domain {0} exists already")]
    DomainExists(String),
    #[error("the domain {0} still has accounts or aliases; remove them first")]
    DomainNotEmpty(String),
    #[error("there is no account {0}")]
    NoAccount(String),
    #[error("there is no alias {0}")]
    NoAlias(String),
    #[error("{0} exists already, as an account or an alias")]
    Exists(String),
    #[error("{0} is not in a domain served here; forwarding to other servers is not supported")]
    ForeignTarget(String),
    #[error("nobody here receives mail for {0}; create the account or alias first")]
    UnknownTarget(String),
    #[error("an alias needs at least one target")]
    NoTarget,
    #[error("the alias {0} leads back to itself")]
    Loop(String),
    #[error("{address} stands for more than {max} targets")]
    TooManyTargets { address: String, max: usize },
    #[error("not a usable password: {0}")]
    BadPassword(&'static str),
    #[error("the directory is being changed by too many at once; try again")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A domain, for administration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainInfo {
    /// Lower-case A-labels.
    pub name: String,
    /// Who receives what nobody else does.
    pub catch_all: Option<String>,
    /// Who receives for `postmaster` and `abuse` when these do not exist; the first account by default.
    pub contact: Option<String>,
}

/// An account, for administration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountInfo {
    /// Never given to another account.
    pub id: AccountId,
    /// As it was created.
    pub address: String,
    /// May log in and receive.
    pub enabled: bool,
    /// Bytes, 0 = none. Enforced by [`crate::account::Account::set_quota`].
    pub quota_bytes: u64,
    /// Has a password, so it may log in.
    pub has_password: bool,
}

/// An alias, for administration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasInfo {
    /// As it was created.
    pub address: String,
    /// Where it leads.
    pub targets: Vec<String>,
}

/// Settings of the directory; the defaults suit a server.
#[derive(Debug, Clone)]
pub struct DirectoryConfig {
    /// Argon2id memory, KiB.
    pub password_memory_kib: u32,
    /// Argon2id passes.
    pub password_passes: u32,
}

impl Default for DirectoryConfig {
    /// 19 MiB and two passes, as OWASP recommends.
    fn default() -> Self {
        Self { password_memory_kib: 19 * 1_024, password_passes: 2 }
    }
}

impl DirectoryConfig {
    /// The cheapest hashes, for tests.
    pub fn cheap() -> Self {
        Self { password_memory_kib: 8, password_passes: 1 }
    }
}

/// The directory. Cheap to clone; clones share caches and failed logins' memory.
#[derive(Clone)]
pub struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    answers: Mutex<lookup::Answers>,
    logins: login::Logins,
}

type Result<T, E = DirectoryError> = std::result::Result<T, E>;

impl Directory {
    /// A directory on `store`.
    pub fn new(store: Arc<dyn Store>, config: DirectoryConfig) -> Self {
        let logins = login::Logins::new(&config);
        Self { inner: Arc::new(Inner { store, answers: Mutex::default(), logins }) }
    }

    /// Who receives for `local_part@domain`. What cannot be an address is `UnknownUser` or `ForeignDomain`.
    ///
    /// # Errors
    ///
    /// [`DirectoryError::Loop`] and [`DirectoryError::TooManyTargets`] are mistakes in the aliases.
    pub async fn resolve(&self, local_part: &str, domain: &str) -> Result<Resolved> {
        self.inner.resolve(local_part, domain).await
    }

    /// True when the domain is ours.
    pub async fn is_local(&self, domain: &str) -> Result<bool> {
        match address::domain_key(domain) {
            Ok(domain) => self.inner.is_local(&domain).await,
            Err(_) => Ok(false),
        }
    }

    /// Checks a password. `login` is the account's address; aliases do not log in.
    pub async fn authenticate(&self, login: &str, password: &str, peer: IpAddr) -> Result<Login, AuthError> {
        self.inner.authenticate(login, password, peer).await
    }

    /// True while the account is there, enabled, and has the password the login was granted on: to be asked again by
    /// whatever a login keeps open. Answered from memory as a rule; changes made here are seen at once, those of other
    /// nodes after some seconds.
    pub async fn still_valid(&self, login: &Login) -> Result<bool> {
        self.inner.still_valid(login).await
    }

    /// Adds a domain.
    pub async fn domain_add(&self, domain: &str) -> Result<()> {
        self.inner.domain_add(domain).await
    }

    /// Removes an empty domain.
    pub async fn domain_remove(&self, domain: &str) -> Result<()> {
        self.inner.domain_remove(domain).await
    }

    /// All domains, sorted.
    pub async fn domain_list(&self) -> Result<Vec<DomainInfo>> {
        self.inner.domain_list().await
    }

    /// Sets or clears who receives what nobody else in the domain does.
    pub async fn domain_set_catch_all(&self, domain: &str, target: Option<&str>) -> Result<()> {
        self.inner.domain_set(domain, target, |row, target| row.catch_all = target).await
    }

    /// Sets or clears who receives for `postmaster` and `abuse`.
    pub async fn domain_set_contact(&self, domain: &str, target: Option<&str>) -> Result<()> {
        self.inner.domain_set(domain, target, |row, target| row.contact = target).await
    }

    /// Adds an account with a new id. `None` as password: it receives but cannot log in. `quota_bytes` 0 = none.
    pub async fn account_add(&self, address: &str, password: Option<&str>, quota_bytes: u64) -> Result<AccountId> {
        self.inner.account_add(address, password, quota_bytes).await
    }

    /// Removes an account's name. Its data and id stay, so an account of the same name made later is another one.
    pub async fn account_remove(&self, address: &str) -> Result<AccountId> {
        self.inner.account_remove(address).await
    }

    /// One account; `None` when there is none of this very name.
    pub async fn account(&self, address: &str) -> Result<Option<AccountInfo>> {
        self.inner.account(address).await
    }

    /// Accounts of one domain or all, sorted by name within a domain.
    pub async fn account_list(&self, domain: Option<&str>) -> Result<Vec<AccountInfo>> {
        self.inner.account_list(domain).await
    }

    /// Changes a password; the old one ends at once.
    pub async fn account_set_password(&self, address: &str, password: Option<&str>) -> Result<()> {
        let password = self.inner.hash(password).await?;
        self.inner.account_change(address, |row| row.password.clone_from(&password)).await
    }

    /// Lets an account log in and receive, or neither.
    pub async fn account_set_enabled(&self, address: &str, enabled: bool) -> Result<()> {
        self.inner.account_change(address, |row| row.enabled = enabled).await
    }

    /// Notes another quota.
    pub async fn account_set_quota(&self, address: &str, quota_bytes: u64) -> Result<()> {
        self.inner.account_change(address, |row| row.quota_bytes = quota_bytes).await
    }

    /// Adds an alias, or replaces its targets.
    pub async fn alias_add(&self, alias: &str, targets: &[&str]) -> Result<()> {
        self.inner.alias_add(alias, targets).await
    }

    /// Removes an alias.
    pub async fn alias_remove(&self, alias: &str) -> Result<()> {
        self.inner.alias_remove(alias).await
    }

    /// Aliases of one domain or all, sorted by name within a domain.
    pub async fn alias_list(&self, domain: Option<&str>) -> Result<Vec<AliasInfo>> {
        self.inner.alias_list(domain).await
    }
}
