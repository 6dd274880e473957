//! Header fields: finding them in raw octets, unfolding, RFC 2045 values, RFC 2047 words, and the ids that threads are
//! made of.

use memchr::memchr;

use super::Params;

/// Fields looked at in one header.
pub(super) const FIELDS_MAX: usize = 1_000;

/// One field as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// Name without the colon and blanks before it, as written.
    pub name: &'a [u8],
    /// Everything after the colon, folded as written, with its line end.
    pub value: &'a [u8],
    /// The whole field: name, colon, value, line ends.
    pub raw: &'a [u8],
}

impl HeaderField<'_> {
    /// True if the field has this name (ASCII case does not count).
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The fields of a header (with or without the empty line that ends it). Lines that are no fields are left out;
/// at most 1,000 fields are given.
pub fn header_fields(header: &[u8]) -> impl Iterator<Item = HeaderField<'_>> {
    Fields { rest: header }.take(FIELDS_MAX)
}

struct Fields<'a> {
    rest: &'a [u8],
}

/// Octets up to and including the line end.
fn line_length(octets: &[u8]) -> usize {
    memchr(b'\n', octets).map_or(octets.len(), |at| at + 1)
}

impl<'a> Iterator for Fields<'a> {
    type Item = HeaderField<'a>;

    fn next(&mut self) -> Option<HeaderField<'a>> {
        loop {
            if self.rest.is_empty() || self.rest.starts_with(b"\r\n") || self.rest.starts_with(b"\n") {
                return None;
            }
            let mut end = line_length(self.rest);
            // RFC 5322 §2.2.3: a line that begins with a blank goes on the field before it.
            while matches!(self.rest.get(end), Some(b' ' | b'\t')) {
                end += line_length(&self.rest[end..]);
            }
            let (raw, rest) = self.rest.split_at(end);
            self.rest = rest;
            if let Some(colon) = memchr(b':', raw) {
                let name = raw[..colon].trim_ascii_end();
                let printable = |byte: &u8| (33..=126).contains(byte);
                if !name.is_empty() && name.iter().all(printable) {
                    return Some(HeaderField { name, value: &raw[colon + 1..], raw });
                }
            }
        }
    }
}

/// The first field of that name.
pub fn header_field<'a>(header: &'a [u8], name: &str) -> Option<HeaderField<'a>> {
    header_fields(header).find(|field| field.is(name))
}

/// The value unfolded: line ends taken out, NUL and other controls made blanks, blanks around it cut.
pub fn unfold(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value.trim_ascii() {
        match byte {
            b'\r' | b'\n' => {}
            0..=31 | 127 => out.push(b' '),
            _ => out.push(byte),
        }
    }
    out
}

/// The value as text: unfolded, RFC 2047 words decoded, anything else taken as UTF-8 (damaged octets become U+FFFD).
pub fn decode_header(value: &[u8]) -> String {
    let value = unfold(value);
    if memchr(b'=', &value).is_none() && value.is_ascii() {
        return String::from_utf8_lossy(&value).into_owned();
    }
    encodify::rfc2047::decode_text(&value, mail_parser::decoders::charsets::decode_append).into_owned()
}

/// Skips blanks, line ends and comments (RFC 5322 §3.2.2).
pub(super) fn skip_cfws(mut octets: &[u8]) -> &[u8] {
    loop {
        octets = octets.trim_ascii_start();
        if octets.first() != Some(&b'(') {
            return octets;
        }
        octets = skip_comment(octets).1;
    }
}

/// The text of the comment that begins here, and what follows it. An unended one goes to the end.
pub(super) fn skip_comment(octets: &[u8]) -> (&[u8], &[u8]) {
    let (mut depth, mut at) = (0_u32, 0);
    while at < octets.len() {
        match octets[at] {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return (&octets[1..at], &octets[at + 1..]);
                }
            }
            _ => {}
        }
        at += 1;
    }
    (octets.get(1..).unwrap_or_default(), &[])
}

