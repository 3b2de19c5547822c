//! The object checked in, which every later version must read.

use super::*;

const GOLDEN: &[u8] = include_bytes!("../golden/object-1.bin");

/// A range of one block, one of three blocks with a boundary, and one byte.
fn golden_object() -> BuiltObject {
    let mut builder = ObjectBuilder::new(CONTAINER, ID, 2, CREATED_MS);
    builder.range(SegmentId(11), 4_096, vec![pattern(1_000, 1)], vec![10]);
    let long = Bytes::from(vec![0x5a; (1 << 20) + 10]);
    builder.range(SegmentId(12), u64::from(u32::MAX) + 9, vec![long], vec![1, 1 << 20]);
    builder.range(SegmentId(u64::MAX), 0, vec![Bytes::from_static(b"!")], vec![]);
    builder.finish()
}

#[test]
fn golden_object_is_read() {
    let footer = verify_object(&Bytes::from_static(GOLDEN)).unwrap();
    let header = ObjectHeader { container: CONTAINER, id: ID, level: 2, created_ms: CREATED_MS };
    assert_eq!(footer.header(), header);
    let ranges: Vec<_> =
        footer.ranges.iter().map(|range| (range.segment.0, range.offset, range.stored.length)).collect();
    let expected = [(11, 4_096, 1_000), (12, u64::from(u32::MAX) + 9, (1 << 20) + 10), (u64::MAX, 0, 1)];
    assert_eq!(ranges, expected);
    assert_eq!(footer.ranges[1].boundaries, [1 << 20]);
    assert_eq!(footer.ranges[1].stored.first_block, 1);
    assert_eq!(footer.ranges[2].stored.crc, crc32fast::hash(b"!"));
}

#[test]
fn the_same_ranges_make_the_golden_object() {
    assert!(whole(&golden_object()) == GOLDEN, "the format has changed");
}
