//! `posthouse export`: an account's mail as files.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use serde_json::json;

use super::import::bar;
use super::{say, with_admin};
use crate::admin::Admin;
use crate::admin::frames::Frame;
use crate::admin::protocol::{Answer, Call, ImportInto};
use crate::cli::{Export, Format};
use crate::failure::{Failure, Result};
use crate::files::{maildir, mbox};

/// Carries it out.
pub async fn run(arguments: Export) -> Result<ExitCode> {
    let occupied = std::fs::read_dir(&arguments.target).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(Failure::usage(format!("{} is not empty; name a new directory", arguments.target.display())));
    }
    let (messages, mailboxes) = with_admin(&arguments.at, async |admin| export(&admin, &arguments).await).await?;
    say(arguments.at.json, &json!({ "exported": messages, "mailboxes": mailboxes }), || {
        format!("{messages} messages of {mailboxes} mailboxes written to {}", arguments.target.display())
    })
}

async fn export(admin: &Arc<Admin>, arguments: &Export) -> anyhow::Result<(u64, u64)> {
    let call = Call::Mailboxes { account: arguments.account.clone() };
    let mut mailboxes = match admin.call(call).await? {
        Answer::Mailboxes(mailboxes) => mailboxes,
        _ => bail!("the server answers in another version's way; use the posthouse that it was started from"),
    };
    if let Some(only) = &arguments.mailbox {
        mailboxes.retain(|mailbox| mailbox.name == *only);
        if mailboxes.is_empty() {
            bail!("{} has no mailbox {only:?}", arguments.account);
        }
    }
    std::fs::create_dir_all(&arguments.target)
        .with_context(|| format!("cannot make {}", arguments.target.display()))?;
    let bar = bar(mailboxes.iter().map(|mailbox| mailbox.messages).sum(), false);
    let mut messages = 0;
    for mailbox in &mailboxes {
        let from = ImportInto { account: arguments.account.clone(), mailbox: mailbox.name.clone(), duplicates: false };
        let exported = one(admin, &from, &arguments.target, arguments.format, &bar).await;
        messages += exported.with_context(|| format!("mailbox {:?}, after {messages} messages", mailbox.name))?;
    }
    bar.finish_and_clear();
    Ok((messages, mailboxes.len() as u64))
}

enum Writer {
    Maildir(maildir::Writer),
    Mbox(mbox::Writer),
}

/// Writes one mailbox; how many messages.
async fn one(
    admin: &Admin,
    from: &ImportInto,
    target: &Path,
    format: Format,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let mut frames = admin.export(from).await?;
    let mut writer = match format {
        Format::Maildir => Writer::Maildir(maildir::Writer::new(target, &from.mailbox)?),
        Format::Mbox => Writer::Mbox(mbox::Writer::new(target, &from.mailbox)?),
    };
    let mut messages = 0;
    loop {
        match frames.recv().await.context("the messages end early")? {
            Frame::Message(meta) => {
                messages += 1;
                bar.inc(1);
                match &mut writer {
                    Writer::Maildir(writer) => writer.begin(meta)?,
                    Writer::Mbox(writer) => writer.begin(meta)?,
                }
            }
            Frame::Octets(octets) => match &mut writer {
                Writer::Maildir(writer) => writer.octets(&octets)?,
                Writer::Mbox(writer) => writer.octets(&octets),
            },
            Frame::Failed(error) => bail!(error),
            Frame::End => break,
        }
    }
    match writer {
        Writer::Mbox(writer) => writer.finish()?,
        Writer::Maildir(writer) => {
            let left_out = writer.finish()?;
            if !left_out.is_empty() {
                bar.suspend(|| {
                    eprintln!("{}: a Maildir has no room for the keywords {}", from.mailbox, left_out.join(", "))
                });
            }
        }
    }
    Ok(messages)
}
