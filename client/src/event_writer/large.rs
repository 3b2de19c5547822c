//! Events larger than one append: written beside the segment and merged into it at once.
//!
//! While one is under way the writer takes nothing else and holds nothing un-acknowledged, so the order of keys stays.
//! A merge whose answer was lost is told apart from one that never happened by an attribute of the segment, which the
//! merge itself raises to the event's number.

use super::ack::Ack;
use super::state::Slot;
use super::{EventWriter, Shared, WriteError};
use crate::segment::{Patience, RequestError, SegmentClient, SegmentError, refusal};
use bytes::{BufMut, Bytes, BytesMut};
use dhara_wire::codec::{Blob, Uuid};
use dhara_wire::command::{self, AttributeUpdate, AttributeUpdateType, Command};
use dhara_wire::limits::{EVENT_BYTES_MAX, NULL_ATTRIBUTE_VALUE};
use dhara_wire::name::SegmentName;
use dhara_wire::peer::RawConnection;
use std::sync::Arc;

/// Bytes of an event's header: type code 0 and length.
const HEADER_BYTES: usize = 8;

/// What came of one attempt.
enum Attempt {
    /// The event is in the segment.
    Stored,
    /// The segment takes no more events.
    Sealed,
}

/// Keeps a writer from taking other events while it lives.
struct Held<'a>(&'a Shared);

/// A large event on its way.
struct Large<'a> {
    shared: &'a Shared,
    /// Header and payload in pieces of the largest append.
    pieces: Vec<Bytes>,
    /// The attribute that tells which large events of this writer a segment holds.
    attribute: Uuid,
    number: i64,
}

impl EventWriter {
    /// Writes an event that is too large for one append, and returns when it is durable.
    pub(super) async fn write_large(&self, event: &[u8], position: Option<f64>) -> Result<Ack, WriteError> {
        let Ok(length) = i32::try_from(event.len()) else {
            return Err(WriteError::TooLarge { bytes: event.len() });
        };
        let _held = self.hold().await?;
        self.flush().await?;
        let (attribute, number, position) = self.shared.state.lock().next_large(position);
        let mut framed = BytesMut::with_capacity(HEADER_BYTES + event.len());
        framed.put_i32(0);
        framed.put_i32(length);
        framed.put_slice(event);
        let mut framed = framed.freeze();
        let mut pieces = Vec::new();
        while !framed.is_empty() {
            pieces.push(framed.split_to(framed.len().min(EVENT_BYTES_MAX)));
        }
        Large { shared: &self.shared, pieces, attribute, number }.write(position).await?;
        Ok(Ack::known())
    }

    async fn hold(&self) -> Result<Held<'_>, WriteError> {
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            if self.shared.state.lock().hold()? {
                return Ok(Held(&self.shared));
            }
            room.await;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.lock().release();
        self.0.room.notify_waiters();
    }
}

impl Large<'_> {
    async fn write(&self, position: f64) -> Result<(), WriteError> {
        let core = &self.shared.core;
        let mut patience = Patience::new(&core.config);
        loop {
            let (slot, segment) = self.shared.state.lock().segment_at(position);
            match self.attempt(&segment).await {
                Ok(Attempt::Stored) => return Ok(()),
                Ok(Attempt::Sealed) => self.successor(slot, position).await?,
                Err(RequestError::Segment(error)) => {
                    let stream = self.shared.stream.clone();
                    let given_up = |error| WriteError::GaveUp { stream, source: Arc::new(error) };
                    patience.after(error).await.map_err(given_up)?;
                }
                Err(RequestError::Controller(error)) => return Err(WriteError::Controller(Arc::new(error))),
            }
        }
    }

    /// Waits until another segment than that of `slot` takes `position`.
    async fn successor(&self, slot: Slot, position: f64) -> Result<(), WriteError> {
        self.shared.change(|state, effects| state.seal_idle(slot, effects));
        loop {
            let mut changed = std::pin::pin!(self.shared.room.notified());
            changed.as_mut().enable();
            if self.has_successor(slot, position)? {
                return Ok(());
            }
            changed.await;
        }
    }

    fn has_successor(&self, slot: Slot, position: f64) -> Result<bool, WriteError> {
        let state = self.shared.state.lock();
        match state.ended() {
            Some(error) => Err(error.clone()),
            None => Ok(state.segment_at(position).0 != slot),
        }
    }

    /// Writes the event to a transient segment and merges that into `parent`.
    async fn attempt(&self, parent: &SegmentName) -> Result<Attempt, RequestError> {
        let core = &self.shared.core;
        // The transient segment goes with its connection, so that one is not shared.
        let own = SegmentClient::new(core.controller.clone(), core.config.clone());
        let connection = own.connection(parent).await?;
        let call = Calls { connection, parent, timeout: core.config.request_timeout };
        let writer_id = Uuid(core.entropy.uuid());
        let Some(source) = call.create(writer_id).await? else { return Ok(Attempt::Sealed) };
        let mut offset = 0;
        for (piece, event_number) in self.pieces.iter().zip(0..) {
            call.append(writer_id, event_number, offset, piece.clone()).await?;
            offset += i64::try_from(piece.len()).unwrap_or(i64::MAX);
        }
        let update = AttributeUpdate {
            attribute_id: self.attribute,
            update_type: AttributeUpdateType::ReplaceIfGreater,
            new_value: self.number,
            old_value: NULL_ATTRIBUTE_VALUE,
        };
        if call.merge(source, update).await? || call.attribute(self.attribute).await? >= self.number {
            return Ok(Attempt::Stored);
        }
        let open = core.segments.state(parent).await?.is_some_and(|state| !state.sealed);
        let missing = || SegmentError::Moved { segment: parent.to_string() };
        if open { Err(missing().into()) } else { Ok(Attempt::Sealed) }
    }
}

