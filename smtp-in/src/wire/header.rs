//! A message's header while it passes by: how large it is, how many fields it has, and how often those that may not
//! be repeated stand in it.
//!
//! What a field is, is what [`header_fields`](posthouse_storage::message::header_fields) gives: so nobody behind here
//! sees a field that was not counted. Nothing is kept but the beginning of a name.

use memchr::memchr;

/// Octets of a name that are kept; those looked for are shorter.
const NAME_BYTES_KEPT: usize = 9;

/// Reads a header in any split, and stops looking at the empty line that ends it.
#[derive(Debug, Default)]
pub struct HeaderPass {
    at: At,
    name: [u8; NAME_BYTES_KEPT],
    /// Octets of the name, also those not kept.
    length: usize,
    bytes: u64,
    fields: u32,
    received: u32,
    from: u32,
}

/// Where in the header the pass stands. Lines end with CR LF; a message with others is refused whatever stands here.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At the start of a line that no blank has begun.
    #[default]
    Start,
    /// In what may be a name.
    Name,
    /// In blanks behind it (RFC 5322 §4.5 lets them stand before the colon).
    Blanks,
    /// In the rest of a field, or of something that is none.
    Rest,
    /// Behind the LF of a line, and where a blank would go on.
    Folded(Before),
    /// In the body.
    Body,
}

/// What a folded line goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Blanks,
    Rest,
}

impl HeaderPass {
    /// Takes the next octets of a message.
    pub fn feed(&mut self, input: &[u8]) {
        let mut at = 0;
        while let Some(&octet) = input.get(at) {
            match self.at {
                At::Body => return,
                At::Folded(Before::Blanks) if is_blank(octet) => self.at = At::Blanks,
                At::Folded(Before::Rest) if is_blank(octet) => self.at = At::Rest,
                At::Start | At::Folded(_) if octet == b'\r' => {
                    self.at = At::Body;
                    return;
                }
                At::Start | At::Folded(_) => (self.at, self.length) = (At::Name, 0),
                At::Name if octet == b':' => {
                    self.field();
                    self.at = At::Rest;
                }
                At::Name if (33..=126).contains(&octet) => {
                    if let Some(kept) = self.name.get_mut(self.length) {
                        *kept = octet;
                    }
                    self.length += 1;
                    at += 1;
                    self.bytes += 1;
                }
                At::Name if octet.is_ascii_whitespace() && self.length > 0 => self.at = At::Blanks,
                At::Name => self.at = At::Rest,
                At::Blanks if octet == b':' => self.at = At::Name,
                At::Blanks if octet.is_ascii_whitespace() => {
                    at += 1;
                    self.bytes += 1;
                    if octet == b'\n' {
                        self.at = At::Folded(Before::Blanks);
                    }
                }
                At::Blanks => self.at = At::Rest,
                At::Rest => {
                    let lf = memchr(b'\n', &input[at..]);
                    let taken = lf.map_or(input.len() - at, |lf| lf + 1);
                    at += taken;
                    self.bytes += taken as u64;
                    if lf.is_some() {
                        self.at = At::Folded(Before::Rest);
                    }
                }
            }
        }
    }

    fn field(&mut self) {
        if self.length == 0 {
            return;
        }
        self.fields = self.fields.saturating_add(1);
        match self.name.get(..self.length) {
            Some(name) if name.eq_ignore_ascii_case(b"From") => self.from += 1,
            Some(name) if name.eq_ignore_ascii_case(b"Received") => self.received += 1,
            _ => {}
        }
    }

    /// Octets so far, without the empty line.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fields so far.
    pub fn fields(&self) -> u32 {
        self.fields
    }

    /// Received fields so far: what finds loops (RFC 5321 §6.3).
    pub fn received(&self) -> u32 {
        self.received
    }

    /// From fields so far (RFC 5322 §3.6: there is one).
    pub fn from(&self) -> u32 {
        self.from
    }
}

fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use posthouse_storage::message::header_fields;
    use proptest::prelude::*;

    use super::*;

    /// Octets, fields, Received and From fields.
    type Counts = (u64, u32, u32, u32);

    fn pass(pieces: &[&[u8]]) -> Counts {
        let mut pass = HeaderPass::default();
        pieces.iter().for_each(|piece| pass.feed(piece));
        (pass.bytes(), pass.fields(), pass.received(), pass.from())
    }

    #[test]
    fn fields() {
        let cases: &[(&str, Counts)] = &[
            ("", (0, 0, 0, 0)),
            ("\r\nFrom: a\r\n", (0, 0, 0, 0)),
            ("From: a\r\n\r\nFrom: b\r\n", (9, 1, 0, 1)),
            ("From: a\r\nFROM \t: b\r\n\r\n", (20, 2, 0, 2)),
            ("From: a\r\n From: b\r\n\r\n", (19, 1, 0, 1)),
            ("From\r\n : a\r\nfrom:", (17, 2, 0, 2)),
            ("From a@b Tue 1 Dec 05:29:00 2026\r\nFrom: a\r\n", (43, 1, 0, 1)),
            (" From: a\r\nX-From: a\r\nFroma: b\r\nFrom", (35, 2, 0, 0)),
            ("Received: a\r\nreceived:b\r\nReceived\r\n\r\n", (35, 2, 2, 0)),
            (": a\r\nFr\u{e9}om: a\r\nFr om: b\r\n", (26, 0, 0, 0)),
        ];
        for (text, expected) in cases {
            assert_eq!(pass(&[text.as_bytes()]), *expected, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn as_storage_sees_it_and_however_split(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "From", "from", "Received", "X", ":", ":", " ", "\t", "\r\n", "\r\n", "\r\n ", "\u{e9}", "From:", "\x0c", "\x01", "From: a\r\n",
            ]), 0..14),
            cuts in prop::collection::vec(0usize..60, 0..4),
        ) {
            let text = pieces.concat();
            let text = text.as_bytes();
            let whole = pass(&[text]);
            let seen: Vec<_> = header_fields(text).collect();
            let named = |name| seen.iter().filter(|field| field.is(name)).count() as u32;
            prop_assert_eq!((whole.1, whole.2, whole.3), (seen.len() as u32, named("Received"), named("From")));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(pass(&pieces), whole);
            let octets: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(pass(&octets), whole);
        }
    }
}
