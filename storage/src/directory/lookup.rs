//! What an address stands for.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::row::{self, DomainRow, Named, Row};
use super::{Address, DirectoryError, Inner, Resolved, Result, address};
use crate::account::AccountId;
use crate::wide::Table;

/// Targets one address may stand for, counted along all aliases.
pub(super) const TARGETS_MAX: usize = 1_000;
/// Answers remembered, in each of the three maps.
const REMEMBERED: usize = 10_000;
/// How long an answer is trusted: other nodes' changes are seen after this at the latest, this node's at once.
const TRUST: Duration = Duration::from_secs(10);

/// An alias as it would be, for checking it before it is written.
pub(super) struct Proposed<'a> {
    pub(super) name: (&'a str, &'a str),
    pub(super) targets: &'a [String],
}

/// What one name is.
enum Found {
    /// An account, and whether it receives.
    Account(AccountId, bool),
    /// Other addresses. The name tells loops from repetition.
    Targets {
        name: String,
        targets: Vec<String>,
        fallback: bool,
    },
    Nobody,
    Foreign,
}

/// An alias being expanded.
struct Frame {
    name: String,
    rest: std::vec::IntoIter<String>,
}

impl Inner {
    pub(super) async fn resolve(&self, local_part: &str, domain: &str) -> Result<Resolved> {
        let Ok(domain) = address::domain_key(domain) else { return Ok(Resolved::ForeignDomain) };
        if !self.is_local(&domain).await? {
            return Ok(Resolved::ForeignDomain);
        }
        let Ok(key) = address::local_key(local_part) else { return Ok(Resolved::UnknownUser) };
        let name = format!("{key}@{domain}");
        let generation = match self.answers().resolved(&name, Instant::now()) {
            Ok(known) => return Ok(known),
            Err(generation) => generation,
        };
        let start = Address { local: local_part.to_owned(), key, domain };
        let accounts = self.expand(&start, None).await?;
        let resolved = if accounts.is_empty() { Resolved::UnknownUser } else { Resolved::Accounts(accounts) };
        self.answers().remember(generation, |answers| {
            bounded(&mut answers.resolved, name, (Instant::now() + TRUST, resolved.clone()));
        });
        Ok(resolved)
    }

    /// `domain` is in compared form.
    pub(super) async fn is_local(&self, domain: &str) -> Result<bool> {
        let generation = match self.answers().local(domain, Instant::now()) {
            Ok(known) => return Ok(known),
            Err(generation) => generation,
        };
        let local = self.domain(domain).await?.is_some();
        self.answers().remember(generation, |answers| {
            bounded(&mut answers.local, domain.to_owned(), (Instant::now() + TRUST, local));
        });
        Ok(local)
    }

    /// Accounts that receive for `start`, each once, in the order of the targets.
    pub(super) async fn expand(&self, start: &Address, proposed: Option<&Proposed<'_>>) -> Result<Vec<AccountId>> {
        let mut accounts = Vec::new();
        let mut named = HashSet::new();
        let mut expanded = HashSet::new();
        let mut path: Vec<Frame> = Vec::new();
        let mut count = 0;
        let mut next = Some(start.clone());
        loop {
            if let Some(address) = next.take() {
                match self.find(&address, proposed).await? {
                    Found::Account(id, true) => {
                        if named.insert(id) {
                            accounts.push(id);
                        }
                    }
                    Found::Targets { name, targets, fallback } => {
                        // A fallback that leads to itself has lost its account; it receives nothing.
                        if !fallback && path.iter().any(|frame| frame.name == name) {
                            return Err(DirectoryError::Loop(address.to_string()));
                        }
                        if expanded.insert(name.clone()) {
                            count += targets.len();
                            if count > TARGETS_MAX {
                                let address = start.to_string();
                                return Err(DirectoryError::TooManyTargets { address, max: TARGETS_MAX });
                            }
                            path.push(Frame { name, rest: targets.into_iter() });
                        }
                    }
                    Found::Account(_, false) | Found::Nobody | Found::Foreign => {
                        if !path.is_empty() {
                            tracing::debug!(alias = %start, target = %address, "a target of an alias receives nothing");
                        }
                    }
                }
            }
            let Some(frame) = path.last_mut() else { return Ok(accounts) };
            match frame.rest.next() {
                Some(target) => next = Some(Address::parse(&target)?),
                None => drop(path.pop()),
            }
        }
    }

