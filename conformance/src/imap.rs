//! A blocking IMAP client that does what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// One connection.
#[derive(Debug)]
pub struct Imap {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    tag: u32,
}

/// One untagged response: its line with each literal replaced by `{n}`, and the literals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untagged {
    /// Without the leading `* ` and without CRLF; literals cut out.
    pub line: String,
    /// The literals, in order.
    pub literals: Vec<Vec<u8>>,
}

impl Untagged {
    /// `n` and the rest if this is `* n NAME …`.
    pub fn numbered(&self, name: &str) -> Option<(u32, &str)> {
        let (number, rest) = self.line.split_once(' ')?;
        let number = number.parse().ok()?;
        let rest = rest.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with(' ')).then(|| (number, rest.trim_start()))
    }

    /// The number that follows `item ` in a FETCH response.
    pub fn item_number(&self, item: &str) -> Option<u64> {
        let at = self.line.find(&format!("{item} "))? + item.len() + 1;
        let digits: String = self.line[at..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }
}

/// What a command brought.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Untagged responses, in order.
    pub untagged: Vec<Untagged>,
    /// The tagged line without its tag: `OK …`, `NO …`, `BAD …`.
    pub tagged: String,
}

impl Answer {
    /// True for OK.
    pub fn ok(&self) -> bool {
        self.tagged.starts_with("OK")
    }
}

impl Imap {
    /// Connects and reads the greeting.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        let reader = BufReader::new(stream.try_clone()?);
        let mut imap = Self { stream, reader, tag: 0 };
        let greeting = imap.response()?;
        if !greeting.line.starts_with("* OK") {
            bail!("greeting {greeting:?}");
        }
        Ok(imap)
    }

    /// Connects and logs in.
    pub fn login(address: SocketAddr, user: &str, password: &str) -> Result<Self> {
        let mut imap = Self::connect(address)?;
        imap.ok(&format!("LOGIN \"{user}\" \"{password}\""))?;
        Ok(imap)
    }

    /// Writes octets as they are.
    pub fn send(&mut self, octets: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(octets)?)
    }

    /// How long reads wait.
    pub fn read_timeout(&mut self, limit: Duration) -> Result<()> {
        Ok(self.stream.set_read_timeout(Some(limit))?)
    }

    /// One whole response, as it stands (`line` keeps `* `, `+ ` or the tag).
    pub fn response(&mut self) -> Result<Untagged> {
        let mut line = String::new();
        let mut literals = Vec::new();
        loop {
            let mut piece = Vec::new();
            if self.reader.read_until(b'\n', &mut piece)? == 0 {
                bail!("connection closed after {line:?}");
            }
            let piece = piece.strip_suffix(b"\r\n").context("a response line without CRLF")?;
            line.push_str(&String::from_utf8_lossy(piece));
            let Some(size) = literal_size(piece) else { return Ok(Untagged { line, literals }) };
            let mut literal = vec![0; size];
            self.reader.read_exact(&mut literal)?;
            literals.push(literal);
        }
    }

    /// Sends a command and reads up to its tagged answer.
    pub fn command(&mut self, command: &str) -> Result<Answer> {
        let tag = self.start(command)?;
        self.finish(&tag)
    }

    /// Sends a command without waiting; its tag.
    pub fn start(&mut self, command: &str) -> Result<String> {
        self.tag += 1;
        let tag = format!("t{}", self.tag);
        self.send(format!("{tag} {command}\r\n").as_bytes())?;
        Ok(tag)
    }

    /// Reads up to the answer to `tag`.
    pub fn finish(&mut self, tag: &str) -> Result<Answer> {
        let mut untagged = Vec::new();
        loop {
            let mut response = self.response()?;
            if let Some(rest) = response.line.strip_prefix("* ") {
                response.line = rest.to_owned();
                untagged.push(response);
            } else if let Some(tagged) = response.line.strip_prefix(tag).and_then(|rest| rest.strip_prefix(' ')) {
                return Ok(Answer { untagged, tagged: tagged.to_owned() });
            } else {
                bail!("unexpected {response:?} while waiting for {tag}");
            }
        }
    }

    /// A command that must be answered OK.
    pub fn ok(&mut self, command: &str) -> Result<Answer> {
        let answer = self.command(command)?;
        if !answer.ok() {
            bail!("{command}: {}", answer.tagged);
        }
        Ok(answer)
    }

    /// APPEND with a non-synchronizing literal.
    pub fn append(&mut self, mailbox: &str, arguments: &str, message: &[u8]) -> Result<Answer> {
        self.tag += 1;
        let tag = format!("t{}", self.tag);
        self.send(format!("{tag} APPEND \"{mailbox}\" {arguments}{{{}+}}\r\n", message.len()).as_bytes())?;
        self.send(message)?;
        self.send(b"\r\n")?;
        self.finish(&tag)
    }

    /// SELECTs; the number of messages.
    pub fn select(&mut self, mailbox: &str) -> Result<u32> {
        let answer = self.ok(&format!("SELECT \"{mailbox}\""))?;
        answer.untagged.iter().find_map(|line| line.numbered("EXISTS")).map(|(n, _)| n).context("no EXISTS")
    }

    /// Every uid of the selected mailbox with the FETCH `items` asked for.
    pub fn uid_fetch_all(&mut self, items: &str) -> Result<Vec<Untagged>> {
        let answer = self.ok(&format!("UID FETCH 1:* {items}"))?;
        Ok(answer.untagged.into_iter().filter(|line| line.numbered("FETCH").is_some()).collect())
    }
}

fn literal_size(line: &[u8]) -> Option<usize> {
    let inner = line.strip_suffix(b"}")?;
    let open = inner.iter().rposition(|&byte| byte == b'{')?;
    std::str::from_utf8(&inner[open + 1..]).ok()?.parse().ok()
}
