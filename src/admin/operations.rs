//! The operations themselves, over an opened storage: the same whoever holds it, server or command.

use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use posthouse_storage::Storage;
use posthouse_storage::account::OCTETS_MAX;
use posthouse_storage::account::{Account, AccountError, Entry, FlagNames, Flags, Mailbox};
use tokio::sync::mpsc;

use super::frames::Frame;
use super::leads::{self, Before};
use super::protocol::{AccountLine, Answer, Call, MailboxLine, MessageMeta};

/// Rows that an export reads together.
const ROWS_TOGETHER: usize = 64;

/// Flags of mail, as letters of a Maildir.
const FLAG_LETTERS: [(char, Flags); 5] =
    [('D', Flags::DRAFT), ('F', Flags::FLAGGED), ('R', Flags::ANSWERED), ('S', Flags::SEEN), ('T', Flags::DELETED)];

/// Does one call.
pub async fn perform(storage: &Storage, call: Call) -> anyhow::Result<Answer> {
    let directory = &storage.directory;
    match call {
        Call::DomainAdd { domain } => directory.domain_add(&domain).await?,
        Call::DomainRemove { domain } => directory.domain_remove(&domain).await?,
        Call::DomainList => {
            let domains = directory.domain_list().await?;
            return Ok(Answer::Domains(domains.into_iter().map(|domain| domain.name).collect()));
        }
        Call::AccountAdd { address, password, quota_bytes } => {
            account_add(storage, &address, &password, quota_bytes).await?;
        }
        Call::AccountRemove { address, force } => {
            if !force {
                leads::nothing_names(storage, &address).await?;
            }
            let before = Before::note(storage, &address).await?;
            directory.account_remove(&address).await?;
            return noted(storage, before).await;
        }
        Call::AccountSetPassword { address, password } => {
            directory.account_set_password(&address, Some(&password)).await?;
        }
        Call::AccountEnable { address, enabled } => {
            let before = Before::note(storage, &address).await?;
            directory.account_set_enabled(&address, enabled).await?;
            return noted(storage, before).await;
        }
        Call::AccountQuota { address, bytes } => {
            let account = account(storage, &address).await?;
            directory.account_set_quota(&address, bytes).await?;
            account.set_quota(bytes).await?;
        }
        Call::AccountList => return Ok(Answer::Accounts(accounts(storage).await?)),
        Call::AliasAdd { alias, targets } => match alias.strip_prefix('@') {
            None => {
                let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
                directory.alias_add(&alias, &targets).await?;
            }
            Some(domain) => match targets.as_slice() {
                [target] => directory.domain_set_catch_all(domain, Some(target)).await?,
                _ => bail!("a catch-all leads to one address; make an alias for several and name that"),
            },
        },
        Call::AliasRemove { alias } => {
            let before = Before::note(storage, &alias).await?;
            match alias.strip_prefix('@') {
                None => {
                    directory.alias_remove(&alias).await?;
                    return noted(storage, before).await;
                }
                Some(domain) => directory.domain_set_catch_all(domain, None).await?,
            }
        }
        Call::AliasList => return Ok(Answer::Aliases(leads::aliases(storage).await?)),
        Call::Mailboxes { account: address } => {
            let state = account(storage, &address).await?.refresh().await?;
            let selectable = state.mailboxes.values().filter(|mailbox| mailbox.selectable);
            let lines = selectable.map(|mailbox| MailboxLine {
                name: mailbox.name.to_string(),
                messages: mailbox.counts.messages.into(),
            });
            return Ok(Answer::Mailboxes(lines.collect()));
        }
    }
    Ok(Answer::Done)
}

/// The answer to a change that may have left addresses without a reader.
async fn noted(storage: &Storage, before: Before) -> anyhow::Result<Answer> {
    let notes = before.lost(storage).await?;
    Ok(if notes.is_empty() { Answer::Done } else { Answer::Noted(notes) })
}

/// Makes an account, with its mailboxes and its quota.
async fn account_add(storage: &Storage, address: &str, password: &str, quota: Option<u64>) -> anyhow::Result<()> {
    let id = storage.directory.account_add(address, Some(password), quota.unwrap_or(0)).await?;
    let account = storage.accounts.open(id).await?;
    match quota {
        Some(bytes) => account.set_quota(bytes).await?,
        // A new account starts with the configured quota; the directory notes it.
        None => storage.directory.account_set_quota(address, account.current().quota_bytes).await?,
    }
    Ok(())
}

