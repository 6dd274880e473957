//! Mailbox names as Maildir++ folders: modified UTF-7 (RFC 3501 §5.1.3), `.` between levels.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

fn engine() -> GeneralPurpose {
    let alphabet = Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,");
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet.expect("64 different characters"), config)
}

/// The folder of a mailbox: `Work/Übung` is `.Work.&ANw-bung`. A `.` inside a name is encoded too.
pub fn to_folder(mailbox: &str) -> String {
    let mut out = String::from(".");
    let mut units: Vec<u16> = Vec::new();
    for c in mailbox.chars() {
        let plain = matches!(c, ' '..='~') && c != '.';
        if plain {
            flush(&mut units, &mut out);
            match c {
                '/' => out.push('.'),
                '&' => out.push_str("&-"),
                c => out.push(c),
            }
        } else {
            units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
        }
    }
    flush(&mut units, &mut out);
    out
}

fn flush(units: &mut Vec<u16>, out: &mut String) {
    if !units.is_empty() {
        let bytes: Vec<u8> = units.drain(..).flat_map(u16::to_be_bytes).collect();
        out.push('&');
        out.push_str(&engine().encode(bytes));
        out.push('-');
    }
}

/// The mailbox of a folder's name; what is not modified UTF-7 is taken as UTF-8.
pub fn from_folder(folder: &str) -> String {
    let levels = folder.strip_prefix('.').unwrap_or(folder).split('.');
    levels.map(|level| decode(level).unwrap_or_else(|| level.to_owned())).collect::<Vec<_>>().join("/")
}

fn decode(level: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = level;
    while let Some((plain, encoded)) = rest.split_once('&') {
        out.push_str(plain);
        let (encoded, after) = encoded.split_once('-')?;
        if encoded.is_empty() {
            out.push('&');
        } else {
            let bytes = engine().decode(encoded).ok()?;
            let (pairs, []) = bytes.as_chunks::<2>() else { return None };
            out.push_str(
                &String::from_utf16(&pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect::<Vec<_>>()).ok()?,
            );
        }
        rest = after;
    }
    out.push_str(rest);
    // A level separator hidden in a name would make another mailbox.
    (!out.contains('/')).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for (mailbox, folder) in [
            ("Sent", ".Sent"),
            ("Work/2024", ".Work.2024"),
            ("Work/Übung", ".Work.&ANw-bung"),
            ("a&b", ".a&-b"),
            ("v1.2", ".v1&AC4-2"),
            ("~peter/mail/台北/日本語", ".~peter.mail.&U,BTFw-.&ZeVnLIqe-"),
            ("😀", ".&2D3eAA-"),
        ] {
            assert_eq!(to_folder(mailbox), folder);
            assert_eq!(from_folder(folder), mailbox);
        }
    }

    #[test]
    fn odd_folders_keep_their_text() {
        for (folder, mailbox) in [(".a&b", "a&b"), (".&AC8-", "&AC8-"), (".&A-", "&A-"), (".Übung", "Übung")] {
            assert_eq!(from_folder(folder), mailbox);
        }
    }
}
