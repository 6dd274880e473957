//! mbox in its reversible form ("mboxrd"): `From ` lines between messages, `>` before what looks like one, flags in
//! Status and X-Status fields.
//!
//! Lines end with LF in the file. A message with a bare LF of its own is written octet for octet instead, behind a
//! `From ` line that ends with CRLF, so it comes back as it was; only a last line without an end gets one. Status,
//! X-Status and X-Keywords fields belong to the file: they are read and left out.
//!
//! The `From ` line holds the envelope's sender and the time received. A message that has no Return-Path of its own
//! gets one from it (RFC 5321 §4.4 puts it in front); the other way round the line is written from Return-Path.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{Found, MESSAGE_BYTES_MAX, Source, date_in_header, field, header, now_ms, to_crlf};
use crate::admin::client::Outgoing;
use crate::admin::protocol::MessageMeta;

/// Opens an mbox file.
pub fn open(path: PathBuf) -> anyhow::Result<Source> {
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let total = file.metadata()?.len();
    let mut messages = Reader { input: BufReader::with_capacity(1 << 18, file), path, line: 0, read: 0, from: None };
    let first = messages.input.fill_buf().context("cannot read the mbox file")?;
    if !first.is_empty() && !first.starts_with(b"From ") {
        bail!("{} is not an mbox file: it does not begin with `From `", messages.path.display());
    }
    Ok(Source { total, in_bytes: true, messages: Box::new(messages) })
}

struct Reader<R> {
    input: R,
    path: PathBuf,
    line: u64,
    read: u64,
    /// The `From ` line of the message that comes next.
    from: Option<Vec<u8>>,
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let from = match self.from.take() {
            Some(from) => from,
            None => {
                let mut line = Vec::new();
                match self.take_line(&mut line) {
                    Ok(true) => line,
                    Ok(false) => return None,
                    Err(error) => return Some(self.broken(&error)),
                }
            }
        };
        let place = format!("{}:{}", self.path.display(), self.line);
        let mut octets = Vec::new();
        let mut too_long = false;
        // An empty line is held back: before a `From ` line, or at the end, it belongs to the file.
        let mut held: Option<Vec<u8>> = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            match self.take_line(&mut line) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Some(self.broken(&error)),
            }
            if line.starts_with(b"From ") && (held.is_some() || octets.is_empty()) {
                self.from = Some(line);
                break;
            }
            if let Some(empty) = held.take() {
                octets.extend_from_slice(&empty);
            }
            if matches!(line.as_slice(), b"\n" | b"\r\n") {
                held = Some(line.clone());
                continue;
            }
            too_long |= octets.len() as u64 > MESSAGE_BYTES_MAX;
            if !too_long {
                octets.extend_from_slice(unquoted(&line));
            }
        }
        let message = if too_long {
            Err(format!("more than {MESSAGE_BYTES_MAX} bytes"))
        } else if octets.is_empty() && held.is_none() {
            Err("the message is empty".to_owned())
        } else {
            Ok(taken(&from, octets))
        };
        Some(Found { mailbox: None, place, message, progress: self.read })
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads a line, at most a message long; false at the end.
    fn take_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let read = io::Read::take(&mut self.input, MESSAGE_BYTES_MAX + 1).read_until(b'\n', line)? as u64;
        self.read += read;
        self.line += 1;
        Ok(read > 0)
    }

    /// The file cannot be read on: said once, as the last message.
    fn broken(&mut self, error: &io::Error) -> Found {
        self.from = None;
        let place = format!("{}:{}", self.path.display(), self.line);
        Found { mailbox: None, place, message: Err(format!("cannot read on: {error}")), progress: self.read }
    }
}

/// A line without the `>` that quoting added.
fn unquoted(line: &[u8]) -> &[u8] {
    if line.first() == Some(&b'>') && is_from(line) { &line[1..] } else { line }
}

/// Any number of `>`, then `From `.
fn is_from(line: &[u8]) -> bool {
    let start = line.iter().position(|&byte| byte != b'>').unwrap_or(line.len());
    line[start..].starts_with(b"From ")
}

