//! SEARCH and UID SEARCH (RFC 3501 §6.4.4): one untagged SEARCH, always.

use posthouse_storage::account::{Account, Uid, UidSet};

use crate::error::Result;
use crate::output::Output;
use crate::reply::Done;
use crate::search::{Plan, View as SearchView};
use crate::session::Selected;
use crate::wire::command::{Numbers, SearchKey};
use crate::wire::write;

pub(super) async fn search(
    account: &Account,
    selected: &mut Selected,
    numbers: Numbers,
    _charset: Option<&str>,
    key: &SearchKey,
    out: &mut Output<'_>,
) -> Result<Done> {
    let view = &selected.view;
    let uid = |n| std::num::NonZeroU32::new(n).map(Uid);
    let recent = UidSet(view.recent().iter().filter_map(|&(low, high)| Some((uid(low)?, uid(high)?))).collect());
    let plan = Plan::new(
        key,
        &SearchView {
            keywords: &view.mailbox().keywords,
            last_sequence: view.exists(),
            last_uid: view.last_uid(),
            recent: &recent,
        },
    );
    let mut found = Vec::new();
    for (first, slot) in view.slots(Numbers::Sequence, &[(1, u32::MAX)]) {
        let counts = slot.counts();
        if plan.may_match(slot.first()..=slot.last(), first..=first + counts.messages - 1, counts) {
            let chunk = account.chunk(slot).await?;
            plan.chunk(&chunk.entries, first, account, &mut found).await?;
        }
    }
    let number = |&(sequence, uid): &(u32, Uid)| match numbers {
        Numbers::Sequence => sequence,
        Numbers::Uid => uid.0.get(),
    };
    write::search(out.buf, found.iter().map(number));
    Ok(Done::plain("SEARCH done"))
}
