//! The command line: what can be asked, and nothing of how it is done.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A mail suite: SMTP in, IMAP and HTTP on one store.
#[derive(Debug, Parser)]
#[command(name = "posthouse", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a demo server on loopback with two accounts, and print what to type next.
    Try(Try),
    /// Run the server.
    Serve(Serve),
    /// Check a configuration file (and the environment); report every mistake at once.
    CheckConfig(CheckConfig),
    /// Domains that this server receives mail for.
    Domain {
        /// What to do.
        #[command(subcommand)]
        action: DomainAction,
    },
    /// Accounts: who can log in and receive mail.
    Account {
        /// What to do.
        #[command(subcommand)]
        action: AccountAction,
    },
    /// Aliases: addresses that lead to other addresses.
    Alias {
        /// What to do.
        #[command(subcommand)]
        action: AliasAction,
    },
    /// Bring mail from a Maildir or an mbox file into an account.
    Import(Import),
    /// Write an account's mail as a Maildir or as mbox files.
    Export(Export),
    /// Print the configuration reference (Markdown).
    #[command(hide = true)]
    ConfigReference,
}

/// `posthouse try`.
#[derive(Debug, Args)]
pub struct Try {
    /// Keep the data in this directory (else a temporary one, removed at the end).
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Password of both demo accounts (else one is made and printed).
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// Eight ports from this one on: SMTP, submission, submissions, LMTP, IMAP, IMAPS, HTTP, HTTPS.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65528))]
    pub ports_from: Option<u16>,
    /// Print one line of JSON when everything listens, instead of instructions.
    #[arg(long)]
    pub json: bool,
}

/// `posthouse serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// `posthouse check-config`.
#[derive(Debug, Args)]
pub struct CheckConfig {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present = "config")]
    pub file: Option<PathBuf>,
    /// The same, spelled as for `serve`.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub config: Option<PathBuf>,
}

/// Which server or data directory a command is about.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("place").required(true).args(["data", "config"])))]
pub struct Whereabouts {
    /// The data directory; a server that holds it is asked, else it is opened.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The configuration file that names the data directory.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// `posthouse domain`.
#[derive(Debug, Subcommand)]
pub enum DomainAction {
    /// Receive mail for a domain.
    Add {
        /// The domain.
        domain: String,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// List the domains.
    List {
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Stop receiving mail for a domain; it must have no accounts or aliases left.
    Remove {
        /// The domain.
        domain: String,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
}

/// `posthouse account`.
#[derive(Debug, Subcommand)]
pub enum AccountAction {
    /// Make an account. The password is read from standard input; when that is empty one is made and printed once.
    Add {
        /// Its address.
        address: String,
        /// Bytes it may hold, as 500M or 2G; 0 for no limit; else the configured default.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        quota: Option<u64>,
        /// Make a password without asking, and print it once.
        #[arg(long)]
        generate: bool,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// List the accounts.
    List {
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Remove an account: it can no longer log in or receive mail. Refused while aliases lead to it.
    Remove {
        /// Its address.
        address: String,
        /// Also when aliases lead to it.
        #[arg(long)]
        force: bool,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Set a new password, read from standard input; when that is empty one is made and printed once.
    SetPassword {
        /// The account's address.
        address: String,
        /// Make a password without asking, and print it once.
        #[arg(long)]
        generate: bool,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Refuse logins and mail for an account; its mail stays.
    Disable {
        /// Its address.
        address: String,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Undo `disable`.
    Enable {
        /// Its address.
        address: String,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Set how much an account may hold.
    Quota {
        /// Its address.
        address: String,
        /// Bytes, as 500M or 2G; 0 for no limit.
        #[arg(value_parser = bytes)]
        bytes: u64,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
}

/// `posthouse alias`.
#[derive(Debug, Subcommand)]
pub enum AliasAction {
    /// Let an address lead to others. `@example.org` catches all of a domain that nobody else has.
    Add {
        /// The alias, or `@domain`.
        alias: String,
        /// Where it leads.
        #[arg(required = true)]
        targets: Vec<String>,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// List the aliases, and those of their targets that receive nothing.
    List {
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
    /// Remove an alias.
    Remove {
        /// The alias.
        alias: String,
        /// Where.
        #[command(flatten)]
        at: Whereabouts,
    },
}

/// A format of stored mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A directory with one file per message; subfolders as `.Name.Child`.
    Maildir,
    /// One file with all messages.
    Mbox,
}

/// `posthouse import`.
#[derive(Debug, Args)]
pub struct Import {
    /// A Maildir, or an mbox file.
    pub source: PathBuf,
    /// The account that gets the mail.
    #[arg(long, value_name = "ADDRESS")]
    pub account: String,
    /// The mailbox that gets it; a Maildir's subfolders become mailboxes of their own names.
    #[arg(long, value_name = "NAME", default_value = "INBOX")]
    pub mailbox: String,
    /// The format (else told from the source: a directory is a Maildir, a file is an mbox).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Also import messages that the mailbox has already: the same octets, received in the same second.
    #[arg(long)]
    pub duplicates: bool,
    /// Pass over the first N messages of the source; its order is the same each time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: u64,
    /// Where.
    #[command(flatten)]
    pub at: Whereabouts,
}

/// `posthouse export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Where to write: a directory that does not exist yet or is empty.
    pub target: PathBuf,
    /// The account.
    #[arg(long, value_name = "ADDRESS")]
    pub account: String,
    /// Only this mailbox (else all).
    #[arg(long, value_name = "NAME")]
    pub mailbox: Option<String>,
    /// The format: a Maildir, or a directory with one mbox file per mailbox.
    #[arg(long, value_enum, default_value = "maildir")]
    pub format: Format,
    /// Where.
    #[command(flatten)]
    pub at: Whereabouts,
}

/// A number of bytes: digits, with K, M, G or T for powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a number of bytes, as 1048576, 500M or 2G".to_owned();
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let shift = match upper.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    let digits = if shift == 0 { upper } else { &upper[..upper.len() - 1] };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts() {
        for (text, number) in [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("500M", Some(500 << 20)),
            ("2g", Some(2 << 30)),
            ("1GiB", Some(1 << 30)),
            ("3 K", Some(3072)),
            ("", None),
            ("M", None),
            ("-1", None),
            ("1.5G", None),
            ("99999999999T", None),
        ] {
            assert_eq!(bytes(text).ok(), number, "{text:?}");
        }
    }
}
