//! Commands (RFC 5321 §4.1.1) and their parameters, from a line that [`super::line`] framed.
//!
//! Strict, but for what real clients were seen to do: blanks after `FROM:` and `TO:` and at the end of a line, and
//! host names in EHLO that no resolver would take.

use super::path::{Mailbox, path};

/// A command. Borrows from its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Command<'a> {
    Hello { kind: Hello, name: &'a str },
    Mail { from: Option<Mailbox<'a>>, params: MailParams },
    Rcpt { to: Mailbox<'a> },
    Data,
    Rset,
    Noop,
    Vrfy,
    Expn,
    Help,
    Quit,
    StartTls,
    Auth { mechanism: &'a str, initial: Option<&'a [u8]> },
    Bdat,
    Http,
}

/// How a client says hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Hello {
    Helo,
    Ehlo,
    Lhlo,
}

/// Parameters of MAIL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MailParams {
    /// RFC 1870; what does not fit is `u64::MAX`.
    pub size: Option<u64>,
    /// RFC 6152; what was declared makes no difference here: octets are octets.
    pub body: bool,
    /// RFC 6531.
    pub smtputf8: bool,
    /// RFC 4954 §5; read, and not trusted.
    pub auth: bool,
}

/// Why a line is no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not printable.
    Octets,
    /// No such verb.
    Verb,
    /// The verb's arguments are missing, bad or too many.
    Arguments,
    /// EHLO, HELO or LHLO with a name that cannot stand in a trace field.
    HelloName,
    /// MAIL with something that is no reverse path.
    ReversePath,
    /// RCPT with something that is no forward path.
    ForwardPath,
    /// A parameter of MAIL or RCPT that is not offered.
    UnknownParameter,
    /// A known parameter with a bad value, or twice.
    BadParameter,
}

/// Octets of a name in EHLO.
const NAME_MAX: usize = 255;

impl<'a> Command<'a> {
    /// Reads a line without its CR LF.
    pub fn parse(line: &'a [u8]) -> Result<Self, Malformed> {
        let line = line.trim_ascii_end();
        let (verb, rest) = match line.iter().position(|octet| matches!(octet, b' ' | b'\t')) {
            Some(at) => (&line[..at], line[at..].trim_ascii_start()),
            None => (line, &[][..]),
        };
        if line.iter().any(|&octet| (octet < b' ' && octet != b'\t') || octet == 0x7f) {
            return Err(Malformed::Octets);
        }
        let bare = |command| if rest.is_empty() { Ok(command) } else { Err(Malformed::Arguments) };
        let some = |command| if rest.is_empty() { Err(Malformed::Arguments) } else { Ok(command) };
        let mut upper = [0; 8];
        let upper = upper.get_mut(..verb.len()).ok_or(Malformed::Verb)?;
        upper.copy_from_slice(verb);
        upper.make_ascii_uppercase();
        match &*upper {
            b"EHLO" => hello(Hello::Ehlo, rest),
            b"HELO" => hello(Hello::Helo, rest),
            b"LHLO" => hello(Hello::Lhlo, rest),
            b"MAIL" => mail(rest),
            b"RCPT" => rcpt(rest),
            b"DATA" => bare(Self::Data),
            b"RSET" => bare(Self::Rset),
            b"NOOP" => Ok(Self::Noop),
            b"VRFY" => some(Self::Vrfy),
            b"EXPN" => some(Self::Expn),
            b"HELP" => Ok(Self::Help),
            b"QUIT" => bare(Self::Quit),
            b"STARTTLS" => bare(Self::StartTls),
            b"AUTH" => auth(rest),
            b"BDAT" => Ok(Self::Bdat),
            b"GET" | b"POST" | b"CONNECT" | b"HEAD" | b"PUT" | b"OPTIONS" | b"DELETE" | b"PATCH" => Ok(Self::Http),
            _ => Err(Malformed::Verb),
        }
    }
}

fn hello(kind: Hello, rest: &[u8]) -> Result<Command<'_>, Malformed> {
    if rest.is_empty() {
        return Err(Malformed::Arguments);
    }
    // The name goes into a trace field: no blanks, no comments, no quotes.
    let fits = |octet: &u8| octet.is_ascii_graphic() && !b"()<>\\\",;@".contains(octet);
    match std::str::from_utf8(rest) {
        Ok(name) if name.len() <= NAME_MAX && rest.iter().all(fits) => Ok(Command::Hello { kind, name }),
        _ => Err(Malformed::HelloName),
    }
}

