//! Command lines (RFC 5321 §2.3.8): only CR LF ends one.
//!
//! Lenience here is what smuggling lives on, so a bare CR or LF spoils its whole line up to the next CR LF. A line that
//! is too long is skipped without being kept.

use memchr::memchr;

/// Octets of a command line with its CR LF (RFC 5321 §4.5.3.1.4).
pub const COMMAND_MAX: usize = 512;
/// The same for commands that extensions add parameters and longer addresses to (RFC 1870, 6152, 6531).
pub const EXTENDED_MAX: usize = 2_048;
/// The same for what SASL exchanges (RFC 4954 §4).
pub const SASL_MAX: usize = 12_288;

/// What a look at the input found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed<'a> {
    /// A line, without its CR LF.
    Line(&'a [u8]),
    /// A line holds a bare CR or LF; what is left of it is being skipped.
    Bare,
    /// A line is longer than allowed; it is being skipped.
    TooLong,
    /// More input is needed.
    Incomplete,
}

/// Finds lines in the input. Keeps none of it: what is not consumed is to be offered again, with more behind it.
#[derive(Debug, Default)]
pub struct LineReader {
    /// Octets skipped of a line already refused.
    skipped: Option<u64>,
}

impl LineReader {
    /// Looks at the start of `input` for a line of at most `max` octets; returns how many octets it consumed.
    ///
    /// There may be more to find in the rest unless nothing was consumed and the answer is [`Framed::Incomplete`].
    pub fn read<'a>(&mut self, input: &'a [u8], max: usize) -> (usize, Framed<'a>) {
        if self.skipped.is_some() {
            return self.skip(input);
        }
        // The longest line is max - 2 octets and CR LF, so its LF is among the first max octets.
        let window = &input[..input.len().min(max)];
        let Some(lf) = memchr(b'\n', window) else {
            if input.len() < max {
                return (0, Framed::Incomplete);
            }
            self.skipped = Some(0);
            return (0, Framed::TooLong);
        };
        let Some(line) = window[..lf].strip_suffix(b"\r") else {
            self.skipped = Some(0);
            return (lf + 1, Framed::Bare);
        };
        match memchr(b'\r', line) {
            Some(_) => (lf + 1, Framed::Bare),
            None => (lf + 1, Framed::Line(line)),
        }
    }

    /// True when what comes next is the start of a line.
    pub fn at_start(&self) -> bool {
        self.skipped.is_none()
    }

    /// Octets skipped so far of the line being skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.unwrap_or(0)
    }

    fn skip<'a>(&mut self, input: &'a [u8]) -> (usize, Framed<'a>) {
        let skipped = self.skipped.unwrap_or(0);
        let Some(lf) = memchr(b'\n', input) else {
            // A CR at the end is left: it may belong to the CR LF looked for.
            let octets = input.len() - usize::from(input.ends_with(b"\r"));
            self.skipped = Some(skipped + octets as u64);
            return (octets, Framed::Incomplete);
        };
        if input[..lf].ends_with(b"\r") {
            self.skipped = None;
            return (lf + 1, Framed::Incomplete);
        }
        self.skipped = Some(skipped + lf as u64 + 1);
        (lf + 1, Framed::Bare)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that is found when `pieces` arrive one after the other.
    fn found(pieces: &[&[u8]], max: usize) -> Vec<String> {
        let (mut reader, mut input, mut out) = (LineReader::default(), Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let (used, framed) = reader.read(&input, max);
                match framed {
                    Framed::Line(line) => out.push(String::from_utf8_lossy(line).into_owned()),
                    Framed::Bare => out.push("<bare>".to_owned()),
                    Framed::TooLong => out.push("<long>".to_owned()),
                    Framed::Incomplete if used == 0 => break,
                    Framed::Incomplete => {}
                }
                input.drain(..used);
            }
            assert!(input.len() < max.max(2), "no more than a line is asked for again");
        }
        out
    }

    #[test]
    fn only_cr_lf_ends_a_line() {
        let cases: &[(&str, &[&str])] = &[
            ("a\r\nb\r\n", &["a", "b"]),
            ("\r\n", &[""]),
            ("a\nb\r\nc\r\n", &["<bare>", "c"]),
            ("a\nb\nc\r\nd\r\n", &["<bare>", "<bare>", "d"]),
            ("a\rb\r\nc\r\n", &["<bare>", "c"]),
            ("a\r\r\nc\r\n", &["<bare>", "c"]),
            ("12345678\r\nc\r\n", &["12345678", "c"]),
            ("123456789\r\nc\r\n", &["<long>", "c"]),
            ("123456789abcdefghijklmnopqrstuvwxyz\r\nc\r\n", &["<long>", "c"]),
            ("123456789abc\ndef\r\nc\r\n", &["<long>", "<bare>", "c"]),
            ("123456789\r", &["<long>"]),
            ("a\r", &[]),
        ];
        for (input, lines) in cases {
            assert_eq!(found(&[input.as_bytes()], 10), *lines, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn any_split_is_the_same(input in "[ab\r\n]{0,60}", cut in 0usize..60, cut2 in 0usize..60) {
            let input = input.as_bytes();
            let (low, high) = (cut.min(cut2).min(input.len()), cut.max(cut2).min(input.len()));
            let whole = found(&[input], 12);
            prop_assert_eq!(&found(&[&input[..low], &input[low..high], &input[high..]], 12), &whole);
            let octets: Vec<&[u8]> = input.chunks(1).collect();
            prop_assert_eq!(&found(&octets, 12), &whole);
        }
    }
}
