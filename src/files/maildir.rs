//! Maildir and Maildir++: a file per message, flags in the file's name, subfolders as `.Name.Child`.
//!
//! Written with CRLF, octet for octet, and with the time received as the file's modification time; so an exported
//! Maildir brings back exactly what was exported.

use std::fs::{self, File, FileTimes};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::{Found, MESSAGE_BYTES_MAX, Source, date_in_header, name, now_ms, to_crlf};
use crate::admin::client::Outgoing;
use crate::admin::protocol::MessageMeta;

/// Where Dovecot and others keep the names of keywords: lines of `INDEX NAME`, letters `a` to `z` in file names.
const KEYWORDS: &str = "dovecot-keywords";
const KEYWORD_LETTERS: usize = 26;

/// Opens a Maildir with its subfolders.
pub fn open(root: PathBuf) -> anyhow::Result<Source> {
    if !is_maildir(&root) {
        bail!("{} is not a Maildir: it has no directory `cur`", root.display());
    }
    let mut folders = vec![(None, root.clone())];
    for entry in fs::read_dir(&root).with_context(|| format!("cannot read {}", root.display()))? {
        let entry = entry?;
        let folder = entry.file_name().to_string_lossy().into_owned();
        if folder.starts_with('.') && folder.len() > 1 && is_maildir(&entry.path()) {
            folders.push((Some(name::from_folder(&folder)), entry.path()));
        }
    }
    folders.sort();
    let mut total = 0;
    for (_, folder) in &folders {
        total += files(folder).with_context(|| format!("cannot read {}", folder.display()))?.len() as u64;
    }
    let mut progress = 0;
    let messages = folders.into_iter().flat_map(|(mailbox, folder)| {
        let keywords = keywords(&folder);
        // It could be read a moment ago; a folder removed since then is empty.
        let files = files(&folder).unwrap_or_default();
        files.into_iter().map(move |file| (mailbox.clone(), read(&file, &keywords), file))
    });
    let messages = messages.map(move |(mailbox, message, file)| {
        progress += 1;
        Found { mailbox, place: file.display().to_string(), message, progress }
    });
    Ok(Source { total, in_bytes: false, messages: Box::new(messages) })
}

fn is_maildir(path: &Path) -> bool {
    path.join("cur").is_dir()
}

/// The messages of one folder, oldest names first (a name begins with the time of delivery).
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for inside in ["cur", "new"] {
        let directory = match fs::read_dir(folder.join(inside)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in directory {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')) {
                files.push(path);
            }
        }
    }
    files.sort_by_cached_key(|file| sort_key(file));
    Ok(files)
}

/// The leading number as a number, then the name. Our own names hold the uid as `Q<uid>` behind equal times.
fn sort_key(path: &Path) -> (u64, u64, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let sequence = name.split_once('Q').map_or(0, |(_, rest)| number(rest));
    (number(&name), sequence, name)
}

fn keywords(folder: &Path) -> Vec<String> {
    let mut names = vec![String::new(); KEYWORD_LETTERS];
    for line in fs::read_to_string(folder.join(KEYWORDS)).unwrap_or_default().lines() {
        if let Some((index, name)) = line.split_once(' ')
            && let Some(slot) = index.parse().ok().and_then(|index: usize| names.get_mut(index))
        {
            *slot = name.trim().to_owned();
        }
    }
    names
}

fn read(file: &Path, keywords: &[String]) -> Result<Outgoing, String> {
    let info = fs::metadata(file).map_err(|error| error.to_string())?;
    if !info.is_file() {
        return Err("not a file".to_owned());
    }
    if info.len() > MESSAGE_BYTES_MAX {
        return Err(format!("{} bytes are more than {MESSAGE_BYTES_MAX}", info.len()));
    }
    let octets = fs::read(file).map_err(|error| error.to_string())?;
    if octets.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let octets = to_crlf(octets);
    let modified = info.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let received_at_ms = modified.and_then(|time| i64::try_from(time.as_millis()).ok());
    let received_at_ms = received_at_ms.or_else(|| date_in_header(&octets)).unwrap_or_else(now_ms);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let letters = name.rsplit_once(":2,").or_else(|| name.rsplit_once("!2,")).map_or("", |(_, letters)| letters);
    let mut meta = MessageMeta { received_at_ms, ..MessageMeta::default() };
    for letter in letters.chars() {
        match letter {
            'S' | 'R' | 'F' | 'T' | 'D' => meta.flags.push(letter),
            'P' => meta.keywords.push("$Forwarded".to_owned()),
            'a'..='z' => {
                let keyword = &keywords[usize::from(letter as u8 - b'a')];
                if !keyword.is_empty() {
                    meta.keywords.push(keyword.clone());
                }
            }
            _ => {}
        }
    }
    Ok(Outgoing { meta, octets: octets.into() })
}

/// Writes one folder of a Maildir.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    keywords: Vec<String>,
    open: Option<(BufWriter<File>, PathBuf, MessageMeta)>,
}

