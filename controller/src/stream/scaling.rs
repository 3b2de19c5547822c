//! Automatic scaling: which segments to split or merge when a segment store reports load.
//!
//! The store decides what is hot and cold; here is decided what follows, as a request that goes the way of every other
//! scale. Each decision not to scale has a reason of its own, so that it can be explained.

use std::collections::BTreeMap;

use super::config::ScalingPolicy;
use super::epoch::EpochRecord;
use super::epoch::scale::ScaleRequest;
use super::segment::{KeyRange, Segment, SegmentId};

/// Reports older than this many milliseconds say nothing about the load of now.
pub const REPORT_AGE_MAX_MS: i64 = 10 * 60 * 1000;
/// A segment counts as cold for this many milliseconds after a report.
pub const COLD_MS: i64 = 10 * 60 * 1000;

/// A segment store's report on the load of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadReport {
    /// The segment.
    pub segment: SegmentId,
    /// Time of the report in milliseconds since 1970.
    pub reported_ms: i64,
    /// What it says.
    pub load: Load,
}

/// What a report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Hot enough for this many segments.
    Hot {
        /// Number of segments.
        splits: i32,
    },
    /// Cold at present.
    Cold,
    /// Without traffic; cold until it is replaced.
    Silent,
}

/// Times in milliseconds since 1970 until which segments count as cold.
pub type ColdMarks = BTreeMap<SegmentId, i64>;

/// Why a report leads to no scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unchanged {
    /// The number of segments is fixed.
    FixedPolicy,
    /// The report is too old.
    Old,
    /// The segment is not active any more.
    NotActive,
    /// The range of the segment is too narrow to be split.
    Narrow,
    /// There are as many segments as the policy's minimum.
    AtMinimum,
    /// No neighbour is cold too.
    NoColdNeighbour,
}

impl LoadReport {
    /// Returns until when the report marks its segment as cold, `None` if it says something else.
    pub const fn cold_until_ms(&self) -> Option<i64> {
        match self.load {
            Load::Hot { .. } => None,
            Load::Cold => Some(self.reported_ms.saturating_add(COLD_MS)),
            Load::Silent => Some(i64::MAX),
        }
    }

    /// Decides what follows from the report, `cold` holding the mark that it makes itself.
    ///
    /// # Errors
    /// [`Unchanged`] says why nothing follows.
    pub fn decide(
        &self,
        policy: &ScalingPolicy,
        active: &EpochRecord,
        cold: &ColdMarks,
        now_ms: i64,
    ) -> Result<ScaleRequest, Unchanged> {
        let rate = policy.by_rate().ok_or(Unchanged::FixedPolicy)?;
        if self.reported_ms.saturating_add(REPORT_AGE_MAX_MS) < now_ms {
            return Err(Unchanged::Old);
        }
        let at = active.segments.iter().position(|segment| segment.id() == self.segment);
        let at = at.ok_or(Unchanged::NotActive)?;
        match self.load {
            Load::Hot { splits } => split(&active.segments[at], splits.max(2).min(rate.factor.max(2))),
            Load::Cold | Load::Silent => {
                let min = usize::try_from(rate.segments_min).unwrap_or(usize::MAX);
                merge(&active.segments, at, min, |id| cold.get(&id).is_some_and(|until| now_ms <= *until))
            }
        }
    }
}

/// Splits the segment into `count` equal parts.
fn split(segment: &Segment, count: i32) -> Result<ScaleRequest, Unchanged> {
    let (low, high) = (segment.range.low(), segment.range.high());
    let bound = |index: i32| match index {
        0 => low,
        _ if index == count => high,
        _ => low + (high - low) * f64::from(index) / f64::from(count),
    };
    let ranges: Vec<(f64, f64)> = (0..count).map(|index| (bound(index), bound(index + 1))).collect();
    if ranges.iter().any(|&(low, high)| KeyRange::new(low, high).is_none()) {
        return Err(Unchanged::Narrow);
    }
    Ok(ScaleRequest { seal: vec![segment.id()], ranges })
}

