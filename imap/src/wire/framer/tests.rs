use proptest::prelude::*;

use super::*;

/// How the driver in these tests answers: IDLE and AUTHENTICATE switch the framer over, an APPEND to `no` is refused.
fn drain(framer: &mut Framer, seen: &mut Vec<String>) {
    while let Some(frame) = framer.next() {
        match frame {
            Frame::Command(octets) => {
                let verb = octets.split(|&octet| octet == b' ').nth(1).unwrap_or_default().to_ascii_uppercase();
                match verb.as_slice() {
                    b"IDLE" => framer.expect_done(),
                    b"AUTHENTICATE" => framer.expect_sasl(),
                    _ => {}
                }
                seen.push(format!("command {}", octets.escape_ascii()));
            }
            Frame::ContinuationNeeded => seen.push("continue".into()),
            Frame::Append { line, literal } => {
                let refuse = line.windows(4).any(|word| word == b" no ");
                seen.push(format!("append {} {} {refuse}", line.escape_ascii(), literal.size));
                if refuse { framer.refuse_literal() } else { framer.accept_literal() }
            }
            // Chunks are cut anywhere: what counts is what they hold together.
            Frame::Chunk(octets) => match seen.last_mut() {
                Some(last) if last.starts_with("octets ") => last.push_str(&octets.escape_ascii().to_string()),
                _ => seen.push(format!("octets {}", octets.escape_ascii())),
            },
            Frame::AppendEnd { well_formed } => seen.push(format!("end {well_formed}")),
            Frame::IdleDone => seen.push("done".into()),
            Frame::Sasl(line) => seen.push(format!("sasl {}", line.escape_ascii())),
            Frame::Refused { tag, reason } => seen.push(format!("refused {} {reason}", tag.unwrap_or("*".into()))),
        }
    }
}

fn limits() -> Limits {
    Limits {
        line_bytes_max: 100,
        literal_bytes_max: 50,
        command_bytes_max: 180,
        append_bytes_max: 1000,
        read_bytes: 64,
    }
}

fn frames_of(limits: Limits, pieces: &[&[u8]]) -> Vec<String> {
    let mut framer = Framer::new(limits);
    let mut seen = Vec::new();
    for piece in pieces {
        framer.feed(piece);
        drain(&mut framer, &mut seen);
    }
    seen
}

/// The frames of a whole input, which any way of cutting it must give as well.
fn frames(input: &[u8]) -> Vec<String> {
    let whole = frames_of(limits(), &[input]);
    let octets: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(frames_of(limits(), &octets), whole, "{}", input.escape_ascii());
    for at in 0..=input.len() {
        let (a, b) = input.split_at(at);
        assert_eq!(frames_of(limits(), &[a, b]), whole, "{} cut at {at}", input.escape_ascii());
    }
    whole
}

