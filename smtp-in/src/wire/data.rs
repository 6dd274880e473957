//! The text of a message after DATA (RFC 5321 §4.1.1.4 and §4.5.2): takes doubled dots away and finds the end.
//!
//! Only CR LF . CR LF ends it. A bare CR, a bare LF or a NUL spoils the message, which is then read to its true end and
//! refused: another server may see a different end there. Lines may be of any length; nothing is kept of them.

use memchr::{memchr2, memchr3};

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Octets of the message, a slice of the input.
    Octets(&'a [u8]),
    /// The end; what follows is a command.
    End,
    /// More input is needed.
    Incomplete,
}

/// Where in a line the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// After CR LF, or at the very start: DATA's own CR LF counts.
    LineStart,
    /// Within a line.
    Line,
    /// After a CR within a line.
    Cr,
    /// After a dot at the start of a line.
    Dot,
    /// After a dot at the start of a line and a CR.
    DotCr,
}

/// Reads one message's text.
#[derive(Debug)]
pub struct DataReader {
    at: At,
    spoiled: bool,
}

impl Default for DataReader {
    fn default() -> Self {
        Self::new()
    }
}

impl DataReader {
    /// At the start of a text.
    pub fn new() -> Self {
        Self { at: At::LineStart, spoiled: false }
    }

    /// True once a bare CR, a bare LF or a NUL was seen. From then on the octets handed out mean nothing.
    pub fn spoiled(&self) -> bool {
        self.spoiled
    }

