//! LIST and LSUB (RFC 3501 §6.3.8, §6.3.9; RFC 3348, 5258 in parts, 6154).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthouse_storage::account::{Account, AccountState, Mailbox, Role};

use super::{DELIMITER, status};
use crate::error::Result;
use crate::output::Output;
use crate::reply::Done;
use crate::wire::command::List;
use crate::wire::write;

/// `%` stands for anything within a level, `*` for anything (§6.3.8). INBOX matches in any case.
fn matches(pattern: &str, name: &str) -> bool {
    if name == "INBOX" && pattern.len() == 5 && pattern.eq_ignore_ascii_case(name) {
        return true;
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // One remembered wildcard of each kind is enough: time is bounded by the product of the lengths.
    let (mut p, mut n) = (0, 0);
    let (mut star, mut percent) = (None::<(usize, usize)>, None::<(usize, usize)>);
    loop {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                percent = None;
                p += 1;
                continue;
            }
            Some(b'%') => {
                percent = Some((p, n));
                p += 1;
                continue;
            }
            Some(octet) if name.get(n) == Some(octet) => {
                p += 1;
                n += 1;
                continue;
            }
            None if n == name.len() => return true,
            _ => {}
        }
        // Let the innermost wildcard take one more octet.
        if let Some((at, taken)) = percent
            && name.get(taken).is_some_and(|octet| *octet != DELIMITER as u8)
        {
            percent = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else if let Some((at, taken)) = star
            && taken < name.len()
        {
            star = Some((at, taken + 1));
            percent = None;
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
}

/// The names in order, INBOX first as people expect.
fn ordered(state: &AccountState) -> Vec<&Arc<Mailbox>> {
    let mut mailboxes: Vec<_> = state.mailboxes.values().collect();
    mailboxes.sort_by(|a, b| (&*a.name != "INBOX", &a.name).cmp(&(&*b.name != "INBOX", &b.name)));
    mailboxes
}

/// Every name that has children.
fn parents(state: &AccountState) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for mailbox in state.mailboxes.values() {
        let mut name = &*mailbox.name;
        while let Some((parent, _)) = name.rsplit_once(DELIMITER) {
            if !out.insert(parent) {
                break;
            }
            name = parent;
        }
    }
    out
}

fn special_use(role: Option<Role>) -> Option<&'static str> {
    match role? {
        Role::Inbox => None,
        Role::Drafts => Some("\\Drafts"),
        Role::Sent => Some("\\Sent"),
        Role::Junk => Some("\\Junk"),
        Role::Trash => Some("\\Trash"),
        Role::Archive => Some("\\Archive"),
    }
}

pub(super) async fn list(account: &Account, list: &List, out: &mut Output<'_>) -> Result<Done> {
    if !list.extended && list.patterns.iter().all(String::is_empty) {
        // §6.3.8: asks for the delimiter and the root of the reference.
        write::list(out.buf, "LIST", &["\\Noselect"], Some(DELIMITER), "", false);
        return Ok(Done::plain("LIST done"));
    }
    let state = account.refresh().await?;
    let patterns: Vec<String> = list.patterns.iter().map(|pattern| format!("{}{pattern}", list.reference)).collect();
    let wanted = |name: &str| patterns.iter().any(|pattern| matches(pattern, name));
    let parents = parents(&state);
    for mailbox in ordered(&state) {
        // Matching a long pattern against many names may take its time.
        tokio::task::consume_budget().await;
        let special = special_use(mailbox.role);
        if list.select.subscribed && !mailbox.subscribed
            || list.select.special_use && special.is_none()
            || !wanted(&mailbox.name)
        {
            continue;
        }
        let mut attributes = vec![if parents.contains(&*mailbox.name) { "\\HasChildren" } else { "\\HasNoChildren" }];
        if !mailbox.selectable {
            attributes.push("\\Noselect");
        }
        if mailbox.subscribed && (list.select.subscribed || list.returns.subscribed) {
            attributes.push("\\Subscribed");
        }
        attributes.extend(special);
        write::list(out.buf, "LIST", &attributes, Some(DELIMITER), &mailbox.name, false);
        if !list.returns.status.is_empty() && mailbox.selectable {
            status::write_line(account, mailbox, &list.returns.status, out).await?;
        }
        out.make_room().await?;
    }
    if list.select.subscribed {
        for name in state.orphan_subscriptions.iter().filter(|name| wanted(name)) {
            write::list(out.buf, "LIST", &["\\Subscribed", "\\NonExistent"], Some(DELIMITER), name, false);
        }
    }
    Ok(Done::plain("LIST done"))
}

pub(super) async fn lsub(account: &Account, reference: &str, pattern: &str, out: &mut Output<'_>) -> Result<Done> {
    let state = account.refresh().await?;
    let pattern = format!("{reference}{pattern}");
    // Name → exists as a subscription itself (else only as a parent of one).
    let mut names: BTreeMap<&str, bool> = BTreeMap::new();
    let subscribed = state.mailboxes.values().filter(|mailbox| mailbox.subscribed).map(|mailbox| &*mailbox.name);
    for name in subscribed.chain(state.orphan_subscriptions.iter().map(|name| &**name)) {
        if matches(&pattern, name) {
            names.insert(name, true);
            continue;
        }
        // §6.3.9: with `%`, a parent that matches stands, marked \Noselect, for children that do not.
        let mut parent = name;
        while let Some((above, _)) = parent.rsplit_once(DELIMITER) {
            if pattern.contains('%') && matches(&pattern, above) {
                names.entry(above).or_insert(false);
            }
            parent = above;
        }
    }
    for (name, itself) in names {
        write::list(out.buf, "LSUB", if itself { &[] } else { &["\\Noselect"] }, Some(DELIMITER), name, false);
        out.make_room().await?;
    }
    Ok(Done::plain("LSUB done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        for (pattern, name, expected) in [
            ("*", "a/b/c", true),
            ("%", "a", true),
            ("%", "a/b", false),
            ("%/%", "a/b", true),
            ("%/%", "a/b/c", false),
            ("a*c", "a/b/c", true),
            ("a%c", "a/b/c", false),
            ("a/%", "a/", true),
            ("*%", "a/b", true),
            ("%*", "a/b", true),
            ("%b", "aab", true),
            ("*x%/y", "axa/xb/y", true),
            ("inbox", "INBOX", true),
            ("InBox/x", "INBOX/x", false),
            ("", "a", false),
            ("a", "b", false),
            ("*%*%*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        // Time is bounded whatever the pattern.
        assert!(!matches(&"*a".repeat(500), &"a".repeat(400)));
        assert!(!matches(&"%a".repeat(500), &"a".repeat(400)));
    }
}
