//! EXPUNGE (RFC 3501 §6.4.3) and UID EXPUNGE (RFC 4315 §2.1). What went is told by the session, as any change is.

use posthouse_storage::account::Account;

use super::writable;
use crate::error::Result;
use crate::reply::Done;
use crate::session::Selected;
use crate::wire::command::SequenceSet;

pub(super) async fn expunge(account: &Account, selected: &Selected, only: Option<&SequenceSet>) -> Result<Done> {
    writable(selected)?;
    let only = only.map(|set| set.resolve_uids(selected.view.last_uid()));
    account.expunge(selected.view.id(), only.as_ref()).await?;
    Ok(Done::plain("EXPUNGE done"))
}
