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
