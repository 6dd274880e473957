//! Changes: each is read, decided and committed on the domain's version, and tried again when somebody was faster.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;

use super::lookup::Proposed;
use super::row::{self, AccountRow, AliasRow, DOMAINS, DomainRow, Named, Row};
use super::{AccountInfo, Address, AliasInfo, DirectoryError, DomainInfo, Inner, Result, address};
use crate::account::AccountId;
use crate::wide::{Batch, Commit, CommitId, Order, Outcome, StoreError, Table, Version};

/// How often a change is tried again after a conflict.
const CONFLICTS_MAX: usize = 64;
/// How often an unknown outcome is asked again.
const UNKNOWNS_MAX: u32 = 64;
/// Rows read at once when listing.
const PAGE: usize = 500;
/// Targets of one alias.
const ALIAS_TARGETS_MAX: usize = super::lookup::TARGETS_MAX;

type Writes = Vec<(Bytes, Option<Bytes>)>;

/// What became of one attempt.
enum Attempt {
    Done,
    /// Somebody else changed the domain. `maybe`: an earlier answer was unknown, so it may have been us.
    Overtaken {
        maybe: bool,
    },
}

/// A change of one domain being tried.
struct Change<'a> {
    inner: &'a Inner,
    domain: &'a str,
    version: Version,
    tries: usize,
    /// What is to be done may be done already, by ourselves.
    maybe: bool,
}

impl<'a> Change<'a> {
    fn new(inner: &'a Inner, domain: &'a str) -> Self {
        Self { inner, domain, version: 0, tries: 0, maybe: false }
    }

    /// Begins an attempt: what is read after this is guarded by the version read here.
    async fn begin(&mut self) -> Result<DomainRow> {
        self.read().await?.ok_or_else(|| DirectoryError::NoDomain(self.domain.to_owned()))
    }

    async fn read(&mut self) -> Result<Option<DomainRow>> {
        if self.tries == CONFLICTS_MAX {
            return Err(DirectoryError::Busy);
        }
        self.tries += 1;
        self.version = self.inner.store.version(Table::Directory, &row::domain_partition(self.domain)).await?;
        self.inner.domain(self.domain).await
    }

    /// True when it is done.
    async fn commit(&mut self, writes: Writes, first: Batch) -> Result<bool> {
        let attempt = self.inner.commit(row::domain_partition(self.domain), self.version, writes, first).await;
        // Also after an error: it may have been done.
        self.inner.forget_answers();
        match attempt? {
            Attempt::Done => Ok(true),
            Attempt::Overtaken { maybe } => {
                self.maybe |= maybe;
                Ok(false)
            }
        }
    }
}

fn put(key: Bytes, row: &impl Row) -> Result<(Bytes, Option<Bytes>)> {
    Ok((key, Some(row.encode()?)))
}

impl Inner {
    /// Commits, and settles what is unknown by asking again.
    async fn commit(&self, partition: Bytes, expected: Version, writes: Writes, first: Batch) -> Result<Attempt> {
        let id = CommitId(rand::random());
        let commit = Commit { table: Table::Directory, partition, expected, id, writes, first };
        for unknowns in 0..UNKNOWNS_MAX {
            match self.store.commit(commit.clone()).await? {
                Outcome::Applied => return Ok(Attempt::Done),
                Outcome::Conflict(_) => return Ok(Attempt::Overtaken { maybe: unknowns > 0 }),
                Outcome::Unknown => tokio::time::sleep(Duration::from_millis(1 << unknowns.min(6))).await,
            }
        }
        Err(StoreError::Unavailable("it does not say whether the change was made".to_owned()).into())
    }

