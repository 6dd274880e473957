//! The words of the grammar: a place in a command's octets, and what can be read there.
//!
//! RFC 3501 §9. As Dovecot does, several spaces count as one where one is due, and spaces next to parentheses and at the
//! end of the command are passed over.

use std::borrow::Cow;
use std::num::NonZeroU32;

use posthouse_storage::account::{FlagNames, Flags};

use super::super::command::{SeqNo, SequenceSet};
use super::super::framer::announcement;
use super::super::mutf7;
use super::{ParseErrorKind, ParseOptions};

/// Why a command is refused.
#[derive(Debug)]
pub(super) struct Fail {
    pub(super) kind: ParseErrorKind,
    pub(super) text: Cow<'static, str>,
}

pub(super) type Parsed<T> = Result<T, Fail>;

pub(super) fn syntax<T>(text: impl Into<Cow<'static, str>>) -> Parsed<T> {
    fail(ParseErrorKind::Syntax, text)
}

pub(super) fn fail<T>(kind: ParseErrorKind, text: impl Into<Cow<'static, str>>) -> Parsed<T> {
    Err(Fail { kind, text: text.into() })
}

const ATOM: u8 = 1;
const ASTRING: u8 = 2;
const LIST: u8 = 4;
const TAG: u8 = 8;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut octet = 0x21;
    while octet < 0x7f {
        classes[octet] = match octet as u8 {
            b'(' | b')' | b'{' | b'"' | b'\\' => 0,
            b'%' | b'*' => LIST,
            b']' => ASTRING | LIST | TAG,
            b'+' => ATOM | ASTRING | LIST,
            _ => ATOM | ASTRING | LIST | TAG,
        };
        octet += 1;
    }
    classes
};

/// A tag's octet: ASTRING-CHAR without `+`.
pub(in super::super) fn is_tag_char(octet: u8) -> bool {
    CLASSES[usize::from(octet)] & TAG != 0
}

/// Flags in one command; more than any mailbox can have.
const FLAGS_MAX: usize = 128;
/// Octets of a keyword.
const KEYWORD_BYTES_MAX: usize = 128;

