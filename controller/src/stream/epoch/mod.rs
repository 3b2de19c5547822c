//! The epochs of a stream: complete covers of the key space, one after the other.
//!
//! One record is one row and never changes once written. The history of a stream is the sequence of its records
//! together with one row per sealed segment naming the epoch that replaced it.

pub mod scale;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::segment::{KeyRange, Segment, SegmentId, are_contiguous};

/// One epoch of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochRecord {
    /// Number of the epoch; epochs of a stream count up from 0 without gaps.
    pub epoch: i32,
    /// The epoch of which this one is a duplicate made by a rolling transaction, else the epoch itself.
    pub reference_epoch: i32,
    /// The segments, ordered by range; together they cover `[0, 1]` exactly.
    pub segments: Vec<Segment>,
    /// Creation time in milliseconds since 1970; rises strictly from epoch to epoch.
    pub created_ms: i64,
    /// Splits from the first epoch up to and including this one.
    pub splits: i64,
    /// Merges from the first epoch up to and including this one.
    pub merges: i64,
}

/// One successor of a segment with everything that must be read before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// The successor.
    pub segment: Segment,
    /// Ids of all segments of the epoch before that share keys with the successor, ordered by range.
    pub predecessors: Vec<SegmentId>,
}

/// The two epochs that a rolling transaction adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingEpochs {
    /// Duplicate of the transactions' epoch, into which they are merged; sealed as soon as it exists.
    pub transactions: EpochRecord,
    /// Duplicate of the active epoch, active afterwards.
    pub active: EpochRecord,
}

/// The number of segments or epochs of the stream has reached the largest that ids can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("numbering the next epoch of the stream")]
pub struct Exhausted;

impl EpochRecord {
    /// Creates epoch 0 with `count` equal ranges, their segments numbered from `first_number`.
    ///
    /// `first_number` is 0 for a new name and one above the highest number ever used by a deleted stream of the same
    /// name, so that no segment name comes back.
    ///
    /// # Errors
    /// [`Exhausted`] if the numbers do not fit.
    pub fn first(count: u32, first_number: i32, now_ms: i64) -> Result<Self, Exhausted> {
        assert!(count > 0, "an epoch has segments");
        let ranges = (0..count).map(|index| KeyRange::equal_part(index, count));
        let segments = numbered(ranges, first_number, 0, now_ms)?;
        Ok(Self { epoch: 0, reference_epoch: 0, segments, created_ms: now_ms, splits: 0, merges: 0 })
    }

