//! From what happened to what the client is told: one exhaustive table.

use posthouse_storage::account::{AccountError, Uid};
use posthouse_storage::wide::StoreError;

use crate::wire::write::{self, Code, Status};

/// A response code that outlives the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnedCode {
    /// Only a word.
    Word(&'static str),
    /// APPENDUID (RFC 4315).
    AppendUid { uid_validity: u32, uid: u32 },
    /// COPYUID (RFC 4315).
    CopyUid { uid_validity: u32, pairs: Vec<(Uid, Uid)> },
}

/// A command carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) code: Option<OwnedCode>,
    pub(crate) text: &'static str,
}

impl Done {
    /// OK without a code.
    pub(crate) fn plain(text: &'static str) -> Self {
        Self { code: None, text }
    }

    /// Writes the tagged OK.
    pub(crate) fn write(&self, tag: &str, out: &mut Vec<u8>) {
        let code = self.code.as_ref().map(|code| match code {
            OwnedCode::Word(word) => Code::Word(word),
            &OwnedCode::AppendUid { uid_validity, uid } => Code::AppendUid { uid_validity, uid },
            OwnedCode::CopyUid { uid_validity, pairs } => Code::CopyUid { uid_validity: *uid_validity, pairs },
        });
        write::tagged(out, tag, Status::Ok, code, self.text);
    }
}

/// What an account's error is to the client: the response code (RFC 5530, 6154, 9051, 9208) and the text.
pub(crate) fn account_error(error: &AccountError) -> (Option<&'static str>, String) {
    let word = match error {
        AccountError::NoMailbox => Some("NONEXISTENT"),
        AccountError::MailboxExists => Some("ALREADYEXISTS"),
        AccountError::HasChildren => Some("HASCHILDREN"),
        AccountError::BadName(_) | AccountError::BadKeyword | AccountError::Inbox => Some("CANNOT"),
        AccountError::RoleTaken(_) => Some("USEATTR"),
        AccountError::TooMany { .. } => Some("LIMIT"),
        AccountError::OverQuota { .. } => Some("OVERQUOTA"),
        AccountError::NoMessage => Some("EXPUNGEISSUED"),
        AccountError::Deferred => None,
        AccountError::Corrupt(_) => Some("SERVERBUG"),
        AccountError::Store(store) => Some(match store {
            StoreError::Corrupt(_) | StoreError::Refused(_) => "SERVERBUG",
            StoreError::Unavailable(_) | StoreError::Poisoned(_) | StoreError::Locked { .. } | StoreError::Io(_) => {
                "UNAVAILABLE"
            }
        }),
    };
    let text = match word {
        // What went wrong inside is for the log.
        Some("SERVERBUG") => "Stored data is damaged; the operator has been told".to_owned(),
        Some("UNAVAILABLE") => "The store cannot do this now; try again later".to_owned(),
        _ => {
            let text = error.to_string();
            let mut letters = text.chars();
            letters.next().map_or(text.clone(), |first| first.to_uppercase().chain(letters).collect())
        }
    };
    (word, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let store = |error| AccountError::Store(error);
        let table: String = [
            AccountError::NoMailbox,
            AccountError::MailboxExists,
            AccountError::HasChildren,
            AccountError::BadName("it is empty"),
            AccountError::BadKeyword,
            AccountError::Inbox,
            AccountError::RoleTaken(posthouse_storage::account::Role::Sent),
            AccountError::TooMany { what: "keywords", max: 54 },
            AccountError::OverQuota { used: 5, quota: 4 },
            AccountError::NoMessage,
            AccountError::Deferred,
            AccountError::Corrupt("secret detail".into()),
            store(StoreError::Corrupt("secret detail".into())),
            store(StoreError::Refused("too large".into())),
            store(StoreError::Unavailable("host 10.1.2.3".into())),
            store(StoreError::Poisoned("/var/lib".into())),
        ]
        .iter()
        .map(|error| {
            let (word, text) = account_error(error);
            format!("NO [{}] {text}\n", word.unwrap_or("-"))
        })
        .collect();
        expect_test::expect![[r#"
            NO [NONEXISTENT] No such mailbox
            NO [ALREADYEXISTS] The mailbox exists already
            NO [HASCHILDREN] The mailbox has children and cannot be removed again
            NO [CANNOT] Not a valid mailbox name: it is empty
            NO [CANNOT] Not a valid keyword
            NO [CANNOT] This cannot be done to the inbox
            NO [USEATTR] There is a mailbox of this special use already: Sent
            NO [LIMIT] Too many keywords: at most 54
            NO [OVERQUOTA] Over quota: 5 of 4 bytes used
            NO [EXPUNGEISSUED] No such message
            NO [-] Accepted, and delivered as soon as the store allows
            NO [SERVERBUG] Stored data is damaged; the operator has been told
            NO [SERVERBUG] Stored data is damaged; the operator has been told
            NO [SERVERBUG] Stored data is damaged; the operator has been told
            NO [UNAVAILABLE] The store cannot do this now; try again later
            NO [UNAVAILABLE] The store cannot do this now; try again later
        "#]]
        .assert_eq(&table);
    }
}
