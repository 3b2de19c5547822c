//! The command line: what a person or a script may ask of a server, and the server itself.
//!
//! Each command is a thin use of the client crate. Results go to standard output, as lines or with `--json` as one
//! JSON value a line; errors go to standard error as one line, with exit status 1.

mod error;
mod output;
mod read;
mod scope;
mod server;
mod store;
mod stream;
mod write;

pub(crate) use error::CliError;
pub(crate) use server::ServerFlags;

use clap::{Args, Parser, Subcommand};
use dhara_client::{Client, ClientConfig, StreamName};
use output::Output;

/// A Pravega-compatible segment stream store.
#[derive(Debug, Parser)]
#[command(name = "dhara", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs controller and segment store in this process.
    Standalone(ServerFlags),
    /// Creates, lists and deletes scopes.
    #[command(subcommand)]
    Scope(scope::ScopeCommand),
    /// Creates, changes, lists and deletes streams.
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Flushes, checks and repairs a segment store.
    #[command(subcommand)]
    Store(Box<store::StoreCommand>),
    /// Writes each line of standard input as an event.
    Write(write::WriteCommand),
    /// Prints a stream's events, one a line.
    Read(read::ReadCommand),
}

/// What every command that calls a server takes.
#[derive(Args, Clone, Debug)]
struct Target {
    /// Where the controller is.
    #[arg(long, value_name = "URI", env = "DHARA_CONTROLLER", default_value = "tcp://127.0.0.1:9090")]
    controller: String,
    /// Prints JSON, one value a line.
    #[arg(long)]
    json: bool,
}

impl Target {
    async fn client(&self) -> Result<Client, CliError> {
        Ok(Client::connect(&self.controller, ClientConfig::default()).await?)
    }

    fn output(&self) -> Output {
        Output::stdout(self.json)
    }
}

impl Cli {
    /// Runs the command. A reader of standard output that went away is no error.
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let done = match self.command {
            Command::Standalone(flags) => flags.run().await,
            Command::Scope(command) => command.run().await,
            Command::Stream(command) => command.run().await,
            Command::Store(command) => command.run().await,
            Command::Write(command) => command.run().await,
            Command::Read(command) => command.run().await,
        };
        match done {
            Err(error) if error.is_broken_pipe() => Ok(()),
            other => other,
        }
    }
}

fn scoped_stream(text: &str) -> Result<StreamName, String> {
    match text.parse::<StreamName>() {
        Ok(name) if !name.scope.is_empty() => Ok(name),
        _ => Err("expected scope/stream".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn scale_takes_segments_or_ranges() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("dhara stream scale a/b --segments 4").is_ok());
        assert!(parse("dhara stream scale a/b --seal 0,1 --ranges 0.0-0.5,0.5-1.0").is_ok());
        assert!(parse("dhara stream scale a/b --seal 0").is_err());
        assert!(parse("dhara stream scale a/b").is_err());
        assert!(parse("dhara stream scale ab --segments 4").is_err());
    }
}
