//! Addresses: their check, and the form they are compared in.
//!
//! RFC 5321 §4.1.2 with RFC 6531's wider octets; §4.5.3.1 for lengths. Quoted local parts are compared by what they
//! quote. Domains become lower-case A-labels (RFC 5890, by RFC 3492; without the mapping of RFC 5895 but lower case).

use super::{DirectoryError, Result};

/// A checked address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// As it is compared: unquoted, lower case.
    pub(super) key: String,
    /// As it was written.
    pub(super) local: String,
    /// Lower-case A-labels.
    pub(super) domain: String,
}

/// Octets in a local part.
const LOCAL_MAX: usize = 64;

impl Address {
    /// Reads `local@domain`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why| DirectoryError::BadAddress { address: text.chars().take(320).collect(), why };
        let (local, domain) = text.rsplit_once('@').ok_or_else(|| bad("it has no @"))?;
        let key = local_key(local).map_err(bad)?;
        let domain = domain_key(domain).map_err(bad)?;
        Ok(Self { key, local: local.to_owned(), domain })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.local, self.domain)
    }
}

/// The form a local part is compared in.
pub(super) fn local_key(local: &str) -> Result<String, &'static str> {
    if local.is_empty() {
        return Err("nothing stands before the @");
    }
    if local.len() > LOCAL_MAX {
        return Err("more than 64 octets stand before the @");
    }
    if let Some(quoted) = local.strip_prefix('"') {
        let quoted = quoted.strip_suffix('"').ok_or("a quote is not closed")?;
        let mut key = String::with_capacity(quoted.len());
        let mut octets = quoted.chars();
        while let Some(octet) = octets.next() {
            let octet = match octet {
                '\\' => octets.next().ok_or("a quote is not closed")?,
                '"' => return Err("a quote ends in the middle"),
                other => other,
            };
            if octet.is_control() {
                return Err("control characters are not allowed");
            }
            key.push(octet);
        }
        return if key.is_empty() { Err("nothing stands before the @") } else { Ok(key.to_lowercase()) };
    }
    if local.starts_with('.') || local.ends_with('.') || local.contains("..") {
        return Err("a dot must stand between other characters");
    }
    if local.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("spaces and control characters are not allowed");
    }
    if local.contains(['(', ')', '<', '>', '[', ']', ':', ';', '@', '\\', ',', '"']) {
        return Err("one of ()<>[]:;@\\,\" stands before the @");
    }
    Ok(local.to_lowercase())
}

/// A domain as lower-case A-labels, without a final dot.
pub(super) fn domain_key(domain: &str) -> Result<String, &'static str> {
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    if domain.is_empty() {
        return Err("there is no domain");
    }
    if domain.len() > 1_024 {
        return Err("the domain is longer than 253 octets");
    }
    let mut key = String::with_capacity(domain.len());
    // RFC 3490 §3.1: these, too, separate labels.
    for label in domain.split(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']) {
        if !key.is_empty() {
            key.push('.');
        }
        let label = label.to_lowercase();
        let from = key.len();
        if label.is_ascii() {
            key.push_str(&label);
        } else {
            if label.chars().any(|c| !(c.is_alphanumeric() || c == '-' || is_mark(c))) {
                return Err("a label of the domain holds a character that no host name has");
            }
            key.push_str("xn--");
            punycode(&label, &mut key).ok_or("a label of the domain is too long")?;
        }
        let label = &key[from..];
        if label.is_empty() {
            return Err("a label of the domain is empty");
        }
        if label.len() > 63 {
            return Err("a label of the domain is longer than 63 octets");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a label of the domain begins or ends with a hyphen");
        }
        if !label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
            return Err("the domain holds a character that no host name has");
        }
    }
    if key.len() > 253 {
        return Err("the domain is longer than 253 octets");
    }
    if key.rsplit('.').next().is_some_and(|last| last.bytes().all(|c| c.is_ascii_digit())) {
        return Err("an IP address is not a domain");
    }
    Ok(key)
}

