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

use posthouse_storage::account::Account;

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::Selected;
use crate::wire::command::CommandBody;
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
    out: &mut Output<'_>,
) -> Result<Done> {
    match body {
        // RFC 3501 §6.4.1: everything is durable already.
        CommandBody::Check => Ok(Done::plain("CHECK done")),
        CommandBody::Expunge { uids } => expunge::expunge(account, selected, uids.as_ref(), out).await,
        CommandBody::Search { numbers, charset, key } => {
            search::search(account, selected, numbers, charset.as_deref(), &key, out).await
        }
        CommandBody::Fetch { numbers, set, items } => fetch::fetch(account, selected, numbers, &set, &items, out).await,
        CommandBody::Store { numbers, set, change, silent, flags } => {
            store::store(account, selected, numbers, &set, change, silent, &flags, out).await
        }
        CommandBody::Copy { numbers, set, mailbox } => {
            copy::copy(account, selected, numbers, &set, &mailbox, out).await
        }
        CommandBody::Move { numbers, set, mailbox } => {
            copy::move_to(account, selected, numbers, &set, &mailbox, out).await
        }
        other => Err(CommandError::Bad(format!("{} cannot be done here", other.verb()))),
    }
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
