//! Laws of objects: what was put comes back, and nothing else ever passes for it.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::types::{ContainerId, ObjectId, SegmentId, Stored};

mod golden;
mod objects;

const CONTAINER: ContainerId = ContainerId(3);
const ID: ObjectId = ObjectId { epoch: 0x1f, counter: 0xa2 };
const CREATED_MS: i64 = 1_700_000_000_123;

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: u8) -> Bytes {
    (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap() ^ seed).collect()
}

fn whole(object: &BuiltObject) -> Bytes {
    let bytes: Bytes = object.payload.iter().flat_map(|chunk| chunk.iter().copied()).collect();
    assert_eq!(u64::try_from(bytes.len()).unwrap(), object.bytes);
    bytes
}

fn part(bytes: &Bytes, stored: &Stored) -> Bytes {
    let at = usize::try_from(stored.at).unwrap();
    bytes.slice(at..at + usize::try_from(stored.length).unwrap())
}

/// Cuts `bytes` at these places, wherever they fall.
fn cut(bytes: &Bytes, cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    starts.zip(ends).map(|(from, to)| bytes.slice(from..to)).collect()
}

fn small_object() -> BuiltObject {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 1, CREATED_MS);
    builder.range(SegmentId(7), 1_000, vec![pattern(300, 1)], vec![]);
    builder.range(SegmentId(9), 0, vec![pattern(70_000, 2)], vec![]);
    builder.finish()
}

#[test]
fn ranges_lie_back_to_back_with_blocks_of_their_own() {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    let first = builder.range(SegmentId(7), 5, vec![pattern(65_536, 1)], vec![]);
    let second = builder.range(SegmentId(8), 6, vec![pattern(65_537, 2)], vec![]);
    let third = builder.range(SegmentId(9), 7, vec![pattern(1, 3)], vec![]);
    assert_eq!((first.at, first.length, first.first_block), (64, 65_536, 0));
    assert_eq!((second.at, second.length, second.first_block), (65_600, 65_537, 1));
    assert_eq!((third.at, third.length, third.first_block), (131_137, 1, 3));
    assert_eq!(second.crc, 0, "of two blocks the footer has the checksums");
    assert_eq!(third.crc, crc32fast::hash(&pattern(1, 3)));
    assert_eq!((builder.bytes(), builder.ranges()), (131_074, 3));
}

#[test]
fn full_object_takes_no_more() {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    assert!(builder.fits(OBJECT_BYTES_MAX));
    assert!(!builder.fits(OBJECT_BYTES_MAX + 1));
    builder.range(SegmentId(1), 0, vec![pattern(10, 0)], vec![]);
    assert!(builder.fits(OBJECT_BYTES_MAX - 10));
    assert!(!builder.fits(OBJECT_BYTES_MAX - 9));
    assert!(!builder.fits(u64::MAX));
}

#[test]
fn object_of_most_ranges_has_a_footer_that_can_be_read() {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    let byte = pattern(1, 0);
    for offset in 0..u64::try_from(OBJECT_RANGES_MAX).unwrap() {
        assert!(builder.fits(1));
        builder.range(SegmentId(1), offset, vec![byte.clone()], vec![]);
    }
    assert!(!builder.fits(1));
    let bytes = whole(&builder.finish());
    let Err(ObjectError::Cut { needed }) = Footer::decode(&bytes[bytes.len() - 64..]) else {
        panic!("a trailer alone is not a footer");
    };
    let tail = &bytes[bytes.len() - usize::try_from(needed).unwrap()..];
    assert_eq!(Footer::decode(tail).unwrap().ranges.len(), OBJECT_RANGES_MAX);
}

#[test]
fn one_boundary_is_kept_for_each_run() {
    let mib = BOUNDARY_BYTES;
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    let boundaries = vec![1, 9, mib - 1, mib, mib + 1, 3 * mib + 7, 3 * mib + 8];
    let stored = builder.range(SegmentId(1), 0, vec![pattern(4 << 20, 0)], boundaries);
    let footer = Footer::decode(&whole(&builder.finish())).unwrap();
    assert_eq!(footer.range_of(&stored).unwrap().boundaries, [mib, 3 * mib + 7]);
}

#[test]
fn every_cut_of_an_object_is_refused() {
    let bytes = whole(&small_object());
    for end in 0..bytes.len() {
        assert!(Footer::decode(&bytes[..end]).is_err(), "cut to {end} bytes");
        assert!(end >= 64 || ObjectHeader::decode(&bytes[..end]).is_err(), "header cut to {end} bytes");
    }
}

#[test]
fn tail_that_is_too_short_says_how_much_is_needed() {
    let bytes = whole(&small_object());
    let footer_bytes = bytes.len() - 64 - 70_300;
    for length in 0..footer_bytes {
        let needed = if length < 64 { 64 } else { u64::try_from(footer_bytes).unwrap() };
        let tail = &bytes[bytes.len() - length..];
        assert_eq!(Footer::decode(tail), Err(ObjectError::Cut { needed }), "the last {length} bytes");
    }
    let tail = &bytes[bytes.len() - footer_bytes..];
    assert_eq!(Footer::decode(tail), Footer::decode(&bytes));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = whole(&small_object());
    let data = 64 + 301..bytes.len() - 200;
    for at in (0..bytes.len()).filter(|at| !data.contains(at) || at % 97 == 0) {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] ^= flip;
            assert!(verify_object(&Bytes::from(changed)).is_err(), "byte {at} changed by {flip:#x}");
        }
    }
}

