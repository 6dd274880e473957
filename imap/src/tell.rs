//! Telling the client what changed in the selected mailbox: loads what the [`View`](crate::view::View) asks for, and
//! writes what it finds (RFC 3501 §5.2, §7.3, §7.4).

use std::sync::Arc;

use posthouse_storage::account::{Account, AccountState, Counts, Entry, Flags, Mailbox, Uid};

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::session::Selected;
use crate::view::Expunges;
use crate::wire::write::{self, Code, Fetch, Status};

/// What may be told and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Whether EXPUNGE may be told.
    pub(crate) expunges: Expunges,
    /// With the uid in every FETCH, as all answers to UID commands must have it (RFC 3501 §6.4.8).
    pub(crate) uids: bool,
}

impl Manner {
    /// Outside of commands by number.
    pub(crate) const FREE: Self = Self { expunges: Expunges::Told, uids: false };
}

/// A change of flags that need not be told: given the entry as it is now and its flags before.
pub(crate) type Skip<'a> = &'a mut (dyn FnMut(&Entry, Flags) -> bool + Send);

/// Tells all changes up to `newest`.
///
/// # Errors
///
/// The store's, and then nothing was told; `Bye` when the client can no longer be brought up to date; the connection's.
pub(crate) async fn changes(
    account: &Account,
    selected: &mut Selected,
    newest: &AccountState,
    manner: Manner,
    skip: Skip<'_>,
    out: &mut Output<'_>,
) -> Result<()> {
    let Selected { view, read_only } = selected;
    let newer = match newest.mailboxes.get(&view.id()) {
        Some(mailbox) if mailbox.selectable => Arc::clone(mailbox),
        _ => emptied(view.mailbox()),
    };
    let Some(difference) = view.compare(&newer) else { return Ok(()) };
    let mut old = Vec::new();
    for slot in difference.old_slots() {
        let chunk = account.chunk(slot).await;
        // The client was told of a state that nobody remembers: another node went far ahead of this one.
        old.push(chunk.map_err(|_| CommandError::Bye("The session fell too far behind; please connect again"))?);
    }
    let mut new = Vec::new();
    for slot in difference.new_slots() {
        new.push(account.chunk(slot).await?);
    }
    let known = view.mailbox().uid_next;
    let recent = if newer.uid_next > known {
        // RFC 3501 §6.3.2: EXAMINE leaves \Recent to whoever selects.
        let from = if *read_only { newer.recent_from } else { account.claim_recent(newer.id) }.max(known);
        Some((from, count_from(account, &newer, from).await?))
    } else {
        None
    };

    let recent_before = view.recent_count();
    let news = view.advance(difference, old, new, manner.expunges);
    if let Some((from, count)) = recent.filter(|_| news.arrived) {
        view.add_recent(from, count);
    }
    for sequence in news.expunged {
        write::expunge(out.buf, sequence);
        out.make_room().await?;
    }
    if let Some(keywords) = &news.keywords {
        flags(out.buf, keywords, *read_only);
    }
    let mailbox = view.mailbox();
    for (sequence, entry, before) in news.changed {
        if skip(&entry, before) {
            continue;
        }
        let mut fetch = Fetch::begin(out.buf, sequence);
        if manner.uids {
            fetch.uid(entry.uid.get());
        }
        fetch.flags(entry.flags, &mailbox.keywords, view.recent().contains(entry.uid));
        fetch.end();
        out.make_room().await?;
    }
    if news.arrived {
        write::exists(out.buf, view.messages());
    }
    if news.arrived || view.recent_count() != recent_before {
        write::recent(out.buf, view.recent_count());
    }
    Ok(())
}

/// A mailbox that was deleted, to a session that has it selected: nothing is in it any more (RFC 2180 §3.3).
fn emptied(mailbox: &Arc<Mailbox>) -> Arc<Mailbox> {
    if mailbox.slots.is_empty() {
        return Arc::clone(mailbox);
    }
    Arc::new(Mailbox { counts: Counts::default(), slots: Arc::default(), ..Mailbox::clone(mailbox) })
}

/// FLAGS and PERMANENTFLAGS.
pub(crate) fn flags(out: &mut Vec<u8>, keywords: &[Arc<str>], read_only: bool) {
    write::flags(out, keywords);
    let more = keywords.len() < Flags::KEYWORDS_MAX;
    let code = if read_only { Code::NoPermanentFlags } else { Code::PermanentFlags { keywords, more } };
    write::untagged(out, Status::Ok, Some(code), "Flags that stay");
}

/// Messages with a uid of at least `from`; looks into one chunk at most.
pub(crate) async fn count_from(account: &Account, mailbox: &Mailbox, from: Uid) -> Result<u32> {
    let mut count = 0;
    for slot in mailbox.slots.iter().rev().take_while(|slot| slot.last() >= from) {
        count += if slot.first() >= from {
            slot.counts().messages
        } else {
            let chunk = account.chunk(slot).await?;
            (chunk.entries.len() - chunk.entries.partition_point(|entry| entry.uid < from)) as u32
        };
    }
    Ok(count)
}
