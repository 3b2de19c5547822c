//! Truncation of a stream at a cut, and the segments between two cuts.
//!
//! The head of a stream is the cut of its last truncation, or the start of its first epoch. It never moves back.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::super::segment::{Segment, SegmentId};
use super::{CutOrder, Epochs, PlacedCut, Reversed, StreamCut, ValidCut};

/// Row of a stream's truncation.
///
/// Segments deleted by earlier truncations are not listed: they all lie before the cut and never between it and a
/// later one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TruncationRecord {
    /// The head of the stream; empty if it was never truncated.
    pub cut: StreamCut,
    /// Segments that the truncation at `cut` deletes, ordered by id.
    pub delete: Vec<SegmentId>,
    /// Whether the work for `cut` is still going on.
    pub updating: bool,
}

/// What a truncation leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truncation {
    /// Write this row and do the work.
    Start(TruncationRecord),
    /// The stream is being truncated at this very cut; wait for the work to end.
    Running,
    /// The stream is truncated at this very cut.
    Done,
}

/// Why a truncation is refused. Both are answered with status FAILURE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TruncationError {
    /// Another truncation is going on.
    #[error("truncating a stream while another truncation is going on")]
    Running,
    /// The cut is not equal to or after the head.
    #[error("truncating a stream behind its head: {0:?}")]
    Behind(CutOrder),
}

impl TruncationRecord {
    /// Returns the record once the work is done.
    #[must_use]
    pub fn completed(&self) -> Self {
        Self { cut: self.cut.clone(), delete: Vec::new(), updating: false }
    }
}

/// Decides a truncation at `cut` of the stream whose head is `head`.
///
/// `record` is the present row; `epochs` holds at least what [`epochs_between`] asks for.
///
/// # Errors
/// [`TruncationError`] says why it is refused.
pub fn truncate(
    record: &TruncationRecord,
    head: &ValidCut,
    cut: &ValidCut,
    epochs: Epochs<'_>,
) -> Result<Truncation, TruncationError> {
    let asked = cut.to_cut();
    match (record.updating, record.cut == asked) {
        (true, true) => return Ok(Truncation::Running),
        (true, false) => return Err(TruncationError::Running),
        (false, true) => return Ok(Truncation::Done),
        (false, false) => {}
    }
    let between = segments_between(head.placed(), cut.placed(), epochs)
        .map_err(|Reversed(order)| TruncationError::Behind(order))?;
    let delete = between.iter().map(Segment::id).filter(|id| !asked.0.contains_key(id)).collect();
    Ok(Truncation::Start(TruncationRecord { cut: asked, delete, updating: true }))
}

/// Returns the epochs whose rows [`segments_between`] and [`truncate`] need, all of them.
pub fn epochs_between(from: &PlacedCut, to: &PlacedCut) -> RangeInclusive<i32> {
    *from.epochs().start()..=*to.epochs().end()
}

/// Returns the segments with data between two cuts, both included, ordered by id.
///
/// The cuts need not cover the key space: what they leave out bounds nothing.
///
/// # Errors
/// [`Reversed`] if `to` is not equal to or after `from`.
pub fn segments_between(
    from: &PlacedCut,
    to: &PlacedCut,
    epochs: Epochs<'_>,
) -> Result<Vec<Segment>, Reversed> {
    let order = to.compare(from);
    if order != CutOrder::EqualOrAfter {
        return Err(Reversed(order));
    }
    let (from_spread, to_spread) = (from.spread(), to.spread());
    let range = epochs_between(from, to);
    let first = *range.start();
    // Of each epoch but the first only what it created: the rest has been looked at before.
    let created = epochs.within(range).flat_map(|epoch| {
        epoch.segments.iter().filter(move |segment| epoch.epoch == first || segment.epoch == epoch.epoch)
    });
    let mut found = BTreeMap::new();
    for segment in created {
        let id = segment.id();
        let begun = from_spread.iter().all(|(range, (at, _))| !range.overlaps(segment.range) || *at <= id);
        let reached = to_spread.iter().all(|(range, (at, _))| !range.overlaps(segment.range) || id <= *at);
        if begun && reached {
            found.insert(id, *segment);
        }
    }
    Ok(found.into_values().collect())
}
