//! Where aliases and catch-alls lead, which of them lead to nobody, and what a change left behind.

use anyhow::bail;
use posthouse_storage::Storage;
use posthouse_storage::directory::{Directory, DirectoryError, Resolved};

use super::protocol::AliasLine;

/// Every alias and every catch-all, with those of its targets that receive nothing.
pub async fn aliases(storage: &Storage) -> anyhow::Result<Vec<AliasLine>> {
    let directory = &storage.directory;
    let mut leads: Vec<_> =
        directory.alias_list(None).await?.into_iter().map(|alias| (alias.address, alias.targets)).collect();
    for domain in directory.domain_list().await? {
        if let Some(target) = domain.catch_all {
            leads.push((format!("@{}", domain.name), vec![target]));
        }
    }
    let mut lines = Vec::with_capacity(leads.len());
    for (alias, targets) in leads {
        let mut dangling = Vec::new();
        for target in &targets {
            if !receives(directory, target).await? {
                dangling.push(target.clone());
            }
        }
        lines.push(AliasLine { alias, targets, dangling });
    }
    Ok(lines)
}

/// True when mail to `address` reaches somebody.
async fn receives(directory: &Directory, address: &str) -> anyhow::Result<bool> {
    let Some((local, domain)) = address.rsplit_once('@') else { return Ok(false) };
    match directory.resolve(local, domain).await {
        Ok(resolved) => Ok(matches!(resolved, Resolved::Accounts(_))),
        Err(DirectoryError::Loop(_) | DirectoryError::TooManyTargets { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Refuses the removal of an account that aliases or a catch-all name: their mail would go to fewer people, or to
/// nobody, and who sends it is told only then.
pub async fn nothing_names(storage: &Storage, address: &str) -> anyhow::Result<()> {
    let directory = &storage.directory;
    let Some(account) = directory.account(address).await? else { return Ok(()) };
    let mut naming = Vec::new();
    for line in aliases(storage).await? {
        for target in &line.targets {
            if directory.account(&untagged(directory, target).await?).await?.is_some_and(|named| named.id == account.id)
            {
                naming.push(line.alias.clone());
                break;
            }
        }
    }
    let (Some(first), lead) = (naming.first(), if naming.len() == 1 { "leads" } else { "lead" }) else {
        return Ok(());
    };
    bail!(
        "{} still {lead} to {address}; give each another target (`posthouse alias add {first} TARGET…`) or remove it \
         (`posthouse alias remove {first}`), or say --force to remove the account all the same",
        naming.join(", ")
    )
}

/// The address whose account gets mail for `target`: without its tag, unless there is an account of the very name.
async fn untagged(directory: &Directory, target: &str) -> anyhow::Result<String> {
    if directory.account(target).await?.is_none()
        && let Some((local, domain)) = target.rsplit_once('@')
        && let Some((name, _)) = local.split_once('+')
        && !name.is_empty()
    {
        return Ok(format!("{name}@{domain}"));
    }
    Ok(target.to_owned())
}

/// Who received mail before a change.
#[derive(Debug)]
pub struct Before {
    aliases: Vec<AliasLine>,
    /// The addresses that every domain must have, of the domain changed, that somebody reads.
    offices: Vec<String>,
}

impl Before {
    /// Notes it, for a change of `address`.
    pub async fn note(storage: &Storage, address: &str) -> anyhow::Result<Self> {
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        let mut offices = Vec::new();
        for office in ["postmaster", "abuse"] {
            let office = format!("{office}@{domain}");
            if receives(&storage.directory, &office).await? {
                offices.push(office);
            }
        }
        Ok(Self { aliases: aliases(storage).await?, offices })
    }

    /// What receives nothing since, one line each.
    pub async fn lost(self, storage: &Storage) -> anyhow::Result<Vec<String>> {
        let mut notes = Vec::new();
        let after = aliases(storage).await?;
        for was in &self.aliases {
            let Some(is) = after.iter().find(|line| line.alias == was.alias) else {
                if was.alias.starts_with('@') {
                    notes.push(format!("the catch-all {} is gone with it", was.alias));
                }
                continue;
            };
            let lost: Vec<&str> =
                is.dangling.iter().filter(|target| !was.dangling.contains(target)).map(String::as_str).collect();
            if lost.is_empty() {
                continue;
            }
            let refused = if is.dangling.len() == is.targets.len() {
                format!(", and mail to {} is refused", is.alias)
            } else {
                String::new()
            };
            notes.push(format!("{} leads to {}, who receives nothing now{refused}", is.alias, lost.join(", ")));
        }
        for office in self.offices {
            if !receives(&storage.directory, &office).await? {
                // RFC 5321 §4.5.1, RFC 2142.
                notes.push(format!(
                    "nobody reads {office} any more, which every domain must have: `posthouse alias add {office} TARGET`"
                ));
            }
        }
        Ok(notes)
    }
}
