//! When the index is flushed, and loading rows from it.

use super::rows::{dirty_rows, load};
use super::task::{Event, Failure, Task};
use crate::index::{Dirty, Index, IndexError};
use crate::log::Floor;
use crate::state::{RowChange, RowKey};
use crate::types::SequenceNumber;
use std::time::Duration;
use tokio::time::Instant;

/// A flush starts at this many bytes of rows.
const FLUSH_BYTES: usize = 16 * 1024 * 1024;
/// Or at this many rows.
const FLUSH_ROWS: usize = 50_000;
/// Or at this many bytes of log, which bounds what recovery reads.
const FLUSH_LOG_BYTES: usize = 256 * 1024 * 1024;
/// Or this long after the first change.
const FLUSH_AGE: Duration = Duration::from_mins(1);
/// A row must arrive in this time, else the container ends and its clients try again.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the container stands with its index.
#[derive(Default)]
pub(super) struct Flush {
    pub(super) in_flight: bool,
    pub(super) dirty_since: Option<Instant>,
    pub(super) overlay_bytes: usize,
    /// Bytes handed to the log since the last flush began.
    pub(super) logged_bytes: usize,
    /// Doomed segments may have rows left.
    pub(super) sweep_due: bool,
    pub(super) sweeping: bool,
}

impl Flush {
    /// Takes note of what the index holds in memory.
    pub(super) fn look(&mut self, index: &Index) -> Dirty {
        let dirty = index.dirty();
        self.overlay_bytes = dirty.bytes + dirty.frozen_bytes;
        dirty
    }

    /// Takes note of changes on their way to the index.
    pub(super) fn note(&mut self, changes: &[RowChange]) {
        self.sweep_due |= changes.iter().any(|change| matches!(change, RowChange::Ended { rows: true, .. }));
    }
}

impl Task {
    pub(super) fn flush_if_due(&mut self) {
        let dirty = self.flush.look(&self.index);
        if dirty.rows == 0 && !self.state.is_dirty() {
            self.flush.dirty_since = None;
            return;
        }
        let now = Instant::now();
        let since = *self.flush.dirty_since.get_or_insert(now);
        let due = dirty.bytes >= FLUSH_BYTES
            || dirty.rows >= FLUSH_ROWS
            || self.flush.logged_bytes >= FLUSH_LOG_BYTES
            || now.duration_since(since) >= FLUSH_AGE
            // So that the floor can rise.
            || self.log.room().is_pressed();
        if due {
            self.start_flush();
        }
    }

    /// Whether the index lacks a record or a row: those of a sweep come without a record.
    fn needs_flush(&self) -> bool {
        self.state.applied_upto() > self.index.applied() || self.index.dirty().rows > 0
    }

    pub(super) fn start_flush(&mut self) {
        if self.flush.in_flight || !self.needs_flush() {
            return;
        }
        let as_of = self.state.applied_upto();
        let rows = dirty_rows(self.state.take_dirty(), &mut self.work.loaded);
        let Some(frozen) = self.index.freeze(rows, as_of) else {
            unreachable!("no flush is in flight and there is something to flush")
        };
        self.flush.in_flight = true;
        self.flush.dirty_since = None;
        self.flush.logged_bytes = 0;
        let (index, events) = (self.index.clone(), self.event_sender.clone());
        drop(self.storage.spawn(async move {
            let flushed = index.flush(frozen).await;
            let _ended = events.send(Event::Flushed(flushed)).await;
        }));
    }

    pub(super) fn flushed(&mut self, flushed: Result<SequenceNumber, IndexError>) -> Result<(), Failure> {
        flushed.map_err(|source| Failure::Index { container: self.id, source })?;
        self.flush.in_flight = false;
        self.raise_floor();
        Ok(())
    }

    /// Tells the log what this container still needs of it.
    pub(super) fn raise_floor(&mut self) {
        if let Some(mark) = self.publisher.marks.floor(self.index.applied()) {
            self.writer.set_floor(Floor { address: mark.address, sequence: mark.sequence });
        }
    }

    /// Flushes everything applied; used when the container stops.
    pub(super) async fn flush_now(&mut self) -> Result<(), Failure> {
        loop {
            if !self.flush.in_flight {
                let dirty = self.index.dirty().rows > 0 || self.state.is_dirty();
                if !dirty || !self.needs_flush() {
                    return Ok(());
                }
                self.start_flush();
            }
            match self.events.recv().await {
                Some(Event::Flushed(flushed)) => self.flushed(flushed)?,
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Loads a row within its time.
pub(super) async fn load_row(index: &Index, number: u64, key: RowKey) -> Event {
    let generation = index.generation();
    match tokio::time::timeout(LOAD_TIMEOUT, load(index, &key)).await {
        Ok(Ok(Some(value))) => Event::Loaded { number, key, value, generation },
        Ok(Ok(None) | Err(_)) | Err(_) => Event::LoadFailed { number },
    }
}
