//! Mail in files: Maildir and mbox, read one message at a time and written back.
//!
//! Messages here always end their lines with CRLF, as mail does on the wire. A message whose first line in a file ends
//! with a bare LF has every bare LF made CRLF; one whose first line ends with CRLF is taken octet for octet.

pub mod maildir;
pub mod mbox;
pub mod name;

use std::path::PathBuf;

use crate::admin::client::Outgoing;

/// Largest message that is imported, bytes; larger ones are reported and skipped.
pub const MESSAGE_BYTES_MAX: u64 = 128 << 20;

/// One message found in a source.
#[derive(Debug)]
pub struct Found {
    /// The mailbox it belongs into; `None` for the one that the caller names.
    pub mailbox: Option<String>,
    /// Where it was found, for reports: a file, or a file and line.
    pub place: String,
    /// The message, or why it cannot be taken.
    pub message: Result<Outgoing, String>,
    /// How far the source is read, in the units of its total.
    pub progress: u64,
}

/// A source of messages, in an order that is the same each time.
pub struct Source {
    /// Total of [`Found::progress`]: messages of a Maildir, bytes of an mbox file.
    pub total: u64,
    /// True when `total` counts bytes.
    pub in_bytes: bool,
    /// The messages.
    pub messages: Box<dyn Iterator<Item = Found> + Send>,
}

/// Opens a Maildir or an mbox file.
pub fn open(path: PathBuf, mbox: bool) -> anyhow::Result<Source> {
    if mbox { mbox::open(path) } else { maildir::open(path) }
}

/// `octets` with CRLF line ends, by the rule above.
pub fn to_crlf(octets: Vec<u8>) -> Vec<u8> {
    let first = octets.iter().position(|&byte| byte == b'\n');
    match first {
        None => return octets,
        Some(at) if at > 0 && octets[at - 1] == b'\r' => return octets,
        Some(_) => {}
    }
    let mut out = Vec::with_capacity(octets.len() + octets.len() / 32);
    let mut last = 0;
    for &byte in &octets {
        if byte == b'\n' && last != b'\r' {
            out.push(b'\r');
        }
        out.push(byte);
        last = byte;
    }
    out
}

/// The moment in a message's topmost Received or else Date field, milliseconds since 1970.
pub fn date_in_header(message: &[u8]) -> Option<i64> {
    let header = header(message);
    let received = field(header, "received").and_then(|value| value.rsplit_once(';').map(|(_, date)| date.to_owned()));
    [received, field(header, "date")].into_iter().flatten().find_map(|date| {
        let date = date.split_whitespace().collect::<Vec<_>>().join(" ");
        // A comment with the zone's name may follow.
        let date = date.split('(').next().unwrap_or_default().trim();
        let parsed = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(date).ok();
        parsed.map(jiff::Timestamp::as_millisecond)
    })
}

/// The header of a message, with the empty line that ends it.
pub fn header(message: &[u8]) -> &[u8] {
    let mut start = 0;
    for line in message.split_inclusive(|&byte| byte == b'\n') {
        start += line.len();
        if matches!(line, b"\r\n" | b"\n") {
            break;
        }
    }
    &message[..start]
}

/// The unfolded value of the first field of that name.
fn field(header: &[u8], name: &str) -> Option<String> {
    let mut value: Option<String> = None;
    for line in header.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        match &mut value {
            Some(value) if line.starts_with([' ', '\t']) => value.push_str(line.trim_end()),
            Some(_) => break,
            None => {
                if let Some((found, rest)) = line.split_once(':')
                    && found.trim_end().eq_ignore_ascii_case(name)
                {
                    value = Some(rest.trim().to_owned());
                }
            }
        }
    }
    value
}

/// Now, milliseconds since 1970.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends() {
        for (given, made) in [
            (&b""[..], &b""[..]),
            (b"no line end", b"no line end"),
            (b"a\nb\n", b"a\r\nb\r\n"),
            (b"a\nb\r\nc\n", b"a\r\nb\r\nc\r\n"),
            (b"a\r\nb\r\n", b"a\r\nb\r\n"),
            (b"a\r\nbare\nLF", b"a\r\nbare\nLF"),
            (b"\na", b"\r\na"),
        ] {
            assert_eq!(to_crlf(given.to_vec()), made);
        }
    }

    #[test]
    fn dates_in_headers() {
        let received = b"Received: from a by b\r\n\tid 1; Thu, 1 Jan 1970 00:00:02 +0000 (UTC)\r\nDate: bad\r\n\r\n";
        let date =
            b"Subject: x\nDate: Thu, 01 Jan 1970 01:00:03 +0100\n\nReceived: x; Thu, 1 Jan 1970 00:00:02 +0000\n";
        for (message, ms) in [(&received[..], Some(2000)), (date, Some(3000)), (b"\r\n", None), (b"", None)] {
            assert_eq!(date_in_header(message), ms);
        }
    }
}
