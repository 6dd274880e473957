//! SEARCH: whether a message meets a condition (RFC 3501 §6.4.4).
//!
//! A [`Plan`] is a condition resolved against one view of a mailbox. It is judged in three rounds, each only for the
//! messages that the rounds before could not decide: from the mailbox's entries alone (numbers, flags, dates, sizes),
//! from the message's row (header fields), from the message's octets (text). What a round cannot know is *unknown*,
//! and `false and unknown` is false: so cheap keys come first wherever they stand in the command.
//!
//! Strings are looked for without regard to case, in decoded text.

mod judge;
mod octets;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use posthouse_storage::account::{Account, AccountError, Counts, Entry, FlagNames, Flags, Uid, UidSet};
use posthouse_storage::message::{EmailId, MessageRow};

use self::judge::{Test, Verdict};
use crate::wire::command::SearchKey;

/// Rows asked for at once.
const ROWS_AT_ONCE: usize = 64;

/// Where rows and octets come from.
pub trait Messages: Sync {
    /// Why they could not be read.
    type Error;

    /// Rows in the order of `emails`; `None` for a message that is gone.
    fn rows(
        &self,
        emails: &[EmailId],
    ) -> impl Future<Output = Result<Vec<Option<Arc<MessageRow>>>, Self::Error>> + Send;

    /// Some of a message's octets, from the start of the range on: at least one unless the range is empty.
    fn octets(
        &self,
        email: EmailId,
        row: &MessageRow,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Bytes, Self::Error>> + Send;
}

impl Messages for Account {
    type Error = AccountError;

    fn rows(
        &self,
        emails: &[EmailId],
    ) -> impl Future<Output = Result<Vec<Option<Arc<MessageRow>>>, Self::Error>> + Send {
        Account::rows(self, emails)
    }

    fn octets(
        &self,
        email: EmailId,
        row: &MessageRow,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Bytes, Self::Error>> + Send {
        Account::octets(self, email, row, range)
    }
}

/// What a condition is about.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The mailbox's keywords in order of their bits.
    pub keywords: &'a [Arc<str>],
    /// The largest sequence number; 0 in an empty mailbox.
    pub last_sequence: u32,
    /// The largest uid.
    pub last_uid: Option<Uid>,
    /// Which messages are \Recent in this session.
    pub recent: &'a UidSet,
}

/// A condition, resolved.
#[derive(Debug)]
pub struct Plan {
    test: Test,
    /// Header fields that are looked at, each once.
    fields: Vec<String>,
    /// Texts that are looked for in the octets.
    needles: Vec<Needle>,
    recent: UidSet,
}

/// A text for [`octets::scan`].
#[derive(Debug, PartialEq, Eq)]
struct Needle {
    /// In lower case.
    text: String,
    /// TEXT: in headers as well.
    in_headers: bool,
}

impl Plan {
    /// Resolves a condition.
    pub fn new(key: &SearchKey, view: &View<'_>) -> Self {
        let mut plan =
            Self { test: Test::Is(true), fields: Vec::new(), needles: Vec::new(), recent: view.recent.clone() };
        plan.test = plan.resolve(key, view);
        plan
    }

    /// False if no message of such a slot can match, so that it need not be loaded. `sequences` are the numbers of its
    /// messages.
    pub fn may_match(&self, uids: RangeInclusive<Uid>, sequences: RangeInclusive<u32>, counts: Counts) -> bool {
        judge::slot(&self.test, &uids, &sequences, counts) != Verdict::No
    }

    /// Whether rows have to be read to decide some messages.
    pub fn reads_messages(&self) -> bool {
        !self.fields.is_empty() || !self.needles.is_empty()
    }

    /// Judges the entries of a chunk, the first of which has the number `first_sequence`, and adds those that match, in
    /// their order.
    ///
    /// # Errors
    ///
    /// What reading gave; `found` is then incomplete. A message whose row is gone does not match.
    ///
    /// # Cancel safety
    ///
    /// Nothing is kept but what is in `found`.
    pub async fn chunk<M: Messages>(
        &self,
        entries: &[Entry],
        first_sequence: u32,
        messages: &M,
        found: &mut Vec<(u32, Uid)>,
    ) -> Result<(), M::Error> {
        let mut undecided: Vec<usize> = Vec::new();
        let mut matching: Vec<usize> = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            match judge::entry(&self.test, entry, first_sequence + at as u32, &self.recent) {
                Verdict::Yes => matching.push(at),
                Verdict::No => {}
                Verdict::Unknown => undecided.push(at),
            }
        }
        let decided = matching.len();
        for batch in undecided.chunks(ROWS_AT_ONCE) {
            let emails: Vec<EmailId> = batch.iter().map(|&at| entries[at].email).collect();
            let rows = messages.rows(&emails).await?;
            for (&at, row) in batch.iter().zip(rows) {
                let Some(row) = row else { continue };
                if self.message(&entries[at], first_sequence + at as u32, &row, messages).await? {
                    matching.push(at);
                }
            }
        }
        if decided != matching.len() {
            matching.sort_unstable();
        }
        found.extend(matching.into_iter().map(|at| (first_sequence + at as u32, entries[at].uid)));
        Ok(())
    }

