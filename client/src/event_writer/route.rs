//! Which segment stream of a writer takes which keys.

use super::state::Slot;
use dhara_wire::range::KeyRange;

/// Upper bounds in order, each with the slot that takes the positions up to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Routes {
    bounds: Vec<(f64, Slot)>,
}

impl Routes {
    /// Routes as `ranges` say; `None` unless they cover the key space.
    pub(super) fn new(mut ranges: Vec<(KeyRange, Slot)>) -> Option<Self> {
        ranges.sort_by(|(a, _), (b, _)| a.max.total_cmp(&b.max));
        Self::covered(KeyRange::ALL, &ranges).map(|bounds| Self { bounds })
    }

    /// The slot of the smallest upper bound at or above `position`.
    pub(super) fn find(&self, position: f64) -> Slot {
        let index = self.bounds.partition_point(|(bound, _slot)| *bound < position);
        self.bounds[index.min(self.bounds.len() - 1)].1
    }

    /// Gives every part of the key space that `slot` takes to those `successors` that cover it; `None`, and nothing
    /// changed, if they do not.
    pub(super) fn replace(&self, slot: Slot, mut successors: Vec<(KeyRange, Slot)>) -> Option<Self> {
        successors.sort_by(|(a, _), (b, _)| a.max.total_cmp(&b.max));
        let mut bounds: Vec<(f64, Slot)> = Vec::with_capacity(self.bounds.len() + successors.len());
        let mut low = 0.0;
        for &(high, owner) in &self.bounds {
            if owner == slot {
                bounds.extend(Self::covered(KeyRange { min: low, max: high }, &successors)?);
            } else {
                bounds.push((high, owner));
            }
            low = high;
        }
        // Neighbours that lead to one segment are one entry: so merges shorten the table again.
        bounds.dedup_by(|next, kept| {
            let same = next.1 == kept.1;
            if same {
                kept.0 = next.0;
            }
            same
        });
        Some(Self { bounds })
    }

    /// Cuts sorted `ranges` to `whole`; `None` if they leave a gap in it.
    fn covered(whole: KeyRange, ranges: &[(KeyRange, Slot)]) -> Option<Vec<(f64, Slot)>> {
        let mut covered_to = whole.min;
        let mut bounds = Vec::new();
        for (range, slot) in ranges.iter().filter(|(range, _slot)| range.overlaps(whole)) {
            if range.min > covered_to {
                return None;
            }
            covered_to = range.max.min(whole.max);
            bounds.push((covered_to, *slot));
        }
        (covered_to >= whole.max).then_some(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: f64, max: f64) -> KeyRange {
        KeyRange { min, max }
    }

    #[test]
    fn merged_segment_takes_only_the_sealed_part_at_first() {
        let routes = Routes::new(vec![(range(0.0, 0.5), 0), (range(0.5, 1.0), 1)]).unwrap();
        let routes = routes.replace(0, vec![(range(0.0, 1.0), 2)]).unwrap();
        assert_eq!((routes.find(0.2), routes.find(0.5), routes.find(0.7)), (2, 2, 1));
        let routes = routes.replace(1, vec![(range(0.0, 1.0), 2)]).unwrap();
        assert_eq!(routes, Routes { bounds: vec![(1.0, 2)] });
    }

    #[test]
    fn split_is_routed_by_position() {
        let routes = Routes::new(vec![(range(0.0, 1.0), 0)]).unwrap();
        let routes = routes.replace(0, vec![(range(0.4, 1.0), 2), (range(0.0, 0.4), 1)]).unwrap();
        assert_eq!((routes.find(0.0), routes.find(0.4), routes.find(0.41)), (1, 1, 2));
    }

    #[test]
    fn gap_is_refused() {
        assert!(Routes::new(vec![(range(0.0, 0.5), 0)]).is_none());
        assert!(Routes::new(vec![]).is_none());
        let routes = Routes::new(vec![(range(0.0, 1.0), 0)]).unwrap();
        assert!(routes.replace(0, vec![(range(0.0, 0.4), 1), (range(0.5, 1.0), 2)]).is_none());
        assert!(routes.replace(0, vec![]).is_none());
    }
}
