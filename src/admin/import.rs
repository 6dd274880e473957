//! Adding messages in bulk.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::Context;
use posthouse_storage::Storage;
use posthouse_storage::account::{Account, AccountError, AppendItem, MailboxId};
use posthouse_storage::message::MessageWriter;

use super::known::{Kept, Known, received};
use super::operations::{account, flags};
use super::protocol::{ImportInto, Imported, MessageMeta, Outcome};
use crate::files::MESSAGE_BYTES_MAX;

/// Messages and bytes that an import adds in one step.
const STEP_MESSAGES: usize = 64;
const STEP_BYTES: u64 = 8 << 20;

/// Adds messages to one mailbox, a step at a time; memory is bounded whatever comes in.
pub struct Importer {
    storage: Arc<Storage>,
    account: Account,
    mailbox: MailboxId,
    open: Option<(MessageMeta, Result<MessageWriter, String>)>,
    /// Finished messages not yet added, with their places in `outcomes`.
    ready: Vec<(usize, AppendItem)>,
    ready_bytes: u64,
    outcomes: Imported,
    /// Unless messages are to be added again: what is there, where to leave that, and what this batch adds.
    known: Option<(Known, Kept)>,
    fresh: HashSet<(i64, blake3::Hash)>,
    hasher: blake3::Hasher,
}

impl Importer {
    /// Into a mailbox of an account; made when missing, and subscribed.
    pub async fn new(storage: &Arc<Storage>, into: &ImportInto, kept: &Kept) -> anyhow::Result<Self> {
        let (address, mailbox) = (into.account.as_str(), into.mailbox.as_str());
        let account = account(storage, address).await?;
        let existing = account.refresh().await?.by_name(mailbox).filter(|mailbox| mailbox.selectable).map(|m| m.id);
        let id = match existing {
            Some(id) => id,
            None => {
                let id = account.create(mailbox, None).await.with_context(|| format!("mailbox {mailbox:?}"))?;
                account.subscribe(mailbox, true).await?;
                id
            }
        };
        let known = match storage.directory.account(address).await? {
            Some(info) if !into.duplicates => Some((kept.take(info.id, &account, id).await?, kept.clone())),
            _ => None,
        };
        Ok(Self {
            storage: Arc::clone(storage),
            account,
            mailbox: id,
            open: None,
            ready: Vec::new(),
            ready_bytes: 0,
            outcomes: Vec::new(),
            known,
            fresh: HashSet::new(),
            hasher: blake3::Hasher::new(),
        })
    }

    /// A message begins; the one before is finished.
    pub async fn begin(&mut self, meta: MessageMeta) {
        self.end().await;
        if self.ready.len() >= STEP_MESSAGES || self.ready_bytes >= STEP_BYTES {
            self.step().await;
        }
        self.hasher.reset();
        self.open = Some((meta, Ok(MessageWriter::new(&self.storage.spool))));
    }

    /// Octets of the message begun.
    pub async fn octets(&mut self, octets: &[u8]) {
        let Some((_, state)) = &mut self.open else { return };
        let Ok(writer) = state else { return };
        if writer.size() + octets.len() as u64 > MESSAGE_BYTES_MAX {
            *state = Err(format!("more than {MESSAGE_BYTES_MAX} bytes"));
        } else if let Err(error) = writer.write(octets).await {
            *state = Err(format!("cannot be kept: {error}"));
        } else if self.known.is_some() {
            self.hasher.update(octets);
        }
    }

    async fn end(&mut self) {
        let Some((meta, state)) = self.open.take() else { return };
        let finished = match state {
            Ok(writer) => writer.finish().await.map_err(|error| format!("cannot be kept: {error}")),
            Err(reason) => Err(reason),
        };
        match finished {
            Err(reason) => self.outcomes.push(Outcome::Refused(reason)),
            Ok(message) => {
                match self.is_known(&meta, message.size()).await {
                    Ok(true) => return self.outcomes.push(Outcome::Known),
                    Ok(false) => {}
                    Err(error) => {
                        let reason = format!("cannot be compared with what is there: {error}; run the import again");
                        return self.outcomes.push(Outcome::Refused(reason));
                    }
                }
                self.ready_bytes += message.size();
                let item = AppendItem {
                    message: Arc::new(message),
                    flags: flags(&meta),
                    received_at_ms: meta.received_at_ms,
                    email: None,
                };
                self.ready.push((self.outcomes.len(), item));
                self.outcomes.push(Outcome::Refused("not added".to_owned()));
            }
        }
    }

    /// True when the mailbox has the message just written, or this batch brought it already.
    async fn is_known(&mut self, meta: &MessageMeta, size: u64) -> Result<bool, AccountError> {
        let Some((known, _)) = &self.known else { return Ok(false) };
        let hash = self.hasher.finalize();
        if known.has(&self.account, meta.received_at_ms, size, &hash).await? {
            return Ok(true);
        }
        Ok(!self.fresh.insert((received(meta.received_at_ms), hash)))
    }

    /// Adds what is ready in one step; when that is refused, one by one, to tell which ones are at fault.
    async fn step(&mut self) {
        let (places, items): (Vec<_>, Vec<_>) = std::mem::take(&mut self.ready).into_iter().unzip();
        self.ready_bytes = 0;
        match self.account.append(self.mailbox, &items).await {
            Ok(appended) => {
                for (place, appended) in places.into_iter().zip(appended) {
                    self.outcomes[place] = Outcome::Added(appended.uid.get());
                }
            }
            Err(_) => {
                for (place, item) in places.into_iter().zip(items) {
                    let added = self.account.append(self.mailbox, std::slice::from_ref(&item)).await;
                    self.outcomes[place] = match added.as_deref() {
                        Ok([appended]) => Outcome::Added(appended.uid.get()),
                        Ok(_) => Outcome::Refused("not added".to_owned()),
                        Err(error) => Outcome::Refused(error.to_string()),
                    };
                }
            }
        }
    }

    /// Adds the rest; durable on return. What became of each message, in order.
    pub async fn commit(mut self) -> Imported {
        self.end().await;
        if !self.ready.is_empty() {
            self.step().await;
        }
        if let Some((known, kept)) = self.known.take() {
            kept.put(known);
        }
        self.outcomes
    }
}