/// The quoted string that begins here, its quotes and backslashes taken out and unfolded, and what follows it.
pub(super) fn quoted_string(octets: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut out = Vec::new();
    let mut at = 1;
    while at < octets.len() {
        match octets[at] {
            b'"' => return (out, &octets[at + 1..]),
            b'\\' if at + 1 < octets.len() => at += 1,
            _ => {}
        }
        match octets[at] {
            b'\r' | b'\n' => {}
            0 => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    (out, &[])
}

/// A token of RFC 2045 §5.1, taken tolerantly: up to a blank, a line end, `;`, or (in a name) `=` or `/`.
pub(super) fn token<'a>(octets: &'a [u8], stops: &[u8]) -> (&'a [u8], &'a [u8]) {
    let stop = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'(' || *byte == 0 || stops.contains(byte);
    let end = octets.iter().position(stop);
    octets.split_at(end.unwrap_or(octets.len()))
}

/// Parameters looked at in one field.
const PARAMETERS_MAX: usize = 1_000;

/// `; name=value …` after a type or a disposition: names in lower case, values unquoted.
pub(super) fn parameters(mut octets: &[u8]) -> Params {
    let (mut out, mut pieces) = (Vec::new(), Vec::new());
    while out.len() + pieces.len() < PARAMETERS_MAX {
        octets = skip_cfws(octets);
        while let Some(rest) = octets.strip_prefix(b";") {
            octets = skip_cfws(rest);
        }
        if octets.is_empty() {
            break;
        }
        let (name, rest) = token(octets, b"=;");
        let rest = skip_cfws(rest);
        let Some(rest) = rest.strip_prefix(b"=") else {
            // No parameter: on to the next semicolon.
            octets = memchr(b';', rest).map_or(&[], |at| &rest[at..]);
            continue;
        };
        let rest = skip_cfws(rest);
        let (value, rest) = if rest.first() == Some(&b'"') {
            quoted_string(rest)
        } else {
            let (value, rest) = token(rest, b";");
            (value.to_vec(), rest)
        };
        octets = rest;
        if !name.is_empty() {
            let name = name.to_ascii_lowercase();
            if name.contains(&b'*') { &mut pieces } else { &mut out }.push((name, value));
        }
        // Whatever stands between the value and the next semicolon is no parameter.
        octets = skip_cfws(octets);
        if !octets.is_empty() && octets.first() != Some(&b';') {
            octets = memchr(b';', octets).map_or(&[], |at| &octets[at..]);
        }
    }
    if !pieces.is_empty() {
        join_pieces(pieces, &mut out);
    }
    out
}

/// Puts together what RFC 2231 §3 lets a parameter be cut into: `n*0*=…; n*1=…` becomes `n*`, or `n` if no piece is
/// encoded. Pieces that do not follow each other from 0 stay as they are.
fn join_pieces(mut pieces: Params, out: &mut Params) {
    /// The name, the number of the piece (0 if it is whole), and whether it is encoded.
    fn parts(name: &[u8]) -> (&[u8], Option<usize>, bool) {
        let (rest, encoded) = name.strip_suffix(b"*").map_or((name, false), |rest| (rest, true));
        let number = memchr(b'*', rest).and_then(|star| {
            let digits = rest[star + 1..].iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(&rest[star + 1..]).ok().filter(|_| digits)?.parse().ok()?;
            Some((&rest[..star], number))
        });
        number.map_or((rest, None, encoded), |(base, number)| (base, Some(number), encoded))
    }
    pieces.sort_by(|(a, _), (b, _)| {
        let (a, b) = (parts(a), parts(b));
        (a.0, a.1).cmp(&(b.0, b.1))
    });
    for group in pieces.chunk_by(|(a, _), (b, _)| parts(a).0 == parts(b).0) {
        let follow = group.iter().enumerate().all(|(at, (name, _))| parts(name).1 == Some(at));
        if !follow {
            out.extend_from_slice(group);
            continue;
        }
        let mut name = parts(&group[0].0).0.to_vec();
        let mut value = Vec::new();
        if group.iter().any(|(name, _)| parts(name).2) {
            name.push(b'*');
            if !parts(&group[0].0).2 {
                // The first piece must name a character set and a language: none.
                value.extend_from_slice(b"''");
            }
        }
        group.iter().for_each(|(_, piece)| value.extend_from_slice(piece));
        out.push((name, value));
    }
}

/// What a message says of its place in a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadIds {
    /// Its own Message-ID, without the angle brackets.
    pub own: Option<Vec<u8>>,
    /// References: the first and the last eight.
    pub references: Vec<Vec<u8>>,
    /// In-Reply-To: the first id in it.
    pub in_reply_to: Option<Vec<u8>>,
}

