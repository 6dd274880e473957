//! The Posthouse binary: command line, configuration, composition of roles, shutdown. No domain logic.

#![expect(unreachable_pub, reason = "in a binary nothing is reachable; `pub` says what a module offers the others")]

mod admin;
mod cli;
mod commands;
mod config;
mod data;
mod failure;
mod files;
mod listen;
mod observe;
mod run;
mod tls;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
