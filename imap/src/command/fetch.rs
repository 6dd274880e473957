//! FETCH and UID FETCH (RFC 3501 §6.4.5).
//!
//! What the mailbox's entries hold (UID, FLAGS, INTERNALDATE, RFC822.SIZE) is written straight from them. ENVELOPE and
//! the structures come from rows, read by pages. Only sections read octets, in pieces that go to the client with
//! back-pressure: a message is never whole in memory.

mod sections;

use std::sync::Arc;

use posthouse_storage::account::{Account, AccountError, Entry, FlagChange, FlagNames, Flags, Uid, UidSet};
use posthouse_storage::message::{EmailId, MessageRow, envelope};

use self::sections::{Troubles, is_damage};
use super::{load, no_messages, wanted};
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::tell::{self, Manner};
use crate::view::{Expunges, Wanted};
use crate::wire::command::{FetchItem, Numbers, SequenceSet};
use crate::wire::date;
use crate::wire::write::{self, Fetch};

/// Rows read together, and messages whose \Seen is set by one commit.
const ROWS_AT_ONCE: usize = 64;
/// Messages answered from entries between two looks at how much is waiting to be written.
const ENTRIES_AT_ONCE: usize = 256;

/// FETCH's arguments, looked through once.
struct Request {
    wanted: Wanted,
    items: Vec<FetchItem>,
    numbers: Numbers,
    sets_seen: bool,
}

pub(super) async fn fetch(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    mut items: Vec<FetchItem>,
    out: &mut Output<'_>,
) -> Result<Done> {
    let Some(wanted) = wanted(selected, numbers, set)? else { return Ok(no_messages()) };
    // RFC 3501 §6.4.8: UID FETCH always tells the uid.
    if numbers == Numbers::Uid && !items.contains(&FetchItem::Uid) {
        items.insert(0, FetchItem::Uid);
    }
    let of_entries = |item: &FetchItem| {
        matches!(item, FetchItem::Uid | FetchItem::Flags | FetchItem::InternalDate | FetchItem::Size)
    };
    if items.iter().all(of_entries) {
        from_entries(account, selected, &wanted, &items, out).await?;
        return Ok(Done::plain("FETCH done"));
    }
    let sets_seen = !selected.read_only && items.iter().any(FetchItem::sets_seen);
    let request = Request { wanted, items, numbers, sets_seen };
    let troubles = from_rows(account, selected, &request, out).await?;
    if troubles.damaged {
        return Err(CommandError::no("SERVERBUG", "Some messages are damaged; the operator has been told"));
    }
    Ok(Done::plain(if troubles.gone { "FETCH done; some messages are gone" } else { "FETCH done" }))
}

