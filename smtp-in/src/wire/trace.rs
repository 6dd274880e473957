//! Trace fields (RFC 5321 §4.4): writes Return-Path and Received, and drops a Return-Path that came along.

use std::io::Write;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::TimeZone;

/// What the trace fields say. Every text was checked when it was read: none holds a control character.
#[derive(Debug, Clone, Copy)]
pub struct Trace<'a> {
    /// The reverse path without `<>`; empty for the null path.
    pub from: &'a str,
    /// What the client calls itself.
    pub hello: &'a str,
    /// Where it called from.
    pub peer: IpAddr,
    /// What we are called.
    pub hostname: &'a str,
    /// RFC 3848 and RFC 6531 §4.3: `ESMTPS` and so on.
    pub protocol: &'a str,
    /// Names this transaction in the log.
    pub id: &'a str,
    /// The recipient, when there is one only: a list would tell Bcc recipients about each other (§7.2).
    pub recipient: Option<&'a str>,
    /// When.
    pub at: Timestamp,
}

impl Trace<'_> {
    /// Appends both fields to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Self { from, hello, peer, hostname, protocol, id, .. } = self;
        let tag = if peer.is_ipv6() { "IPv6:" } else { "" };
        let mut date = String::with_capacity(32);
        let at = self.at.to_zoned_datetime(TimeZone::UTC);
        // Years beyond 9999 are all it fails for; a field without a date is still a field.
        if DateTimePrinter::new().print_zoned_datetime(&at, &mut date).is_err() {
            date.clear();
        }
        let written = write!(
            out,
            "Return-Path: <{from}>\r\nReceived: from {hello} ([{tag}{peer}])\r\n\tby {hostname} with {protocol} id {id}"
        )
        .and_then(|()| match self.recipient {
            Some(recipient) => write!(out, "\r\n\tfor <{recipient}>;\r\n\t{date}\r\n"),
            None => write!(out, ";\r\n\t{date}\r\n"),
        });
        written.expect("a Vec takes every write");
    }
}

/// Drops Return-Path fields from the very top of a message: the one field that belongs to the last server (§4.4).
#[derive(Debug, Default)]
pub struct TopFields {
    at: Top,
    /// What matched of the name so far, as it was written.
    kept: [u8; NAME.len()],
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Top {
    /// At the start of a line that may begin a field.
    #[default]
    Start,
    /// So many octets of the name matched.
    Name(usize),
    /// In a field being dropped.
    Dropping,
    /// After the LF of a field being dropped: a blank goes on with it.
    Folded,
    /// Past the top.
    Past,
}

const NAME: &[u8; 12] = b"return-path:";

impl TopFields {
    /// Takes the next octets of a message. Returns octets withheld before that turned out to be the message's, and
    /// the octets of `input` that are.
    pub fn pass<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        if self.at == Top::Past {
            return (b"", input);
        }
        let (mut at, mut withheld) = (0, 0);
        while let Some(&octet) = input.get(at) {
            match self.at {
                Top::Start => (self.at, withheld) = (Top::Name(0), at),
                Top::Name(matched) if octet.eq_ignore_ascii_case(&NAME[matched]) => {
                    self.kept[matched] = octet;
                    self.at = if matched + 1 == NAME.len() { Top::Dropping } else { Top::Name(matched + 1) };
                    at += 1;
                }
                Top::Name(matched) => {
                    self.at = Top::Past;
                    // Of what matched, this much came with earlier input.
                    let earlier = matched - (at - withheld);
                    return (&self.kept[..earlier], &input[withheld..]);
                }
                Top::Dropping => {
                    let lf = memchr::memchr(b'\n', &input[at..]);
                    at += lf.map_or(input.len() - at, |lf| lf + 1);
                    if lf.is_some() {
                        self.at = Top::Folded;
                    }
                }
                Top::Folded if matches!(octet, b' ' | b'\t') => self.at = Top::Dropping,
                Top::Folded => self.at = Top::Start,
                Top::Past => return (b"", &input[at..]),
            }
        }
        (b"", b"")
    }

    /// The message ended: octets still withheld.
    pub fn finish(&mut self) -> &[u8] {
        match std::mem::replace(&mut self.at, Top::Past) {
            Top::Name(matched) => &self.kept[..matched],
            _ => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields() {
        let trace = Trace {
            from: "a@b.c",
            hello: "client.test",
            peer: "192.0.2.1".parse().unwrap(),
            hostname: "mx.example.test",
            protocol: "ESMTPS",
            id: "0123",
            recipient: Some("\"x y\"@example.test"),
            at: "2026-12-01T03:04:05Z".parse().unwrap(),
        };
        let printed = |trace: Trace<'_>| {
            let mut out = Vec::new();
            trace.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let expected = "Return-Path: <a@b.c>\r\nReceived: from client.test ([192.0.2.1])\r\n\tby mx.example.test with ESMTPS \
                        id 0123\r\n\tfor <\"x y\"@example.test>;\r\n\tTue, 1 Dec 2026 03:04:05 +0000\r\n";
        assert_eq!(printed(trace), expected);
        let expected = "Return-Path: <>\r\nReceived: from client.test ([IPv6:2001:db8::1])\r\n\tby mx.example.test with \
                        ESMTPS id 0123;\r\n\tTue, 1 Dec 2026 03:04:05 +0000\r\n";
        let trace = Trace { from: "", peer: "2001:db8::1".parse().unwrap(), recipient: None, ..trace };
        assert_eq!(printed(trace), expected);
    }

    fn top(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut top, mut out) = (TopFields::default(), Vec::new());
        for piece in pieces {
            let (earlier, octets) = top.pass(piece);
            out.extend_from_slice(earlier);
            out.extend_from_slice(octets);
        }
        out.extend_from_slice(top.finish());
        out
    }

    #[test]
    fn a_return_path_at_the_top_is_dropped() {
        let cases = [
            ("Return-Path: <a@b>\r\nSubject: x\r\n\r\nbody", "Subject: x\r\n\r\nbody"),
            ("return-path:\r\n <a@b>\r\nRETURN-PATH: x\r\nA: b\r\n", "A: b\r\n"),
            ("ReTurn: x\r\nReturn-Path: y\r\n", "ReTurn: x\r\nReturn-Path: y\r\n"),
            ("Return-Path: x\r\n\r\nReturn-Path: y\r\n", "\r\nReturn-Path: y\r\n"),
            ("Return-Path: x\r\nRet", "Ret"),
            ("Return-Path", "Return-Path"),
            ("", ""),
        ];
        for (input, output) in cases {
            assert_eq!(String::from_utf8_lossy(&top(&[input.as_bytes()])), output, "{input:?}");
            let octets: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
            assert_eq!(String::from_utf8_lossy(&top(&octets)), output, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn fields_are_dropped_however_split(
            fields in prop::collection::vec(prop::sample::select(vec![
                "Received: a\r\n", "Return-Path: <a>\r\n", "Receive: c\r\n", "X: Received: d\r\n", "ret",
            ]), 0..6),
            cuts in prop::collection::vec(0usize..80, 0..4),
        ) {
            let text = fields.concat() + "\r\nReturn-Path: body\r\n";
            let text = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(top(&pieces), top(&[text]));
        }
    }
}