/// References kept beside the first.
const REFERENCES_LAST: usize = 8;

/// The ids in a field's value: what stands between angle brackets, blanks taken out.
fn message_ids(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            let start = memchr(b'<', rest)?;
            let after = &rest[start + 1..];
            let end = memchr(b'>', after)?;
            rest = &after[end + 1..];
            let id: Vec<u8> =
                after[..end].iter().copied().filter(|byte| byte.is_ascii_graphic() || *byte >= 128).collect();
            if !id.is_empty() {
                return Some(id);
            }
        }
    })
}

/// The ids that threads are made of (RFC 5322 §3.6.4).
pub fn thread_ids(header: &[u8]) -> ThreadIds {
    let mut out = ThreadIds::default();
    for field in header_fields(header) {
        if out.own.is_none() && field.is("Message-ID") {
            out.own = message_ids(field.value).next();
        } else if out.in_reply_to.is_none() && field.is("In-Reply-To") {
            out.in_reply_to = message_ids(field.value).next();
        } else if out.references.is_empty() && field.is("References") {
            for id in message_ids(field.value) {
                if out.references.len() > REFERENCES_LAST {
                    out.references.remove(1);
                }
                out.references.push(id);
            }
        }
    }
    out
}

/// The base subject of RFC 5256 §2.1 in lower case, and whether something marked a reply or a forward.
pub fn base_subject(decoded: &str) -> (String, bool) {
    let whole = decoded.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let (mut text, mut reply) = (whole.as_str(), false);
    loop {
        // §2.1 (2): trailers.
        while let Some(rest) = text.strip_suffix("(fwd)") {
            text = rest.trim_end();
            reply = true;
        }
        // §2.1 (3) to (5): leaders, and blobs as long as something is left.
        loop {
            let (last_blob, after) = skip_blobs(text);
            if let Some(rest) = leader(after) {
                text = rest;
                reply = true;
            } else {
                text = if after.is_empty() { last_blob } else { after };
                break;
            }
        }
        // §2.1 (6).
        match text.strip_prefix("[fwd:").and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => text = inner.trim(),
            None => return (text.to_owned(), reply),
        }
        reply = true;
    }
}

/// `[…] ` at the beginning: what follows it.
fn blob(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('[')?;
    let end = rest.find(['[', ']'])?;
    rest[end..].strip_prefix(']').map(str::trim_start)
}

/// Blobs at the beginning: the last of them with what follows it, and what follows it.
fn skip_blobs(text: &str) -> (&str, &str) {
    let (mut last, mut after) = (text, text);
    while let Some(rest) = blob(after) {
        (last, after) = (after, rest);
    }
    (last, after)
}

