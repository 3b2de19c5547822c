//! Lays ranges of segments out as one object. Pure: nothing here knows a store.

use bytes::Bytes;
use crc32fast::Hasher;
use object_store::PutPayload;

use super::format::{FooterRange, HEADER_BYTES, ObjectHeader, encode_footer};
use super::{BLOCK_BYTES, BOUNDARY_BYTES, OBJECT_BYTES_MAX, OBJECT_RANGES_MAX};
use crate::types::{ContainerId, ObjectId, SegmentId, Stored};

/// An object in the making.
#[derive(Debug)]
pub struct ObjectBuilder {
    header: ObjectHeader,
    /// The header, then the chunks of all ranges.
    chunks: Vec<Bytes>,
    ranges: Vec<FooterRange>,
    block_crcs: Vec<u32>,
    /// Where the next range comes to lie.
    at: u32,
}

/// An object, ready to be put. Clones share its bytes.
#[derive(Clone, Debug)]
pub struct BuiltObject {
    /// Its name.
    pub id: ObjectId,
    /// All its bytes.
    pub payload: PutPayload,
    /// How many those are.
    pub bytes: u64,
}

impl ObjectBuilder {
    /// Begins an object. `level` counts how often its bytes were regrouped; `created_ms` is wall time, for people.
    pub fn new(container: ContainerId, id: ObjectId, level: u8, created_ms: i64) -> Self {
        let header = ObjectHeader { container, id, level, created_ms };
        Self {
            chunks: vec![header.encode()],
            header,
            ranges: Vec::new(),
            block_crcs: Vec::new(),
            at: HEADER_BYTES,
        }
    }

    /// Whether another range of this many bytes may be added.
    pub fn fits(&self, range_bytes: u64) -> bool {
        self.ranges.len() < OBJECT_RANGES_MAX && self.bytes().saturating_add(range_bytes) <= OBJECT_BYTES_MAX
    }

    /// Adds the bytes of `segment` from `offset` on, which are `chunks` back to back, and returns where they will lie.
    ///
    /// Holds on to the chunks and never copies them. `boundaries` are positions in the range, ascending and greater
    /// than 0, where an append starts; of each run of [`BOUNDARY_BYTES`] after the first the earliest is kept.
    ///
    /// Panics if the range is empty or does not fit ([`Self::fits`]).
    pub fn range(
        &mut self,
        segment: SegmentId,
        offset: u64,
        chunks: Vec<Bytes>,
        boundaries: Vec<u32>,
    ) -> Stored {
        let bytes: u64 = chunks.iter().map(|chunk| as_u64(chunk.len())).sum();
        assert!(bytes > 0, "a range is not empty");
        assert!(self.fits(bytes), "range of {bytes} bytes does not fit beside {} bytes", self.bytes());
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        let boundaries = thin(boundaries, length);
        let first_block = self.blocks();
        self.hash(&chunks);
        assert_eq!(self.blocks() - first_block, length.div_ceil(BLOCK_BYTES), "every block has its checksum");
        let stored = Stored {
            object: self.header.id,
            at: self.at,
            length,
            first_block,
            crc: single_crc(length, first_block, &self.block_crcs),
        };
        self.at += length;
        self.chunks.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
        self.ranges.push(FooterRange { segment, offset, stored, boundaries });
        stored
    }

    /// Returns how many bytes the ranges have so far, without header and footer.
    pub fn bytes(&self) -> u64 {
        u64::from(self.at - HEADER_BYTES)
    }

    /// Returns how many ranges there are so far.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Ends the object. Panics if it has no range.
    pub fn finish(mut self) -> BuiltObject {
        assert!(!self.ranges.is_empty(), "an object has ranges");
        let footer = encode_footer(self.header, &self.ranges, &self.block_crcs, self.at);
        let bytes = u64::from(self.at) + as_u64(footer.len());
        self.chunks.push(footer);
        let payload: PutPayload = self.chunks.into_iter().collect();
        BuiltObject { id: self.header.id, payload, bytes }
    }

    fn blocks(&self) -> u32 {
        u32::try_from(self.block_crcs.len()).unwrap_or(u32::MAX)
    }

    /// Adds the checksums of a new range's blocks, wherever the borders between its chunks are.
    fn hash(&mut self, chunks: &[Bytes]) {
        let block = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        let mut hasher = Hasher::new();
        let mut left = block;
        for chunk in chunks {
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(left.min(rest.len()));
                hasher.update(now);
                left -= now.len();
                rest = later;
                if left == 0 {
                    self.block_crcs.push(std::mem::take(&mut hasher).finalize());
                    left = block;
                }
            }
        }
        if left < block {
            self.block_crcs.push(hasher.finalize());
        }
    }
}

/// The checksum that a range of `length` bytes carries itself: that of its block, if that is the only one.
pub(super) fn single_crc(length: u32, first_block: u32, block_crcs: &[u32]) -> u32 {
    if length > BLOCK_BYTES {
        return 0;
    }
    usize::try_from(first_block).ok().and_then(|block| block_crcs.get(block)).copied().unwrap_or(0)
}

/// Keeps the earliest boundary of each run of [`BOUNDARY_BYTES`] but the first, which the range's own start serves.
fn thin(mut boundaries: Vec<u32>, length: u32) -> Vec<u32> {
    assert!(boundaries.is_sorted_by(|a, b| a < b), "boundaries ascend");
    assert!(boundaries.first().is_none_or(|first| *first > 0), "a boundary lies after the start");
    assert!(boundaries.last().is_none_or(|last| *last < length), "a boundary lies in its range");
    let mut run = 0;
    boundaries.retain(|boundary| {
        let keeps = boundary / BOUNDARY_BYTES > run;
        run = boundary / BOUNDARY_BYTES;
        keeps
    });
    boundaries
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