/// Merges the segment with those of its neighbours that are cold too.
fn merge(
    segments: &[Segment],
    at: usize,
    segments_min: usize,
    is_cold: impl Fn(SegmentId) -> bool,
) -> Result<ScaleRequest, Unchanged> {
    if segments.len() <= segments_min {
        return Err(Unchanged::AtMinimum);
    }
    let near = at.saturating_sub(1)..(at + 2).min(segments.len());
    let itself = segments[at].id();
    let chosen = segments[near].iter().filter(|segment| segment.id() == itself || is_cold(segment.id()));
    // Merging n segments leaves n - 1 fewer, and no more than the policy allows; the first by key go first.
    let chosen: Vec<&Segment> = chosen.take(segments.len() - segments_min + 1).collect();
    let [first, .., last] = chosen.as_slice() else { return Err(Unchanged::NoColdNeighbour) };
    Ok(ScaleRequest {
        seal: chosen.iter().map(|segment| segment.id()).collect(),
        ranges: vec![(first.range.low(), last.range.high())],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::config::RatePolicy;
    use crate::stream::sample::id;

    const NOW_MS: i64 = 10_000_000;

    fn policy(factor: i32, segments_min: u32) -> ScalingPolicy {
        ScalingPolicy::ByEvents(RatePolicy { rate: 100, factor, segments_min })
    }

    fn decide(
        load: Load,
        number: i32,
        policy: &ScalingPolicy,
        cold: &[i32],
    ) -> Result<ScaleRequest, Unchanged> {
        let active = EpochRecord::first(4, 0, 0).unwrap();
        let cold = cold.iter().map(|number| (id(0, *number), NOW_MS)).collect();
        let report = LoadReport { segment: id(0, number), reported_ms: NOW_MS, load };
        report.decide(policy, &active, &cold, NOW_MS)
    }

    #[test]
    fn hot_segment_is_split_into_equal_parts_within_the_factor() {
        let hot = |splits, factor| decide(Load::Hot { splits }, 3, &policy(factor, 1), &[]).unwrap();
        assert_eq!(hot(2, 4).ranges, [(0.75, 0.875), (0.875, 1.0)]);
        assert_eq!(hot(4, 4).ranges.len(), 4);
        assert_eq!(hot(9, 4).ranges.len(), 4);
        assert_eq!(hot(0, 0).ranges.len(), 2);
        let thirds = hot(3, 3).ranges;
        assert_eq!(thirds[2].1.to_bits(), 1.0f64.to_bits());
        assert!(thirds.windows(2).all(|pair| pair[0].1.to_bits() == pair[1].0.to_bits()));
    }

    #[test]
    fn cold_segment_is_merged_with_its_cold_neighbours() {
        let seal = |number, min, cold: &[i32]| {
            decide(Load::Cold, number, &policy(2, min), cold).map(|request| request.seal)
        };
        assert_eq!(seal(1, 1, &[1]), Err(Unchanged::NoColdNeighbour));
        assert_eq!(seal(1, 1, &[1, 3]), Err(Unchanged::NoColdNeighbour));
        assert_eq!(seal(1, 1, &[1, 2]), Ok(vec![id(0, 1), id(0, 2)]));
        assert_eq!(seal(1, 1, &[0, 1, 2]), Ok(vec![id(0, 0), id(0, 1), id(0, 2)]));
        assert_eq!(seal(1, 3, &[0, 1, 2]), Ok(vec![id(0, 0), id(0, 1)]), "one merge is allowed");
        assert_eq!(seal(1, 4, &[0, 1, 2]), Err(Unchanged::AtMinimum));
        assert_eq!(seal(0, 1, &[0, 1]), Ok(vec![id(0, 0), id(0, 1)]));
    }

    #[test]
    fn merged_range_has_the_bounds_of_its_segments() {
        let request = decide(Load::Silent, 2, &policy(2, 1), &[2, 3]).unwrap();
        assert_eq!(request.ranges, [(0.5, 1.0)]);
    }

    #[test]
    fn stale_reports_and_fixed_policies_change_nothing() {
        let active = EpochRecord::first(2, 0, 0).unwrap();
        let report = LoadReport { segment: id(0, 0), reported_ms: NOW_MS, load: Load::Hot { splits: 2 } };
        let decide = |report: LoadReport, policy: &ScalingPolicy, now_ms| {
            report.decide(policy, &active, &ColdMarks::new(), now_ms)
        };
        assert_eq!(decide(report, &ScalingPolicy::fixed(2), NOW_MS), Err(Unchanged::FixedPolicy));
        let late = decide(report, &policy(2, 1), NOW_MS + REPORT_AGE_MAX_MS + 1);
        assert_eq!(late, Err(Unchanged::Old));
        let replaced = LoadReport { segment: id(1, 0), ..report };
        assert_eq!(decide(replaced, &policy(2, 1), NOW_MS), Err(Unchanged::NotActive));
    }

    #[test]
    fn silent_segment_stays_cold() {
        let report = LoadReport { segment: id(0, 0), reported_ms: 5, load: Load::Silent };
        assert_eq!(report.cold_until_ms(), Some(i64::MAX));
        assert_eq!(LoadReport { load: Load::Cold, ..report }.cold_until_ms(), Some(5 + COLD_MS));
    }

    #[test]
    fn range_without_room_is_not_split() {
        let range = KeyRange::new(0.5, 0.5f64.next_up()).unwrap();
        let segment = Segment { number: 0, epoch: 0, range, created_ms: 0 };
        assert_eq!(split(&segment, 2), Err(Unchanged::Narrow));
    }
}
