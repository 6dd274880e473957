//! STATUS (RFC 3501 §6.3.10, RFC 8438): from counts alone.

use posthouse_storage::account::{Account, Mailbox};

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::Done;
use crate::session::find_mailbox;
use crate::tell;
use crate::wire::command::StatusItem;
use crate::wire::write;

pub(super) async fn status(account: &Account, name: &str, items: &[StatusItem], out: &mut Output<'_>) -> Result<Done> {
    let newest = account.refresh().await?;
    let mailbox = find_mailbox(&newest, name).filter(|mailbox| mailbox.selectable);
    let mailbox = mailbox.ok_or_else(|| CommandError::no("NONEXISTENT", "No such mailbox"))?;
    write_line(account, mailbox, items, out).await?;
    Ok(Done::plain("STATUS done"))
}

/// The untagged line.
pub(super) async fn write_line(
    account: &Account,
    mailbox: &Mailbox,
    items: &[StatusItem],
    out: &mut Output<'_>,
) -> Result<()> {
    let mut values = Vec::with_capacity(items.len());
    for &item in items {
        let value = match item {
            StatusItem::Messages => u64::from(mailbox.counts.messages),
            StatusItem::Recent => u64::from(tell::count_from(account, mailbox, mailbox.recent_from).await?),
            StatusItem::UidNext => u64::from(mailbox.uid_next.0.get()),
            StatusItem::UidValidity => u64::from(mailbox.uid_validity.get()),
            StatusItem::Unseen => u64::from(mailbox.counts.unseen),
            StatusItem::Deleted => u64::from(mailbox.counts.deleted),
            StatusItem::Size => mailbox.counts.bytes,
        };
        values.push((item, value));
    }
    write::status(out.buf, &mailbox.name, &values, false);
    Ok(())
}
