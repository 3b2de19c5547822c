//! The key space of the index: which rows there are and how they sort.
//!
//! A key is one byte for the kind of row, then what identifies it, numbers big-endian so that byte order is number
//! order. `docs/formats.md` draws each key; the values belong to those who write them, except `applied`.

use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

use crate::types::{SegmentId, SequenceNumber};

/// The kinds of rows, by the first byte of their keys. None is zero, so no key is a prefix of the whole space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The sequence number as of which all other rows are.
    Applied = 0x01,
    /// A segment, by its id.
    Segment = 0x02,
    /// A segment's id, by its canonical name.
    Name = 0x03,
    /// An attribute of a segment, by attribute id.
    Attribute = 0x04,
    /// A table's key.
    TableKey = 0x05,
    /// A table's key, by its version.
    TableVersion = 0x06,
    /// A range of a segment that lies in an object, by its first offset.
    Extent = 0x07,
    /// An object, by the epoch and counter in its name.
    Object = 0x08,
    /// A segment that is gone and whose rows are to be swept.
    Doomed = 0x09,
}

/// Version of the value of `applied`.
const APPLIED_VERSION: u8 = 1;

/// Longest key that a row may have.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Whether a key may be written by whoever applies records: not empty, not too long, not that of `applied`.
pub(crate) fn is_row(key: &[u8]) -> bool {
    key.first().is_some_and(|kind| *kind != Kind::Applied as u8) && key.len() <= KEY_BYTES_MAX
}

/// Returns the key of the row `applied`.
pub fn applied() -> Bytes {
    Bytes::from_static(&[Kind::Applied as u8])
}

/// Encodes the value of the row `applied`: a version byte, then the number, little-endian.
pub fn applied_value(applied: SequenceNumber) -> Bytes {
    let mut value = BytesMut::with_capacity(9);
    value.put_u8(APPLIED_VERSION);
    value.put_u64_le(applied.0);
    value.freeze()
}

/// Decodes the value of the row `applied`; `None` if this version never wrote it.
pub fn parse_applied(value: &[u8]) -> Option<SequenceNumber> {
    let (&version, number) = value.split_first()?;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    (version == APPLIED_VERSION).then_some(SequenceNumber(number))
}

/// Returns the key of a segment's row.
pub fn segment(id: SegmentId) -> Bytes {
    of_segment(Kind::Segment, id, &[])
}

/// Returns the key of the row that leads from a canonical name to a segment's id.
pub fn name(canonical: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + canonical.len());
    key.put_u8(Kind::Name as u8);
    key.put_slice(canonical.as_bytes());
    key.freeze()
}

/// Returns the key of a segment's attribute; `attribute` sorts as given.
pub fn attribute(id: SegmentId, attribute: &[u8]) -> Bytes {
    of_segment(Kind::Attribute, id, attribute)
}

/// Returns the key of a table's key.
pub fn table_key(id: SegmentId, key: &[u8]) -> Bytes {
    of_segment(Kind::TableKey, id, key)
}

/// Returns the key of the row that leads from a version to a table's key.
pub fn table_version(id: SegmentId, version: u64) -> Bytes {
    of_segment(Kind::TableVersion, id, &version.to_be_bytes())
}

/// Returns the key of the extent that starts at `start`.
pub fn extent(id: SegmentId, start: u64) -> Bytes {
    of_segment(Kind::Extent, id, &start.to_be_bytes())
}

/// Returns the key of an object's row.
pub fn object(epoch: u64, counter: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(Kind::Object as u8);
    key.put_u64(epoch);
    key.put_u64(counter);
    key.freeze()
}

/// Returns the key that dooms a segment's rows.
pub fn doomed(id: SegmentId) -> Bytes {
    of_segment(Kind::Doomed, id, &[])
}

/// Returns the range of all keys of a kind.
pub fn all(kind: Kind) -> Range<Bytes> {
    let first = kind as u8;
    Bytes::copy_from_slice(&[first])..Bytes::copy_from_slice(&[first + 1])
}

/// Returns the range of all keys of a kind that belong to a segment.
pub fn all_of_segment(kind: Kind, id: SegmentId) -> Range<Bytes> {
    let end = match id.0.checked_add(1) {
        Some(next) => of_segment(kind, SegmentId(next), &[]),
        None => all(kind).end,
    };
    of_segment(kind, id, &[])..end
}

/// Splits the key of a row that belongs to a segment into the segment's id and the rest.
pub fn parse_of_segment(kind: Kind, key: &[u8]) -> Option<(SegmentId, &[u8])> {
    let rest = key.strip_prefix(&[kind as u8])?;
    let (id, rest) = rest.split_first_chunk()?;
    Some((SegmentId(u64::from_be_bytes(*id)), rest))
}

/// Reads the key of an extent: its segment and first offset.
pub fn parse_extent(key: &[u8]) -> Option<(SegmentId, u64)> {
    let (id, rest) = parse_of_segment(Kind::Extent, key)?;
    Some((id, u64::from_be_bytes(rest.try_into().ok()?)))
}

/// Reads the key of an object's row: epoch and counter.
pub fn parse_object(key: &[u8]) -> Option<(u64, u64)> {
    let (epoch, counter) = key.strip_prefix(&[Kind::Object as u8])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*epoch), u64::from_be_bytes(counter.try_into().ok()?)))
}

fn of_segment(kind: Kind, id: SegmentId, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + rest.len());
    key.put_u8(kind as u8);
    key.put_u64(id.0);
    key.put_slice(rest);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_segment_then_by_number() {
        let ids = [0, 1, 255, 256, u64::MAX - 1, u64::MAX].map(SegmentId);
        let mut keys = Vec::new();
        for id in ids {
            keys.extend([0, 1, 255, 256, u64::MAX].map(|start| extent(id, start)));
        }
        assert!(keys.is_sorted());
        for id in ids {
            let range = all_of_segment(Kind::Extent, id);
            let inside = keys.iter().filter(|key| range.contains(*key));
            assert!(inside.clone().all(|key| parse_of_segment(Kind::Extent, key).unwrap().0 == id));
            assert_eq!(inside.count(), 5);
        }
    }

    #[test]
    fn kinds_do_not_overlap() {
        let id = SegmentId(u64::MAX);
        let keys = [
            (Kind::Applied, applied()),
            (Kind::Segment, segment(id)),
            (Kind::Name, name("scope/stream/0.#epoch.0")),
            (Kind::Attribute, attribute(id, &[0xff; 16])),
            (Kind::TableKey, table_key(id, &[0xff; 3])),
            (Kind::TableVersion, table_version(id, u64::MAX)),
            (Kind::Extent, extent(id, u64::MAX)),
            (Kind::Object, object(u64::MAX, u64::MAX)),
            (Kind::Doomed, doomed(id)),
        ];
        for (kind, _) in &keys {
            for (other, key) in &keys {
                assert_eq!(all(*kind).contains(key), kind == other, "{kind:?} {other:?}");
            }
        }
    }

    #[test]
    fn applied_round_trips_and_refuses_what_was_never_written() {
        let value = applied_value(SequenceNumber(u64::MAX - 1));
        assert_eq!(parse_applied(&value), Some(SequenceNumber(u64::MAX - 1)));
        for cut in 0..value.len() {
            assert_eq!(parse_applied(&value[..cut]), None);
        }
        assert_eq!(parse_applied(&[value.as_ref(), &[0]].concat()), None);
        assert_eq!(parse_applied(&[2, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
