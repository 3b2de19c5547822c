//! Stream cuts: one position in each segment of a complete cover of the key space.
//!
//! A cut comes from clients and need not make sense. [`StreamCut::place`] finds its segments, and
//! [`StreamCut::check`] decides whether it covers the key space: only a [`ValidCut`] changes a stream, while a
//! [`PlacedCut`] is enough for questions. Nothing here knows lengths of segments.

#[cfg(test)]
mod tests;
pub mod truncation;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::epoch::EpochRecord;
use super::segment::{KeyRange, Segment, SegmentId};

/// The offset of a segment that is not reached yet because a predecessor is still being read.
pub const FUTURE: i64 = -1;

/// Positions by segment, as they came; an offset of [`FUTURE`] marks a segment not reached yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamCut(pub BTreeMap<SegmentId, i64>);

/// Some epochs of a stream, in order. Which ones a function needs, it says.
#[derive(Debug, Clone, Copy)]
pub struct Epochs<'a>(&'a [EpochRecord]);

/// A cut whose segments are known, with their ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedCut {
    /// Positions, ordered by range.
    positions: Vec<(Segment, i64)>,
    /// Segments not reached yet, ordered by range and id.
    future: Vec<Segment>,
}

/// A placed cut that makes sense: its positions do not overlap, and what they leave out is future.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidCut(PlacedCut);

/// A range of keys with the position that a cut has there.
pub(super) type Spread = (KeyRange, (SegmentId, i64));

/// Why a cut makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// It has no entry, or none but future ones.
    #[error("reading a stream cut without a position")]
    NoPosition,
    /// A segment belongs to an epoch that the stream does not have.
    #[error("reading a stream cut with segment {0} of an unknown epoch")]
    UnknownEpoch(SegmentId),
    /// A segment does not belong to the epoch that its id names.
    #[error("reading a stream cut with unknown segment {0}")]
    UnknownSegment(SegmentId),
    /// Two positions share keys.
    #[error("reading a stream cut in which {0} and {1} overlap")]
    Overlap(SegmentId, SegmentId),
    /// A future segment is older than a position with which it shares keys.
    #[error("reading a stream cut in which future segment {future} is older than {position}")]
    FutureTooOld {
        /// The future segment.
        future: SegmentId,
        /// The position.
        position: SegmentId,
    },
    /// Keys are covered neither by positions nor by future segments that follow what has been read.
    #[error("reading a stream cut that leaves out keys {0}")]
    Gap(KeyRange),
}

/// How a cut lies to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOrder {
    /// Nowhere before the other.
    EqualOrAfter,
    /// Somewhere before and nowhere after the other.
    Before,
    /// Somewhere before and somewhere after.
    Overlaps,
}

/// A range of cuts whose end is not equal to or after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading a range of stream cuts that is {0:?} where it starts")]
pub struct Reversed(pub CutOrder);

impl<'a> Epochs<'a> {
    /// Takes epochs that are ordered by their number.
    pub fn new(records: &'a [EpochRecord]) -> Self {
        assert!(records.is_sorted_by(|a, b| a.epoch < b.epoch), "epochs in their order");
        Self(records)
    }

    /// Returns one of them.
    pub fn get(self, epoch: i32) -> Option<&'a EpochRecord> {
        self.0.binary_search_by_key(&epoch, |record| record.epoch).ok().and_then(|at| self.0.get(at))
    }

    /// Returns a segment, if the epoch that created it is among them.
    pub fn segment(self, id: SegmentId) -> Option<&'a Segment> {
        self.get(id.epoch())?.segment(id)
    }

    /// Returns those of them that lie in `range`, in order.
    pub fn within(self, range: RangeInclusive<i32>) -> impl Iterator<Item = &'a EpochRecord> {
        self.0.iter().filter(move |record| range.contains(&record.epoch))
    }
}

impl StreamCut {
    /// Takes a cut as it travels on the wire.
    pub fn from_raw(entries: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self(entries.into_iter().map(|(id, offset)| (SegmentId::from_raw(id), offset)).collect())
    }

    /// Returns the entries as they travel on the wire, ordered by id.
    pub fn raw(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().map(|(id, offset)| (id.raw(), *offset))
    }

