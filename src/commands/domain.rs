//! `posthouse domain`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;

use super::{administer, say};
use crate::admin::protocol::{Answer, Call};
use crate::cli::DomainAction;
use crate::failure::Result;

/// Carries it out.
pub async fn run(action: DomainAction) -> Result<ExitCode> {
    match action {
        DomainAction::Add { domain, at } => {
            let call = Call::DomainAdd { domain: domain.clone() };
            administer(&at, async |admin| admin.call(call).await).await?;
            say(at.json, &json!({ "domain": domain }), || {
                format!("{domain} added; next: posthouse account add NAME@{domain}")
            })
        }
        DomainAction::Remove { domain, at } => {
            let call = Call::DomainRemove { domain: domain.clone() };
            administer(&at, async |admin| admin.call(call).await).await?;
            say(at.json, &json!({ "domain": domain }), || format!("{domain} removed"))
        }
        DomainAction::List { at } => {
            let domains = administer(&at, async |admin| match admin.call(Call::DomainList).await? {
                Answer::Domains(domains) => Ok(domains),
                _ => bail!("the server answers in another version's way; use the posthouse that it was started from"),
            })
            .await?;
            say(at.json, &domains, || domains.join("\n"))
        }
    }
}
