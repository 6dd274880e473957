//! FETCH and UID FETCH (RFC 3501 §6.4.5).
//!
//! What the mailbox's entries hold (UID, FLAGS, INTERNALDATE, RFC822.SIZE) is written straight from them. ENVELOPE and
//! the structures come from rows, read by pages. Only sections read octets, in pieces that go to the client with
//! back-pressure: a message is never whole in memory.

use std::sync::Arc;

use posthouse_storage::account::{Account, AccountError, Entry, FlagChange, FlagNames, Flags, OCTETS_MAX, Uid, UidSet};
use posthouse_storage::message::{MessageRow, envelope};

use super::store::find;
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::view::hits;
use crate::wire::command::{FetchItem, Numbers, SequenceSet};
use crate::wire::section::{self, Located};
use crate::wire::write::{Fetch, flag_list};

/// Rows read together.
const PAGE: usize = 128;
/// Header octets read for a header section; whatever is beyond is not looked at by a filter.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// One message to answer.
#[derive(Clone, Copy)]
struct Hit {
    sequence: u32,
    entry: Entry,
    /// \Seen was set by this command, so the flags are told as well.
    seen_now: bool,
}

/// What went wrong with single messages.
#[derive(Default)]
struct Troubles {
    gone: bool,
    damaged: bool,
}

pub(super) async fn fetch(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    items: &[FetchItem],
    out: &mut Output<'_>,
) -> Result<Done> {
    let ranges = selected.view.ranges(numbers, set)?;
    // RFC 3501 §6.4.8: UID FETCH always tells the uid.
    let mut wanted = items.to_vec();
    if numbers == Numbers::Uid && !wanted.contains(&FetchItem::Uid) {
        wanted.insert(0, FetchItem::Uid);
    }
    let items = wanted.as_slice();
    let from_entries = |item: &FetchItem| {
        matches!(item, FetchItem::Uid | FetchItem::Flags | FetchItem::InternalDate | FetchItem::Size)
    };
    let rows = !items.iter().all(from_entries);
    let sets_seen = !selected.read_only && items.iter().any(FetchItem::sets_seen);
    let keywords = Arc::clone(&selected.view.mailbox().keywords);
    let mut troubles = Troubles::default();
    let mut cache = FlagCache::default();
    let slots: Vec<_> = selected.view.slots(numbers, &ranges).map(|(first, slot)| (first, Arc::clone(slot))).collect();
    for (first, slot) in slots {
        let chunk = account.chunk(&slot).await?;
        if !rows {
            for (count, (sequence, entry)) in hits(numbers, &ranges, first, &chunk).enumerate() {
                let recent = selected.view.is_recent(entry.uid);
                let mut answer = Fetch::begin(out.buf, sequence);
                for item in items {
                    from_entry(&mut answer, item, entry, recent, &keywords, &mut cache);
                }
                answer.end();
                if count % 64 == 63 {
                    out.make_room().await?;
                }
            }
            out.make_room().await?;
            continue;
        }
        let mut page: Vec<Hit> = Vec::with_capacity(PAGE);
        let mut hits = hits(numbers, &ranges, first, &chunk);
        loop {
            page.extend(hits.by_ref().take(PAGE).map(|(sequence, &entry)| Hit { sequence, entry, seen_now: false }));
            if page.is_empty() {
                break;
            }
            if sets_seen {
                see(account, selected, &mut page).await?;
            }
            let emails: Vec<_> = page.iter().map(|hit| hit.entry.email).collect();
            let found = match account.rows(&emails).await {
                Ok(found) => found,
                // One damaged row must not hide its neighbours.
                Err(AccountError::Corrupt(_)) => one_by_one(account, &page, &mut troubles).await?,
                Err(error) => return Err(error.into()),
            };
            for (hit, row) in page.drain(..).zip(found) {
                match row {
                    Some(row) => {
                        message(account, selected, &hit, &row, items, &keywords, &mut cache, &mut troubles, out).await?
                    }
                    None => troubles.gone = true,
                }
            }
        }
    }
    if troubles.damaged {
        return Err(CommandError::no("SERVERBUG", "Some messages are damaged; the operator has been told"));
    }
    if troubles.gone {
        return Err(CommandError::no("EXPUNGEISSUED", "Some messages are gone"));
    }
    Ok(Done::plain("FETCH done"))
}

