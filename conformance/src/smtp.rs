//! A blocking SMTP client that does what it is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// One connection.
#[derive(Debug)]
pub struct Smtp {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A reply: code and all lines' texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Three digits.
    pub code: u16,
    /// The texts, joined by LF.
    pub text: String,
}

impl Smtp {
    /// Connects, reads the greeting, says EHLO.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        Self::hello(address, "EHLO client.test\r\n")
    }

    /// Connects, reads the greeting, says LHLO.
    pub fn connect_lmtp(address: SocketAddr) -> Result<Self> {
        Self::hello(address, "LHLO client.test\r\n")
    }

    fn hello(address: SocketAddr, hello: &str) -> Result<Self> {
        let mut smtp = Self::open(address)?;
        smtp.expect(220)?;
        smtp.send(hello.as_bytes())?;
        smtp.expect(250)?;
        Ok(smtp)
    }

    /// Connects; reads nothing.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    /// Writes octets as they are.
    pub fn send(&mut self, octets: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(octets)?)
    }

    /// Reads one reply.
    pub fn reply(&mut self) -> Result<Reply> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                bail!("connection closed after {text:?}");
            }
            let line = line.strip_suffix("\r\n").context("a reply line without CRLF")?;
            let code: u16 = line.get(..3).context("short reply")?.parse().with_context(|| format!("reply {line:?}"))?;
            text.push_str(line.get(4..).unwrap_or(""));
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Reply { code, text });
            }
            text.push('\n');
        }
    }

    /// Reads one reply and checks its code.
    pub fn expect(&mut self, code: u16) -> Result<Reply> {
        let reply = self.reply()?;
        if reply.code != code {
            bail!("expected {code}, got {reply:?}");
        }
        Ok(reply)
    }

    /// One command, one reply.
    pub fn command(&mut self, line: &str) -> Result<Reply> {
        self.send(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    /// One whole transaction; the final reply.
    pub fn deliver(&mut self, from: &str, to: &[&str], message: &[u8]) -> Result<Reply> {
        self.begin(from, to)?;
        self.send(&dot_stuffed(message))?;
        self.reply()
    }

    /// MAIL, RCPT…, DATA up to its 354.
    pub fn begin(&mut self, from: &str, to: &[&str]) -> Result<()> {
        let reply = self.command(&format!("MAIL FROM:<{from}>"))?;
        if reply.code != 250 {
            bail!("MAIL: {reply:?}");
        }
        for to in to {
            let reply = self.command(&format!("RCPT TO:<{to}>"))?;
            if reply.code != 250 {
                bail!("RCPT {to}: {reply:?}");
            }
        }
        let reply = self.command("DATA")?;
        if reply.code != 354 {
            bail!("DATA: {reply:?}");
        }
        Ok(())
    }
}

/// The message as DATA sends it: dots doubled, ended by `CRLF . CRLF`.
pub fn dot_stuffed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    for line in message.split_inclusive(|&byte| byte == b'\n') {
        if line.first() == Some(&b'.') {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    if !out.is_empty() && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b".\r\n");
    out
}
