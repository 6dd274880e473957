//! Messages to send: what others published as test data (found on this machine, never copied into this project), and
//! a deterministic made-up corpus.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One message of a corpus.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Where it comes from.
    pub name: String,
    /// Its octets, lines ended by CRLF (as SMTP carries them), ending in CRLF.
    pub octets: Vec<u8>,
}

/// Line ends made CRLF: bare CR and bare LF alike, and NUL taken out, since SMTP cannot carry these.
pub fn canonical(octets: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(octets.len() + 64);
    let mut rest = octets;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        match octet {
            b'\r' => {
                out.extend_from_slice(b"\r\n");
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            b'\n' => out.extend_from_slice(b"\r\n"),
            0 => {}
            _ => out.push(octet),
        }
    }
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn collect(folder: &Path, wanted: &dyn Fn(&Path) -> bool, out: &mut Vec<Sample>) -> Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, wanted, out)?;
        } else if wanted(&path) {
            out.push(Sample { name: path.display().to_string(), octets: canonical(&std::fs::read(&path)?) });
        }
    }
    Ok(())
}

/// The published test messages of the `mail-parser` crate, from where cargo keeps its source.
pub fn mail_parser() -> Result<Vec<Sample>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only what this machine builds: the rest of the lock file was never downloaded.
    let rustc = Command::new("rustc").arg("-vV").output()?;
    let version = String::from_utf8(rustc.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names its host")?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let package = packages.iter().find(|package| package["name"] == "mail-parser").context("mail-parser")?;
    let manifest = Path::new(package["manifest_path"].as_str().context("manifest_path")?);
    let folder = manifest.parent().context("a folder")?.join("resources/eml");
    let mut out = Vec::new();
    collect(&folder, &|path| path.extension().is_some_and(|extension| extension == "eml"), &mut out)?;
    ensure!(out.len() >= 100, "only {} messages in {}", out.len(), folder.display());
    Ok(out)
}

/// Python's own email test data (the `test.test_email` package of its standard library).
pub fn python() -> Result<Vec<Sample>> {
    let find = "import os, test.test_email as t; print(os.path.join(os.path.dirname(t.__file__), 'data'))";
    for interpreter in ["python3", "/usr/bin/python3"] {
        let output = Command::new(interpreter).args(["-c", find]).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else { continue };
        let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        let mut out = Vec::new();
        collect(&folder, &|path| path.extension().is_some_and(|extension| extension == "txt"), &mut out)?;
        ensure!(out.len() >= 30, "only {} messages in {}", out.len(), folder.display());
        return Ok(out);
    }
    anyhow::bail!("no python3 with its test package (Debian: libpython3.X-testsuite)")
}

/// `count` made-up messages; the same seed gives the same octets.
pub fn generated(seed: u64, count: usize) -> Vec<Sample> {
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{RngExt, SeedableRng};
    let mut rng = StdRng::seed_from_u64(seed);
    let words = [
        "meeting",
        "invoice",
        "Grüße",
        "réunion",
        "счёт",
        "会議",
        "附件",
        "اجتماع",
        "tomorrow",
        "project",
        ".",
        "..dots",
        "From here",
        "Überweisung",
    ];
    let text = |rng: &mut StdRng, lines: usize| -> String {
        let line = |rng: &mut StdRng| {
            (0..rng.random_range(0..9)).map(|_| *words.choose(rng).expect("not empty")).collect::<Vec<_>>().join(" ")
        };
        (0..lines).map(|_| line(rng) + "\r\n").collect()
    };
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02X}")).collect::<String>();
    (0..count)
        .map(|n| {
            let subject = words.choose(&mut rng).expect("not empty");
            let subject = if subject.is_ascii() { (*subject).to_owned() } else { format!("=?utf-8?Q?={}?=", hex(subject.as_bytes()).as_bytes().chunks(2).map(|c| String::from_utf8_lossy(c).into_owned()).collect::<Vec<_>>().join("=")) };
            let mut out = format!(
                "From: \"Sender, {n}\" <s{n}@sender.test>\r\nTo: a@b.test,\r\n c@d.test (Someone)\r\nSubject: {subject} {n}\r\nDate: Tue, 01 Dec 2026 10:{:02}:00 +0100\r\nMessage-ID: <{n}.{seed}@corpus.test>\r\nMIME-Version: 1.0\r\n",
                n % 60
            );
            if n > 0 && rng.random_bool(0.4) {
                out += &format!("In-Reply-To: <{}.{seed}@corpus.test>\r\nReferences: <0.{seed}@corpus.test>\r\n\t<{}.{seed}@corpus.test>\r\n", n - 1, n - 1);
            }
            let lines = rng.random_range(1..40);
            match rng.random_range(0..5) {
                0 => out += &format!("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{}", text(&mut rng, lines)),
                1 => {
                    let encoded = text(&mut rng, lines).into_bytes().iter().map(|octet| match octet {
                        b'\r' | b'\n' | b' ' | b'a'..=b'z' => char::from(*octet).to_string(),
                        octet => format!("={octet:02X}"),
                    }).collect::<String>();
                    let wrapped = encoded.split("\r\n").map(|line| line.as_bytes().chunks(60).map(|c| String::from_utf8_lossy(c).into_owned()).collect::<Vec<_>>().join("=\r\n")).collect::<Vec<_>>().join("\r\n");
                    out += &format!("Content-Type: text/plain; charset=\"utf-8\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{wrapped}");
                }
                2 => {
                    let (plain, html) = (text(&mut rng, lines), text(&mut rng, lines));
                    out += &format!("Content-Type: multipart/alternative; boundary=\"=_{n}\"\r\n\r\npreamble\r\n--=_{n}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{plain}\r\n--=_{n}\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>{html}</p>\r\n--=_{n}--\r\nepilogue\r\n");
                }
                3 => {
                    let blob: String = (0..rng.random_range(1..400)).map(|_| (0..76).map(|_| char::from(b'A' + rng.random_range(0..26))).collect::<String>() + "\r\n").collect();
                    out += &format!("Content-Type: multipart/mixed;\r\n boundary=b{n}\r\n\r\n--b{n}\r\n\r\n{}\r\n--b{n}\r\nContent-Type: application/pdf; name*0*=utf-8''%C3%BC; name*1=.pdf\r\nContent-Disposition: attachment;\r\n filename*=utf-8''%C3%BC.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n{blob}\r\n--b{n}--\r\n", text(&mut rng, lines));
                }
                _ => out += &format!("Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\nContent-Type: message/rfc822\r\n\r\nFrom: in@side.test\r\nSubject: inner {n}\r\nContent-Type: multipart/digest; boundary=i\r\n\r\n--i\r\n\r\nSubject: digest\r\n\r\n{}\r\n--i--\r\n\r\n--o--\r\n", text(&mut rng, lines)),
            }
            Sample { name: format!("generated {n}"), octets: canonical(out.as_bytes()) }
        })
        .collect()
}
