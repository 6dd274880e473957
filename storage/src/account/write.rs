//! Writing messages: what must be durable before the commit that refers to it.
//!
//! A message up to a piece in size rides with its commit: one write, one flush. The pieces of a bigger one are put
//! before, a few at a time, so that memory stays bounded; a mark among the intents, taken away after the commit, lets a
//! sweep find them if it never comes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;

use super::change::DeliveryId;
use super::decide::Item;
use super::read::OCTETS_MAX;
use super::rows::{PIECE_BYTES, home, piece_key, pieces, row_key};
use super::thread::{Relations, ThreadRow, place};
use super::{Account, AccountError, AccountId, AppendItem, FlagNames};
use crate::message::{EmailId, MessageRow, NewMessage, Part};
use crate::wide::{Batch, StoreError, Table};

/// Pieces put at one time.
const PUT_PIECES: u32 = 8;

/// A message whose big parts are written, ready for its commit.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) item: Item,
    pub(super) row: Arc<MessageRow>,
    /// What rides with the commit.
    pub(crate) first: Batch,
    /// What was put before, to be removed if there is no commit.
    pub(crate) spilled: Option<Spilled>,
}

impl Prepared {
    /// A message whose row and pieces are durable already.
    pub(crate) fn stored(email: EmailId, row: Arc<MessageRow>, delivery: DeliveryId) -> Self {
        // A row's size was checked when it was made.
        let size = u32::try_from(row.size).unwrap_or(u32::MAX);
        let (thread, flags) = (row.thread, FlagNames::default());
        let item = Item { email, size, thread, flags, delivery: Some(delivery) };
        Self { item, row, first: Batch::default(), spilled: None }
    }
}

/// Pieces in the store that no commit refers to yet.
#[derive(Debug, Clone)]
pub(crate) struct Spilled {
    pub(super) email: EmailId,
    pieces: u32,
    mark: (Bytes, Bytes),
}

impl Spilled {
    /// Takes the mark away: something else refers to the pieces now.
    pub(crate) fn unmark(&self, batch: &mut Batch) {
        batch.delete(Table::Intent, self.mark.0.clone(), self.mark.1.clone());
    }
}

/// Where a message's octets are taken from.
pub(crate) enum Source<'a> {
    /// Just received.
    New(&'a NewMessage),
    /// In an account already.
    Stored(&'a Account, EmailId, &'a MessageRow),
}

impl Source<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::New(message) => message.size(),
            Self::Stored(_, _, row) => row.size,
        }
    }

    fn structure(&self) -> &Part {
        match self {
            Self::New(message) => message.structure(),
            Self::Stored(_, _, row) => &row.structure,
        }
    }

    fn preview(&self) -> &str {
        match self {
            Self::New(message) => message.preview(),
            Self::Stored(_, _, row) => &row.preview,
        }
    }

    fn header(&self) -> &Bytes {
        match self {
            Self::New(message) => message.header(),
            Self::Stored(_, _, row) => &row.header,
        }
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, AccountError> {
        debug_assert!(range.end - range.start <= OCTETS_MAX);
        Ok(match self {
            Self::New(message) => message.read(range).await.map_err(StoreError::Io)?,
            Self::Stored(account, email, row) => account.octets(*email, row, range).await?,
        })
    }
}

/// The partition of marks of spilled pieces.
pub(super) fn spill_partition(day: u32) -> Bytes {
    [b"spill".as_slice(), &day.to_be_bytes()].concat().into()
}

impl Account {
    pub(super) async fn prepare(&self, item: &AppendItem) -> Result<Prepared, AccountError> {
        let email = item.email.unwrap_or_else(|| EmailId::new(item.received_at_ms, rand::random()));
        self.prepare_from(&Source::New(&item.message), email, item.flags.clone(), None).await
    }

