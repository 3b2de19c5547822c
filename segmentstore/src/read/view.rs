//! A published segment.

use crate::log::{Log, LogError, walk_records};
use crate::operation::{APPENDED_HEADER_BYTES, Record, SegmentKind};
use crate::state::{Core, Piece, Pieces, Source};
use crate::types::SegmentId;
use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use tokio::sync::Notify;

/// A segment as readers see it.
#[derive(Debug)]
pub struct View {
    /// The segment's id.
    pub id: SegmentId,
    /// Canonical name.
    pub name: String,
    /// What it is.
    pub kind: SegmentKind,
    published: RwLock<Published>,
    /// Told after each publication that a waiting reader could care about.
    changed: Notify,
}

#[derive(Debug)]
struct Published {
    core: Core,
    pieces: Pieces,
    /// The container is closed: ask again, here or elsewhere.
    closed: bool,
}

/// What a read finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// Bytes from the offset asked for, at least one.
    Data {
        /// The bytes, in order; slices of the log where that is possible.
        chunks: Vec<Bytes>,
        /// They reach the end of a segment that may still grow.
        at_tail: bool,
        /// They reach the end of a sealed segment.
        end_of_segment: bool,
    },
    /// The segment is sealed and nothing follows the offset.
    EndOfSegment,
    /// The offset lies before the first readable one.
    Truncated {
        /// First readable offset.
        start: u64,
    },
    /// The segment went while the read waited: ask again.
    Gone,
}

/// Why a read has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset lies behind the end of a sealed segment.
    #[error("offset {offset} is beyond the end of a sealed segment")]
    BeyondEnd {
        /// The offset asked for.
        offset: u64,
    },
    /// The log could not give the bytes.
    #[error("read from the log")]
    Log(#[from] LogError),
    /// A record of the log is not what the segment's pieces say.
    #[error("record of the log does not match segment {segment}")]
    Mismatch {
        /// The segment.
        segment: SegmentId,
    },
}

/// What to do about a read, decided under the lock.
enum Plan {
    Reply(ReadReply),
    Fetch { pieces: Vec<Piece>, core: Core },
    Wait,
    Beyond,
}

/// A place that was recycled between look and fetch is looked up anew, this often.
const LOOK_AGAIN_MAX: usize = 3;

impl View {
    pub(crate) fn new(id: SegmentId, name: String, kind: SegmentKind, core: Core) -> Self {
        let published = RwLock::new(Published { core, pieces: Pieces::default(), closed: false });
        Self { id, name, kind, published, changed: Notify::new() }
    }

    /// The segment's numbers.
    pub fn core(&self) -> Core {
        self.published.read().core
    }

    /// The first readable append boundary at or after `target`; the length if there is none.
    pub fn locate(&self, target: u64) -> u64 {
        let published = self.published.read();
        let target = target.max(published.core.start);
        published.pieces.boundary(target).unwrap_or(published.core.length)
    }

    /// Publishes changed numbers and pieces in one step.
    pub(crate) fn publish<T>(&self, change: impl FnOnce(&mut Core, &mut Pieces) -> T) -> T {
        let mut published = self.published.write();
        let Published { core, pieces, .. } = &mut *published;
        change(core, pieces)
    }

    /// Wakes readers that wait; called after a publication, without its lock.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Ends the view with its container.
    pub(crate) fn close(&self) {
        self.published.write().closed = true;
        self.wake();
    }

