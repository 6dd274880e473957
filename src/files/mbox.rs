//! mbox in its reversible form ("mboxrd"): `From ` lines between messages, `>` before what looks like one, flags in
//! Status and X-Status fields.
//!
//! Lines end with LF in the file. A message with a bare LF of its own is written octet for octet instead, so it comes
//! back as it was; only a last line without an end gets one. Status, X-Status and X-Keywords fields belong to the
//! file: they are read and left out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{Found, MESSAGE_BYTES_MAX, Source, date_in_header, header, now_ms, to_crlf};
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
    let octets = to_crlf(kept);
    meta.received_at_ms = date_of_from(from).or_else(|| date_in_header(&octets)).unwrap_or_else(now_ms);
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

/// `From SENDER Thu Jan  1 00:00:02 1970`, in UTC.
fn date_of_from(line: &[u8]) -> Option<i64> {
    let line = std::str::from_utf8(line).ok()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    // Behind the year some write a zone; it is not needed often enough to be guessed at.
    let year = words.iter().rposition(|word| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit()))?;
    let date = words.get(year.checked_sub(3)?..=year)?.join(" ");
    let date = jiff::fmt::strtime::parse("%b %d %H:%M:%S %Y", date).ok()?.to_datetime().ok()?;
    jiff::tz::TimeZone::UTC.to_timestamp(date).ok().map(jiff::Timestamp::as_millisecond)
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
        writeln!(self.file, "From MAILER-DAEMON {}", date.strftime("%a %b %e %H:%M:%S %Y"))?;
        let crlf_only =
            octets.iter().enumerate().all(|(at, &byte)| byte != b'\n' || (at > 0 && octets[at - 1] == b'\r'));
        let line_end: &[u8] = if crlf_only { b"\n" } else { b"\r\n" };
        let head = header(&octets).len();
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

    #[test]
    fn files_of_others() {
        let text = b"From a@b.test Thu Jan  1 00:00:02 1970\nStatus: RO\nSubject: one\n\nFrom inside, no empty line\n\
                     text\nFrom the middle\n\nFrom  - Thu Jan  1 00:00:03 1970 +0100\r\nX-Status: A\r\n\r\nCRLF\r\n\r\n\
                     From nobody\nDate: Thu, 1 Jan 1970 00:00:04 +0000\n\nlast, no end";
        let found: Vec<Outgoing> = read(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].octets, &b"Subject: one\r\n"[..], "an empty line and `From ` begin a message");
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
