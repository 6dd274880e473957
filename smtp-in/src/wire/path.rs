//! Reverse and forward paths (RFC 5321 §4.1.2, widened to UTF-8 by RFC 6531 §3.3).
//!
//! A quoted local part stays quoted: what it quotes may look like another address or a parameter. Source routes are
//! read and dropped (RFC 5321 §3.3, appendix C).

use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets of a local part (RFC 5321 §4.5.3.1.1).
pub const LOCAL_MAX: usize = 64;
/// Octets of a domain (§4.5.3.1.2).
pub const DOMAIN_MAX: usize = 255;
/// Octets of a path with its punctuation (§4.5.3.1.3).
pub const PATH_MAX: usize = 256;

/// An address as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mailbox<'a> {
    /// Local part and domain with their `@`, or the local part alone.
    pub text: &'a str,
    /// Where the `@` stands; none in `<postmaster>`.
    pub at: Option<usize>,
}

impl<'a> Mailbox<'a> {
    /// The local part; quotes are kept.
    pub fn local(&self) -> &'a str {
        &self.text[..self.at.unwrap_or(self.text.len())]
    }

    /// The domain or address literal; empty in `<postmaster>`.
    pub fn domain(&self) -> &'a str {
        self.at.map_or("", |at| &self.text[at + 1..])
    }
}

/// Reads `<…>`; `None` for `<>`. Also returns what follows it. `None` for everything that is no path.
pub fn path(input: &[u8]) -> Option<(Option<Mailbox<'_>>, &[u8])> {
    let inner = input.strip_prefix(b"<")?;
    if let Some(rest) = inner.strip_prefix(b">") {
        return Some((None, rest));
    }
    let inner = source_route(inner)?;
    let local = local_part(inner)?;
    let (length, at) = match inner.get(local)? {
        b'@' => (local + 1 + domain(&inner[local + 1..])?, Some(local)),
        _ => (local, None),
    };
    let rest = inner[length..].strip_prefix(b">")?;
    if length + 2 > PATH_MAX {
        return None;
    }
    let text = std::str::from_utf8(&inner[..length]).ok()?;
    // C1 controls, which the octets did not show.
    if text.chars().any(char::is_control) {
        return None;
    }
    Some((Some(Mailbox { text, at }), rest))
}

/// Drops `@a,@b:`.
fn source_route(mut input: &[u8]) -> Option<&[u8]> {
    if input.first() != Some(&b'@') {
        return Some(input);
    }
    loop {
        input = input.strip_prefix(b"@")?;
        input = &input[domain(input)?..];
        match input.first()? {
            b',' => input = &input[1..],
            b':' => return Some(&input[1..]),
            _ => return None,
        }
    }
}

/// Length of the local part at the start of `input`.
fn local_part(input: &[u8]) -> Option<usize> {
    let length = match input.first()? {
        b'"' => quoted(input)?,
        _ => dot_string(input)?,
    };
    (length <= LOCAL_MAX).then_some(length)
}

fn quoted(input: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match input.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' if matches!(input.get(at + 1), Some(b' '..=b'~')) => at += 2,
            b'\\' | 0..b' ' | 0x7f => return None,
            _ => at += 1,
        }
    }
}

fn dot_string(input: &[u8]) -> Option<usize> {
    let length = input.iter().position(|&octet| !(is_atext(octet) || octet == b'.')).unwrap_or(input.len());
    let atoms = &input[..length];
    atoms.split(|&octet| octet == b'.').all(|atom| !atom.is_empty()).then_some(length)
}

fn is_atext(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || octet >= 0x80 || b"!#$%&'*+-/=?^_`{|}~".contains(&octet)
}

/// Length of the domain or address literal at the start of `input`.
fn domain(input: &[u8]) -> Option<usize> {
    let length = if input.first() == Some(&b'[') {
        let length = input.iter().position(|&octet| octet == b']')? + 1;
        literal(&input[1..length - 1]).then_some(length)?
    } else {
        let part = |octet: u8| octet.is_ascii_alphanumeric() || octet >= 0x80 || b"-_.".contains(&octet);
        let length = input.iter().position(|&octet| !part(octet)).unwrap_or(input.len());
        // RFC 5321 has neither underscores nor a final dot; both are met in names that exist.
        let name = input[..length].strip_suffix(b".").unwrap_or(&input[..length]);
        name.split(|&octet| octet == b'.').all(|label| !label.is_empty() && label.len() <= 63 * 4).then_some(length)?
    };
    (length <= DOMAIN_MAX).then_some(length)
}

