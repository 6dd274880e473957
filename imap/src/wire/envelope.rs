//! ENVELOPE (RFC 3501 §7.4.2), as Dovecot writes it.

use posthouse_storage::message::{Address, Envelope};

use super::write::nstring_unescaped as nstring;

/// Appends `("date" "subject" ((from)) ((sender)) ((reply-to)) ((to)) ((cc)) ((bcc)) "in-reply-to" "message-id")`.
pub fn write(out: &mut Vec<u8>, envelope: &Envelope) {
    out.push(b'(');
    nstring(out, envelope.date.as_deref());
    out.push(b' ');
    nstring(out, envelope.subject.as_deref());
    // RFC 3501 §7.4.2: a missing Sender or Reply-To is told as From.
    let sender = if envelope.sender.is_empty() { &envelope.from } else { &envelope.sender };
    let reply_to = if envelope.reply_to.is_empty() { &envelope.from } else { &envelope.reply_to };
    for list in [&envelope.from, sender, reply_to, &envelope.to, &envelope.cc, &envelope.bcc] {
        out.push(b' ');
        addresses(out, list);
    }
    out.push(b' ');
    nstring(out, envelope.in_reply_to.as_deref());
    out.push(b' ');
    nstring(out, envelope.message_id.as_deref());
    out.push(b')');
}

fn addresses(out: &mut Vec<u8>, list: &[Address]) {
    if list.is_empty() {
        out.extend_from_slice(b"NIL");
        return;
    }
    out.push(b'(');
    for address in list {
        out.push(b'(');
        nstring(out, address.name.as_deref());
        out.push(b' ');
        nstring(out, address.route.as_deref());
        out.push(b' ');
        nstring(out, address.mailbox.as_deref());
        out.push(b' ');
        nstring(out, address.host.as_deref());
        out.push(b')');
    }
    out.push(b')');
}
