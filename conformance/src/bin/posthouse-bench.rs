//! Speed beside Postfix and Dovecot, as ratios from one run on one machine.
//!
//! `cargo run --release --ignore-rust-version -p posthouse-conformance --bin posthouse-bench -- smtp imap`
//!
//! Needs root, Debian's `postfix`, `dovecot-imapd` and `dovecot-lmtpd`, and the release build of `posthouse` (found
//! beside this program, or named by `POSTHOUSE_BIN`). Every measurement is taken in turn on both sides, several
//! times; the median counts. Traffic goes to loopback addresses only and every loop is bounded.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use posthouse_conformance::imap::Imap;
use posthouse_conformance::peers::{Dovecot, PASSWORD, Postfix, USERS, user};
use posthouse_conformance::server::{Server, binary};
use posthouse_conformance::smtp::{Smtp, dot_stuffed};

#[derive(Parser, Debug)]
#[command(about = "Speed beside Postfix and Dovecot, as ratios from one run")]
struct Options {
    /// What to measure: smtp, imap.
    #[arg(required = true)]
    what: Vec<String>,
    /// Times each measurement is repeated.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Messages of one SMTP measurement.
    #[arg(long, default_value_t = 4000)]
    messages: usize,
    /// Messages in the big IMAP mailbox.
    #[arg(long, default_value_t = 100_000)]
    big: usize,
    /// Directory to work in; should be on the disk that is measured.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let root = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755))?;
    let data = root.path().join("posthouse");
    let server = Server::start_with(&data, &[("POSTHOUSE_SERVER__LOG", "warn")])?;
    make_accounts(&data)?;
    let mut table = vec!["| measured | posthouse | peer | ratio |".to_owned(), "|---|---|---|---|".to_owned()];
    for what in &options.what {
        match what.as_str() {
            "smtp" => smtp(&options, root.path(), &server, &mut table)?,
            "imap" => imap(&options, root.path(), &server, &mut table)?,
            other => anyhow::bail!("nothing called {other}: smtp or imap"),
        }
    }
    println!("\n{}", table.join("\n"));
    Ok(())
}

fn make_accounts(data: &Path) -> Result<()> {
    let posthouse = |arguments: &[&str], input: &str| -> Result<()> {
        let mut child = Command::new(binary()?)
            .args(arguments)
            .arg("--data")
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        child.stdin.take().context("stdin")?.write_all(input.as_bytes())?;
        ensure!(child.wait()?.success(), "posthouse {arguments:?} failed");
        Ok(())
    };
    posthouse(&["domain", "add", "bench.test"], "")?;
    for n in 0..USERS {
        posthouse(&["account", "add", &user(n)], &format!("{PASSWORD}\n"))?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percentile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * at) as usize).min(values.len() - 1)]
}

// ---------------------------------------------------------------- SMTP

struct Load {
    connections: usize,
    messages: usize,
    size: usize,
    recipients: usize,
}

