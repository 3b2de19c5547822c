//! Identity, key range and record of one segment of a stream.
//!
//! The bounds of a range are copied along the history and never computed twice: clients compare them with `==`.

use std::fmt;

/// The 64-bit id of a segment: creation epoch in the upper half, number in the lower.
///
/// Any `i64` can be held, because clients send what they like; an id whose halves are negative names no segment and
/// is therefore never found. Ids order as their numbers on the wire do, older epochs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(i64);

impl SegmentId {
    /// Builds the id of segment `number` created in `epoch`.
    pub fn new(epoch: i32, number: i32) -> Self {
        Self((i64::from(epoch) << 32) | (i64::from(number) & 0xffff_ffff))
    }

    /// Takes an id as it travels on the wire.
    pub const fn from_raw(raw: i64) -> Self {
        Self(raw)
    }

    /// Returns the id as it travels on the wire.
    pub const fn raw(self) -> i64 {
        self.0
    }

    /// Returns the epoch in which the segment was created.
    pub const fn epoch(self) -> i32 {
        let [epoch @ .., _, _, _, _] = self.0.to_be_bytes();
        i32::from_be_bytes(epoch)
    }

    /// Returns the number of the segment within its stream.
    pub const fn number(self) -> i32 {
        let [_, _, _, _, number @ ..] = self.0.to_be_bytes();
        i32::from_be_bytes(number)
    }
}

impl fmt::Display for SegmentId {
    /// Writes the last part of the segment's name, `<number>.#epoch.<epoch>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.#epoch.{}", self.number(), self.epoch())
    }
}

/// A half-open range `low..high` of routing-key positions within `[0, 1]`; the range ending at 1.0 includes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyRange {
    low: f64,
    high: f64,
}

// The constructor admits neither NaN nor a negative zero, so equality is total and means equal bits.
impl Eq for KeyRange {}

impl KeyRange {
    /// The whole key space.
    pub const FULL: Self = Self { low: 0.0, high: 1.0 };

    /// Returns the range, or `None` unless `0 <= low < high <= 1`.
    pub fn new(low: f64, high: f64) -> Option<Self> {
        // Adding zero turns a client's -0.0 into 0.0 and leaves every other value alone.
        let low = low + 0.0;
        (0.0 <= low && low < high && high <= 1.0).then_some(Self { low, high })
    }

    /// Returns the `index`-th of `count` equal parts of the key space, the last ending at exactly 1.0.
    ///
    /// `index < count` and `1 <= count` are the caller's duty.
    pub fn equal_part(index: u32, count: u32) -> Self {
        assert!(index < count, "part of a whole");
        // Not a division for each bound: its last bit differs, and clients compare bounds with those of Pravega.
        let part = 1.0 / f64::from(count);
        let high = if index + 1 == count { 1.0 } else { f64::from(index + 1) * part };
        Self { low: f64::from(index) * part, high }
    }

    /// Returns the inclusive lower bound.
    pub const fn low(self) -> f64 {
        self.low
    }

    /// Returns the upper bound, exclusive unless it is 1.0.
    pub const fn high(self) -> f64 {
        self.high
    }

    /// Whether the two ranges have an inner point in common; touching is not overlapping.
    pub fn overlaps(self, other: Self) -> bool {
        self.low < other.high && other.low < self.high
    }

    /// Whether `other` lies within this range.
    pub fn contains(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// Returns the keys that both ranges hold, `None` if there are none.
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.low.max(other.low), self.high.min(other.high))
    }

    /// Returns what is left of the range without the keys of `other`: up to two ranges.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let below = Self::new(self.low, self.high.min(other.low));
        let above = Self::new(self.low.max(other.high), self.high);
        below.into_iter().chain(above)
    }

    /// Orders ranges by their lower bound, then by their upper one.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.low.total_cmp(&other.low).then(self.high.total_cmp(&other.high))
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

