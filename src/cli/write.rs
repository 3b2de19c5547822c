//! `dhara write`: lines in, events out.

use super::{CliError, Target, scoped_stream};
use clap::Args;
use dhara_client::StreamName;
use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader, stdin};

#[derive(Args, Debug)]
pub(super) struct WriteCommand {
    /// The stream to write to.
    #[arg(value_name = "SCOPE/STREAM", value_parser = scoped_stream)]
    stream: StreamName,
    /// Key of all events; without it each goes anywhere, in no order.
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl WriteCommand {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let client = self.target.client().await?;
        let writer = client.event_writer(&self.stream).await?;
        let mut input = BufReader::with_capacity(256 * 1024, stdin());
        let mut line = Vec::new();
        let mut events = 0_u64;
        while next_line(&mut input, &mut line).await? {
            let written = writer.write(&line, self.key.as_deref()).await;
            written.map_err(dhara_client::Error::from)?;
            events += 1;
        }
        writer.close().await.map_err(dhara_client::Error::from)?;
        if self.target.json {
            let mut output = self.target.output();
            output.put("", &json!({ "stream": self.stream.to_string(), "events": events }))?;
            output.flush()?;
        }
        Ok(())
    }
}

/// Reads the next line into `line`, without its end; false when there is none.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Result<bool, CliError> {
    line.clear();
    let read = input.read_until(b'\n', line).await.map_err(CliError::Input)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_without_their_ends() {
        let mut input = BufReader::new(&b"one\n\nthree"[..]);
        let mut line = Vec::new();
        let mut lines = Vec::new();
        while next_line(&mut input, &mut line).await.unwrap() {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["one", "", "three"]);
    }
}
