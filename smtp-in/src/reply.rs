//! What peers are told: one table from a reply's name to its code, enhanced code (RFC 3463, 5248) and text.
//!
//! Texts are generic: no names, paths or errors of ours.

use std::io::Write;

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident => $line:literal,)*) => {
        /// A reply whose text is fixed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Reply {
            $($(#[$doc])* $name,)*
        }

        impl Reply {
            /// All of them, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, for logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The line without its CR LF: code, enhanced code where RFC 2034 wants one, text.
            pub fn line(self) -> &'static str {
                match self {
                    $(Self::$name => $line,)*
                }
            }
        }
    };
}

replies! {
    Ok => "250 2.0.0 Ok",
    ReadyForTls => "220 2.0.0 Begin the TLS handshake",
    Bye => "221 2.0.0 Goodbye",
    LoggedIn => "235 2.7.0 Welcome",
    SenderOk => "250 2.1.0 Sender ok",
    RecipientOk => "250 2.1.5 Recipient ok",
    // RFC 5321 §7.3: not telling who exists, and not claiming that nobody does.
    CannotVerify => "252 2.5.0 Cannot verify; send the mail and see",
    Help => "214 2.0.0 See RFC 5321",
    StartText => "354 End the text with <CR><LF>.<CR><LF>",
    SaslEmptyChallenge => "334 ",
    SaslUserName => "334 VXNlcm5hbWU6",
    SaslPassword => "334 UGFzc3dvcmQ6",
    LineTooLong => "500 5.5.2 Line too long",
    BareLineEnd => "500 5.5.2 Lines end with CR LF; a bare CR or LF is not allowed",
    NotPrintable => "500 5.5.2 Commands hold printable characters only",
    UnknownCommand => "500 5.5.1 Command not recognised",
    NotImplemented => "502 5.5.1 Command not implemented",
    NoChunking => "502 5.5.1 BDAT is not offered here; use DATA",
    BadArguments => "501 5.5.4 Arguments are missing, wrong or too many",
    BadHelloName => "501 5.5.4 Give a host name or an address literal",
    BadSender => "501 5.1.7 Not a valid sender address",
    BadRecipient => "501 5.1.3 Not a valid recipient address",
    UnknownParameter => "555 5.5.4 Parameter not recognised or not offered",
    BadParameter => "501 5.5.4 Parameter with a bad value, or given twice",
    HelloFirst => "503 5.5.1 Say hello first",
    WrongHello => "500 5.5.1 EHLO speaks SMTP and LHLO LMTP; this port speaks the other",
    MailFirst => "503 5.5.1 MAIL first",
    RecipientFirst => "503 5.5.1 No recipient was accepted",
    NestedMail => "503 5.5.1 A sender was given already; RSET starts over",
    Http => "554 5.7.0 This is not a web server",
    TalkedTooEarly => "503 5.5.1 The text was sent without waiting for leave; closing",
    TlsNotOffered => "502 5.5.1 TLS is not available",
    TlsActive => "503 5.5.1 TLS is active already",
    AuthNotOffered => "502 5.5.1 No logins on this port; use the submission port",
    AuthTwice => "503 5.5.1 Already logged in",
    AuthInTransaction => "503 5.5.1 Not during a mail transaction",
    AuthNeedsTls => "538 5.7.11 Logins need TLS; STARTTLS first",
    AuthMechanism => "504 5.5.4 Mechanism not offered; use PLAIN or LOGIN",
    AuthBadEncoding => "501 5.5.2 Not base64, or not what the mechanism wants",
    AuthCancelled => "501 5.7.0 Login cancelled",
    AuthTooLong => "500 5.5.6 Login exchange line too long",
    AuthFailed => "535 5.7.8 The name or the password is wrong",
    AuthThrottled => "454 4.7.0 Too many failed logins; try again later",
    AuthUnavailable => "454 4.7.0 Logins are not possible right now",
    LoginEnded => "421 4.7.0 The account was changed; log in again",
    AuthRequired => "530 5.7.0 Log in first",
    NotYourAddress => "553 5.7.1 This sender address is not yours",
    NeedsSmtpUtf8 => "553 5.6.7 A non-ASCII address needs SMTPUTF8",
    UnknownUser => "550 5.1.1 No such mailbox here",
    RelayDenied => "550 5.7.1 Mail for this domain is not accepted here",
    NoOutbound => "451 4.4.4 This server cannot deliver to other servers yet",
    TooManyRecipients => "452 4.5.3 Too many recipients; send to the rest in another transaction",
    Misconfigured => "451 4.3.5 This address leads nowhere for the moment",
    MailboxFull => "452 4.2.2 The mailbox is full",
    MailboxFullForGood => "552 5.2.2 The mailbox is full",
    RecipientsChanged => "451 4.2.0 Not all recipients take it any more; send again, and RCPT tells who",
    StoreUnavailable => "451 4.3.0 Storage is not available; try again later",
    DiskFull => "452 4.3.1 Not enough storage; try again later",
    MessageTooLarge => "552 5.3.4 The message is larger than this server takes",
    MessageSpoiled => "550 5.6.0 The text holds a bare CR, a bare LF or a NUL",
    HeaderTooLarge => "552 5.3.4 The header is larger than 1 MiB",
    TooManyFields => "554 5.6.0 The header has more than 1000 fields",
    // RFC 5322 §3.6: who it is from would depend on who reads it.
    SeveralFrom => "550 5.7.1 The header has more than one From field",
    MailLoop => "554 5.4.6 Too many Received fields: the message runs in a loop",
    TooManyErrors => "421 4.7.0 Too many errors; closing",
    TooManyCommands => "421 4.7.0 Too many commands without a message; closing",
    TooManyLogins => "421 4.7.0 Too many failed logins; closing",
    TooManyConnections => "421 4.7.0 Too many connections; try again later",
    Timeout => "421 4.4.2 Waited too long; closing",
    ShuttingDown => "421 4.3.2 Shutting down; try again soon",
}

