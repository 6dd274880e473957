//! Text out of encoded octets: transfer encodings, character sets.

use super::Part;

/// A Content-Transfer-Encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// 7bit, 8bit, binary, and what is not known.
    Identity,
    /// Base64.
    Base64,
    /// Quoted-printable.
    QuotedPrintable,
}

impl Encoding {
    /// By its name.
    pub fn of(name: &[u8]) -> Self {
        if name.eq_ignore_ascii_case(b"base64") {
            Self::Base64
        } else if name.eq_ignore_ascii_case(b"quoted-printable") {
            Self::QuotedPrintable
        } else {
            Self::Identity
        }
    }

    /// The octets decoded; damaged ones as far as they go.
    pub fn decode(self, encoded: &[u8]) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Identity => mail_parser::Encoding::None,
            Self::Base64 => mail_parser::Encoding::Base64,
            Self::QuotedPrintable => mail_parser::Encoding::QuotedPrintable,
        }
        .decode(encoded)
    }
}

/// The part's character set, in lower case; `us-ascii` when it names none.
pub(super) fn charset(part: &Part) -> Vec<u8> {
    let named = part.params.iter().find(|(name, value)| name == b"charset" && !value.is_empty());
    named.map_or(b"us-ascii".to_vec(), |(_, value)| value.to_ascii_lowercase())
}

/// Decoded text. ASCII and unknown sets are read as UTF-8: real mail often means that.
pub(super) fn decode(encoding: Encoding, charset: &[u8], encoded: &[u8]) -> String {
    let octets = encoding.decode(encoded);
    match mail_parser::decoders::charsets::charset_decoder(charset) {
        Some(decode) if charset != b"us-ascii" && charset != b"utf-8" => decode(&octets),
        _ => String::from_utf8_lossy(&octets).into_owned(),
    }
}

/// The text of a part from its encoded octets: transfer encoding and character set undone, HTML left as it is. For
/// types other than text the octets are taken as UTF-8.
pub fn decode_text(part: &Part, encoded: &[u8]) -> String {
    decode(Encoding::of(&part.encoding), &charset(part), encoded)
}

/// Blanks and line ends collapsed, at most `max` characters.
pub(super) fn collapse(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if count > 0 && count < max {
            out.push(' ');
            count += 1;
        }
        for c in word.chars() {
            if count == max {
                return out;
            }
            out.push(c);
            count += 1;
        }
    }
    out
}
