//! Reading what lies in objects.
//!
//! A read waits for the first byte it wants and takes along what else is there by then, never more; what it wants and
//! is not there is fetched once, whoever asks. A reader that goes on where it stopped has what follows fetched ahead,
//! more each time. GETs run on the storage runtime, within budgets that all containers share. Every byte handed out
//! was checked against its block's checksum when it came; none is checked again, and none is handed out unchecked.

mod cache;
mod fetch;
mod unit;
mod window;

pub use cache::{ColdCache, ReadConfig};

use super::Pins;
use crate::state::{Piece, Source};
use crate::tier::{BLOCK_BYTES, ObjectError, Objects, TierError};
use crate::types::{ContainerId, ObjectId, SegmentId};
use bytes::Bytes;
use cache::{Found, Reading, Touch};
use dhara_stdx::Retry;
use dhara_stdx::budget::BytePermit;
use fetch::{Room, brought, landed, start};
use std::sync::Arc;
use unit::{Slice, UNIT_BYTES, Unit, slices};
use window::{Position, WINDOW_BYTES_MAX};

/// How far behind what a read asks for it is worth to know where bytes lie.
pub(super) const AHEAD_BYTES_MAX: u64 = WINDOW_BYTES_MAX;
/// Extents that are worth to be known behind the first.
pub(super) const AHEAD_EXTENTS_MAX: usize = 64;

/// Why bytes of an object cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColdError {
    /// The store did not give them.
    #[error("read {length} bytes of object {object} from {at} on, or its footer")]
    Tier {
        /// The object's name in its store.
        object: String,
        /// Where the bytes lie in it.
        at: u32,
        /// How many; 0 for its footer.
        length: u64,
        /// What the store said.
        #[source]
        source: Arc<TierError>,
    },
    /// They are not what was stored, twice in a row.
    #[error("{length} bytes of object {object} from {at} on are not what was stored")]
    Wrong {
        /// The object's name in its store.
        object: String,
        /// Where the bytes lie in it.
        at: u32,
        /// How many.
        length: u32,
        /// What is wrong with them.
        #[source]
        source: ObjectError,
    },
    /// Nothing is read any more: the process ends.
    #[error("reads of objects have ended")]
    Ended,
}

impl ColdError {
    /// Whether the object is not there: its bytes lie elsewhere by now, or are not wanted any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Tier { source, .. } if matches!(**source, TierError::NotFound { .. }))
    }

    /// Whether the store failed in a way that may be over soon. One that gave no answer has had its time.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Tier { source, .. }
            if matches!(**source, TierError::Store { .. }) && source.retry() == Retry::Safe)
    }

    /// Whether the store gave bytes, but other ones than it was given.
    fn is_wrong(&self) -> bool {
        match self {
            Self::Wrong { .. } => true,
            Self::Tier { source, .. } => {
                matches!(**source, TierError::Malformed { .. } | TierError::Length { .. })
            }
            Self::Ended => false,
        }
    }
}

/// Reads the objects of one container; clones share everything.
#[derive(Clone, Debug)]
pub struct ColdReader {
    container: ContainerId,
    objects: Objects,
    pins: Pins,
    cache: ColdCache,
}

/// Bytes of a reply, with the memory they account for.
struct Held {
    bytes: Bytes,
    _permit: Arc<BytePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A slice that is there, or will be.
struct Sought {
    slice: Slice,
    found: Found,
    /// This read has started the GET for it.
    ours: bool,
}

impl ColdReader {
    /// A reader of a container's objects that pins what it reads.
    pub fn new(container: ContainerId, objects: Objects, pins: Pins, cache: ColdCache) -> Self {
        Self { container, objects, pins, cache }
    }

    /// The name of an object in its store.
    pub fn name_of(&self, id: ObjectId) -> String {
        self.objects.path(id).to_string()
    }

