//! One connection's input: what was read and not consumed yet.

use crate::wire::line::SASL_MAX;

/// Room for commands.
const COMMANDS: usize = 2_048;
/// Room for a message's text: few enough reads, little enough memory.
const TEXT: usize = 32_768;

/// A buffer that is small until it must not be.
#[derive(Debug, Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// What is there.
    pub(super) fn octets(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes octets off the front.
    pub(super) fn consume(&mut self, octets: usize) {
        self.start += octets;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Forgets what is there.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Makes room for a message's text.
    pub(super) fn expect_text(&mut self) {
        if self.buffer.len() < TEXT {
            self.buffer.resize(TEXT, 0);
        }
    }

    /// Gives memory back: nothing is expected soon.
    pub(super) fn rest(&mut self) {
        if self.start == self.end {
            *self = Self::default();
        }
    }

    /// Where to read into; never empty, as a session leaves no more than one line.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            let length = (self.buffer.len() * 2).clamp(COMMANDS, SASL_MAX.max(self.buffer.len() + COMMANDS));
            self.buffer.resize(length, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// So many octets were read into the space.
    pub(super) fn filled(&mut self, octets: usize) {
        self.end += octets;
    }
}