fn mail(rest: &[u8]) -> Result<Command<'_>, Malformed> {
    let rest = keyword(rest, b"FROM:").ok_or(Malformed::Arguments)?;
    let (from, rest) = path(rest).ok_or(Malformed::ReversePath)?;
    if from.is_some_and(|from| from.at.is_none()) {
        return Err(Malformed::ReversePath);
    }
    let mut params = MailParams::default();
    for (name, value) in parameters(rest)? {
        let known = [("SIZE", 0), ("BODY", 1), ("SMTPUTF8", 2), ("AUTH", 3)];
        let known = known.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
        let (good, seen) = match (known, value) {
            (Some((_, 0)), Some(value)) => {
                let twice = params.size.is_some();
                params.size = size(value);
                (params.size.is_some(), twice)
            }
            (Some((_, 1)), Some(value)) => {
                let good = value.eq_ignore_ascii_case(b"8BITMIME") || value.eq_ignore_ascii_case(b"7BIT");
                (good, std::mem::replace(&mut params.body, true))
            }
            (Some((_, 2)), None) => (true, std::mem::replace(&mut params.smtputf8, true)),
            (Some((_, 3)), Some(value)) => (is_xtext(value), std::mem::replace(&mut params.auth, true)),
            (Some(_), _) => (false, false),
            (None, _) => return Err(Malformed::UnknownParameter),
        };
        if !good || seen {
            return Err(Malformed::BadParameter);
        }
    }
    Ok(Command::Mail { from, params })
}

fn rcpt(rest: &[u8]) -> Result<Command<'_>, Malformed> {
    let rest = keyword(rest, b"TO:").ok_or(Malformed::Arguments)?;
    let (to, rest) = path(rest).ok_or(Malformed::ForwardPath)?;
    let to = to.ok_or(Malformed::ForwardPath)?;
    // RFC 5321 §4.5.1: the one name that needs no domain.
    if to.at.is_none() && !to.text.eq_ignore_ascii_case("postmaster") {
        return Err(Malformed::ForwardPath);
    }
    match parameters(rest)?.next() {
        Some(_) => Err(Malformed::UnknownParameter),
        None => Ok(Command::Rcpt { to }),
    }
}

fn auth(rest: &[u8]) -> Result<Command<'_>, Malformed> {
    let mut words = rest.split(|&octet| octet == b' ').filter(|word| !word.is_empty());
    let mechanism = words.next().and_then(|word| std::str::from_utf8(word).ok()).ok_or(Malformed::Arguments)?;
    let initial = words.next();
    match words.next() {
        Some(_) => Err(Malformed::Arguments),
        None => Ok(Command::Auth { mechanism, initial }),
    }
}

/// What follows `FROM:` or `TO:`, and blanks that should not be there but are (`MAIL FROM: <a@b>`).
fn keyword<'a>(rest: &'a [u8], keyword: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = rest.split_at_checked(keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| rest.trim_ascii_start())
}

type Parameter<'a> = (&'a [u8], Option<&'a [u8]>);

/// `SP keyword[=value]` …
fn parameters(rest: &[u8]) -> Result<impl Iterator<Item = Parameter<'_>>, Malformed> {
    if !rest.is_empty() && rest[0] != b' ' {
        return Err(Malformed::BadParameter);
    }
    let words = rest.split(|&octet| octet == b' ').filter(|word| !word.is_empty());
    Ok(words.map(|word| match word.iter().position(|&octet| octet == b'=') {
        Some(at) => (&word[..at], Some(&word[at + 1..])),
        None => (word, None),
    }))
}

