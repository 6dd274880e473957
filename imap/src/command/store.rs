//! STORE and UID STORE (RFC 3501 §6.4.6).

use posthouse_storage::account::{Account, AccountError, Entry, FlagChange, FlagNames, Flags, Mailbox, Uid, UidSet};

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::view::hits;
use crate::wire::command::{Numbers, SequenceSet};
use crate::wire::write::Fetch;

/// The uids of the view that a set names, as runs, and how many they are.
pub(super) async fn uids(
    account: &Account,
    selected: &Selected,
    numbers: Numbers,
    ranges: &[(u32, u32)],
) -> Result<UidSet> {
    if numbers == Numbers::Uid {
        let uid = |n| std::num::NonZeroU32::new(n).map(Uid);
        return Ok(UidSet(ranges.iter().filter_map(|&(low, high)| Some((uid(low)?, uid(high)?))).collect()));
    }
    let mut out: Vec<(Uid, Uid)> = Vec::new();
    let mut last = 0;
    for (first, slot) in selected.view.slots(numbers, ranges) {
        let chunk = account.chunk(slot).await?;
        for (sequence, entry) in hits(numbers, ranges, first, &chunk) {
            match out.last_mut() {
                // Neighbours in sequence: no uid between them exists in this view, so one range may span them only if
                // none that the view does not show lies between; adjacent uids are the safe case.
                Some(run) if last + 1 == sequence && run.1.0.get() + 1 == entry.uid.0.get() => run.1 = entry.uid,
                _ => out.push((entry.uid, entry.uid)),
            }
            last = sequence;
        }
    }
    Ok(UidSet(out))
}

#[expect(clippy::too_many_arguments, reason = "the command's own arguments")]
pub(super) async fn store(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    change: FlagChange,
    silent: bool,
    flags: &FlagNames,
    out: &mut Output<'_>,
) -> Result<Done> {
    if selected.read_only {
        return Err(CommandError::no("CANNOT", "The mailbox is open for reading only"));
    }
    let ranges = selected.view.ranges(numbers, set)?;
    let uids = uids(account, selected, numbers, &ranges).await?;
    if uids.0.is_empty() {
        return Ok(Done::plain("STORE done, no messages"));
    }
    let id = selected.view.id();
    match account.store_flags(id, &uids, change, flags, None).await {
        // Gone meanwhile: the client is told so before the answer.
        Err(AccountError::NoMailbox) => return Err(CommandError::no("NONEXISTENT", "No such mailbox")),
        stored => drop(stored?),
    }
    let newest = account.current();
    let Some(mailbox) = newest.mailboxes.get(&id).cloned() else { return Ok(Done::plain("STORE done")) };
    let mut told: Vec<(Uid, Flags)> = Vec::new();
    for (first, slot) in selected.view.slots(numbers, &ranges) {
        let chunk = account.chunk(slot).await?;
        for (sequence, entry) in hits(numbers, &ranges, first, &chunk) {
            if silent {
                told.push((entry.uid, expected(entry, change, flags, &mailbox)));
                continue;
            }
            let Some(now) = find(account, &mailbox, entry.uid).await? else { continue };
            let mut fetch = Fetch::begin(out.buf, sequence);
            if numbers == Numbers::Uid {
                fetch.uid(now.uid.0.get());
            }
            fetch.flags(now.flags.public(), &mailbox.keywords, selected.view.is_recent(now.uid));
            fetch.end();
            told.push((now.uid, now.flags.public()));
            out.make_room().await?;
        }
    }
    for (uid, flags) in told {
        selected.view.told(uid, flags);
    }
    Ok(Done::plain("STORE done"))
}

/// What the client thinks the flags are after its silent STORE (RFC 3501 §6.4.6).
fn expected(entry: &Entry, change: FlagChange, names: &FlagNames, mailbox: &Mailbox) -> Flags {
    let mut named = names.system;
    for keyword in &names.keywords {
        if let Some(index) = mailbox.keywords.iter().position(|known| known.eq_ignore_ascii_case(keyword)) {
            named = named.union(Flags::keyword(index));
        }
    }
    match change {
        FlagChange::Replace => named,
        FlagChange::Add => entry.flags.union(named),
        FlagChange::Remove => entry.flags.without(named),
    }
}

/// The entry of a uid in a mailbox.
pub(super) async fn find(account: &Account, mailbox: &Mailbox, uid: Uid) -> Result<Option<Entry>> {
    let at = mailbox.slots.partition_point(|slot| slot.last() < uid);
    let Some(slot) = mailbox.slots.get(at).filter(|slot| slot.first() <= uid) else { return Ok(None) };
    let chunk = account.chunk(slot).await?;
    Ok(chunk.entries.binary_search_by_key(&uid, |entry| entry.uid).ok().map(|at| chunk.entries[at]))
}
