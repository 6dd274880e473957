//! CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE (RFC 3501 §6.3.3 to §6.3.7).

use posthouse_storage::account::{Account, AccountError};

use super::DELIMITER;
use crate::error::{CommandError, Result};
use crate::reply::Done;

/// The inbox in any case is INBOX; a trailing delimiter only announces children (§6.3.3).
fn name(mailbox: &str) -> &str {
    let name = mailbox.strip_suffix(DELIMITER).unwrap_or(mailbox);
    if name.eq_ignore_ascii_case("INBOX") { "INBOX" } else { name }
}

pub(super) async fn create(account: &Account, mailbox: &str) -> Result<Done> {
    account.create(name(mailbox), None).await?;
    Ok(Done::plain("CREATE done"))
}

pub(super) async fn delete(account: &Account, mailbox: &str) -> Result<Done> {
    account.delete(name(mailbox)).await?;
    Ok(Done::plain("DELETE done"))
}

pub(super) async fn rename(account: &Account, from: &str, to: &str) -> Result<Done> {
    account.rename(name(from), name(to)).await?;
    Ok(Done::plain("RENAME done"))
}

pub(super) async fn subscribe(account: &Account, mailbox: &str, on: bool) -> Result<Done> {
    match account.subscribe(name(mailbox), on).await {
        // §6.3.7: whoever is not subscribed has what they want.
        Err(AccountError::NoMailbox) if !on => {}
        done => done.map_err(CommandError::from)?,
    }
    Ok(Done::plain(if on { "SUBSCRIBE done" } else { "UNSUBSCRIBE done" }))
}
