//! Envelopes from raw header octets: RFC 5322 address lists, taken as they come.

use super::header::{header_fields, quoted_string, skip_comment, unfold};
use super::{Address, Envelope};

/// Addresses kept of one field.
const ADDRESSES_MAX: usize = 2_000;

/// The envelope (RFC 3501 §7.4.2) of a header; never fails. Of a field that occurs twice the last counts, but
/// address fields add up (as in Dovecot: what is shown must be what a filter has seen).
pub fn envelope(header: &[u8]) -> Envelope {
    let mut out = Envelope::default();
    for field in header_fields(header) {
        let name = field.name;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.first().map(u8::to_ascii_lowercase) {
            Some(b'd') if is("Date") => out.date = Some(text(field.value)),
            Some(b's') if is("Subject") => out.subject = Some(subject(field.value)),
            Some(b's') if is("Sender") => addresses(field.value, &mut out.sender),
            Some(b'f') if is("From") => addresses(field.value, &mut out.from),
            Some(b'r') if is("Reply-To") => addresses(field.value, &mut out.reply_to),
            Some(b't') if is("To") => addresses(field.value, &mut out.to),
            Some(b'c') if is("Cc") => addresses(field.value, &mut out.cc),
            Some(b'b') if is("Bcc") => addresses(field.value, &mut out.bcc),
            Some(b'i') if is("In-Reply-To") => out.in_reply_to = Some(text(field.value)),
            Some(b'm') if is("Message-ID") => out.message_id = Some(text(field.value)),
            _ => {}
        }
    }
    out
}

/// A subject for people: unfolded, runs of blanks made one, as in Dovecot.
fn subject(value: &[u8]) -> Vec<u8> {
    let mut out = unfold(value);
    out.dedup_by(|b, a| *b == b' ' && *a == b' ');
    out
}

/// Any other text, octet for octet as in Dovecot: unfolded, and only the blanks before it cut, but not those that a
/// folded first line begins with.
fn text(value: &[u8]) -> Vec<u8> {
    let start = value.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let octets = value[start..].iter().filter(|byte| !matches!(byte, b'\r' | b'\n'));
    octets.map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }).collect()
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
            self.rest = self.rest.trim_ascii_start();
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
                let name = words.spaced();
                address.name = if name.is_empty() { comment } else { Some(name) };
                self.out.push(address);
                // What follows up to the next comma belongs to nothing.
                let (_, _) = self.words();
                false
            }
            Some(b':') => {
                self.rest = &self.rest[1..];
                self.out.push(Address { mailbox: Some(words.spaced()), ..Address::default() });
                true
            }
            Some(b'@') => {
                self.rest = &self.rest[1..];
                let mailbox = words.joined();
                let (host, late) = self.words();
                let address = Address {
                    name: late.or(comment),
                    mailbox: Some(mailbox),
                    host: Some(host.joined()),
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
                // A word alone is a local part without a domain; several are a name.
                let several = words.several();
                let (name, mailbox) =
                    if several { (Some(words.spaced()), Vec::new()) } else { (comment, words.joined()) };
                if several || !mailbox.is_empty() {
                    let (mailbox, host) = (Some(mailbox), Some(Vec::new()));
                    self.out.push(Address { name, mailbox, host, ..Address::default() });
                }
                false
            }
        }
    }

    /// After `<`: an optional source route, local part, domain, `>`.
    fn angle(&mut self) -> Address {
        let mut address = Address::default();
        self.rest = self.rest.trim_ascii_start();
        if self.rest.first() == Some(&b'@') {
            let end = self.rest.iter().position(|byte| matches!(byte, b':' | b'>')).unwrap_or(self.rest.len());
            address.route = Some(unfold(&self.rest[..end]));
            self.rest = &self.rest[end..];
            self.rest = self.rest.strip_prefix(b":").unwrap_or(self.rest);
        }
        let (local, _) = self.words();
        address.mailbox = Some(local.joined());
        address.host = Some(Vec::new());
        while self.rest.first() == Some(&b'@') {
            self.rest = &self.rest[1..];
            let (host, _) = self.words();
            address.host = Some(host.joined());
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
    fn words(&mut self) -> (Words, Option<Vec<u8>>) {
        let (mut words, mut comment) = (Words::default(), None);
        loop {
            self.rest = self.rest.trim_ascii_start();
            match self.rest.first() {
                None | Some(b'<' | b'>' | b',' | b';' | b':' | b'@') => return (words, comment),
                Some(b'(') => {
                    let (text, rest) = skip_comment(self.rest);
                    self.rest = rest;
                    comment = Some(unfold(text)).filter(|text| !text.is_empty());
                }
                Some(b'"') => {
                    let (text, rest) = quoted_string(self.rest);
                    self.rest = rest;
                    words.push(&text);
                }
                Some(b'[') => {
                    let end = memchr::memchr(b']', self.rest).map_or(self.rest.len(), |at| at + 1);
                    words.push(&self.rest[..end]);
                    self.rest = &self.rest[end..];
                }
                Some(_) => {
                    let stop = |byte: &u8| byte.is_ascii_whitespace() || b"<>,;:@(\"[".contains(byte);
                    // The first octet is none of these, so that every turn gets on.
                    let end = self.rest[1..].iter().position(stop).map_or(self.rest.len(), |at| at + 1);
                    words.push(&self.rest[..end]);
                    self.rest = &self.rest[end..];
                }
            }
        }
    }
}

/// Words of one phrase, local part or domain: in one buffer, NUL between them (which none of them has).
#[derive(Debug, Default)]
struct Words(Vec<u8>);

impl Words {
    fn push(&mut self, word: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(0);
        }
        let clean = |byte: &u8| match byte {
            b'\r' | b'\n' => None,
            0..=31 | 127 => Some(b' '),
            byte => Some(*byte),
        };
        self.0.extend(word.trim_ascii().iter().filter_map(clean));
    }

    fn several(&self) -> bool {
        self.0.contains(&0)
    }

    /// With a blank between words: a display name.
    fn spaced(mut self) -> Vec<u8> {
        self.0.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        self.0
    }

    /// With nothing between words: a local part or a domain.
    fn joined(mut self) -> Vec<u8> {
        self.0.retain(|byte| *byte != 0);
        self.0
    }
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
            ("no address", &["no address|-||"]),
            ("a@b (c) (d), (e)", &["d|-|a|b"]),
            ("a <b@c> junk, d@e", &["a|-|b|c", "-|-|d|e"]),
            ("a@b\r\n\tx", &["-|-|a|bx"]),
        ] {
            assert_eq!(shown(value), expected, "{value}");
        }
    }

    #[test]
    fn an_envelope() {
        let header = b"From: a@b\r\nTo: c@d\r\nTo: e@f\r\nSubject: one\r\n two\r\nSubject: three\r\nDate:\r\nMessage-ID: <x@y>\r\n\r\n";
        assert_eq!(super::envelope(b"Subject:  a \t b\r\n\tc \r\n").subject.as_deref(), Some(&b"a b c"[..]));
        assert_eq!(super::envelope(b"Message-ID:\r\n <x@y>\r\n").message_id.as_deref(), Some(&b" <x@y>"[..]));
        let envelope = envelope(header);
        assert_eq!(envelope.subject.as_deref(), Some(&b"three"[..]));
        assert_eq!(envelope.to.len(), 2);
        assert_eq!(envelope.date.as_deref(), Some(&b""[..]));
        assert_eq!(envelope.message_id.as_deref(), Some(&b"<x@y>"[..]));
        assert!(envelope.sender.is_empty());
    }
}
