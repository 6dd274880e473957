//! `posthouse account`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use super::{administer, human, noted, password, say, table};
use crate::admin::protocol::{Answer, Call};
use crate::cli::{AccountAction, Whereabouts};
use crate::failure::Result;

/// Carries it out.
pub async fn run(action: AccountAction) -> Result<ExitCode> {
    match action {
        AccountAction::Add { address, quota, generate, at } => {
            let chosen = password::choose(generate)?;
            let password = chosen.password.clone();
            let call = Call::AccountAdd { address: address.clone(), password, quota_bytes: quota };
            administer(&at, async |admin| admin.call(call).await).await?;
            with_password(&at, &address, "added", &chosen)
        }
        AccountAction::SetPassword { address, generate, at } => {
            let chosen = password::choose(generate)?;
            let call = Call::AccountSetPassword { address: address.clone(), password: chosen.password.clone() };
            administer(&at, async |admin| admin.call(call).await).await?;
            with_password(&at, &address, "has a new password", &chosen)
        }
        AccountAction::Remove { address, force, at } => {
            done(&at, &address, "removed", Call::AccountRemove { address: address.clone(), force }).await
        }
        AccountAction::Disable { address, at } => {
            done(&at, &address, "disabled", Call::AccountEnable { address: address.clone(), enabled: false }).await
        }
        AccountAction::Enable { address, at } => {
            done(&at, &address, "enabled", Call::AccountEnable { address: address.clone(), enabled: true }).await
        }
        AccountAction::Quota { address, bytes, at } => {
            let what = if bytes == 0 { "has no limit".to_owned() } else { format!("may hold {}", human(bytes)) };
            done(&at, &address, &what, Call::AccountQuota { address: address.clone(), bytes }).await
        }
        AccountAction::List { at } => {
            let accounts = administer(&at, async |admin| match admin.call(Call::AccountList).await? {
                Answer::Accounts(accounts) => Ok(accounts),
                _ => bail!("the server answers in another version's way; use the posthouse that it was started from"),
            })
            .await?;
            let rows: Vec<_> = accounts
                .iter()
                .map(|line| {
                    let quota = if line.quota_bytes == 0 { "none".to_owned() } else { human(line.quota_bytes) };
                    let state = if line.enabled { "enabled" } else { "disabled" };
                    [line.address.clone(), state.to_owned(), line.messages.to_string(), human(line.used_bytes), quota]
                })
                .collect();
            say(at.json, &accounts, || table(["ACCOUNT", "STATE", "MESSAGES", "USED", "QUOTA"], &rows))
        }
    }
}

async fn done(at: &Whereabouts, address: &str, what: &str, call: Call) -> Result<ExitCode> {
    let notes = noted(administer(at, async |admin| admin.call(call).await).await?, at.json);
    say(at.json, &json!({ "account": address, "notes": notes }), || format!("{address} {what}"))
}

/// A password made here is shown this once; one that was given is not repeated.
fn with_password(at: &Whereabouts, address: &str, what: &str, chosen: &password::Chosen) -> Result<ExitCode> {
    let shown = chosen.made.then_some(chosen.password.as_str());
    say(at.json, &json!({ "account": address, "password": shown }), || match shown {
        Some(password) => format!("{address} {what}; password: {password}"),
        None => format!("{address} {what}"),
    })
}
