//! COPY and MOVE and their UID forms (RFC 3501 §6.4.7, RFC 4315, RFC 6851).

use posthouse_storage::account::{Account, AccountError, Copied, MailboxId};

use super::{no_messages, uids, wanted, writable};
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::{Done, OwnedCode};
use crate::session::{Selected, find_mailbox};
use crate::wire::command::{Numbers, SequenceSet};
use crate::wire::write::{self, Code, Status};

pub(super) async fn copy(
    account: &Account,
    selected: &Selected,
    numbers: Numbers,
    set: &SequenceSet,
    mailbox: &str,
) -> Result<Done> {
    let wanted = wanted(selected, numbers, set)?;
    let to = target(account, mailbox)?;
    let Some(wanted) = wanted else { return Ok(no_messages()) };
    let uids = uids(account, selected, &wanted).await?;
    if uids.is_empty() {
        return Ok(no_messages());
    }
    let Copied { uid_validity, pairs, .. } = done(account.copy(selected.view.id(), &uids, to).await, account, to)?;
    if pairs.is_empty() {
        return Ok(no_messages());
    }
    let code = Some(OwnedCode::CopyUid { uid_validity: uid_validity.get(), pairs });
    Ok(Done { code, text: "COPY done" })
}

pub(super) async fn move_to(
    account: &Account,
    selected: &Selected,
    numbers: Numbers,
    set: &SequenceSet,
    mailbox: &str,
    out: &mut Output<'_>,
) -> Result<Done> {
    writable(selected)?;
    let wanted = wanted(selected, numbers, set)?;
    let to = target(account, mailbox)?;
    let Some(wanted) = wanted else { return Ok(no_messages()) };
    let uids = uids(account, selected, &wanted).await?;
    if uids.is_empty() {
        return Ok(no_messages());
    }
    let moved = done(account.move_to(selected.view.id(), &uids, to).await, account, to)?;
    if moved.pairs.is_empty() {
        return Ok(no_messages());
    }
    // RFC 6851 §4.3: before the EXPUNGEs, which the session tells next.
    let code = Code::CopyUid { uid_validity: moved.uid_validity.get(), pairs: &moved.pairs };
    write::untagged(out.buf, Status::Ok, Some(code), "Moved");
    Ok(Done::plain("MOVE done"))
}

fn target(account: &Account, name: &str) -> Result<MailboxId> {
    let state = account.current();
    let mailbox = find_mailbox(&state, name).filter(|mailbox| mailbox.selectable);
    mailbox.map(|mailbox| mailbox.id).ok_or_else(CommandError::try_create)
}

fn done(result: std::result::Result<Copied, AccountError>, account: &Account, to: MailboxId) -> Result<Copied> {
    match result {
        // One of the two was deleted just now.
        Err(AccountError::NoMailbox) if !account.current().mailboxes.contains_key(&to) => {
            Err(CommandError::try_create())
        }
        result => Ok(result?),
    }
}
