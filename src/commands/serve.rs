//! `posthouse serve`.

use std::process::ExitCode;

use super::runtime;
use crate::cli::Serve;
use crate::config;
use crate::data;
use crate::failure::{Failure, Result};
use crate::observe;
use crate::run::{Server, Signals};
use crate::tls::Tls;

/// Carries it out.
pub fn run(arguments: &Serve) -> Result<ExitCode> {
    let (config, _) = config::load::from_file(&arguments.config, std::env::vars())?;
    let tls = match (&config.tls.certificate, &config.tls.key) {
        (Some(certificate), Some(key)) => {
            Some(Tls::from_files(certificate, key).map_err(|error| Failure::usage(format!("{error:#}")))?)
        }
        _ => None,
    };
    observe::logs(&config.server)?;
    let metrics = observe::metrics()?;
    if tls.is_none() {
        tracing::warn!(
            "no certificate in [tls]: no STARTTLS, nobody can log in (passwords are never taken unencrypted), and the \
             roles with TLS from the first byte stay off"
        );
    }
    runtime()?.block_on(async {
        let signals = Signals::new()?;
        data::make_private(&config.server.data_dir)?;
        let storage = data::open(config.storage.with_data_dir(config.server.data_dir.clone())).await?;
        let server = Server { config, tls, plaintext_logins: false, storage, metrics };
        server.run(signals, || Ok(())).await
    })?;
    Ok(ExitCode::SUCCESS)
}