/// The calls of one attempt.
struct Calls<'a> {
    connection: RawConnection,
    parent: &'a SegmentName,
    timeout: std::time::Duration,
}

impl Calls<'_> {
    /// Makes a transient segment and sets up `writer_id` on it; `None` if its parent is gone.
    async fn create(&self, writer_id: Uuid) -> Result<Option<String>, SegmentError> {
        let parent_segment = self.parent.to_string();
        let (request_id, delegation_token) = (0, String::new());
        let create =
            command::CreateTransientSegment { request_id, writer_id, parent_segment, delegation_token };
        let segment = match self.call(create.into()).await? {
            Command::SegmentCreated(created) => created.segment,
            Command::NoSuchSegment(_) | Command::SegmentIsSealed(_) => return Ok(None),
            other => return Err(refusal(other)),
        };
        let delegation_token = String::new();
        let name = segment.clone();
        let setup = command::SetupAppend { request_id, segment, writer_id, delegation_token };
        match self.call(setup.into()).await? {
            Command::AppendSetup(setup) if setup.last_event_number == NULL_ATTRIBUTE_VALUE => Ok(Some(name)),
            other => Err(refusal(other)),
        }
    }

    async fn append(
        &self,
        writer_id: Uuid,
        event_number: i64,
        expected_offset: i64,
        data: Bytes,
    ) -> Result<(), SegmentError> {
        let (request_id, data) = (0, Blob(data));
        let append =
            command::ConditionalBlockEnd { writer_id, event_number, expected_offset, data, request_id };
        match self.call(append.into()).await? {
            Command::DataAppended(_) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Merges `source` into the parent; false if that did not happen now.
    async fn merge(&self, source: String, update: AttributeUpdate) -> Result<bool, SegmentError> {
        let merge = command::MergeSegments {
            request_id: 0,
            target: self.parent.to_string(),
            source,
            delegation_token: String::new(),
            attribute_updates: vec![update],
        };
        match self.call(merge.into()).await? {
            Command::SegmentsMerged(_) => Ok(true),
            Command::SegmentAttributeUpdated(_) | Command::NoSuchSegment(_) | Command::SegmentIsSealed(_) => {
                Ok(false)
            }
            other => Err(refusal(other)),
        }
    }

    /// The value of an attribute of the parent, or the one that stands for none.
    async fn attribute(&self, attribute_id: Uuid) -> Result<i64, SegmentError> {
        let segment = self.parent.to_string();
        let (request_id, delegation_token) = (0, String::new());
        let get = command::GetSegmentAttribute { request_id, segment, attribute_id, delegation_token };
        match self.call(get.into()).await? {
            Command::SegmentAttribute(attribute) => Ok(attribute.value),
            Command::NoSuchSegment(_) => Ok(NULL_ATTRIBUTE_VALUE),
            other => Err(refusal(other)),
        }
    }

    async fn call(&self, command: Command) -> Result<Command, SegmentError> {
        let limit = self.timeout;
        let what = || format!("segment {}", self.parent);
        let answer = tokio::time::timeout(limit, self.connection.call(command)).await;
        let answer = answer.map_err(|_elapsed| SegmentError::Slow { what: what(), limit })?;
        answer.map_err(|source| SegmentError::Call { segment: self.parent.to_string(), source })
    }
}
