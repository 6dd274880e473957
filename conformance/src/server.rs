//! Starts, stops and kills the built `posthouse` binary.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The demo accounts' password in all tests.
pub const PASSWORD: &str = "correct horse";
/// The demo accounts.
pub const ALICE: &str = "alice@example.test";
/// The second demo account.
pub const BOB: &str = "bob@example.test";

/// Where the binary under test is: `POSTHOUSE_BIN`, else beside the running test's own target directory.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("POSTHOUSE_BIN") {
        return Ok(path.into());
    }
    let exe = std::env::current_exe()?;
    let beside = exe.ancestors().skip(1).take(2).map(|dir| dir.join("posthouse")).find(|path| path.is_file());
    beside.context("the posthouse binary is not built: run `cargo build --ignore-rust-version`, or set POSTHOUSE_BIN")
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// First of its eight ports.
    pub base: u16,
    /// Its data directory.
    pub data: PathBuf,
}

/// A base port with eight free ports from there on. Only a snapshot: somebody else may take them before use, so
/// [`Server::start`] tries again.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // A start of its own for each test process, below the ephemeral range.
        let slot = (std::process::id() as u16).wrapping_mul(37).wrapping_add(step) % 1800;
        let base = 12_000 + slot * 8;
        if (base..base + 8).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

impl Server {
    /// Starts `posthouse try` on free loopback ports over `data`, and waits until everything listens.
    pub fn start(data: &Path) -> Result<Self> {
        Self::start_with(data, &[])
    }

    /// As [`Server::start`], with environment variables (configuration overrides).
    pub fn start_with(data: &Path, env: &[(&str, &str)]) -> Result<Self> {
        let mut last = String::new();
        for _ in 0..5 {
            match Self::start_at(data, free_ports(), env) {
                Ok(server) => return Ok(server),
                Err(error) => last = format!("{error:#}"),
            }
        }
        bail!("the server did not start: {last}")
    }

    /// Starts at fixed ports.
    pub fn start_at(data: &Path, base: u16, env: &[(&str, &str)]) -> Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(data.with_extension("log"))?;
        let mut child = Command::new(binary()?)
            .args(["try", "--json", "--password", PASSWORD, "--ports-from", &base.to_string(), "--data"])
            .arg(data)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot run the posthouse binary")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let ready: serde_json::Value = match serde_json::from_str(&line) {
            Ok(value) => value,
            Err(_) => {
                let status = child.wait()?;
                let log = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
                bail!("exit {status}, said {line:?}; log ends: {}", &log[log.len().saturating_sub(1500)..]);
            }
        };
        if ready["ready"] != true {
            bail!("not ready: {line}");
        }
        Ok(Self { child, base, data: data.to_owned() })
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn port(&self, offset: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.base + offset))
    }
    /// SMTP (MX).
    pub fn smtp(&self) -> SocketAddr {
        self.port(0)
    }
    /// Submission.
    pub fn submission(&self) -> SocketAddr {
        self.port(1)
    }
    /// Submission with implicit TLS.
    pub fn submissions(&self) -> SocketAddr {
        self.port(2)
    }
    /// LMTP.
    pub fn lmtp(&self) -> SocketAddr {
        self.port(3)
    }
    /// IMAP.
    pub fn imap(&self) -> SocketAddr {
        self.port(4)
    }
    /// IMAP with implicit TLS.
    pub fn imaps(&self) -> SocketAddr {
        self.port(5)
    }
    /// HTTP.
    pub fn http(&self) -> SocketAddr {
        self.port(6)
    }

    /// True while the process runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, and wait for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and wait (bounded) for the exit code.
    pub fn terminate(&mut self) -> Result<i32> {
        let ok = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?.success();
        if !ok {
            bail!("kill -TERM failed");
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return status.code().context("ended by a signal");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("still running 30 s after SIGTERM")
    }

    /// Resident memory, kB: `VmRSS` now and `VmHWM` at its highest.
    pub fn memory_kb(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let field = |name: &str| -> Result<u64> {
            let line = status.lines().find(|line| line.starts_with(name)).context("no such field")?;
            Ok(line.split_whitespace().nth(1).context("no value")?.parse()?)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that is already gone is what we want.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