    pub(super) async fn domain_add(&self, domain: &str) -> Result<()> {
        let domain = checked(domain)?;
        let mut change = Change::new(self, &domain);
        loop {
            if change.read().await?.is_some() {
                return if change.maybe { Ok(()) } else { Err(DirectoryError::DomainExists(domain.clone())) };
            }
            let mut first = Batch::default();
            first.put(Table::Directory, DOMAINS, Bytes::copy_from_slice(domain.as_bytes()), Bytes::new());
            if change.commit(vec![put(Bytes::new(), &DomainRow::new())?], first).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn domain_remove(&self, domain: &str) -> Result<()> {
        let domain = checked(domain)?;
        let mut change = Change::new(self, &domain);
        loop {
            if change.read().await?.is_none() {
                return if change.maybe { Ok(()) } else { Err(DirectoryError::NoDomain(domain.clone())) };
            }
            if !self.names(&domain, Bound::Unbounded, 1).await?.is_empty() {
                return Err(DirectoryError::DomainNotEmpty(domain.clone()));
            }
            if change.commit(vec![(Bytes::new(), None)], Batch::default()).await? {
                // The list may name what does not exist; so it is shortened last.
                let mut rest = Batch::default();
                rest.delete(Table::Directory, DOMAINS, Bytes::copy_from_slice(domain.as_bytes()));
                self.store.put(rest).await?;
                return Ok(());
            }
        }
    }

    pub(super) async fn domain_list(&self) -> Result<Vec<DomainInfo>> {
        let mut domains = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let range = (from, Bound::Unbounded);
            let page = self.store.scan(Table::Directory, DOMAINS, range, Order::Forward, PAGE).await?;
            for (name, _) in &page {
                let name = String::from_utf8_lossy(name).into_owned();
                if let Some(row) = self.domain(&name).await? {
                    domains.push(DomainInfo { name, catch_all: row.catch_all, contact: row.contact });
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == PAGE => from = Bound::Excluded(name.clone()),
                _ => return Ok(domains),
            }
        }
    }

    pub(super) async fn domain_set(
        &self,
        domain: &str,
        target: Option<&str>,
        set: impl Fn(&mut DomainRow, Option<String>),
    ) -> Result<()> {
        let domain = checked(domain)?;
        let mut change = Change::new(self, &domain);
        loop {
            let mut row = change.begin().await?;
            let target = match target {
                Some(target) => Some(self.target(target, None).await?),
                None => None,
            };
            set(&mut row, target);
            if change.commit(vec![put(Bytes::new(), &row)?], Batch::default()).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn account_add(
        &self,
        address: &str,
        password: Option<&str>,
        quota_bytes: u64,
    ) -> Result<AccountId> {
        let address = Address::parse(address)?;
        let mut change = Change::new(self, &address.domain);
        change.begin().await?;
        if self.named(&address.domain, &address.key).await?.is_some() {
            return Err(DirectoryError::Exists(address.to_string()));
        }
        let password = self.hash(password).await?;
        // Reserved before it is used: if the rest fails, an id is lost, never given twice.
        let id = self.reserve_id(&address).await?;
        loop {
            let mut domain = change.begin().await?;
            match self.named(&address.domain, &address.key).await? {
                Some(Named::Account(row)) if row.id == id.0 => return Ok(id),
                Some(_) => return Err(DirectoryError::Exists(address.to_string())),
                None => {}
            }
            let row = AccountRow::new(address.local.clone(), id, password.clone(), quota_bytes);
            let mut writes = vec![put(row::name_key(&address.key), &Named::Account(row))?];
            if domain.contact.is_none() {
                domain.contact = Some(address.to_string());
                writes.push(put(Bytes::new(), &domain)?);
            }
            if change.commit(writes, Batch::default()).await? {
                return Ok(id);
            }
        }
    }

    /// A random id of 63 bits that nobody ever had.
    async fn reserve_id(&self, address: &Address) -> Result<AccountId> {
        for _ in 0..CONFLICTS_MAX {
            let id = AccountId((rand::random::<u64>() >> 1).max(1));
            let name = (Bytes::new(), Some(Bytes::from(address.to_string())));
            if let Attempt::Done = self.commit(row::id_partition(id), 0, vec![name], Batch::default()).await? {
                return Ok(id);
            }
        }
        Err(DirectoryError::Busy)
    }

    pub(super) async fn account_remove(&self, address: &str) -> Result<AccountId> {
        let address = Address::parse(address)?;
        let mut change = Change::new(self, &address.domain);
        let mut removed = None;
        loop {
            let mut domain = change.begin().await?;
            let id = match self.named(&address.domain, &address.key).await? {
                Some(Named::Account(row)) => AccountId(row.id),
                _ => match removed {
                    Some(id) if change.maybe => return Ok(id),
                    _ => return Err(DirectoryError::NoAccount(address.to_string())),
                },
            };
            removed = Some(id);
            let mut writes = vec![(row::name_key(&address.key), None)];
            let mut pointed = false;
            for target in [&mut domain.contact, &mut domain.catch_all] {
                let same = |target: &String| {
                    Address::parse(target)
                        .is_ok_and(|target| target.key == address.key && target.domain == address.domain)
                };
                pointed |= target.take_if(|target| same(target)).is_some();
            }
            if pointed {
                writes.push(put(Bytes::new(), &domain)?);
            }
            if change.commit(writes, Batch::default()).await? {
                return Ok(id);
            }
        }
    }

    pub(super) async fn account_change(&self, address: &str, set: impl Fn(&mut AccountRow)) -> Result<()> {
        let address = Address::parse(address)?;
        let mut change = Change::new(self, &address.domain);
        loop {
            change.begin().await?;
            let Some(Named::Account(mut row)) = self.named(&address.domain, &address.key).await? else {
                return Err(DirectoryError::NoAccount(address.to_string()));
            };
            set(&mut row);
            let writes = vec![put(row::name_key(&address.key), &Named::Account(row))?];
            if change.commit(writes, Batch::default()).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn account(&self, address: &str) -> Result<Option<AccountInfo>> {
        let address = Address::parse(address)?;
        Ok(match self.named(&address.domain, &address.key).await? {
            Some(Named::Account(row)) => Some(account_info(row, &address.domain)),
            _ => None,
        })
    }

    pub(super) async fn account_list(&self, domain: Option<&str>) -> Result<Vec<AccountInfo>> {
        self.list(domain, |named, domain| match named {
            Named::Account(row) => Some(account_info(row, domain)),
            Named::Alias(_) => None,
        })
        .await
    }

    pub(super) async fn alias_add(&self, alias: &str, targets: &[&str]) -> Result<()> {
        let alias = Address::parse(alias)?;
        if targets.is_empty() {
            return Err(DirectoryError::NoTarget);
        }
        if targets.len() > ALIAS_TARGETS_MAX {
            return Err(DirectoryError::TooManyTargets { address: alias.to_string(), max: ALIAS_TARGETS_MAX });
        }
        let mut written = Vec::with_capacity(targets.len());
        for target in targets {
            written.push(Address::parse(target)?.to_string());
        }
        let mut change = Change::new(self, &alias.domain);
        loop {
            change.begin().await?;
            if let Some(Named::Account(_)) = self.named(&alias.domain, &alias.key).await? {
                return Err(DirectoryError::Exists(alias.to_string()));
            }
            let proposed = Proposed { name: (&alias.key, &alias.domain), targets: &written };
            for target in &written {
                self.target(target, Some(&proposed)).await?;
            }
            // Loops and the bound, seen from the alias itself.
            self.expand(&alias, Some(&proposed)).await?;
            let row = Named::Alias(AliasRow::new(alias.local.clone(), written.clone()));
            if change.commit(vec![put(row::name_key(&alias.key), &row)?], Batch::default()).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn alias_remove(&self, alias: &str) -> Result<()> {
        let alias = Address::parse(alias)?;
        let mut change = Change::new(self, &alias.domain);
        loop {
            change.begin().await?;
            match self.named(&alias.domain, &alias.key).await? {
                Some(Named::Alias(_)) => {}
                _ if change.maybe => return Ok(()),
                _ => return Err(DirectoryError::NoAlias(alias.to_string())),
            }
            if change.commit(vec![(row::name_key(&alias.key), None)], Batch::default()).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn alias_list(&self, domain: Option<&str>) -> Result<Vec<AliasInfo>> {
        self.list(domain, |named, domain| match named {
            Named::Alias(row) => Some(AliasInfo { address: format!("{}@{domain}", row.local), targets: row.targets }),
            Named::Account(_) => None,
        })
        .await
    }

    /// Checks that somebody here receives for `target`; gives it as it is stored.
    async fn target(&self, target: &str, proposed: Option<&Proposed<'_>>) -> Result<String> {
        let target = Address::parse(target)?;
        if self.domain(&target.domain).await?.is_none() {
            return Err(DirectoryError::ForeignTarget(target.to_string()));
        }
        if self.expand(&target, proposed).await?.is_empty() {
            return Err(DirectoryError::UnknownTarget(target.to_string()));
        }
        Ok(target.to_string())
    }

    async fn list<T>(&self, domain: Option<&str>, pick: impl Fn(Named, &str) -> Option<T>) -> Result<Vec<T>> {
        let domains = match domain {
            Some(domain) => {
                let domain = checked(domain)?;
                if self.domain(&domain).await?.is_none() {
                    return Err(DirectoryError::NoDomain(domain));
                }
                vec![domain]
            }
            None => self.domain_list().await?.into_iter().map(|domain| domain.name).collect(),
        };
        let mut picked = Vec::new();
        for domain in domains {
            let mut from = Bound::Unbounded;
            loop {
                let page = self.names(&domain, from, PAGE).await?;
                let full = page.len() == PAGE;
                from = page.last().map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key.clone()));
                for (_, row) in page {
                    picked.extend(pick(Named::decode(&row)?, &domain));
                }
                if !full {
                    break;
                }
            }
        }
        Ok(picked)
    }

    /// Rows of names in a domain, sorted.
    async fn names(&self, domain: &str, from: Bound<Bytes>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let from = match from {
            Bound::Unbounded => Bound::Included(row::name_key("")),
            from => from,
        };
        let range = (from, Bound::Excluded(Bytes::from_static(b"v")));
        let partition = row::domain_partition(domain);
        Ok(self.store.scan(Table::Directory, &partition, range, Order::Forward, limit).await?)
    }
}

fn account_info(row: AccountRow, domain: &str) -> AccountInfo {
    AccountInfo {
        id: AccountId(row.id),
        address: format!("{}@{domain}", row.local),
        enabled: row.enabled,
        quota_bytes: row.quota_bytes,
        has_password: row.password.is_some(),
    }
}

/// A domain in compared form.
fn checked(domain: &str) -> Result<String> {
    address::domain_key(domain)
        .map_err(|why| DirectoryError::BadDomain { domain: domain.chars().take(253).collect(), why })
}
