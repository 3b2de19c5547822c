//! The frame: what one write and one sync make durable.
//!
//! Starts on a block, is padded to one, and is never touched again once acked. docs/formats.md draws the header.

use bytes::{Buf, BufMut};

/// Frames start on multiples of this and are padded to it.
pub(in crate::log) const BLOCK_BYTES: u64 = 4096;
/// Bytes before the payload.
pub(in crate::log) const FRAME_HEADER_BYTES: usize = 64;
/// A frame takes batches up to this many bytes, or one larger batch.
pub(in crate::log) const PAYLOAD_BYTES_FILL: usize = 4 << 20;
/// No valid frame has a larger payload: one record of the largest size, beside the log's own.
pub(in crate::log) const PAYLOAD_BYTES_MAX: usize = 20 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"DFRM");
const VERSION: u8 = 1;
/// Flag of a frame that says only that another file follows.
const FOLLOWED: u8 = 1;

/// The header of a frame, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) struct FrameHeader {
    /// One more than the frame before, over files and epochs.
    pub number: u64,
    /// The epoch of the log in which it was written.
    pub epoch: u64,
    pub payload_len: u32,
    pub records: u32,
    pub payload_crc: u32,
    /// Every frame up to this one was durable when this one was built.
    pub acked_upto: u64,
    /// Header checksum of the frame before.
    pub previous_crc: u32,
    /// It is no part of the chain but says that another file follows, whose first frame has this number.
    pub followed: bool,
}

/// Bytes that a frame with `payload` bytes takes in its file.
pub(in crate::log) fn frame_bytes(payload: usize) -> u64 {
    let whole = u64::try_from(FRAME_HEADER_BYTES + payload).unwrap_or(u64::MAX);
    whole.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Checksum of `bytes` in the file life `incarnation`.
fn seeded_crc(incarnation: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&incarnation.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

impl FrameHeader {
    /// Writes the header and returns its checksum, which the next frame carries.
    pub(in crate::log) fn encode(&self, incarnation: u64, into: &mut [u8; FRAME_HEADER_BYTES]) -> u32 {
        let mut out = &mut into[..];
        out.put_u32_le(MAGIC);
        out.put_u8(VERSION);
        out.put_u8(if self.followed { FOLLOWED } else { 0 });
        out.put_u16_le(64);
        out.put_u64_le(self.number);
        out.put_u64_le(self.epoch);
        out.put_slice(&incarnation.to_le_bytes()[..4]);
        out.put_u32_le(self.payload_len);
        out.put_u32_le(self.records);
        out.put_u32_le(self.payload_crc);
        out.put_u64_le(self.acked_upto);
        out.put_u32_le(self.previous_crc);
        out.put_u64_le(0);
        let crc = seeded_crc(incarnation, &into[..60]);
        into[60..].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads a header of the file life `incarnation` and its checksum; `None` if these bytes are none.
    pub(in crate::log) fn decode(bytes: &[u8], incarnation: u64) -> Option<(Self, u32)> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let mut from = bytes;
        if from.get_u32_le() != MAGIC || from.get_u8() != VERSION {
            return None;
        }
        let flags = from.get_u8();
        if flags & !FOLLOWED != 0 || from.get_u16_le() != 64 {
            return None;
        }
        let (number, epoch) = (from.get_u64_le(), from.get_u64_le());
        from.advance(4);
        let header = Self {
            number,
            epoch,
            payload_len: from.get_u32_le(),
            records: from.get_u32_le(),
            payload_crc: from.get_u32_le(),
            acked_upto: from.get_u64_le(),
            previous_crc: from.get_u32_le(),
            followed: flags == FOLLOWED,
        };
        from.advance(8);
        let crc = from.get_u32_le();
        let sane = usize::try_from(header.payload_len).is_ok_and(|len| len <= PAYLOAD_BYTES_MAX);
        (sane && crc == seeded_crc(incarnation, &bytes[..60])).then_some((header, crc))
    }

    /// Bytes of the payload.
    pub(in crate::log) fn payload(&self) -> usize {
        usize::try_from(self.payload_len).unwrap_or(usize::MAX)
    }

    /// Bytes of the whole frame in its file.
    pub(in crate::log) fn bytes(&self) -> u64 {
        frame_bytes(self.payload())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            number: 0x0102_0304_0506_0708,
            epoch: 3,
            payload_len: 4096,
            records: 2,
            payload_crc: 0xaabb_ccdd,
            acked_upto: 0x0102_0304_0506_0707,
            previous_crc: 0x1122_3344,
            followed: false,
        }
    }

    #[test]
    fn header_comes_back_as_it_was() {
        for followed in [false, true] {
            let (header, mut bytes) = (FrameHeader { followed, ..header() }, [0; FRAME_HEADER_BYTES]);
            let crc = header.encode(77, &mut bytes);
            assert_eq!(FrameHeader::decode(&bytes, 77), Some((header, crc)));
        }
    }

    #[test]
    fn header_of_an_older_life_of_the_file_is_none() {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        header().encode(77, &mut bytes);
        assert_eq!(FrameHeader::decode(&bytes, 78), None);
        assert_eq!(FrameHeader::decode(&bytes, 77 + (1 << 32)), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        header().encode(77, &mut bytes);
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad, 77), None, "bit {bit}");
        }
        for cut in 0..FRAME_HEADER_BYTES {
            assert_eq!(FrameHeader::decode(&bytes[..cut], 77), None);
        }
    }

    #[test]
    fn frames_are_padded_to_blocks() {
        assert_eq!(frame_bytes(0), 4096);
        assert_eq!(frame_bytes(4032), 4096);
        assert_eq!(frame_bytes(4033), 8192);
    }
}
