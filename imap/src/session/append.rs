//! APPEND's message as it streams in (RFC 3501 §6.3.11): accepted or refused before it is sent, never whole in memory.

use std::time::Instant;

use super::{Flow, Session, State, Waiting};
use crate::command::append::Appending;
use crate::error::{CommandError, Result};
use crate::events;
use crate::tell::Manner;
use crate::wire::command::{Command, CommandBody, Literal};
use crate::wire::parse::{ParseOptions, parse_command};
use crate::wire::write::{self, Status};

impl Session {
    pub(super) async fn append_begins(&mut self, line: &[u8], literal: Literal) -> Result<Flow> {
        let (tag, append) = match parse_command(line, ParseOptions::default()) {
            Ok(Command { tag, body: CommandBody::Append(append) }) => (tag, append),
            Ok(Command { tag, .. }) => {
                self.framer.refuse_literal();
                write::tagged(&mut self.out, &tag, Status::Bad, None, "Unexpected literal");
                return Ok(self.mistake());
            }
            Err(error) => {
                self.framer.refuse_literal();
                return Ok(self.not_understood(&error));
            }
        };
        let begun = match &self.state {
            State::Authenticated(login) | State::Selected(login, _) => {
                Appending::begin(tag.clone(), append, &login.account, &self.server.storage.spool)
            }
            State::NotAuthenticated => Err(CommandError::Bad("Log in first".to_owned())),
        };
        match begun {
            Ok(appending) => {
                self.waiting = Waiting::Append(Box::new(appending));
                self.framer.accept_literal();
                if literal.synchronizing {
                    write::continuation(&mut self.out, "Go on");
                    self.flush().await?;
                }
                Ok(Flow::Continue)
            }
            Err(error) => {
                self.framer.refuse_literal();
                self.finish(&tag, "APPEND", Manner::FREE, Err(error)).await
            }
        }
    }

    pub(super) async fn append_goes_on(&mut self, octets: &[u8]) -> Result<Flow> {
        let Waiting::Append(appending) = &mut self.waiting else { return Ok(Flow::Continue) };
        if let Err(error) = appending.writer.write(octets).await {
            tracing::error!(%error, "a message could not be taken to disk");
            let tag = appending.tag.clone();
            self.waiting = Waiting::Commands;
            self.framer.refuse_literal();
            let refused = CommandError::no("UNAVAILABLE", "The message cannot be stored now; try again later");
            return self.finish(&tag, "APPEND", Manner::FREE, Err(refused)).await;
        }
        Ok(Flow::Continue)
    }

    pub(super) async fn append_ends(&mut self, well_formed: bool) -> Result<Flow> {
        let Waiting::Append(appending) = std::mem::replace(&mut self.waiting, Waiting::Commands) else {
            return Ok(Flow::Continue);
        };
        let started = Instant::now();
        let tag = appending.tag.clone();
        let done = match &self.state {
            _ if !well_formed => Err(CommandError::Bad("Something follows the message".to_owned())),
            State::Authenticated(login) | State::Selected(login, _) => appending.finish(&login.account).await,
            State::NotAuthenticated => Err(CommandError::Bad("Log in first".to_owned())),
        };
        let outcome = if done.is_ok() { "ok" } else { "no" };
        let flow = self.finish(&tag, "APPEND", Manner::FREE, done).await;
        events::command("APPEND", outcome, started.elapsed());
        flow
    }
}
