//! The commands, one file each.

pub mod account;
pub mod alias;
pub mod check_config;
pub mod domain;
pub mod export;
pub mod import;
pub mod password;
pub mod serve;
pub mod try_it;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use posthouse_storage::StorageConfig;
use serde::Serialize;

use crate::admin::Admin;
use crate::admin::protocol::Answer;
use crate::cli::{Command, Whereabouts};
use crate::config;
use crate::data;
use crate::failure::{Failure, Result};

/// Carries out a command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Try(arguments) => try_it::run(arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Domain { action } => runtime()?.block_on(domain::run(action)),
        Command::Account { action } => runtime()?.block_on(account::run(action)),
        Command::Alias { action } => runtime()?.block_on(alias::run(action)),
        Command::Import(arguments) => runtime()?.block_on(import::run(arguments)),
        Command::Export(arguments) => runtime()?.block_on(export::run(arguments)),
        Command::ConfigReference => {
            print!("{}", config::reference::page());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The runtime of commands and servers alike.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the runtime").map_err(Failure::from)
}

/// What storage would be opened with at the place that the command line names.
fn storage_config(at: &Whereabouts) -> Result<StorageConfig> {
    if let Some(file) = &at.config {
        let (config, _) = config::load::from_file(file, std::env::vars())?;
        return Ok(config.storage.with_data_dir(config.server.data_dir));
    }
    // clap has seen to it that one of the two is there.
    let data = at.data.clone().unwrap_or_else(|| PathBuf::from("data"));
    Ok(config::StorageSection::default().with_data_dir(data))
}

/// Opens the way to the data directory, does `work`, and closes it.
async fn with_admin<T, F, Fut>(at: &Whereabouts, work: F) -> Result<T>
where
    F: FnOnce(std::sync::Arc<Admin>) -> Fut,
    Fut: Future<Output = anyhow::Result<T>>,
{
    let admin = std::sync::Arc::new(Admin::connect(storage_config(at)?).await?);
    let done = work(std::sync::Arc::clone(&admin)).await;
    let closed = admin.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

/// The same for what may come before the first `serve`: makes the data directory that a configuration names. One named
/// on the command line may be mistyped and must be there.
async fn administer<T, F, Fut>(at: &Whereabouts, work: F) -> Result<T>
where
    F: FnOnce(std::sync::Arc<Admin>) -> Fut,
    Fut: Future<Output = anyhow::Result<T>>,
{
    if at.config.is_some() {
        data::make_private(&storage_config(at)?.data_dir)?;
    }
    with_admin(at, work).await
}

/// Prints the answer as one line of JSON, or as the text given.
fn say(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string(value).context("the answer as JSON")?);
    } else {
        let text = text();
        if !text.is_empty() {
            println!("{text}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error what is to be known about a change that was made; the notes, for an answer in JSON.
fn noted(answer: Answer, json: bool) -> Vec<String> {
    let Answer::Noted(notes) = answer else { return Vec::new() };
    if !json {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
    notes
}

/// A table with aligned columns.
fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| -> String {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head)];
    lines.extend(rows.iter().map(|row| line(std::array::from_fn(|column| row[column].as_str()))));
    lines.join("\n")
}

/// Bytes for people.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_for_people() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")] {
            assert_eq!(super::human(bytes), text);
        }
    }
}
