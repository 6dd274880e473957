//! What is written in an account's journal: one [`Change`] per recorded step, in a compact binary form.
//!
//! The form is read by later releases: kinds and their fields are only ever added, under new numbers.

use std::num::NonZeroU32;

use super::codec::{Read, Reader, put_bytes, put_strings, put_uids, put_varint};
use super::{FlagChange, Flags, MailboxId, Role, Uid, UidSet};
use crate::message::{EmailId, ThreadId};

/// Names one delivery of a message to several accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DeliveryId(pub(crate) u128);

/// A mailbox to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewMailbox {
    pub(super) name: String,
    pub(super) role: Option<Role>,
    pub(super) subscribed: bool,
}

/// One recorded step. What it does depends on the state it is applied to and the commit's number alone: ids, uids and
/// keyword bits that follow from the state are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Makes mailboxes (whose parents exist or come before them). A \Noselect name is replaced by a new mailbox.
    Create {
        /// Seconds since 1970: the least uidvalidity.
        at_secs: u32,
        /// The mailboxes.
        mailboxes: Vec<NewMailbox>,
    },
    /// Removes a mailbox, or leaves it \Noselect if it has children; its messages are doomed.
    Delete {
        /// Seconds since 1970.
        at_secs: u32,
        /// The mailbox.
        mailbox: MailboxId,
    },
    /// Renames a mailbox and all below it.
    Rename {
        /// The mailbox.
        mailbox: MailboxId,
        /// Its new name.
        to: String,
    },
    /// Changes a subscription.
    Subscribe {
        /// The name; need not exist.
        name: String,
        /// Subscribed or not.
        on: bool,
    },
    /// Adds a message.
    Append {
        /// Where.
        mailbox: MailboxId,
        /// The message.
        email: EmailId,
        /// Its octets.
        size: u32,
        /// Its thread.
        thread: ThreadId,
        /// Flags, with the bits that `keywords` will get.
        flags: Flags,
        /// Keywords new to the mailbox.
        keywords: Vec<String>,
        /// Part of a delivery to several accounts.
        delivery: Option<DeliveryId>,
    },
    /// Changes flags.
    Store {
        /// Where.
        mailbox: MailboxId,
        /// Which.
        uids: UidSet,
        /// How.
        change: FlagChange,
        /// Flags, with the bits that `keywords` will get.
        flags: Flags,
        /// Keywords new to the mailbox.
        keywords: Vec<String>,
    },
    /// Removes messages from a mailbox, whatever their flags.
    Expunge {
        /// Seconds since 1970.
        at_secs: u32,
        /// Where.
        mailbox: MailboxId,
        /// Which.
        uids: UidSet,
    },
    /// Adds messages of one mailbox to another.
    Copy {
        /// From where.
        from: MailboxId,
        /// To where; may be the same.
        to: MailboxId,
        /// Which.
        uids: UidSet,
    },
    /// The same, removing them where they were.
    Move {
        /// From where.
        from: MailboxId,
        /// To where; may be the same.
        to: MailboxId,
        /// Which.
        uids: UidSet,
    },
    /// Sets the quota.
    Quota {
        /// 0 = none.
        bytes: u64,
    },
    /// Uids below this were given to a session as \Recent.
    Recent {
        /// Where.
        mailbox: MailboxId,
        /// The first that was not.
        from: Uid,
    },
    /// The rows of these graves are deleted.
    Swept {
        /// Their numbers.
        graves: Vec<NonZeroU32>,
    },
    /// Joins the neighbouring chunks from one uid to another.
    Join {
        /// Where.
        mailbox: MailboxId,
        /// The first of the first chunk.
        first: Uid,
        /// The last of the last chunk.
        last: Uid,
    },
}

