//! Envelopes from raw header octets: RFC 5322 address lists, taken as they come.

use super::header::{header_fields, quoted_string, skip_cfws, skip_comment, unfold};
use super::{Address, Envelope};

/// Addresses kept of one field.
const ADDRESSES_MAX: usize = 2_000;

/// The envelope (RFC 3501 §7.4.2) of a header; never fails. Of a field that occurs twice the first counts, but
/// address fields add up.
pub fn envelope(header: &[u8]) -> Envelope {
    let mut out = Envelope::default();
    for field in header_fields(header) {
        let text = |slot: &mut Option<Vec<u8>>| {
            if slot.is_none() {
                *slot = Some(unfold(field.value));
            }
        };
        let name = field.name;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.first().map(u8::to_ascii_lowercase) {
            Some(b'd') if is("Date") => text(&mut out.date),
            Some(b's') if is("Subject") => text(&mut out.subject),
            Some(b's') if is("Sender") => addresses(field.value, &mut out.sender),
            Some(b'f') if is("From") => addresses(field.value, &mut out.from),
            Some(b'r') if is("Reply-To") => addresses(field.value, &mut out.reply_to),
            Some(b't') if is("To") => addresses(field.value, &mut out.to),
            Some(b'c') if is("Cc") => addresses(field.value, &mut out.cc),
            Some(b'b') if is("Bcc") => addresses(field.value, &mut out.bcc),
            Some(b'i') if is("In-Reply-To") => text(&mut out.in_reply_to),
            Some(b'm') if is("Message-ID") => text(&mut out.message_id),
            _ => {}
        }
    }
    out
}

/// Appends the addresses of one field's value.
pub fn addresses(value: &[u8], out: &mut Vec<Address>) {
    let mut parser = Parser { rest: value, out };
    parser.list();
}

struct Parser<'a, 'o> {
    rest: &'a [u8],
    out: &'o mut Vec<Address>,
}

impl<'a> Parser<'a, '_> {
    fn list(&mut self) {
        let mut in_group = false;
        while self.out.len() < ADDRESSES_MAX {
            self.rest = skip_blanks(self.rest);
            match self.rest.first() {
                None => break,
                Some(b',') => self.rest = &self.rest[1..],
                Some(b';') => {
                    self.rest = &self.rest[1..];
                    if std::mem::take(&mut in_group) {
                        self.out.push(Address::default());
                    }
                }
                Some(_) => in_group |= self.mailbox_or_group(),
            }
        }
        if in_group {
            self.out.push(Address::default());
        }
    }

    /// One mailbox, or the beginning of a group (then true).
    fn mailbox_or_group(&mut self) -> bool {
        let (words, comment) = self.words();
        match self.rest.first() {
            Some(b'<') => {
                self.rest = &self.rest[1..];
                let mut address = self.angle();
                let name = join(&words, b' ');
                address.name = if name.is_empty() { comment } else { Some(name) };
                self.out.push(address);
                // What follows up to the next comma belongs to nothing.
                let (_, _) = self.words();
                false
            }
            Some(b':') => {
                self.rest = &self.rest[1..];
                self.out.push(Address { mailbox: Some(join(&words, b' ')), ..Address::default() });
                true
            }
            Some(b'@') => {
                self.rest = &self.rest[1..];
                let mailbox = join(&words, 0);
                let (host, late) = self.words();
                let address = Address {
                    name: late.or(comment),
                    mailbox: Some(mailbox),
                    host: Some(join(&host, 0)),
                    ..Address::default()
                };
                self.out.push(address);
                while self.rest.first() == Some(&b'@') {
                    // `a@b@c`: the rest is not an address.
                    self.rest = &self.rest[1..];
                    let (_, _) = self.words();
                }
                false
            }
            Some(b'>') => {
                self.rest = &self.rest[1..];
                false
            }
            _ => {
                // A word alone: a local part without a domain.
                let mailbox = join(&words, b' ');
                if !mailbox.is_empty() {
                    self.out.push(Address {
                        name: comment,
                        mailbox: Some(mailbox),
                        host: Some(Vec::new()),
                        ..Address::default()
                    });
                }
                false
            }
        }
    }

    /// After `<`: an optional source route, local part, domain, `>`.
    fn angle(&mut self) -> Address {
        let mut address = Address::default();
        self.rest = skip_blanks(self.rest);
        if self.rest.first() == Some(&b'@') {
            let end = self.rest.iter().position(|byte| matches!(byte, b':' | b'>')).unwrap_or(self.rest.len());
            address.route = Some(clean(&self.rest[..end]));
            self.rest = &self.rest[end..];
            self.rest = self.rest.strip_prefix(b":").unwrap_or(self.rest);
        }
        let (local, _) = self.words();
        address.mailbox = Some(join(&local, 0));
        address.host = Some(Vec::new());
        while self.rest.first() == Some(&b'@') {
            self.rest = &self.rest[1..];
            let (host, _) = self.words();
            address.host = Some(join(&host, 0));
        }
        // On to the closing bracket, but never past a comma that begins the next address.
        let end = self.rest.iter().position(|byte| matches!(byte, b'>' | b','));
        self.rest = match end {
            Some(at) if self.rest[at] == b'>' => &self.rest[at + 1..],
            Some(at) => &self.rest[at..],
            None => &[],
        };
        address
    }

    /// Atoms and quoted strings up to a special; and the last comment among them.
    fn words(&mut self) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let (mut words, mut comment) = (Vec::new(), None);
        loop {
            self.rest = self.rest.trim_ascii_start();
            match self.rest.first() {
                None | Some(b'<' | b'>' | b',' | b';' | b':' | b'@') => return (words, comment),
                Some(b'(') => {
                    let (text, rest) = skip_comment(self.rest);
                    self.rest = rest;
                    comment = Some(clean(text)).filter(|text| !text.is_empty());
                }
                Some(b'"') => {
                    let (text, rest) = quoted_string(self.rest);
                    self.rest = rest;
                    words.push(clean(&text));
                }
                Some(b'[') => {
                    let end = memchr::memchr(b']', self.rest).map_or(self.rest.len(), |at| at + 1);
                    words.push(clean(&self.rest[..end]));
                    self.rest = &self.rest[end..];
                }
                Some(_) => {
                    let stop = |byte: &u8| byte.is_ascii_whitespace() || b"<>,;:@(\"[".contains(byte);
                    // The first octet is none of these, so that every turn gets on.
                    let end = self.rest[1..].iter().position(stop).map_or(self.rest.len(), |at| at + 1);
                    words.push(clean(&self.rest[..end]));
                    self.rest = &self.rest[end..];
                }
            }
        }
    }
}

