//! Starts the built binary and talks to it over plain sockets; knows nothing of its insides.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "a part of each test file, which uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub const PASSWORD: &str = "correct horse";

/// A command that has the binary's environment clean of configuration.
pub fn posthouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthouse"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("POSTHOUSE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(arguments: &[&str]) -> Output {
    run_with_input(arguments, "")
}

/// Runs a command that reads `input`.
pub fn run_with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = posthouse();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that ends without reading is fine.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            drop(child.kill());
            panic!("{arguments:?} still runs after 60 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs a command that must end with `code`; its standard output and error.
pub fn expect(code: i32, arguments: &[&str]) -> (String, String) {
    check(code, arguments, run(arguments))
}

/// The same with input.
pub fn expect_with_input(code: i32, arguments: &[&str], input: &str) -> (String, String) {
    check(code, arguments, run_with_input(arguments, input))
}

fn check(code: i32, arguments: &[&str], output: Output) -> (String, String) {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?} said {out:?} and {error:?}");
    (out.into_owned(), error.into_owned())
}

/// The first of eight ports that are free at this moment.
pub fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // Below the ephemeral range, with a start of its own for each test process.
        let slot = (std::process::id() as u16).wrapping_mul(53).wrapping_add(step) % 600;
        let base = 27_000 + slot * 8;
        if (base..base + 8).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

/// A process that is killed when dropped, also by a test that fails.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Killed,
    pub base: u16,
    pub ready: serde_json::Value,
}

impl Server {
    /// `posthouse try` over `data`.
    pub fn trial(data: &Path) -> Self {
        Self::start(&["--data", data.to_str().unwrap(), "--password", PASSWORD])
    }

    /// `posthouse try --json` with more arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let mut said = String::new();
        for _ in 0..5 {
            let base = free_ports();
            let mut command = posthouse();
            command.args(["try", "--json", "--ports-from", &base.to_string()]).args(arguments);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            if let Ok(ready) = serde_json::from_str(&line) {
                // Nobody reads its log; it is small.
                return Self { child: Killed(child), base, ready };
            }
            said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
            // Somebody else was quicker to take a port: try others.
            if !said.contains("is taken") {
                break;
            }
        }
        panic!("the server did not start: {said}");
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.pid().to_string()]).status().unwrap().success());
    }

    /// SIGTERM; the exit code.
    pub fn terminate(&mut self) -> i32 {
        self.signal("-TERM");
        self.wait()
    }

    /// Waits for the end; the exit code.
    pub fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status.code().expect("it ends by itself");
            }
            assert!(Instant::now() < deadline, "still running after 30 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn smtp(&self) -> Dialogue {
        Dialogue::connect(self.base)
    }

    pub fn imap(&self) -> Dialogue {
        Dialogue::connect(self.base + 4)
    }

    /// GETs a path by HTTP; the whole response.
    pub fn http(&self, path: &str) -> String {
        let mut dialogue = Dialogue::connect(self.base + 6);
        dialogue.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
        let mut response = String::new();
        dialogue.reader.read_to_string(&mut response).unwrap();
        response
    }
}

/// A line-based connection.
pub struct Dialogue {
    stream: TcpStream,
    pub reader: BufReader<TcpStream>,
}

impl Dialogue {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub fn send(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.reader.read_line(&mut line).unwrap() > 0, "connection closed");
        line
    }

    /// One SMTP reply, all its lines, which must have this code.
    pub fn reply(&mut self, code: u16) -> String {
        let mut text = String::new();
        loop {
            let line = self.line();
            text.push_str(&line);
            assert!(line.starts_with(&code.to_string()), "expected {code}: {text}");
            if line.as_bytes()[3] == b' ' {
                return text;
            }
        }
    }

    pub fn smtp(&mut self, command: &str, code: u16) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        self.reply(code)
    }

    /// Reads up to the tagged answer; all lines, with literals in place.
    pub fn imap(&mut self, command: &str) -> Vec<u8> {
        self.send(format!("t {command}\r\n").as_bytes());
        let mut seen = Vec::new();
        loop {
            let start = seen.len();
            assert!(self.reader.read_until(b'\n', &mut seen).unwrap() > 0, "connection closed");
            let line = &seen[start..];
            if line.starts_with(b"t ") {
                assert!(line.starts_with(b"t OK"), "{command}: {}", String::from_utf8_lossy(&seen));
                return seen;
            }
            let literal = line.strip_suffix(b"}\r\n").and_then(|line| {
                let open = line.iter().rposition(|&byte| byte == b'{')?;
                std::str::from_utf8(&line[open + 1..]).ok()?.parse::<usize>().ok()
            });
            if let Some(size) = literal {
                let start = seen.len();
                seen.resize(start + size, 0);
                self.reader.read_exact(&mut seen[start..]).unwrap();
            }
        }
    }
}

/// The one literal of an IMAP answer.
pub fn literal(answer: &[u8]) -> &[u8] {
    let line_end = answer.windows(3).position(|bytes| bytes == b"}\r\n").expect("a literal");
    let open = answer[..line_end].iter().rposition(|&byte| byte == b'{').unwrap();
    let size: usize = std::str::from_utf8(&answer[open + 1..line_end]).unwrap().parse().unwrap();
    &answer[line_end + 3..line_end + 3 + size]
}
