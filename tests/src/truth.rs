//! What a server holds as a stranger reads it, to be compared with what a later one holds.
//!
//! The segments differ in where their bytes lie: in objects, in the log, in both, behind a cut, before a seal.

use crate::crash::streams::{Range, Stream};
use crate::server::Server;
use crate::session::{Session, Shape, append};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use dhara_wire::command::{
    Command, CreateTableSegment, FlushToStorage, GetStreamSegmentInfo, ReadSegment, ReadTable, SealSegment,
    TableEntry, TableKey, TruncateSegment, UpdateTableEntries,
};
use dhara_wire::limits::{KEY_NO_VERSION, NULL_TABLE_SEGMENT_OFFSET};
use std::collections::BTreeMap;

/// Scope of everything here.
const SCOPE: &str = "truth";
/// The stream of the controller.
const STREAM: &str = "stream";
/// Keys of the table.
const KEYS: u32 = 20;
/// Bytes asked for at a time.
const READ_BYTES: i32 = 64 * 1024;

/// What one part of the data reads as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What it is.
    Equal,
    /// An error, or a connection that was closed instead of an answer.
    Error(String),
    /// Something else than was acknowledged, without a word.
    Wrong(String),
}

/// A segment as acknowledged.
#[derive(Clone, Debug, Default)]
struct Content {
    start: usize,
    sealed: bool,
    bytes: Vec<u8>,
    /// Number of the last append.
    last: i64,
}

/// Everything that was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    segments: BTreeMap<String, Content>,
    /// Value of each key.
    table: BTreeMap<u32, u32>,
    /// The segments of the stream, as the controller tells them.
    stream: Vec<Range>,
}

/// Full name of a segment here.
fn segment(name: &str) -> String {
    format!("{SCOPE}/{name}/0.#epoch.0")
}

fn writer(segment: &str) -> Uuid {
    Uuid(segment.bytes().fold(1, |sum, byte| sum * 31 + u128::from(byte)))
}

fn key(number: u32) -> TableKey {
    TableKey { key: format!("key {number}").into(), version: KEY_NO_VERSION }
}

/// The session, of which nobody expects that it ends.
async fn open(server: &Server) -> Result<Session> {
    Session::open(&server.store).await?.context("gone")
}

impl Truth {
    /// Fills an empty server: objects hold nearly everything, and only the log what came last.
    ///
    /// # Errors
    /// If the server refuses anything.
    pub async fn begin(server: &Server) -> Result<Self> {
        let mut truth = Self::default();
        truth.create_stream(server).await?;
        let mut session = open(server).await?;
        truth.create_table(&mut session).await?;
        for name in ["stored", "both", "cut", "sealed", "small"] {
            session.create(&segment(name)).await?;
            let bytes = if name == "small" { 100 } else { 100_000 };
            truth.append(&mut session, name, bytes).await?;
        }
        truth.update(&mut session, 1).await?;
        truth.seal(&mut session, "sealed").await?;
        let flush = FlushToStorage { container_id: 0, delegation_token: String::new(), request_id: 1 };
        let flushed = session.ask(flush).await?;
        ensure!(matches!(flushed, Some(Command::StorageFlushed(_))), "flushing: {flushed:?}");
        truth.truncate(&mut session, "cut", 70_000).await?;
        truth.extend(&mut session).await?;
        Ok(truth)
    }

    /// Goes on with what begun: all of this stands in the log only.
    ///
    /// # Errors
    /// If the server refuses anything.
    pub async fn go_on(&mut self, server: &Server) -> Result<()> {
        let mut session = open(server).await?;
        for (segment, content) in &self.segments {
            let last = session.setup(segment, writer(segment)).await?.context("gone")?;
            ensure!(last == content.last, "{segment} was written up to {last}");
        }
        self.extend(&mut session).await
    }

    async fn extend(&mut self, session: &mut Session) -> Result<()> {
        session.create(&segment("late")).await?;
        for name in ["both", "late", STREAM] {
            self.append(session, name, 5_000).await?;
        }
        let value = self.table.values().max().map_or(1, |value| value + 1);
        self.update(session, value).await
    }