fn skip_blanks(octets: &[u8]) -> &[u8] {
    if octets.first() == Some(&b'(') { octets } else { skip_cfws_but_comment(octets) }
}

fn skip_cfws_but_comment(octets: &[u8]) -> &[u8] {
    let trimmed = octets.trim_ascii_start();
    if trimmed.first() == Some(&b'(') && skip_cfws(trimmed).is_empty() { &[] } else { trimmed }
}

fn clean(octets: &[u8]) -> Vec<u8> {
    unfold(octets)
}

/// Joins words; `0` joins without anything between.
fn join(words: &[Vec<u8>], between: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, word) in words.iter().enumerate() {
        if n > 0 && between != 0 {
            out.push(between);
        }
        out.extend_from_slice(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name|route|mailbox|host` of each, `-` for none.
    fn shown(value: &str) -> Vec<String> {
        let mut out = Vec::new();
        addresses(value.as_bytes(), &mut out);
        let text = |part: &Option<Vec<u8>>| {
            part.as_ref().map_or("-".to_owned(), |octets| String::from_utf8_lossy(octets).into_owned())
        };
        out.iter().map(|a| [&a.name, &a.route, &a.mailbox, &a.host].map(text).join("|")).collect()
    }

    #[test]
    fn addresses_good_and_broken() {
        for (value, expected) in [
            ("a@b.c", &["-|-|a|b.c"][..]),
            ("Ann Lee <a@b.c>, \"Lee, Bob\" <b@c.d>", &["Ann Lee|-|a|b.c", "Lee, Bob|-|b|c.d"]),
            ("a@b.c (Ann)", &["Ann|-|a|b.c"]),
            ("<@x,@y:a@b>", &["-|@x,@y|a|b"]),
            ("friends: a@b, c@d;, e@f", &["-|-|friends|-", "-|-|a|b", "-|-|c|d", "-|-|-|-", "-|-|e|f"]),
            ("undisclosed-recipients:;", &["-|-|undisclosed-recipients|-", "-|-|-|-"]),
            ("\"a b\"@c", &["-|-|a b|c"]),
            ("=?utf-8?q?=C3=BC?= <u@x>", &["=?utf-8?q?=C3=BC?=|-|u|x"]),
            ("local", &["-|-|local|"]),
            ("<a@b", &["-|-|a|b"]),
            ("a@b@c, d@e", &["-|-|a|b", "-|-|d|e"]),
            (",,;  ,", &[]),
            ("(only a comment)", &[]),
            ("a . b @ c . d", &["-|-|a.b|c.d"]),
            ("x@[127.0.0.1]", &["-|-|x|[127.0.0.1]"]),
            ("<>", &["-|-||"]),
            ("a <b@c> junk, d@e", &["a|-|b|c", "-|-|d|e"]),
            ("a@b\r\n\tx", &["-|-|a|bx"]),
        ] {
            assert_eq!(shown(value), expected, "{value}");
        }
    }

    #[test]
    fn an_envelope() {
        let header = b"From: a@b\r\nTo: c@d\r\nTo: e@f\r\nSubject: one\r\n two\r\nSubject: three\r\nDate:\r\nMessage-ID: <x@y>\r\n\r\n";
        let envelope = envelope(header);
        assert_eq!(envelope.subject.as_deref(), Some(&b"one two"[..]));
        assert_eq!(envelope.to.len(), 2);
        assert_eq!(envelope.date.as_deref(), Some(&b""[..]));
        assert_eq!(envelope.message_id.as_deref(), Some(&b"<x@y>"[..]));
        assert!(envelope.sender.is_empty());
    }
}