    /// Returns the epochs whose rows the cut's other functions need, in order, given the number of the active one.
    ///
    /// Only a cut with future segments needs more than the epochs that its ids name, however old some of them are.
    ///
    /// # Errors
    /// [`CutError::NoPosition`] for an empty cut and [`CutError::UnknownEpoch`] if an id names an epoch that does not
    /// exist: no row is loaded for a made-up id.
    pub fn epochs(&self, active: i32) -> Result<Vec<i32>, CutError> {
        let (Some(first), Some(last)) = (self.0.keys().next(), self.0.keys().next_back()) else {
            return Err(CutError::NoPosition);
        };
        if first.epoch() < 0 {
            return Err(CutError::UnknownEpoch(*first));
        }
        if last.epoch() > active {
            return Err(CutError::UnknownEpoch(*last));
        }
        if self.0.values().any(|offset| *offset == FUTURE) {
            return Ok((first.epoch()..=last.epoch()).collect());
        }
        let mut epochs: Vec<i32> = self.0.keys().map(|id| id.epoch()).collect();
        epochs.dedup();
        Ok(epochs)
    }

    /// Finds the segments of the cut. `epochs` holds at least what [`StreamCut::epochs`] asks for.
    ///
    /// # Errors
    /// [`CutError::UnknownEpoch`] or [`CutError::UnknownSegment`] for an id that names no segment.
    pub fn place(&self, epochs: Epochs<'_>) -> Result<PlacedCut, CutError> {
        let mut entries = Vec::with_capacity(self.0.len());
        for (&id, &offset) in &self.0 {
            let epoch = epochs.get(id.epoch()).ok_or(CutError::UnknownEpoch(id))?;
            let segment = epoch.segment(id).ok_or(CutError::UnknownSegment(id))?;
            entries.push((*segment, offset));
        }
        Ok(PlacedCut::of(entries))
    }

    /// Decides whether the cut makes sense. `epochs` holds at least what [`StreamCut::epochs`] asks for.
    ///
    /// # Errors
    /// [`CutError`] says what is wrong with it.
    pub fn check(&self, epochs: Epochs<'_>) -> Result<ValidCut, CutError> {
        let cut = self.place(epochs)?;
        if cut.positions.is_empty() {
            return Err(CutError::NoPosition);
        }
        cut.check_positions()?;
        cut.check_future()?;
        for gap in cut.gaps() {
            cut.check_gap(gap, epochs)?;
        }
        Ok(ValidCut(cut))
    }
}

impl ValidCut {
    /// The start of an epoch: every segment at offset 0.
    pub fn start_of(epoch: &EpochRecord) -> Self {
        Self(PlacedCut::start_of(epoch))
    }

    /// Returns the cut with what is known of its segments.
    pub const fn placed(&self) -> &PlacedCut {
        &self.0
    }

    /// Returns segments and offsets, ordered by range, without the future ones.
    pub fn positions(&self) -> &[(Segment, i64)] {
        self.0.positions()
    }

    /// Returns the cut as it travels and is stored.
    pub fn to_cut(&self) -> StreamCut {
        self.0.to_cut()
    }

    /// Compares the cut to another, see [`PlacedCut::compare`].
    pub fn compare(&self, other: &Self) -> CutOrder {
        self.0.compare(&other.0)
    }
}

impl PlacedCut {
    /// The start of an epoch: every segment at offset 0.
    pub fn start_of(epoch: &EpochRecord) -> Self {
        Self::at(epoch, 0)
    }

    /// The end of an epoch, wherever its segments end.
    pub fn end_of(epoch: &EpochRecord) -> Self {
        Self::at(epoch, i64::MAX)
    }

    fn at(epoch: &EpochRecord, offset: i64) -> Self {
        Self::of(epoch.segments.iter().map(|segment| (*segment, offset)))
    }

    /// Takes segments, ordered by id, with their offsets.
    pub(super) fn of(entries: impl IntoIterator<Item = (Segment, i64)>) -> Self {
        let (future, mut positions): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(_, offset)| *offset == FUTURE);
        let mut future: Vec<Segment> = future.into_iter().map(|(segment, _)| segment).collect();
        // Both sorts are stable: entries of one range stay in the order of their ids.
        positions.sort_by(|(a, _), (b, _)| a.range.order(&b.range));
        future.sort_by(|a, b| a.range.order(&b.range));
        Self { positions, future }
    }

    /// Returns segments and offsets, ordered by range, without the future ones.
    pub fn positions(&self) -> &[(Segment, i64)] {
        &self.positions
    }

    /// Returns the segments not reached yet, ordered by range.
    pub fn future(&self) -> &[Segment] {
        &self.future
    }

    /// Returns the cut as it travels and is stored.
    pub fn to_cut(&self) -> StreamCut {
        let positions = self.positions.iter().map(|(segment, offset)| (segment.id(), *offset));
        let future = self.future.iter().map(|segment| (segment.id(), FUTURE));
        StreamCut(positions.chain(future).collect())
    }

    /// Returns the lowest and the highest epoch in which a segment of the cut was created.
    pub fn epochs(&self) -> RangeInclusive<i32> {
        let epochs = || self.segments().map(|segment| segment.epoch);
        epochs().min().unwrap_or(0)..=epochs().max().unwrap_or(0)
    }

    /// Returns the segments of the cut, those not reached yet last.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.positions.iter().map(|(segment, _)| segment).chain(&self.future)
    }
}

