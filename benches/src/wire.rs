//! Speaking to a segment store without a client in between, so that what is measured is the server.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use dhara_stdx::net;
use dhara_wire::codec::{Blob, Uuid};
use dhara_wire::command::{AppendBlockEnd, Command, FlushToStorage, Hello, SetupAppend};
use dhara_wire::limits::{OLDEST_WIRE_VERSION, REPLY_PAYLOAD_BYTES_MAX, WIRE_VERSION};
use dhara_wire::peer::{ConnectionConfig, FrameReader, FrameWriter, RawConnection, ReaderConfig};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The sending half of a connection for appends.
#[derive(Debug)]
pub struct Appends(FrameWriter<OwnedWriteHalf>);

/// The receiving half of a connection for appends.
#[derive(Debug)]
pub struct Acks(FrameReader<OwnedReadHalf>);

/// What a store says on a connection for appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A writer may append; its last event's number, [`i64::MIN`] if it never wrote.
    SetUp {
        /// The writer.
        writer: Uuid,
        /// The number.
        last: i64,
    },
    /// Everything of a writer up to this number is durable.
    Acked {
        /// The writer.
        writer: Uuid,
        /// The number.
        number: i64,
    },
}

/// Connects to the store at `address` for appends.
///
/// # Errors
/// Whatever the net answers, or a peer that does not say hello.
pub async fn connect(address: &str) -> Result<(Appends, Acks)> {
    let (source, sink) = net::connect(address).await?.into_split();
    let config = ReaderConfig { payload_bytes_max: REPLY_PAYLOAD_BYTES_MAX, ..ReaderConfig::default() };
    let (mut appends, mut acks) = (Appends(FrameWriter::new(sink)), FrameReader::new(source, config));
    appends.0.push(&Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }.into());
    appends.flush().await?;
    let hello = acks.next().await?.context("the store closed the connection")?.command()?;
    if !matches!(hello, Command::Hello(_)) {
        bail!("the store says {} first", hello.name());
    }
    Ok((appends, Acks(acks)))
}

impl Appends {
    /// Queues the set-up of `writer` on `segment`.
    pub fn set_up(&mut self, writer: Uuid, segment: &str) {
        let (segment, delegation_token) = (segment.to_owned(), String::new());
        self.0.push(&SetupAppend { request_id: 0, writer_id: writer, segment, delegation_token }.into());
    }

    /// Queues whole events, the last of which is `number` and which are `events` in all.
    pub fn append(&mut self, writer: Uuid, number: i64, events: i32, data: Bytes) {
        let size_of_whole_events = i32::try_from(data.len()).unwrap_or(i32::MAX);
        self.0.push(
            &AppendBlockEnd {
                writer_id: writer,
                size_of_whole_events,
                data: Blob(data),
                num_events: events,
                last_event_number: number,
                request_id: number,
            }
            .into(),
        );
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// If the connection ended.
    pub async fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush().await?)
    }
}

impl Acks {
    /// Waits for the next answer.
    ///
    /// # Errors
    /// If the connection ended, or the store refuses.
    pub async fn next(&mut self) -> Result<Heard> {
        loop {
            let frame = self.0.next().await?.context("the store closed the connection")?;
            let command = frame.command()?;
            match command {
                Command::KeepAlive(_) => {}
                Command::AppendSetup(setup) => {
                    return Ok(Heard::SetUp { writer: setup.writer_id, last: setup.last_event_number });
                }
                Command::DataAppended(ack) => {
                    return Ok(Heard::Acked { writer: ack.writer_id, number: ack.event_number });
                }
                other => bail!("the store answers {other:?}"),
            }
        }
    }
}

/// Connects to the store at `address` for requests.
///
/// # Errors
/// Whatever the net answers.
pub async fn requests(address: &str) -> Result<RawConnection> {
    Ok(RawConnection::connect(address, ConnectionConfig::default()).await?)
}

/// Waits until everything acknowledged so far in the first container lies in long-term storage.
///
/// # Errors
/// If the store refuses.
pub async fn flush_to_storage(address: &str) -> Result<()> {
    let asked = FlushToStorage { container_id: 0, delegation_token: String::new(), request_id: 0 };
    match requests(address).await?.call(asked).await? {
        Command::StorageFlushed(_) => Ok(()),
        other => bail!("flush to storage: {other:?}"),
    }
}
