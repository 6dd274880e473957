//! Text that is not TOML: the first place where it goes wrong, shown, with what to write instead.
//!
//! A parser that goes on behind a fault finds more of them that are none: one is told, and what follows is looked at
//! when it is mended.

use super::mistake::Mistake;

/// Longest part of a line that is shown, characters.
const SHOWN_MAX: usize = 100;

/// The mistake at `offset` of `text`, in the file `name`; `message` is the parser's.
pub fn mistake(name: &str, text: &str, offset: usize, message: &str) -> Mistake {
    // A parser may point behind the end, or between the octets of a character.
    let offset = (0..=offset.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let (before, after) = text.split_at(offset);
    let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
    let head = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
    let column = 1 + head.chars().count();
    // The parser names what it would have taken, which is seldom what was meant.
    let fault = message.split(", expected").next().unwrap_or(message).trim();
    let mut help = Vec::new();
    let shown: String = head.chars().chain(after.chars()).take_while(|c| *c != '\n').take(SHOWN_MAX).collect();
    if !shown.trim().is_empty() && column <= SHOWN_MAX {
        help.push(shown.replace(|c: char| c.is_control(), " ").trim_end().to_owned());
        help.push(format!("{}^", " ".repeat(column - 1)));
    }
    help.push(advice(fault).to_owned());
    Mistake { place: format!("{name}:{line}:{column}"), problem: format!("not valid TOML: {fault}"), help }
}

/// What to write instead, by the parser's words.
fn advice(fault: &str) -> &'static str {
    const ADVICE: [(&str, &str); 12] = [
        (
            "string values must be quoted",
            "text stands in quotes: key = \"text\"; numbers, true and false stand without",
        ),
        ("basic string", "text ends on its own line, with the quote it began with; \\ in it is written \\\\"),
        ("literal string", "text ends on its own line, with the quote it began with; with ' in it: key = \"it's\""),
        ("escape", "\\ in text is written \\\\, or the text stands in single quotes: key = 'C:\\mail'"),
        ("table", "a section stands alone on its line, in brackets: [server]"),
        ("key with no value", "write: key = value"),
        ("duplicate key", "it stood above already: a key, and a section, stands once; keep one of them"),
        (
            "array",
            "values of a list have commas between and `]` at the end, which may be missing above: [\"a\", \"b\"]",
        ),
        ("unexpected key or value", "one key stands on a line; several values are a list: key = [\"a\", \"b\"]"),
        ("leading zero", "write the number without zeros before it"),
        ("boolean", "write true or false, in small letters"),
        ("unquoted key", "a name has letters, digits, - and _; to set it write: key = value"),
    ];
    let found = ADVICE.into_iter().find(|(part, _)| fault.contains(part));
    found.map_or("each line is a section, as [server], a key with its value, or a comment behind #", |(_, advice)| {
        advice
    })
}
