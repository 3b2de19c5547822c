//! Why a command did not do its work.

use crate::config::ConfigError;
use std::io;

/// A command's failure; its message is the one line a user sees.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    /// The client could not do it.
    #[error(transparent)]
    Client(#[from] dhara_client::Error),
    /// A controller or segment store could not.
    #[error(transparent)]
    Request(#[from] dhara_client::RequestError),
    /// A line could not be written.
    #[error("writing to standard output")]
    Output(#[source] io::Error),
    /// A line could not be read.
    #[error("reading from standard input")]
    Input(#[source] io::Error),
    /// The configuration is unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server could not start or run.
    #[error("{0}")]
    Server(String),
    /// The thing to act on is not there.
    #[error("{what} does not exist")]
    Missing {
        /// What was looked for.
        what: String,
    },
}

impl CliError {
    /// Whether whoever read our output has stopped doing so.
    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
