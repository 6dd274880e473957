//! COPY and MOVE and their UID forms (RFC 3501 §6.4.7, RFC 4315, RFC 6851).

use posthouse_storage::account::{Account, AccountError, Copied, MailboxId};

use super::store::uids;
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::{Done, OwnedCode};
use crate::session::{Selected, find_mailbox};
use crate::wire::command::{Numbers, SequenceSet};
use crate::wire::write::{self, Code, Status};

fn target(account: &Account, name: &str) -> Result<MailboxId> {
    let state = account.current();
    let mailbox = find_mailbox(&state, name).filter(|mailbox| mailbox.selectable);
    // RFC 3501 §6.4.7: tells the client that CREATE may help.
    mailbox.map(|mailbox| mailbox.id).ok_or_else(|| CommandError::no("TRYCREATE", "No such mailbox"))
}

fn copied(result: std::result::Result<Copied, AccountError>) -> Result<Copied> {
    match result {
        Err(AccountError::NoMailbox) => Err(CommandError::no("TRYCREATE", "No such mailbox")),
        other => Ok(other?),
    }
}

pub(super) async fn copy(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    mailbox: &str,
    _out: &mut Output<'_>,
) -> Result<Done> {
    let ranges = selected.view.ranges(numbers, set)?;
    let to = target(account, mailbox)?;
    let uids = uids(account, selected, numbers, &ranges).await?;
    if uids.0.is_empty() {
        return Ok(Done::plain("COPY done, no messages"));
    }
    let copied = copied(account.copy(selected.view.id(), &uids, to).await)?;
    let code = (!copied.pairs.is_empty())
        .then(|| OwnedCode::CopyUid { uid_validity: copied.uid_validity.get(), pairs: copied.pairs });
    Ok(Done { code, text: "COPY done" })
}

pub(super) async fn move_to(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    set: &SequenceSet,
    mailbox: &str,
    out: &mut Output<'_>,
) -> Result<Done> {
    if selected.read_only {
        return Err(CommandError::no("CANNOT", "The mailbox is open for reading only"));
    }
    let ranges = selected.view.ranges(numbers, set)?;
    let to = target(account, mailbox)?;
    let uids = uids(account, selected, numbers, &ranges).await?;
    if uids.0.is_empty() {
        return Ok(Done::plain("MOVE done, no messages"));
    }
    let moved = copied(account.move_to(selected.view.id(), &uids, to).await)?;
    if !moved.pairs.is_empty() {
        // RFC 6851 §4.3: before the EXPUNGEs, which the session tells next.
        let code = Code::CopyUid { uid_validity: moved.uid_validity.get(), pairs: &moved.pairs };
        write::untagged(out.buf, Status::Ok, Some(code), "Moved");
    }
    Ok(Done::plain("MOVE done"))
}
