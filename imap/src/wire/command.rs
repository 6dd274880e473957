//! Commands as the session sees them: what was asked, owned, checked for grammar, and nothing of how it was written.
//!
//! RFC 3501 §6, with RFC 2177 (IDLE), 2342 (NAMESPACE), 2971 (ID), 3691 (UNSELECT), 4315 (UIDPLUS), 5161 (ENABLE),
//! 5258 and 5819 (the LIST options that RFC 6154 clients send), 6851 (MOVE).

use std::num::NonZeroU32;

use jiff::civil::Date;
use posthouse_storage::account::{FlagChange, FlagNames, Uid, UidSet};

/// A command and its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// As the client wrote it; printable ASCII.
    pub tag: String,
    /// What it asks.
    pub body: CommandBody,
}

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandBody {
    /// CAPABILITY (§6.1.1).
    Capability,
    /// NOOP (§6.1.2).
    Noop,
    /// LOGOUT (§6.1.3).
    Logout,
    /// STARTTLS (§6.2.1).
    StartTls,
    /// LOGIN (§6.2.3).
    Login {
        /// User name, octets as sent.
        user: Vec<u8>,
        /// Password, octets as sent.
        password: Secret,
    },
    /// AUTHENTICATE (§6.2.2, RFC 4959).
    Authenticate {
        /// Mechanism, upper case.
        mechanism: String,
        /// Initial response, still base64; `=` stands for an empty one.
        initial: Option<Secret>,
    },
    /// ID (RFC 2971); `None` is NIL.
    Id(Option<Vec<(String, Option<String>)>>),
    /// ENABLE (RFC 5161): names in upper case.
    Enable(Vec<String>),
    /// SELECT (§6.3.1).
    Select {
        /// Which mailbox.
        mailbox: String,
    },
    /// EXAMINE (§6.3.2).
    Examine {
        /// Which mailbox.
        mailbox: String,
    },
    /// CREATE (§6.3.3). A trailing delimiter, which only announces children, is still there.
    Create {
        /// Which mailbox.
        mailbox: String,
    },
    /// DELETE (§6.3.4).
    Delete {
        /// Which mailbox.
        mailbox: String,
    },
    /// RENAME (§6.3.5).
    Rename {
        /// The name now.
        from: String,
        /// The name wanted.
        to: String,
    },
    /// SUBSCRIBE (§6.3.6).
    Subscribe {
        /// Which name.
        mailbox: String,
    },
    /// UNSUBSCRIBE (§6.3.7).
    Unsubscribe {
        /// Which name.
        mailbox: String,
    },
    /// LIST (§6.3.8, RFC 5258).
    List(List),
    /// LSUB (§6.3.9).
    Lsub {
        /// Reference name, UTF-8.
        reference: String,
        /// Name with wildcards, UTF-8.
        pattern: String,
    },
    /// NAMESPACE (RFC 2342).
    Namespace,
    /// STATUS (§6.3.10).
    Status {
        /// Which mailbox.
        mailbox: String,
        /// What to tell; not empty, no item twice.
        items: Vec<StatusItem>,
    },
    /// APPEND (§6.3.11). The message itself comes as frames of its own.
    Append(Append),
    /// IDLE (RFC 2177).
    Idle,
    /// CHECK (§6.4.1).
    Check,
    /// CLOSE (§6.4.2).
    Close,
    /// UNSELECT (RFC 3691).
    Unselect,
    /// EXPUNGE (§6.4.3), or UID EXPUNGE (RFC 4315) with a set of uids.
    Expunge {
        /// Only these uids.
        uids: Option<SequenceSet>,
    },
    /// SEARCH and UID SEARCH (§6.4.4).
    Search {
        /// What the answer's numbers are.
        numbers: Numbers,
        /// The charset the strings were in, upper case; they are in UTF-8 here.
        charset: Option<String>,
        /// The condition; several keys are an [`SearchKey::And`].
        key: SearchKey,
    },
    /// FETCH and UID FETCH (§6.4.5).
    Fetch {
        /// What the set's numbers are.
        numbers: Numbers,
        /// Which messages.
        set: SequenceSet,
        /// What of them, macros expanded, at least one. UID FETCH answers with the uid whether it is listed or not.
        items: Vec<FetchItem>,
    },
    /// STORE and UID STORE (§6.4.6).
    Store {
        /// What the set's numbers are.
        numbers: Numbers,
        /// Which messages.
        set: SequenceSet,
        /// Replace, add or remove.
        change: FlagChange,
        /// `.SILENT`: the client does not want to be told the result.
        silent: bool,
        /// Which flags.
        flags: FlagNames,
    },
    /// COPY and UID COPY (§6.4.7).
    Copy {
        /// What the set's numbers are.
        numbers: Numbers,
        /// Which messages.
        set: SequenceSet,
        /// Where to.
        mailbox: String,
    },
    /// MOVE and UID MOVE (RFC 6851).
    Move {
        /// What the set's numbers are.
        numbers: Numbers,
        /// Which messages.
        set: SequenceSet,
        /// Where to.
        mailbox: String,
    },
}

