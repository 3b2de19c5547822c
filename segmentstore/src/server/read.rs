//! Reads of segments: answered from the published view, waiting at its end.

use super::connection::{Close, Connection};
use super::outbox::Outbox;
use super::reply::{self, signed};
use crate::container::ContainerHandle;
use crate::read::{Look, ReadError, ReadReply, View};
use bytes::{BufMut, Bytes, BytesMut};
use dhara_stdx::chain;
use dhara_wire::codec::{Blob, Wire};
use dhara_wire::command::{
    GetStreamSegmentInfo, GetTableSegmentInfo, LocateOffset, NoSuchSegment, OffsetLocated, ReadSegment,
    SegmentIsSealed, SegmentIsTruncated, SegmentRead, StreamSegmentInfo, TableSegmentInfo,
};
use dhara_wire::limits::{READ_BYTES_MAX, READ_BYTES_MIN};
use std::sync::Arc;
use tracing::warn;

/// A read, as its replies must echo it.
struct Asked {
    segment: String,
    offset: i64,
    request_id: i64,
    /// The same offset, known not to be negative.
    start: u64,
    /// Most bytes of the reply.
    wanted: usize,
    /// Whether it has to go to long-term storage.
    cold: bool,
}

impl Connection {
    /// The published segment of a name, with its container.
    pub(super) fn find(&self, segment: &str) -> Result<(ContainerHandle, Option<Arc<View>>), Close> {
        let name = dhara_wire::name::canonical(segment);
        let container = self.shared.containers.of(&name).ok_or(Close("the container is not open"))?;
        let view = container.views().find(&name);
        if view.is_none() && container.is_closed() {
            // It ends, and its segments are only out of sight.
            return Err(Close("the container is not open"));
        }
        Ok((container, view))
    }

    /// Tells that a segment does not exist.
    pub(super) fn missing(&self, request_id: i64, segment: String, offset: i64) {
        self.outbox.push(|out| {
            NoSuchSegment { request_id, segment, server_stack_trace: String::new(), offset }.encode(out);
        });
    }

    /// Tells that a request cannot be right.
    pub(super) fn illegal(&self, request_id: i64, segment: String, why: &str) {
        self.outbox.push(|out| reply::illegal(request_id, segment, why).encode(out));
    }

    pub(super) fn read_segment(&mut self, command: ReadSegment) -> Result<(), Close> {
        let ReadSegment { segment, offset, suggested_length, request_id, .. } = command;
        let (container, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, offset);
            return Ok(());
        };
        let Ok(start) = u64::try_from(offset) else {
            self.illegal(request_id, segment, "offset is negative");
            return Ok(());
        };
        if view.kind.is_table() {
            self.illegal(request_id, segment, "a table segment has no bytes to read");
            return Ok(());
        }
        let wanted = usize::try_from(suggested_length).unwrap_or(0).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let mut asked = Asked { segment, offset, request_id, start, wanted, cold: false };
        match view.try_read(container.log(), start, wanted) {
            Ok(Look::Reply(reply)) => {
                answer(&self.outbox, asked, reply, false);
                Ok(())
            }
            Ok(Look::Wait) => {
                self.park_read(container, view, asked);
                Ok(())
            }
            Ok(Look::Cold(_)) => {
                asked.cold = true;
                self.spawn_cold_read(container, view, asked);
                Ok(())
            }
            Err(error) => failed(&self.outbox, asked, &error),
        }
    }

    fn park_read(&mut self, container: ContainerHandle, view: Arc<View>, asked: Asked) {
        let (outbox, cold_reads) = (Arc::clone(&self.outbox), self.cold_reads.clone());
        drop(self.reads.spawn(async move {
            view.passed(asked.start).await;
            // Nothing is read before it may leave: thousands may wait at one tail, each for as much as it asked for.
            outbox.room().await;
            match view.try_read(container.log(), asked.start, asked.wanted) {
                Ok(Look::Reply(reply)) => answer(&outbox, asked, reply, true),
                // What has passed the offset does not go back.
                Ok(Look::Cold(_) | Look::Wait) => {
                    let _turn = cold_reads.acquire(asked.wanted as u64).await;
                    let read = view.read(container.log(), container.cold(), asked.start, asked.wanted).await;
                    conclude(&outbox, asked, read, true);
                }
                Err(error) => conclude(&outbox, asked, Err(error), true),
            }
        }));
    }

    fn spawn_cold_read(&mut self, container: ContainerHandle, view: Arc<View>, asked: Asked) {
        let (outbox, cold_reads) = (Arc::clone(&self.outbox), self.cold_reads.clone());
        drop(self.reads.spawn(async move {
            let turn = cold_reads.acquire(asked.wanted as u64).await;
            // What is read takes memory until it has left, so nothing is read for a client that does not take it.
            outbox.room().await;
            let read = view.read(container.log(), container.cold(), asked.start, asked.wanted).await;
            conclude(&outbox, asked, read, false);
            drop(turn);
        }));
    }

    pub(super) fn segment_info(&self, command: GetStreamSegmentInfo) -> Result<(), Close> {
        let GetStreamSegmentInfo { request_id, segment, .. } = command;
        let (_, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, -1);
            return Ok(());
        };
        let core = view.core();
        self.outbox.push(|out| {
            StreamSegmentInfo {
                request_id,
                segment,
                exists: true,
                is_sealed: core.sealed,
                is_deleted: false,
                last_modified: core.modified_ms,
                write_offset: signed(core.length),
                start_offset: signed(core.start),
            }
            .encode(out);
        });
        Ok(())
    }

    pub(super) fn table_info(&self, command: GetTableSegmentInfo) -> Result<(), Close> {
        let GetTableSegmentInfo { request_id, segment, .. } = command;
        let (_, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, -1);
            return Ok(());
        };
        if !view.kind.is_table() {
            self.illegal(request_id, segment, "not a table segment");
            return Ok(());
        }
        let core = view.core();
        let key_length = match view.kind {
            crate::operation::SegmentKind::FixedTable { key_bytes } => i32::from(key_bytes),
            _ => 0,
        };
        self.outbox.push(|out| {
            TableSegmentInfo {
                request_id,
                segment,
                start_offset: signed(core.start),
                length: signed(core.length),
                entry_count: signed(core.entries),
                key_length,
            }
            .encode(out);
        });
        Ok(())
    }

    pub(super) fn locate_offset(&mut self, command: LocateOffset) -> Result<(), Close> {
        let LocateOffset { request_id, segment, target_offset, .. } = command;
        let (container, view) = self.find(&segment)?;
        let Some(view) = view else {
            self.missing(request_id, segment, -1);
            return Ok(());
        };
        let outbox = Arc::clone(&self.outbox);
        let target = u64::try_from(target_offset).unwrap_or(0);
        drop(self.reads.spawn(async move {
            match view.locate(container.cold(), target).await {
                Ok(offset) => outbox
                    .push(|out| OffsetLocated { request_id, segment, offset: signed(offset) }.encode(out)),
                Err(error) => {
                    warn!(segment, target, error = chain(&error), "locate");
                    outbox.close();
                }
            }
        }));
        Ok(())
    }
}

