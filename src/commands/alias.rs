//! `posthouse alias`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use super::{administer, noted, say, table};
use crate::admin::protocol::{Answer, Call};
use crate::cli::AliasAction;
use crate::failure::Result;

/// Carries it out.
pub async fn run(action: AliasAction) -> Result<ExitCode> {
    match action {
        AliasAction::Add { alias, targets, at } => {
            let call = Call::AliasAdd { alias: alias.clone(), targets: targets.clone() };
            administer(&at, async |admin| admin.call(call).await).await?;
            say(at.json, &json!({ "alias": alias, "targets": targets }), || {
                format!("{alias} leads to {}", targets.join(", "))
            })
        }
        AliasAction::Remove { alias, at } => {
            let call = Call::AliasRemove { alias: alias.clone() };
            let notes = noted(administer(&at, async |admin| admin.call(call).await).await?, at.json);
            say(at.json, &json!({ "alias": alias, "notes": notes }), || format!("{alias} removed"))
        }
        AliasAction::List { at } => {
            let aliases = administer(&at, async |admin| match admin.call(Call::AliasList).await? {
                Answer::Aliases(aliases) => Ok(aliases),
                _ => bail!("the server answers in another version's way; use the posthouse that it was started from"),
            })
            .await?;
            let rows: Vec<_> = aliases
                .iter()
                .map(|line| [line.alias.clone(), line.targets.join(", "), line.dangling.join(", ")])
                .collect();
            say(at.json, &aliases, || table(["ALIAS", "LEADS TO", "OF THESE RECEIVE NOTHING"], &rows))
        }
    }
}
