//! A published segment.

use super::cold::{AHEAD_BYTES_MAX, AHEAD_EXTENTS_MAX};
use super::{ColdError, ColdReader};
use crate::log::{Log, LogError, walk_records};
use crate::operation::{APPENDED_HEADER_BYTES, Extent, Record, SegmentKind};
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
    /// The object store could not give the bytes.
    #[error("read what lies in an object")]
    Cold(#[from] ColdError),
    /// A record of the log is not what the segment's pieces say.
    #[error("record of the log does not match segment {segment}")]
    Mismatch {
        /// The segment.
        segment: SegmentId,
    },
}

/// What is known of a read at once.
#[derive(Debug)]
pub enum Look {
    /// Its reply.
    Reply(ReadReply),
    /// It must wait for bytes to come.
    Wait,
    /// Its bytes lie in an object.
    Cold(ColdBytes),
}

/// Bytes that lie in objects, and where those behind them lie.
#[derive(Clone, Debug)]
pub struct ColdBytes {
    /// From the one that holds the offset on; some lie behind what was asked for.
    extents: Vec<Piece>,
    /// What was asked for behind all extents.
    places: Vec<Piece>,
    core: Core,
}

/// What to do about a read, decided under the lock.
enum Plan {
    Reply(ReadReply),
    Fetch { pieces: Vec<Piece>, core: Core },
    Cold(ColdBytes),
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

    /// The first readable append boundary at or after `target`; the length if there is none. A large extent tells of one
    /// boundary per MiB.
    ///
    /// # Errors
    /// [`ReadError::Cold`] if an object that must tell cannot be read.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn locate(&self, cold: &ColdReader, target: u64) -> Result<u64, ReadError> {
        let mut looked = 0;
        loop {
            let (inside, target) = {
                let published = self.published.read();
                let target = target.max(published.core.start);
                match published.pieces.find(target) {
                    Some(piece) if !piece.is_place() && piece.offset < target => (piece, target),
                    _ => return Ok(published.pieces.boundary(target).unwrap_or(published.core.length)),
                }
            };
            looked += 1;
            match cold.boundary(&inside, target).await {
                Err(error) if error.is_gone() && looked < LOOK_AGAIN_MAX => {}
                found => return Ok(found?),
            }
        }
    }

    /// What of the segment lies in objects, in offset order.
    pub fn extents(&self) -> Vec<Extent> {
        let extent = |piece: &Piece| match piece.source {
            Source::Extent { stored, skip } => {
                let length = u32::try_from(piece.length).unwrap_or(u32::MAX);
                Some(Extent { segment: self.id, offset: piece.offset, length, skip, stored })
            }
            Source::Place { .. } | Source::Records { .. } => None,
        };
        self.pieces(|pieces| pieces.iter().filter_map(extent).collect())
    }

    /// Looks at the pieces under the lock; `look` must be short.
    pub(crate) fn pieces<T>(&self, look: impl FnOnce(&Pieces) -> T) -> T {
        look(&self.published.read().pieces)
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

    /// Reads up to `bytes_max` bytes from `offset` if the reply is known now.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such offset or the log cannot give the bytes.
    pub fn try_read(&self, log: &dyn Log, offset: u64, bytes_max: usize) -> Result<Look, ReadError> {
        let mut looked = 0;
        loop {
            let (pieces, core) = match self.plan(offset, bytes_max) {
                Plan::Reply(reply) => return Ok(Look::Reply(reply)),
                Plan::Wait => return Ok(Look::Wait),
                Plan::Cold(cold) => return Ok(Look::Cold(cold)),
                Plan::Beyond => return Err(ReadError::BeyondEnd { offset }),
                Plan::Fetch { pieces, core } => (pieces, core),
            };
            looked += 1;
            match fetch(log, &pieces, offset, bytes_max) {
                Ok(chunks) => return Ok(Look::Reply(data(chunks, offset, core))),
                // The segment was truncated, deleted or tiered meanwhile, and the log file recycled.
                Err(ReadError::Log(LogError::Gone { .. })) if looked < LOOK_AGAIN_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a read at `offset` need not wait at the tail: the segment has grown past it, or never will.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn passed(&self, offset: u64) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if !self.waits_at(offset) {
                return;
            }
            changed.await;
        }
    }

    fn waits_at(&self, offset: u64) -> bool {
        let published = self.published.read();
        let core = published.core;
        core.exists && !published.closed && !core.sealed && offset >= core.start.max(core.length)
    }

    /// Reads up to `bytes_max` bytes from `offset`, waiting at the tail without limit.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such offset or nobody can give the bytes.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read(
        &self,
        log: &dyn Log,
        cold: &ColdReader,
        offset: u64,
        bytes_max: usize,
    ) -> Result<ReadReply, ReadError> {
        let mut looked = 0;
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Listening starts before the look, so that no publication falls between them.
            changed.as_mut().enable();
            let found = match self.try_read(log, offset, bytes_max)? {
                Look::Reply(reply) => return Ok(reply),
                Look::Wait => {
                    changed.await;
                    continue;
                }
                Look::Cold(found) => found,
            };
            looked += 1;
            match cold.read(self.id, &found.extents, offset, bytes_max).await {
                Ok(mut chunks) => {
                    chunks.extend(log_behind(log, &found, offset, &chunks, bytes_max));
                    return Ok(data(chunks, offset, found.core));
                }
                // The bytes were moved to another object, or truncated, and this one deleted.
                Err(error) if error.is_gone() && looked < LOOK_AGAIN_MAX => {}
                Err(error) => return Err(error.into()),
            }
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
        let wanted = |piece: &&Piece| piece.offset < end;
        let mut pieces = published.pieces.from(offset).peekable();
        if pieces.peek().is_none_or(|piece| piece.is_place()) {
            let places = pieces.take_while(|piece| piece.is_place()).take_while(wanted);
            return Plan::Fetch { pieces: places.copied().collect(), core };
        }
        let mut extents = Vec::new();
        let ahead = end.saturating_add(AHEAD_BYTES_MAX);
        while extents.len() < AHEAD_EXTENTS_MAX
            && let Some(extent) = pieces.next_if(|piece| !piece.is_place() && piece.offset < ahead)
        {
            extents.push(*extent);
        }
        let places = pieces.take_while(|piece| piece.is_place()).take_while(wanted).copied().collect();
        Plan::Cold(ColdBytes { extents, places, core })
    }
}