#[test]
fn streams() {
    for (input, expected) in [
        (&b"a NOOP\r\n"[..], &["command a NOOP"][..]),
        (b"a NOOP\r\nb NOOP\r\nc", &["command a NOOP", "command b NOOP"]),
        (b"\r\n\r\na NOOP\r\n\r\n\nb NOOP\r\n", &["command a NOOP", "command b NOOP"]),
        (b"a LOGIN {1}\r\nx {2+}\r\nyz\r\nb NOOP\r\n", &["continue", r"command a LOGIN {1}\r\nx {2+}\r\nyz", "command b NOOP"]),
        (b"a LOGIN {0}\r\n {0+}\r\n\r\n", &["continue", r"command a LOGIN {0}\r\n {0+}\r\n"]),
        (b"a LOGIN {4+}\r\n\r\n\r\n x\r\n", &[r"command a LOGIN {4+}\r\n\r\n\r\n x"]),
        // APPEND: the message passes through, the mailbox as a literal does not.
        (b"a APPEND x {5}\r\nhello\r\nb NOOP\r\n", &["append a APPEND x {5} 5 false", "octets hello", "end true", "command b NOOP"]),
        (b"a append {1}\r\nx (\\Seen) {5+}\r\nh\r\n{1\r\n", &[
            "continue",
            r"append a append {1}\r\nx (\\Seen) {5+} 5 false",
            r"octets h\r\n{1",
            "end true",
        ]),
        (b"a APPEND x {0}\r\n  \r\n", &["append a APPEND x {0} 0 false", "end true"]),
        (b"a APPEND x {1}\r\ny foo\r\nb NOOP\r\n", &["append a APPEND x {1} 1 false", "octets y", "end false", "command b NOOP"]),
        (b"a APPEND x {1}\r\ny\nb NOOP\r\n", &["append a APPEND x {1} 1 false", "octets y", "end false", "command b NOOP"]),
        (b"a APPEND x {1}\r\ny {3+}\r\nz\r\n\r\nb NOOP\r\n", &["append a APPEND x {1} 1 false", "octets y", "end false", "command b NOOP"]),
        (b"a APPEND no {5+}\r\nhello\r\nb NOOP\r\n", &["append a APPEND no {5+} 5 true", "command b NOOP"]),
        (b"a APPEND no {5}\r\nb NOOP\r\n", &["append a APPEND no {5} 5 true", "command b NOOP"]),
        (b"a APPEND x {1001}\r\nb NOOP\r\n", &["refused a message too big", "command b NOOP"]),
        // Literals that are too long are skipped, never taken for commands.
        (b"a LOGIN {51}\r\nb NOOP\r\n", &["refused a literal too long", "command b NOOP"]),
        (
            b"a LOGIN {60+}\r\nx NOOP\r\nx NOOP\r\nx NOOP\r\nx NOOP\r\nx NOOP\r\nx NOOP\r\nx NOOP\r\n1234 {3+}\r\nx\r\n\r\nb NOOP\r\n",
            &["refused a literal too long", "command b NOOP"],
        ),
        (b"a {50+}\r\n12345678901234567890123456789012345678901234567890 {50+}\r\n12345678901234567890123456789012345678901234567890 {50+}\r\n12345678901234567890123456789012345678901234567890 {50+}\r\n12345678901234567890123456789012345678901234567890\r\nb NOOP\r\n",
            &["refused a command too long", "command b NOOP"]),
        (b"a LOGIN {18446744073709551616+}\r\nb NOOP\r\n", &["refused * literal size out of range"]),
        (b"a LOGIN {99999999999999999999999999999999}\r\nb NOOP\r\n", &["refused a literal too long", "command b NOOP"]),
        // Not announcements.
        (b"a LOGIN x{1}x\r\nb {}\r\nc {-1}\r\nd {1x}\r\ne 1}\r\n", &[
            "command a LOGIN x{1}x", "command b {}", "command c {-1}", "command d {1x}", "command e 1}",
        ]),
        // Line ends.
        (b"a NOOP\nb NOOP\r\n", &["refused a line does not end with CRLF", "command b NOOP"]),
        (b"a NO\rOP\r\nb NOOP\r\n", &[r"command a NO\rOP", "command b NOOP"]),
        (b"a {1+}\r\nx\nb NOOP\r\n", &["refused a line does not end with CRLF", "command b NOOP"]),
        (b"a {1+}\r\nx\r\r\nb NOOP\r\n", &[r"command a {1+}\r\nx\r", "command b NOOP"]),
        // IDLE, also pipelined, in any case.
        (b"a IDLE\r\nDONE\r\nb NOOP\r\n", &["command a IDLE", "done", "command b NOOP"]),
        (b"a IDLE\r\n\r\ndone\r\nb IDLE\r\nDoNe  \r\nc NOOP\r\nd NOOP\r\n", &[
            "command a IDLE", "done", "command b IDLE", "done", "command c NOOP", "command d NOOP",
        ]),
        (b"a IDLE\r\nb NOOP\r\nc NOOP\r\n", &["command a IDLE", "refused * expected DONE", "command c NOOP"]),
        (b"a IDLE\r\nDONE\nc NOOP\r\n", &["command a IDLE", "refused * expected DONE", "command c NOOP"]),
        (b"a IDLE\r\nb LOGIN {8+}\r\nx DONE\r\n y\r\nc NOOP\r\n", &["command a IDLE", "refused * expected DONE", "command c NOOP"]),
        // SASL.
        (b"a AUTHENTICATE PLAIN\r\nAGEAYg==\r\nb NOOP\r\n", &["command a AUTHENTICATE PLAIN", "sasl AGEAYg==", "command b NOOP"]),
        (b"a AUTHENTICATE PLAIN\r\n\r\nb NOOP\r\n", &["command a AUTHENTICATE PLAIN", "sasl ", "command b NOOP"]),
        (b"a AUTHENTICATE PLAIN\r\n*\r\n", &["command a AUTHENTICATE PLAIN", "sasl *"]),
        (b"a AUTHENTICATE PLAIN\r\nx\nb NOOP\r\n", &["command a AUTHENTICATE PLAIN", "refused * line does not end with CRLF", "command b NOOP"]),
    ] {
        assert_eq!(frames(input), expected, "{}", input.escape_ascii());
    }
}

#[test]
fn long_lines_are_refused_once() {
    let line = |octets: usize| [b"a ".as_slice(), &vec![b'x'; octets - 2]].concat();
    assert_eq!(frames(&[line(100).as_slice(), b"\r\n"].concat())[0], format!("command a {}", "x".repeat(98)));
    for octets in [101, 102, 103, 140] {
        let input = [line(octets).as_slice(), b"\r\nb NOOP\r\n"].concat();
        assert_eq!(frames(&input), ["refused a command line too long", "command b NOOP"], "{octets}");
        // What the long line announces is skipped, too.
        let input = [line(octets).as_slice(), b" {8+}\r\nx NOOP\r\n y\r\nb NOOP\r\n"].concat();
        assert_eq!(frames(&input), ["refused a command line too long", "command b NOOP"], "{octets}");
    }
    let idle = [b"a IDLE\r\n".as_slice(), &[b'x'; 2000], b"\r\nb NOOP\r\n"].concat();
    assert_eq!(frames(&idle), ["command a IDLE", "refused * expected DONE", "command b NOOP"]);
}