impl Reply {
    /// The code.
    pub fn code(self) -> u16 {
        self.line().as_bytes()[..3].iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'))
    }

    /// True for 4yz and 5yz.
    pub fn is_negative(self) -> bool {
        self.line().as_bytes()[0] >= b'4'
    }

    /// Appends the line with its CR LF.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.line().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the greeting.
pub fn greeting(hostname: &str, protocol: &str, out: &mut Vec<u8>) {
    line(out, format_args!("220 {hostname} {protocol} Posthouse"));
}

/// Appends the answer to HELO.
pub fn hello(hostname: &str, out: &mut Vec<u8>) {
    line(out, format_args!("250 {hostname}"));
}

/// What the answer to EHLO and LHLO announces.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Extensions {
    pub size: u64,
    pub starttls: bool,
    pub auth: bool,
}

/// Appends the answer to EHLO and LHLO.
pub fn extensions(hostname: &str, extensions: Extensions, out: &mut Vec<u8>) {
    line(out, format_args!("250-{hostname}"));
    out.extend_from_slice(b"250-PIPELINING\r\n");
    line(out, format_args!("250-SIZE {}", extensions.size));
    if extensions.starttls {
        out.extend_from_slice(b"250-STARTTLS\r\n");
    }
    if extensions.auth {
        out.extend_from_slice(b"250-AUTH PLAIN LOGIN\r\n");
    }
    out.extend_from_slice(b"250-8BITMIME\r\n250-SMTPUTF8\r\n250 ENHANCEDSTATUSCODES\r\n");
}

/// Appends the answer to the final dot when the message is stored.
pub fn stored(id: &str, out: &mut Vec<u8>) {
    line(out, format_args!("250 2.0.0 Stored as {id}"));
}

fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
    out.extend_from_slice(b"\r\n");
}
