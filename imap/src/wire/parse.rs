//! From a command's octets to a [`Command`].

use super::command::Command;

/// What a session has switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// UTF8=ACCEPT or IMAP4rev2: mailbox names may be raw UTF-8 in quoted strings.
    pub utf8: bool,
}

/// Why a command is not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The tag, if the line began with one; else the answer is untagged.
    pub tag: Option<String>,
    /// What to answer with.
    pub kind: ParseErrorKind,
    /// One line for the client: what was wrong.
    pub text: String,
}

/// What to answer a bad command with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParseErrorKind {
    /// BAD: not the grammar.
    Syntax,
    /// BAD: no such command.
    UnknownCommand,
    /// NO \[CANNOT\]: a mailbox name that is not valid modified UTF-7, or has control characters.
    MailboxName,
    /// NO \[BADCHARSET (US-ASCII UTF-8)\].
    Charset,
    /// NO \[LIMIT\]: nested too deeply, or a keyword too long.
    Limit,
}

/// Parses a frame's octets (with or without the final CRLF).
pub fn parse_command(octets: &[u8], options: ParseOptions) -> Result<Command, ParseError> {
    let _ = (octets, options);
    todo!()
}
