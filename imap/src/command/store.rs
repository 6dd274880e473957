//! STORE and UID STORE (RFC 3501 §6.4.6).

use posthouse_storage::account::{Account, Entry, FlagChange, FlagNames, Flags, Mailbox, Uid};

use super::{load, no_messages, uids, wanted, writable};
use crate::error::Result;
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::tell::{self, Manner};
use crate::view::{Expunges, View};
use crate::wire::command::{Numbers, SequenceSet};
use crate::wire::write::Fetch;

/// What is to be done to the flags.
pub(super) struct Order {
    pub(super) change: FlagChange,
    /// `.SILENT`: the client counts on the result.
    pub(super) silent: bool,
    pub(super) flags: FlagNames,
}

pub(super) async fn store(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    order: &Order,
    told: &[Uid],
    out: &mut Output<'_>,
) -> Result<Done> {
    writable(selected)?;
    let Some(wanted) = wanted(selected, numbers, set)? else { return Ok(no_messages()) };
    let uids = uids(account, selected, &wanted).await?;
    if uids.is_empty() {
        return Ok(no_messages());
    }
    account.store_flags(selected.view.id(), &uids, order.change, &order.flags, None).await?;

    let newest = account.current();
    let after = newest.mailboxes.get(&selected.view.id()).map(|mailbox| named(&order.flags, mailbox));
    let flags = after.unwrap_or_default();
    // `told` rises: it comes from a comparison of two mailboxes.
    // Told by this command itself, below; with .SILENT only what the client cannot have expected, when another session
    // changed the message as well (§6.4.6).
    let mut skip = |entry: &Entry, before: Flags| {
        let is_expected =
            || entry.flags.public() == expected(before, order.change, flags) && told.binary_search(&entry.uid).is_err();
        uids.contains(entry.uid) && (!order.silent || is_expected())
    };
    let manner = Manner { expunges: Expunges::Held, uids: numbers == Numbers::Uid };
    tell::changes(account, selected, &newest, manner, &mut skip, out).await?;
    if order.silent {
        return Ok(Done::plain("STORE done"));
    }
    let view = &selected.view;
    let mut from = 1;
    while let Some(page) = view.page(from, &wanted) {
        let entries = load(account, selected, &page).await?;
        for at in wanted.picks(page.first, from, &entries).into_iter().flatten() {
            let entry = &entries[at];
            if page.is_plain() || !view.is_gone(entry.uid) {
                tell_flags(view, page.first + at as u32, entry, manner.uids, out.buf);
            }
            out.make_room().await?;
        }
        from = page.end();
    }
    Ok(Done::plain("STORE done"))
}

fn tell_flags(view: &View, sequence: u32, entry: &Entry, uids: bool, out: &mut Vec<u8>) {
    let mut fetch = Fetch::begin(out, sequence);
    if uids {
        fetch.uid(entry.uid.get());
    }
    fetch.flags(entry.flags, &view.mailbox().keywords, view.recent().contains(entry.uid));
    fetch.end();
}

/// The bits of flags by name.
fn named(names: &FlagNames, mailbox: &Mailbox) -> Flags {
    let keywords = names.keywords.iter().filter_map(|name| mailbox.keyword(name));
    keywords.fold(names.system, Flags::union)
}

/// What a client thinks the flags are after its silent STORE.
fn expected(before: Flags, change: FlagChange, flags: Flags) -> Flags {
    match change {
        FlagChange::Replace => flags,
        FlagChange::Add => before.union(flags),
        FlagChange::Remove => before.without(flags),
    }
    .public()
}
