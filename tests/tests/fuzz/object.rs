//! Objects of the tier: damaged, and with checksums that were made to fit the damage.

use super::chance::Chance;
use bytes::Bytes;
use dhara_segmentstore::tier::{Footer, ObjectBuilder, ObjectHeader, verify_object};
use dhara_segmentstore::types::{ContainerId, ObjectId, SegmentId};

const TRAILER: usize = 64;
const HEADER: usize = 64;

fn sample(chance: &mut Chance) -> Vec<u8> {
    let id = ObjectId { epoch: 2, counter: 5 };
    let mut builder = ObjectBuilder::new(ContainerId(1), id, 0, 1_000);
    for segment in 0..=chance.number() % 4 {
        let length = if chance.below(4) == 0 { 70_000 } else { 2 + chance.below(300) };
        let data = Bytes::from(vec![chance.byte(); length]);
        let boundary = u32::try_from(1 + chance.below(length - 1)).unwrap();
        builder.range(SegmentId(segment), chance.number() >> 8, vec![data], vec![boundary]);
    }
    builder.finish().payload.iter().flat_map(|part| part.iter().copied()).collect()
}

fn understood(bytes: Vec<u8>) -> bool {
    let bytes = Bytes::from(bytes);
    assert_eq!(ObjectHeader::decode(&bytes).ok(), ObjectHeader::decode(&bytes).ok());
    let whole = verify_object(&bytes).ok();
    assert_eq!(whole, verify_object(&bytes).ok());
    let Ok(footer) = Footer::decode(&bytes) else { return false };
    assert_eq!(Footer::decode(&bytes).ok().as_ref(), Some(&footer));
    assert!(footer.memory_bytes() <= 4 * bytes.len() + 1_024, "{} of {}", footer.memory_bytes(), bytes.len());
    for range in &footer.ranges {
        assert_eq!(footer.range_of(&range.stored), Some(range));
    }
    whole.is_some()
}

pub(crate) fn damaged(chance: &mut Chance) -> bool {
    let sample = sample(chance);
    understood(chance.damaged(&[sample]))
}

pub(crate) fn forged(chance: &mut Chance) -> bool {
    let mut bytes = sample(chance);
    let end = bytes.len();
    if chance.below(4) == 0 {
        let mut header = bytes[..HEADER - 4].to_vec();
        chance.damage(&mut header);
        header.resize(HEADER - 4, 0);
        header.extend(crc32fast::hash(&header).to_le_bytes());
        bytes[..HEADER].copy_from_slice(&header);
        return understood(bytes);
    }
    // Length of the footer, ranges, blocks and object follow the part that header and trailer share.
    let lengths = end - TRAILER + 24;
    let footer_bytes = u32::from_le_bytes(bytes[lengths..lengths + 4].try_into().unwrap());
    let from = end - TRAILER - usize::try_from(footer_bytes).unwrap();
    let mut footer = bytes[from..end - 12].to_vec();
    let length = footer.len();
    chance.damage(&mut footer);
    if chance.below(2) == 0 {
        footer.resize(length, 0);
    }
    footer.extend(crc32fast::hash(&footer).to_le_bytes());
    footer.extend(b"DHARAEND");
    bytes.truncate(from);
    bytes.extend(footer);
    understood(bytes)
}
