//! How a command fails: exit code 1 when it could not be done, 2 when it was asked wrongly.

use std::fmt;
use std::process::ExitCode;

use crate::config::Mistakes;

/// Why a command ends early. The text says what to do about it.
#[derive(Debug)]
pub enum Failure {
    /// It could not be done.
    Failed(anyhow::Error),
    /// The command line or the configuration is wrong.
    Usage(String),
}

/// What commands return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Says it on standard error.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Failed(error) => {
                eprintln!("posthouse: {error:#}");
                ExitCode::from(1)
            }
            Self::Usage(text) => {
                eprintln!("posthouse: {text}");
                ExitCode::from(2)
            }
        }
    }

    /// A usage mistake.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self::Usage(text.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        Self::Usage(mistakes.to_string())
    }
}