impl Change {
    /// Appends its octets.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let kind = |out: &mut Vec<u8>, kind: u8, number: u32| {
            out.push(kind);
            put_varint(out, u64::from(number));
        };
        match self {
            Self::Create { at_secs, mailboxes } => {
                kind(out, 1, *at_secs);
                put_varint(out, mailboxes.len() as u64);
                for NewMailbox { name, role, subscribed } in mailboxes {
                    put_bytes(out, name.as_bytes());
                    out.push(role_number(*role));
                    out.push((*subscribed).into());
                }
            }
            Self::Delete { at_secs, mailbox } => {
                kind(out, 2, *at_secs);
                put_varint(out, mailbox.0.into());
            }
            Self::Rename { mailbox, to } => {
                kind(out, 3, mailbox.0);
                put_bytes(out, to.as_bytes());
            }
            Self::Subscribe { name, on } => {
                out.push(4);
                put_bytes(out, name.as_bytes());
                out.push((*on).into());
            }
            Self::Append { mailbox, email, size, thread, flags, keywords, delivery } => {
                kind(out, 5, mailbox.0);
                out.extend_from_slice(&email.0);
                put_varint(out, (*size).into());
                out.extend_from_slice(&thread.0.to_be_bytes());
                put_varint(out, flags.0);
                put_strings(out, keywords);
                out.push(delivery.is_some().into());
                if let Some(DeliveryId(id)) = delivery {
                    out.extend_from_slice(&id.to_be_bytes());
                }
            }
            Self::Store { mailbox, uids, change, flags, keywords } => {
                kind(out, 6, mailbox.0);
                put_uids(out, uids);
                out.push(match change {
                    FlagChange::Replace => 0,
                    FlagChange::Add => 1,
                    FlagChange::Remove => 2,
                });
                put_varint(out, flags.0);
                put_strings(out, keywords);
            }
            Self::Expunge { at_secs, mailbox, uids } => {
                kind(out, 7, *at_secs);
                put_varint(out, mailbox.0.into());
                put_uids(out, uids);
            }
            Self::Copy { from, to, uids } | Self::Move { from, to, uids } => {
                kind(out, if matches!(self, Self::Copy { .. }) { 8 } else { 9 }, from.0);
                put_varint(out, to.0.into());
                put_uids(out, uids);
            }
            Self::Quota { bytes } => {
                out.push(10);
                put_varint(out, *bytes);
            }
            Self::Recent { mailbox, from } => {
                kind(out, 11, mailbox.0);
                put_varint(out, from.get().into());
            }
            Self::Swept { graves } => {
                out.push(12);
                put_varint(out, graves.len() as u64);
                graves.iter().for_each(|grave| put_varint(out, grave.get().into()));
            }
            Self::Join { mailbox, first, last } => {
                kind(out, 13, mailbox.0);
                put_varint(out, first.get().into());
                put_varint(out, last.get().into());
            }
        }
    }

    /// Reads one change that takes up all of `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader(bytes);
        let change = Self::read(&mut reader)?;
        reader.end()?;
        Ok(change)
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match reader.octet()? {
            1 => Self::Create {
                at_secs: reader.number()?,
                mailboxes: (0..reader.count(3)?)
                    .map(|_| {
                        Ok(NewMailbox {
                            name: reader.string()?.to_owned(),
                            role: role_of(reader.octet()?)?,
                            subscribed: reader.flag()?,
                        })
                    })
                    .collect::<Read<_>>()?,
            },
            2 => Self::Delete { at_secs: reader.number()?, mailbox: MailboxId(reader.number()?) },
            3 => Self::Rename { mailbox: MailboxId(reader.number()?), to: reader.string()?.to_owned() },
            4 => Self::Subscribe { name: reader.string()?.to_owned(), on: reader.flag()? },
            5 => Self::Append {
                mailbox: MailboxId(reader.number()?),
                email: EmailId(reader.array()?),
                size: reader.number()?,
                thread: ThreadId(u64::from_be_bytes(reader.array()?)),
                flags: Flags(reader.varint()?),
                keywords: reader.strings()?,
                delivery: match reader.flag()? {
                    true => Some(DeliveryId(u128::from_be_bytes(reader.array()?))),
                    false => None,
                },
            },
            6 => Self::Store {
                mailbox: MailboxId(reader.number()?),
                uids: reader.uids()?,
                change: match reader.octet()? {
                    0 => FlagChange::Replace,
                    1 => FlagChange::Add,
                    2 => FlagChange::Remove,
                    _ => return Err("an unknown way to change flags"),
                },
                flags: Flags(reader.varint()?),
                keywords: reader.strings()?,
            },
            7 => {
                Self::Expunge { at_secs: reader.number()?, mailbox: MailboxId(reader.number()?), uids: reader.uids()? }
            }
            kind @ (8 | 9) => {
                let (from, to) = (MailboxId(reader.number()?), MailboxId(reader.number()?));
                let uids = reader.uids()?;
                if kind == 8 { Self::Copy { from, to, uids } } else { Self::Move { from, to, uids } }
            }
            10 => Self::Quota { bytes: reader.varint()? },
            11 => Self::Recent { mailbox: MailboxId(reader.number()?), from: reader.uid()? },
            12 => Self::Swept { graves: (0..reader.count(1)?).map(|_| reader.nonzero()).collect::<Read<_>>()? },
            13 => Self::Join { mailbox: MailboxId(reader.number()?), first: reader.uid()?, last: reader.uid()? },
            _ => return Err("a kind of change that this release does not know"),
        })
    }
}

