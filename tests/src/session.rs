//! A connection to the store for workers that expect it to die: `None` is "gone", every other surprise an error.

use crate::replay::connection::{Connection, Event};
use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use dhara_wire::codec::Uuid;
use dhara_wire::codec::{Blob, Rest};
use dhara_wire::command::{
    AppendBlock, AppendBlockEnd, AppendSetup, Command, CreateSegment, GetStreamSegmentInfo, Hello,
    ReadSegment, SetupAppend, StreamSegmentInfo,
};
use dhara_wire::limits::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use std::time::Duration;

/// A reply later than this counts as lost: the server hangs.
const REPLY_WAIT: Duration = Duration::from_secs(20);
/// Bytes asked for at a time.
const READ_BYTES: i32 = 2 * 1024 * 1024;

/// What a writer's first number is compared with.
pub const NEVER_WROTE: i64 = i64::MIN;

/// A connection to a segment store.
pub struct Session {
    connection: Connection,
    next_request: i64,
}

impl Session {
    /// Connects and greets; `None` if the server is gone.
    ///
    /// # Errors
    /// If it answers anything but a greeting.
    pub async fn open(store: &str) -> Result<Option<Self>> {
        let Ok(connection) = Connection::open(store).await else { return Ok(None) };
        let mut session = Self { connection, next_request: 1 };
        session.send(Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }).await?;
        match session.reply().await? {
            Some(Command::Hello(_)) => Ok(Some(session)),
            Some(other) => bail!("greeted with {other:?}"),
            None => Ok(None),
        }
    }

    /// A request id not used before on this connection.
    pub fn request_id(&mut self) -> i64 {
        self.next_request += 1;
        self.next_request
    }

    /// Sends a command.
    ///
    /// # Errors
    /// If the server does not read.
    pub async fn send(&mut self, command: impl Into<Command>) -> Result<()> {
        let mut frame = BytesMut::new();
        command.into().encode(&mut frame);
        self.connection.send(&frame).await
    }

    /// The next reply; `None` once the server is gone.
    ///
    /// # Errors
    /// If it hangs or sends what is no reply. A frame cut by its death is none.
    pub async fn reply(&mut self) -> Result<Option<Command>> {
        let event = self.connection.next(REPLY_WAIT).await.context("no reply in time")?;
        self.connection.forget();
        match event {
            Event::Frame(code, payload) => Ok(Some(Command::decode(code, payload)?)),
            Event::Broken(_) | Event::Close => Ok(None),
        }
    }

    /// Sends a request and takes its reply.
    ///
    /// # Errors
    /// As [`Session::reply`].
    pub async fn ask(&mut self, command: impl Into<Command>) -> Result<Option<Command>> {
        self.send(command).await?;
        self.reply().await
    }

    /// Creates a segment, if it is not there.
    ///
    /// # Errors
    /// If it cannot.
    pub async fn create(&mut self, segment: &str) -> Result<()> {
        let request = CreateSegment {
            request_id: self.request_id(),
            segment: segment.to_owned(),
            target_rate: 0,
            scale_type: 0,
            delegation_token: String::new(),
            rollover_size_bytes: 0,
        };
        match self.ask(request).await?.context("gone")? {
            Command::SegmentCreated(_) | Command::SegmentAlreadyExists(_) => Ok(()),
            other => bail!("creating {segment}: {other:?}"),
        }
    }

    /// Sets a writer up; the number of its last event there.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn setup(&mut self, segment: &str, writer_id: Uuid) -> Result<Option<i64>> {
        let request = SetupAppend {
            request_id: self.request_id(),
            writer_id,
            segment: segment.to_owned(),
            delegation_token: String::new(),
        };
        match self.ask(request).await? {
            None => Ok(None),
            Some(Command::AppendSetup(AppendSetup { last_event_number, .. })) => Ok(Some(last_event_number)),
            Some(other) => bail!("setting up on {segment}: {other:?}"),
        }
    }

    /// The segment's state.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn info(&mut self, segment: &str) -> Result<Option<StreamSegmentInfo>> {
        let request = GetStreamSegmentInfo {
            request_id: self.request_id(),
            segment: segment.to_owned(),
            delegation_token: String::new(),
        };
        match self.ask(request).await? {
            None => Ok(None),
            Some(Command::StreamSegmentInfo(info)) => Ok(Some(info)),
            Some(other) => bail!("asking about {segment}: {other:?}"),
        }
    }

    /// Everything between `from` and the segment's end.
    ///
    /// # Errors
    /// If the server refuses, is gone, or answers with the wrong place.
    pub async fn read(&mut self, segment: &str, from: i64) -> Result<Bytes> {
        let info = self.info(segment).await?.context("gone")?;
        self.read_range(segment, from, info.write_offset).await
    }

    /// The bytes from offset `from` to offset `end`, which the segment must have.
    ///
    /// # Errors
    /// If the server refuses, is gone, or answers with the wrong place.
    pub async fn read_range(&mut self, segment: &str, from: i64, end: i64) -> Result<Bytes> {
        let mut data = BytesMut::new();
        let mut at = from;
        while at < end {
            let request = ReadSegment {
                segment: segment.to_owned(),
                offset: at,
                suggested_length: i32::try_from(end - at).unwrap_or(READ_BYTES).clamp(8, READ_BYTES),
                delegation_token: String::new(),
                request_id: self.request_id(),
            };
            match self.ask(request).await?.context("gone")? {
                Command::SegmentRead(read) if read.offset == at && !read.data.0.is_empty() => {
                    data.extend_from_slice(&read.data.0);
                    at += i64::try_from(read.data.0.len())?;
                }
                other => bail!("reading {segment} at {at} of {end}: {}", other.name()),
            }
        }
        data.truncate(usize::try_from(end - from).unwrap_or(0));
        Ok(data.freeze())
    }
}

