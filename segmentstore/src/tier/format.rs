//! Bytes of an object, as docs/formats.md draws them. Pure: nothing here reads or writes a store.
//!
//! Whatever the bytes, decoding ends in a value or an [`ObjectError`], and takes no more memory than they take.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc32fast::hash;

use super::builder::single_crc;
use super::error::ObjectError;
use super::{BLOCK_BYTES, OBJECT_BYTES_MAX, OBJECT_RANGES_MAX};
use crate::types::{ContainerId, ObjectId, SegmentId, Stored};

/// Bytes before the first range.
pub(super) const HEADER_BYTES: u32 = 64;
/// Bytes at the very end, by which the footer is found.
const TRAILER_BYTES: usize = 64;
/// Bytes of a range in the footer, without its boundaries.
const RANGE_BYTES: usize = 32;
/// Bytes of the part that header and trailer share.
const IDENTITY_BYTES: usize = 24;

/// The footer of the largest object: each MiB may have a boundary, each range a short block.
const FOOTER_BYTES_MAX: usize = OBJECT_RANGES_MAX * (RANGE_BYTES + 4) + 2_048 * 4;

const HEADER_MAGIC: [u8; 8] = *b"DHARAOBJ";
const TRAILER_MAGIC: [u8; 8] = *b"DHARAEND";
const VERSION: u16 = 1;

const HEADER: &str = "header";
const FOOTER: &str = "footer";

/// What an object says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    /// The container it belongs to.
    pub container: ContainerId,
    /// Its name.
    pub id: ObjectId,
    /// How often its bytes were regrouped.
    pub level: u8,
    /// Wall time of its making in ms since 1970, for people.
    pub created_ms: i64,
}

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The container it belongs to.
    pub container: ContainerId,
    /// Its name.
    pub id: ObjectId,
    /// How often its bytes were regrouped.
    pub level: u8,
    /// Wall time of its making in ms since 1970, for people.
    pub created_ms: i64,
    /// Its ranges, as they lie one after the other.
    pub ranges: Vec<FooterRange>,
    /// CRC-32 of each block.
    block_crcs: Vec<u32>,
    /// Length of the whole object.
    bytes: u32,
}

/// A range of a segment in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FooterRange {
    /// The segment.
    pub segment: SegmentId,
    /// Offset of the range's first byte in the segment when it was stored; a merge moves it since.
    pub offset: u64,
    /// Where the range lies.
    pub stored: Stored,
    /// Positions in the range, ascending and greater than 0, where an append starts; at most one for each MiB.
    pub boundaries: Vec<u32>,
}

impl ObjectHeader {
    pub(super) fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(as_usize(HEADER_BYTES));
        out.put_slice(&HEADER_MAGIC);
        out.put_u16_le(VERSION);
        out.put_bytes(0, 6);
        self.put(&mut out);
        out.put_bytes(0, 20);
        let crc = hash(&out);
        out.put_u32_le(crc);
        assert_eq!(out.len(), as_usize(HEADER_BYTES), "a header has a fixed size");
        out.freeze()
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`ObjectError`] if there is none, or none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ObjectError> {
        let Some((header, _)) = bytes.split_at_checked(as_usize(HEADER_BYTES)) else {
            return Err(ObjectError::Magic { part: HEADER });
        };
        if header[..8] != HEADER_MAGIC {
            return Err(ObjectError::Magic { part: HEADER });
        }
        let (checked, mut crc) = header.split_at(header.len() - 4);
        if hash(checked) != crc.get_u32_le() {
            return Err(ObjectError::Checksum { part: HEADER });
        }
        let mut fields = &checked[8..];
        let version = fields.get_u16_le();
        if version != VERSION {
            return Err(ObjectError::Version { version });
        }
        fields.advance(6);
        Ok(Self::take(&mut fields))
    }

    fn put(self, out: &mut BytesMut) {
        out.put_u16_le(self.container.0);
        out.put_u8(self.level);
        out.put_u8(0);
        out.put_u32_le(self.id.epoch);
        out.put_u32_le(self.id.counter);
        out.put_u32_le(0);
        out.put_i64_le(self.created_ms);
    }

    /// Takes what [`Self::put`] put; the caller has seen to it that there are that many bytes.
    fn take(fields: &mut &[u8]) -> Self {
        let container = ContainerId(fields.get_u16_le());
        let level = fields.get_u8();
        fields.advance(1);
        let id = ObjectId { epoch: fields.get_u32_le(), counter: fields.get_u32_le() };
        fields.advance(4);
        Self { container, id, level, created_ms: fields.get_i64_le() }
    }
}