/// Whether `ranges`, in this order, follow each other without gap or overlap.
pub fn are_contiguous(ranges: &[KeyRange]) -> bool {
    ranges.windows(2).all(|pair| match pair {
        [left, right] => left.high.to_bits() == right.low.to_bits(),
        _ => true,
    })
}

/// Joins ranges sorted by lower bound into the fewest ranges covering the same keys, or `None` if two overlap.
pub fn union(sorted: &[KeyRange]) -> Option<Vec<KeyRange>> {
    let mut joined: Vec<KeyRange> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.low < last.high => return None,
            Some(last) if range.low.to_bits() == last.high.to_bits() => last.high = range.high,
            _ => joined.push(*range),
        }
    }
    Some(joined)
}

/// A segment as the epochs that contain it record it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number within the stream; a duplicate made for a rolling transaction keeps the number of its original.
    pub number: i32,
    /// Epoch in which the segment was created.
    pub epoch: i32,
    /// Keys that belong to the segment.
    pub range: KeyRange,
    /// Creation time in milliseconds since 1970.
    pub created_ms: i64,
}

impl Segment {
    /// Returns the segment's id.
    pub fn id(&self) -> SegmentId {
        SegmentId::new(self.epoch, self.number)
    }

    /// Whether the two segments share keys.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.range.overlaps(other.range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn id_holds_epoch_and_number_in_the_order_of_the_wire(
            epoch in 0..=i32::MAX, number in 0..=i32::MAX, other in 0..=i32::MAX, raw in any::<i64>(),
        ) {
            let id = SegmentId::new(epoch, number);
            prop_assert_eq!((id.epoch(), id.number()), (epoch, number));
            prop_assert_eq!(id.raw() >> 32, i64::from(epoch));
            prop_assert!(number >= other || id < SegmentId::new(epoch, other));
            let any = SegmentId::from_raw(raw);
            prop_assert_eq!(SegmentId::new(any.epoch(), any.number()), any);
        }

        #[test]
        fn equal_parts_are_contiguous_and_end_at_one(count in 1u32..3000) {
            let parts: Vec<KeyRange> = (0..count).map(|index| KeyRange::equal_part(index, count)).collect();
            prop_assert_eq!(union(&parts), Some(vec![KeyRange::FULL]));
            prop_assert!(are_contiguous(&parts));
        }

        #[test]
        fn without_and_intersection_share_out_the_range(a in 0.0..0.5f64, b in 0.5..1.0f64, c in 0.0..0.5f64, d in 0.5..1.0f64) {
            let (range, other) = (KeyRange::new(a, b).unwrap(), KeyRange::new(c, d).unwrap());
            let mut parts: Vec<KeyRange> = range.without(other).chain(range.intersection(other)).collect();
            parts.sort_by(KeyRange::order);
            prop_assert_eq!(union(&parts), Some(vec![range]));
        }
    }

    #[test]
    fn range_admits_nothing_outside_the_key_space() {
        for (low, high) in [
            (f64::NAN, 0.5),
            (0.0, f64::NAN),
            (0.5, 0.5),
            (0.5, 0.2),
            (-0.1, 0.5),
            (0.5, 1.0f64.next_up()),
            (0.0, f64::INFINITY),
        ] {
            assert_eq!(KeyRange::new(low, high), None, "{low} {high}");
        }
        let zero = KeyRange::new(-0.0, 1.0).unwrap();
        assert_eq!(zero.low().to_bits(), 0.0f64.to_bits(), "no negative zero reaches a record");
    }

    #[test]
    fn touching_ranges_do_not_overlap() {
        let (left, right) = (KeyRange::equal_part(0, 2), KeyRange::equal_part(1, 2));
        assert!(!left.overlaps(right) && left.overlaps(KeyRange::FULL) && KeyRange::FULL.overlaps(right));
        assert!(KeyRange::FULL.contains(left) && !left.contains(KeyRange::FULL));
    }

    #[test]
    fn id_is_written_as_the_end_of_a_segment_name() {
        assert_eq!(SegmentId::new(3, 5).to_string(), "5.#epoch.3");
    }
}
