//! Which thread a message belongs to.
//!
//! A thread's id is a hash of the account, the Message-ID at its root and the base subject (RFC 5256 §2.1): a message
//! and a reply that names it get the same id without a look-up, whichever is delivered first and by whichever node.
//! Look-ups are needed only where a reply does not name its root: then the row of a message it does name tells, if
//! the base subject is the same. A changed subject begins a new thread.
//!
//! Messages are not joined by subject alone: that would put the "Re: Hello" of strangers together, and cost every
//! message a look-up.

use blake3::Hasher;
use bytes::Bytes;

use super::AccountId;
use super::machine::partition;
use crate::message::{EmailId, ThreadId, base_subject, decode_header, header_field, thread_ids};

/// A Message-ID, hashed.
pub(super) type IdHash = [u8; 16];

/// What a message's header says of its thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Relations {
    /// Its own Message-ID.
    pub(super) own: Option<IdHash>,
    /// Messages it names, the nearest first and the root last; each once, at most ten.
    pub(super) named: Vec<IdHash>,
    /// Its base subject, hashed.
    pub(super) subject: [u8; 8],
}

impl Relations {
    /// Reads them from a message's header.
    pub(super) fn of(header: &[u8]) -> Self {
        let ids = thread_ids(header);
        let own = ids.own.as_deref().map(hash);
        let reply = ids.in_reply_to.as_deref().map(hash);
        let references: Vec<IdHash> = ids.references.iter().map(|id| hash(id)).collect();
        let root = references.first().copied().or(reply);
        let mut named: Vec<IdHash> = Vec::new();
        for id in reply.into_iter().chain(references.into_iter().rev()) {
            if Some(id) != root && Some(id) != own && !named.contains(&id) {
                named.push(id);
            }
        }
        named.extend(root.filter(|root| Some(*root) != own));
        let subject = header_field(header, "Subject").map(|field| base_subject(&decode_header(field.value)).0);
        Self { own, named, subject: short_hash(subject.unwrap_or_default().as_bytes()) }
    }

    /// The thread, given what the rows of `named` say, in the same order.
    pub(super) fn thread(&self, account: AccountId, email: EmailId, rows: &[Option<ThreadRow>]) -> ThreadId {
        let known = rows.iter().flatten().find(|row| row.subject == self.subject);
        if let Some(row) = known {
            return row.thread;
        }
        let root = self.named.last().copied().or(self.own).unwrap_or(email.0);
        let mut hasher = Hasher::new();
        hasher.update(&account.0.to_be_bytes()).update(&root).update(&self.subject);
        let mut id = [0; 8];
        hasher.finalize_xof().fill(&mut id);
        ThreadId(u64::from_be_bytes(id))
    }
}

/// What is stored under a Message-ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadRow {
    pub(super) thread: ThreadId,
    pub(super) subject: [u8; 8],
}

impl ThreadRow {
    pub(super) fn encode(&self) -> Bytes {
        Bytes::copy_from_slice(&[self.thread.0.to_be_bytes(), self.subject].concat())
    }

    /// `None` for what is no such row: a lost relation costs less than a refused message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (thread, subject) = bytes.split_first_chunk()?;
        Some(Self { thread: ThreadId(u64::from_be_bytes(*thread)), subject: subject.try_into().ok()? })
    }
}

/// Where a Message-ID's row is: 256 partitions for each account keep them small.
pub(super) fn place(account: AccountId, id: &IdHash) -> (Bytes, Bytes) {
    let partition = [&partition(account)[..], &id[..1]].concat();
    (partition.into(), Bytes::copy_from_slice(&id[1..]))
}

fn hash(id: &[u8]) -> IdHash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(id).as_bytes()[..16]);
    hash
}

fn short_hash(text: &[u8]) -> [u8; 8] {
    let mut hash = [0; 8];
    hash.copy_from_slice(&blake3::hash(text).as_bytes()[..8]);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relations(text: &str) -> Relations {
        Relations::of(text.replace('\n', "\r\n").as_bytes())
    }

    const ACCOUNT: AccountId = AccountId(1);

    fn thread(relations: &Relations, rows: &[Option<ThreadRow>]) -> ThreadId {
        relations.thread(ACCOUNT, EmailId::new(1, 1), rows)
    }

    #[test]
    fn a_message_and_its_replies_agree_without_looking() {
        let root = relations("Message-ID: <r@x>\nSubject: Plan\n\n");
        let reply = relations("Message-ID: <1@x>\nIn-Reply-To: <r@x>\nReferences: <r@x>\nSubject: Re: Plan\n\n");
        let deep =
            relations("Message-ID: <2@x>\nIn-Reply-To: <1@x>\nReferences: <r@x> <1@x>\nSubject: RE: Re: plan\n\n");
        assert!(root.named.is_empty(), "nothing is looked up");
        assert_eq!(deep.named.len(), 2);
        assert_eq!(thread(&root, &[]), thread(&reply, &[None]));
        assert_eq!(thread(&root, &[]), thread(&deep, &[None, None]));
        assert_ne!(thread(&root, &[]), root.thread(AccountId(2), EmailId::new(1, 1), &[]));
    }

    #[test]
    fn a_reply_that_names_only_its_parent_is_told_by_the_parents_row() {
        let root = relations("Message-ID: <r@x>\nSubject: Plan\n\n");
        let row = ThreadRow { thread: thread(&root, &[]), subject: root.subject };
        let late = relations("Message-ID: <3@x>\nIn-Reply-To: <2@x>\nSubject: Re: Plan\n\n");
        assert_eq!(thread(&late, &[ThreadRow::decode(&row.encode())]), row.thread);
        assert_ne!(thread(&late, &[None]), row.thread);
        let other = relations("Message-ID: <4@x>\nIn-Reply-To: <2@x>\nSubject: Something else\n\n");
        assert_ne!(thread(&other, &[Some(row)]), row.thread, "a new subject is a new thread");
    }

    #[test]
    fn look_ups_are_bounded_and_messages_without_ids_stand_alone() {
        let many: String = (0..500).map(|n| format!(" <{n}@x>")).collect();
        let long = relations(&format!("Message-ID: <9@y>\nIn-Reply-To: <a@b>\nReferences:{many}\n\n"));
        assert_eq!(long.named.len(), 10);
        assert_eq!(long.named.last(), Some(&hash(b"0@x")), "the root is last");
        let own = relations("Message-ID: <9@y>\nIn-Reply-To: <9@y>\n\n");
        assert!(own.named.is_empty());
        let bare = relations("Subject: Plan\n\n");
        assert_ne!(bare.thread(ACCOUNT, EmailId::new(1, 1), &[]), bare.thread(ACCOUNT, EmailId::new(1, 2), &[]));
    }
}