/// §4.1.3: `192.0.2.1` or `IPv6:2001:db8::1`.
fn literal(inner: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(inner) else { return false };
    match text.split_at_checked(5) {
        Some((tag, address)) if tag.eq_ignore_ascii_case("IPv6:") => address.parse::<Ipv6Addr>().is_ok(),
        _ => text.parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths() {
        let long = |n| "x".repeat(n);
        let good: &[(&str, &str, &str, &str)] = &[
            ("<a@b.c>", "a", "b.c", ""),
            ("<a@b.c> SIZE=1", "a", "b.c", " SIZE=1"),
            ("<@x.y,@z:a@b.c>", "a", "b.c", ""),
            ("<@x.y:a@b>", "a", "b", ""),
            ("<postmaster>", "postmaster", "", ""),
            ("<\"a b\"@c>", "\"a b\"", "c", ""),
            ("<\"a> SIZE=1\"@x.org>", "\"a> SIZE=1\"", "x.org", ""),
            ("<\"a@b\"@x.org>", "\"a@b\"", "x.org", ""),
            ("<\"a\\\"b\\\\\"@x>", "\"a\\\"b\\\\\"", "x", ""),
            ("<a@[127.0.0.1]>", "a", "[127.0.0.1]", ""),
            ("<a@[IPv6:::1]>", "a", "[IPv6:::1]", ""),
            ("<a+tag@b-c.d_e>", "a+tag", "b-c.d_e", ""),
            ("<a@b.c.>", "a", "b.c.", ""),
            ("<u%other@b>", "u%other", "b", ""),
            ("<\u{fc}@b\u{fc}cher.example>", "\u{fc}", "b\u{fc}cher.example", ""),
        ];
        for (input, local, domain, rest) in good {
            let (mailbox, left) = path(input.as_bytes()).unwrap_or_else(|| panic!("{input:?}"));
            let mailbox = mailbox.unwrap_or_else(|| panic!("{input:?}"));
            assert_eq!((mailbox.local(), mailbox.domain(), left), (*local, *domain, rest.as_bytes()), "{input:?}");
        }
        assert_eq!(path(b"<> X"), Some((None, &b" X"[..])));
        assert!(path(format!("<{}@{}.de>", long(64), long(180)).as_bytes()).is_some());
        let bad = [
            "",
            "<",
            "a@b",
            "<a@b",
            "<a@>",
            "<@b>",
            "<a b@c>",
            "<a@b c>",
            "<.a@b>",
            "<a.@b>",
            "<a..b@c>",
            "<a@b..c>",
            "<a@.b>",
            "<a@b@c>",
            "<a@b><c@d>",
            "<\"a@b>",
            "<\"a\"b@c>",
            "<a\"b\"@c>",
            "<a@[1.2.3]>",
            "<a@[IPv6:z]>",
            "<a@[1.2.3.4>",
            "<a@[]>",
            "<<a@b>>",
            "<a@b,c@d>",
            "<@x,a@b>",
            "<a\u{85}@b>",
            "<\"\x01\"@b>",
            "< a@b>",
            "<a@b >",
            "<\"\"@b\x7f>",
        ];
        for input in bad {
            let parsed = path(input.as_bytes());
            assert!(
                parsed.is_none_or(|(_, rest)| rest.starts_with(b"<") || rest.starts_with(b">")),
                "{input:?}: {parsed:?}"
            );
        }
        assert_eq!(path(format!("<{}@b>", long(65)).as_bytes()), None);
        assert_eq!(path(format!("<{}@{}>", long(64), long(192)).as_bytes()), None);
        assert_eq!(path(b"<\xff@b>"), None);
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_whole(input in prop::collection::vec(any::<u8>(), 0..40), text in "<[a\"@.\\\\>\\[\\]:,]{0,12}>?") {
            for input in [input.as_slice(), text.as_bytes()] {
                if let Some((mailbox, rest)) = path(input) {
                    prop_assert!(input.ends_with(rest));
                    if let Some(mailbox) = mailbox {
                        prop_assert!(!mailbox.text.chars().any(char::is_control));
                        let printed = format!("<{}>", mailbox.text);
                        prop_assert_eq!(path(printed.as_bytes()), Some((Some(mailbox), &b""[..])));
                    }
                }
            }
        }
    }
}