/// `re:`, `fw:`, `fwd:`, also `re [blob]:`; what follows it.
fn leader(text: &str) -> Option<&str> {
    let rest = ["re", "fwd", "fw"].iter().find_map(|mark| text.strip_prefix(mark))?.trim_start();
    blob(rest).unwrap_or(rest).strip_prefix(':').map(str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_folded_and_broken() {
        let header = b"A: 1\r\nSubject : two\r\n three\r\nnonsense\r\nB:\r\n\r\nBody: no\r\n";
        let fields: Vec<_> = header_fields(header).map(|f| (f.name, f.value, f.raw.len())).collect();
        assert_eq!(
            fields,
            [(&b"A"[..], &b" 1\r\n"[..], 6), (b"Subject", b" two\r\n three\r\n", 23), (b"B", b"\r\n", 4)]
        );
        assert_eq!(header_fields(b"x: y").count(), 1);
        assert_eq!(header_fields(b" leading\nX: 1\n\n").count(), 1);
    }

    #[test]
    fn words_are_decoded() {
        for (value, text) in [
            (&b" =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\r\n"[..], "Grüße"),
            (b"=?iso-8859-1?B?4Q==?= =?iso-8859-1?Q?_b?=", "á b"),
            (b" plain\r\n text", "plain text"),
            ("r\u{e4}w".as_bytes(), "räw"),
            (b"=?x?", "=?x?"),
        ] {
            assert_eq!(decode_header(value), text);
        }
    }

    #[test]
    fn parameters_are_taken_tolerantly() {
        let parse = |text: &str| -> Vec<(String, String)> {
            let string = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
            parameters(text.as_bytes()).into_iter().map(|(name, value)| (string(name), string(value))).collect()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parse("; Charset=UTF-8; x = \"a \\\" b\" (c); y"), [pair("charset", "UTF-8"), pair("x", "a \" b")]);
        assert_eq!(parse(" charset=a;;; ; b=\"unended"), [pair("charset", "a"), pair("b", "unended")]);
        assert_eq!(parse("; name*0*=utf-8''a; name*1=b junk; c=d"), [pair("c", "d"), pair("name*", "utf-8''ab")]);
        // RFC 2231 §3: put together, unless a piece is missing or twice there.
        assert_eq!(parse("; n*1=b; m=c; N*0=a"), [pair("m", "c"), pair("n", "ab")]);
        assert_eq!(parse("; n*0=a b; n*1*=%20"), [pair("n*", "''a%20")]);
        assert_eq!(parse("; n*0=a; n*2=c"), [pair("n*0", "a"), pair("n*2", "c")]);
        assert_eq!(parse("; n*=utf-8''%20; n=x"), [pair("n", "x"), pair("n*", "utf-8''%20")]);
        // What no string of IMAP may have is left out, also behind a backslash.
        assert_eq!(parse("; a=\"b\\\r\n c\\\0d\"; e\0=f"), [pair("a", "b c d")]);
        assert!(parse(";;;").is_empty());
    }

    #[test]
    fn ids_for_threads() {
        let references: String = (0..20).map(|n| format!("<{n}@x>\r\n ")).collect();
        let header =
            format!("Message-ID: <own@x>\r\nIn-Reply-To: \"x\" <a@b> <c@d>\r\nReferences: {references}\r\n\r\n");
        let ids = thread_ids(header.as_bytes());
        assert_eq!(ids.own.as_deref(), Some(&b"own@x"[..]));
        assert_eq!(ids.in_reply_to.as_deref(), Some(&b"a@b"[..]));
        assert_eq!(ids.references.len(), 9);
        assert_eq!((ids.references[0].as_slice(), ids.references[8].as_slice()), (&b"0@x"[..], &b"19@x"[..]));
        assert_eq!(thread_ids(b"Message-ID: none\r\n\r\n"), ThreadIds::default());
    }

    #[test]
    fn base_subjects() {
        for (subject, base, reply) in [
            ("Hello", "hello", false),
            ("Re: Hello", "hello", true),
            ("RE : [list] re[2]: hello  world (fwd)", "hello world", true),
            ("[list] Hello", "hello", false),
            ("[Fwd: Hello]", "hello", true),
            ("[only]", "[only]", false),
            ("Re:", "", true),
            ("", "", false),
            ("Re: Grüße", "grüße", true),
            ("[a] [b] fw: [c]", "[c]", true),
            ("[a] [b]", "[b]", false),
            ("[Fwd: Re: [x] y (fwd)]", "y", true),
            ("reply", "reply", false),
            ("[fwd: (fwd)]", "", true),
        ] {
            assert_eq!(base_subject(subject), (base.to_owned(), reply), "{subject}");
        }
    }
}