/// RFC 1870 §3: 1 to 20 digits.
fn size(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 20 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0u64, |size, digit| size.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// RFC 3461 §4: printable octets, others as `+XX`; what stands for a control character is refused.
fn is_xtext(value: &[u8]) -> bool {
    let mut octets = value.iter();
    while let Some(&octet) = octets.next() {
        match octet {
            b'+' => {
                let digit = |octet: Option<&u8>| octet.and_then(|&octet| char::from(octet).to_digit(16));
                match (digit(octets.next()), digit(octets.next())) {
                    (Some(high), Some(low)) if (0x20..0x7f).contains(&(high * 16 + low)) => {}
                    _ => return false,
                }
            }
            b'!'..=b'~' if octet != b'=' => {}
            _ => return false,
        }
    }
    !value.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mail(line: &str) -> Result<(Option<String>, MailParams), Malformed> {
        match Command::parse(line.as_bytes())? {
            Command::Mail { from, params } => Ok((from.map(|from| from.text.to_owned()), params)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mail_and_its_parameters() {
        let plain = MailParams::default();
        let good: &[(&str, &str, MailParams)] = &[
            ("MAIL FROM:<a@b>", "a@b", plain),
            ("mail from:<A@b>", "A@b", plain),
            ("MAIL FROM: <a@b>", "a@b", plain),
            ("MAIL  FROM:<a@b>  ", "a@b", plain),
            ("MAIL FROM:<a@b> SIZE=12", "a@b", MailParams { size: Some(12), ..plain }),
            ("MAIL FROM:<a@b> size=99999999999999999999", "a@b", MailParams { size: Some(u64::MAX), ..plain }),
            ("MAIL FROM:<a@b> BODY=8BITMIME SMTPUTF8", "a@b", MailParams { body: true, smtputf8: true, ..plain }),
            ("MAIL FROM:<a@b> AUTH=e+3Dmc2@example.com", "a@b", MailParams { auth: true, ..plain }),
            ("MAIL FROM:<a@b> AUTH=<> BODY=7bit", "a@b", MailParams { auth: true, body: true, ..plain }),
        ];
        for (line, from, params) in good {
            assert_eq!(mail(line), Ok((Some((*from).to_owned()), *params)), "{line}");
        }
        assert_eq!(mail("MAIL FROM:<>"), Ok((None, plain)));
        let bad = [
            ("MAIL", Malformed::Arguments),
            ("MAIL TO:<a@b>", Malformed::Arguments),
            ("MAIL FROM <a@b>", Malformed::Arguments),
            ("MAIL FROM:", Malformed::ReversePath),
            ("MAIL FROM:a@b", Malformed::ReversePath),
            ("MAIL FROM:<postmaster>", Malformed::ReversePath),
            ("MAIL FROM:<a@b> SIZE=", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SIZE", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SIZE=-1", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SIZE=1x", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SIZE=99999999999999999999999", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SIZE=1 SIZE=1", Malformed::BadParameter),
            ("MAIL FROM:<a@b>SIZE=1", Malformed::BadParameter),
            ("MAIL FROM:<a@b><c@d>", Malformed::BadParameter),
            ("MAIL FROM:<a@b> BODY=BINARYMIME", Malformed::BadParameter),
            ("MAIL FROM:<a@b> SMTPUTF8=1", Malformed::BadParameter),
            ("MAIL FROM:<a@b> AUTH=a+0Ab", Malformed::BadParameter),
            ("MAIL FROM:<a@b> AUTH=a+Z", Malformed::BadParameter),
            ("MAIL FROM:<a@b> RET=HDRS", Malformed::UnknownParameter),
            ("MAIL FROM:<a@b> =", Malformed::UnknownParameter),
            ("MAIL FROM:<a@\x01>", Malformed::Octets),
        ];
        for (line, malformed) in bad {
            assert_eq!(mail(line), Err(malformed), "{line}");
        }
    }

    #[test]
    fn other_commands() {
        use Command::*;
        let cases: &[(&str, Result<Command<'_>, Malformed>)] = &[
            ("EHLO a.b", Ok(Hello { kind: super::Hello::Ehlo, name: "a.b" })),
            ("helo foo_bar ", Ok(Hello { kind: super::Hello::Helo, name: "foo_bar" })),
            ("LHLO [IPv6:::1]", Ok(Hello { kind: super::Hello::Lhlo, name: "[IPv6:::1]" })),
            ("EHLO", Err(Malformed::Arguments)),
            ("EHLO a b", Err(Malformed::HelloName)),
            ("EHLO a(b", Err(Malformed::HelloName)),
            ("EHLO \u{fc}", Err(Malformed::HelloName)),
            ("DATA", Ok(Data)),
            ("DATA foo", Err(Malformed::Arguments)),
            ("RSET x", Err(Malformed::Arguments)),
            ("NOOP x", Ok(Noop)),
            ("VRFY", Err(Malformed::Arguments)),
            ("VRFY \u{fc}", Ok(Vrfy)),
            ("EXPN list", Ok(Expn)),
            ("HELP", Ok(Help)),
            ("HELP MAIL", Ok(Help)),
            ("QUIT", Ok(Quit)),
            ("STARTTLS", Ok(StartTls)),
            ("STARTTLS x", Err(Malformed::Arguments)),
            ("AUTH PLAIN", Ok(Auth { mechanism: "PLAIN", initial: None })),
            ("AUTH PLAIN AGE=", Ok(Auth { mechanism: "PLAIN", initial: Some(b"AGE=") })),
            ("AUTH", Err(Malformed::Arguments)),
            ("AUTH PLAIN a b", Err(Malformed::Arguments)),
            ("BDAT 99999999999999999999999 LAST", Ok(Bdat)),
            ("GET / HTTP/1.1", Ok(Http)),
            ("", Err(Malformed::Verb)),
            ("MAILFROM:<a@b>", Err(Malformed::Verb)),
            ("\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}", Err(Malformed::Verb)),
            ("NOOP \0", Err(Malformed::Octets)),
            ("RCPT TO:<a@b> NOTIFY=NEVER", Err(Malformed::UnknownParameter)),
            ("RCPT TO:<>", Err(Malformed::ForwardPath)),
            ("RCPT TO:<someone>", Err(Malformed::ForwardPath)),
            ("RCPT FROM:<a@b>", Err(Malformed::Arguments)),
        ];
        for (line, command) in cases {
            assert_eq!(&Command::parse(line.as_bytes()), command, "{line}");
        }
        for line in ["RCPT TO:<PostMaster>", "RCPT TO: <a@b>", "rcpt to:<a@b>"] {
            assert!(matches!(Command::parse(line.as_bytes()), Ok(Rcpt { .. })), "{line}");
        }
    }

    proptest! {
        #[test]
        fn blanks_at_the_end_mean_nothing(line in prop::collection::vec(any::<u8>(), 0..60), text in "(MAIL FROM:|RCPT TO:|AUTH )[ -~]{0,30}") {
            for line in [line.as_slice(), text.as_bytes()] {
                let blank = [line, b" "].concat();
                prop_assert_eq!(Command::parse(&blank), Command::parse(line));
            }
        }
    }
}