    /// Reads up to `bytes_max` bytes, at least one, of `segment` from `offset` on. `extents` follow each other and
    /// the first holds `offset`; those behind `bytes_max` may be read ahead.
    ///
    /// The bytes count against the budget of replies until the last of them is dropped; a read waits for room there.
    ///
    /// # Errors
    /// [`ColdError`] if the store cannot give the first byte, or it is damaged.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read(
        &self,
        segment: SegmentId,
        extents: &[Piece],
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<Bytes>, ColdError> {
        let end = offset.saturating_add(bytes_max as u64);
        let asked: Vec<Slice> = slices(extents, offset, end).collect();
        let permit = self.cache.0.replies.bytes.acquire(bytes_of(&asked)).await;
        let position = Position { container: self.container, segment, offset };
        let mut reading = self.cache.0.begin(&position);
        let sought = self.seek(&mut reading, extents, &asked, end).await?;
        let chunks = self.gather(&sought, bytes_max, permit);
        let length: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        assert!(length > 0, "the first slice is there");
        reading.end(Position { offset: offset + length, ..position });
        Ok(chunks)
    }

    /// Finds what was asked for, and waits until the first of it is there.
    async fn seek(
        &self,
        reading: &mut Reading,
        extents: &[Piece],
        asked: &[Slice],
        end: u64,
    ) -> Result<Vec<Sought>, ColdError> {
        let mut tried = false;
        loop {
            let mut sought = self.look(reading, asked);
            if sought.is_empty() {
                continue;
            }
            self.read_ahead(reading, extents, end, &sought);
            let Some(first) = sought.first_mut() else { continue };
            let Found::Coming(landing) = &mut first.found else { return Ok(sought) };
            match landed(landing).await {
                Ok(()) => return Ok(sought),
                // That GET was another's, and as old as that one's question.
                Err(error) if !first.ours && !tried && !error.is_gone() => tried = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds the slices asked for up to the first that nobody has asked for yet, and starts a GET if that is the very
    /// first. Empty if another was quicker: then it is to be looked for again.
    fn look(&self, reading: &mut Reading, asked: &[Slice]) -> Vec<Sought> {
        let mut sought = Vec::with_capacity(asked.len());
        for slice in asked {
            let goes_on = sought.is_empty() && slice.skip > 0 && reading.window.is_sequential();
            let touch = if goes_on { Touch::GoOn } else { Touch::Use };
            match self.cache.0.find(&slice.unit.key(self.container), touch) {
                Found::Absent if sought.is_empty() => return self.fetch(reading, asked),
                Found::Absent => break,
                found => sought.push(Sought { slice: *slice, found, ours: false }),
            }
        }
        sought
    }

    /// Starts one GET for as much of what was asked for as lies back to back.
    fn fetch(&self, reading: &mut Reading, asked: &[Slice]) -> Vec<Sought> {
        let shared = &self.cache.0;
        let bytes_max = shared.fetching.bytes_max.max(u64::from(UNIT_BYTES));
        let run = back_to_back(asked, bytes_max);
        let mut units: Vec<Unit> = run.iter().map(|slice| slice.unit).collect();
        units.dedup();
        // What a reader in order takes in several steps is kept for it, unless that would have to wait.
        let kept = if reading.window.is_sequential() { shared.permit_ahead(bytes_of(run)) } else { None };
        let keeps = kept.is_some();
        let room = kept.map_or(Room::Waited, |permit| Room::Kept { permit, get: None });
        let Some((landing, count)) = start(self, &units, room) else { return Vec::new() };
        let run = leading(run, &units[..count]);
        if keeps {
            let kept = run.iter().map(|slice| (slice.end(), slice.unit.key(self.container)));
            // They lie before all that was read ahead.
            kept.rev().for_each(|unit| reading.window.kept.push_front(unit));
        }
        let coming =
            |slice: &Slice| Sought { slice: *slice, found: Found::Coming(landing.clone()), ours: true };
        run.iter().map(coming).collect()
    }

    /// Starts GETs for what a reader in order will ask for next, as far as there is room now.
    fn read_ahead(&self, reading: &mut Reading, extents: &[Piece], end: u64, sought: &[Sought]) {
        let (window, shared) = (&mut reading.window, &self.cache.0);
        let known_upto = extents.last().map_or(0, Piece::end);
        let sought_upto = sought.last().map_or(0, |sought| sought.slice.end());
        let from = window.asked_upto.max(sought_upto);
        let to = end.saturating_add(window.size()).min(known_upto);
        let get_bytes = window.get_bytes();
        if !window.is_sequential() || from >= to {
            return;
        }
        let ahead: Vec<Slice> = slices(extents, from, to).collect();
        let mut rest = &ahead[..];
        while let Some(first) = rest.first()
            && window.gets_free() > 0
        {
            let key = first.unit.key(self.container);
            if !matches!(shared.find(&key, Touch::GoOn), Found::Absent) {
                window.asked_upto = first.end();
                rest = &rest[1..];
                continue;
            }
            let run = back_to_back(rest, get_bytes);
            let bytes = bytes_of(run);
            // Small steps of a reader add up to one GET.
            if run.len() == rest.len() && to < known_upto && bytes < get_bytes {
                return;
            }
            let Some((permit, get)) = shared.room_ahead(bytes) else { return };
            let mut units: Vec<Unit> = run.iter().map(|slice| slice.unit).collect();
            units.dedup();
            let room = Room::Kept { permit, get: Some(get) };
            let Some((landing, count)) = start(self, &units, room) else { continue };
            window.started(landing);
            let run = leading(run, &units[..count]);
            for slice in run {
                window.kept.push_back((slice.end(), slice.unit.key(self.container)));
                window.asked_upto = slice.end();
            }
            rest = &rest[run.len()..];
        }
    }

    /// What is there of what was sought, up to the first that is not. The bytes hold on to as much of the permit as they
    /// take.
    fn gather(&self, sought: &[Sought], bytes_max: usize, mut permit: BytePermit) -> Vec<Bytes> {
        let mut room = bytes_max;
        let mut parts = Vec::with_capacity(sought.len());
        for Sought { slice, found, .. } in sought {
            let unit = match found {
                Found::Here(bytes) => bytes.clone(),
                Found::Coming(landing) => match brought(landing, &slice.unit.key(self.container)) {
                    Some(bytes) => bytes,
                    None => break,
                },
                Found::Absent => break,
            };
            let from = to_usize(slice.skip);
            let part = unit.slice(from..from + room.min(to_usize(slice.length)));
            room -= part.len();
            parts.push((*slice, part));
        }
        let slices: Vec<Slice> = parts.iter().map(|(slice, _)| *slice).collect();
        // Fewer are held only if the whole budget is less than one read; then that is all there is to hold.
        let held = Arc::new(permit.split(bytes_of(&slices)).unwrap_or(permit));
        let hold = |bytes| Bytes::from_owner(Held { bytes, _permit: Arc::clone(&held) });
        parts.into_iter().map(|(_, part)| hold(part)).collect()
    }

    /// The first append boundary of an extent at or after `target`, as far as its object tells; else its end.
    ///
    /// # Errors
    /// [`ColdError`] if the store cannot give the object's footer, or it is damaged.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn boundary(&self, piece: &Piece, target: u64) -> Result<u64, ColdError> {
        let Source::Extent { stored, skip } = piece.source else { unreachable!("only extents are cold") };
        if stored.length <= BLOCK_BYTES {
            return Ok(piece.end());
        }
        let footer = self.cache.0.footer(self, stored.object, false).await?;
        let boundaries = footer.range_of(&stored).map(|range| &range.boundaries[..]).unwrap_or_default();
        let offsets = boundaries.iter().filter_map(|at| at.checked_sub(skip)).map(u64::from);
        let found = offsets.map(|at| piece.offset + at).find(|at| *at >= target && *at < piece.end());
        Ok(found.unwrap_or(piece.end()))
    }
}

/// The leading slices whose units lie back to back in one object: at least one, and then at most `bytes_max` bytes.
fn back_to_back(slices: &[Slice], bytes_max: u64) -> &[Slice] {
    let mut bytes = slices.first().map_or(0, |slice| u64::from(slice.unit.length()));
    let joins = |pair: &&[Slice]| {
        let [before, next] = pair else { return false };
        if before.unit != next.unit {
            bytes += u64::from(next.unit.length());
        }
        bytes <= bytes_max && (before.unit == next.unit || before.unit.touches(&next.unit))
    };
    let joined = slices.windows(2).take_while(joins).count();
    &slices[..slices.len().min(joined + 1)]
}

/// Bytes of the units of these slices.
fn bytes_of(slices: &[Slice]) -> u64 {
    let mut before = None;
    let differs = |slice: &&Slice| before.replace(slice.unit) != Some(slice.unit);
    slices.iter().filter(differs).map(|slice| u64::from(slice.unit.length())).sum()
}

/// The leading slices that lie in these units.
fn leading<'a>(slices: &'a [Slice], units: &[Unit]) -> &'a [Slice] {
    let count = slices.iter().take_while(|slice| units.contains(&slice.unit)).count();
    &slices[..count]
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
