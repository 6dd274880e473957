//! SELECT, EXAMINE, CLOSE, UNSELECT (RFC 3501 §6.3.1, §6.3.2, §6.4.2; RFC 3691).

use std::sync::Arc;

use posthouse_storage::account::{Account, Flags, Mailbox};

use crate::error::{CommandError, Result};
use crate::output::Output;
use crate::reply::{Done, OwnedCode};
use crate::session::{Selected, State, find_mailbox};
use crate::tell;
use crate::view::View;
use crate::wire::write::{self, Code, Status};

/// Leaves what is selected (even if the new mailbox cannot be, §6.3.1), then selects.
pub(crate) async fn select(state: &mut State, name: &str, read_only: bool, out: &mut Output<'_>) -> Result<Done> {
    let login = match std::mem::replace(state, State::NotAuthenticated) {
        State::NotAuthenticated => return Err(CommandError::Bad("Log in first".to_owned())),
        State::Authenticated(login) | State::Selected(login, _) => login,
    };
    let selected = open(&login.account, name, read_only, out).await;
    match selected {
        Ok(selected) => {
            *state = State::Selected(login, Box::new(selected));
            let code = if read_only { "READ-ONLY" } else { "READ-WRITE" };
            Ok(Done { code: Some(OwnedCode::Word(code)), text: "Selected" })
        }
        Err(error) => {
            *state = State::Authenticated(login);
            Err(error)
        }
    }
}

async fn open(account: &Account, name: &str, read_only: bool, out: &mut Output<'_>) -> Result<Selected> {
    let newest = account.refresh().await?;
    let mailbox = find_mailbox(&newest, name).filter(|mailbox| mailbox.selectable);
    let mailbox = Arc::clone(mailbox.ok_or_else(|| CommandError::no("NONEXISTENT", "No such mailbox"))?);
    // EXAMINE leaves \Recent to whoever selects (§6.3.2).
    let recent_from = if read_only { mailbox.recent_from } else { account.claim_recent(mailbox.id) };
    let recent = tell::count_from(account, &mailbox, recent_from).await?;
    let view = View::new(Arc::clone(&mailbox), recent_from, recent);
    write::exists(out.buf, mailbox.counts.messages);
    write::recent(out.buf, recent);
    tell::flags(out.buf, &mailbox.keywords, read_only);
    if let Some(sequence) = first_unseen(account, &mailbox).await? {
        write::untagged(out.buf, Status::Ok, Some(Code::Unseen(sequence)), "First unseen");
    }
    write::untagged(out.buf, Status::Ok, Some(Code::UidValidity(mailbox.uid_validity.get())), "Uids are valid");
    write::untagged(out.buf, Status::Ok, Some(Code::UidNext(mailbox.uid_next.0.get())), "Next uid");
    Ok(Selected { view, read_only })
}

/// Sequence number of the first message without \Seen: found by the slots' counts, then in one chunk.
async fn first_unseen(account: &Account, mailbox: &Mailbox) -> Result<Option<u32>> {
    let mut before = 0;
    for slot in mailbox.slots.iter() {
        if slot.counts().unseen > 0 {
            let chunk = account.chunk(slot).await?;
            let at = chunk.entries.iter().position(|entry| !entry.flags.contains(Flags::SEEN));
            return Ok(at.map(|at| before + at as u32 + 1));
        }
        before += slot.counts().messages;
    }
    Ok(None)
}

/// Back to no mailbox; with `expunge`, what is marked \Deleted goes without being told (§6.4.2).
pub(crate) async fn close(state: &mut State, expunge: bool) -> Result<Done> {
    match std::mem::replace(state, State::NotAuthenticated) {
        State::Selected(login, selected) => {
            let id = selected.view.id();
            let expunged =
                if expunge && !selected.read_only { login.account.expunge(id, None).await.map(drop) } else { Ok(()) };
            *state = State::Authenticated(login);
            expunged?;
            Ok(Done::plain(if expunge { "CLOSE done" } else { "UNSELECT done" }))
        }
        State::Authenticated(login) => {
            *state = State::Authenticated(login);
            Err(CommandError::Bad("No mailbox is selected".to_owned()))
        }
        State::NotAuthenticated => Err(CommandError::Bad("Log in first".to_owned())),
    }
}
