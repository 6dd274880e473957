//! `posthouse check-config`: everything that can be known without starting.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::CheckConfig;
use crate::config;
use crate::failure::{Failure, Result};
use crate::tls::Tls;

/// Carries it out.
pub fn run(arguments: &CheckConfig) -> Result<ExitCode> {
    let file = arguments.config.as_deref().or(arguments.file.as_deref()).unwrap_or_else(|| Path::new("posthouse.toml"));
    let (config, _) = config::load::from_file(file, std::env::vars())?;
    if let (Some(certificate), Some(key)) = (&config.tls.certificate, &config.tls.key) {
        Tls::from_files(certificate, key).map_err(|error| Failure::usage(format!("{error:#}")))?;
    } else {
        println!(
            "note: no certificate in [tls]: no STARTTLS, no logins, and the roles with TLS from the first byte stay off"
        );
    }
    println!("{}: no mistakes", file.display());
    Ok(ExitCode::SUCCESS)
}
