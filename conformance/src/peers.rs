//! Real peers that the benchmark and the interplay tests start beside the server: Debian's Postfix and Dovecot on
//! loopback, under a directory of ours, with users `u0`, `u1`, … `@bench.test` and the password `pw`.
//!
//! Both need root (they change users). Nothing of the machine's own configuration is touched.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The peers' users: `u0@bench.test` and so on.
pub const USERS: usize = 20;
/// Their password.
pub const PASSWORD: &str = "pw";

/// The `n`th user's address.
pub fn user(n: usize) -> String {
    format!("u{n}@bench.test")
}

fn wait_port(port: u16) -> Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("nothing listens on {address}")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn directory(path: &Path, mode: u32) -> Result<()> {
    std::fs::create_dir_all(path)?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

/// Postfix delivering to Maildir, with its own fsyncs on and `in_flow_delay = 0` (its fair setting for a benchmark).
#[derive(Debug)]
pub struct Postfix {
    etc: PathBuf,
    mail: PathBuf,
    /// SMTP.
    pub address: SocketAddr,
}

impl Postfix {
    /// Starts it under `root` (must be readable by other users).
    pub fn start(root: &Path, port: u16) -> Result<Self> {
        let (etc, mail) = (root.join("etc"), root.join("mail"));
        for path in [root, &etc, &root.join("spool"), &root.join("data"), &mail] {
            directory(path, 0o755)?;
        }
        run(Command::new("chown").arg("postfix").arg(root.join("data")))?;
        run(Command::new("chown").arg("nobody").arg(&mail))?;
        let mut map = String::new();
        for n in 0..USERS {
            writeln!(map, "{} u{n}/", user(n))?;
        }
        std::fs::write(etc.join("users"), map)?;
        let settings = [
            ("compatibility_level", "3.6".to_owned()),
            ("queue_directory", root.join("spool").display().to_string()),
            ("data_directory", root.join("data").display().to_string()),
            ("command_directory", "/usr/sbin".to_owned()),
            ("daemon_directory", "/usr/lib/postfix/sbin".to_owned()),
            ("mail_owner", "postfix".to_owned()),
            ("setgid_group", "postdrop".to_owned()),
            ("maillog_file", root.join("log").display().to_string()),
            ("maillog_file_prefixes", root.display().to_string()),
            ("myhostname", "mx.bench.test".to_owned()),
            ("mydestination", String::new()),
            ("mynetworks", "127.0.0.0/8".to_owned()),
            ("inet_interfaces", "127.0.0.1".to_owned()),
            ("inet_protocols", "ipv4".to_owned()),
            ("virtual_mailbox_domains", "bench.test".to_owned()),
            ("virtual_mailbox_base", mail.display().to_string()),
            ("virtual_mailbox_maps", format!("hash:{}", etc.join("users").display())),
            ("virtual_uid_maps", "static:65534".to_owned()),
            ("virtual_gid_maps", "static:65534".to_owned()),
            ("default_transport", "discard".to_owned()),
            ("alias_maps", String::new()),
            ("alias_database", String::new()),
            ("in_flow_delay", "0s".to_owned()),
        ];
        let main: String = settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        std::fs::write(etc.join("main.cf"), main)?;
        let mut master = format!("127.0.0.1:{port} inet n - n - - smtpd\n");
        // name, type, private, unprivileged, chroot, wakeup, maxproc, command
        for (name, kind, wakeup, processes, command) in [
            ("pickup", "unix n - n", "60", "1", "pickup"),
            ("cleanup", "unix n - n", "-", "0", "cleanup"),
            ("qmgr", "unix n - n", "300", "1", "qmgr"),
            ("rewrite", "unix - - n", "-", "-", "trivial-rewrite"),
            ("bounce", "unix - - n", "-", "0", "bounce"),
            ("defer", "unix - - n", "-", "0", "bounce"),
            ("trace", "unix - - n", "-", "0", "bounce"),
            ("verify", "unix - - n", "-", "1", "verify"),
            ("flush", "unix n - n", "1000?", "0", "flush"),
            ("proxymap", "unix - - n", "-", "-", "proxymap"),
            ("error", "unix - - n", "-", "-", "error"),
            ("retry", "unix - - n", "-", "-", "error"),
            ("discard", "unix - - n", "-", "-", "discard"),
            ("virtual", "unix - n n", "-", "-", "virtual"),
            ("anvil", "unix - - n", "-", "1", "anvil"),
            ("scache", "unix - - n", "-", "1", "scache"),
            ("postlog", "unix-dgram n - n", "-", "1", "postlogd"),
        ] {
            writeln!(master, "{name} {kind} {wakeup} {processes} {command}")?;
        }
        std::fs::write(etc.join("master.cf"), master)?;
        run(Command::new("postmap").arg("-c").arg(&etc).arg(format!("hash:{}", etc.join("users").display())))?;
        run(Command::new("postfix").arg("-c").arg(&etc).arg("start"))?;
        wait_port(port)?;
        Ok(Self { etc, mail, address: SocketAddr::from(([127, 0, 0, 1], port)) })
    }

    /// Messages delivered so far: files in all `new/`.
    pub fn delivered(&self) -> Result<usize> {
        let mut count = 0;
        for user in std::fs::read_dir(&self.mail)? {
            if let Ok(files) = std::fs::read_dir(user?.path().join("new")) {
                count += files.count();
            }
        }
        Ok(count)
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        drop(Command::new("postfix").arg("-c").arg(&self.etc).arg("stop").output());
    }
}

/// Dovecot with mdbox, IMAP and LMTP.
#[derive(Debug)]
pub struct Dovecot {
    config: PathBuf,
    /// IMAP.
    pub imap: SocketAddr,
    /// LMTP.
    pub lmtp: SocketAddr,
}

impl Dovecot {
    /// Starts it under `root`; `fsync` as Dovecot's `mail_fsync` (`optimized` is its default, `never` only to fill
    /// mailboxes quickly). LMTP listens on the port after `port`.
    pub fn start(root: &Path, port: u16, fsync: &str) -> Result<Self> {
        directory(root, 0o755)?;
        for (path, mode) in [("run", 0o755), ("state", 0o755), ("mail", 0o1777)] {
            directory(&root.join(path), mode)?;
        }
        let mut users = String::new();
        for n in 0..USERS {
            writeln!(users, "{}:{{PLAIN}}{PASSWORD}:{}:8::{}/mail/u{n}::", user(n), 200_000 + n, root.display())?;
        }
        std::fs::write(root.join("users"), users)?;
        let config = root.join("dovecot.conf");
        let text = format!(
            "base_dir = {root}/run\nstate_dir = {root}/state\nlog_path = {root}/log\nprotocols = imap lmtp\nlisten = 127.0.0.1\nssl = no\n\
             disable_plaintext_auth = no\nmail_location = mdbox:~/mdbox\nmail_fsync = {fsync}\nmail_max_userip_connections = 100000\n\
             first_valid_uid = 100\nfirst_valid_gid = 0\ndefault_process_limit = 400\ndefault_client_limit = 20000\n\
             namespace inbox {{\n inbox = yes\n}}\n\
             passdb {{\n driver = passwd-file\n args = username_format=%u {root}/users\n}}\n\
             userdb {{\n driver = passwd-file\n args = username_format=%u {root}/users\n}}\n\
             service imap-login {{\n inet_listener imap {{\n  address = 127.0.0.1\n  port = {port}\n }}\n inet_listener imaps {{\n  port = 0\n }}\n}}\n\
             service imap {{\n process_limit = 5000\n}}\nservice anvil {{\n client_limit = 12000\n}}\nservice auth {{\n client_limit = 12000\n}}\n\
             service lmtp {{\n inet_listener lmtp {{\n  address = 127.0.0.1\n  port = {lmtp}\n }}\n}}\n",
            root = root.display(),
            lmtp = port + 1
        );
        std::fs::write(&config, text)?;
        // The daemon keeps what it inherits, so it is given no pipe that somebody would wait on.
        let status =
            Command::new("dovecot").arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        ensure!(status.success(), "dovecot: {status}; see {}", root.join("log").display());
        wait_port(port)?;
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self { config, imap: address(port), lmtp: address(port + 1) })
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        drop(Command::new("doveadm").arg("-c").arg(&self.config).arg("stop").output());
        // Its master answers before its children are gone; a restart on the same port needs a moment.
        std::thread::sleep(Duration::from_millis(500));
    }
}
