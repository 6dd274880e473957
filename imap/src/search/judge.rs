//! Judging a test with what is known so far, in three values.

use std::ops::{Range, RangeInclusive};

use jiff::civil::Date;
use posthouse_storage::account::{Counts, Entry, Flags, Uid, UidSet};

pub(super) const DAY_MS: i64 = 86_400_000;

/// A resolved condition.
#[derive(Debug)]
pub(super) enum Test {
    Is(bool),
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
    /// Sorted, disjoint ranges.
    Sequence(Vec<(u32, u32)>),
    /// Sorted, disjoint ranges.
    Uid(Vec<(u32, u32)>),
    /// All of these.
    Flags(Flags),
    /// None of these.
    NotFlags(Flags),
    Recent,
    /// Milliseconds since 1970.
    Received(Range<i64>),
    /// Octets.
    Size(Range<u64>),
    /// The Date field's day (as written, RFC 3501: "disregarding time and timezone"), counted from 1970.
    Sent {
        field: usize,
        days: Range<i64>,
    },
    /// A field holds this; lower case.
    Header {
        field: usize,
        text: String,
    },
    /// The needle with this index.
    Text(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    No,
    Unknown,
}

impl From<bool> for Verdict {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// Walks the test; `leaf` judges what is not AND, OR or NOT. As deep as the parser lets keys nest.
fn walk(test: &Test, leaf: &impl Fn(&Test) -> Verdict) -> Verdict {
    match test {
        Test::Is(yes) => (*yes).into(),
        Test::And(tests) => {
            let mut verdict = Verdict::Yes;
            for test in tests {
                match walk(test, leaf) {
                    Verdict::No => return Verdict::No,
                    Verdict::Unknown => verdict = Verdict::Unknown,
                    Verdict::Yes => {}
                }
            }
            verdict
        }
        Test::Or(tests) => {
            let mut verdict = Verdict::No;
            for test in tests {
                match walk(test, leaf) {
                    Verdict::Yes => return Verdict::Yes,
                    Verdict::Unknown => verdict = Verdict::Unknown,
                    Verdict::No => {}
                }
            }
            verdict
        }
        Test::Not(test) => match walk(test, leaf) {
            Verdict::Yes => Verdict::No,
            Verdict::No => Verdict::Yes,
            Verdict::Unknown => Verdict::Unknown,
        },
        test => leaf(test),
    }
}

/// Round zero: a whole slot by its counts.
pub(super) fn slot(
    test: &Test,
    uids: &RangeInclusive<Uid>,
    sequences: &RangeInclusive<u32>,
    counts: Counts,
) -> Verdict {
    let of_ranges = |ranges: &[(u32, u32)], low: u32, high: u32| {
        let at = ranges.partition_point(|range| range.1 < low);
        match ranges.get(at) {
            Some(range) if range.0 <= low && high <= range.1 => Verdict::Yes,
            Some(range) if range.0 <= high => Verdict::Unknown,
            _ => Verdict::No,
        }
    };
    // Of messages that are `some` among `all`.
    let share = |some: u32, all: u32| match some {
        0 => Verdict::No,
        _ if some == all => Verdict::Yes,
        _ => Verdict::Unknown,
    };
    walk(test, &|test| match test {
        Test::Sequence(ranges) => of_ranges(ranges, *sequences.start(), *sequences.end()),
        Test::Uid(ranges) => of_ranges(ranges, uids.start().0.get(), uids.end().0.get()),
        Test::NotFlags(flags) if *flags == Flags::SEEN => share(counts.unseen, counts.messages),
        Test::Flags(flags) if *flags == Flags::SEEN => {
            share(counts.messages.saturating_sub(counts.unseen), counts.messages)
        }
        Test::Flags(flags) if *flags == Flags::DELETED => share(counts.deleted, counts.messages),
        Test::NotFlags(flags) if *flags == Flags::DELETED => {
            share(counts.messages.saturating_sub(counts.deleted), counts.messages)
        }
        _ => Verdict::Unknown,
    })
}

/// Round one: an entry.
pub(super) fn entry(test: &Test, entry: &Entry, sequence: u32, recent: &UidSet) -> Verdict {
    walk(test, &|test| of_entry(test, entry, sequence, recent))
}

fn of_entry(test: &Test, entry: &Entry, sequence: u32, recent: &UidSet) -> Verdict {
    let holds = |ranges: &[(u32, u32)], number: u32| {
        let at = ranges.partition_point(|range| range.1 < number);
        ranges.get(at).is_some_and(|range| range.0 <= number).into()
    };
    match test {
        Test::Sequence(ranges) => holds(ranges, sequence),
        Test::Uid(ranges) => holds(ranges, entry.uid.0.get()),
        Test::Flags(flags) => entry.flags.contains(*flags).into(),
        Test::NotFlags(flags) => (entry.flags.0 & flags.0 == 0).into(),
        Test::Recent => {
            let at = recent.0.partition_point(|range| range.1 < entry.uid);
            recent.0.get(at).is_some_and(|range| range.0 <= entry.uid).into()
        }
        Test::Received(range) => range.contains(&entry.email.received_at_ms()).into(),
        Test::Size(range) => range.contains(&u64::from(entry.size)).into(),
        _ => Verdict::Unknown,
    }
}

/// What the second round knows.
pub(super) struct Known<'a> {
    pub(super) entry: &'a Entry,
    pub(super) sequence: u32,
    pub(super) recent: &'a UidSet,
    /// Decoded values of the plan's fields, lower case.
    pub(super) values: &'a [Vec<String>],
}

/// Round two, and with the needles that were `found` in the octets round three, which leaves nothing unknown.
pub(super) fn message(test: &Test, known: &Known<'_>, found: Option<&[bool]>) -> Verdict {
    walk(test, &|test| match test {
        Test::Sent { field, days } => {
            let day = known.values[*field].first().and_then(|value| sent_day(value));
            day.is_some_and(|day| days.contains(&day)).into()
        }
        Test::Header { field, text } => known.values[*field].iter().any(|value| value.contains(text.as_str())).into(),
        Test::Text(needle) => found.map_or(Verdict::Unknown, |found| found[*needle].into()),
        test => of_entry(test, known.entry, known.sequence, known.recent),
    })
}

/// Days since 1970.
pub(super) fn day_number(day: Date) -> i64 {
    i64::from((day - Date::constant(1970, 1, 1)).get_days())
}

/// The first millisecond of a day, UTC.
pub(super) fn day_start(day: Date) -> i64 {
    day_number(day) * DAY_MS
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The day of a Date field (RFC 5322 §3.3, and the two-digit years of RFC 822): `tue, 1 dec 2026 10:11:12 +0000`.
pub(super) fn sent_day(value: &str) -> Option<i64> {
    let mut words = value.split([' ', '\t', ',', '-']).filter(|word| !word.is_empty());
    let first = words.next()?;
    let day = if first.starts_with(|c: char| c.is_ascii_digit()) { first } else { words.next()? };
    let month = words.next()?;
    let year = words.next()?;
    let month = MONTHS.iter().position(|name| month.get(..3) == Some(name))?;
    let digits = |word: &str, max: usize| {
        let valid = word.len() <= max && word.bytes().all(|octet| octet.is_ascii_digit());
        if valid { word.parse::<i16>().ok() } else { None }
    };
    let written = digits(year, 4)?;
    let year = match year.len() {
        2 if written < 50 => written + 2000,
        2 | 3 => written + 1900,
        _ => written,
    };
    Date::new(year, month as i8 + 1, i8::try_from(digits(day, 2)?).ok()?).ok().map(day_number)
}
