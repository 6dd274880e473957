//! Reading messages: rows by id, octets by range.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};

use super::rows::{home, joined, piece_key, row_email, row_key, within_pieces};
use super::{Account, AccountError};
use crate::message::{EmailId, MessageRow};
use crate::wide::{Order, Table};

/// Most octets that [`Account::octets`] returns at once.
pub const OCTETS_MAX: u64 = 256 * 1024;
/// From this many rows of one week on they are read by a scan, if they lie close together.
const SCAN_FROM: usize = 4;
/// Rows read at one time, when they lie apart.
const GETS_MAX: usize = 16;

impl Account {
    /// A message's row.
    ///
    /// # Errors
    ///
    /// `NoMessage` when it is gone for good, `Store`, `Corrupt`.
    pub async fn row(&self, email: EmailId) -> Result<Arc<MessageRow>, AccountError> {
        if let Some(row) = self.shared.rows.find(self.id(), email) {
            return Ok(row);
        }
        self.fetch_row(email).await?.ok_or(AccountError::NoMessage)
    }

    /// Many messages' rows, in the order asked; `None` for those that are gone. Neighbours in time are read together.
    ///
    /// # Errors
    ///
    /// `Store`, `Corrupt`.
    pub async fn rows(&self, emails: &[EmailId]) -> Result<Vec<Option<Arc<MessageRow>>>, AccountError> {
        let mut found: HashMap<EmailId, Arc<MessageRow>> = HashMap::with_capacity(emails.len());
        let mut weeks: BTreeMap<Bytes, Vec<EmailId>> = BTreeMap::new();
        for &email in emails {
            match self.shared.rows.find(self.id(), email) {
                Some(row) => _ = found.insert(email, row),
                None => weeks.entry(home(self.id(), email)).or_default().push(email),
            }
        }
        let mut apart = Vec::new();
        for (partition, mut emails) in weeks {
            emails.sort_unstable();
            emails.dedup();
            apart.extend(match emails.len() {
                0..SCAN_FROM => emails,
                _ => self.scan_rows(&partition, emails, &mut found).await?,
            });
        }
        let gets = stream::iter(apart).map(|email| async move {
            let row = self.fetch_row(email).await?;
            Ok::<_, AccountError>(row.map(|row| (email, row)))
        });
        let rows: Vec<_> = gets.buffer_unordered(GETS_MAX).try_collect().await?;
        found.extend(rows.into_iter().flatten());
        Ok(emails.iter().map(|email| found.get(email).cloned()).collect())
    }

    /// Reads those of `emails` (rising, of one week) that one scan over little more than them finds; returns the rest.
    async fn scan_rows(
        &self,
        partition: &[u8],
        emails: Vec<EmailId>,
        found: &mut HashMap<EmailId, Arc<MessageRow>>,
    ) -> Result<Vec<EmailId>, AccountError> {
        let (Some(&oldest), Some(&newest)) = (emails.first(), emails.last()) else { return Ok(emails) };
        let range = (Bound::Included(row_key(newest)), Bound::Included(row_key(oldest)));
        let limit = emails.len() * 2;
        let rows = self.shared.store.scan(Table::Message, partition, range, Order::Forward, limit).await?;
        // Newest first: what is older than the last row read was not reached.
        let reached = match rows.last() {
            Some((key, _)) if rows.len() == limit => row_email(key).unwrap_or(newest),
            _ => oldest,
        };
        for (key, value) in rows {
            let Some(email) = row_email(&key).filter(|email| emails.binary_search(email).is_ok()) else { continue };
            found.insert(email, self.keep_row(email, &value)?);
        }
        Ok(emails.into_iter().take_while(|email| *email < reached).collect())
    }

    async fn fetch_row(&self, email: EmailId) -> Result<Option<Arc<MessageRow>>, AccountError> {
        let value = self.shared.store.get(Table::Message, &home(self.id(), email), &row_key(email)).await?;
        value.map(|value| self.keep_row(email, &value)).transpose()
    }

    fn keep_row(&self, email: EmailId, value: &Bytes) -> Result<Arc<MessageRow>, AccountError> {
        let row = MessageRow::decode(value);
        let row = Arc::new(row.map_err(|what| AccountError::Corrupt(format!("account {}: {what}", self.id().0)))?);
        self.shared.rows.insert(self.id(), email, row.clone());
        Ok(row)
    }

    /// Octets of a message: `range` of them, at most [`OCTETS_MAX`] and at most what there is. Call again from where
    /// the answer ends.
    ///
    /// # Errors
    ///
    /// `NoMessage` when its octets are gone for good, `Store`.
    pub async fn octets(&self, email: EmailId, row: &MessageRow, range: Range<u64>) -> Result<Bytes, AccountError> {
        let start = range.start.min(row.size);
        let end = range.end.min(row.size).min(start.saturating_add(OCTETS_MAX));
        if start >= end {
            return Ok(Bytes::new());
        }
        let header = row.header.len() as u64;
        let mut runs = Vec::with_capacity(4);
        if start < header {
            runs.push(row.header.slice(start as usize..end.min(header) as usize));
        }
        if end > header {
            let partition = home(self.id(), email);
            let after = start.max(header) - header..end - header;
            let gets = within_pieces(after).map(|(piece, octets)| {
                let (partition, key) = (&partition, piece_key(email, piece));
                async move {
                    let piece = self.shared.store.get(Table::Body, partition, &key).await?;
                    let piece = piece.ok_or(AccountError::NoMessage)?;
                    if octets.end > piece.len() {
                        let what = format!("account {}: a piece of a message is short", self.id().0);
                        return Err(AccountError::Corrupt(what));
                    }
                    Ok::<_, AccountError>(piece.slice(octets))
                }
            });
            runs.extend(future::try_join_all(gets).await?);
        }
        Ok(joined(runs))
    }
}