    pub(crate) async fn prepare_from(
        &self,
        source: &Source<'_>,
        email: EmailId,
        flags: FlagNames,
        delivery: Option<DeliveryId>,
    ) -> Result<Prepared, AccountError> {
        let too_big = AccountError::TooMany { what: "octets in a message", max: u32::MAX as usize };
        let size = u32::try_from(source.size()).map_err(|_| too_big)?;
        let header = source.header().clone();
        let relations = Relations::of(&header);
        let thread = relations.thread(self.id(), email, &self.thread_rows(&relations).await?);
        let row = Arc::new(MessageRow {
            size: u64::from(size),
            structure: source.structure().clone(),
            preview: source.preview().to_owned(),
            header,
            thread,
        });
        let (home, header) = (home(self.id(), email), row.header.len() as u64);
        let pieces = pieces(row.size, header);
        let mut first = Batch::default();
        first.put(Table::Message, home.clone(), row_key(email), row.encode());
        if let Some(own) = &relations.own {
            let (partition, key) = place(self.id(), own);
            first.put(Table::Thread, partition, key, ThreadRow { thread, subject: relations.subject }.encode());
        }
        let mut spilled = None;
        if pieces == 1 {
            first.put(Table::Body, home, piece_key(email, 0), source.read(header..row.size).await?);
        } else if pieces > 1 {
            spilled = Some(self.spill(source, email, header, pieces).await?);
        }
        Ok(Prepared { item: Item { email, size, thread, flags, delivery }, row, first, spilled })
    }

    async fn thread_rows(&self, relations: &Relations) -> Result<Vec<Option<ThreadRow>>, AccountError> {
        let gets = relations.named.iter().map(|id| async move {
            let (partition, key) = place(self.id(), id);
            let row = self.shared.store.get(Table::Thread, &partition, &key).await?;
            Ok::<_, AccountError>(row.and_then(|row| ThreadRow::decode(&row)))
        });
        future::try_join_all(gets).await
    }

    /// Puts a big message's pieces, some at a time.
    async fn spill(
        &self,
        source: &Source<'_>,
        email: EmailId,
        header: u64,
        pieces: u32,
    ) -> Result<Spilled, AccountError> {
        let key = [self.id().0.to_be_bytes().as_slice(), &email.0].concat();
        let mark = (spill_partition(self.shared.now_secs() / 86_400), Bytes::from(key));
        let spilled = Spilled { email, pieces, mark };
        let mut batch = Batch::default();
        let value = [self.shared.now_secs(), pieces].map(u32::to_be_bytes).concat();
        batch.put(Table::Intent, spilled.mark.0.clone(), spilled.mark.1.clone(), value);
        let home = home(self.id(), email);
        for piece in 0..pieces {
            let start = header + u64::from(piece) * PIECE_BYTES;
            let octets = source.read(start..source.size().min(start + PIECE_BYTES)).await;
            let octets = match octets {
                Ok(octets) => octets,
                Err(error) => {
                    self.discard([spilled]).await;
                    return Err(error);
                }
            };
            batch.put(Table::Body, home.clone(), piece_key(email, piece), octets);
            let full = piece % PUT_PIECES == PUT_PIECES - 1 || piece == pieces - 1;
            if full && let Err(error) = self.shared.store.put(std::mem::take(&mut batch)).await {
                self.discard([spilled]).await;
                return Err(error.into());
            }
        }
        Ok(spilled)
    }

    /// Removes what was put for a commit that did not come. What cannot be removed now is left to the sweep.
    pub(crate) async fn discard(&self, spilled: impl IntoIterator<Item = Spilled>) {
        for spilled in spilled {
            let mut batch = Batch::default();
            batch.delete(Table::Message, home(self.id(), spilled.email), row_key(spilled.email));
            delete_pieces(&mut batch, self.id(), spilled.email, spilled.pieces);
            spilled.unmark(&mut batch);
            if let Err(error) = self.shared.store.put(batch).await {
                tracing::debug!(%error, "pieces of a refused message are left to the sweep");
            }
        }
    }
}

impl Account {
    /// Deletes a message's row and octets.
    pub(crate) fn delete_message(&self, batch: &mut Batch, email: EmailId, size: u64) {
        batch.delete(Table::Message, home(self.id(), email), row_key(email));
        delete_pieces(batch, self.id(), email, pieces(size, 0));
        self.shared.rows.remove(self.id(), email);
    }
}

/// Deletes the first pieces of a message.
pub(super) fn delete_pieces(batch: &mut Batch, account: AccountId, email: EmailId, pieces: u32) {
    for piece in 0..pieces {
        batch.delete(Table::Body, home(account, email), piece_key(email, piece));
    }
}