impl CommandBody {
    /// The verb, upper case, for logs and metrics: one of a closed set. UID forms have the plain form's verb.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Capability => "CAPABILITY",
            Self::Noop => "NOOP",
            Self::Logout => "LOGOUT",
            Self::StartTls => "STARTTLS",
            Self::Login { .. } => "LOGIN",
            Self::Authenticate { .. } => "AUTHENTICATE",
            Self::Id(_) => "ID",
            Self::Enable(_) => "ENABLE",
            Self::Select { .. } => "SELECT",
            Self::Examine { .. } => "EXAMINE",
            Self::Create { .. } => "CREATE",
            Self::Delete { .. } => "DELETE",
            Self::Rename { .. } => "RENAME",
            Self::Subscribe { .. } => "SUBSCRIBE",
            Self::Unsubscribe { .. } => "UNSUBSCRIBE",
            Self::List(_) => "LIST",
            Self::Lsub { .. } => "LSUB",
            Self::Namespace => "NAMESPACE",
            Self::Status { .. } => "STATUS",
            Self::Append(_) => "APPEND",
            Self::Idle => "IDLE",
            Self::Check => "CHECK",
            Self::Close => "CLOSE",
            Self::Unselect => "UNSELECT",
            Self::Expunge { .. } => "EXPUNGE",
            Self::Search { .. } => "SEARCH",
            Self::Fetch { .. } => "FETCH",
            Self::Store { .. } => "STORE",
            Self::Copy { .. } => "COPY",
            Self::Move { .. } => "MOVE",
        }
    }
}

/// Octets that no log may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Whether numbers count messages in the mailbox or are uids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Message sequence numbers.
    Sequence,
    /// Unique identifiers (the UID forms, §6.4.8).
    Uid,
}

/// One end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeqNo {
    /// This number.
    Number(NonZeroU32),
    /// `*`: the largest number in use.
    Last,
}

impl SeqNo {
    /// The number, with `*` standing for `last`.
    pub fn resolve(self, last: u32) -> u32 {
        match self {
            Self::Number(number) => number.get(),
            Self::Last => last,
        }
    }
}

/// A set of sequence numbers or uids as written: ranges in any order, ends in any order, overlaps allowed. Not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSet(pub Vec<(SeqNo, SeqNo)>);

impl SequenceSet {
    /// Sorted, disjoint, non-adjacent inclusive ranges, with `*` standing for `last` (the largest sequence number or
    /// uid; 0 in an empty mailbox, which then makes `*` match nothing).
    ///
    /// `559:*` is `last:559` when 559 is beyond the last message (§6.4.8): it names the last message.
    pub fn resolve(&self, last: u32) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = self
            .0
            .iter()
            .map(|&(a, b)| (a.resolve(last), b.resolve(last)))
            .map(|(a, b)| (a.min(b), a.max(b)))
            .filter(|&(_, high)| high > 0)
            .map(|(low, high)| (low.max(1), high))
            .collect();
        ranges.sort_unstable();
        let mut joined = 0;
        for next in 1..ranges.len() {
            let (low, high) = ranges[next];
            if low <= ranges[joined].1.saturating_add(1) {
                ranges[joined].1 = ranges[joined].1.max(high);
            } else {
                joined += 1;
                ranges[joined] = (low, high);
            }
        }
        ranges.truncate(joined + 1);
        ranges
    }

    /// The same for a set of uids. `last` is the largest uid in the mailbox, `None` when it is empty.
    pub fn resolve_uids(&self, last: Option<Uid>) -> UidSet {
        let uid = |number| NonZeroU32::new(number).map(Uid);
        let ranges = self.resolve(last.map_or(0, |uid| uid.0.get()));
        UidSet(ranges.into_iter().filter_map(|(low, high)| Some((uid(low)?, uid(high)?))).collect())
    }

    /// The largest number that is written out, for a check against EXISTS; 0 if there are only `*`.
    pub fn largest_written(&self) -> u32 {
        self.0.iter().map(|&(a, b)| a.resolve(0).max(b.resolve(0))).max().unwrap_or(0)
    }
}

/// LIST's arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// Reference name, UTF-8.
    pub reference: String,
    /// Names with wildcards, UTF-8; at least one. Exactly one empty pattern in the basic form asks for the delimiter.
    pub patterns: Vec<String>,
    /// Options before the reference.
    pub select: ListSelect,
    /// Options after RETURN.
    pub returns: ListReturn,
    /// Written with any part of RFC 5258's syntax (parentheses or RETURN).
    pub extended: bool,
}

/// LIST's selection options (RFC 5258 §3.1, RFC 6154 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListSelect {
    /// SUBSCRIBED.
    pub subscribed: bool,
    /// REMOTE: also mailboxes elsewhere (there are none).
    pub remote: bool,
    /// RECURSIVEMATCH; only comes with another one.
    pub recursive_match: bool,
    /// SPECIAL-USE.
    pub special_use: bool,
}