    /// Returns the segment with this id, if it belongs to the epoch.
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.id() == id)
    }

    /// Returns the segment with this number; within an epoch numbers are unique.
    pub fn numbered(&self, number: i32) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.number == number)
    }

    /// Returns the segments that share keys with `range`, ordered by range.
    pub fn overlapping(&self, range: KeyRange) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.range.overlaps(range))
    }

    /// Returns the highest segment number of the epoch, which is the highest that the stream has used so far.
    pub fn highest_number(&self) -> i32 {
        self.segments.iter().map(|segment| segment.number).max().unwrap_or(-1)
    }

    /// Whether the ranges cover `[0, 1]` exactly, in order, the last bound being 1.0.
    pub fn is_cover(&self) -> bool {
        let ranges: Vec<KeyRange> = self.segments.iter().map(|segment| segment.range).collect();
        are_contiguous(&ranges)
            && ranges.first().is_some_and(|range| range.low().to_bits() == KeyRange::FULL.low().to_bits())
            && ranges.last().is_some_and(|range| range.high().to_bits() == KeyRange::FULL.high().to_bits())
    }

    /// Returns the epoch after this one in which `sealed` have been replaced by `created`.
    ///
    /// The caller has checked that the two cover the same keys.
    ///
    /// # Errors
    /// [`Exhausted`] if no epoch number is left.
    pub fn replaced(
        &self,
        sealed: &[SegmentId],
        created: &[Segment],
        created_ms: i64,
    ) -> Result<Self, Exhausted> {
        let epoch = self.epoch.checked_add(1).ok_or(Exhausted)?;
        let sealed: BTreeSet<SegmentId> = sealed.iter().copied().collect();
        let kept = self.segments.iter().filter(|segment| !sealed.contains(&segment.id()));
        let mut segments: Vec<Segment> = kept.chain(created).copied().collect();
        segments.sort_by(|a, b| a.range.order(&b.range));
        let (splits, merges) = self.changes_to(created);
        let next = Self {
            epoch,
            reference_epoch: epoch,
            segments,
            created_ms,
            splits: self.splits + splits,
            merges: self.merges + merges,
        };
        assert!(next.is_cover(), "an epoch covers the key space");
        Ok(next)
    }

    /// Returns the two epochs that a rolling transaction adds after this, the active one.
    ///
    /// `transactions` is the epoch in which the transactions were begun. Numbers and ranges are kept; only the
    /// creation epochs are new.
    ///
    /// # Errors
    /// [`Exhausted`] if the epochs do not fit.
    pub fn rolled(&self, transactions: &Self, now_ms: i64) -> Result<RollingEpochs, Exhausted> {
        let first_ms = now_ms.max(self.created_ms.saturating_add(1));
        let epoch = self.epoch.checked_add(1).ok_or(Exhausted)?;
        let merged_into = self.followed_by(transactions, epoch, first_ms);
        let epoch = epoch.checked_add(1).ok_or(Exhausted)?;
        let active = merged_into.followed_by(self, epoch, first_ms.saturating_add(1));
        Ok(RollingEpochs { transactions: merged_into, active })
    }

    /// Duplicates `original` as the epoch after this one.
    fn followed_by(&self, original: &Self, epoch: i32, created_ms: i64) -> Self {
        let segments: Vec<Segment> =
            original.segments.iter().map(|segment| Segment { epoch, created_ms, ..*segment }).collect();
        let (splits, merges) = self.changes_to(&segments);
        Self {
            epoch,
            reference_epoch: original.reference_epoch,
            segments,
            created_ms,
            splits: self.splits + splits,
            merges: self.merges + merges,
        }
    }

    /// Counts the splits and merges that replacing part of this epoch by `created` makes.
    fn changes_to(&self, created: &[Segment]) -> (i64, i64) {
        let split = |old: &&Segment| created.iter().filter(|new| new.overlaps(old)).nth(1).is_some();
        let merged = |new: &&Segment| self.overlapping(new.range).nth(1).is_some();
        (count(self.segments.iter().filter(split)), count(created.iter().filter(merged)))
    }
}

/// Returns the successors of `segment` with their predecessors.
///
/// `sealed_in` is the epoch at whose creation `segment` was replaced, `before` the epoch preceding it. A segment
/// without such an epoch has no successors: it is active, or was when the stream was sealed.
pub fn successors(segment: &Segment, sealed_in: &EpochRecord, before: &EpochRecord) -> Vec<Successor> {
    assert_eq!(before.epoch.checked_add(1), Some(sealed_in.epoch), "epochs that follow each other");
    sealed_in
        .overlapping(segment.range)
        .map(|successor| Successor {
            segment: *successor,
            predecessors: before.overlapping(successor.range).map(Segment::id).collect(),
        })
        .collect()
}

/// Numbers `ranges` from `first_number` as segments created in `epoch`.
pub(super) fn numbered(
    ranges: impl IntoIterator<Item = KeyRange>,
    first_number: i32,
    epoch: i32,
    created_ms: i64,
) -> Result<Vec<Segment>, Exhausted> {
    let mut next = Some(first_number);
    ranges
        .into_iter()
        .map(|range| {
            let number = next.ok_or(Exhausted)?;
            next = number.checked_add(1);
            Ok(Segment { number, epoch, range, created_ms })
        })
        .collect()
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