/// Sets \Seen where it is not set, durably, before anything is told.
async fn see(account: &Account, selected: &mut Selected, page: &mut [Hit]) -> Result<()> {
    let unseen: Vec<Uid> =
        page.iter().filter(|hit| !hit.entry.flags.contains(Flags::SEEN)).map(|hit| hit.entry.uid).collect();
    if unseen.is_empty() {
        return Ok(());
    }
    let uids = UidSet(unseen.iter().map(|&uid| (uid, uid)).collect());
    let names = FlagNames { system: Flags::SEEN, keywords: Vec::new() };
    let id = selected.view.id();
    match account.store_flags(id, &uids, FlagChange::Add, &names, None).await {
        Ok(_) => {}
        Err(AccountError::NoMailbox) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let newest = account.current();
    let Some(mailbox) = newest.mailboxes.get(&id) else { return Ok(()) };
    for hit in page.iter_mut().filter(|hit| !hit.entry.flags.contains(Flags::SEEN)) {
        if let Some(now) = find(account, mailbox, hit.entry.uid).await? {
            hit.entry.flags = now.flags;
            hit.seen_now = true;
            selected.view.told(now.uid, now.flags.public());
        }
    }
    Ok(())
}

async fn one_by_one(account: &Account, page: &[Hit], troubles: &mut Troubles) -> Result<Vec<Option<Arc<MessageRow>>>> {
    let mut out = Vec::with_capacity(page.len());
    for hit in page {
        out.push(match account.row(hit.entry.email).await {
            Ok(row) => Some(row),
            Err(AccountError::NoMessage) => {
                troubles.gone = true;
                None
            }
            Err(AccountError::Corrupt(what)) => {
                tracing::error!(%what, uid = hit.entry.uid.0, "a message's row is damaged");
                troubles.damaged = true;
                None
            }
            Err(error) => return Err(error.into()),
        });
    }
    Ok(out)
}

/// Flag lists as they are written, for the few combinations that a mailbox has.
#[derive(Default)]
struct FlagCache(Vec<(Flags, bool, Vec<u8>)>);

impl FlagCache {
    fn write(&mut self, out: &mut Vec<u8>, flags: Flags, keywords: &[Arc<str>], recent: bool) {
        if let Some((_, _, list)) = self.0.iter().find(|(known, is_recent, _)| *known == flags && *is_recent == recent)
        {
            out.extend_from_slice(list);
            return;
        }
        let start = out.len();
        flag_list(out, flags, keywords, recent);
        if self.0.len() < 16 {
            self.0.push((flags, recent, out[start..].to_vec()));
        }
    }
}

/// An item that needs nothing but the entry; false for the others.
fn from_entry(
    answer: &mut Fetch<'_>,
    item: &FetchItem,
    entry: &Entry,
    recent: bool,
    keywords: &[Arc<str>],
    cache: &mut FlagCache,
) -> bool {
    match item {
        FetchItem::Uid => answer.uid(entry.uid.0.get()),
        FetchItem::Flags => answer.flags_with(|out| cache.write(out, entry.flags.public(), keywords, recent)),
        FetchItem::InternalDate => answer.internal_date(entry.email.received_at_ms()),
        FetchItem::Size => answer.size(u64::from(entry.size)),
        _ => return false,
    }
    true
}

#[expect(clippy::too_many_arguments, reason = "one message's answer needs all of the command's parts")]
async fn message(
    account: &Account,
    selected: &Selected,
    hit: &Hit,
    row: &MessageRow,
    items: &[FetchItem],
    keywords: &[Arc<str>],
    cache: &mut FlagCache,
    troubles: &mut Troubles,
    out: &mut Output<'_>,
) -> Result<()> {
    let recent = selected.view.is_recent(hit.entry.uid);
    let mut answer = Fetch::begin(out.buf, hit.sequence);
    if hit.seen_now && !items.contains(&FetchItem::Flags) {
        from_entry(&mut answer, &FetchItem::Flags, &hit.entry, recent, keywords, cache);
    }
    for item in items {
        if from_entry(&mut answer, item, &hit.entry, recent, keywords, cache) {
            continue;
        }
        match item {
            FetchItem::Envelope => answer.envelope(&envelope(&row.header)),
            FetchItem::Body => answer.body(&row.structure),
            FetchItem::BodyStructure => answer.body_structure(&row.structure),
            item => {
                let Some(section) = section::of_item(item) else { continue };
                let partial = match item {
                    FetchItem::Section { partial, .. } => *partial,
                    _ => None,
                };
                match section::locate(&row.structure, &section) {
                    Located::Missing => answer.section_literal(item, 0),
                    Located::Fields { header, fields, not } => {
                        let end = header.end.min(header.start + HEADER_BYTES_MAX);
                        let filtered = match gather(account, hit, row, header.start..end).await {
                            Ok(octets) => section::filter_header(&octets, fields, not),
                            Err(error) => trouble(error, hit, troubles)?,
                        };
                        let cut = section::cut(0..filtered.len() as u64, partial);
                        answer.section_literal(item, cut.end - cut.start);
                        answer.out().extend_from_slice(&filtered[cut.start as usize..cut.end as usize]);
                    }
                    Located::Octets(octets) => {
                        let cut = section::cut(octets, partial);
                        // The first piece is read before the literal is announced: what cannot be read is answered
                        // with nothing rather than with a literal that never comes.
                        let first = match account.octets(hit.entry.email, row, cut.clone()).await {
                            Ok(first) => first,
                            Err(error) => {
                                trouble::<()>(error, hit, troubles)?;
                                answer.section_nil(item);
                                continue;
                            }
                        };
                        answer.section_literal(item, cut.end - cut.start);
                        answer.out().extend_from_slice(&first);
                        let mut at = cut.start + first.len() as u64;
                        while at < cut.end {
                            // Pieces of what was announced must come; if they cannot, only closing is honest.
                            out.make_room().await?;
                            let piece = account.octets(hit.entry.email, row, at..cut.end.min(at + OCTETS_MAX)).await;
                            let piece = match piece {
                                Ok(piece) if !piece.is_empty() => piece,
                                _ => return Err(CommandError::Io(std::io::Error::other("a message ended early"))),
                            };
                            out.buf.extend_from_slice(&piece);
                            at += piece.len() as u64;
                        }
                        answer = Fetch::resume(out.buf);
                    }
                }
            }
        }
    }
    answer.end();
    out.make_room().await?;
    Ok(())
}

/// A range that is small enough to be held.
async fn gather(
    account: &Account,
    hit: &Hit,
    row: &MessageRow,
    range: std::ops::Range<u64>,
) -> std::result::Result<Vec<u8>, AccountError> {
    let mut out = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let piece = account.octets(hit.entry.email, row, at..range.end).await?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        out.extend_from_slice(&piece);
    }
    Ok(out)
}

/// Notes what is wrong with one message; what is wrong with the store ends the command.
fn trouble<T: Default>(error: AccountError, hit: &Hit, troubles: &mut Troubles) -> Result<T> {
    match error {
        AccountError::NoMessage => troubles.gone = true,
        AccountError::Corrupt(what) => {
            tracing::error!(%what, uid = hit.entry.uid.0, "a message's octets are damaged");
            troubles.damaged = true;
        }
        other => return Err(other.into()),
    }
    Ok(T::default())
}
