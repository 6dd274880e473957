//! `posthouse import`: from files into an account, in batches, in the order of the source.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{say, with_admin};
use crate::admin::Admin;
use crate::admin::client::Outgoing;
use crate::admin::protocol::{ImportInto, Outcome};
use crate::cli::{Format, Import};
use crate::failure::{Failure, Result};
use crate::files::{self, Found};

/// A batch is added in one step: this many messages or bytes at most (or one larger message).
const BATCH_MESSAGES: usize = 64;
const BATCH_BYTES: usize = 4 << 20;

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    imported: u64,
    /// Messages that the mailbox had already.
    known: u64,
    failed: u64,
    /// Messages of the source that were dealt with, either way.
    seen: u64,
    interrupted: bool,
}

/// Carries it out.
pub async fn run(arguments: Import) -> Result<ExitCode> {
    let mbox = match arguments.format {
        Some(format) => format == Format::Mbox,
        None => !arguments.source.is_dir(),
    };
    if !arguments.source.exists() {
        return Err(Failure::usage(format!("there is no {}", arguments.source.display())));
    }
    let source = files::open(arguments.source.clone(), mbox)?;
    let bar = bar(source.total, source.in_bytes);
    let tally = with_admin(&arguments.at, async |admin| import(&admin, &arguments, source, &bar).await).await?;
    bar.finish_and_clear();
    let Tally { imported, known, failed, seen, interrupted } = tally;
    let answer = json!({ "imported": imported, "known": known, "failed": failed, "interrupted": interrupted });
    say(arguments.at.json, &answer, || {
        let mut text = format!("{imported} messages imported");
        if known > 0 {
            text.push_str(&format!(", {known} passed over (there already)"));
        }
        if failed > 0 {
            text.push_str(&format!(", {failed} skipped (reasons above)"));
        }
        if interrupted {
            text.push_str(&format!("; interrupted: run it again to continue (--skip {seen} saves time)"));
        }
        text
    })?;
    Ok(ExitCode::from(u8::from(failed > 0 || interrupted)))
}

async fn import(
    admin: &Arc<Admin>,
    arguments: &Import,
    source: files::Source,
    bar: &ProgressBar,
) -> anyhow::Result<Tally> {
    let mut tally = Tally { seen: arguments.skip, ..Tally::default() };
    // Told once even if it comes while a batch is under way; the batch is finished first.
    let interrupt = tokio::spawn(tokio::signal::ctrl_c());
    let skip = usize::try_from(arguments.skip).context("--skip")?;
    let mut messages = source.messages.skip(skip);
    let mut batch = Batch::default();
    loop {
        // Reading files blocks for a moment; nothing else runs in this process that would mind.
        let next = messages.next();
        let full = match &next {
            Some(found) => batch.would_overflow(found, &arguments.mailbox),
            None => true,
        };
        if full && !batch.messages.is_empty() {
            let progress = batch.progress;
            send(admin, arguments, std::mem::take(&mut batch), &mut tally, bar).await?;
            bar.set_position(progress);
            if interrupt.is_finished() {
                tally.interrupted = next.is_some();
                return Ok(tally);
            }
        }
        match next {
            Some(found) => batch.add(found, &arguments.mailbox, &mut tally, bar),
            None => return Ok(tally),
        }
    }
}

/// Messages for one mailbox.
#[derive(Debug, Default)]
struct Batch {
    mailbox: String,
    places: Vec<String>,
    messages: Vec<Outgoing>,
    bytes: usize,
    progress: u64,
}

impl Batch {
    fn would_overflow(&self, found: &Found, mailbox: &str) -> bool {
        let size = found.message.as_ref().map_or(0, |message| message.octets.len());
        self.messages.len() >= BATCH_MESSAGES
            || self.bytes + size > BATCH_BYTES
            || self.mailbox != found.mailbox.as_deref().unwrap_or(mailbox)
    }

    fn add(&mut self, found: Found, mailbox: &str, tally: &mut Tally, bar: &ProgressBar) {
        self.progress = found.progress;
        match found.message {
            Ok(message) => {
                found.mailbox.as_deref().unwrap_or(mailbox).clone_into(&mut self.mailbox);
                self.bytes += message.octets.len();
                self.messages.push(message);
                self.places.push(found.place);
            }
            Err(reason) => skipped(&found.place, &reason, tally, bar),
        }
    }
}

fn skipped(place: &str, reason: &str, tally: &mut Tally, bar: &ProgressBar) {
    tally.failed += 1;
    tally.seen += 1;
    bar.suspend(|| eprintln!("{place}: skipped: {reason}"));
}

async fn send(
    admin: &Admin,
    arguments: &Import,
    batch: Batch,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let into =
        ImportInto { account: arguments.account.clone(), mailbox: batch.mailbox, duplicates: arguments.duplicates };
    let outcomes = match admin.import(&into, batch.messages).await {
        Ok(outcomes) => outcomes,
        // There is nothing to continue.
        Err(error) if tally.imported == 0 => return Err(error),
        Err(error) => {
            let (imported, seen) = (tally.imported, tally.seen);
            let hint = format!(
                "{imported} messages were imported before this; run it again to continue (--skip {seen} saves time)"
            );
            return Err(error.context(hint));
        }
    };
    for (place, outcome) in batch.places.iter().zip(outcomes) {
        match outcome {
            Outcome::Added(_) => {
                tally.imported += 1;
                tally.seen += 1;
            }
            Outcome::Known => {
                tally.known += 1;
                tally.seen += 1;
            }
            Outcome::Refused(reason) => skipped(place, &reason, tally, bar),
        }
    }
    Ok(())
}

/// Progress, when a person watches.
pub fn bar(total: u64, in_bytes: bool) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = match in_bytes {
        true => "{bar:40} {bytes}/{total_bytes} {eta}",
        false => "{bar:40} {human_pos}/{human_len} messages {eta}",
    };
    let bar = ProgressBar::new(total);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