/// Combining marks that letters of U-labels need.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{900}'..='\u{d7f}' | '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17ff}' | '\u{b7}' | '\u{30fb}' | '\u{30fc}' | '\u{200c}' | '\u{200d}' | '\u{591}'..='\u{5c7}'
        | '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{670}')
}

/// RFC 3492 §6.3. `None` when it would overflow or grow beyond a label.
fn punycode(label: &str, out: &mut String) -> Option<()> {
    const BASE: u32 = 36;
    let digit = |value: u32| char::from(if value < 26 { b'a' + value as u8 } else { b'0' + (value - 26) as u8 });
    let basic: String = label.chars().filter(char::is_ascii).collect();
    out.push_str(&basic);
    if !basic.is_empty() {
        out.push('-');
    }
    let total = u32::try_from(label.chars().count()).ok().filter(|total| *total <= 63)?;
    let (mut n, mut delta, mut bias) = (128_u32, 0_u32, 72_u32);
    let mut handled = basic.len() as u32;
    let mut first = true;
    while handled < total {
        let next = label.chars().map(u32::from).filter(|c| *c >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for c in label.chars().map(u32::from) {
            if c < n {
                delta = delta.checked_add(1)?;
            }
            if c == n {
                let mut q = delta;
                let mut k = BASE;
                loop {
                    let t = k.saturating_sub(bias).clamp(1, 26);
                    if q < t {
                        break;
                    }
                    out.push(digit(t + (q - t) % (BASE - t)));
                    q = (q - t) / (BASE - t);
                    k += BASE;
                }
                out.push(digit(q));
                // §6.1: adapt the bias.
                let mut d = if first { delta / 700 } else { delta / 2 };
                d += d / (handled + 1);
                let mut k = 0;
                while d > 455 {
                    d /= 35;
                    k += BASE;
                }
                bias = k + 36 * d / (d + 38);
                delta = 0;
                handled += 1;
                first = false;
            }
        }
        delta += 1;
        n += 1;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_labels() {
        // RFC 3492 §7.1 and names in use.
        let cases = [
            ("bücher.example", "xn--bcher-kva.example"),
            ("MÜNCHEN.de", "xn--mnchen-3ya.de"),
            ("他们为什么不说中文.test", "xn--ihqwcrb4cv8a8dqg056pqjye.test"),
            ("почемужеонинеговорятпорусски.test", "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l.test"),
            ("ليهمابتكلموشعربي؟.test", ""),
            ("なぜみんな日本語を話してくれないのか.test", "xn--n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa.test"),
            ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
            ("faß.de", "xn--fa-hia.de"),
            ("xn--bcher-kva.EXAMPLE.", "xn--bcher-kva.example"),
        ];
        for (domain, key) in cases {
            assert_eq!(domain_key(domain).unwrap_or_default(), key, "{domain}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_no_panic_and_the_compared_form_is_stable(text in "\\PC{0,80}", octets in ".{0,300}") {
            for text in [text, octets] {
                if let Ok(key) = domain_key(&text) {
                    prop_assert!(key.len() <= 253 && key.is_ascii());
                    prop_assert_eq!(domain_key(&key), Ok(key));
                }
                if let Ok(address) = Address::parse(&text) {
                    prop_assert_eq!(Address::parse(&address.to_string()).unwrap(), address);
                }
            }
        }

        #[test]
        fn letters_of_any_case_are_the_same_name(local in "[a-zA-Z0-9.+-]{1,20}", domain in "[a-z]{1,9}\\.[a-zA-Z]{2,9}") {
            let lower = Address::parse(&format!("{local}@{domain}").to_lowercase());
            let upper = Address::parse(&format!("{local}@{domain}").to_uppercase());
            prop_assert_eq!(lower.map(|a| (a.key, a.domain)).ok(), upper.map(|a| (a.key, a.domain)).ok());
        }
    }
}
