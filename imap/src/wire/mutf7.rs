//! Modified UTF-7 of mailbox names (RFC 3501 §5.1.3): printable ASCII stands for itself, `&` is `&-`, everything else
//! is UTF-16 in base64 (with `,` for `/`, without padding) between `&` and `-`.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,";

/// Decodes a name. `None` if it is not valid: octets beyond printable ASCII, a shift that is not closed, base64 with
/// bits to spare, half a surrogate pair, or ASCII in base64 (a second spelling of a name that has one already).
pub fn decode(name: &[u8]) -> Option<String> {
    let mut decoded = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        match octet {
            b'&' => {
                let end = memchr::memchr(b'-', rest)?;
                if end == 0 {
                    decoded.push('&');
                } else {
                    shifted(&rest[..end], &mut decoded)?;
                }
                rest = &rest[end + 1..];
            }
            0x20..=0x7e => decoded.push(char::from(octet)),
            _ => return None,
        }
    }
    Some(decoded)
}

fn shifted(base64: &[u8], decoded: &mut String) -> Option<()> {
    let mut bits = 0u32;
    let mut held = 0;
    let mut high = None;
    for &digit in base64 {
        bits = bits << 6 | value(digit)?;
        held += 6;
        if held < 16 {
            continue;
        }
        held -= 16;
        let unit = (bits >> held) & 0xffff;
        bits &= (1 << held) - 1;
        let code = match (high.take(), unit) {
            (None, 0xd800..=0xdbff) => {
                high = Some(unit);
                continue;
            }
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (None, _) => unit,
            (Some(_), _) => return None,
        };
        if (0x20..0x7f).contains(&code) {
            return None;
        }
        decoded.push(char::from_u32(code)?);
    }
    (high.is_none() && held < 6 && bits == 0).then_some(())
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b',' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Appends the encoded name.
pub fn encode(name: &str, out: &mut Vec<u8>) {
    let mut bits = 0u32;
    let mut held = 0;
    let mut shift = false;
    let digit = |index: u32| ALPHABET[(index & 63) as usize];
    for character in name.chars() {
        if !(' '..='~').contains(&character) {
            if !shift {
                out.push(b'&');
                shift = true;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                bits = bits << 16 | u32::from(*unit);
                held += 16;
                while held >= 6 {
                    held -= 6;
                    out.push(digit(bits >> held));
                }
                bits &= (1 << held) - 1;
            }
            continue;
        }
        if shift {
            unshift(&mut bits, &mut held, out);
            shift = false;
        }
        match character {
            '&' => out.extend_from_slice(b"&-"),
            _ => out.push(character as u8),
        }
    }
    if shift {
        unshift(&mut bits, &mut held, out);
    }
}

fn unshift(bits: &mut u32, held: &mut u32, out: &mut Vec<u8>) {
    if *held > 0 {
        out.push(ALPHABET[((*bits << (6 - *held)) & 63) as usize]);
    }
    out.push(b'-');
    (*bits, *held) = (0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(name: &str) -> String {
        let mut out = Vec::new();
        encode(name, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_names() {
        for (name, wire) in [
            ("", ""),
            ("INBOX", "INBOX"),
            ("~peter/mail/台北/日本語", "~peter/mail/&U,BTFw-/&ZeVnLIqe-"),
            ("Tom & Jerry", "Tom &- Jerry"),
            ("Entwürfe", "Entw&APw-rfe"),
            ("Gesendete Objekte/ø&å", "Gesendete Objekte/&APg-&-&AOU-"),
            ("😀", "&2D3eAA-"),
            ("a😀b", "a&2D3eAA-b"),
            ("Отправленные", "&BB4EQgQ,BEAEMAQyBDsENQQ9BD0ESwQ1-"),
            ("\u{1}", "&AAE-"),
        ] {
            assert_eq!(encoded(name), wire);
            assert_eq!(decode(wire.as_bytes()).as_deref(), Some(name));
        }
    }

    #[test]
    fn invalid_names() {
        for wire in [
            "&",
            "a&",
            "&Jjo",
            "&Jjo!",
            "&Jjo!-",
            "&A-",
            "&AA-",
            "&AGE-",
            "&2D0-",
            "&3gA-",
            "&2D0AYQ-",
            "&APx-",
            "Entw\u{fc}rfe",
            "a\tb",
            "&AP w-",
        ] {
            assert_eq!(decode(wire.as_bytes()), None, "{wire}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(name in any::<String>()) {
            prop_assert_eq!(decode(encoded(&name).as_bytes()), Some(name));
        }

        #[test]
        fn one_spelling_or_none(wire in "[&A-D,a+-]{0,12}") {
            if let Some(name) = decode(wire.as_bytes()) {
                // Only a needless `-&` between two shifted runs may differ.
                prop_assert_eq!(decode(encoded(&name).as_bytes()), Some(name));
            }
        }
    }
}