    async fn create_stream(&mut self, server: &Server) -> Result<()> {
        let mut stream = Stream::at(&server.controller, SCOPE, STREAM)?;
        stream.create().await?;
        self.stream = stream.current().await?.context("gone")?;
        Ok(())
    }

    async fn create_table(&mut self, session: &mut Session) -> Result<()> {
        let create = CreateTableSegment {
            request_id: session.request_id(),
            segment: segment("table"),
            delegation_token: String::new(),
            sorted_deprecated: false,
            key_length: 0,
            rollover_size_bytes: 0,
        };
        match session.ask(create).await? {
            Some(Command::SegmentCreated(_)) => Ok(()),
            other => bail!("creating a table: {other:?}"),
        }
    }

    /// Appends bytes that follow from name and place, and waits for the ack.
    async fn append(&mut self, session: &mut Session, name: &str, bytes: usize) -> Result<()> {
        let segment = segment(name);
        let content = self.segments.entry(segment.clone()).or_default();
        if content.last == 0 {
            session.setup(&segment, writer(&segment)).await?.context("gone")?;
        }
        let salt = segment.len() * 7;
        let at = content.bytes.len();
        let fresh: Vec<u8> =
            (at..at + bytes).map(|at| u8::try_from((at * 31 + at / 251 + salt) % 256).unwrap_or(0)).collect();
        let number = content.last + 1;
        let request_id = session.request_id();
        let event = Bytes::copy_from_slice(&fresh);
        for frame in append(Shape::Exact, writer(&segment), &[event], number, request_id) {
            session.send(frame).await?;
        }
        match session.reply().await? {
            Some(Command::DataAppended(ack)) if ack.event_number == number => {}
            other => bail!("appending to {segment}: {other:?}"),
        }
        content.bytes.extend_from_slice(&fresh);
        content.last = number;
        Ok(())
    }

    async fn update(&mut self, session: &mut Session, value: u32) -> Result<()> {
        let keys: Vec<u32> = (0..KEYS).filter(|key| value == 1 || key % value == 0).collect();
        let entry = |number: &u32| TableEntry { key: key(*number), value: format!("value {value}").into() };
        let update = UpdateTableEntries {
            request_id: session.request_id(),
            segment: segment("table"),
            delegation_token: String::new(),
            entries: keys.iter().map(entry).collect(),
            table_segment_offset: NULL_TABLE_SEGMENT_OFFSET,
        };
        match session.ask(update).await? {
            Some(Command::TableEntriesUpdated(_)) => self.table.extend(keys.iter().map(|key| (*key, value))),
            other => bail!("updating the table: {other:?}"),
        }
        Ok(())
    }

    async fn seal(&mut self, session: &mut Session, name: &str) -> Result<()> {
        let (segment, request_id) = (segment(name), session.request_id());
        let seal = SealSegment { request_id, segment: segment.clone(), delegation_token: String::new() };
        match session.ask(seal).await? {
            Some(Command::SegmentSealed(_)) => self.segments.entry(segment).or_default().sealed = true,
            other => bail!("sealing {segment}: {other:?}"),
        }
        Ok(())
    }

    async fn truncate(&mut self, session: &mut Session, name: &str, start: usize) -> Result<()> {
        let segment = segment(name);
        let cut = TruncateSegment {
            request_id: session.request_id(),
            segment: segment.clone(),
            truncation_offset: i64::try_from(start)?,
            delegation_token: String::new(),
        };
        match session.ask(cut).await? {
            Some(Command::SegmentTruncated(_)) => self.segments.entry(segment).or_default().start = start,
            other => bail!("truncating {segment}: {other:?}"),
        }
        Ok(())
    }

