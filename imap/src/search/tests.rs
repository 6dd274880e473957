use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthouse_storage::group::Seq;
use posthouse_storage::message::{NewMessage, ThreadId};

use super::*;
use crate::wire::command::CommandBody;
use crate::wire::parse::{ParseOptions, parse_command};

/// Messages in memory, which counts what is read of them.
#[derive(Default)]
struct Mailbox {
    entries: Vec<Entry>,
    rows: HashMap<EmailId, (Arc<MessageRow>, Bytes)>,
    rows_read: AtomicUsize,
    octets_read: AtomicUsize,
}

impl Messages for Mailbox {
    type Error = std::convert::Infallible;

    async fn rows(&self, emails: &[EmailId]) -> Result<Vec<Option<Arc<MessageRow>>>, Self::Error> {
        self.rows_read.fetch_add(emails.len(), Ordering::Relaxed);
        Ok(emails.iter().map(|email| self.rows.get(email).map(|(row, _)| row.clone())).collect())
    }

    async fn octets(&self, email: EmailId, _: &MessageRow, range: Range<u64>) -> Result<Bytes, Self::Error> {
        self.octets_read.fetch_add(1, Ordering::Relaxed);
        // Seven at a time: a reader has to ask again.
        let end = range.end.min(range.start + 7);
        Ok(self.rows[&email].1.slice(range.start as usize..end as usize))
    }
}

impl Mailbox {
    fn add(&mut self, received_at_ms: i64, flags: Flags, octets: &str) {
        let octets = Bytes::from(octets.replace('\n', "\r\n"));
        let email = EmailId::new(received_at_ms, self.entries.len() as u128);
        let thread = ThreadId(1);
        self.rows.insert(email, (Arc::new(NewMessage::from_octets(octets.clone()).row(thread)), octets.clone()));
        let uid = uid(10 * (self.entries.len() as u32 + 1));
        self.entries.push(Entry { uid, size: octets.len() as u32, modseq: Seq::default(), flags, email, thread });
    }
}

fn uid(number: u32) -> Uid {
    Uid(NonZeroU32::new(number).unwrap())
}

const DAY: i64 = judge::DAY_MS;
/// 1-Feb-2024.
const FEB_1: i64 = 19_754 * DAY;

fn mailbox() -> Mailbox {
    let mut mailbox = Mailbox::default();
    mailbox.add(
        FEB_1 - 1,
        Flags::SEEN,
        "From: Ann <ann@x.test>\nSubject: One\nDate: Thu, 1 Feb 2024 23:30:00 -0800\n\nHello World\n",
    );
    mailbox.add(
        FEB_1,
        Flags::SEEN.union(Flags::DELETED),
        "From: bob@x.test\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= two\nTo: ann@x.test\nX-A: 1\n\nbody\n",
    );
    mailbox.add(
        FEB_1 + DAY - 1,
        Flags::FLAGGED.union(Flags::keyword(1)),
        "Subject: three\nCc: c@x.test\nDate: 31 Jan 24 00:00 GMT\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\nX-Part: special\n\nw4RwZmVsIHVuZCBCaXJuZW4=\n--b\nContent-Type: message/rfc822\n\nSubject: inside\n\ndeep text\n--b\nContent-Type: application/x; name=hidden\n\nbinary\n--b--\n",
    );
    mailbox.add(FEB_1 + DAY, Flags::default(), "Bcc: d@x.test\nDate: nonsense\n\n");
    mailbox
}

const RECENT: u32 = 30;

fn plan(key: &str) -> Plan {
    let line = format!("a SEARCH {key}");
    let command = parse_command(line.as_bytes(), ParseOptions::default()).unwrap();
    let CommandBody::Search { key, .. } = command.body else { panic!("{key}") };
    let keywords: [Arc<str>; 2] = ["$Junk".into(), "work".into()];
    let recent = UidSet(vec![(uid(RECENT), uid(1000))]);
    Plan::new(&key, &View { keywords: &keywords, last_sequence: 4, last_uid: Some(uid(40)), recent: &recent })
}

fn search(mailbox: &Mailbox, key: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // In two chunks.
    let plan = plan(key);
    let (first, second) = mailbox.entries.split_at(3);
    let Ok(()) = runtime.block_on(plan.chunk(first, 1, mailbox, &mut found));
    let Ok(()) = runtime.block_on(plan.chunk(second, 4, mailbox, &mut found));
    assert!(found.iter().all(|&(sequence, uid)| uid.0.get() == sequence * 10));
    found.into_iter().map(|(sequence, _)| sequence).collect()
}

#[test]
fn from_entries_alone() {
    let mailbox = mailbox();
    for (key, expected) in [
        ("ALL", vec![1, 2, 3, 4]),
        ("1,3:*", vec![1, 3, 4]),
        ("UID 15:30", vec![2, 3]),
        ("UID 500:*", vec![4]),
        ("SEEN", vec![1, 2]),
        ("UNSEEN", vec![3, 4]),
        ("DELETED", vec![2]),
        ("UNDELETED", vec![1, 3, 4]),
        ("FLAGGED UNSEEN", vec![3]),
        ("KEYWORD Work", vec![3]),
        ("UNKEYWORD work", vec![1, 2, 4]),
        ("KEYWORD other", vec![]),
        ("UNKEYWORD other", vec![1, 2, 3, 4]),
        ("RECENT", vec![3, 4]),
        ("OLD", vec![1, 2]),
        ("NEW", vec![3, 4]),
        ("BEFORE 1-Feb-2024", vec![1]),
        ("ON 1-Feb-2024", vec![2, 3]),
        ("SINCE 1-Feb-2024", vec![2, 3, 4]),
        ("SINCE 2-Feb-2024", vec![4]),
        ("SMALLER 50", vec![4]),
        ("LARGER 300", vec![3]),
        ("NOT SEEN", vec![3, 4]),
        ("OR DELETED FLAGGED", vec![2, 3]),
        ("OR SEEN TEXT x 1:2", vec![1, 2]),
        ("UNSEEN SEEN SUBJECT one", vec![]),
        ("NOT (SEEN) NOT (UNSEEN) BODY x", vec![]),
    ] {
        assert_eq!(search(&mailbox, key), expected, "{key}");
    }
    assert_eq!(mailbox.rows_read.load(Ordering::Relaxed), 0);
}

