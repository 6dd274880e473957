//! One file per command (or family): ordinary functions over an account that read like the RFC.

pub(crate) mod append;
mod copy;
mod expunge;
mod fetch;
mod list;
mod mailbox;
mod search;
pub(crate) mod select;
mod status;
mod store;

use posthouse_storage::account::{Account, Entry, Flags, UidSet};

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::tell::{self, Manner};
use crate::view::{Entries, Expunges, Page, Wanted};
use crate::wire::command::{CommandBody, Numbers, SeqNo, SequenceSet};
use crate::wire::write;

/// Between levels of mailbox names.
pub(crate) const DELIMITER: char = '/';

/// What commands without a selected mailbox work on.
pub(crate) struct Context<'a> {
    pub(crate) account: &'a Account,
}

/// Commands on the selected mailbox.
pub(crate) async fn on_selected(
    body: CommandBody,
    account: &Account,
    selected: &mut Selected,
    manner: Manner,
    out: &mut Output<'_>,
) -> Result<Done> {
    // What numbers mean must not change between the client's writing them and our reading them; but what another
    // session just put here can be named by its uid, and is what flags are now (RFC 9051 §6.4.9).
    let mut told = Vec::new();
    let is_uid_command = manner.uids;
    let is_held = manner.expunges == Expunges::Held;
    if is_uid_command || is_held {
        // A client may take what it is told during its silent STORE for the result: then that is to be told as well.
        let is_store = matches!(body, CommandBody::Store { .. });
        let mut note = |entry: &Entry, _: Flags| {
            if is_store {
                told.push(entry.uid);
            }
            false
        };
        tell::changes(account, selected, &*account.refresh().await?, manner, &mut note, out).await?;
    }
    match body {
        // RFC 3501 §6.4.1: everything is durable already.
        CommandBody::Check => Ok(Done::plain("CHECK done")),
        CommandBody::Expunge { uids } => expunge::expunge(account, selected, uids.as_ref()).await,
        CommandBody::Search { numbers, key, .. } => search::search(account, selected, numbers, &key, out).await,
        CommandBody::Fetch { numbers, set, items } => fetch::fetch(account, selected, numbers, &set, items, out).await,
        CommandBody::Store { numbers, set, change, silent, flags } => {
            let order = store::Order { change, silent, flags };
            store::store(account, selected, numbers, &set, &order, &told, out).await
        }
        CommandBody::Copy { numbers, set, mailbox } => copy::copy(account, selected, numbers, &set, &mailbox).await,
        CommandBody::Move { numbers, set, mailbox } => {
            copy::move_to(account, selected, numbers, &set, &mailbox, out).await
        }
        other => Err(CommandError::Bad(format!("{} cannot be done here", other.verb()))),
    }
}

/// The messages that a command names; `None` if there can be none.
///
/// # Errors
///
/// BAD for a sequence number beyond the last. Uids may name what is gone (RFC 3501 §6.4.8), and `n:*` is taken to begin
/// at the last message if n is beyond it, as with uids.
fn wanted(selected: &Selected, numbers: Numbers, set: &SequenceSet) -> Result<Option<Wanted>> {
    let view = &selected.view;
    if numbers == Numbers::Uid {
        let uids = set.resolve_uids(view.last_uid());
        return Ok(if uids.is_empty() { None } else { Some(Wanted::Uids(uids)) });
    }
    let last = view.messages();
    let is_beyond = |&range: &(SeqNo, SeqNo)| match range {
        (SeqNo::Number(a), SeqNo::Number(b)) => a.max(b).get() > last,
        _ => false,
    };
    if set.0.iter().any(is_beyond) {
        return Err(CommandError::Bad(format!("There are only {last} messages")));
    }
    let ranges = set.resolve(last);
    Ok(if ranges.is_empty() { None } else { Some(Wanted::Sequences(ranges)) })
}

/// The uids of those wanted messages that are (or, by uid, may be) still there.
async fn uids(account: &Account, selected: &Selected, wanted: &Wanted) -> Result<UidSet> {
    if let Wanted::Uids(uids) = wanted {
        return Ok(uids.clone());
    }
    let view = &selected.view;
    let mut uids = UidSet::default();
    let mut from = 1;
    while let Some(page) = view.page(from, wanted) {
        let entries = load(account, selected, &page).await?;
        for at in wanted.picks(page.first, from, &entries).into_iter().flatten() {
            let uid = entries[at].uid;
            if page.is_plain() || !view.is_gone(uid) {
                uids.push(uid);
            }
        }
        from = page.end();
    }
    Ok(uids)
}

/// A page's messages.
async fn load(account: &Account, selected: &Selected, page: &Page) -> Result<Entries> {
    let chunk = match &page.slot {
        Some(slot) => Some(account.chunk(slot).await?),
        None => None,
    };
    Ok(selected.view.entries(page, chunk))
}

/// Refuses what would change a mailbox that is open for reading only (RFC 3501 §6.3.2).
fn writable(selected: &Selected) -> Result<()> {
    match selected.read_only {
        true => Err(CommandError::no("READ-ONLY", "The mailbox is open for reading only")),
        false => Ok(()),
    }
}

/// RFC 9051 §6.4.9: naming messages that are gone is no error.
fn no_messages() -> Done {
    Done::plain("No such messages, nothing done")
}

/// Commands on the account's mailboxes.
pub(crate) async fn on_mailboxes(body: CommandBody, context: Context<'_>, out: &mut Output<'_>) -> Result<Done> {
    let account = context.account;
    match body {
        CommandBody::Namespace => {
            write::namespace(out.buf, DELIMITER);
            Ok(Done::plain("NAMESPACE done"))
        }
        CommandBody::Enable(_) => {
            // RFC 5161 §3.1: what is not known is left out; nothing is known that has to be switched on.
            write::enabled(out.buf, &[]);
            Ok(Done::plain("ENABLE done"))
        }
        CommandBody::Create { mailbox } => mailbox::create(account, &mailbox).await,
        CommandBody::Delete { mailbox } => mailbox::delete(account, &mailbox).await,
        CommandBody::Rename { from, to } => mailbox::rename(account, &from, &to).await,
        CommandBody::Subscribe { mailbox } => mailbox::subscribe(account, &mailbox, true).await,
        CommandBody::Unsubscribe { mailbox } => mailbox::subscribe(account, &mailbox, false).await,
        CommandBody::List(list) => list::list(account, &list, out).await,
        CommandBody::Lsub { reference, pattern } => list::lsub(account, &reference, &pattern, out).await,
        CommandBody::Status { mailbox, items } => status::status(account, &mailbox, &items, out).await,
        other => Err(CommandError::Bad(format!("{} cannot be done here", other.verb()))),
    }
}
