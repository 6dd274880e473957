//! Passwords: read without showing them, or made.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use rand::RngExt;

/// A password, and whether it was made here and must be shown.
#[derive(Debug)]
pub struct Chosen {
    /// The password.
    pub password: String,
    /// True when nobody has seen it yet.
    pub made: bool,
}

/// Longest password that is read.
const BYTES_MAX: u64 = 1024;

/// Asks at a terminal, reads the first line of standard input elsewhere; an empty answer, or `generate`, makes one.
pub fn choose(generate: bool) -> anyhow::Result<Chosen> {
    let given = if generate { String::new() } else { read()? };
    Ok(match given.is_empty() {
        true => Chosen { password: make(), made: true },
        false => Chosen { password: given, made: false },
    })
}

fn read() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        let once =
            rpassword::prompt_password("Password (empty to have one made): ").context("cannot read a password")?;
        if !once.is_empty() && rpassword::prompt_password("Again: ").context("cannot read a password")? != once {
            bail!("the two passwords differ; nothing was changed");
        }
        return Ok(once);
    }
    let mut text = String::new();
    std::io::stdin().lock().take(BYTES_MAX + 1).read_to_string(&mut text).context("cannot read a password")?;
    let line = text.split('\n').next().unwrap_or_default();
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() as u64 > BYTES_MAX {
        bail!("a password has at most {BYTES_MAX} bytes");
    }
    Ok(line.to_owned())
}

/// Twenty characters that cannot be mistaken for each other: 99 bits.
pub fn make() -> String {
    const LETTERS: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
    let mut random = rand::rng();
    (0..20).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}