#[test]
fn without_append_limit_everything_is_gathered() {
    let limits = Limits { append_bytes_max: 0, ..limits() };
    assert_eq!(
        frames_of(limits, &[b"a APPEND x {5}\r\nhello\r\n", b"b APPEND x {51+}\r\n"]),
        ["continue", r"command a APPEND x {5}\r\nhello", "refused b literal too long"]
    );
}

/// Endless input before login: a connection keeps less than 32 kB, and nothing when all was consumed.
#[test]
fn memory_is_bounded() {
    for (unit, literal) in
        [("(", false), ("a ", false), ("a LOGIN {4096+}\r\n", true), ("\r\n", false), ("x{9+}\r\n", true)]
    {
        let mut framer = Framer::new(Limits::UNAUTHENTICATED);
        let mut seen = Vec::new();
        let source: Vec<u8> = unit.bytes().cycle().take(1 << 20).collect();
        let mut at = 0;
        while at < source.len() {
            let buffer = framer.read_buffer();
            let room = (buffer.capacity() - buffer.len()).min(source.len() - at);
            buffer.extend_from_slice(&source[at..at + room]);
            at += room;
            assert!(framer.memory() <= 24 << 10, "{unit:?}: {} bytes", framer.memory());
            drain(&mut framer, &mut seen);
            seen.clear();
        }
        assert!(framer.buffered() <= 12 << 10 | usize::from(literal));
    }
    let mut framer = Framer::new(Limits::AUTHENTICATED);
    framer.read_buffer().extend_from_slice(b"a NOOP\r\n");
    drain(&mut framer, &mut Vec::new());
    assert_eq!(framer.memory(), 0);
}

/// A message is handed on as it comes: 8 MiB of it never make the framer hold more than one read.
#[test]
fn messages_are_not_gathered() {
    let mut framer = Framer::new(Limits::AUTHENTICATED);
    framer.feed(b"a APPEND x {8388608}\r\n");
    assert!(matches!(framer.next(), Some(Frame::Append { .. })));
    assert_eq!(framer.next(), None);
    framer.accept_literal();
    let mut left = 8usize << 20;
    let mut passed = 0;
    while left > 0 {
        let buffer = framer.read_buffer();
        let room = (buffer.capacity() - buffer.len()).min(left);
        buffer.resize(buffer.len() + room, b'm');
        left -= room;
        while let Some(Frame::Chunk(chunk)) = framer.next() {
            passed += chunk.len();
        }
        assert!(framer.memory() <= 64 << 10, "{}", framer.memory());
    }
    assert_eq!(passed, 8 << 20);
    framer.feed(b"\r\n");
    assert_eq!(framer.next(), Some(Frame::AppendEnd { well_formed: true }));
}

#[test]
fn refused_amid_the_message() {
    let mut framer = Framer::new(limits());
    framer.feed(b"a APPEND x {9+}\r\n123");
    assert!(matches!(framer.next(), Some(Frame::Append { .. })));
    framer.accept_literal();
    assert!(matches!(framer.next(), Some(Frame::Chunk(_))));
    framer.refuse_literal();
    framer.feed(b"\r\n6789\r\nb NOOP\r\n");
    assert_eq!(framer.next(), Some(Frame::Command(Bytes::from_static(b"b NOOP"))));
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 17] = [
        b"a NOOP\r\n",
        b"b APPEND x ",
        b"c APPEND no ",
        b"d IDLE\r\n",
        b"DONE\r\n",
        b"e AUTHENTICATE X\r\n",
        b"{3}\r\n",
        b"{3+}\r\n",
        b"~{60+}\r\n",
        b"{1001+}\r\n",
        b"{1}\r\n",
        b"abc",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"0123456789012345678901234567890123456789012345",
    ];
    proptest::sample::select(&PIECES[..]).prop_map(<[u8]>::to_vec)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Any split of the input gives the same frames.
    #[test]
    fn splits(pieces in proptest::collection::vec(piece(), 0..20), cuts in proptest::collection::vec(0usize..300, 0..8)) {
        let input = pieces.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (input.len() + 1)).collect();
        cuts.sort_unstable();
        let mut parts = Vec::new();
        let mut from = 0;
        for cut in cuts {
            parts.push(&input[from..cut]);
            from = cut;
        }
        parts.push(&input[from..]);
        let whole = frames_of(limits(), &[&input]);
        prop_assert_eq!(frames_of(limits(), &parts), whole.clone());
        prop_assert_eq!(frames_of(limits(), &input.chunks(1).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn any_octets(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut framer = Framer::new(limits());
        let mut seen = Vec::new();
        for part in input.chunks(7) {
            framer.feed(part);
            drain(&mut framer, &mut seen);
            prop_assert!(framer.buffered() <= 256);
        }
    }
}