async fn accounts(storage: &Storage) -> anyhow::Result<Vec<AccountLine>> {
    let mut lines = Vec::new();
    for info in storage.directory.account_list(None).await? {
        let used = storage.accounts.open(info.id).await?.current().used;
        lines.push(AccountLine {
            address: info.address,
            enabled: info.enabled,
            quota_bytes: info.quota_bytes,
            used_bytes: used.bytes,
            messages: used.messages.into(),
        });
    }
    Ok(lines)
}

/// An account that is there.
pub async fn account(storage: &Storage, address: &str) -> anyhow::Result<Account> {
    let info =
        storage.directory.account(address).await?.with_context(|| {
            format!("there is no account {address}; `posthouse account list` shows those there are")
        })?;
    Ok(storage.accounts.open(info.id).await?)
}

/// Flags of a message to be added.
pub fn flags(meta: &MessageMeta) -> FlagNames {
    let letters = FLAG_LETTERS.into_iter().filter(|&(letter, _)| meta.flags.contains(letter));
    let system = letters.fold(Flags::default(), |flags, (_, flag)| flags.union(flag));
    FlagNames { system, keywords: meta.keywords.clone() }
}

/// A mailbox as of one moment, to be exported.
pub struct ExportSource {
    account: Account,
    mailbox: Arc<Mailbox>,
}

/// Finds a mailbox to export.
pub async fn export_source(storage: &Storage, address: &str, mailbox: &str) -> anyhow::Result<ExportSource> {
    let account = account(storage, address).await?;
    let state = account.refresh().await?;
    let mailbox = state.by_name(mailbox).with_context(|| format!("{address} has no mailbox {mailbox:?}"))?;
    Ok(ExportSource { account, mailbox: Arc::clone(mailbox) })
}

/// Sends every message of the mailbox; the last frame says how it went. Ends when nobody receives.
pub async fn export(source: ExportSource, sender: mpsc::Sender<Frame>) {
    let last = match export_all(&source, &sender).await {
        Ok(()) => Frame::End,
        Err(error) => Frame::Failed(format!("{error:#}")),
    };
    // Whoever gave up on the frames does not need the last one either.
    drop(sender.send(last).await);
}

async fn export_all(source: &ExportSource, sender: &mpsc::Sender<Frame>) -> anyhow::Result<()> {
    for slot in source.mailbox.slots.iter() {
        let chunk = source.account.chunk(slot).await?;
        for entries in chunk.entries.chunks(ROWS_TOGETHER) {
            let emails: Vec<_> = entries.iter().map(|entry| entry.email).collect();
            let rows = source.account.rows(&emails).await?;
            for (entry, row) in entries.iter().zip(rows) {
                // Expunged since the export began, and swept: it is not there to be exported.
                let Some(row) = row else { continue };
                let send = async |frame| sender.send(frame).await.map_err(|_| anyhow!("the receiver is gone"));
                send(Frame::Message(meta(entry, &source.mailbox))).await?;
                let mut at = 0;
                while at < row.size {
                    let until = row.size.min(at + OCTETS_MAX);
                    let octets: Bytes = match source.account.octets(entry.email, &row, at..until).await {
                        Err(AccountError::NoMessage) => bail!("message {} was removed meanwhile", entry.uid.0),
                        other => other?,
                    };
                    if octets.is_empty() {
                        bail!("message {} ends early", entry.uid.0);
                    }
                    at += octets.len() as u64;
                    send(Frame::Octets(octets)).await?;
                }
            }
        }
    }
    Ok(())
}

fn meta(entry: &Entry, mailbox: &Mailbox) -> MessageMeta {
    let letters = FLAG_LETTERS.into_iter().filter(|&(_, flag)| entry.flags.contains(flag));
    let keywords = mailbox.keywords.iter().enumerate();
    let keywords = keywords.filter(|&(index, _)| entry.flags.contains(Flags::keyword(index)));
    MessageMeta {
        flags: letters.map(|(letter, _)| letter).collect(),
        keywords: keywords.map(|(_, name)| name.to_string()).collect(),
        received_at_ms: entry.email.received_at_ms(),
        uid: entry.uid.0.get(),
    }
}
