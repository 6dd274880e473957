//! What holds of any octets taken for a message, whatever they are: run by the properties, over published messages, and
//! by the fuzz target.

use std::ops::Range;

use bytes::Bytes;
use posthouse_storage::message::{
    Address, DEPTH_MAX, Envelope, MessageRow, MimePass, NewMessage, PARTS_MAX, Parsed, Part, PartKind, ThreadId,
    base_subject, decode_header, decode_text, envelope, header_fields, thread_ids,
};

/// Panics if one of them does not hold.
pub(crate) fn check(octets: &[u8]) {
    let whole = parse(octets, |rest| rest.len());
    assert_eq!(whole.size, octets.len() as u64);
    assert_eq!(whole.structure.header.start, 0);
    assert_eq!(whole.structure.body.end, whole.size);
    let mut parts = 0;
    part(&whole.structure, 0..whole.size, octets, 0, &mut parts);
    assert!(whole.preview.chars().count() <= 256);

    // Any split gives the same: octet by octet, then pieces of lengths that the octets themselves decide.
    if octets.len() <= 1 << 14 {
        assert_eq!(parse(octets, |_| 1), whole);
    }
    for longest in [5, 40, 3_000] {
        let mut state = octets.len() as u64 | 1;
        let random = |rest: &[u8]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as usize % longest + 1).min(rest.len())
        };
        assert_eq!(parse(octets, random), whole);
    }

    let row = NewMessage::from_octets(octets.to_vec()).row(ThreadId(octets.len() as u64));
    assert_eq!(MessageRow::decode(&row.encode()), Ok(row.clone()));
    shown(&envelope(&row.header));
    drop(thread_ids(&row.header));
    drop(decode_text(&row.structure, octets));
    let mut fields = 0;
    for field in header_fields(octets) {
        fields += field.raw.len();
        assert!(field.raw.len() > field.name.len() + field.value.len());
        drop(base_subject(&decode_header(field.value)));
    }
    assert!(fields <= octets.len());

    // Any octets are a structure and a row, or an error.
    drop(Part::from_bytes(octets));
    drop(MessageRow::decode(&Bytes::from([&[1], octets].concat())));
}

/// The pass over octets in pieces, each as long as `length` says of what is left.
fn parse(mut octets: &[u8], mut length: impl FnMut(&[u8]) -> usize) -> Parsed {
    let mut pass = MimePass::default();
    while !octets.is_empty() {
        let (piece, rest) = octets.split_at(length(octets));
        pass.feed(piece);
        octets = rest;
    }
    pass.finish()
}

/// Entities lie in each other and after each other, and their lines are those of their body.
fn part(part: &Part, within: Range<u64>, octets: &[u8], depth: usize, parts: &mut usize) {
    *parts += 1;
    assert!(depth < DEPTH_MAX && *parts <= PARTS_MAX);
    assert!(within.start <= part.header.start && part.header.start <= part.header.end, "{part:?} in {within:?}");
    assert!(part.header.end <= part.body.start && part.body.start <= part.body.end, "{part:?}");
    assert!(part.body.end <= within.end, "{part:?} in {within:?}");
    let body = &octets[part.body.start as usize..part.body.end as usize];
    assert_eq!(part.lines as usize, body.iter().filter(|byte| **byte == b'\n').count(), "{part:?}");
    harmless(part.media_type.iter().chain(&part.media_subtype).chain(&part.encoding));
    harmless(part.params.iter().flat_map(|(name, value)| name.iter().chain(value)));
    harmless([&part.id, &part.description, &part.md5, &part.location].into_iter().flatten().flatten());
    harmless(part.language.iter().flatten());
    if let Some((kind, params)) = &part.disposition {
        harmless(kind.iter().chain(params.iter().flat_map(|(name, value)| name.iter().chain(value))));
    }
    match &part.kind {
        PartKind::Leaf => {}
        PartKind::Multipart(children) => {
            let mut at = part.body.start;
            for child in children {
                self::part(child, at..part.body.end, octets, depth + 1, parts);
                at = child.body.end;
            }
        }
        PartKind::Message { envelope, root } => {
            shown(envelope);
            self::part(root, part.body.clone(), octets, depth + 1, parts);
        }
    }
}

/// What goes into IMAP's strings has neither line ends nor NUL.
fn harmless<'a>(octets: impl IntoIterator<Item = &'a u8>) {
    assert!(octets.into_iter().all(|byte| !matches!(byte, 0 | b'\r' | b'\n')));
}

fn shown(envelope: &Envelope) {
    let texts = [&envelope.date, &envelope.subject, &envelope.in_reply_to, &envelope.message_id];
    harmless(texts.into_iter().flatten().flatten());
    let lists = [&envelope.from, &envelope.sender, &envelope.reply_to, &envelope.to, &envelope.cc, &envelope.bcc];
    for Address { name, route, mailbox, host } in lists.into_iter().flatten() {
        harmless([name, route, mailbox, host].into_iter().flatten().flatten());
    }
}