/// Footer and trailer of an object whose ranges end at `end`.
pub(super) fn encode_footer(
    header: ObjectHeader,
    ranges: &[FooterRange],
    block_crcs: &[u32],
    end: u32,
) -> Bytes {
    let boundaries: usize = ranges.iter().map(|range| range.boundaries.len()).sum();
    let length = ranges.len() * RANGE_BYTES + (boundaries + block_crcs.len()) * 4;
    let mut out = BytesMut::with_capacity(length + TRAILER_BYTES);
    for range in ranges {
        out.put_u64_le(range.segment.0);
        out.put_u64_le(range.offset);
        out.put_u32_le(range.stored.at);
        out.put_u32_le(range.stored.length);
        out.put_u32_le(range.stored.first_block);
        out.put_u32_le(as_u32(range.boundaries.len()));
        for boundary in &range.boundaries {
            out.put_u32_le(*boundary);
        }
    }
    for crc in block_crcs {
        out.put_u32_le(*crc);
    }
    assert_eq!(out.len(), length, "the footer is as long as it says");
    header.put(&mut out);
    out.put_u32_le(as_u32(length));
    out.put_u32_le(as_u32(ranges.len()));
    out.put_u32_le(as_u32(block_crcs.len()));
    out.put_u32_le(end + as_u32(length + TRAILER_BYTES));
    out.put_bytes(0, 10);
    out.put_u16_le(VERSION);
    let crc = hash(&out);
    out.put_u32_le(crc);
    out.put_slice(&TRAILER_MAGIC);
    assert_eq!(out.len(), length + TRAILER_BYTES, "a trailer has a fixed size");
    out.freeze()
}

/// The numbers of a trailer.
struct Trailer {
    header: ObjectHeader,
    ranges: u32,
    blocks: u32,
    object_bytes: u32,
}

impl Footer {
    /// Reads the footer at the end of `tail`: the last bytes of an object, or all of it.
    ///
    /// # Errors
    /// [`ObjectError::Cut`] says how many bytes of the end are needed, if those are not enough; any other if this is
    /// not the end of an object of this version, whole and unchanged.
    pub fn decode(tail: &[u8]) -> Result<Self, ObjectError> {
        let needed = u64::from(as_u32(TRAILER_BYTES));
        let (rest, trailer) = tail.split_last_chunk::<TRAILER_BYTES>().ok_or(ObjectError::Cut { needed })?;
        let (checked, mut end) = trailer.split_at(TRAILER_BYTES - 12);
        let crc = end.get_u32_le();
        if *end != TRAILER_MAGIC {
            return Err(ObjectError::Magic { part: "trailer" });
        }
        let footer_bytes = as_usize((&checked[IDENTITY_BYTES..]).get_u32_le());
        if footer_bytes > FOOTER_BYTES_MAX {
            // The length is not yet known to be right, and nobody shall read that much because of a flipped bit.
            return Err(ObjectError::Checksum { part: FOOTER });
        }
        let needed = u64::from(as_u32(footer_bytes + TRAILER_BYTES));
        let from = rest.len().checked_sub(footer_bytes).ok_or(ObjectError::Cut { needed })?;
        let footer = &rest[from..];
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(footer);
        hasher.update(checked);
        if hasher.finalize() != crc {
            return Err(ObjectError::Checksum { part: FOOTER });
        }
        let version = (&checked[checked.len() - 2..]).get_u16_le();
        if version != VERSION {
            return Err(ObjectError::Version { version });
        }
        let mut fields = checked;
        let header = ObjectHeader::take(&mut fields);
        fields.advance(4);
        let trailer = Trailer {
            header,
            ranges: fields.get_u32_le(),
            blocks: fields.get_u32_le(),
            object_bytes: fields.get_u32_le(),
        };
        Self::read(footer, &trailer)
    }

    /// Reads what the checksum has already vouched for; what is wrong here was wrong when it was written.
    fn read(footer: &[u8], trailer: &Trailer) -> Result<Self, ObjectError> {
        let footer_bytes = footer.len() + TRAILER_BYTES;
        let crc_bytes = as_usize(trailer.blocks).saturating_mul(4);
        let ranges_bytes =
            footer.len().checked_sub(crc_bytes).ok_or(shape("more blocks than the footer has room for"))?;
        let (mut entries, mut crcs) = footer.split_at(ranges_bytes);
        let mut block_crcs = Vec::with_capacity(crcs.len() / 4);
        while crcs.has_remaining() {
            block_crcs.push(crcs.get_u32_le());
        }
        let mut ranges = Vec::with_capacity(entries.len() / RANGE_BYTES);
        let (mut at, mut block) = (HEADER_BYTES, 0_u32);
        for _ in 0..trailer.ranges {
            let range = take_range(&mut entries, trailer.header.id, &block_crcs)?;
            let Stored { at: found, length, first_block, .. } = range.stored;
            if found != at || first_block != block {
                return Err(shape("a range does not begin where the one before ends"));
            }
            at = at.checked_add(length).ok_or(shape("ranges are longer than an object"))?;
            block += length.div_ceil(BLOCK_BYTES);
            ranges.push(range);
        }
        if entries.has_remaining() || ranges.is_empty() || block != trailer.blocks {
            return Err(shape("counts of ranges and blocks do not fit the footer"));
        }
        if u64::from(at) + u64::from(as_u32(footer_bytes)) != u64::from(trailer.object_bytes) {
            return Err(shape("the ranges do not fill the object"));
        }
        let ObjectHeader { container, id, level, created_ms } = trailer.header;
        Ok(Self { container, id, level, created_ms, ranges, block_crcs, bytes: trailer.object_bytes })
    }

