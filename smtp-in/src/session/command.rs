//! What each command does (RFC 5321 §4.1 and §4.1.4).

use posthouse_storage::directory::Resolved;

use super::sasl::{Credentials, Sasl, Step};
use super::{Address, Envelope, Greeted, Recipient, Role, Session, State, Tls};
use crate::reply::{self, Extensions, Reply};
use crate::wire::command::{Command, Hello, MailParams};
use crate::wire::path::Mailbox;

impl Session {
    /// `more` input stands behind the command. Returns credentials that are to be checked.
    pub(super) fn command(&mut self, command: Command<'_>, more: bool) -> Option<Credentials> {
        match command {
            Command::Hello { kind, name } => self.hello(kind, name),
            Command::Mail { from, params } => self.mail(from, params),
            Command::Rcpt { to } => self.rcpt(to),
            Command::Data => self.data(more),
            Command::Rset => {
                self.state = State::Ready;
                self.idle(Reply::Ok);
            }
            Command::Noop => self.idle(Reply::Ok),
            Command::Vrfy => self.idle(Reply::CannotVerify),
            Command::Help => self.idle(Reply::Help),
            Command::Expn => self.refuse(Reply::NotImplemented),
            Command::Bdat => self.bdat(),
            Command::Quit => self.close(Reply::Bye),
            Command::StartTls => self.starttls(more),
            Command::Auth { mechanism, initial } => return self.auth(mechanism, initial),
            Command::Http => self.close(Reply::Http),
        }
        None
    }

    fn hello(&mut self, kind: Hello, name: &str) {
        // RFC 2033 §4.1: HELO and EHLO are no commands of LMTP.
        if (kind == Hello::Lhlo) != (self.settings.role == Role::Lmtp) {
            return self.refuse(Reply::WrongHello);
        }
        // RFC 5321 §4.1.4: it clears a transaction as RSET does.
        self.state = State::Ready;
        self.hello = Some(Greeted { kind, name: name.into() });
        if kind == Hello::Helo {
            reply::hello(&self.settings.hostname, &mut self.output);
            return self.count_idle();
        }
        let extensions = Extensions {
            size: self.settings.config.message_bytes_max,
            starttls: self.settings.tls == Tls::Offered,
            auth: self.settings.role.is_submission() && self.login.is_none() && self.may_log_in(),
        };
        reply::extensions(&self.settings.hostname, extensions, &mut self.output);
        self.count_idle();
    }

    fn may_log_in(&self) -> bool {
        self.settings.tls == Tls::Active || self.settings.plaintext_auth
    }

    fn mail(&mut self, from: Option<Mailbox<'_>>, params: MailParams) {
        if self.hello.is_none() {
            return self.refuse(Reply::HelloFirst);
        }
        if matches!(self.state, State::Transaction(_)) {
            return self.refuse(Reply::NestedMail);
        }
        // RFC 6409 §4.3.
        if self.settings.role.is_submission() && self.login.is_none() {
            return self.refuse(Reply::AuthRequired);
        }
        if params.size.is_some_and(|size| size > self.settings.config.message_bytes_max) {
            return self.refuse(Reply::MessageTooLarge);
        }
        if !params.smtputf8 && from.is_some_and(|from| !from.text.is_ascii()) {
            return self.refuse(Reply::NeedsSmtpUtf8);
        }
        let envelope = Envelope {
            from: from.map(Address::from),
            size: params.size,
            smtputf8: params.smtputf8,
            ..Envelope::default()
        };
        // Without a login the sender is whoever it says.
        if self.login.is_some() {
            self.state = State::AskingSender(envelope);
        } else {
            self.state = State::Transaction(envelope);
            self.say(Reply::SenderOk);
        }
    }

    /// A null sender is nobody's, and the login's own address needs no looking up.
    pub(super) fn is_own(&self, from: Option<&Address>) -> bool {
        match (&self.login, from) {
            (Some(login), Some(from)) => from.as_str().eq_ignore_ascii_case(&login.address),
            _ => true,
        }
    }

    /// RFC 6409 §6.1: an alias or a tagged form is fine when mail to it reaches who is logged in.
    pub(super) fn sender_resolved(&mut self, envelope: Envelope, found: Result<Resolved, Reply>) {
        let account = self.login.as_ref().map(|login| login.account);
        match found {
            Err(Reply::LoginEnded) => self.close(Reply::LoginEnded),
            _ if self.is_own(envelope.from.as_ref()) => {
                self.state = State::Transaction(envelope);
                self.say(Reply::SenderOk);
            }
            Ok(Resolved::Accounts(accounts)) if account.is_some_and(|account| accounts.contains(&account)) => {
                self.state = State::Transaction(envelope);
                self.say(Reply::SenderOk);
            }
            Ok(_) => self.refuse(Reply::NotYourAddress),
            Err(reply) => self.refuse(reply),
        }
    }

