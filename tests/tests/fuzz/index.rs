//! Rows of the index and their keys.

use super::chance::Chance;
use bytes::{BufMut, Bytes};
use dhara_segmentstore::index::key;
use dhara_segmentstore::state::{Segment, decode_extent, decode_object, encode_extent, encode_object};
use dhara_segmentstore::types::SegmentId;

const ID: SegmentId = SegmentId(7);

/// The row of a segment, as the page on formats draws it.
fn segment_row() -> Vec<u8> {
    let mut row = vec![1; 1];
    row.extend([0; 17]);
    row.put_i8(2);
    row.put_i32_le(100);
    for number in [0, 1_700, 5, 90] {
        row.put_u64_le(number);
    }
    row.put_u8(1);
    for number in [4, 0, 1_800] {
        row.put_u64_le(number);
    }
    row.put_slice(b"scope/stream/0.#epoch.0");
    row
}

fn extent_row() -> Vec<u8> {
    let mut row = vec![1];
    for number in [3, 9, 20, 10, 64, 30, 0, 77] {
        row.put_u32_le(number);
    }
    row
}

pub(crate) fn segment(chance: &mut Chance) -> bool {
    let row = Bytes::from(chance.damaged(&[segment_row()]));
    let read = Segment::decode_row(ID, row.clone()).ok();
    let again = Segment::decode_row(ID, row).ok();
    let seen = |segment: &Segment| (segment.name.clone(), segment.kind, segment.applied, segment.created_ms);
    assert_eq!(read.as_ref().map(seen), again.as_ref().map(seen));
    read.inspect(|read| assert!(read.applied.start <= read.applied.length)).is_some()
}

pub(crate) fn extent(chance: &mut Chance) -> bool {
    let row = Bytes::from(chance.damaged(&[extent_row()]));
    let read = decode_extent(ID, 90, row.clone());
    assert!(read.is_none_or(|extent| encode_extent(&extent) == row));
    read.is_some()
}

pub(crate) fn small(chance: &mut Chance) -> bool {
    let object = Bytes::from(chance.damaged(&[vec![1, 1, 0, 200, 0, 0, 0]]));
    let read = decode_object(object.clone());
    assert!(read.is_none_or(|read| encode_object(&read) == object));
    let applied = chance.damaged(&[vec![1, 5, 0, 0, 0, 0, 0, 0, 0]]);
    let number = key::parse_applied(&applied);
    assert!(number.is_none_or(|number| key::applied_value(number) == applied));
    read.is_some() || number.is_some()
}

pub(crate) fn key(chance: &mut Chance) -> bool {
    let samples = [key::extent(ID, 90).to_vec(), key::object(3, 9).to_vec(), key::segment(ID).to_vec()];
    let bytes = chance.damaged(&samples);
    let extent = key::parse_extent(&bytes);
    assert!(extent.is_none_or(|(id, start)| key::extent(id, start) == bytes));
    let object = key::parse_object(&bytes);
    assert!(object.is_none_or(|(epoch, counter)| key::object(epoch, counter) == bytes));
    let segment = key::parse_of_segment(key::Kind::Segment, &bytes);
    assert!(segment.is_none_or(|(id, rest)| [&key::segment(id), rest].concat() == bytes));
    extent.is_some() || object.is_some() || segment.is_some()
}