impl PlacedCut {
    /// Compares the cut to another: wherever they share keys, the newer segment is after the older one, and within
    /// one segment the offset decides.
    pub fn compare(&self, other: &Self) -> CutOrder {
        let (mut before, mut after) = (false, false);
        let theirs = other.spread();
        for (range, mine) in &self.spread() {
            for (other_range, theirs) in &theirs {
                if range.overlaps(*other_range) {
                    before |= mine < theirs;
                    after |= mine > theirs;
                }
            }
        }
        match (before, after) {
            (false, _) => CutOrder::EqualOrAfter,
            (true, false) => CutOrder::Before,
            (true, true) => CutOrder::Overlaps,
        }
    }

    /// Returns the cut as positions by range, ordered; those of a valid cut cover the key space exactly once.
    ///
    /// A future segment counts only where no position does, and of several the oldest: that one is read next.
    pub(super) fn spread(&self) -> Vec<Spread> {
        let mut spread: Vec<Spread> =
            self.positions.iter().map(|(segment, offset)| (segment.range, (segment.id(), *offset))).collect();
        let mut gaps = self.gaps();
        let mut future: Vec<&Segment> = self.future.iter().collect();
        future.sort_by_key(|segment| segment.id());
        for segment in future {
            let covered = gaps.iter().filter_map(|gap| gap.intersection(segment.range));
            spread.extend(covered.map(|range| (range, (segment.id(), FUTURE))));
            gaps = gaps.into_iter().flat_map(|gap| gap.without(segment.range)).collect();
        }
        spread.sort_by(|(a, _), (b, _)| a.order(b));
        spread
    }

    /// Returns the ranges that no position covers.
    fn gaps(&self) -> Vec<KeyRange> {
        let mut gaps = Vec::new();
        let mut low = KeyRange::FULL.low();
        for (segment, _) in &self.positions {
            gaps.extend(KeyRange::new(low, segment.range.low()));
            low = low.max(segment.range.high());
        }
        gaps.extend(KeyRange::new(low, KeyRange::FULL.high()));
        gaps
    }

    fn check_positions(&self) -> Result<(), CutError> {
        for ((left, _), (right, _)) in self.positions.iter().zip(self.positions.iter().skip(1)) {
            if left.overlaps(right) {
                return Err(CutError::Overlap(left.id(), right.id()));
            }
        }
        Ok(())
    }

    fn check_future(&self) -> Result<(), CutError> {
        for future in &self.future {
            let older =
                |(position, _): &&(Segment, i64)| position.overlaps(future) && future.id() < position.id();
            if let Some((position, _)) = self.positions.iter().find(older) {
                return Err(CutError::FutureTooOld { future: future.id(), position: position.id() });
            }
        }
        Ok(())
    }

    /// Walks from the oldest epoch of the cut to the future segments that are to fill `gap`.
    fn check_gap(&self, gap: KeyRange, epochs: Epochs<'_>) -> Result<(), CutError> {
        let mut open = vec![gap];
        for epoch in epochs.within(self.epochs()) {
            let mut left = Vec::new();
            for range in open {
                for segment in epoch.overlapping(range) {
                    let Some(part) = range.intersection(segment.range) else { continue };
                    if self.future.contains(segment) {
                        continue;
                    }
                    // What lies behind the gap has been read to its end, so no position is in it or before it.
                    let unread = |(position, _): &&(Segment, i64)| {
                        position.overlaps(segment) && position.id() <= segment.id()
                    };
                    if self.positions.iter().any(|position| unread(&position)) {
                        return Err(CutError::Gap(part));
                    }
                    left.push(part);
                }
            }
            open = left;
        }
        open.first().map_or(Ok(()), |range| Err(CutError::Gap(*range)))
    }
}
