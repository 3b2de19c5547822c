//! What is fetched, checked and kept as one: a unit, up to 256 KiB of a stored range. Pure.
//!
//! Units begin at multiples of their size from the start of their range, so whoever reads the same bytes asks for the
//! same units, and each is whole blocks that can be checked alone.

use crate::state::{Piece, Source};
use crate::tier::BLOCK_BYTES;
use crate::types::{ContainerId, ObjectId, Stored};

/// Bytes of a unit; the last of a range may be shorter.
pub(super) const UNIT_BYTES: u32 = 4 * BLOCK_BYTES;

/// Names a unit among those of all containers. Ranges never overlap, so where it begins is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnitKey {
    pub(super) container: ContainerId,
    pub(super) object: ObjectId,
    pub(super) at: u32,
}

/// A unit of a stored range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) stored: Stored,
    /// Where it begins in its range.
    pub(super) from: u32,
}

/// The part of a segment that lies in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Offset of its first byte in the segment.
    pub(super) offset: u64,
    /// How many bytes, > 0.
    pub(super) length: u32,
    pub(super) unit: Unit,
    /// Bytes of the unit before the first one.
    pub(super) skip: u32,
}

impl Unit {
    pub(super) fn key(&self, container: ContainerId) -> UnitKey {
        UnitKey { container, object: self.stored.object, at: self.at() }
    }

    /// Where it begins in its object.
    pub(super) fn at(&self) -> u32 {
        self.stored.at + self.from
    }

    pub(super) fn length(&self) -> u32 {
        UNIT_BYTES.min(self.stored.length - self.from)
    }

    /// Number of its first block among those of its range.
    pub(super) fn first_block(&self) -> u32 {
        self.from / BLOCK_BYTES
    }

    /// Whether `next` lies right behind it, so that one GET brings both.
    pub(super) fn touches(&self, next: &Self) -> bool {
        self.stored.object == next.stored.object && self.at() + self.length() == next.at()
    }
}

impl Slice {
    /// Offset after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// The slices of `extents` from `offset` on that begin before `end`, in order. `extents` follow each other.
pub(super) fn slices(extents: &[Piece], offset: u64, end: u64) -> impl Iterator<Item = Slice> + '_ {
    let all = extents.iter().flat_map(move |extent| slices_of(extent, offset));
    all.take_while(move |slice| slice.offset < end)
}

fn slices_of(extent: &Piece, offset: u64) -> impl Iterator<Item = Slice> + use<> {
    let Source::Extent { stored, skip } = extent.source else { unreachable!("only extents are cold") };
    let extent = *extent;
    let begin = u64::from(skip);
    let from = begin + offset.saturating_sub(extent.offset).min(extent.length);
    let to = begin + extent.length;
    let bytes = u64::from(UNIT_BYTES);
    let units = if from < to { from / bytes..to.div_ceil(bytes) } else { 0..0 };
    units.map(move |unit| {
        let (first, last) = (from.max(unit * bytes), to.min((unit + 1) * bytes));
        Slice {
            offset: extent.offset + (first - begin),
            length: narrow(last - first),
            unit: Unit { stored, from: narrow(unit * bytes) },
            skip: narrow(first - unit * bytes),
        }
    })
}

/// Lossless: positions in a range fit 32 bits.
fn narrow(position: u64) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OBJECT: ObjectId = ObjectId { epoch: 1, counter: 2 };

    fn extent(offset: u64, length: u64, at: u32, skip: u32, stored_length: u32) -> Piece {
        let stored = Stored { object: OBJECT, at, length: stored_length, first_block: 0, crc: 0 };
        Piece { offset, length, source: Source::Extent { stored, skip } }
    }

    proptest! {
        #[test]
        fn slices_cover_extents_once_and_lie_in_their_units(
            sizes in prop::collection::vec((1_u32..1_000_000, 0_u32..300_000, 0_u32..300_000), 1..5),
            from in 0_u64..1_500_000,
            wanted in 1_u64..1_500_000,
        ) {
            let (mut extents, mut offset, mut at) = (Vec::new(), 0, 64);
            for (length, before, behind) in sizes {
                extents.push(extent(offset, length.into(), at, before, before + length + behind));
                offset += u64::from(length);
                at += before + length + behind;
            }
            let found: Vec<Slice> = slices(&extents, from, from + wanted).collect();
            prop_assert_eq!(found.is_empty(), from >= offset);
            let mut next = from;
            for slice in &found {
                prop_assert_eq!(slice.offset, next);
                prop_assert!(slice.length > 0 && slice.offset < from + wanted);
                prop_assert!(slice.skip + slice.length <= slice.unit.length());
                prop_assert!(slice.unit.from + slice.unit.length() <= slice.unit.stored.length);
                let extent = extents.iter().find(|extent| extent.end() > slice.offset).unwrap();
                let Source::Extent { stored, skip } = extent.source else { unreachable!() };
                prop_assert_eq!(stored, slice.unit.stored);
                let in_range = u64::from(slice.unit.from + slice.skip);
                prop_assert_eq!(in_range, u64::from(skip) + slice.offset - extent.offset);
                next = slice.end();
            }
            prop_assert!(found.is_empty() || next >= offset.min(from + wanted));
        }
    }

    #[test]
    fn units_touch_across_ranges_but_not_across_holes_or_objects() {
        let stored = |object, at, length| Stored { object, at, length, first_block: 0, crc: 0 };
        let first = Unit { stored: stored(OBJECT, 64, 300_000), from: 0 };
        let second = Unit { stored: first.stored, from: UNIT_BYTES };
        let behind = Unit { stored: stored(OBJECT, 300_064, 10), from: 0 };
        let other = Unit { stored: stored(ObjectId { epoch: 1, counter: 3 }, 300_064, 10), from: 0 };
        assert!(first.touches(&second) && second.touches(&behind));
        assert!(!first.touches(&behind) && !second.touches(&other) && !second.touches(&first));
    }
}
