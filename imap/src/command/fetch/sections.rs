//! The items of FETCH that are octets of the message: BODY[...], RFC822 and its parts.

use std::ops::Range;

use posthouse_storage::account::{Account, AccountError, Uid};
use posthouse_storage::message::{EmailId, MessageRow};

use super::Answer;
use crate::error::{CommandError, Result};
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
    fn note(&mut self, uid: Uid, error: AccountError) -> Result<()> {
        match error {
            AccountError::NoMessage => self.gone = true,
            AccountError::Corrupt(what) => self.damaged(uid, &what),
            other => return Err(other.into()),
        }
        Ok(())
    }
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

/// Writes one item. What cannot be read is answered with NIL and noted.
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
                Err(error) => {
                    troubles.note(source.uid, error)?;
                    answer.item(out.buf).section_nil(item);
                }
            }
            return Ok(());
        }
        Located::Octets(octets) => section::cut(octets, partial),
    };
    // The first piece is read before the literal is announced: what cannot be read is better not announced.
    let first = match source.octets(octets.clone()).await {
        Ok(first) => first,
        Err(error) => {
            troubles.note(source.uid, error)?;
            answer.item(out.buf).section_nil(item);
            return Ok(());
        }
    };
    answer.item(out.buf).section_literal(item, octets.end - octets.start);
    let mut at = octets.start + first.len() as u64;
    out.send(&first).await?;
    drop(first);
    while at < octets.end {
        // What was announced must come; if it cannot, only closing is honest.
        let piece = match source.octets(at..octets.end).await {
            Ok(piece) if !piece.is_empty() => piece,
            Ok(_) => return Err(CommandError::Broken("a message is shorter than its row says".to_owned())),
            Err(error) => return Err(CommandError::Broken(error.to_string())),
        };
        at += piece.len() as u64;
        out.send(&piece).await?;
    }
    Ok(())
}
