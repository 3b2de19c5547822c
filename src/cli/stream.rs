//! `dhara stream`: streams and their segments.

use super::{CliError, Target, scoped_stream};
use clap::{ArgGroup, Args, Subcommand};
use dhara_client::{KeyRange, Scaling, SegmentId, SegmentInfo, StreamInfo, StreamName, StreamSettings};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Subcommand)]
pub(super) enum StreamCommand {
    /// Creates a stream; one that exists is no error.
    Create(Create),
    /// Lists a scope's streams.
    List(List),
    /// Shows a stream's settings, segments and head.
    Info(Named),
    /// Replaces segments by others, and waits until that is done.
    Scale(Scale),
    /// Ends a stream for writers.
    Seal(Named),
    /// Gives up events at the head.
    Truncate(Truncate),
    /// Deletes a sealed stream.
    Delete(Named),
}

#[derive(Args, Debug)]
pub(super) struct Named {
    /// The stream's name.
    #[arg(value_name = "SCOPE/STREAM", value_parser = scoped_stream)]
    stream: StreamName,
    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
pub(super) struct Create {
    #[command(flatten)]
    named: Named,
    /// Number of segments.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    segments: i32,
    /// Words to find the stream by.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

#[derive(Args, Debug)]
pub(super) struct List {
    /// The scope's name.
    scope: String,
    /// Lists only streams that carry this tag.
    #[arg(long)]
    tag: Option<String>,
    /// Lists the server's own streams too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("new").required(true).args(["segments", "ranges"]))]
pub(super) struct Scale {
    #[command(flatten)]
    named: Named,
    /// Replaces all segments by this many of the same width.
    #[arg(long, value_name = "COUNT", conflicts_with = "seal", value_parser = clap::value_parser!(u32).range(1..))]
    segments: Option<u32>,
    /// Segments to replace, by number, or by id as `stream info --json` shows it.
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "ranges")]
    seal: Vec<i64>,
    /// Key ranges of the new segments, which cover the same keys as the old ones.
    #[arg(long, value_name = "LOW-HIGH,…", value_delimiter = ',', value_parser = key_range, requires = "seal")]
    ranges: Vec<KeyRange>,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("where").required(true).args(["tail", "cut"]))]
pub(super) struct Truncate {
    #[command(flatten)]
    named: Named,
    /// Gives up everything that is there now.
    #[arg(long)]
    tail: bool,
    /// Gives up everything before these offsets, one for each segment of a whole cover of the keys.
    #[arg(long, value_name = "ID=OFFSET,…", value_delimiter = ',', value_parser = cut_entry)]
    cut: Vec<(SegmentId, i64)>,
}

impl StreamCommand {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Create(command) => command.run().await,
            Self::List(command) => command.run().await,
            Self::Info(named) => named.info().await,
            Self::Scale(command) => command.run().await,
            Self::Seal(named) => named.seal().await,
            Self::Truncate(command) => command.run().await,
            Self::Delete(named) => named.delete().await,
        }
    }
}

impl Create {
    async fn run(self) -> Result<(), CliError> {
        let stream = &self.named.stream;
        let scaling = Scaling::Fixed { segments: self.segments };
        let settings = StreamSettings { scaling, retention: None, tags: self.tags };
        let admin = self.named.target.client().await?.admin();
        let created = admin.create_stream(stream, &settings).await?;
        let line = if created { format!("created {stream}") } else { format!("{stream} exists") };
        self.named.report(&line, json!({ "created": created }))
    }
}

impl List {
    async fn run(self) -> Result<(), CliError> {
        let mut output = self.target.output();
        let admin = self.target.client().await?.admin();
        for stream in admin.streams(&self.scope, self.tag.as_deref()).await? {
            if self.all || !stream.stream.starts_with('_') {
                output.put(&stream.to_string(), &json!({ "stream": stream.to_string() }))?;
            }
        }
        output.flush()
    }
}

impl Scale {
    async fn run(self) -> Result<(), CliError> {
        let stream = &self.named.stream;
        let client = self.named.target.client().await?;
        let admin = client.admin();
        if let Some(count) = self.segments {
            admin.scale_stream_to(stream, count).await?;
        } else {
            let current = client.controller().current_segments(stream).await;
            let current = current.map_err(dhara_client::Error::from)?;
            // A number is enough, since numbers are unique among the segments that take events.
            let id = |given: &i64| {
                let known = current.iter().find(|segment| i64::from(segment.id.number()) == *given);
                known.map_or(SegmentId::from_raw(*given), |segment| segment.id)
            };
            let sealed: Vec<_> = self.seal.iter().map(id).collect();
            admin.scale_stream(stream, &sealed, &self.ranges).await?;
        }
        let info = admin.stream_info(stream).await?;
        let line = format!("scaled {stream} to {} segments", info.segments.len());
        self.named.report(&line, json!({ "segments": segments_json(&info) }))
    }
}

impl Truncate {
    async fn run(self) -> Result<(), CliError> {
        let stream = &self.named.stream;
        let admin = self.named.target.client().await?.admin();
        let cut: BTreeMap<_, _> =
            if self.tail { admin.tail_cut(stream).await? } else { self.cut.into_iter().collect() };
        admin.truncate_stream(stream, &cut).await?;
        let cut: BTreeMap<_, _> = cut.iter().map(|(id, offset)| (id.to_string(), offset)).collect();
        self.named.report(&format!("truncated {stream}"), json!({ "cut": cut }))
    }
}

