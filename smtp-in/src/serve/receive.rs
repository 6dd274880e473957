//! One message: its text is streamed into storage, then delivered.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use posthouse_storage::account::AccountId;
use posthouse_storage::directory::Resolved;
use posthouse_storage::message::{MessageWriter, NewMessage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::connection::{Connection, Got};
use crate::error::{ConnectionError, delivery_reply, spool_reply};
use crate::events;
use crate::reply::Reply;
use crate::session::{Recipient, Role, Session, Verdict, one_reply};
use crate::wire::data::{DataReader, Piece};
use crate::wire::header::HeaderPass;
use crate::wire::trace::TopFields;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Reads the text of the session's transaction, delivers it, and tells the session what became of it.
    pub(super) async fn receive(&mut self) -> Result<(), ConnectionError> {
        self.flush().await?;
        let id = format!("{:016x}", rand::random::<u64>());
        let received = self.read_text(&id).await?;
        // From here on nothing is raced against the peer or the shutdown: what is delivered is answered.
        match received {
            Ok(message) => self.deliver(&id, message).await,
            Err(reply) => self.session.received(Verdict::Refused(reply)),
        }
        Ok(())
    }

    async fn read_text(&mut self, id: &str) -> Result<Result<NewMessage, Reply>, ConnectionError> {
        let config = &self.server.config;
        let end = Instant::now() + config.message_time_max();
        let mut trace = Vec::with_capacity(512);
        self.session.trace(id, self.peer, Timestamp::now(), &mut trace);
        let mut incoming = Incoming::new(MessageWriter::new(&self.server.storage.spool), config.message_bytes_max);
        incoming.write(&trace).await;
        drop(trace);
        let mut reader = DataReader::new();
        self.input.expect_text();
        loop {
            let (used, piece) = reader.read(self.input.octets());
            if let Piece::Octets(octets) = piece {
                if reader.spoiled() {
                    incoming.refuse(Reply::MessageSpoiled);
                } else {
                    incoming.text(octets, &self.session).await;
                }
            }
            let ended = piece == Piece::End;
            self.input.consume(used);
            if ended {
                break;
            }
            if self.input.octets().is_empty() {
                let block = Instant::now() + config.data_block_timeout();
                if self.more(end.min(block)).await? == Got::Eof {
                    let error = std::io::ErrorKind::UnexpectedEof;
                    return Err(ConnectionError::Lost(error.into()));
                }
            }
        }
        if reader.spoiled() {
            return Ok(Err(Reply::MessageSpoiled));
        }
        Ok(incoming.finish().await)
    }

    async fn deliver(&mut self, id: &str, message: NewMessage) {
        if self.login_ended().await {
            return self.session.received(Verdict::Refused(Reply::LoginEnded));
        }
        let Some(envelope) = self.session.receiving() else { return };
        let (size, recipients) = (message.size(), envelope.recipients.len());
        let reached = self.still_reached(&envelope.recipients).await;
        if reached.iter().all(|accounts| accounts.is_empty()) {
            return self.session.received(Verdict::Refused(Reply::UnknownUser));
        }
        let accounts = each_once(&reached);
        if self.role != Role::Lmtp
            && let Err(reply) = self.all_take_it(&reached, &accounts, size).await
        {
            return self.session.received(Verdict::Refused(reply));
        }
        let begun = Instant::now();
        let results = self.server.storage.delivery.deliver(Arc::new(message), &accounts).await;
        let refusals: Vec<Option<Reply>> = results
            .iter()
            .map(|result| {
                let error = result.as_ref().err()?;
                let reply = delivery_reply(error, &self.server.config)?;
                if !matches!(reply, Reply::MailboxFull | Reply::MailboxFullForGood) {
                    events::delivery_failed(self.role, id, error);
                }
                Some(reply)
            })
            .collect();
        let lmtp = self.role == Role::Lmtp;
        let all_reached = reached.iter().all(|accounts| !accounts.is_empty());
        if all_reached && refusals.iter().all(Option::is_none) && refusals.len() == accounts.len() {
            events::message_accepted(self.role, id, size, recipients, begun.elapsed());
            return self.session.received(Verdict::Delivered { id, failed: &[] });
        }
        if !lmtp && refusals.iter().any(Option::is_none) {
            for (account, reply) in accounts.iter().zip(&refusals) {
                reply.inspect(|reply| events::recipient_missed(self.role, id, *account, *reply));
            }
        }
        let of = |account: &AccountId| {
            let at = accounts.iter().position(|known| known == account);
            // No answer is no promise.
            at.and_then(|at| refusals.get(at).copied()).unwrap_or(Some(Reply::StoreUnavailable))
        };
        let failed = reached.iter().map(|accounts| match accounts.as_slice() {
            [] => Some(Reply::UnknownUser),
            [one] => of(one),
            several => one_reply(&several.iter().map(of).collect::<Vec<_>>()),
        });
        let failed: Vec<Option<Reply>> = failed.collect();
        self.session.received(Verdict::Delivered { id, failed: &failed });
    }

    /// Whether all recipients take the message: SMTP has one answer for them, and here nothing is stored yet.
    ///
    /// Who was removed, disabled or filled up since his RCPT is no reason to lose the message for him under a 250, as
    /// long as this server sends no bounces; nor to tell the sender that nobody has it when others do. So nobody gets
    /// it, and the sender is asked to come again: then RCPT refuses that one by himself, and the others get it, once.
    ///
    /// That has an end only if RCPT says so the next time. It does not for a full mailbox when the sender does not
    /// declare the size, or when an alias leads to several: then the others are delivered to, and the sender is told
    /// for good that the mailbox is full; asking him again would go on for days.
    async fn all_take_it(&self, reached: &[Vec<AccountId>], accounts: &[AccountId], size: u64) -> Result<(), Reply> {
        if reached.iter().any(Vec::is_empty) {
            return Err(Reply::RecipientsChanged);
        }
        if accounts.len() == 1 {
            return Ok(());
        }
        let declared = self.session.declared_size().unwrap_or(0);
        for account in accounts {
            match self.has_room(*account, size).await {
                Err(Reply::MailboxFull | Reply::MailboxFullForGood) if reached.len() > 1 => {
                    let alone = reached.iter().any(|accounts| accounts.as_slice() == [*account]);
                    if alone && self.has_room(*account, declared).await.is_err() {
                        return Err(Reply::RecipientsChanged);
                    }
                }
                room => room?,
            }
        }
        Ok(())
    }

    /// Of each recipient's accounts those that receive for it even now, after the time the text took: an account that
    /// was removed or disabled takes no more mail. A look-up that fails changes nothing. One that goes between this and
    /// the commit keeps the message with the rest of its data: it counts as delivered before.
    async fn still_reached(&self, recipients: &[Recipient]) -> Vec<Vec<AccountId>> {
        let mut reached = Vec::with_capacity(recipients.len());
        for Recipient { address, accounts } in recipients {
            reached.push(match self.look_up(address).await {
                Ok(Resolved::Accounts(now)) if now == *accounts => now,
                Ok(Resolved::Accounts(now)) => {
                    accounts.iter().copied().filter(|account| now.contains(account)).collect()
                }
                Ok(Resolved::UnknownUser | Resolved::ForeignDomain) => Vec::new(),
                Err(error) => {
                    events::lookup_failed(self.role, &error);
                    accounts.clone()
                }
            });
        }
        reached
    }
}