/// A place in a command.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    options: ParseOptions,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(octets: &'a [u8], options: ParseOptions) -> Self {
        Self { rest: octets, options }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Steps over `octet` if it is next.
    pub(super) fn eat(&mut self, octet: u8) -> bool {
        match self.rest.split_first() {
            Some((&first, rest)) if first == octet => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    pub(super) fn spaces(&mut self) {
        while self.eat(b' ') {}
    }

    /// A space that must be there; further ones are passed over.
    pub(super) fn space(&mut self, before: &'static str) -> Parsed<()> {
        if self.rest.is_empty() {
            return syntax(format!("Missing {before}"));
        }
        if !self.eat(b' ') {
            return syntax(format!("Expected a space before {before}, found {}", self.found()));
        }
        self.spaces();
        if self.rest.is_empty() { syntax(format!("Missing {before}")) } else { Ok(()) }
    }

    /// A space if anything follows it.
    pub(super) fn more(&mut self) -> Parsed<bool> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        if !self.eat(b' ') {
            return syntax(format!("Expected a space, found {}", self.found()));
        }
        self.spaces();
        Ok(!self.rest.is_empty())
    }

    /// The command ends here.
    pub(super) fn end(&mut self) -> Parsed<()> {
        self.spaces();
        if self.rest.is_empty() { Ok(()) } else { syntax(format!("Unexpected {} after the command", self.found())) }
    }

    /// What is next, for a message: printable and short.
    pub(super) fn found(&self) -> String {
        shown(self.rest)
    }

    fn class(&mut self, class: u8) -> &'a [u8] {
        let end = self.rest.iter().position(|&octet| CLASSES[usize::from(octet)] & class == 0);
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    pub(super) fn tag(&mut self) -> Option<String> {
        let tag = self.class(TAG);
        (!tag.is_empty() && tag.len() <= super::TAG_BYTES_MAX).then(|| ascii(tag))
    }

    pub(super) fn atom(&mut self, what: &'static str) -> Parsed<&'a [u8]> {
        let atom = self.class(ATOM);
        if atom.is_empty() { syntax(format!("Expected {what}, found {}", self.found())) } else { Ok(atom) }
    }

    /// Letters, digits, `.`, `-` and `+`: names of commands, items and options. May be empty.
    pub(super) fn word(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|octet| !octet.is_ascii_alphanumeric() && !b".-+".contains(octet));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// Everything up to the next space.
    pub(super) fn until_space(&mut self) -> &'a [u8] {
        let (word, rest) = self.rest.split_at(memchr::memchr(b' ', self.rest).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// If the next word is `word`, in any case and whole, steps over it.
    pub(super) fn keyword(&mut self, word: &[u8]) -> bool {
        let Some((start, rest)) = self.rest.split_at_checked(word.len()) else { return false };
        if !start.eq_ignore_ascii_case(word) || rest.first().is_some_and(|&next| next != b' ' && next != b'(') {
            return false;
        }
        self.rest = rest;
        true
    }

    /// Whether [`Cursor::keyword`] would step over `word`.
    pub(super) fn keyword_next(&self, word: &[u8]) -> bool {
        Cursor { rest: self.rest, options: self.options }.keyword(word)
    }

    pub(super) fn number(&mut self, what: &'static str) -> Parsed<u64> {
        let mut value: u64 = 0;
        let mut digits = 0;
        while let Some(octet @ b'0'..=b'9') = self.peek() {
            let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(octet - b'0'))) else {
                return syntax(format!("{what} is too large"));
            };
            value = next;
            digits += 1;
            self.rest = &self.rest[1..];
        }
        if digits == 0 { syntax(format!("Expected {what}, found {}", self.found())) } else { Ok(value) }
    }

    pub(super) fn number_not_zero(&mut self, what: &'static str) -> Parsed<NonZeroU32> {
        let number = self.number(what)?;
        match u32::try_from(number).ok().and_then(NonZeroU32::new) {
            Some(number) => Ok(number),
            None => syntax(format!("{what} must be from 1 to 4294967295")),
        }
    }

    /// `"..."`. 8-bit octets are let through; what they mean is for the caller to say.
    fn quoted(&mut self) -> Parsed<Cow<'a, [u8]>> {
        let inside = &self.rest[1..];
        let special = |octets: &[u8]| octets.iter().position(|octet| matches!(octet, b'"' | b'\\' | b'\r' | b'\n' | 0));
        let mut copied = Vec::new();
        let mut at = 0;
        loop {
            let Some(found) = special(&inside[at..]) else { return syntax("Quoted string is not closed") };
            let part = &inside[at..at + found];
            at += found;
            match (inside[at], inside.get(at + 1)) {
                (b'"', _) => {
                    self.rest = &inside[at + 1..];
                    if copied.is_empty() {
                        return Ok(Cow::Borrowed(&inside[..at]));
                    }
                    copied.extend_from_slice(part);
                    return Ok(Cow::Owned(copied));
                }
                // Only \ and " need it, but as Dovecot does, any octet may be escaped.
                (b'\\', Some(&escaped)) if !matches!(escaped, b'\r' | b'\n' | 0) => {
                    copied.extend_from_slice(part);
                    copied.push(escaped);
                    at += 2;
                }
                _ => return syntax("Quoted string has a control character; send it as a literal"),
            }
        }
    }

    fn literal(&mut self) -> Parsed<&'a [u8]> {
        let Some(line) = memchr::memmem::find(self.rest, b"\r\n") else { return syntax("Literal is not complete") };
        let (line, octets) = (&self.rest[..line], &self.rest[line + 2..]);
        let Some((0, literal)) = announcement(line) else { return syntax("Bad literal announcement") };
        if literal.binary {
            return syntax("A binary literal cannot stand here");
        }
        let Some((octets, rest)) = usize::try_from(literal.size).ok().and_then(|size| octets.split_at_checked(size))
        else {
            return syntax("Literal is not complete");
        };
        if memchr::memchr(0, octets).is_some() {
            return syntax("Literal has a NUL octet");
        }
        self.rest = rest;
        Ok(octets)
    }

    /// A quoted string or a literal, if one is next.
    fn string_opt(&mut self) -> Parsed<Option<Cow<'a, [u8]>>> {
        match self.peek() {
            Some(b'"') => self.quoted().map(Some),
            Some(b'{' | b'~') if self.peek() == Some(b'{') || self.rest.starts_with(b"~{") => {
                self.literal().map(|octets| Some(Cow::Borrowed(octets)))
            }
            _ => Ok(None),
        }
    }

    /// An atom (with `]`) or a string.
    pub(super) fn astring(&mut self, what: &'static str) -> Parsed<Cow<'a, [u8]>> {
        if let Some(string) = self.string_opt()? {
            return Ok(string);
        }
        let atom = self.class(ASTRING);
        if atom.is_empty() { syntax(format!("Expected {what}, found {}", self.found())) } else { Ok(atom.into()) }
    }

    /// A string, an atom, or NIL.
    pub(super) fn nstring(&mut self, what: &'static str) -> Parsed<Option<Cow<'a, [u8]>>> {
        if let Some(string) = self.string_opt()? {
            return Ok(Some(string));
        }
        let atom = self.astring(what)?;
        Ok((!atom.eq_ignore_ascii_case(b"NIL")).then_some(atom))
    }

    /// An astring that is UTF-8.
    pub(super) fn text(&mut self, what: &'static str) -> Parsed<String> {
        match String::from_utf8(self.astring(what)?.into_owned()) {
            Ok(text) => Ok(text),
            Err(_) => fail(ParseErrorKind::Charset, format!("{what} is not valid UTF-8")),
        }
    }

    /// A mailbox name, decoded; the inbox in any case is `INBOX`, also as the first level of a longer name.
    pub(super) fn mailbox(&mut self) -> Parsed<String> {
        let name = self.astring("a mailbox name")?;
        let decoded =
            if self.options.utf8 { std::str::from_utf8(&name).ok().map(str::to_owned) } else { mutf7::decode(&name) };
        match decoded {
            Some(name) if name.chars().any(char::is_control) => {
                fail(ParseErrorKind::MailboxName, "Mailbox name has control characters")
            }
            Some(name) => Ok(inbox(name)),
            None if self.options.utf8 => fail(ParseErrorKind::MailboxName, "Mailbox name is not valid UTF-8"),
            None => fail(ParseErrorKind::MailboxName, "Mailbox name is not valid modified UTF-7"),
        }
    }

    /// LIST's reference or pattern, decoded. What is no valid name stays as it is: it matches nothing.
    pub(super) fn pattern(&mut self) -> Parsed<String> {
        let raw = match self.string_opt()? {
            Some(string) => string,
            None => match self.class(LIST) {
                b"" => return syntax(format!("Expected a mailbox pattern, found {}", self.found())),
                pattern => pattern.into(),
            },
        };
        let decoded = if self.options.utf8 { None } else { mutf7::decode(&raw) };
        Ok(inbox(decoded.unwrap_or_else(|| String::from_utf8_lossy(&raw).into_owned())))
    }

    /// `(a b c)`: calls `item` at each; spaces next to the parentheses are passed over.
    pub(super) fn list(&mut self, what: &'static str, mut item: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<()> {
        if !self.eat(b'(') {
            return syntax(format!("Expected a list of {what}, found {}", self.found()));
        }
        self.spaces();
        while !self.eat(b')') {
            if self.rest.is_empty() {
                return syntax(format!("The list of {what} is not closed"));
            }
            item(self)?;
            if !self.rest.is_empty() && self.peek() != Some(b')') && !self.eat(b' ') {
                return syntax(format!("Unexpected {} in the list of {what}", self.found()));
            }
            self.spaces();
        }
        Ok(())
    }

    pub(super) fn sequence_set(&mut self) -> Parsed<SequenceSet> {
        let mut ranges = Vec::with_capacity(1);
        loop {
            let first = self.seq_no()?;
            let last = if self.eat(b':') { self.seq_no()? } else { first };
            ranges.push((first, last));
            if !self.eat(b',') {
                return Ok(SequenceSet(ranges));
            }
        }
    }

    fn seq_no(&mut self) -> Parsed<SeqNo> {
        if self.eat(b'*') {
            return Ok(SeqNo::Last);
        }
        self.number_not_zero("a message number").map(SeqNo::Number)
    }

    /// `(\Seen keyword)`.
    pub(super) fn flag_list(&mut self) -> Parsed<FlagNames> {
        let mut flags = FlagNames::default();
        self.list("flags", |cursor| cursor.flag(&mut flags))?;
        Ok(flags)
    }

    /// One flag of STORE or APPEND.
    pub(super) fn flag(&mut self, flags: &mut FlagNames) -> Parsed<()> {
        if !self.eat(b'\\') {
            return self.flag_keyword(flags);
        }
        let name = self.atom("a flag")?;
        let Some(&(_, flag)) = SYSTEM_FLAGS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)) else {
            return syntax(match name.to_ascii_lowercase().as_slice() {
                b"recent" => "\\Recent is set by the server only".to_owned(),
                _ => format!("There is no system flag \\{}", shown(name)),
            });
        };
        flags.system = flags.system.union(flag);
        Ok(())
    }

    pub(super) fn flag_keyword(&mut self, flags: &mut FlagNames) -> Parsed<()> {
        let keyword = self.atom("a flag")?;
        if keyword.len() > KEYWORD_BYTES_MAX {
            return fail(ParseErrorKind::Limit, format!("A keyword can have {KEYWORD_BYTES_MAX} octets"));
        }
        let keyword = ascii(keyword);
        if flags.keywords.iter().any(|known| known.eq_ignore_ascii_case(&keyword)) {
            return Ok(());
        }
        if flags.keywords.len() == FLAGS_MAX {
            return fail(ParseErrorKind::Limit, format!("A command can name {FLAGS_MAX} keywords"));
        }
        flags.keywords.push(keyword);
        Ok(())
    }

    /// The literal announcement that ends an APPEND; its octets, if they are here, are stepped over.
    pub(super) fn message(&mut self) -> Parsed<super::super::command::Literal> {
        let end = memchr::memmem::find(self.rest, b"\r\n");
        let line = &self.rest[..end.unwrap_or(self.rest.len())];
        let Some((0, literal)) = announcement(line) else {
            return syntax(format!("Expected the message as a literal, found {}", self.found()));
        };
        let octets = &self.rest[end.map_or(self.rest.len(), |end| end + 2)..];
        let gathered = usize::try_from(literal.size).unwrap_or(usize::MAX).min(octets.len());
        self.rest = &octets[gathered..];
        Ok(literal)
    }
}

