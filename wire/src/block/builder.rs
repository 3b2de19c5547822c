//! Making appends to send.

use super::ELEMENT_HEADER_BYTES;
use crate::codec::{Blob, Uuid};
use crate::command::AppendBlockEnd;
use crate::limits::EVENT_BYTES_MAX;
use bytes::{BufMut, BytesMut};

/// Most events that one append carries.
const EVENTS_MAX: i32 = 500;
/// An append is full at this many bytes. One event may make it longer.
const FULL_BYTES: usize = 1024 * 1024;

/// An event that does not fit an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event of {bytes} bytes, above {EVENT_BYTES_MAX}")]
pub struct EventTooLarge {
    /// Bytes of the event.
    pub bytes: usize,
}

/// Collects events, each behind its header, into an append that needs no block before its end.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    data: BytesMut,
    num_events: i32,
}

impl BlockBuilder {
    /// Starts empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event of at most [`EVENT_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`EventTooLarge`]; the builder is as before.
    pub fn push(&mut self, event: &[u8]) -> Result<(), EventTooLarge> {
        let bytes = event.len();
        let length =
            i32::try_from(bytes).ok().filter(|_| bytes <= EVENT_BYTES_MAX).ok_or(EventTooLarge { bytes })?;
        self.data.reserve(ELEMENT_HEADER_BYTES + bytes);
        self.data.put_i32(0);
        self.data.put_i32(length);
        self.data.put_slice(event);
        self.num_events += 1;
        Ok(())
    }

    /// Whether an event of `event_bytes` still goes into this append. The first one always does.
    pub fn has_room(&self, event_bytes: usize) -> bool {
        let bytes = self.data.len().saturating_add(ELEMENT_HEADER_BYTES).saturating_add(event_bytes);
        self.num_events == 0 || (self.num_events < EVENTS_MAX && bytes <= FULL_BYTES)
    }

    /// Events collected.
    pub fn num_events(&self) -> i32 {
        self.num_events
    }

    /// Bytes collected, headers included.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether no event was collected.
    pub fn is_empty(&self) -> bool {
        self.num_events == 0
    }

    /// Takes what was collected as an append; `None` if that is nothing. The data is not copied.
    pub fn take(
        &mut self,
        writer_id: Uuid,
        last_event_number: i64,
        request_id: i64,
    ) -> Option<AppendBlockEnd> {
        if self.is_empty() {
            return None;
        }
        let num_events = std::mem::take(&mut self.num_events);
        let data = self.data.split().freeze();
        let size_of_whole_events = i32::try_from(data.len()).unwrap_or(i32::MAX);
        let data = Blob(data);
        Some(AppendBlockEnd {
            writer_id,
            size_of_whole_events,
            data,
            num_events,
            last_event_number,
            request_id,
        })
    }
}