/// The ways in which a client may send one append.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// The block end alone.
    Alone,
    /// A block of whole events.
    Exact,
    /// A block with room left over.
    Padded,
    /// A block whose last event goes on in the block end.
    Straddle,
}

/// The frames of one append of `events`, the last of which has `number`.
pub fn append(shape: Shape, writer_id: Uuid, events: &[Bytes], number: i64, request_id: i64) -> Vec<Command> {
    let whole: Bytes = events.concat().into();
    let mut end = AppendBlockEnd {
        writer_id,
        size_of_whole_events: length(&whole),
        data: Blob::default(),
        num_events: i32::try_from(events.len()).unwrap_or(i32::MAX),
        last_event_number: number,
        request_id,
    };
    let block = |data: Bytes| Command::from(AppendBlock { writer_id, data: Rest(data) });
    match shape {
        Shape::Alone => {
            end.data = Blob(whole);
            vec![end.into()]
        }
        Shape::Exact => vec![block(whole), end.into()],
        Shape::Padded => {
            let mut data = BytesMut::from(&whole[..]);
            data.extend_from_slice(&(-1_i32).to_be_bytes());
            data.extend_from_slice(&5_i32.to_be_bytes());
            data.extend_from_slice(&[0; 5]);
            vec![block(data.freeze()), end.into()]
        }
        Shape::Straddle => {
            let last = events.last().map_or(0, Bytes::len);
            let first = whole.slice(..whole.len() - last);
            let cut = whole.len() - last + last / 2;
            let mut data = BytesMut::from(&first[..]);
            data.extend_from_slice(&(-2_i32).to_be_bytes());
            data.extend_from_slice(&length(&whole.slice(first.len()..cut)).to_be_bytes());
            data.extend_from_slice(&whole[first.len()..cut]);
            end.size_of_whole_events = length(&first);
            end.data = Blob(whole.slice(cut..));
            vec![block(data.freeze()), end.into()]
        }
    }
}

fn length(data: &Bytes) -> i32 {
    i32::try_from(data.len()).unwrap_or(i32::MAX)
}