    /// The second and third round.
    async fn message<M: Messages>(
        &self,
        entry: &Entry,
        sequence: u32,
        row: &MessageRow,
        messages: &M,
    ) -> Result<bool, M::Error> {
        let header = octets::header(messages, entry.email, row).await?;
        let known =
            judge::Known { entry, sequence, recent: &self.recent, values: &octets::values(&header, &self.fields) };
        match judge::message(&self.test, &known, None) {
            Verdict::Yes => return Ok(true),
            Verdict::No => return Ok(false),
            Verdict::Unknown => {}
        }
        let found = octets::scan(messages, entry.email, row, &header, &self.needles).await?;
        Ok(judge::message(&self.test, &known, Some(&found)) == Verdict::Yes)
    }

    fn resolve(&mut self, key: &SearchKey, view: &View<'_>) -> Test {
        match key {
            SearchKey::And(keys) => Test::And(keys.iter().map(|key| self.resolve(key, view)).collect()),
            SearchKey::Or(keys) => Test::Or(keys.iter().map(|key| self.resolve(key, view)).collect()),
            SearchKey::Not(key) => Test::Not(Box::new(self.resolve(key, view))),
            SearchKey::All => Test::Is(true),
            SearchKey::Sequence(set) => Test::Sequence(set.resolve(view.last_sequence)),
            SearchKey::Uid(set) => Test::Uid(set.resolve(view.last_uid.map_or(0, |uid| uid.0.get()))),
            SearchKey::Flag(names) => flags(names, view.keywords).map_or(Test::Is(false), Test::Flags),
            // A keyword that the mailbox does not know is on no message.
            SearchKey::NotFlag(names) => flags(names, view.keywords).map_or(Test::Is(true), Test::NotFlags),
            SearchKey::Recent => Test::Recent,
            SearchKey::Old => Test::Not(Box::new(Test::Recent)),
            SearchKey::New => Test::And(vec![Test::Recent, Test::NotFlags(Flags::SEEN)]),
            SearchKey::Before(day) => Test::Received(i64::MIN..judge::day_start(*day)),
            SearchKey::On(day) => {
                let start = judge::day_start(*day);
                Test::Received(start..start + judge::DAY_MS)
            }
            SearchKey::Since(day) => Test::Received(judge::day_start(*day)..i64::MAX),
            SearchKey::SentBefore(day) => {
                Test::Sent { field: self.field("Date"), days: i64::MIN..judge::day_number(*day) }
            }
            SearchKey::SentOn(day) => {
                let number = judge::day_number(*day);
                Test::Sent { field: self.field("Date"), days: number..number + 1 }
            }
            SearchKey::SentSince(day) => {
                Test::Sent { field: self.field("Date"), days: judge::day_number(*day)..i64::MAX }
            }
            SearchKey::Larger(octets) => Test::Size(octets.saturating_add(1)..u64::MAX),
            SearchKey::Smaller(octets) => Test::Size(0..*octets),
            SearchKey::Header { field, text } => Test::Header { field: self.field(field), text: text.to_lowercase() },
            SearchKey::Body(text) => self.needle(text, false),
            SearchKey::Text(text) => self.needle(text, true),
        }
    }

    fn field(&mut self, name: &str) -> usize {
        let known = self.fields.iter().position(|known| known.eq_ignore_ascii_case(name));
        known.unwrap_or_else(|| {
            self.fields.push(name.to_owned());
            self.fields.len() - 1
        })
    }

    fn needle(&mut self, text: &str, in_headers: bool) -> Test {
        if text.is_empty() {
            return Test::Is(true);
        }
        let needle = Needle { text: text.to_lowercase(), in_headers };
        let known = self.needles.iter().position(|known| *known == needle);
        Test::Text(known.unwrap_or_else(|| {
            self.needles.push(needle);
            self.needles.len() - 1
        }))
    }
}

/// The bits of flags; `None` if a keyword is not known.
fn flags(names: &FlagNames, keywords: &[Arc<str>]) -> Option<Flags> {
    names.keywords.iter().try_fold(names.system, |flags, name| {
        let index = keywords.iter().position(|keyword| keyword.eq_ignore_ascii_case(name))?;
        Some(flags.union(Flags::keyword(index)))
    })
}
