//! Standard output: lines for people, JSON for programs.

use super::CliError;
use serde_json::Value;
use std::io::{self, BufWriter, Stdout, Write};

/// Buffered standard output in the form the user asked for.
#[derive(Debug)]
pub(super) struct Output {
    to: BufWriter<Stdout>,
    json: bool,
}

impl Output {
    /// Writes to standard output; as JSON if `json`.
    pub(super) fn stdout(json: bool) -> Self {
        Self { to: BufWriter::with_capacity(64 * 1024, io::stdout()), json }
    }

    /// Whether the user asked for JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Writes one result: `line` for people, or `value` for programs.
    pub(super) fn put(&mut self, line: &str, value: &Value) -> Result<(), CliError> {
        let written = if self.json { writeln!(self.to, "{value}") } else { writeln!(self.to, "{line}") };
        written.map_err(CliError::Output)
    }

    /// Writes `bytes` and an end of line, whatever they hold.
    pub(super) fn put_raw(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        let written = self.to.write_all(bytes).and_then(|()| self.to.write_all(b"\n"));
        written.map_err(CliError::Output)
    }

    /// Hands everything to the system.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        self.to.flush().map_err(CliError::Output)
    }
}