#[test]
fn from_headers() {
    let mailbox = mailbox();
    for (key, expected) in [
        ("SUBJECT one", vec![1]),
        ("SUBJECT \"GR\u{dc}\u{df}E\"", vec![2]),
        ("SUBJECT \"\u{fc}\u{df}e TWO\"", vec![2]),
        ("SUBJECT \"\"", vec![1, 2, 3]),
        ("SUBJECT inside", vec![]),
        ("FROM ann", vec![1]),
        ("TO ann", vec![2]),
        ("CC c@x", vec![3]),
        ("BCC d@x", vec![4]),
        ("HEADER x-a \"\"", vec![2]),
        ("HEADER x-a 1", vec![2]),
        ("HEADER x-a 2", vec![]),
        ("NOT HEADER x-a \"\"", vec![1, 3, 4]),
        ("OR FROM ann FROM bob", vec![1, 2]),
        ("SENTON 1-Feb-2024", vec![1]),
        ("SENTBEFORE 1-Feb-2024", vec![3]),
        ("SENTSINCE 31-Jan-2024", vec![1, 3]),
        ("SENTSINCE 2-Feb-2024", vec![]),
    ] {
        assert_eq!(search(&mailbox, key), expected, "{key}");
    }
    assert_eq!(mailbox.octets_read.load(Ordering::Relaxed), 0);
}

#[test]
fn from_text() {
    let mailbox = mailbox();
    for (key, expected) in [
        ("BODY \"hello world\"", vec![1]),
        ("BODY One", vec![]),
        ("TEXT One", vec![1]),
        ("BODY \"\u{e4}pfel\"", vec![3]),
        ("BODY deep", vec![3]),
        ("BODY inside", vec![]),
        ("TEXT inside", vec![3]),
        ("TEXT special", vec![3]),
        ("TEXT \"name=hidden\"", vec![3]),
        ("BODY binary", vec![]),
        ("TEXT \"subject: one\"", vec![1]),
        ("BODY \"\"", vec![1, 2, 3, 4]),
        ("NOT BODY o", vec![3, 4]),
        ("OR BODY hello BODY birnen", vec![1, 3]),
        ("BODY hello BODY world", vec![1]),
        ("BODY hello SUBJECT two", vec![]),
    ] {
        assert_eq!(search(&mailbox, key), expected, "{key}");
    }
}

#[test]
fn octets_only_where_headers_do_not_decide() {
    let mailbox = mailbox();
    assert_eq!(search(&mailbox, "SUBJECT nothing BODY hello"), [0; 0]);
    assert_eq!(mailbox.octets_read.load(Ordering::Relaxed), 0);
}

#[test]
fn missing_rows_do_not_match() {
    let mut mailbox = mailbox();
    let gone = mailbox.entries[0].email;
    mailbox.rows.remove(&gone);
    assert_eq!(search(&mailbox, "NOT SUBJECT x"), [2, 3, 4]);
}

#[test]
fn slots_that_cannot_match() {
    let counts = Counts { messages: 10, unseen: 0, deleted: 10, bytes: 0 };
    for (key, may) in [
        ("UNSEEN", false),
        ("SEEN", true),
        ("NOT SEEN", false),
        ("UNDELETED", false),
        ("DELETED TEXT x", true),
        ("UNSEEN TEXT x", false),
        ("OR UNSEEN TEXT x", true),
        ("OR UNSEEN UNDELETED", false),
        ("UID 1:99", false),
        ("UID 99:100", true),
        ("NOT UID 50:300", false),
        ("UID 201:300", false),
        ("4:*", false),
        ("11:20", true),
        ("21", false),
        ("FLAGGED", true),
    ] {
        assert_eq!(plan(key).may_match(uid(100)..=uid(200), 11..=20, counts), may, "{key}");
    }
    assert!(plan("TEXT x").reads_messages() && !plan("SEEN").reads_messages());
}

#[test]
fn days_of_date_fields() {
    let day = |text: &str| judge::sent_day(&text.to_lowercase());
    let first = Some(19_754);
    for (text, expected) in [
        ("Thu, 1 Feb 2024 00:00:00 +0000", first),
        ("1 Feb 2024", first),
        ("01 February 2024 x", first),
        ("Thu,01 Feb 24 1:2:3 EST", first),
        ("Thu, 1-Feb-2024", first),
        ("1 Feb 124", first),
        ("1 Feb 94", Some(8_797)),
        ("Thu", None),
        ("1 Foo 2024", None),
        ("32 Feb 2024", None),
        ("1 Feb 20245", None),
        ("", None),
        ("1 \u{e4}\u{e4}\u{e4} 2024", None),
    ] {
        assert_eq!(day(text), expected, "{text}");
    }
}