    fn rcpt(&mut self, to: Mailbox<'_>) {
        let max = self.settings.config.recipients_max;
        let State::Transaction(envelope) = &mut self.state else {
            return self.refuse(Reply::MailFirst);
        };
        if envelope.accepted >= max {
            // RFC 5321 §4.5.3.1.10. Senders with long lists run over by design; only far too many are an error.
            envelope.overshoot += 1;
            let tolerated = envelope.overshoot <= max;
            self.say(Reply::TooManyRecipients);
            if !tolerated {
                self.count_error();
            }
            return;
        }
        if !envelope.smtputf8 && !to.text.is_ascii() {
            return self.refuse(Reply::NeedsSmtpUtf8);
        }
        if let State::Transaction(envelope) = std::mem::replace(&mut self.state, State::Ready) {
            self.state = State::AskingRecipient(envelope, to.into());
        }
    }

    pub(super) fn recipient_resolved(
        &mut self,
        mut envelope: Envelope,
        address: Address,
        found: Result<Resolved, Reply>,
    ) {
        let refusal = match found {
            Ok(Resolved::Accounts(accounts)) => {
                let promised: usize = envelope.recipients.iter().map(|recipient| recipient.accounts.len()).sum();
                let lmtp = self.settings.role == Role::Lmtp;
                if promised > 0 && promised + accounts.len() > self.settings.config.recipients_max.max(1_000) {
                    // Aliases with many targets each; one alone is always taken.
                    self.state = State::Transaction(envelope);
                    return self.say(Reply::TooManyRecipients);
                }
                envelope.accepted += 1;
                // Named twice is delivered once; LMTP counts, so there it is kept.
                if lmtp || !envelope.recipients.iter().any(|known| known.accounts == accounts) {
                    envelope.recipients.push(Recipient { address, accounts });
                }
                self.state = State::Transaction(envelope);
                return self.say(Reply::RecipientOk);
            }
            Ok(Resolved::UnknownUser) if routed(address.local()) => Reply::RelayDenied,
            Ok(Resolved::UnknownUser) => Reply::UnknownUser,
            Ok(Resolved::ForeignDomain) if self.settings.role.is_submission() => Reply::NoOutbound,
            Ok(Resolved::ForeignDomain) => Reply::RelayDenied,
            Err(reply) => reply,
        };
        self.state = State::Transaction(envelope);
        self.refuse(refusal);
    }

    fn data(&mut self, more: bool) {
        let refusal = match std::mem::replace(&mut self.state, State::Ready) {
            State::Transaction(envelope) if !envelope.recipients.is_empty() => {
                self.state = State::Receiving(envelope);
                return self.say(Reply::StartText);
            }
            State::Transaction(envelope) => {
                self.state = State::Transaction(envelope);
                Reply::RecipientFirst
            }
            state => {
                self.state = state;
                Reply::MailFirst
            }
        };
        // RFC 2920 §3.1: DATA ends a group of commands. What stands behind a refused one is the text of a message,
        // sent blindly, with whatever commands its author put there.
        if more && self.settings.config.strict_pipelining {
            return self.close(Reply::TalkedTooEarly);
        }
        self.refuse(refusal);
    }

    /// Not offered, so the octets that follow it cannot be told from commands unless the connection ends.
    fn bdat(&mut self) {
        self.refuse(Reply::NoChunking);
        self.state = State::Closed;
    }

    fn starttls(&mut self, more: bool) {
        match self.settings.tls {
            Tls::Unavailable => self.refuse(Reply::TlsNotOffered),
            Tls::Active => self.refuse(Reply::TlsActive),
            // What stands behind it was put there by somebody who cannot read the answer.
            Tls::Offered if more => self.state = State::Closed,
            Tls::Offered => {
                self.say(Reply::ReadyForTls);
                self.state = State::Handshake;
            }
        }
    }

    fn auth(&mut self, mechanism: &str, initial: Option<&[u8]>) -> Option<Credentials> {
        let refusal = if !self.settings.role.is_submission() {
            Some(Reply::AuthNotOffered)
        } else if self.hello.is_none() {
            Some(Reply::HelloFirst)
        } else if self.login.is_some() {
            Some(Reply::AuthTwice)
        } else if matches!(self.state, State::Transaction(_)) {
            Some(Reply::AuthInTransaction)
        } else if !self.may_log_in() {
            Some(Reply::AuthNeedsTls)
        } else {
            None
        };
        if let Some(reply) = refusal {
            self.refuse(reply);
            return None;
        }
        let Some((sasl, challenge)) = Sasl::begin(mechanism) else {
            self.refuse(Reply::AuthMechanism);
            return None;
        };
        match initial {
            // RFC 4954 §4: `=` stands for an empty message.
            Some(b"=") => self.sasl(sasl.step(b"")),
            Some(message) => self.sasl(sasl.step(message)),
            None => self.sasl(Step::Continue(sasl, challenge)),
        }
    }
}

/// A local part that asks to be sent on: `user%other`, `other!user`, `"user@other"`.
fn routed(local: &str) -> bool {
    local.contains(['%', '!', '@'])
}