    /// The header that the same object begins with.
    pub fn header(&self) -> ObjectHeader {
        ObjectHeader {
            container: self.container,
            id: self.id,
            level: self.level,
            created_ms: self.created_ms,
        }
    }

    /// Length of the whole object.
    pub fn object_bytes(&self) -> u64 {
        u64::from(self.bytes)
    }

    /// Bytes of memory that this footer takes, for whoever keeps many.
    pub fn memory_bytes(&self) -> usize {
        let boundaries: usize = self.ranges.iter().map(|range| range.boundaries.capacity() * 4).sum();
        size_of::<Self>()
            + self.ranges.capacity() * size_of::<FooterRange>()
            + self.block_crcs.capacity() * 4
            + boundaries
    }

    /// CRC-32 of a block of the object.
    pub fn block_crc(&self, block: u32) -> Option<u32> {
        self.block_crcs.get(as_usize(block)).copied()
    }

    /// The entry of a range that was stored in this object.
    pub fn range_of(&self, stored: &Stored) -> Option<&FooterRange> {
        let found = self.ranges.binary_search_by_key(&stored.at, |range| range.stored.at).ok()?;
        self.ranges.get(found).filter(|range| range.stored == *stored)
    }
}

fn take_range(entries: &mut &[u8], object: ObjectId, block_crcs: &[u32]) -> Result<FooterRange, ObjectError> {
    if entries.len() < RANGE_BYTES {
        return Err(shape("fewer ranges than the trailer says"));
    }
    let segment = SegmentId(entries.get_u64_le());
    let offset = entries.get_u64_le();
    let (at, length, first_block) = (entries.get_u32_le(), entries.get_u32_le(), entries.get_u32_le());
    if length == 0 || u64::from(length) > OBJECT_BYTES_MAX || offset.checked_add(length.into()).is_none() {
        return Err(shape("a range is empty or too long"));
    }
    let boundaries = as_usize(entries.get_u32_le());
    if entries.len() / 4 < boundaries {
        return Err(shape("more boundaries than the footer has room for"));
    }
    let boundaries: Vec<u32> = (0..boundaries).map(|_| entries.get_u32_le()).collect();
    let ascends = boundaries.is_sorted_by(|a, b| a < b);
    if !ascends || boundaries.first() == Some(&0) || boundaries.last().is_some_and(|last| *last >= length) {
        return Err(shape("boundaries lie outside of their range"));
    }
    let crc = single_crc(length, first_block, block_crcs);
    let stored = Stored { object, at, length, first_block, crc };
    Ok(FooterRange { segment, offset, stored, boundaries })
}

/// Checks whole blocks of a range, from its block `first_block_in_range` on; the last may be the range's short one.
///
/// A range of one block carries its checksum itself; any other needs the footer of its object.
///
/// # Errors
/// [`ObjectError::Block`] if the bytes are not those that were put; others if the question makes no sense.
pub fn verify(
    stored: &Stored,
    footer: Option<&Footer>,
    first_block_in_range: u32,
    bytes: &Bytes,
) -> Result<(), ObjectError> {
    let from = u64::from(first_block_in_range) * u64::from(BLOCK_BYTES);
    let left = u64::from(stored.length).saturating_sub(from);
    let given = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if given == 0 || given > left || (given < left && given % u64::from(BLOCK_BYTES) != 0) {
        return Err(shape("these are not whole blocks of the range"));
    }
    if stored.length <= BLOCK_BYTES {
        return check_block(stored.first_block, Some(stored.crc), bytes);
    }
    let footer = footer.ok_or(ObjectError::NoFooter)?;
    if footer.range_of(stored).is_none() {
        return Err(shape("the range is not one of this object"));
    }
    let blocks = bytes.chunks(as_usize(BLOCK_BYTES));
    for (block, bytes) in (stored.first_block + first_block_in_range..).zip(blocks) {
        check_block(block, footer.block_crc(block), bytes)?;
    }
    Ok(())
}

fn check_block(block: u32, crc: Option<u32>, bytes: &[u8]) -> Result<(), ObjectError> {
    if crc == Some(hash(bytes)) { Ok(()) } else { Err(ObjectError::Block { block }) }
}

/// Checks all of an object, and returns its footer.
///
/// # Errors
/// What is wrong with it first.
pub fn verify_object(bytes: &Bytes) -> Result<Footer, ObjectError> {
    let footer = Footer::decode(bytes)?;
    if u64::try_from(bytes.len()).ok() != Some(footer.object_bytes()) {
        return Err(shape("the object is longer or shorter than its footer says"));
    }
    if ObjectHeader::decode(bytes)? != footer.header() {
        return Err(shape("header and footer are of two objects"));
    }
    for range in &footer.ranges {
        let at = as_usize(range.stored.at);
        let stored = bytes.slice(at..at + as_usize(range.stored.length));
        verify(&range.stored, Some(&footer), 0, &stored)?;
    }
    Ok(footer)
}

fn shape(what: &'static str) -> ObjectError {
    ObjectError::Shape { what }
}

/// Lossless where it is used: positions and counts of an object fit 32 bits.
fn as_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
