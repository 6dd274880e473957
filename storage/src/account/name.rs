//! Mailbox names and keywords: what is allowed, and which spellings are the same.

use super::AccountError;

/// Longest mailbox name, bytes of UTF-8.
pub(super) const NAME_BYTES_MAX: usize = 1_000;
/// Deepest nesting.
pub(super) const DEPTH_MAX: usize = 32;
/// Mailboxes (and separately: subscriptions without mailbox) of one account.
pub(super) const MAILBOXES_MAX: usize = 20_000;

/// The spelling that a name is kept under, or why it cannot be one.
///
/// RFC 3501 §5.1: INBOX in any case is the inbox; the same for the level above the inbox's children, so that
/// `inbox/x` and `INBOX/x` are one.
pub(super) fn canonical(name: &str) -> Result<String, AccountError> {
    let bad = |why| Err(AccountError::BadName(why));
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() > NAME_BYTES_MAX {
        return bad("it is longer than 1,000 bytes");
    }
    // Besides the C0 and C1 controls the line and paragraph separators, which end lines somewhere (RFC 9051 §5.1).
    if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return bad("it has a control character");
    }
    let mut depth = 0;
    for level in name.split('/') {
        depth += 1;
        if level.is_empty() {
            return bad("a level of it is empty");
        }
    }
    if depth > DEPTH_MAX {
        return bad("it is nested deeper than 32 levels");
    }
    let (first, rest) = name.split_at(name.find('/').unwrap_or(name.len()));
    Ok(if first.eq_ignore_ascii_case("INBOX") { format!("INBOX{rest}") } else { name.to_owned() })
}

/// The names above it, from the top.
pub(super) fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

/// Longest keyword, bytes.
const KEYWORD_BYTES_MAX: usize = 100;

/// True if IMAP could write the keyword: an atom (RFC 3501 §9 `flag-keyword`). The wire layer has checked it before;
/// other callers may not have.
pub(super) fn is_keyword(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= KEYWORD_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_graphic() && !b"(){%*\"\\]".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_the_inbox_has_one_spelling() {
        for (name, kept) in [
            ("inbox", Some("INBOX")),
            ("InBox/x", Some("INBOX/x")),
            ("inboxes", Some("inboxes")),
            ("a/inbox", Some("a/inbox")),
            ("Grüße/日本 x&", Some("Grüße/日本 x&")),
            ("", None),
            ("/a", None),
            ("a/", None),
            ("a//b", None),
            ("a\nb", None),
            ("a\u{85}b", None),
            ("a\u{2028}b", None),
        ] {
            assert_eq!(canonical(name).ok().as_deref(), kept, "{name:?}");
        }
        assert!(canonical(&"x".repeat(1_000)).is_ok());
        assert!(canonical(&"x".repeat(1_001)).is_err());
        assert!(canonical(&["x"; 32].join("/")).is_ok());
        assert!(canonical(&["x"; 33].join("/")).is_err());
    }

    #[test]
    fn parents_come_from_the_top() {
        assert_eq!(parents("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(parents("a").count(), 0);
    }

    #[test]
    fn keywords_are_atoms() {
        for good in ["$Forwarded", "NonJunk", "a.b", "x[1"] {
            assert!(is_keyword(good), "{good}");
        }
        for bad in ["", "a b", "\\Seen", "a(", "ü", "a]", &"x".repeat(101)] {
            assert!(!is_keyword(bad), "{bad}");
        }
    }
}
