//! EXPUNGE (RFC 3501 §6.4.3) and UID EXPUNGE (RFC 4315 §2.1). What went is told by the session, as any change is.

use posthouse_storage::account::Account;

use super::store::uids;
use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::wire::command::{Numbers, SequenceSet};

pub(super) async fn expunge(
    account: &Account,
    selected: &mut Selected,
    only: Option<&SequenceSet>,
    _out: &mut Output<'_>,
) -> Result<Done> {
    if selected.read_only {
        return Err(CommandError::no("CANNOT", "The mailbox is open for reading only"));
    }
    let only = match only {
        Some(set) => {
            let ranges = selected.view.ranges(Numbers::Uid, set)?;
            Some(uids(account, selected, Numbers::Uid, &ranges).await?)
        }
        None => None,
    };
    account.expunge(selected.view.id(), only.as_ref()).await?;
    Ok(Done::plain("EXPUNGE done"))
}