/// What the log holds right behind the chunks of a cold read, if it goes so far. What it cannot give the next read asks
/// for, and hears why.
fn log_behind(
    log: &dyn Log,
    found: &ColdBytes,
    offset: u64,
    chunks: &[Bytes],
    bytes_max: usize,
) -> Vec<Bytes> {
    let read: usize = chunks.iter().map(Bytes::len).sum();
    let at = offset + read as u64;
    let begins = |place: &Piece| place.offset == at;
    if read == bytes_max || !found.places.first().is_some_and(begins) {
        return Vec::new();
    }
    fetch(log, &found.places, at, bytes_max - read).unwrap_or_default()
}

fn data(chunks: Vec<Bytes>, offset: u64, core: Core) -> ReadReply {
    let end = offset + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
    let (at_tail, end_of_segment) = (end == core.length && !core.sealed, end == core.length && core.sealed);
    ReadReply::Data { chunks, at_tail, end_of_segment }
}

/// All bytes of `pieces`, which lie in the log and follow each other.
pub(crate) fn log_chunks(log: &dyn Log, pieces: &[Piece]) -> Result<Vec<Bytes>, ReadError> {
    let Some(first) = pieces.first() else { return Ok(Vec::new()) };
    fetch(log, pieces, first.offset, usize::MAX)
}

/// Fetches `offset..offset + bytes_max` out of `pieces`, which lie in the log, as far as they go.
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
            Source::Extent { .. } => unreachable!("only places lie in the log"),
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