fn text(size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size + 80);
    let mut n = 12_345_u32;
    while out.len() < size {
        for word in 0..12 {
            n = n.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            out.extend_from_slice(format!("{}w{:05}", if word == 0 { "" } else { " " }, n >> 17).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Sends the load; messages acknowledged per second and the latencies in milliseconds.
fn send(address: SocketAddr, load: &Load) -> Result<(f64, Vec<f64>)> {
    let body = text(load.size);
    let latencies = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..load.connections)
            .map(|connection| {
                let (body, latencies) = (&body, &latencies);
                scope.spawn(move || -> Result<()> {
                    let mut smtp = Smtp::connect(address)?;
                    let mut mine = Vec::new();
                    for n in 0..load.messages / load.connections {
                        let id = connection * 1_000_000 + n;
                        let to: Vec<String> = (0..load.recipients).map(|r| user((id * load.recipients + r + connection) % USERS)).collect();
                        let to: Vec<&str> = to.iter().map(String::as_str).collect();
                        let mut message = format!(
                            "From: <load@sender.test>\r\nTo: <{}>\r\nSubject: load {id}\r\nDate: Tue, 01 Dec 2026 00:00:00 +0000\r\n\
                             Message-ID: <{id}.{}@load.test>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n",
                            to[0],
                            started.elapsed().as_nanos()
                        )
                        .into_bytes();
                        message.extend_from_slice(body);
                        let octets = dot_stuffed(&message);
                        let at = Instant::now();
                        smtp.begin("load@sender.test", &to)?;
                        smtp.send(&octets)?;
                        smtp.expect(250)?;
                        mine.push(at.elapsed().as_secs_f64() * 1e3);
                    }
                    latencies.lock().expect("no panic while held").extend(mine);
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic")?;
        }
        Ok(())
    })?;
    let latencies = latencies.into_inner().expect("no panic while held");
    Ok((latencies.len() as f64 / started.elapsed().as_secs_f64(), latencies))
}

fn in_mailboxes(address: SocketAddr) -> Result<usize> {
    let mut total = 0;
    for n in 0..USERS {
        let mut imap = Imap::login(address, &user(n), PASSWORD)?;
        let answer = imap.ok("STATUS INBOX (MESSAGES)")?;
        total += answer.untagged[0].item_number("MESSAGES").context("MESSAGES")? as usize;
    }
    Ok(total)
}

fn smtp(options: &Options, root: &Path, server: &Server, table: &mut Vec<String>) -> Result<()> {
    let postfix = Postfix::start(&root.join("postfix"), 12_900)?;
    let n = options.messages;
    let loads = [
        ("20 connections, 8 KiB", Load { connections: 20, messages: n, size: 8192, recipients: 1 }),
        ("20 connections, 8 KiB, 5 recipients", Load { connections: 20, messages: n / 4, size: 8192, recipients: 5 }),
        ("20 connections, 100 KiB", Load { connections: 20, messages: n / 4, size: 102_400, recipients: 1 }),
        ("1 connection, 8 KiB", Load { connections: 1, messages: n / 10, size: 8192, recipients: 1 }),
    ];
    for (name, load) in loads {
        let (mut ours, mut theirs, mut delivered) = (Vec::new(), Vec::new(), Vec::new());
        let (mut our_latency, mut their_latency) = (Vec::new(), Vec::new());
        for _ in 0..options.runs {
            let before = in_mailboxes(server.imap())?;
            let (rate, latency) = send(server.smtp(), &load)?;
            let expected = latency.len() * load.recipients;
            ensure!(
                in_mailboxes(server.imap())? - before == expected,
                "not everything acknowledged is in the mailboxes"
            );
            ours.push(rate);
            our_latency.extend(latency);
            let before = postfix.delivered()?;
            let started = Instant::now();
            let (rate, latency) = send(postfix.address, &load)?;
            let expected = latency.len() * load.recipients;
            while postfix.delivered()? - before < expected && started.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(10));
            }
            ensure!(postfix.delivered()? - before == expected, "Postfix did not deliver everything in time");
            delivered.push(expected as f64 / load.recipients as f64 / started.elapsed().as_secs_f64());
            theirs.push(rate);
            their_latency.extend(latency);
        }
        let (ours, theirs, delivered) = (median(ours), median(theirs), median(delivered));
        table.push(format!(
            "| {name}: durable messages/s | {ours:.0} (p50 {:.1}, p99 {:.1} ms) | Postfix {theirs:.0} acknowledged, {delivered:.0} delivered (p50 {:.1}, p99 {:.1} ms) | {:.1} × acknowledged, {:.1} × delivered |",
            percentile(&mut our_latency, 0.5),
            percentile(&mut our_latency, 0.99),
            percentile(&mut their_latency, 0.5),
            percentile(&mut their_latency, 0.99),
            ours / theirs,
            ours / delivered
        ));
        println!("{}", table.last().expect("just pushed"));
    }
    Ok(())
}

// ---------------------------------------------------------------- IMAP

fn small_message(n: usize) -> Vec<u8> {
    let mut out = format!(
        "From: Sender {m} <s{m}@sender.test>\r\nTo: User <u0@bench.test>\r\nSubject: message {n}\r\nDate: Tue, 01 Dec 2026 00:00:00 +0000\r\n\
         Message-ID: <{n}@load.test>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n",
        m = n % 97
    )
    .into_bytes();
    out.extend_from_slice(&text(700));
    out
}

/// Fills `big` of user 0 by pipelined APPENDs.
fn fill(address: SocketAddr, count: usize) -> Result<()> {
    let mut imap = Imap::login(address, &user(0), PASSWORD)?;
    imap.ok("CREATE big")?;
    let started = Instant::now();
    for batch in (0..count).collect::<Vec<_>>().chunks(200) {
        let mut octets = Vec::new();
        for &n in batch {
            let message = small_message(n);
            octets.extend_from_slice(
                format!("f{n} APPEND big {}{{{}+}}\r\n", if n % 3 == 0 { "(\\Seen) " } else { "" }, message.len())
                    .as_bytes(),
            );
            octets.extend_from_slice(&message);
            octets.extend_from_slice(b"\r\n");
        }
        imap.send(&octets)?;
        for &n in batch {
            let answer = imap.finish(&format!("f{n}"))?;
            ensure!(answer.ok(), "{}", answer.tagged);
        }
    }
    println!(
        "filled {count} in {:.1} s ({:.0}/s)",
        started.elapsed().as_secs_f64(),
        count as f64 / started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// A connection whose answers are only counted, so that the client costs little.
struct Counter {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Counter {
    fn selected(address: SocketAddr, mailbox: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        let mut counter = Self { stream, reader };
        let mut greeting = Vec::new();
        counter.reader.read_until(b'\n', &mut greeting)?;
        counter.run(&format!("LOGIN {} {PASSWORD}", user(0)))?;
        counter.run(&format!("SELECT {mailbox}"))?;
        Ok(counter)
    }

    /// Runs a command; lines read and the seconds it took.
    fn run(&mut self, command: &str) -> Result<(usize, f64)> {
        let started = Instant::now();
        self.stream.write_all(format!("z {command}\r\n").as_bytes())?;
        let mut lines = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            ensure!(self.reader.read_until(b'\n', &mut line)? > 0, "closed");
            if line.starts_with(b"z ") {
                ensure!(line.starts_with(b"z OK"), "{command}: {}", String::from_utf8_lossy(&line));
                return Ok((lines, started.elapsed().as_secs_f64()));
            }
            lines += 1;
        }
    }
}

fn logins(address: SocketAddr) -> Result<f64> {
    let count = 300;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|thread| {
                scope.spawn(move || -> Result<()> {
                    for n in 0..count / 10 {
                        let mut imap = Imap::login(address, &user((thread + n * 10) % USERS), PASSWORD)?;
                        imap.ok("LOGOUT")?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(f64::from(count as u32) / started.elapsed().as_secs_f64())
}

fn appends(address: SocketAddr) -> Result<f64> {
    let count = 2_000;
    let sessions: Vec<Imap> =
        (0..20).map(|n| Imap::login(address, &user(n % USERS), PASSWORD)).collect::<Result<_>>()?;
    let message = [b"Subject: appended\r\n\r\n".to_vec(), text(8192)].concat();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .into_iter()
            .map(|mut imap| {
                let message = &message;
                scope.spawn(move || -> Result<()> {
                    for _ in 0..count / 20 {
                        let answer = imap.append("INBOX", "", message)?;
                        ensure!(answer.ok(), "{}", answer.tagged);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(f64::from(count as u32) / started.elapsed().as_secs_f64())
}

/// Deliveries by LMTP to five watchers: milliseconds from the acknowledgement to EXISTS (negative: seen before it).
fn idle(imap: SocketAddr, lmtp: SocketAddr) -> Result<Vec<f64>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let watchers = 5;
    for _ in 0..watchers {
        let mut counter = Counter::selected(imap, "INBOX")?;
        counter.stream.write_all(b"i IDLE\r\n")?;
        let mut line = Vec::new();
        while !line.starts_with(b"+") {
            line.clear();
            ensure!(counter.reader.read_until(b'\n', &mut line)? > 0);
        }
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while counter.reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                if line.ends_with(b"EXISTS\r\n") && sender.send(Instant::now()).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
    std::thread::sleep(Duration::from_millis(500));
    let mut lmtp = Smtp::connect_lmtp(lmtp)?;
    let mut out = Vec::new();
    for n in 0..60 {
        lmtp.begin("load@sender.test", &[&user(0)])?;
        lmtp.send(&dot_stuffed(&small_message(n)))?;
        lmtp.expect(250)?;
        let acknowledged = Instant::now();
        for _ in 0..watchers {
            let seen = receiver.recv_timeout(Duration::from_secs(10)).context("a watcher was not told within 10 s")?;
            let late = seen.saturating_duration_since(acknowledged).as_secs_f64();
            out.push(if late > 0.0 {
                late * 1e3
            } else {
                -acknowledged.saturating_duration_since(seen).as_secs_f64() * 1e3
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(out)
}

fn imap(options: &Options, root: &Path, server: &Server, table: &mut Vec<String>) -> Result<()> {
    let home = root.join("dovecot");
    let filler = Dovecot::start(&home, 12_910, "never")?;
    fill(filler.imap, options.big)?;
    drop(filler);
    let dovecot = Dovecot::start(&home, 12_910, "optimized")?;
    fill(server.imap(), options.big)?;
    let sides = [server.imap(), dovecot.imap];
    let mut push = |name: &str, ours: String, theirs: String, ratio: f64| {
        table.push(format!("| {name} | {ours} | Dovecot {theirs} | {ratio:.2} × |"));
        println!("{}", table.last().expect("just pushed"));
    };

    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..options.runs {
        for (side, address) in sides.into_iter().enumerate() {
            rates[side].push(logins(address)?);
        }
    }
    let [ours, theirs] = rates.map(median);
    push("LOGIN/s, 10 connections", format!("{ours:.0}"), format!("{theirs:.0}"), ours / theirs);

    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..options.runs {
        for (side, address) in sides.into_iter().enumerate() {
            rates[side].push(appends(address)?);
        }
    }
    let [ours, theirs] = rates.map(median);
    push("APPEND/s of 8 KiB, 20 connections", format!("{ours:.0}"), format!("{theirs:.0}"), ours / theirs);

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.runs * 5 {
        for (side, address) in sides.into_iter().enumerate() {
            let mut counter = Counter::selected(address, "INBOX")?;
            times[side].push(counter.run("SELECT big")?.1 * 1e3);
        }
    }
    let [ours, theirs] = times.map(median);
    push(
        &format!("SELECT of {} messages, ms", options.big),
        format!("{ours:.2}"),
        format!("{theirs:.2}"),
        theirs / ours,
    );

    let mut counters = [Counter::selected(sides[0], "big")?, Counter::selected(sides[1], "big")?];
    for (name, command, per) in [
        ("FETCH 1:* (FLAGS), messages/s", "FETCH 1:* (FLAGS)", options.big),
        ("FETCH 1:1000 (ENVELOPE), messages/s", "FETCH 1:1000 (ENVELOPE)", 1000),
        ("FETCH 1:1000 (BODYSTRUCTURE), messages/s", "FETCH 1:1000 (BODYSTRUCTURE)", 1000),
        ("FETCH 1:1000 (BODY.PEEK[]), messages/s", "FETCH 1:1000 (BODY.PEEK[])", 1000),
    ] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..options.runs * 3 {
            for side in 0..2 {
                let (lines, seconds) = counters[side].run(command)?;
                ensure!(lines >= per, "{lines} lines");
                rates[side].push(per as f64 / seconds);
            }
        }
        let [ours, theirs] = rates.map(median);
        push(name, format!("{ours:.0}"), format!("{theirs:.0}"), ours / theirs);
    }

    let mut latency = [Vec::new(), Vec::new()];
    for n in 0..600_usize {
        let at = 1 + n * 7_919 % options.big;
        let sign = if n % 2 == 0 { '+' } else { '-' };
        for side in 0..2 {
            latency[side].push(counters[side].run(&format!("STORE {at} {sign}FLAGS (\\Flagged)"))?.1 * 1e3);
        }
    }
    let [mut ours, mut theirs] = latency;
    let p = |values: &mut Vec<f64>| (percentile(values, 0.5), percentile(values, 0.99));
    let ((o50, o99), (t50, t99)) = (p(&mut ours), p(&mut theirs));
    push(
        "STORE of one flag, p50/p99 ms (ours with fsync)",
        format!("{o50:.2}/{o99:.2}"),
        format!("{t50:.2}/{t99:.2}"),
        t50 / o50,
    );

    let mut ours = idle(server.imap(), server.lmtp())?;
    let mut theirs = idle(dovecot.imap, dovecot.lmtp)?;
    let ((o50, o99), (t50, t99)) = (p(&mut ours), p(&mut theirs));
    push(
        "delivery to IDLE after its acknowledgement, p50/p99 ms",
        format!("{o50:.2}/{o99:.2}"),
        format!("{t50:.2}/{t99:.2}"),
        t99 / o99.max(0.01),
    );
    Ok(())
}
