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