fn taken(from: &[u8], octets: Vec<u8>) -> Outgoing {
    let mut meta = MessageMeta::default();
    let end = header(&octets).len();
    let mut kept = Vec::with_capacity(octets.len());
    let mut dropping = false;
    for line in octets[..end].split_inclusive(|&byte| byte == b'\n') {
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            if !dropping {
                kept.extend_from_slice(line);
            }
            continue;
        }
        dropping = status_field(line, &mut meta);
        if !dropping {
            kept.extend_from_slice(line);
        }
    }
    kept.extend_from_slice(&octets[end..]);
    let mut octets = if from.ends_with(b"\r\n") { kept } else { to_crlf(kept) };
    let from = FromLine::parse(from);
    meta.received_at_ms = from.received_at_ms.or_else(|| date_in_header(&octets)).unwrap_or_else(now_ms);
    if let Some(sender) = from.sender
        && field(header(&octets), "return-path").is_none()
    {
        octets.splice(..0, format!("Return-Path: <{sender}>\r\n").into_bytes());
    }
    Outgoing { meta, octets: octets.into() }
}

/// Reads a Status, X-Status or X-Keywords field into `meta`; false for any other line.
fn status_field(line: &[u8], meta: &mut MessageMeta) -> bool {
    let Some((name, value)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(':')) else {
        return false;
    };
    let mut flag = |letter: char, flag: char| {
        if value.contains(letter) && !meta.flags.contains(flag) {
            meta.flags.push(flag);
        }
    };
    match name.to_ascii_lowercase().as_str() {
        "status" => flag('R', 'S'),
        "x-status" => [('A', 'R'), ('F', 'F'), ('D', 'T'), ('T', 'D')].into_iter().for_each(|(is, to)| flag(is, to)),
        "x-keywords" => meta.keywords.extend(value.split_whitespace().map(str::to_owned)),
        _ => return false,
    }
    true
}

/// What a `From ` line says: `From SENDER Thu Jan  1 00:00:02 1970`, in UTC unless an offset stands before or behind
/// the year.
#[derive(Debug, Default, PartialEq, Eq)]
struct FromLine {
    /// A sender that is an address; others stand for none (`MAILER-DAEMON`, `-`) or for nothing at all.
    sender: Option<String>,
    received_at_ms: Option<i64>,
}

impl FromLine {
    fn parse(line: &[u8]) -> Self {
        let Ok(line) = std::str::from_utf8(line) else { return Self::default() };
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_time =
            |word: &&str| word.contains(':') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
        // Weekday, month and day stand before the time.
        let time = words.iter().rposition(is_time).filter(|&at| at >= 4);
        let sender = match (words.get(1), time) {
            (Some(&sender), Some(5) | None) if is_address(sender) => Some(sender.to_owned()),
            _ => None,
        };
        Self { sender, received_at_ms: time.and_then(|at| Self::moment(&words, at)) }
    }

    fn moment(words: &[&str], time: usize) -> Option<i64> {
        let behind = &words[time + 1..];
        let year = behind.iter().find(|word| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit()))?;
        let offset = behind.iter().find(|word| word.len() == 5 && word.starts_with(['+', '-'])).unwrap_or(&"+0000");
        let seconds = if words[time].matches(':').count() == 1 { ":00" } else { "" };
        let text = format!("{} {} {}{seconds} {year} {offset}", words[time - 2], words[time - 1], words[time]);
        let moment = jiff::fmt::strtime::parse("%b %d %H:%M:%S %Y %z", text).ok()?.to_timestamp().ok()?;
        Some(moment.as_millisecond())
    }
}

/// True for what can stand in a Return-Path and in a `From ` line alike: no spaces, no quotes, a domain with a dot.
/// Some programs write numbers of their own there, as `17…@xxx`.
fn is_address(word: &str) -> bool {
    let plain = word.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>()\"\\,;".contains(&byte));
    let domain = word.rsplit_once('@').filter(|(local, _)| !local.is_empty()).map(|(_, domain)| domain);
    plain && domain.is_some_and(|domain| domain.trim_matches('.').contains('.'))
}

/// Writes an mbox file.
#[derive(Debug)]
pub struct Writer {
    file: BufWriter<File>,
    open: Option<(MessageMeta, Vec<u8>)>,
}