    async fn find(&self, address: &Address, proposed: Option<&Proposed<'_>>) -> Result<Found> {
        let Some(domain) = self.domain(&address.domain).await? else { return Ok(Found::Foreign) };
        let untagged = address.key.split_once('+').map(|(name, _)| name).filter(|name| !name.is_empty());
        for key in [Some(address.key.as_str()), untagged].into_iter().flatten() {
            let name = format!("{key}@{}", address.domain);
            if let Some(proposed) = proposed.filter(|proposed| proposed.name == (key, address.domain.as_str())) {
                return Ok(Found::Targets { name, targets: proposed.targets.to_vec(), fallback: false });
            }
            match self.named(&address.domain, key).await? {
                Some(Named::Account(row)) => return Ok(Found::Account(AccountId(row.id), row.enabled)),
                Some(Named::Alias(row)) => return Ok(Found::Targets { name, targets: row.targets, fallback: false }),
                None => {}
            }
        }
        // RFC 5321 §4.5.1 and RFC 2142: somebody must read these.
        let office = matches!(untagged.unwrap_or(&address.key), "postmaster" | "abuse");
        let contact = domain.contact.filter(|_| office).map(|target| ("contact", target));
        Ok(match contact.or(domain.catch_all.map(|target| ("catch-all", target))) {
            // A space keeps these names apart from addresses.
            Some((role, target)) => {
                let name = format!("{role} {}", address.domain);
                Found::Targets { name, targets: vec![target], fallback: true }
            }
            None => Found::Nobody,
        })
    }

    /// A domain's row.
    pub(super) async fn domain(&self, domain: &str) -> Result<Option<DomainRow>> {
        let row = self.store.get(Table::Directory, &row::domain_partition(domain), b"").await?;
        Ok(row.map(|row| DomainRow::decode(&row)).transpose()?)
    }

    /// What `key` is in `domain`.
    pub(super) async fn named(&self, domain: &str, key: &str) -> Result<Option<Named>> {
        let row = self.store.get(Table::Directory, &row::domain_partition(domain), &row::name_key(key)).await?;
        Ok(row.map(|row| Named::decode(&row)).transpose()?)
    }

    pub(super) fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a change: nothing that was read before it is remembered.
    pub(super) fn forget_answers(&self) {
        let mut answers = self.answers();
        answers.generation += 1;
        answers.resolved.clear();
        answers.local.clear();
        answers.granted.clear();
    }
}

/// Answers given lately. A change made here empties it and raises the generation, so that an answer read before the
/// change cannot be remembered after it.
#[derive(Default)]
pub(super) struct Answers {
    generation: u64,
    resolved: HashMap<String, (Instant, Resolved)>,
    local: HashMap<String, (Instant, bool)>,
    /// Who may be logged in under an address, as it was created, and the mark of the password.
    granted: HashMap<String, (Instant, Granted)>,
}

type Granted = Option<(AccountId, u64)>;

impl Answers {
    fn resolved(&self, name: &str, now: Instant) -> Result<Resolved, u64> {
        self.resolved.get(name).filter(|(until, _)| *until > now).map(|(_, known)| known.clone()).ok_or(self.generation)
    }

    fn local(&self, domain: &str, now: Instant) -> Result<bool, u64> {
        self.local.get(domain).filter(|(until, _)| *until > now).map(|(_, known)| *known).ok_or(self.generation)
    }

    pub(super) fn granted(&self, address: &str, now: Instant) -> Result<Granted, u64> {
        self.granted.get(address).filter(|(until, _)| *until > now).map(|(_, known)| *known).ok_or(self.generation)
    }

    pub(super) fn remember_granted(&mut self, generation: u64, address: &str, granted: Granted, now: Instant) {
        self.remember(generation, |answers| {
            bounded(&mut answers.granted, address.to_owned(), (now + TRUST, granted));
        });
    }

    fn remember(&mut self, generation: u64, insert: impl FnOnce(&mut Self)) {
        if self.generation == generation {
            insert(self);
        }
    }
}

/// Inserts; a full map starts over, which costs reads, never correctness.
fn bounded<V>(map: &mut HashMap<String, V>, key: String, value: V) {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map.insert(key, value);
}