    /// Reads up to `bytes_max` bytes from `offset` if the reply is known now; `None` means that the read must wait.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such offset or the log cannot give the bytes.
    pub fn try_read(
        &self,
        log: &dyn Log,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Option<ReadReply>, ReadError> {
        let mut looked = 0;
        loop {
            let (pieces, core) = match self.plan(offset, bytes_max) {
                Plan::Reply(reply) => return Ok(Some(reply)),
                Plan::Wait => return Ok(None),
                Plan::Beyond => return Err(ReadError::BeyondEnd { offset }),
                Plan::Fetch { pieces, core } => (pieces, core),
            };
            looked += 1;
            match fetch(log, &pieces, offset, bytes_max) {
                Ok(chunks) => {
                    let end = offset + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
                    let at_tail = end == core.length && !core.sealed;
                    let end_of_segment = end == core.length && core.sealed;
                    return Ok(Some(ReadReply::Data { chunks, at_tail, end_of_segment }));
                }
                // The segment was truncated, deleted or tiered meanwhile, and the log file recycled.
                Err(ReadError::Log(LogError::Gone { .. })) if looked < LOOK_AGAIN_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads up to `bytes_max` bytes from `offset`, waiting at the tail without limit.
    ///
    /// # Errors
    /// As [`Self::try_read`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read(&self, log: &dyn Log, offset: u64, bytes_max: usize) -> Result<ReadReply, ReadError> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Listening starts before the look, so that no publication falls between them.
            changed.as_mut().enable();
            if let Some(reply) = self.try_read(log, offset, bytes_max)? {
                return Ok(reply);
            }
            changed.await;
        }
    }

    fn plan(&self, offset: u64, bytes_max: usize) -> Plan {
        let published = self.published.read();
        let core = published.core;
        if !core.exists || published.closed {
            return Plan::Reply(ReadReply::Gone);
        }
        if offset < core.start {
            return Plan::Reply(ReadReply::Truncated { start: core.start });
        }
        if offset >= core.length {
            return match (core.sealed, offset == core.length) {
                (false, _) => Plan::Wait,
                (true, true) => Plan::Reply(ReadReply::EndOfSegment),
                (true, false) => Plan::Beyond,
            };
        }
        let end = offset.saturating_add(bytes_max as u64);
        let pieces = published.pieces.from(offset).take_while(|piece| piece.offset < end).copied().collect();
        Plan::Fetch { pieces, core }
    }
}

/// Fetches `offset..offset + bytes_max` out of `pieces`, as far as they go.
fn fetch(log: &dyn Log, pieces: &[Piece], offset: u64, bytes_max: usize) -> Result<Vec<Bytes>, ReadError> {
    let mut chunks = Vec::with_capacity(pieces.len());
    let mut room = bytes_max as u64;
    for piece in pieces {
        let skip = offset.saturating_sub(piece.offset);
        let take = (piece.length - skip).min(room);
        room -= take;
        match piece.source {
            Source::Place { data } => chunks.push(log.bytes(data.offset(skip), to_u32(take))?),
            Source::Records { first, span, segment, offset: origin } => {
                let wanted = origin + skip..origin + skip + take;
                chunks.push(gather(&log.bytes(first, span)?, segment, wanted)?);
            }
        }
    }
    Ok(chunks)
}

/// Copies the bytes `wanted` of a segment out of the append records that `span` holds.
fn gather(span: &Bytes, segment: SegmentId, wanted: std::ops::Range<u64>) -> Result<Bytes, ReadError> {
    let mismatch = ReadError::Mismatch { segment };
    let mut out = BytesMut::with_capacity(usize::try_from(wanted.end - wanted.start).unwrap_or(0));
    for (kind, version, body) in walk_records(span) {
        if kind != Record::APPENDED || body.len() < APPENDED_HEADER_BYTES as usize {
            continue;
        }
        let Ok(Record::Appended { segment: of, offset, data, .. }) = Record::decode(kind, version, body)
        else {
            return Err(mismatch);
        };
        let (from, to) = (wanted.start.max(offset), wanted.end.min(offset + data.len() as u64));
        if of == segment && from < to {
            if from != wanted.start + out.len() as u64 {
                return Err(mismatch);
            }
            out.extend_from_slice(&data[to_usize(from - offset)..to_usize(to - offset)]);
        }
    }
    if out.len() as u64 == wanted.end - wanted.start { Ok(out.freeze()) } else { Err(mismatch) }
}

/// Reads are at most 2 MiB, so these fit.
fn to_u32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
