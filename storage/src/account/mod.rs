//! Accounts: mailboxes, the places of messages in them, flags, threads, quota; one entity group each.
//!
//! [`AccountState`] is immutable and shared: a session keeps an `Arc` of the one it last told its client about, and
//! compares it with a newer one (unchanged chunks are the same `Arc`) to learn what to say.

#[expect(clippy::module_inception, reason = "the one file about the type the module is named after")]
mod account;
mod accounts;
mod apply;
mod change;
mod checkpoint;
mod codec;
mod decide;
mod journal;
mod machine;
#[cfg(test)]
mod model;
mod name;
mod read;
mod rows;
mod slot;
mod slots;
mod state;
#[cfg(test)]
mod store_tests;
mod sweep;
#[cfg(test)]
mod tests;
mod thread;
mod write;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

pub use account::Account;
pub use accounts::{Accounts, AccountsConfig};
pub use read::OCTETS_MAX;
pub use slot::Slot;
pub use slots::Slots;

/// Adding a message in two steps, for deliveries.
pub(crate) mod stage {
    pub(crate) use super::change::DeliveryId;
    pub(crate) use super::write::{Prepared, Source};
}

use crate::group::Seq;
use crate::message::{EmailId, ThreadId};

/// Names an account, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u64);

/// Names a mailbox of an account, for ever; survives renames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MailboxId(pub u32);

/// A message's number in a mailbox; rises, never used twice under one uidvalidity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(pub NonZeroU32);

impl Uid {
    /// `None` for 0.
    pub fn new(uid: u32) -> Option<Self> {
        NonZeroU32::new(uid).map(Self)
    }

    /// As a number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// Special use of a mailbox (RFC 6154).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Role {
    Inbox,
    Drafts,
    Sent,
    Junk,
    Trash,
    Archive,
}

/// Flags of a message in a mailbox: system flags in the low bits, the mailbox's keyword `i` in bit `8 + i`, and
/// internal marks in the top bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u64);

#[allow(missing_docs)]
impl Flags {
    pub const SEEN: Self = Self(1);
    pub const ANSWERED: Self = Self(2);
    pub const FLAGGED: Self = Self(4);
    pub const DELETED: Self = Self(8);
    pub const DRAFT: Self = Self(16);
    /// Internal: the message row may be referred to from another place as well (it was copied).
    pub const SHARED: Self = Self(1 << 63);
    /// Keywords a mailbox can have: bits 8..62.
    pub const KEYWORDS_MAX: usize = 54;
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    pub fn keyword(index: usize) -> Self {
        Self(1 << (8 + index))
    }
    /// What clients may see: without the internal marks.
    pub fn public(self) -> Self {
        Self(self.0 & !(1 << 63) & !(1 << 62))
    }
}

/// A message's place in a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its number there.
    pub uid: Uid,
    /// RFC822.SIZE.
    pub size: u32,
    /// The journal's number of the last change to this entry.
    pub modseq: Seq,
    /// Flags and keywords.
    pub flags: Flags,
    /// The message.
    pub email: EmailId,
    /// Its thread.
    pub thread: ThreadId,
}

/// Counts kept per chunk and per mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Entries.
    pub messages: u32,
    /// Entries without \Seen.
    pub unseen: u32,
    /// Entries with \Deleted.
    pub deleted: u32,
    /// Sum of sizes, bytes.
    pub bytes: u64,
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        self.messages += 1;
        self.unseen += u32::from(!entry.flags.contains(Flags::SEEN));
        self.deleted += u32::from(entry.flags.contains(Flags::DELETED));
        self.bytes += u64::from(entry.size);
    }

    fn remove(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.unseen -= u32::from(!entry.flags.contains(Flags::SEEN));
        self.deleted -= u32::from(entry.flags.contains(Flags::DELETED));
        self.bytes -= u64::from(entry.size);
    }

    fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            unseen: self.unseen + other.unseen,
            deleted: self.deleted + other.deleted,
            bytes: self.bytes + other.bytes,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            messages: self.messages - other.messages,
            unseen: self.unseen - other.unseen,
            deleted: self.deleted - other.deleted,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// Up to some thousand entries, rising by uid.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Chunk {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Clone for Chunk {
    /// With room for some more: most copies are made to add a message.
    fn clone(&self) -> Self {
        let mut entries = Vec::with_capacity(self.entries.len() + 32);
        entries.extend_from_slice(&self.entries);
        Self { entries }
    }
}

/// A mailbox as of one state.
#[derive(Debug, Clone)]
pub struct Mailbox {
    /// Id.
    pub id: MailboxId,
    /// Full name, UTF-8, `/` between levels; the inbox is exactly `INBOX`.
    pub name: Arc<str>,
    /// Special use.
    pub role: Option<Role>,
    /// Changes only if the mailbox is made anew.
    pub uid_validity: NonZeroU32,
    /// The next uid that will be given.
    pub uid_next: Uid,
    /// Subscribed.
    pub subscribed: bool,
    /// False for a name that only has children (RFC 3501 §6.3.4: \Noselect after DELETE of a parent).
    pub selectable: bool,
    /// Highest modseq of any change in it, expunges included.
    pub highest_modseq: Seq,
    /// Keywords in order of their bits.
    pub keywords: Arc<Vec<Arc<str>>>,
    /// UIDs from here on were not yet given to a session as \Recent.
    pub recent_from: Uid,
    /// Totals.
    pub counts: Counts,
    /// Its entries, rising by uid.
    pub slots: Arc<Slots>,
}

