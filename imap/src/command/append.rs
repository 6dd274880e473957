//! APPEND (RFC 3501 §6.3.11, RFC 4315): the message streams into a spool; nothing is there until it is whole.

use std::sync::Arc;

use posthouse_storage::account::{Account, AccountError, AppendItem};
use posthouse_storage::message::{MessageWriter, SpoolConfig};

use crate::error::{CommandError, Result};
use crate::reply::{Done, OwnedCode};
use crate::session::find_mailbox;
use crate::wire::command::Append;

/// A message on its way in.
pub(crate) struct Appending {
    pub(crate) tag: String,
    append: Append,
    pub(crate) writer: MessageWriter,
}

impl Appending {
    /// Checks what can be checked before the message is sent: then it need not be.
    pub(crate) fn begin(tag: String, append: Append, account: &Account, spool: &SpoolConfig) -> Result<Self> {
        let state = account.current();
        if find_mailbox(&state, &append.mailbox).is_none_or(|mailbox| !mailbox.selectable) {
            return Err(CommandError::try_create());
        }
        let (used, quota) = (state.used.bytes, state.quota_bytes);
        if quota > 0 && used + append.literal.size > quota {
            return Err(AccountError::OverQuota { used, quota }.into());
        }
        Ok(Self { tag, append, writer: MessageWriter::new(spool) })
    }

    /// The message is whole.
    pub(crate) async fn finish(self: Box<Self>, account: &Account) -> Result<Done> {
        let Self { append, writer, .. } = *self;
        let message = writer.finish().await.map_err(|error| {
            tracing::error!(%error, "a message could not be taken to disk");
            CommandError::no("UNAVAILABLE", "The message cannot be stored now; try again later")
        })?;
        if message.size() == 0 {
            return Err(CommandError::no("CANNOT", "An empty message cannot be stored"));
        }
        let mailbox = find_mailbox(&account.current(), &append.mailbox)
            .map(|mailbox| mailbox.id)
            .ok_or_else(CommandError::try_create)?;
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_millis() as i64);
        let item = AppendItem {
            message: Arc::new(message),
            flags: append.flags,
            received_at_ms: append.received_at_ms.unwrap_or(now),
            email: None,
        };
        let appended = match account.append(mailbox, &[item]).await {
            Err(AccountError::NoMailbox) => return Err(CommandError::try_create()),
            appended => appended?,
        };
        let code = appended.first().map(|appended| OwnedCode::AppendUid {
            uid_validity: appended.uid_validity.get(),
            uid: appended.uid.0.get(),
        });
        Ok(Done { code, text: "APPEND done" })
    }
}