/// Ends a read that had a task of its own.
fn conclude(outbox: &Outbox, asked: Asked, read: Result<ReadReply, ReadError>, waited: bool) {
    match read {
        Ok(reply) => answer(outbox, asked, reply, waited),
        // Whoever waits for bytes that will never come hears why, as those who wait right at the end do.
        Err(ReadError::BeyondEnd { .. }) if waited => answer(outbox, asked, ReadReply::EndOfSegment, true),
        Err(error) => {
            if let Err(Close(_)) = failed(outbox, asked, &error) {
                outbox.close();
            }
        }
    }
}

/// Sends the reply of a read; `waited` tells whether it was parked.
fn answer(outbox: &Outbox, asked: Asked, reply: ReadReply, waited: bool) {
    let Asked { segment, offset, request_id, cold, .. } = asked;
    let server_stack_trace = String::new();
    let empty = |at_tail, end_of_segment| {
        let data = Blob(Bytes::new());
        SegmentRead { segment: segment.clone(), offset, at_tail, end_of_segment, data, request_id }
    };
    match reply {
        ReadReply::Data { chunks, at_tail, end_of_segment } => {
            let length: usize = chunks.iter().map(Bytes::len).sum();
            let head = |out: &mut BytesMut| {
                out.put_i32(SegmentRead::CODE);
                let payload_at = out.len() + 4;
                out.put_u32(0);
                segment.put(out);
                offset.put(out);
                (at_tail || waited).put(out);
                end_of_segment.put(out);
                out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
                // A name may take more bytes than it has here.
                let payload = out.len() - payload_at + length + 8;
                out[payload_at - 4..payload_at]
                    .copy_from_slice(&u32::try_from(payload).unwrap_or(u32::MAX).to_be_bytes());
            };
            outbox.push_chunks(head, chunks, &request_id.to_be_bytes(), cold);
        }
        ReadReply::EndOfSegment if waited => outbox.push(|out| {
            SegmentIsSealed { request_id, segment, server_stack_trace, offset }.encode(out);
        }),
        ReadReply::EndOfSegment => outbox.push(|out| empty(false, true).encode(out)),
        ReadReply::Truncated { start } => outbox.push(|out| {
            let start_offset = signed(start);
            SegmentIsTruncated { request_id, segment, start_offset, server_stack_trace, offset }.encode(out);
        }),
        ReadReply::Gone => outbox.push(|out| empty(true, false).encode(out)),
    }
}

fn failed(outbox: &Outbox, asked: Asked, error: &ReadError) -> Result<(), Close> {
    if let ReadError::BeyondEnd { .. } = error {
        let why = "offset is beyond the end of a sealed segment";
        outbox.push(|out| reply::illegal(asked.request_id, asked.segment, why).encode(out));
        return Ok(());
    }
    warn!(segment = asked.segment, offset = asked.offset, error = chain(error), "read");
    Err(Close("a read failed"))
}