impl Writer {
    /// The folder of `mailbox` below `root`; the inbox is the root itself.
    pub fn new(root: &Path, mailbox: &str) -> io::Result<Self> {
        let folder = if mailbox == "INBOX" { root.to_owned() } else { root.join(name::to_folder(mailbox)) };
        for inside in ["cur", "new", "tmp"] {
            fs::create_dir_all(folder.join(inside))?;
        }
        if mailbox != "INBOX" {
            File::create(folder.join("maildirfolder"))?;
        }
        Ok(Self { folder, keywords: Vec::new(), open: None })
    }

    /// Begins a message (and ends the one before).
    pub fn begin(&mut self, meta: MessageMeta) -> io::Result<()> {
        self.end()?;
        let mut letters: Vec<char> = meta.flags.chars().filter(|flag| "SRFTD".contains(*flag)).collect();
        for keyword in &meta.keywords {
            let known = self.keywords.iter().position(|known| known.eq_ignore_ascii_case(keyword));
            let index = known.unwrap_or_else(|| {
                self.keywords.push(keyword.clone());
                self.keywords.len() - 1
            });
            if index < KEYWORD_LETTERS {
                letters.push(char::from(b'a' + index as u8));
            }
        }
        letters.sort_unstable();
        let letters: String = letters.into_iter().collect();
        let seconds = meta.received_at_ms.div_euclid(1000).max(0);
        let name = format!("{seconds}.M{}P0Q{}.posthouse:2,{letters}", meta.received_at_ms.rem_euclid(1000), meta.uid);
        let file = BufWriter::new(File::create(self.folder.join("tmp").join(&name))?);
        self.open = Some((file, PathBuf::from(name), meta));
        Ok(())
    }

    /// Octets of the message begun.
    pub fn octets(&mut self, octets: &[u8]) -> io::Result<()> {
        match &mut self.open {
            Some((file, ..)) => file.write_all(octets),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((file, name, meta)) = self.open.take() else { return Ok(()) };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let received = Duration::from_millis(meta.received_at_ms.max(0) as u64);
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + received))?;
        fs::rename(self.folder.join("tmp").join(&name), self.folder.join("cur").join(&name))
    }

    /// Ends the last message; the keywords that found no letter.
    pub fn finish(mut self) -> io::Result<Vec<String>> {
        self.end()?;
        if !self.keywords.is_empty() {
            let lines = self.keywords.iter().take(KEYWORD_LETTERS).enumerate();
            let text: String = lines.map(|(index, keyword)| format!("{index} {keyword}\n")).collect();
            fs::write(self.folder.join(KEYWORDS), text)?;
        }
        Ok(self.keywords.into_iter().skip(KEYWORD_LETTERS).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let root = tempfile::tempdir().unwrap();
        let messages: [(&str, MessageMeta, &[u8]); 4] = [
            (
                "INBOX",
                MessageMeta { flags: "SF".into(), keywords: vec![], received_at_ms: 5_000_123, uid: 9 },
                b"A: b\r\n\r\nx\r\n",
            ),
            ("INBOX", MessageMeta { flags: "".into(), keywords: vec![], received_at_ms: 5_000_123, uid: 10 }, b"\r\n"),
            (
                "Work/Übung",
                MessageMeta { flags: "RTD".into(), keywords: vec!["$x".into()], received_at_ms: 7000, uid: 1 },
                b"A: b\r\n\r\nbare\nand \0 no end",
            ),
            (
                "Work/Übung",
                MessageMeta {
                    flags: "S".into(),
                    keywords: vec!["y".into(), "$x".into()],
                    received_at_ms: 6000,
                    uid: 2,
                },
                b"x",
            ),
        ];
        for mailbox in ["INBOX", "Work/Übung"] {
            let mut writer = Writer::new(root.path(), mailbox).unwrap();
            for (_, meta, octets) in messages.iter().filter(|(of, ..)| *of == mailbox) {
                writer.begin(meta.clone()).unwrap();
                writer.octets(octets).unwrap();
            }
            assert_eq!(writer.finish().unwrap(), Vec::<String>::new());
        }
        let source = open(root.path().to_owned()).unwrap();
        assert_eq!(source.total, 4);
        let found: Vec<Found> = source.messages.collect();
        // Within a folder by time, then uid.
        for (found, &index) in found.iter().zip(&[0, 1, 3, 2]) {
            let (mailbox, meta, octets) = &messages[index];
            assert_eq!(found.mailbox.as_deref().unwrap_or("INBOX"), *mailbox);
            let message = found.message.as_ref().unwrap();
            assert_eq!(message.octets, *octets);
            assert_eq!(message.meta.received_at_ms, meta.received_at_ms);
            let sorted = |text: &str| {
                let mut letters: Vec<char> = text.chars().collect();
                letters.sort_unstable();
                letters
            };
            assert_eq!(sorted(&message.meta.flags), sorted(&meta.flags));
            let mut keywords = (message.meta.keywords.clone(), meta.keywords.clone());
            keywords.0.sort();
            keywords.1.sort();
            assert_eq!(keywords.0, keywords.1);
        }
    }
}
