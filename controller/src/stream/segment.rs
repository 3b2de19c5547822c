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
        let whole = f64::from(count);
        let high = if index + 1 == count { 1.0 } else { f64::from(index + 1) / whole };
        Self { low: f64::from(index) / whole, high }
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
