//! Ranges of segments that lie in objects, and their bytes in records and rows.

use crate::types::{ObjectId, SegmentId, Stored};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A range of a segment that lies in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the first byte in the segment.
    pub offset: u64,
    /// How many bytes, > 0.
    pub length: u32,
    /// Bytes of the stored range before the first one.
    pub skip: u32,
    /// The stored range; all its blocks are needed to prove any of its bytes.
    pub stored: Stored,
}

impl Extent {
    /// Offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Whether it lies within its stored range, and its offsets can be counted.
    pub fn is_sound(&self) -> bool {
        let inside = self.skip.checked_add(self.length).is_some_and(|end| end <= self.stored.length);
        inside && self.length > 0 && self.offset.checked_add(u64::from(self.length)).is_some()
    }

    /// The part of it that lies in `from..to`; `None` if there is none.
    #[must_use]
    pub fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (offset, end) = (from.max(self.offset), to.min(self.end()));
        let length = u32::try_from(end.checked_sub(offset)?).ok().filter(|length| *length > 0)?;
        let cut = u32::try_from(offset - self.offset).ok()?;
        Some(Self { offset, length, skip: self.skip + cut, ..*self })
    }
}

pub(super) fn put_object(object: ObjectId, out: &mut BytesMut) {
    out.put_u32_le(object.epoch);
    out.put_u32_le(object.counter);
}

pub(super) fn get_object(from: &mut Bytes) -> Option<ObjectId> {
    Some(ObjectId { epoch: from.try_get_u32_le().ok()?, counter: from.try_get_u32_le().ok()? })
}

/// What an extent takes in a record.
pub(super) const EXTENT_BYTES: usize = 2 * 8 + 6 * 4;

pub(super) fn put_extent(extent: &Extent, out: &mut BytesMut) {
    out.put_u64_le(extent.segment.0);
    out.put_u64_le(extent.offset);
    out.put_u32_le(extent.length);
    out.put_u32_le(extent.skip);
    write_stored(&extent.stored, out);
}

/// Reads what [`put_extent`] wrote; `None` if it is too short or contradicts itself.
pub(super) fn get_extent(object: ObjectId, from: &mut Bytes) -> Option<Extent> {
    let (segment, offset) = (SegmentId(from.try_get_u64_le().ok()?), from.try_get_u64_le().ok()?);
    let (length, skip) = (from.try_get_u32_le().ok()?, from.try_get_u32_le().ok()?);
    let extent = Extent { segment, offset, length, skip, stored: read_stored(object, from)? };
    extent.is_sound().then_some(extent)
}

/// Writes where a range lies in its object, 16 bytes.
pub fn write_stored(stored: &Stored, out: &mut BytesMut) {
    out.put_u32_le(stored.at);
    out.put_u32_le(stored.length);
    out.put_u32_le(stored.first_block);
    out.put_u32_le(stored.crc);
}

/// Reads what [`write_stored`] wrote; `None` if it is too short.
pub fn read_stored(object: ObjectId, from: &mut Bytes) -> Option<Stored> {
    Some(Stored {
        object,
        at: from.try_get_u32_le().ok()?,
        length: from.try_get_u32_le().ok()?,
        first_block: from.try_get_u32_le().ok()?,
        crc: from.try_get_u32_le().ok()?,
    })
}