impl Named {
    async fn info(self) -> Result<(), CliError> {
        let info = self.target.client().await?.admin().stream_info(&self.stream).await?;
        let mut output = self.target.output();
        if output.is_json() {
            output.put("", &info_json(&self.stream, &info))?;
            return output.flush();
        }
        let state = if info.sealed { "sealed" } else { "open" };
        output.put(&format!("{} {state}, {}", self.stream, settings_line(&info.settings)), &Value::Null)?;
        for segment in &info.segments {
            output.put(&segment_line(segment), &Value::Null)?;
        }
        for (id, offset) in &info.head {
            output.put(&format!("head {id} at {offset}"), &Value::Null)?;
        }
        output.flush()
    }

    async fn seal(self) -> Result<(), CliError> {
        self.target.client().await?.admin().seal_stream(&self.stream).await?;
        self.report(&format!("sealed {}", self.stream), json!({ "sealed": true }))
    }

    async fn delete(self) -> Result<(), CliError> {
        if !self.target.client().await?.admin().delete_stream(&self.stream).await? {
            return Err(CliError::Missing { what: format!("stream {}", self.stream) });
        }
        self.report(&format!("deleted {}", self.stream), json!({ "deleted": true }))
    }

    /// Writes what came of a command; `value` is an object, to which the stream's name is added.
    fn report(&self, line: &str, mut value: Value) -> Result<(), CliError> {
        value["stream"] = self.stream.to_string().into();
        let mut output = self.target.output();
        output.put(line, &value)?;
        output.flush()
    }
}

fn segment_line(info: &SegmentInfo) -> String {
    let range = info.segment.range;
    let keys = format!("{} keys {}-{}", info.segment.id, range.min, range.max);
    match info.state {
        Some(state) => format!("segment {keys} bytes {}-{}", state.start, state.length),
        None => format!("segment {keys} missing"),
    }
}

fn settings_line(settings: &StreamSettings) -> String {
    let scaling = match settings.scaling {
        Scaling::Fixed { segments } => format!("fixed({segments})"),
        Scaling::ByKilobytes { target_rate, factor, segments_min } => {
            format!("by-kilobytes({target_rate}/s, factor {factor}, at least {segments_min})")
        }
        Scaling::ByEvents { target_rate, factor, segments_min } => {
            format!("by-events({target_rate}/s, factor {factor}, at least {segments_min})")
        }
        _ => "other".to_owned(),
    };
    if settings.tags.is_empty() { scaling } else { format!("{scaling}, tags {}", settings.tags.join(" ")) }
}

fn info_json(stream: &StreamName, info: &StreamInfo) -> Value {
    let head: BTreeMap<_, _> = info.head.iter().map(|(id, offset)| (id.to_string(), offset)).collect();
    json!({
        "stream": stream.to_string(),
        "sealed": info.sealed,
        "scaling": settings_line(&StreamSettings { tags: Vec::new(), ..info.settings.clone() }),
        "tags": info.settings.tags,
        "segments": segments_json(info),
        "head": head,
    })
}

fn segments_json(info: &StreamInfo) -> Value {
    let segment = |segment: &SegmentInfo| {
        json!({
            "segment": segment.segment.id.to_string(),
            "id": segment.segment.id.raw(),
            "low": segment.segment.range.min,
            "high": segment.segment.range.max,
            "start": segment.state.map(|state| state.start),
            "length": segment.state.map(|state| state.length),
        })
    };
    info.segments.iter().map(segment).collect()
}

fn key_range(text: &str) -> Result<KeyRange, String> {
    let bounds = text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let range = bounds.and_then(|(low, high)| KeyRange::new(low, high));
    range.ok_or_else(|| "expected LOW-HIGH within 0.0-1.0".to_owned())
}

/// Reads `number.#epoch.epoch=offset`, or the same with a segment's id.
fn cut_entry(text: &str) -> Result<(SegmentId, i64), String> {
    let entry = text.split_once('=').and_then(|(id, offset)| Some((segment_id(id)?, offset.parse().ok()?)));
    entry.ok_or_else(|| "expected ID=OFFSET".to_owned())
}

fn segment_id(text: &str) -> Option<SegmentId> {
    match text.split_once(".#epoch.") {
        Some((number, epoch)) => {
            let (number, epoch): (i32, i32) = (number.parse().ok()?, epoch.parse().ok()?);
            (number >= 0 && epoch >= 0).then(|| SegmentId::new(number, epoch))
        }
        None => text.parse().ok().map(SegmentId::from_raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_names_segments_either_way() {
        let id = SegmentId::new(2, 1);
        assert_eq!(cut_entry("2.#epoch.1=10"), Ok((id, 10)));
        assert_eq!(cut_entry(&format!("{}=-1", id.raw())), Ok((id, -1)));
        for text in ["", "=", "1", "1=x", "-1.#epoch.0=1"] {
            assert!(cut_entry(text).is_err(), "{text}");
        }
    }

    #[test]
    fn key_range_lies_within_the_key_space() {
        assert_eq!(key_range("0.0-0.5"), Ok(KeyRange { min: 0.0, max: 0.5 }));
        for text in ["", "0.5", "0.5-0.5", "0.5-1.5", "a-b"] {
            assert!(key_range(text).is_err(), "{text}");
        }
    }
}
