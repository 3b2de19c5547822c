//! Retention: where a stream is truncated, if at all.
//!
//! Each cycle records a cut at the tail, and earlier ones are what a truncation chooses from; subscribers hold it back
//! up to the policy's maximum. Nothing here asks how long a segment is: sizes come with the recorded cuts.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::config::RetentionPolicy;
use super::cut::{CutOrder, FUTURE, PlacedCut, Spread, ValidCut};
use super::segment::{Segment, SegmentId};

/// Pravega's time between two cycles, in milliseconds.
pub const CYCLE_MS: i64 = 30 * 60 * 1000;

/// A cut recorded at the tail of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When it was recorded, in milliseconds since 1970.
    pub recorded_ms: i64,
    /// Bytes from the beginning of the stream up to the cut, truncated ones included.
    pub size_bytes: i64,
    /// The cut.
    pub cut: PlacedCut,
}

/// Up to where all subscribers have read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberBound {
    /// The cut, see [`lower_bound`].
    pub cut: PlacedCut,
    /// Bytes from the beginning of the stream up to the cut, truncated ones included.
    pub size_bytes: i64,
}

/// The moment of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time in milliseconds since 1970.
    pub now_ms: i64,
    /// Bytes from the beginning of the stream up to its tail, truncated ones included.
    pub size_bytes: i64,
}

/// Whether a cut at the tail is to be recorded, given when the newest was.
pub fn is_due(newest_ms: Option<i64>, cycle_ms: i64, now_ms: i64) -> bool {
    newest_ms.is_none_or(|newest_ms| newest_ms.saturating_add(cycle_ms) <= now_ms)
}

/// Decides where to truncate.
///
/// `recorded` is ordered, the oldest first. A cut recorded at this very moment is left out, so that what has been
/// written since the last cycle stays whatever the policy says. The answer may lie before the head of the stream;
/// [`super::truncation::truncate`] refuses that, and the next cycle decides anew.
pub fn truncation_point<'a>(
    policy: RetentionPolicy,
    recorded: &'a [Recorded],
    bound: Option<&'a SubscriberBound>,
    moment: Moment,
) -> Option<&'a PlacedCut> {
    let earlier = recorded.partition_point(|record| record.recorded_ms < moment.now_ms);
    let choice = Choice { policy, moment, recorded: recorded.get(..earlier).unwrap_or_default() };
    let min_cut = choice.min_cut()?;
    let Some(bound) = bound else { return Some(&min_cut.cut) };
    match policy {
        RetentionPolicy::Time { .. } => choice.by_time(min_cut, &bound.cut),
        RetentionPolicy::Size { .. } => choice.by_size(min_cut, bound),
    }
}

/// Returns the greatest cut that no subscriber has passed, `None` without subscribers.
///
/// For each key the subscriber that has read least counts. A segment with an older one still being read somewhere in
/// its range is future. A subscriber that has not reported stands where it starts reading; the caller places it there.
pub fn lower_bound(subscribers: &[ValidCut]) -> Option<PlacedCut> {
    let cuts = || subscribers.iter().map(ValidCut::placed);
    let segments: BTreeMap<SegmentId, Segment> =
        cuts().flat_map(PlacedCut::segments).map(|segment| (segment.id(), *segment)).collect();
    let least = cuts().map(PlacedCut::spread).reduce(|a, b| lesser(&a, &b))?;
    let mut offsets: BTreeMap<SegmentId, i64> = BTreeMap::new();
    for (_, (id, offset)) in least {
        offsets.entry(id).and_modify(|least| *least = offset.min(*least)).or_insert(offset);
    }
    let chosen: Vec<(Segment, i64)> =
        offsets.iter().filter_map(|(id, offset)| Some((*segments.get(id)?, *offset))).collect();
    let is_unread = |segment: &Segment| {
        chosen.iter().any(|(older, _)| older.id() < segment.id() && older.overlaps(segment))
    };
    let entries =
        chosen.iter().map(|(segment, offset)| (*segment, if is_unread(segment) { FUTURE } else { *offset }));
    Some(PlacedCut::of(entries))
}

