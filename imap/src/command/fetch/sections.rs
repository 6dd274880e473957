//! The items of FETCH that are octets of the message: BODY[...], RFC822 and its parts.

use std::ops::Range;

use posthouse_storage::account::{Account, AccountError, Uid};
use posthouse_storage::message::{EmailId, MessageRow};
use posthouse_storage::wide::StoreError;

use super::Answer;
use crate::error::Result;
use crate::events;
use crate::output::Output;
use crate::wire::command::FetchItem;
use crate::wire::section::{self, Located};

/// Header octets read for a list of fields; what is beyond is not looked at.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What went wrong with single messages.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// Some are expunged, and their octets are deleted.
    pub(super) gone: bool,
    /// Some are damaged.
    pub(super) damaged: bool,
}

impl Troubles {
    /// Notes a damaged message.
    pub(super) fn damaged(&mut self, uid: Uid, what: &str) {
        self.damaged = true;
        events::message_damaged(uid, what);
    }

    /// Notes what concerns one message; anything else ends the command.
    pub(super) fn note(&mut self, uid: Uid, error: AccountError) -> Result<()> {
        match error {
            AccountError::NoMessage => self.gone = true,
            error if is_damage(&error) => self.damaged(uid, &error.to_string()),
            other => return Err(other.into()),
        }
        Ok(())
    }
}

/// Whether the error is one place's, and others can be read all the same.
pub(super) fn is_damage(error: &AccountError) -> bool {
    matches!(
        error,
        AccountError::Corrupt(_) | AccountError::Store(StoreError::Corrupt(_)) | AccountError::Store(StoreError::Io(_))
    )
}

/// Where a message's octets come from.
pub(super) struct Source<'a> {
    pub(super) account: &'a Account,
    pub(super) email: EmailId,
    pub(super) uid: Uid,
    pub(super) row: &'a MessageRow,
}

impl Source<'_> {
    async fn octets(&self, range: Range<u64>) -> std::result::Result<bytes::Bytes, AccountError> {
        self.account.octets(self.email, self.row, range).await
    }

    /// A range small enough to be held.
    async fn gather(&self, range: Range<u64>) -> std::result::Result<Vec<u8>, AccountError> {
        let mut gathered = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = self.octets(at..range.end).await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            gathered.extend_from_slice(&piece);
        }
        Ok(gathered)
    }
}

/// Writes one item. What is gone is answered with NIL and noted; so is what is damaged if the answer has partly left. On
/// an error the answer is unfinished, perhaps within a literal.
pub(super) async fn write(
    source: &Source<'_>,
    item: &FetchItem,
    answer: &mut Answer,
    troubles: &mut Troubles,
    out: &mut Output<'_>,
) -> Result<()> {
    let Some(section) = section::of_item(item) else { return Ok(()) };
    let partial = match item {
        FetchItem::Section { partial, .. } => *partial,
        _ => None,
    };
    let octets = match section::locate(&source.row.structure, &section) {
        Located::Missing => {
            answer.item(out.buf).section_literal(item, 0);
            return Ok(());
        }
        Located::Fields { header, fields, not } => {
            let end = header.end.min(header.start.saturating_add(HEADER_BYTES_MAX));
            match source.gather(header.start..end).await {
                Ok(octets) => {
                    let filtered = section::filter_header(&octets, fields, not);
                    let cut = section::cut(0..filtered.len() as u64, partial);
                    let cut = &filtered[cut.start as usize..cut.end as usize];
                    let mut fetch = answer.item(out.buf);
                    fetch.section_literal(item, cut.len() as u64);
                    fetch.out().extend_from_slice(cut);
                }
                Err(error) => nil(source, error, item, answer, troubles, out)?,
            }
            return Ok(());
        }
        Located::Octets(octets) => section::cut(octets, partial),
    };
    // The first piece is read before the literal is announced: what cannot be read is better not announced.
    let first = match source.octets(octets.clone()).await {
        Ok(first) => first,
        Err(error) => return nil(source, error, item, answer, troubles, out),
    };
    answer.item(out.buf).section_literal(item, octets.end - octets.start);
    let mut at = octets.start + first.len() as u64;
    out.send(&first).await?;
    drop(first);
    while at < octets.end {
        let piece = source.octets(at..octets.end).await?;
        if piece.is_empty() {
            return Err(AccountError::Corrupt("a message is shorter than its row says".to_owned()).into());
        }
        at += piece.len() as u64;
        out.send(&piece).await?;
    }
    Ok(())
}

/// An item that cannot be read, not announced yet.
fn nil(
    source: &Source<'_>,
    error: AccountError,
    item: &FetchItem,
    answer: &mut Answer,
    troubles: &mut Troubles,
    out: &mut Output<'_>,
) -> Result<()> {
    // NIL reads like an empty message: rather no answer at all, as long as it can be taken back.
    if is_damage(&error) && out.holds(answer.start) {
        return Err(error.into());
    }
    troubles.note(source.uid, error)?;
    answer.item(out.buf).section_nil(item);
    Ok(())
}