    /// Compares all that `server` holds with the truth; the reading of each part by its name.
    ///
    /// # Errors
    /// If the server hangs or speaks nonsense.
    pub async fn compare(&self, server: &Server) -> Result<BTreeMap<String, Reading>> {
        let mut readings = BTreeMap::new();
        for (segment, content) in &self.segments {
            readings.insert(segment.clone(), content.compare(server, segment).await?);
        }
        if !self.table.is_empty() {
            readings.insert("table".to_owned(), self.compare_table(server).await?);
        }
        if !self.stream.is_empty() {
            let reading = match Stream::at(&server.controller, SCOPE, STREAM)?.current().await {
                Ok(Some(found)) if found == self.stream => Reading::Equal,
                Ok(Some(found)) => Reading::Wrong(format!("{found:?}")),
                Ok(None) => Reading::Error("not now".to_owned()),
                Err(error) => Reading::Wrong(format!("{error:#}")),
            };
            readings.insert("stream".to_owned(), reading);
        }
        Ok(readings)
    }

    async fn compare_table(&self, server: &Server) -> Result<Reading> {
        let mut session = open(server).await?;
        let read = ReadTable {
            request_id: session.request_id(),
            segment: segment("table"),
            delegation_token: String::new(),
            keys: (0..KEYS).map(key).collect(),
        };
        let read = match session.ask(read).await? {
            Some(Command::TableRead(read)) => read,
            None => return Ok(Reading::Error("closed".to_owned())),
            Some(other) => return Ok(Reading::Wrong(other.name().to_owned())),
        };
        if read.entries.len() != self.table.len() {
            return Ok(Reading::Wrong(format!("{} entries, due {}", read.entries.len(), self.table.len())));
        }
        for ((number, value), entry) in self.table.iter().zip(read.entries) {
            if entry.key.version < 0 || entry.value != format!("value {value}") {
                return Ok(Reading::Wrong(format!("key {number} is {entry:?}, due {value}")));
            }
        }
        Ok(Reading::Equal)
    }
}

impl Content {
    async fn compare(&self, server: &Server, segment: &str) -> Result<Reading> {
        let mut session = open(server).await?;
        let ask = GetStreamSegmentInfo {
            request_id: session.request_id(),
            segment: segment.to_owned(),
            delegation_token: String::new(),
        };
        let info = match session.ask(ask).await? {
            Some(Command::StreamSegmentInfo(info)) => info,
            other => return Ok(unread(other)),
        };
        let found =
            (usize::try_from(info.start_offset)?, usize::try_from(info.write_offset)?, info.is_sealed);
        if found != (self.start, self.bytes.len(), self.sealed) {
            let due = (self.start, self.bytes.len(), self.sealed);
            return Ok(Reading::Wrong(format!("from, to, sealed: {found:?}, due {due:?}")));
        }
        let mut at = self.start;
        while at < self.bytes.len() {
            let read = ReadSegment {
                segment: segment.to_owned(),
                offset: i64::try_from(at)?,
                suggested_length: READ_BYTES,
                delegation_token: String::new(),
                request_id: session.request_id(),
            };
            let data = match session.ask(read).await? {
                Some(Command::SegmentRead(read)) if !read.data.0.is_empty() => read.data.0,
                other => return Ok(unread(other)),
            };
            if self.bytes.get(at..at + data.len()) != Some(&data[..]) {
                return Ok(Reading::Wrong(format!("bytes from {at}")));
            }
            at += data.len();
        }
        match session.setup(segment, writer(segment)).await {
            Ok(Some(last)) if last == self.last => Ok(Reading::Equal),
            Ok(Some(last)) => Ok(Reading::Wrong(format!("last number {last}, due {}", self.last))),
            Ok(None) => Ok(Reading::Error("closed".to_owned())),
            Err(refused) => Ok(Reading::Wrong(format!("{refused:#}"))),
        }
    }
}

/// What it means that a segment was not read: only a closed connection and a plain error are no claim about its data.
fn unread(answer: Option<Command>) -> Reading {
    match answer {
        None => Reading::Error("closed".to_owned()),
        Some(Command::ErrorMessage(error)) => Reading::Error(error.message),
        Some(other) => Reading::Wrong(other.name().to_owned()),
    }
}