/// Answers that need nothing but entries.
async fn from_entries(
    account: &Account,
    selected: &Selected,
    wanted: &Wanted,
    items: &[FetchItem],
    out: &mut Output<'_>,
) -> Result<()> {
    let mut from = 1;
    let mut lists = FlagLists::new(selected);
    while let Some(page) = selected.view.page(from, wanted) {
        let entries = load(account, selected, &page).await?;
        for pick in wanted.picks(page.first, from, &entries) {
            let mut sequence = page.first + pick.start as u32;
            for some in entries[pick].chunks(ENTRIES_AT_ONCE) {
                for entry in some {
                    from_entry(out.buf, sequence, entry, items, &mut lists);
                    sequence += 1;
                }
                out.make_room().await?;
            }
        }
        from = page.end();
        // Answers from memory may never wait for anything.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

fn from_entry(out: &mut Vec<u8>, sequence: u32, entry: &Entry, items: &[FetchItem], lists: &mut FlagLists) {
    out.extend_from_slice(b"* ");
    write::number(out, sequence.into());
    out.extend_from_slice(b" FETCH (");
    for item in items {
        match item {
            FetchItem::Uid => {
                out.extend_from_slice(b"UID ");
                write::number(out, entry.uid.get().into());
            }
            FetchItem::Flags => lists.write(out, entry),
            FetchItem::InternalDate => {
                out.extend_from_slice(b"INTERNALDATE \"");
                date::write_date_time(out, entry.email.received_at_ms());
                out.push(b'"');
            }
            FetchItem::Size => {
                out.extend_from_slice(b"RFC822.SIZE ");
                write::number(out, entry.size.into());
            }
            // The others need more than an entry.
            _ => continue,
        }
        out.push(b' ');
    }
    out.pop();
    out.extend_from_slice(b")\r\n");
}

/// FLAGS items as they are written, for the few combinations that a mailbox has.
struct FlagLists {
    keywords: Arc<Vec<Arc<str>>>,
    recent: UidSet,
    known: Vec<(Flags, Vec<u8>)>,
}

/// Combinations remembered.
const FLAG_LISTS_MAX: usize = 16;

impl FlagLists {
    fn new(selected: &Selected) -> Self {
        let view = &selected.view;
        Self { keywords: Arc::clone(&view.mailbox().keywords), recent: view.recent().clone(), known: Vec::new() }
    }

    #[inline]
    fn write(&mut self, out: &mut Vec<u8>, entry: &Entry) {
        let recent = !self.recent.is_empty() && self.recent.contains(entry.uid);
        // An internal mark's place is free in a public list: \Recent takes it.
        let key = if recent { entry.flags.public().union(Flags::SHARED) } else { entry.flags.public() };
        if let Some((_, list)) = self.known.iter().find(|(known, _)| *known == key) {
            out.extend_from_slice(list);
            return;
        }
        let start = out.len();
        out.extend_from_slice(b"FLAGS ");
        write::flag_list(out, entry.flags, &self.keywords, recent);
        if self.known.len() < FLAG_LISTS_MAX {
            self.known.push((key, out[start..].to_vec()));
        }
    }
}

/// One message to answer.
#[derive(Debug, Clone, Copy)]
struct Hit {
    sequence: u32,
    entry: Entry,
    /// This command set \Seen, so its flags are told as well.
    seen_now: bool,
}

/// Answers that need rows, and perhaps octets.
async fn from_rows(
    account: &Account,
    selected: &mut Selected,
    request: &Request,
    out: &mut Output<'_>,
) -> Result<Troubles> {
    let mut troubles = Troubles::default();
    let mut from = 1;
    // A page is looked at anew after each batch: telling \Seen may have brought in other sessions' changes.
    while let Some(page) = selected.view.page(from, &request.wanted) {
        let entries = load(account, selected, &page).await?;
        let picks = request.wanted.picks(page.first, from, &entries);
        let mut hits: Vec<Hit> = picks
            .into_iter()
            .flatten()
            .take(ROWS_AT_ONCE)
            .map(|at| Hit { sequence: page.first + at as u32, entry: entries[at], seen_now: false })
            .collect();
        drop(entries);
        from = if hits.len() < ROWS_AT_ONCE { page.end() } else { hits[hits.len() - 1].sequence + 1 };
        if request.sets_seen {
            see(account, selected, request, &mut hits, out).await?;
        }
        let rows = rows(account, &hits, &mut troubles).await?;
        for (hit, row) in hits.iter().zip(rows) {
            match row {
                Row::There(row) => message(account, selected, request, hit, &row, &mut troubles, out).await?,
                Row::Gone => troubles.gone = true,
                // As far as possible.
                Row::Damaged => {
                    let mut answer = Answer::new(hit.sequence, out);
                    easy_items(&mut answer, selected, request, hit, out.buf);
                    answer.end(out.buf);
                }
            }
            out.make_room().await?;
        }
    }
    Ok(troubles)
}

/// Sets \Seen where it is not set, durably, before anything is told of it.
async fn see(
    account: &Account,
    selected: &mut Selected,
    request: &Request,
    hits: &mut [Hit],
    out: &mut Output<'_>,
) -> Result<()> {
    let unseen = |hit: &&mut Hit| !hit.entry.flags.contains(Flags::SEEN);
    let uids: UidSet = hits
        .iter_mut()
        .filter(|hit| unseen(hit) && !selected.view.is_gone(hit.entry.uid))
        .map(|hit| hit.entry.uid)
        .collect();
    if uids.is_empty() {
        return Ok(());
    }
    let names = FlagNames { system: Flags::SEEN, keywords: Vec::new() };
    match account.store_flags(selected.view.id(), &uids, FlagChange::Add, &names, None).await {
        // Deleted with all that was in it: what was asked for can still be read.
        Err(AccountError::NoMailbox) => return Ok(()),
        stored => drop(stored?),
    }
    // Others' changes are told on the way; those of these messages go into their own answers.
    let mut now: Vec<(Uid, Flags)> = Vec::with_capacity(hits.len());
    let mut skip = |entry: &Entry, _: Flags| {
        let ours = uids.contains(entry.uid);
        if ours {
            now.push((entry.uid, entry.flags));
        }
        ours
    };
    let manner = Manner { expunges: Expunges::Held, uids: request.numbers == Numbers::Uid };
    tell::changes(account, selected, &account.current(), manner, &mut skip, out).await?;
    for hit in hits {
        if let Ok(at) = now.binary_search_by_key(&hit.entry.uid, |(uid, _)| *uid) {
            hit.entry.flags = now[at].1;
            hit.seen_now = true;
        }
    }
    Ok(())
}

/// What became of a row.
enum Row {
    There(Arc<MessageRow>),
    Gone,
    Damaged,
}

async fn rows(account: &Account, hits: &[Hit], troubles: &mut Troubles) -> Result<Vec<Row>> {
    let emails: Vec<EmailId> = hits.iter().map(|hit| hit.entry.email).collect();
    match account.rows(&emails).await {
        Ok(rows) => return Ok(rows.into_iter().map(|row| row.map_or(Row::Gone, Row::There)).collect()),
        // One damaged row must not hide its neighbours.
        Err(error) if is_damage(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let mut rows = Vec::with_capacity(hits.len());
    for hit in hits {
        rows.push(match account.row(hit.entry.email).await {
            Ok(row) => Row::There(row),
            Err(AccountError::NoMessage) => Row::Gone,
            Err(error) if is_damage(&error) => {
                troubles.note(hit.entry.uid, error)?;
                Row::Damaged
            }
            Err(error) => return Err(error.into()),
        });
    }
    Ok(rows)
}

/// A `* n FETCH (...)` whose items are written one by one, with writes to the client in between.
struct Answer {
    sequence: u32,
    /// Where it begins in the output.
    start: u64,
    begun: bool,
}

impl Answer {
    fn new(sequence: u32, out: &Output<'_>) -> Self {
        Self { sequence, start: out.position(), begun: false }
    }

    /// For the next item, which must follow.
    fn item<'a>(&mut self, out: &'a mut Vec<u8>) -> Fetch<'a> {
        match std::mem::replace(&mut self.begun, true) {
            false => Fetch::begin(out, self.sequence),
            true => Fetch::resume(out),
        }
    }

    fn end(self, out: &mut Vec<u8>) {
        if self.begun {
            Fetch::resume(out).end();
        }
    }
}

/// Writes one message's answer, whole or not at all; if neither can be, the connection has to be closed.
async fn message(
    account: &Account,
    selected: &Selected,
    request: &Request,
    hit: &Hit,
    row: &MessageRow,
    troubles: &mut Troubles,
    out: &mut Output<'_>,
) -> Result<()> {
    let mut answer = Answer::new(hit.sequence, out);
    easy_items(&mut answer, selected, request, hit, out.buf);
    let source = sections::Source { account, email: hit.entry.email, uid: hit.entry.uid, row };
    match all_items(&source, &request.items, &mut answer, troubles, out).await {
        Ok(()) => answer.end(out.buf),
        Err(CommandError::Account(error)) if out.take_back(answer.start) => troubles.note(hit.entry.uid, error)?,
        // What was announced must come; if it cannot, only closing is honest.
        Err(CommandError::Account(error)) => return Err(CommandError::Broken(error.to_string())),
        Err(lost) => return Err(lost),
    }
    Ok(())
}

/// What needs the row. On an error the answer is unfinished.
async fn all_items(
    source: &sections::Source<'_>,
    items: &[FetchItem],
    answer: &mut Answer,
    troubles: &mut Troubles,
    out: &mut Output<'_>,
) -> Result<()> {
    let row = source.row;
    for item in items {
        match item {
            FetchItem::Uid | FetchItem::Flags | FetchItem::InternalDate | FetchItem::Size => {}
            FetchItem::Envelope => answer.item(out.buf).envelope(&envelope(&row.header)),
            FetchItem::Body => answer.item(out.buf).body(&row.structure),
            FetchItem::BodyStructure => answer.item(out.buf).body_structure(&row.structure),
            item => sections::write(source, item, answer, troubles, out).await?,
        }
    }
    Ok(())
}

/// What the entry alone tells, before everything else: the order of items is ours (RFC 3501 §7.4.2).
fn easy_items(answer: &mut Answer, selected: &Selected, request: &Request, hit: &Hit, out: &mut Vec<u8>) {
    let (view, entry) = (&selected.view, &hit.entry);
    let flags = |fetch: &mut Fetch<'_>| {
        fetch.flags(entry.flags, &view.mailbox().keywords, view.recent().contains(entry.uid));
    };
    for item in &request.items {
        match item {
            FetchItem::Uid => answer.item(out).uid(entry.uid.get()),
            FetchItem::Flags => flags(&mut answer.item(out)),
            FetchItem::InternalDate => answer.item(out).internal_date(entry.email.received_at_ms()),
            FetchItem::Size => answer.item(out).size(entry.size.into()),
            _ => {}
        }
    }
    if hit.seen_now && !request.items.contains(&FetchItem::Flags) {
        flags(&mut answer.item(out));
    }
}