    /// Reads on from the start of `input`: how many octets were consumed, and what they were. Not to be called again
    /// after [`Piece::End`].
    pub fn read<'a>(&mut self, input: &'a [u8]) -> (usize, Piece<'a>) {
        // Octets up to here are done with; from `start` they are the message's.
        let (mut at, mut start) = (0, 0);
        while at < input.len() {
            match self.at {
                At::LineStart if input[at] == b'.' => {
                    self.at = At::Dot;
                    at += 1;
                    if start < at - 1 {
                        return (at, Piece::Octets(&input[start..at - 1]));
                    }
                    start = at;
                }
                At::LineStart => self.at = At::Line,
                At::Line => {
                    let rest = &input[at..];
                    // A spoiled message needs no more looking for NUL.
                    let found = if self.spoiled { memchr2(b'\r', b'\n', rest) } else { memchr3(b'\r', b'\n', 0, rest) };
                    let Some(found) = found else {
                        at = input.len();
                        break;
                    };
                    at += found + 1;
                    match input[at - 1] {
                        b'\r' => self.at = At::Cr,
                        _ => self.spoiled = true,
                    }
                }
                At::Cr if input[at] == b'\n' => {
                    self.at = At::LineStart;
                    at += 1;
                }
                At::Dot if input[at] == b'\r' => {
                    self.at = At::DotCr;
                    at += 1;
                    start = at;
                }
                // The dot was there to be taken away.
                At::Dot => self.at = At::Line,
                At::DotCr if input[at] == b'\n' => {
                    self.at = At::LineStart;
                    return (at + 1, Piece::End);
                }
                At::Cr | At::DotCr => {
                    self.spoiled = true;
                    self.at = At::Line;
                }
            }
        }
        match start < at {
            true => (at, Piece::Octets(&input[start..at])),
            false => (at, Piece::Incomplete),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Read {
        octets: Vec<u8>,
        spoiled: bool,
        /// What stands behind the end.
        rest: Option<Vec<u8>>,
    }

    fn read(pieces: &[&[u8]]) -> Read {
        let (mut reader, mut octets) = (DataReader::new(), Vec::new());
        for (n, piece) in pieces.iter().enumerate() {
            let mut input = *piece;
            loop {
                let (used, found) = reader.read(input);
                input = &input[used..];
                match found {
                    Piece::Octets(found) => octets.extend_from_slice(found),
                    Piece::End => {
                        let rest = [input, &pieces[n + 1..].concat()].concat();
                        let spoiled = reader.spoiled();
                        return Read { octets: if spoiled { Vec::new() } else { octets }, spoiled, rest: Some(rest) };
                    }
                    Piece::Incomplete => break,
                }
            }
            assert!(input.is_empty(), "all is consumed");
        }
        let spoiled = reader.spoiled();
        Read { octets: if spoiled { Vec::new() } else { octets }, spoiled, rest: None }
    }

    #[test]
    fn texts() {
        // Text on the wire; what it says, when it is fine; what stands behind its end.
        let cases: &[(&str, Option<&str>, Option<&str>)] = &[
            (".\r\n", Some(""), Some("")),
            (".\r\nQUIT\r\n", Some(""), Some("QUIT\r\n")),
            ("..a\r\n.\r\n", Some(".a\r\n"), Some("")),
            ("a\r\n..\r\n.\r\n", Some("a\r\n.\r\n"), Some("")),
            (".a\r\n.\r\n", Some("a\r\n"), Some("")),
            ("a.\r\n.\r\n", Some("a.\r\n"), Some("")),
            ("a\r\n\r\n\r\n.\r\nx", Some("a\r\n\r\n\r\n"), Some("x")),
            ("a\r\n.", Some("a\r\n"), None),
            ("a\r\n.\r", Some("a\r\n"), None),
            ("\u{e9}\r\n.\r\n", Some("\u{e9}\r\n"), Some("")),
            // What other servers were seen to take for an end.
            ("a\n.\n.\r\n", None, None),
            ("a\n.\r\n\r\n.\r\n", None, Some("")),
            ("a\r.\r\r\n.\r\n", None, Some("")),
            ("a\r.\r\n\r\n.\r\nx", None, Some("x")),
            ("a\r\n.\rb\r\n.\r\n", None, Some("")),
            ("a\r\n.\nb\r\n.\r\n", None, Some("")),
            ("a\r\n\0.\r\nb\r\n.\r\n", None, Some("")),
            ("a\r\n.\0\r\nb\r\n.\r\n", None, Some("")),
            ("a\n\r\n.\nb\r\n.\r\n", None, Some("")),
            ("a\r\r\n.\rb\r\n.\r\n", None, Some("")),
            ("a\n.\rb\r\n.\r\n", None, Some("")),
            ("a\r.\nb\r\n.\r\n", None, Some("")),
            ("a\r\n.\r\r\n.\r\n", None, Some("")),
        ];
        for (input, text, rest) in cases {
            let read = read(&[input.as_bytes()]);
            assert_eq!(read.spoiled, text.is_none(), "{input:?}");
            assert_eq!(String::from_utf8_lossy(&read.octets), text.unwrap_or_default(), "{input:?}");
            assert_eq!(read.rest.as_deref(), rest.map(str::as_bytes), "{input:?}");
        }
    }

    /// The whole thing as RFC 5321 says it, slowly.
    fn slowly(input: &[u8]) -> Read {
        let with_start = [b"\r\n", input].concat();
        let end = with_start.windows(5).position(|octets| octets == b"\r\n.\r\n");
        let text = &input[..end.map_or(input.len(), |end| end)];
        let mut octets: Vec<u8> = Vec::new();
        let (mut spoiled, mut line_start) = (false, true);
        for (at, &octet) in text.iter().enumerate() {
            let next = text.get(at + 1);
            spoiled |= octet == 0 || (octet == b'\n' && (at == 0 || text[at - 1] != b'\r'));
            spoiled |= octet == b'\r' && !matches!(next, Some(b'\n'));
            if !(line_start && octet == b'.') {
                octets.push(octet);
            }
            line_start = octet == b'\n' && at > 0 && text[at - 1] == b'\r';
        }
        Read {
            octets: if spoiled { Vec::new() } else { octets },
            spoiled,
            rest: end.map(|end| input[end + 3..].to_vec()),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn as_slowly_read_and_however_split(input in "[a.\r\n\0]{0,24}(\r\n\\.\r\n[a.]{0,3})", cuts in prop::collection::vec(0usize..32, 0..4)) {
            let input = input.as_bytes();
            let whole = read(&[input]);
            prop_assert_eq!(&whole, &slowly(input));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect();
            prop_assert_eq!(&read(&pieces), &whole);
            let octets: Vec<&[u8]> = input.chunks(1).collect();
            prop_assert_eq!(&read(&octets), &whole);
        }

        #[test]
        fn what_is_stuffed_comes_back(lines in prop::collection::vec("[a. \u{e9}]{0,6}", 0..8)) {
            let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let wire: String = lines.iter().map(|line| format!("{}{line}\r\n", if line.starts_with('.') { "." } else { "" })).collect();
            let read = read(&[wire.as_bytes(), b".\r\n"]);
            prop_assert_eq!(read, Read { octets: text.into_bytes(), spoiled: false, rest: Some(Vec::new()) });
        }
    }
}