/// Every account once, in order.
fn each_once(reached: &[Vec<AccountId>]) -> Vec<AccountId> {
    match reached {
        [one] => one.clone(),
        many => {
            let mut seen = HashSet::new();
            many.iter().flatten().copied().filter(|account| seen.insert(*account)).collect()
        }
    }
}

/// A message on its way into storage; once it is refused, what was kept is given back, and what follows is only
/// counted off.
struct Incoming {
    writer: Result<MessageWriter, Reply>,
    top: TopFields,
    header: HeaderPass,
    left: u64,
}

impl Incoming {
    fn new(writer: MessageWriter, bytes_max: u64) -> Self {
        Self { writer: Ok(writer), top: TopFields::default(), header: HeaderPass::default(), left: bytes_max }
    }

    /// Gives up what was written. The first reason stays.
    fn refuse(&mut self, reply: Reply) {
        if self.writer.is_ok() {
            self.writer = Err(reply);
        }
    }

    /// The next octets of the message as it was sent.
    async fn text(&mut self, octets: &[u8], session: &Session) {
        if self.writer.is_err() {
            return;
        }
        let Some(left) = self.left.checked_sub(octets.len() as u64) else {
            return self.refuse(Reply::MessageTooLarge);
        };
        self.left = left;
        self.header.feed(octets);
        if let Some(reply) = session.refuses(&self.header) {
            return self.refuse(reply);
        }
        let mut top = std::mem::take(&mut self.top);
        let (earlier, octets) = top.pass(octets);
        for octets in [earlier, octets] {
            self.write(octets).await;
        }
        self.top = top;
    }

    async fn write(&mut self, octets: &[u8]) {
        if !octets.is_empty()
            && let Ok(writer) = &mut self.writer
            && let Err(error) = writer.write(octets).await
        {
            self.refuse(spool_reply(&error));
        }
    }

    async fn finish(mut self) -> Result<NewMessage, Reply> {
        let mut top = std::mem::take(&mut self.top);
        self.write(top.finish()).await;
        self.writer?.finish().await.map_err(|error| spool_reply(&error))
    }
}