/// LIST's return options (RFC 5258 §3.2, RFC 5819, RFC 6154).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListReturn {
    /// SUBSCRIBED.
    pub subscribed: bool,
    /// CHILDREN.
    pub children: bool,
    /// SPECIAL-USE.
    pub special_use: bool,
    /// STATUS (...); empty when not asked.
    pub status: Vec<StatusItem>,
}

/// What STATUS can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusItem {
    /// MESSAGES.
    Messages,
    /// RECENT.
    Recent,
    /// UIDNEXT.
    UidNext,
    /// UIDVALIDITY.
    UidValidity,
    /// UNSEEN.
    Unseen,
    /// DELETED (RFC 9051 §6.3.11).
    Deleted,
    /// SIZE (RFC 8438).
    Size,
}

/// APPEND's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Where to.
    pub mailbox: String,
    /// Flags of the new message.
    pub flags: FlagNames,
    /// INTERNALDATE, milliseconds since 1970; now if `None`.
    pub received_at_ms: Option<i64>,
    /// The announced literal.
    pub literal: Literal,
}

/// A literal's announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// Octets that follow.
    pub size: u64,
    /// `{n}`: the client waits for `+ ` before it sends them. `{n+}` (RFC 7888): it does not.
    pub synchronizing: bool,
    /// `~{n}` (RFC 3516): may hold NUL octets.
    pub binary: bool,
}

/// One item of FETCH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchItem {
    /// UID.
    Uid,
    /// FLAGS.
    Flags,
    /// INTERNALDATE.
    InternalDate,
    /// RFC822.SIZE.
    Size,
    /// ENVELOPE.
    Envelope,
    /// BODY without a section: the structure without extension data.
    Body,
    /// BODYSTRUCTURE.
    BodyStructure,
    /// RFC822, answered as such; sets \Seen.
    Rfc822,
    /// RFC822.HEADER; does not set \Seen.
    Rfc822Header,
    /// RFC822.TEXT; sets \Seen.
    Rfc822Text,
    /// `BODY[...]` and `BODY.PEEK[...]`.
    Section {
        /// BODY.PEEK: leave \Seen alone.
        peek: bool,
        /// Which octets.
        section: Section,
        /// Only a part of them.
        partial: Option<Partial>,
    },
}

impl FetchItem {
    /// Whether answering it sets \Seen (§6.4.5).
    pub fn sets_seen(&self) -> bool {
        matches!(self, Self::Rfc822 | Self::Rfc822Text | Self::Section { peek: false, .. })
    }
}

/// `<offset.octets>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Octets to leave out at the beginning; the answer repeats it.
    pub offset: u64,
    /// At most so many octets.
    pub octets: u64,
}

/// What stands between the brackets of `BODY[...]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    /// Part numbers; empty = the message itself.
    pub part: Vec<NonZeroU32>,
    /// What of the part.
    pub text: SectionText,
}

/// What of a part a section names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SectionText {
    /// All of it: of the message its header and body, of a part its body.
    #[default]
    All,
    /// HEADER.
    Header,
    /// HEADER.FIELDS (...), names as written; they are repeated in the answer.
    HeaderFields(Vec<String>),
    /// HEADER.FIELDS.NOT (...).
    HeaderFieldsNot(Vec<String>),
    /// TEXT.
    Text,
    /// MIME; only with part numbers.
    Mime,
}

/// A condition of SEARCH. Nesting is bounded by the parser, so walking it recursively is safe. Strings are UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchKey {
    /// All of these; at least one.
    And(Vec<SearchKey>),
    /// Any of these; at least two. Chains of OR are one flat list.
    Or(Vec<SearchKey>),
    /// Not this.
    Not(Box<SearchKey>),
    /// ALL.
    All,
    /// A sequence set.
    Sequence(SequenceSet),
    /// UID with a set.
    Uid(SequenceSet),
    /// All of these flags: ANSWERED, DELETED, DRAFT, FLAGGED, SEEN, KEYWORD.
    Flag(FlagNames),
    /// None of these: UNANSWERED and so on, UNKEYWORD.
    NotFlag(FlagNames),
    /// RECENT.
    Recent,
    /// OLD: not RECENT.
    Old,
    /// NEW: RECENT and not SEEN.
    New,
    /// Internal date's day is earlier.
    Before(Date),
    /// Internal date's day is this.
    On(Date),
    /// Internal date's day is this or later.
    Since(Date),
    /// The Date field's day is earlier.
    SentBefore(Date),
    /// The Date field's day is this.
    SentOn(Date),
    /// The Date field's day is this or later.
    SentSince(Date),
    /// More octets than this.
    Larger(u64),
    /// Fewer octets than this.
    Smaller(u64),
    /// A header field holds the text; BCC, CC, FROM, SUBJECT and TO as well. Empty text: the field is there.
    Header {
        /// Field name as written.
        field: String,
        /// Text looked for.
        text: String,
    },
    /// Body text holds it.
    Body(String),
    /// Header or body text holds it.
    Text(String),
}