const SYSTEM_FLAGS: [(&[u8], Flags); 5] = [
    (b"Seen", Flags::SEEN),
    (b"Answered", Flags::ANSWERED),
    (b"Flagged", Flags::FLAGGED),
    (b"Deleted", Flags::DELETED),
    (b"Draft", Flags::DRAFT),
];

/// Octets that are known to be ASCII.
pub(super) fn ascii(octets: &[u8]) -> String {
    octets.iter().map(|&octet| char::from(octet)).collect()
}

/// For a message to the client: the next word, printable and short.
pub(super) fn shown(octets: &[u8]) -> String {
    let word: String = octets
        .iter()
        .take(30)
        .enumerate()
        .take_while(|&(at, octet)| at == 0 || (*octet != b' ' && *octet != b'\r'))
        .map(|(_, octet)| if (0x20..0x7f).contains(octet) { char::from(*octet) } else { '?' })
        .collect();
    match word.as_str() {
        "" => "nothing".to_owned(),
        " " => "a space".to_owned(),
        _ => word,
    }
}

fn inbox(name: String) -> String {
    match name.split_at_checked(5) {
        Some((first, rest))
            if first.eq_ignore_ascii_case("INBOX")
                && first != "INBOX"
                && (rest.is_empty() || rest.starts_with('/')) =>
        {
            format!("INBOX{rest}")
        }
        _ => name,
    }
}