#[test]
fn blocks_are_checked_from_any_block_on() {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    builder.range(SegmentId(1), 0, vec![pattern(100, 1)], vec![]);
    let stored = builder.range(SegmentId(2), 0, vec![pattern(200_000, 2)], vec![]);
    let bytes = whole(&builder.finish());
    let footer = Footer::decode(&bytes).unwrap();
    let range = part(&bytes, &stored);
    let check = |block, bytes: &Bytes| verify(&stored, Some(&footer), block, bytes);
    assert_eq!(check(0, &range), Ok(()));
    assert_eq!(check(1, &range.slice(65_536..131_072)), Ok(()));
    assert_eq!(check(1, &range.slice(65_536..)), Ok(()));
    assert_eq!(check(3, &range.slice(196_608..)), Ok(()));
    assert_eq!(check(2, &range.slice(65_536..131_072)), Err(ObjectError::Block { block: 3 }));
    assert_eq!(verify(&stored, None, 0, &range), Err(ObjectError::NoFooter));
    for not_whole in [range.slice(0..0), range.slice(..65_535), range.slice(..199_999)] {
        assert!(matches!(check(0, &not_whole), Err(ObjectError::Shape { .. })));
    }
    assert!(matches!(check(4, &range.slice(..1)), Err(ObjectError::Shape { .. })));
    let elsewhere = Stored { at: stored.at + 1, ..stored };
    assert!(matches!(verify(&elsewhere, Some(&footer), 0, &range), Err(ObjectError::Shape { .. })));
}

#[test]
fn a_range_of_one_block_needs_no_footer() {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
    let stored = builder.range(SegmentId(1), 0, vec![pattern(65_536, 1)], vec![]);
    assert_eq!(verify(&stored, None, 0, &pattern(65_536, 1)), Ok(()));
    assert_eq!(verify(&stored, None, 0, &pattern(65_536, 9)), Err(ObjectError::Block { block: 0 }));
}

#[derive(Clone, Debug)]
struct AnyRange {
    segment: u64,
    offset: u64,
    bytes: Bytes,
    cuts: Vec<prop::sample::Index>,
}

fn any_range() -> impl Strategy<Value = AnyRange> {
    let length = prop_oneof![1_usize..2_000, 65_530_usize..65_545, 1_usize..300_000];
    let numbers = (any::<u64>(), 0..u64::MAX / 2, any::<u8>());
    (numbers, length, vec(any::<prop::sample::Index>(), 0..20)).prop_map(
        |((segment, offset, seed), length, cuts)| AnyRange {
            segment,
            offset,
            bytes: pattern(length, seed),
            cuts,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_laid_out_is_found_again(ranges in vec(any_range(), 1..12), level: u8, created_ms: i64) {
        let mut builder = ObjectBuilder::new(CONTAINER, ID, level, created_ms);
        let stored: Vec<Stored> = ranges
            .iter()
            .map(|range| {
                let chunks = cut(&range.bytes, &range.cuts);
                builder.range(SegmentId(range.segment), range.offset, chunks, vec![])
            })
            .collect();
        let object = builder.finish();
        let bytes = whole(&object);
        let footer = verify_object(&bytes).unwrap();
        prop_assert_eq!(footer.header(), ObjectHeader { container: CONTAINER, id: ID, level, created_ms });
        prop_assert_eq!(footer.object_bytes(), object.bytes);
        prop_assert_eq!(footer.ranges.len(), ranges.len());
        for (range, stored) in ranges.iter().zip(&stored) {
            let found = footer.range_of(stored).unwrap();
            prop_assert_eq!((found.segment, found.offset), (SegmentId(range.segment), range.offset));
            prop_assert_eq!(&found.stored, stored);
            prop_assert_eq!(part(&bytes, stored), range.bytes.clone());
        }
    }

    /// Such bytes carry checksums that fit: they must be refused by their meaning, or be taken, and never panic.
    #[test]
    fn footers_that_lie_are_taken_or_refused(
        at in any::<prop::sample::Index>(),
        value in any::<[u8; 4]>(),
        cut in 0_usize..4,
    ) {
        let bytes = whole(&small_object());
        let end = bytes.len();
        let mut changed = bytes[70_364 + cut..].to_vec();
        let at = at.index(changed.len() - 12 - 4);
        changed[at..at + 4].copy_from_slice(&value);
        let trailer = changed.len() - 64;
        // The length says truly what is there, so that the checksum is over what it is taken over.
        changed[trailer + 24..trailer + 28].copy_from_slice(&u32::try_from(trailer).unwrap().to_le_bytes());
        let crc = changed.len() - 12;
        let sum = crc32fast::hash(&changed[..crc]);
        changed[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(footer) = Footer::decode(&changed) {
            prop_assert_eq!(footer.object_bytes(), u64::try_from(end).unwrap());
        }
    }

    #[test]
    fn noise_is_no_object(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(Footer::decode(&bytes).is_err());
        prop_assert!(ObjectHeader::decode(&bytes).is_err());
    }
}
