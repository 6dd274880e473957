//! Transcripts: what clients say and what the server must answer.
//!
//! A transcript is lines `C: ` (sent with CRLF), `C+ ` (sent as it is, `\r\n` written out,
//! `{{...}}` as a literal), `S: ` (a line that must
//! come next; `*` at its end stands for anything), `S? ` (lines that must come, in any order, until the next other
//! line), and `SESSION n` (the connection that follows: a new one is greeted and logged in, 0 only greeted, and `remote`
//! and `tls` come from elsewhere). `$NAME` in an expected line takes whatever word stands there the first time and must
//! be the same later.

use std::collections::HashMap;

use super::rig::{Client, Door, World};

/// Whether a line is what was expected; takes and compares variables.
fn agrees(expected: &str, line: &str, variables: &mut HashMap<String, String>) -> bool {
    let (prefix, open) = match expected.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (expected, false),
    };
    let mut pieces = prefix.split('$');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or("")) else { return false };
    for piece in pieces {
        let name_end = piece.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(piece.len());
        let (name, text) = piece.split_at(name_end);
        let value_end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (value, after) = rest.split_at(value_end);
        let known = variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        if known != value {
            return false;
        }
        let Some(after) = after.strip_prefix(text) else { return false };
        rest = after;
    }
    open || rest.is_empty()
}

/// Announces what stands in double braces as a non-synchronizing literal.
fn literals(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (literal, after) = after.split_once("}}").expect("a literal ends with two braces");
        out.push_str(&format!("{before}{{{}+}}\r\n{literal}", literal.len()));
        rest = after;
    }
    out + rest
}

async fn open(world: &World, name: &str) -> Client {
    let remote = Door { peer: "192.0.2.1:1", ..Door::default() };
    let mut client = match name {
        "0" => world.connect(Door::default()),
        "remote" => world.connect(remote),
        "tls" => world.connect(Door { tls: true, ..remote }),
        _ => return world.client().await,
    };
    let greeting = client.line().await;
    assert!(greeting.starts_with("* OK [CAPABILITY IMAP4rev1 "), "{greeting}");
    client
}

/// Plays a transcript; what went wrong, and where.
async fn play(transcript: &str) -> Result<(), String> {
    let world = World::new().await;
    let mut clients: HashMap<&str, Client> = HashMap::new();
    let mut variables = HashMap::new();
    let mut current = "1";
    let mut any: Vec<&str> = Vec::new();
    for (at, line) in transcript.lines().chain(["END"]).enumerate() {
        let at = at + 1;
        if let Some(expected) = line.strip_prefix("S? ") {
            any.push(expected);
            continue;
        }
        while !any.is_empty() {
            let got = clients.get_mut(current).unwrap().line().await;
            let found = any.iter().position(|expected| agrees(expected, &got, &mut variables));
            any.remove(found.ok_or_else(|| format!("{at}: got {got:?}, expected one of {any:?}"))?);
        }
        if let Some(session) = line.strip_prefix("SESSION ") {
            current = session;
        }
        let speaks = ["SESSION", "C", "S:"].iter().any(|start| line.starts_with(start));
        if speaks && !clients.contains_key(current) {
            clients.insert(current, open(&world, current).await);
        }
        if let Some(text) = line.strip_prefix("C: ") {
            clients.get_mut(current).unwrap().send(format!("{text}\r\n")).await;
        } else if let Some(text) = line.strip_prefix("C+ ") {
            clients.get_mut(current).unwrap().send(literals(&text.replace("\\r\\n", "\r\n"))).await;
        } else if let Some(expected) = line.strip_prefix("S: ") {
            let got = clients.get_mut(current).unwrap().line().await;
            if !agrees(expected, &got, &mut variables) {
                return Err(format!("{at}: got {got:?}, expected {expected:?}"));
            }
        } else if !(line.is_empty() || line.starts_with('#') || line.starts_with("SESSION ") || line == "END") {
            return Err(format!("{at}: {line:?} is no line of a transcript"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn transcripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "transcripts are missing");
    let mut failed = Vec::new();
    for file in files {
        let transcript = std::fs::read_to_string(&file).unwrap();
        if let Err(what) = play(&transcript).await {
            failed.push(format!("{}:{what}", file.file_name().unwrap().to_string_lossy()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