impl Writer {
    /// Makes the file of `mailbox` in the directory `root`.
    pub fn new(root: &Path, mailbox: &str) -> io::Result<Self> {
        // Levels are not directories: a name is a file's name.
        let name =
            if mailbox == "INBOX" { "INBOX".to_owned() } else { super::name::to_folder(mailbox)[1..].to_owned() };
        let file = File::options().write(true).create_new(true).open(root.join(format!("{name}.mbox")))?;
        Ok(Self { file: BufWriter::new(file), open: None })
    }

    /// Begins a message (and ends the one before).
    pub fn begin(&mut self, meta: MessageMeta) -> io::Result<()> {
        self.end()?;
        self.open = Some((meta, Vec::new()));
        Ok(())
    }

    /// Octets of the message begun; held until it is whole, since its line ends decide how it is written.
    pub fn octets(&mut self, octets: &[u8]) {
        if let Some((_, held)) = &mut self.open {
            held.extend_from_slice(octets);
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((meta, octets)) = self.open.take() else { return Ok(()) };
        let date = jiff::Timestamp::from_millisecond(meta.received_at_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        // A CR before a line's end would be taken for a part of it.
        let crlf_only = octets.split_inclusive(|&byte| byte == b'\n').all(|line| match line.strip_suffix(b"\n") {
            Some(line) => line.ends_with(b"\r") && !line.ends_with(b"\r\r"),
            None => !line.ends_with(b"\r"),
        });
        let line_end: &[u8] = if crlf_only { b"\n" } else { b"\r\n" };
        let head = header(&octets).len();
        let path = field(&octets[..head], "return-path").unwrap_or_default();
        let sender = path.trim().trim_start_matches('<').trim_end_matches('>').trim();
        let sender = if is_address(sender) { sender } else { "MAILER-DAEMON" };
        write!(self.file, "From {sender} {}", date.strftime("%a %b %e %H:%M:%S %Y"))?;
        self.file.write_all(line_end)?;
        let mut at = 0;
        let mut status_written = false;
        for line in octets.split_inclusive(|&byte| byte == b'\n') {
            let ends_header = at < head && matches!(line, b"\r\n" | b"\n");
            if ends_header {
                self.status(&meta, line_end)?;
                status_written = true;
            }
            at += line.len();
            if is_from(line) {
                self.file.write_all(b">")?;
            }
            match line.strip_suffix(b"\r\n") {
                Some(text) if crlf_only => {
                    self.file.write_all(text)?;
                    self.file.write_all(b"\n")?;
                }
                _ => self.file.write_all(line)?,
            }
        }
        if !octets.ends_with(b"\n") {
            self.file.write_all(line_end)?;
        }
        if !status_written && head == octets.len() {
            // A header that nothing ends: the fields go behind it.
            self.status(&meta, line_end)?;
        }
        self.file.write_all(b"\n")
    }

    fn status(&mut self, meta: &MessageMeta, line_end: &[u8]) -> io::Result<()> {
        let has = |flag: char| meta.flags.contains(flag);
        let mut field = |name: &str, value: String| -> io::Result<()> {
            if value.is_empty() {
                return Ok(());
            }
            self.file.write_all(format!("{name}: {value}").as_bytes())?;
            self.file.write_all(line_end)
        };
        field("Status", if has('S') { "RO" } else { "O" }.to_owned())?;
        let letters = [('R', 'A'), ('F', 'F'), ('T', 'D'), ('D', 'T')];
        field("X-Status", letters.into_iter().filter(|&(flag, _)| has(flag)).map(|(_, letter)| letter).collect())?;
        field("X-Keywords", meta.keywords.join(" "))
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> Vec<Result<Outgoing, String>> {
        let reader = Reader { input: text, path: "x".into(), line: 0, read: 0, from: None };
        reader.map(|found| found.message).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let meta = |flags: &str, keywords: &[&str], received_at_ms| MessageMeta {
            flags: flags.to_owned(),
            keywords: keywords.iter().map(|&keyword| keyword.to_owned()).collect(),
            received_at_ms,
            uid: 0,
        };
        let messages: [(MessageMeta, &[u8]); 7] = [
            (meta("", &[], 0), b"A: b\r\n\r\nbody\r\n"),
            (meta("SRFTD", &["$x", "y"], 1_700_000_000_000), b"A: b\r\n\r\nFrom me\r\n>From you\r\n\r\n\r\nFrom x\r\n"),
            (meta("S", &[], 1000), b"A: b\r\n\r\n"),
            (meta("", &[], 1000), b"A: b\r\n c\r\n\r\n\r\n\r\n"),
            (meta("F", &[], 1000), b"A: b\r\n\r\nbare\nLF\r\nand bare\rCR\r\n"),
            (meta("", &[], 1000), b"\r\nno header\r\n"),
            (meta("S", &[], 1000), b"From: x\r\nFrom x\r\n\r\nlast\r\n"),
        ];
        let mut writer = Writer::new(directory.path(), "INBOX").unwrap();
        for (meta, octets) in &messages {
            writer.begin(meta.clone()).unwrap();
            for piece in octets.chunks(3) {
                writer.octets(piece);
            }
        }
        writer.finish().unwrap();
        let text = std::fs::read(directory.path().join("INBOX.mbox")).unwrap();
        let found = read(&text);
        for (found, (meta, octets)) in found.iter().zip(&messages) {
            let found = found.as_ref().unwrap();
            assert_eq!(found.octets, *octets, "{}", String::from_utf8_lossy(octets));
            assert_eq!(&found.meta, meta);
        }
        assert_eq!(found.len(), messages.len());
    }

    /// What any message looks like as lines: of its header, of its body, and how they end.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            Just("From ".to_owned()),
            Just("From a@b.test Thu Jan  1 00:00:02 1970".to_owned()),
            Just(">From x".to_owned()),
            Just(">>>From ".to_owned()),
            Just("> From x".to_owned()),
            Just(String::new()),
            Just("\r".to_owned()),
            Just("Status: RO".to_owned()),
            "[ -~]{0,20}",
        ];
        let field = prop_oneof![
            Just("Return-Path: <ann@example.org>".to_owned()),
            Just("Return-Path: <>".to_owned()),
            Just("return-path:\tann@example.org".to_owned()),
            Just("From: bo@example.org".to_owned()),
            Just(">From inside the header".to_owned()),
            Just(" folded: From x".to_owned()),
            "[A-Z][a-z]{1,5}: [ -~]{0,20}",
        ];
        let end = prop_oneof![9 => Just("\r\n"), 1 => Just("\n")];
        let fields = proptest::collection::vec((field, end.clone()), 1..5);
        let lines = proptest::collection::vec((line, end), 0..8);
        (fields, proptest::option::of(lines)).prop_map(|(fields, lines)| {
            let mut octets = String::new();
            fields.iter().for_each(|(field, end)| octets.extend([field, *end]));
            if let Some(lines) = lines {
                octets.push_str("\r\n");
                lines.iter().for_each(|(line, end)| octets.extend([line, *end]));
            }
            octets.into_bytes()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_messages_come_back(messages in proptest::collection::vec((message(), 0_i64..253_402_300_799, "S?R?F?T?D?"), 1..4)) {
            let directory = tempfile::tempdir().unwrap();
            let mut writer = Writer::new(directory.path(), "INBOX").unwrap();
            for (octets, seconds, flags) in &messages {
                writer.begin(MessageMeta { flags: flags.clone(), received_at_ms: seconds * 1000, ..MessageMeta::default() }).unwrap();
                writer.octets(octets);
            }
            writer.finish().unwrap();
            let text = std::fs::read(directory.path().join("INBOX.mbox")).unwrap();
            let found = read(&text);
            prop_assert_eq!(found.len(), messages.len(), "{}", String::from_utf8_lossy(&text));
            for (found, (octets, seconds, flags)) in found.iter().zip(&messages) {
                let found = found.as_ref().unwrap();
                prop_assert_eq!(&found.octets[..], &octets[..], "{}", String::from_utf8_lossy(&text));
                prop_assert_eq!(found.meta.received_at_ms, seconds * 1000);
                prop_assert_eq!(&found.meta.flags, flags);
            }
        }
    }

    #[test]
    fn from_lines() {
        let cases = [
            ("From a@b.test Thu Jan  1 00:00:02 1970", Some("a@b.test"), Some(2000)),
            ("From a@b.test Thu Jan  1 00:00 1970", Some("a@b.test"), Some(0)),
            ("From a@b.test Thu Jan 01 01:00:02 1970 +0100", Some("a@b.test"), Some(2000)),
            ("From a@b.test Thu Jan 01 01:00:02 +0100 1970", Some("a@b.test"), Some(2000)),
            ("From a@b.test Thu Jan 01 00:00:02 GMT 1970", Some("a@b.test"), Some(2000)),
            ("From a@b.test", Some("a@b.test"), None),
            ("From a@b.test yesterday", Some("a@b.test"), None),
            ("From - Thu Jan  1 00:00:02 1970", None, Some(2000)),
            ("From MAILER-DAEMON Thu Jan  1 00:00:02 1970", None, Some(2000)),
            ("From 1700000000000000000@xxx Thu Jan 01 00:00:02 +0000 1970", None, Some(2000)),
            ("From <a@b.test> Thu Jan  1 00:00:02 1970", None, Some(2000)),
            ("From \"a b\"@b.test Thu Jan  1 00:00:02 1970", None, Some(2000)),
            ("From a@b.test Thu Jan 99 00:00:02 1970", Some("a@b.test"), None),
            ("From ", None, None),
            ("From 00:00:02 1970", None, None),
        ];
        for (line, sender, received_at_ms) in cases {
            let expected = FromLine { sender: sender.map(str::to_owned), received_at_ms };
            assert_eq!(FromLine::parse(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn the_senders_way_back_is_kept() {
        let text = b"From ann@example.org Thu Jan  1 00:00:02 1970\nSubject: x\n\ny\n\n\
                     From ann@example.org Thu Jan  1 00:00:02 1970\nReturn-Path: <bo@example.org>\n\ny\n\n\
                     From MAILER-DAEMON Thu Jan  1 00:00:02 1970\nSubject: x\n\ny\n";
        let found: Vec<_> = read(text).into_iter().map(|found| found.unwrap().octets).collect();
        assert_eq!(found[0], &b"Return-Path: <ann@example.org>\r\nSubject: x\r\n\r\ny\r\n"[..]);
        assert_eq!(found[1], &b"Return-Path: <bo@example.org>\r\n\r\ny\r\n"[..]);
        assert_eq!(found[2], &b"Subject: x\r\n\r\ny\r\n"[..]);

        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(directory.path(), "INBOX").unwrap();
        for octets in &found {
            writer.begin(MessageMeta { received_at_ms: 2000, ..MessageMeta::default() }).unwrap();
            writer.octets(octets);
        }
        writer.finish().unwrap();
        let text = std::fs::read_to_string(directory.path().join("INBOX.mbox")).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("From ")).collect();
        let line = |sender: &str| format!("From {sender} Thu Jan  1 00:00:02 1970");
        assert_eq!(lines, [line("ann@example.org"), line("bo@example.org"), line("MAILER-DAEMON")]);
    }

    #[test]
    fn files_of_others() {
        let text = b"From a@b.test Thu Jan  1 00:00:02 1970\nStatus: RO\nSubject: one\n\nFrom inside, no empty line\n\
                     text\nFrom the middle\n\nFrom  - Thu Jan  1 00:00:03 1970 +0100\r\nX-Status: A\r\n\r\nCRLF\r\n\r\n\
                     From nobody\nDate: Thu, 1 Jan 1970 00:00:04 +0000\n\nlast, no end";
        let found: Vec<Outgoing> = read(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(
            found[0].octets,
            &b"Return-Path: <a@b.test>\r\nSubject: one\r\n"[..],
            "an empty line and `From ` begin a message"
        );
        assert_eq!((found[0].meta.flags.as_str(), found[0].meta.received_at_ms), ("S", 2000));
    }

    #[test]
    fn nothing_and_garbage() {
        assert!(read(b"").is_empty());
        assert!(read(b"From \n").into_iter().all(|message| message.is_err()));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        std::fs::write(&path, "no mbox").unwrap();
        assert!(open(path).is_err_and(|error| error.to_string().contains("not an mbox file")));
    }
}