pub(super) fn role_number(role: Option<Role>) -> u8 {
    match role {
        None => 0,
        Some(Role::Inbox) => 1,
        Some(Role::Drafts) => 2,
        Some(Role::Sent) => 3,
        Some(Role::Junk) => 4,
        Some(Role::Trash) => 5,
        Some(Role::Archive) => 6,
    }
}

pub(super) fn role_of(number: u8) -> Read<Option<Role>> {
    Ok(match number {
        0 => None,
        1 => Some(Role::Inbox),
        2 => Some(Role::Drafts),
        3 => Some(Role::Sent),
        4 => Some(Role::Junk),
        5 => Some(Role::Trash),
        6 => Some(Role::Archive),
        _ => return Err("an unknown role"),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uids() -> impl Strategy<Value = UidSet> {
        proptest::collection::btree_set(1_u32..60, 0..20)
            .prop_map(|uids| uids.into_iter().filter_map(Uid::new).collect())
    }

    fn keywords() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[a-c$]{1,4}", 0..3)
    }

    /// Any change, with small numbers so that some fit a state.
    pub(crate) fn any_change() -> impl Strategy<Value = Change> {
        let mailbox = || (0_u32..9).prop_map(MailboxId);
        let uid = || (1_u32..60).prop_map(|uid| Uid::new(uid).unwrap());
        let change = prop_oneof![Just(FlagChange::Replace), Just(FlagChange::Add), Just(FlagChange::Remove)];
        let made = ("[a-c]{0,2}(/[a-c]{0,2}){0,2}", (0_u8..7), any::<bool>())
            .prop_map(|(name, role, subscribed)| NewMailbox { name, role: role_of(role).unwrap(), subscribed });
        prop_oneof![
            (any::<u32>(), proptest::collection::vec(made, 0..3))
                .prop_map(|(at_secs, mailboxes)| Change::Create { at_secs, mailboxes }),
            (any::<u32>(), mailbox()).prop_map(|(at_secs, mailbox)| Change::Delete { at_secs, mailbox }),
            (mailbox(), "[a-c]{0,2}(/[a-c]{0,2}){0,2}").prop_map(|(mailbox, to)| Change::Rename { mailbox, to }),
            ("[a-c/]{0,4}", any::<bool>()).prop_map(|(name, on)| Change::Subscribe { name, on }),
            (mailbox(), any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<u64>(), keywords(), any::<Option<u128>>())
                .prop_map(|(mailbox, email, size, thread, flags, keywords, delivery)| Change::Append {
                    mailbox,
                    email: EmailId(email),
                    size,
                    thread: ThreadId(thread),
                    flags: Flags(flags),
                    keywords,
                    delivery: delivery.map(DeliveryId),
                }),
            (mailbox(), uids(), change, any::<u64>(), keywords()).prop_map(
                |(mailbox, uids, change, flags, keywords)| {
                    Change::Store { mailbox, uids, change, flags: Flags(flags), keywords }
                }
            ),
            (any::<u32>(), mailbox(), uids()).prop_map(|(at_secs, mailbox, uids)| Change::Expunge {
                at_secs,
                mailbox,
                uids
            }),
            (mailbox(), mailbox(), uids()).prop_map(|(from, to, uids)| Change::Copy { from, to, uids }),
            (mailbox(), mailbox(), uids()).prop_map(|(from, to, uids)| Change::Move { from, to, uids }),
            any::<u64>().prop_map(|bytes| Change::Quota { bytes }),
            (mailbox(), uid()).prop_map(|(mailbox, from)| Change::Recent { mailbox, from }),
            proptest::collection::vec((1_u32..9).prop_map(|n| NonZeroU32::new(n).unwrap()), 0..3)
                .prop_map(|graves| Change::Swept { graves }),
            (mailbox(), uid(), uid()).prop_map(|(mailbox, first, last)| Change::Join { mailbox, first, last }),
        ]
    }

    proptest! {
        #[test]
        fn a_change_is_read_back(change in any_change()) {
            let mut out = Vec::new();
            change.encode(&mut out);
            prop_assert_eq!(Change::decode(&out), Ok(change));
            for len in 0..out.len() {
                prop_assert!(Change::decode(&out[..len]).is_err());
            }
        }

        #[test]
        fn any_octets_are_a_change_or_refused(bytes: Vec<u8>, kind in 0_u8..15) {
            Change::decode(&bytes).ok();
            Change::decode(&[&[kind], &*bytes].concat()).ok();
        }
    }
}
