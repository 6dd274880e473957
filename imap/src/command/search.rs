//! SEARCH and UID SEARCH (RFC 3501 §6.4.4): one untagged SEARCH, always: some clients keep only the last.

use posthouse_storage::account::Account;

use super::load;
use crate::error::Result;
use crate::output::Output;
use crate::reply::Done;
use crate::search::{Plan, View as SearchView};
use crate::session::Selected;
use crate::view::Wanted;
use crate::wire::command::{Numbers, SearchKey};
use crate::wire::write;

/// Numbers written between two looks at how much is waiting to be sent.
const NUMBERS_AT_ONCE: usize = 4_096;

pub(super) async fn search(
    account: &Account,
    selected: &Selected,
    numbers: Numbers,
    key: &SearchKey,
    out: &mut Output<'_>,
) -> Result<Done> {
    let view = &selected.view;
    let plan = Plan::new(
        key,
        &SearchView {
            keywords: &view.mailbox().keywords,
            last_sequence: view.messages(),
            last_uid: view.last_uid(),
            recent: view.recent(),
        },
    );
    let all = Wanted::Sequences(vec![(1, u32::MAX)]);
    let mut found = Vec::new();
    let mut from = 1;
    while let Some(page) = view.page(from, &all) {
        from = page.end();
        let may_match = match &page.slot {
            Some(slot) if page.is_plain() => {
                plan.may_match(slot.first()..=slot.last(), page.first..=page.end() - 1, page.counts)
            }
            _ => true,
        };
        if may_match {
            let entries = load(account, selected, &page).await?;
            plan.chunk(&entries, page.first, account, &mut found).await?;
            // Entries in memory may never wait for anything.
            tokio::task::consume_budget().await;
        }
    }
    out.buf.extend_from_slice(b"* SEARCH");
    for some in found.chunks(NUMBERS_AT_ONCE) {
        for (sequence, uid) in some {
            out.buf.push(b' ');
            write::number(
                out.buf,
                match numbers {
                    Numbers::Sequence => u64::from(*sequence),
                    Numbers::Uid => u64::from(uid.get()),
                },
            );
        }
        out.make_room().await?;
    }
    out.buf.extend_from_slice(b"\r\n");
    Ok(Done::plain("SEARCH done"))
}
