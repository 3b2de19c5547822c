//! Key ranges, and finding the segment that serves a position in the key space.
//!
//! Ranges are written `[min, max)`, but clients look for the smallest upper bound that is not below a position. So a
//! range in truth holds `(min, max]`, the first one 0.0 too.

/// A part of the key space `0.0..=1.0`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct KeyRange {
    /// Lower bound.
    pub min: f64,
    /// Upper bound.
    pub max: f64,
}

impl KeyRange {
    /// The whole key space.
    pub const ALL: Self = Self { min: 0.0, max: 1.0 };

    /// Joins two bounds; `None` unless `0.0 <= min < max <= 1.0`.
    pub fn new(min: f64, max: f64) -> Option<Self> {
        (0.0 <= min && min < max && max <= 1.0).then_some(Self { min, max })
    }

    /// Whether the ranges share more than a bound.
    pub fn overlaps(self, other: Self) -> bool {
        self.min < other.max && other.min < self.max
    }

    /// Whether no part of `other` lies outside.
    pub fn contains(self, other: Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Cuts the range in `parts` of the same width; the outer bounds stay exactly.
    pub fn split(self, parts: u32) -> Vec<Self> {
        let bound = |i: u32| match i {
            0 => self.min,
            _ if i == parts => self.max,
            _ => self.min + (self.max - self.min) / f64::from(parts) * f64::from(i),
        };
        (0..parts).map(|i| Self { min: bound(i), max: bound(i + 1) }).collect()
    }
}

/// What serves which part of the key space.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeMap<T> {
    /// In order of their upper bounds.
    entries: Vec<(KeyRange, T)>,
}

impl<T> RangeMap<T> {
    /// Takes entries in any order; of two with one upper bound a look-up finds the first.
    pub fn new(entries: impl IntoIterator<Item = (KeyRange, T)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.max.total_cmp(&b.max));
        Self { entries }
    }

    /// Returns the entry with the smallest upper bound at or above `position`; `None` above the last one.
    pub fn find(&self, position: f64) -> Option<&T> {
        let index = self.entries.partition_point(|(range, _)| range.max < position);
        self.entries.get(index).map(|(_, entry)| entry)
    }

    /// The entries in order of their upper bounds.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(KeyRange, T)> {
        self.entries.iter()
    }

    /// Whether the ranges cover the key space exactly once.
    pub fn is_complete(&self) -> bool {
        let end = self.entries.iter().try_fold(0.0, |end, (range, _)| {
            #[expect(clippy::float_cmp, reason = "neighbours share the very same bound")]
            let adjoins = range.min == end;
            adjoins.then_some(range.max)
        });
        end == Some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundary_belongs_to_the_lower_range() {
        let map = RangeMap::new(KeyRange::ALL.split(2).into_iter().zip(["low", "high"]));
        assert!(map.is_complete());
        assert_eq!(map.find(0.0), Some(&"low"));
        assert_eq!(map.find(0.5), Some(&"low"));
        assert_eq!(map.find(0.5_f64.next_up()), Some(&"high"));
        assert_eq!(map.find(1.0), Some(&"high"));
        assert_eq!(map.find(1.0_f64.next_up()), None);
    }

    #[test]
    fn parts_adjoin_and_keep_the_outer_bounds() {
        for parts in 1..200 {
            let whole = KeyRange { min: 0.1, max: 0.7 };
            let split = whole.split(parts);
            assert_eq!(split.len(), parts as usize);
            assert!(split.windows(2).all(|pair| pair[0].max.to_bits() == pair[1].min.to_bits()));
            assert_eq!(split[0].min.to_bits(), whole.min.to_bits());
            assert_eq!(split.last().unwrap().max.to_bits(), whole.max.to_bits());
            assert!(
                RangeMap::new(KeyRange::ALL.split(parts).into_iter().map(|range| (range, ()))).is_complete()
            );
        }
    }

    #[test]
    fn bad_bounds_are_no_range() {
        for (min, max) in [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (f64::NAN, 1.0), (0.0, f64::NAN)]
        {
            assert_eq!(KeyRange::new(min, max), None);
        }
    }

    #[test]
    fn ranges_that_only_touch_do_not_overlap() {
        let [low, high] = [KeyRange { min: 0.0, max: 0.5 }, KeyRange { min: 0.5, max: 1.0 }];
        assert!(!low.overlaps(high) && KeyRange::ALL.overlaps(low));
        assert!(KeyRange::ALL.contains(high) && !high.contains(KeyRange::ALL));
    }
}
