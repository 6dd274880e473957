//! BODY and BODYSTRUCTURE (RFC 3501 §7.4.2), as Dovecot writes them: names of types and parameters in the case the
//! structure has them (lower, unless a rule says otherwise), every extension field always there.
//!
//! Some clients show garbage when extension fields are left off, and Outlook wants the encoding as Dovecot spells it.

use posthouse_storage::message::{Envelope, Part, PartKind};

use super::envelope;
use super::write::{nstring, number, string};

/// Appends the structure; without `extended` it is BODY, with it BODYSTRUCTURE.
pub fn write(out: &mut Vec<u8>, root: &Part, extended: bool) {
    part(out, root, extended, 0);
}

/// Deeper parts than this are told as octets. The structure of a stored message is shallower.
const DEPTH_MAX: usize = 200;

fn part(out: &mut Vec<u8>, part: &Part, extended: bool, depth: usize) {
    out.push(b'(');
    match &part.kind {
        PartKind::Multipart(parts) if depth < DEPTH_MAX => multipart(out, part, parts, extended, depth),
        kind => single(out, part, kind, extended, depth),
    }
    out.push(b')');
}

fn multipart(out: &mut Vec<u8>, whole: &Part, parts: &[Part], extended: bool, depth: usize) {
    for inner in parts {
        part(out, inner, extended, depth + 1);
    }
    if parts.is_empty() {
        // The grammar wants at least one part (1*body): an empty text/plain, as Dovecot tells it.
        empty_text(out, extended);
    }
    out.push(b' ');
    string(out, &whole.media_subtype);
    if extended {
        out.push(b' ');
        parameters(out, &whole.params, false);
        extension(out, whole);
    }
}

/// What stands where the grammar wants a part and there is none.
fn empty_text(out: &mut Vec<u8>, extended: bool) {
    out.extend_from_slice(b"(\"text\" \"plain\" (\"charset\" \"us-ascii\") NIL NIL \"7bit\" 0 0");
    out.extend_from_slice(if extended { b" NIL NIL NIL NIL)" } else { b")" });
}

fn single(out: &mut Vec<u8>, part: &Part, kind: &PartKind, extended: bool, depth: usize) {
    let is_text = part.media_type.eq_ignore_ascii_case(b"text");
    let message = match kind {
        PartKind::Message { envelope, root } if depth < DEPTH_MAX => Some((envelope, root)),
        _ => None,
    };
    // "multipart" may only be told of what has its shape.
    let (media_type, media_subtype) = match part.media_type.as_slice() {
        b"multipart" => (&b"application"[..], &b"octet-stream"[..]),
        media_type => (media_type, part.media_subtype.as_slice()),
    };
    // So may "message" "rfc822"; one that was not looked into (it is in base64) is told with nothing in it.
    let opaque = message.is_none() && media_type == b"message" && media_subtype == b"rfc822";
    string(out, media_type);
    out.push(b' ');
    string(out, media_subtype);
    out.push(b' ');
    parameters(out, &part.params, is_text);
    out.push(b' ');
    nstring(out, part.id.as_deref());
    out.push(b' ');
    nstring(out, part.description.as_deref());
    out.push(b' ');
    string(out, &part.encoding);
    out.push(b' ');
    number(out, part.body.end.saturating_sub(part.body.start));
    if let Some((envelope, root)) = message {
        out.push(b' ');
        envelope::write(out, envelope);
        out.push(b' ');
        self::part(out, root, extended, depth + 1);
    }
    if opaque {
        out.push(b' ');
        envelope::write(out, &Envelope::default());
        out.push(b' ');
        empty_text(out, extended);
    }
    if message.is_some() || opaque || is_text {
        out.push(b' ');
        number(out, u64::from(part.lines));
    }
    if extended {
        out.push(b' ');
        nstring(out, part.md5.as_deref());
        extension(out, part);
    }
}

fn parameters(out: &mut Vec<u8>, parameters: &[(Vec<u8>, Vec<u8>)], is_text: bool) {
    // RFC 2046 §4.1.2: text without a charset is US-ASCII; Dovecot says so.
    let charset = is_text && !parameters.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"charset"));
    if parameters.is_empty() && !charset {
        out.extend_from_slice(b"NIL");
        return;
    }
    let mut before = b'(';
    for (name, value) in parameters {
        out.push(before);
        string(out, name);
        out.push(b' ');
        string(out, value);
        before = b' ';
    }
    if charset {
        out.push(before);
        out.extend_from_slice(b"\"charset\" \"us-ascii\"");
    }
    out.push(b')');
}

/// Disposition, language, location.
fn extension(out: &mut Vec<u8>, part: &Part) {
    out.push(b' ');
    match &part.disposition {
        None => out.extend_from_slice(b"NIL"),
        Some((kind, disposition)) => {
            out.push(b'(');
            string(out, kind);
            out.push(b' ');
            parameters(out, disposition, false);
            out.push(b')');
        }
    }
    out.push(b' ');
    match part.language.as_slice() {
        [] => out.extend_from_slice(b"NIL"),
        languages => {
            for (at, language) in languages.iter().enumerate() {
                out.push(if at == 0 { b'(' } else { b' ' });
                string(out, language);
            }
            out.push(b')');
        }
    }
    out.push(b' ');
    nstring(out, part.location.as_deref());
}
