//! One writer: appends of whole ledger events to a segment of its own, one at a time, at a steady rate.

use super::Options;
use super::told::{Progress, Told};
use crate::ledger::{Ledger, event, whole_events, writer_id};
use crate::session::{Session, Shape, append};
use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use dhara_wire::command::Command;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep_until};

/// Bytes of one append, about.
const APPEND_BYTES: u64 = 32 << 10;
/// Bytes read back at a time.
const READ_BYTES: i64 = 8 << 20;

/// What a writer is to do.
pub(super) struct Plan {
    writer: u64,
    segment: String,
    every: Duration,
}

/// What a writer has done.
pub(super) struct Written {
    /// Where.
    pub(super) segment: String,
    /// The segment's length, all of it acknowledged.
    pub(super) length: i64,
    writer: u64,
    last: i64,
}

impl Plan {
    pub(super) fn new(writer: u64, segment: &str, options: &Options) -> Self {
        let each = (options.bytes_per_second / options.writers).max(1);
        let every = Duration::from_nanos(APPEND_BYTES * 1_000_000_000 / each);
        Self { writer, segment: segment.to_owned(), every }
    }
}

/// Writes until it is told to stop.
///
/// # Errors
/// If an append is refused, or acknowledged wrongly.
pub(super) async fn run(
    plan: Plan,
    store: String,
    stop: channel::Receiver<bool>,
    progress: Progress,
    told: Told,
) -> Result<Written> {
    let Plan { writer, segment, every } = plan;
    let mut session = Session::open(&store).await?.context("gone")?;
    session.setup(&segment, writer_id(writer)).await?.context("gone")?;
    let (mut last, mut length) = (0, 0);
    let mut due = Instant::now();
    while !*stop.borrow() {
        sleep_until(due).await;
        // Who is late does not hurry: what is measured is how long an append takes.
        due = (due + every).max(Instant::now());
        let mut events = Vec::new();
        let (mut bytes, first, offset) = (0, last + 1, length);
        while bytes < APPEND_BYTES {
            last += 1;
            events.push(event(writer, last));
            bytes += events.last().map_or(0, Bytes::len) as u64;
        }
        let sent = Instant::now();
        progress.sent(last, sent);
        let request = session.request_id();
        for frame in append(Shape::Exact, writer_id(writer), &events, last, request) {
            session.send(frame).await?;
        }
        length += i64::try_from(bytes)?;
        match session.reply().await?.context("gone")? {
            Command::DataAppended(ack) => {
                ensure!(ack.event_number == last, "writer {writer}: ack of {}, due {last}", ack.event_number);
                let at = ack.current_segment_write_offset;
                ensure!(at == length, "writer {writer}: acked at {at}, due {length}");
            }
            other => bail!("writer {writer}: {other:?}"),
        }
        told.acked(sent.elapsed());
        progress.acked(offset, first);
    }
    progress.ended(length);
    Ok(Written { segment, length, writer, last })
}

impl Written {
    /// Reads the segment from its first byte and compares it with what was acknowledged; its length.
    ///
    /// # Errors
    /// At the first difference.
    pub(super) async fn verify(&self, session: &mut Session) -> Result<i64> {
        let info = session.info(&self.segment).await?.context("gone")?;
        ensure!(info.write_offset == self.length, "{} bytes long, {} acked", info.write_offset, self.length);
        let (mut at, mut rest, mut ledger) = (0, BytesMut::new(), Ledger::default());
        while at < self.length {
            let end = (at + READ_BYTES).min(self.length);
            rest.extend_from_slice(&session.read_range(&self.segment, at, end).await?);
            ledger.take(&whole_events(&mut rest)?)?;
            at = end;
        }
        ensure!(rest.is_empty(), "{} bytes after the last event", rest.len());
        ledger.check(self.writer, self.last, self.last)?;
        Ok(self.length)
    }
}