/// Returns the lesser position of the two for each key.
fn lesser(a: &[Spread], b: &[Spread]) -> Vec<Spread> {
    let both = |(range, at): &Spread, (other, other_at): &Spread| {
        Some((range.intersection(*other)?, *at.min(other_at)))
    };
    a.iter().flat_map(|mine| b.iter().filter_map(move |theirs| both(mine, theirs))).collect()
}

/// Returns when the recorded cuts were recorded that lie before `head`, where the stream has been truncated.
pub fn obsolete(recorded: &[Recorded], head: &PlacedCut) -> Vec<i64> {
    let before = recorded.iter().filter(|record| record.cut.compare(head) == CutOrder::Before);
    before.map(|record| record.recorded_ms).collect()
}

struct Choice<'a> {
    policy: RetentionPolicy,
    moment: Moment,
    recorded: &'a [Recorded],
}

impl<'a> Choice<'a> {
    /// How much would be kept by truncating here, in the unit of the policy.
    fn kept(&self, record: &Recorded) -> i64 {
        match self.policy {
            RetentionPolicy::Time { .. } => self.moment.now_ms.saturating_sub(record.recorded_ms),
            RetentionPolicy::Size { .. } => self.moment.size_bytes.saturating_sub(record.size_bytes),
        }
    }

    /// The newest cut that keeps the minimum.
    fn min_cut(&self) -> Option<&'a Recorded> {
        let (min, _) = self.policy.limits();
        self.recorded.iter().rev().find(|record| self.kept(record) >= min)
    }

    /// The oldest cut that keeps no more than the maximum, else the one that keeps the minimum.
    fn max_cut(&self, min_cut: &'a Recorded) -> &'a Recorded {
        let (min, max) = self.policy.limits();
        let within = |record: &&Recorded| (min..=max).contains(&self.kept(record));
        self.recorded.iter().find(within).unwrap_or(min_cut)
    }

    fn newest_before(&self, bound: &PlacedCut) -> Option<&'a PlacedCut> {
        let before = |record: &&Recorded| record.cut.compare(bound) == CutOrder::Before;
        self.recorded.iter().rev().find(before).map(|record| &record.cut)
    }

    fn by_time(&self, min_cut: &'a Recorded, bound: &'a PlacedCut) -> Option<&'a PlacedCut> {
        match min_cut.cut.compare(bound) {
            CutOrder::Before => return Some(&min_cut.cut),
            CutOrder::Overlaps => return self.newest_before(bound),
            CutOrder::EqualOrAfter => {}
        }
        let (_, max) = self.policy.limits();
        let Some(max_bound) = self.recorded.iter().rev().find(|record| self.kept(record) > max) else {
            return Some(bound);
        };
        Some(match bound.compare(&max_bound.cut) {
            CutOrder::EqualOrAfter => bound,
            CutOrder::Before => &self.max_cut(min_cut).cut,
            CutOrder::Overlaps => &max_bound.cut,
        })
    }

    fn by_size(&self, min_cut: &'a Recorded, bound: &'a SubscriberBound) -> Option<&'a PlacedCut> {
        let (min, max) = self.policy.limits();
        let kept = self.moment.size_bytes.saturating_sub(bound.size_bytes);
        if kept < min {
            return match min_cut.cut.compare(&bound.cut) {
                CutOrder::Before => Some(&min_cut.cut),
                CutOrder::EqualOrAfter | CutOrder::Overlaps => self.newest_before(&bound.cut),
            };
        }
        if kept < max {
            return Some(&bound.cut);
        }
        let max_cut = self.max_cut(min_cut);
        Some(if self.kept(max_cut) < kept { &max_cut.cut } else { &bound.cut })
    }
}
