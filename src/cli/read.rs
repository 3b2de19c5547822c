//! `dhara read`: events in, lines out.

use super::output::Output;
use super::{CliError, Target, scoped_stream};
use clap::{Args, ValueEnum};
use dhara_client::{Event, ReadFrom, ReadUntil, StreamName};
use serde_json::json;

#[derive(Args, Debug)]
pub(super) struct ReadCommand {
    /// The stream to read.
    #[arg(value_name = "SCOPE/STREAM", value_parser = scoped_stream)]
    stream: StreamName,
    /// Where to begin.
    #[arg(long, value_enum, default_value = "head")]
    from: From,
    /// Goes on with events as they are written, until the stream is sealed.
    #[arg(long)]
    follow: bool,
    /// Ends after this many events.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// The oldest event that is still there.
    Head,
    /// After the newest event.
    Tail,
}

impl ReadCommand {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let client = self.target.client().await?;
        let from = match self.from {
            From::Head => ReadFrom::Head,
            From::Tail => ReadFrom::Tail,
        };
        let until = if self.follow { ReadUntil::Sealed } else { ReadUntil::Tail };
        let mut reader = client.stream_reader(&self.stream, from, until).await?;
        let mut output = self.target.output();
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 {
            let event = if let Some(event) = reader.next_ready() {
                event
            } else {
                // Whoever follows wants to see what is there before we wait for more.
                output.flush()?;
                let next = reader.next().await.map_err(dhara_client::Error::from)?;
                let Some(event) = next else { break };
                event
            };
            put(&mut output, &event)?;
            left -= 1;
        }
        output.flush()
    }
}

fn put(output: &mut Output, event: &Event) -> Result<(), CliError> {
    if !output.is_json() {
        return output.put_raw(&event.data);
    }
    let value = json!({
        "segment": event.segment.to_string(),
        "offset": event.offset,
        "event": String::from_utf8_lossy(&event.data),
    });
    output.put("", &value)
}