/// An account as of `seq`.
#[derive(Debug, Clone)]
pub struct AccountState {
    /// As of this journal number.
    pub seq: Seq,
    /// Mailboxes by id.
    pub mailboxes: Arc<BTreeMap<MailboxId, Arc<Mailbox>>>,
    /// Names that are subscribed though no such mailbox exists (RFC 3501 §6.3.6).
    pub orphan_subscriptions: Arc<std::collections::BTreeSet<Arc<str>>>,
    /// Messages and bytes in the account.
    pub used: Counts,
    /// Quota in bytes, 0 = none.
    pub quota_bytes: u64,
    names: Arc<BTreeMap<Arc<str>, MailboxId>>,
    mailbox_next: u32,
    /// The highest uidvalidity ever given: a new one is above it.
    uid_validity_max: u32,
    /// What was expunged and still has rows, oldest first.
    graves: Arc<Vec<state::Grave>>,
    grave_next: NonZeroU32,
    /// The last deliveries to several accounts.
    deliveries: Arc<std::collections::VecDeque<state::Delivered>>,
    /// Most entries of a chunk: the same on every node.
    chunk_max: usize,
}

/// Which uids: a sorted list of disjoint inclusive ranges; `*` resolved by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UidSet(pub Vec<(Uid, Uid)>);

impl UidSet {
    /// True if `uid` is in it.
    pub fn contains(&self, uid: Uid) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= uid);
        after.checked_sub(1).is_some_and(|at| uid <= self.0[at].1)
    }

    /// True if it names nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a uid above all that are in it.
    pub fn push(&mut self, uid: Uid) {
        match self.0.last_mut() {
            Some((_, last)) if last.get().checked_add(1) == Some(uid.get()) => *last = uid,
            _ => self.0.push((uid, uid)),
        }
    }

    /// The same set, sorted and disjoint, whatever order it was written in.
    fn sorted(&self) -> std::borrow::Cow<'_, Self> {
        if self.0.iter().all(|(first, last)| first <= last) && self.0.is_sorted_by(|a, b| a.1 < b.0) {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut ranges: Vec<_> = self.0.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
        std::borrow::Cow::Owned(Self(ranges))
    }
}

impl FromIterator<Uid> for UidSet {
    /// From rising uids.
    fn from_iter<I: IntoIterator<Item = Uid>>(uids: I) -> Self {
        let mut set = Self::default();
        uids.into_iter().for_each(|uid| set.push(uid));
        set
    }
}

/// How STORE changes flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FlagChange {
    Replace,
    Add,
    Remove,
}

/// Flags by name: system bits and keywords.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlagNames {
    /// System flags.
    pub system: Flags,
    /// Keywords, as the client wrote them (compared without regard to ASCII case).
    pub keywords: Vec<String>,
}

/// A message to be added: made once by [`crate::message::MessageWriter`], added to any number of places.
pub use crate::message::NewMessage;

/// One message to be added to a mailbox.
#[derive(Debug, Clone)]
pub struct AppendItem {
    /// The message.
    pub message: Arc<NewMessage>,
    /// Its first flags.
    pub flags: FlagNames,
    /// IMAP's INTERNALDATE, milliseconds since 1970.
    pub received_at_ms: i64,
    /// Its id, when the caller must know it beforehand; else one is made. Never one that was used before.
    pub email: Option<EmailId>,
}

/// What became of a STORE.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// The journal's number after it.
    pub seq: Seq,
    /// Left alone because they changed after `unchanged_since`.
    pub modified: Vec<Uid>,
    /// Asked for but not there; the first 1,000 of them.
    pub missing: Vec<Uid>,
}

/// Where an appended message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Appended {
    pub mailbox: MailboxId,
    pub uid_validity: NonZeroU32,
    pub uid: Uid,
    pub email: EmailId,
    pub seq: Seq,
}

/// Where copied or moved messages went: `(old, new)` rising by old uid. Uids that no longer exist are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Copied {
    pub uid_validity: NonZeroU32,
    pub pairs: Vec<(Uid, Uid)>,
    pub seq: Seq,
}

/// Why an account operation failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum AccountError {
    #[error("no such mailbox")]
    NoMailbox,
    #[error("the mailbox exists already")]
    MailboxExists,
    #[error("the mailbox has children and cannot be removed again")]
    HasChildren,
    #[error("not a valid mailbox name: {0}")]
    BadName(&'static str),
    #[error("this cannot be done to the inbox")]
    Inbox,
    #[error("too many {what}: at most {max}")]
    TooMany { what: &'static str, max: usize },
    #[error("over quota: {used} of {quota} bytes used")]
    OverQuota { used: u64, quota: u64 },
    #[error("no such message")]
    NoMessage,
    #[error("there is a mailbox of this special use already: {0:?}")]
    RoleTaken(Role),
    #[error("not a valid keyword")]
    BadKeyword,
    /// Only from [`crate::delivery::Delivery::deliver`]: it failed for now, but the delivery is durably promised and
    /// will be carried out. To the sender it counts as accepted.
    #[error("accepted, and delivered as soon as the store allows")]
    Deferred,
    #[error("the account's stored data is damaged: {0}")]
    Corrupt(String),
    #[error(transparent)]
    Store(#[from] crate::wide::StoreError),
}
