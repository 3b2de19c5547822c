//! A log file: its name, its header, and how addresses map to it.
//!
//! The header is durable before the file gets its name, so a named file whose header does not verify is damaged,
//! never half made. docs/formats.md draws the header.

use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};

use super::frame::BLOCK_BYTES;
use crate::types::LogAddress;

/// Bytes of the header block that carry something.
const HEADER_BYTES: usize = 128;
/// First frame of every file.
pub(in crate::log) const FIRST_FRAME_AT: u64 = BLOCK_BYTES;
/// Name of the lock file.
pub(in crate::log) const LOCK_NAME: &str = "LOCK";

const MAGIC: [u8; 8] = *b"DHARALOG";
const VERSION: u16 = 2;
/// Addresses keep the offset in their low bits, so files stay below 4 GiB.
const OFFSET_BITS: u32 = 32;

/// The header of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) struct FileHeader {
    /// Random id of the whole log.
    pub log: u128,
    /// One more than the file before; 1 for the first.
    pub number: u64,
    /// Random number of this life of the file's blocks.
    pub incarnation: u64,
    /// One more each time the log is opened.
    pub epoch: u64,
    /// Number of the first frame of this file: all earlier ones lie in earlier files.
    pub first_frame: u64,
    /// Where the previous file ended; what follows there never counts.
    pub previous_end: u64,
    /// Header checksum of the last frame before this file.
    pub previous_crc: u32,
    /// How many containers share the log.
    pub containers: u16,
    /// Wall time of creation, for people.
    pub created_ms: i64,
    /// Bytes of the file as it was made.
    pub file_bytes: u64,
}

/// Why bytes are not a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) enum HeaderFault {
    /// The checksum or the magic is wrong.
    Damaged,
    /// Another version of the format.
    Version(u16),
}

impl FileHeader {
    /// The header as the first block of its file.
    pub(in crate::log) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put_slice(&MAGIC);
        out.put_u16_le(VERSION);
        out.put_u16_le(128);
        out.put_u32_le(4096);
        out.put_u128_le(self.log);
        out.put_u64_le(self.number);
        out.put_u64_le(self.incarnation);
        out.put_u64_le(self.epoch);
        out.put_u64_le(self.first_frame);
        out.put_u64_le(self.previous_end);
        out.put_u32_le(self.previous_crc);
        out.put_u16_le(self.containers);
        out.put_u16_le(0);
        out.put_i64_le(self.created_ms);
        out.put_u64_le(self.file_bytes);
        out.resize(HEADER_BYTES - 4, 0);
        let crc = crc32fast::hash(&out);
        out.put_u32_le(crc);
        out.resize(usize::try_from(BLOCK_BYTES).unwrap_or(HEADER_BYTES), 0);
        out
    }

    /// Reads a header.
    pub(in crate::log) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(HeaderFault::Damaged)?;
        let mut from = bytes;
        let mut magic = [0; 8];
        from.copy_to_slice(&mut magic);
        let crc = (&bytes[HEADER_BYTES - 4..]).get_u32_le();
        if magic != MAGIC || crc != crc32fast::hash(&bytes[..HEADER_BYTES - 4]) {
            return Err(HeaderFault::Damaged);
        }
        let version = from.get_u16_le();
        let (len, block) = (from.get_u16_le(), from.get_u32_le());
        if version != VERSION || len != 128 || block != 4096 {
            return Err(HeaderFault::Version(version));
        }
        let log = from.get_u128_le();
        let (number, incarnation, epoch) = (from.get_u64_le(), from.get_u64_le(), from.get_u64_le());
        let (first_frame, previous_end) = (from.get_u64_le(), from.get_u64_le());
        let (previous_crc, containers) = (from.get_u32_le(), from.get_u16_le());
        from.advance(2);
        let (created_ms, file_bytes) = (from.get_i64_le(), from.get_u64_le());
        Ok(Self {
            log,
            number,
            incarnation,
            epoch,
            first_frame,
            previous_end,
            previous_crc,
            containers,
            created_ms,
            file_bytes,
        })
    }
}

/// Path of the log file with this number.
pub(in crate::log) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

/// The number in the name of a log file; `None` for every other name.
pub(in crate::log) fn log_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let plain = digits.len() == 16 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// Path of a reserved file.
pub(in crate::log) fn spare_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("spare-{id:016x}"))
}

/// The id in the name of a reserved file; `None` for every other name.
pub(in crate::log) fn spare_id(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("spare-")?, 16).ok()
}

/// Path of a file that is being made and has no meaning yet.
pub(in crate::log) fn fresh_path(dir: &Path, what: &str) -> PathBuf {
    dir.join(format!("{what}.fresh"))
}

/// True for a file that was being made when the process ended.
pub(in crate::log) fn is_fresh(name: &str) -> bool {
    name.strip_suffix(".fresh").is_some()
}

/// The address of byte `offset` in file `number`.
pub(in crate::log) fn address(number: u64, offset: u64) -> LogAddress {
    assert!(number < 1 << (64 - OFFSET_BITS) && offset < 1 << OFFSET_BITS, "address of {number}:{offset}");
    LogAddress(number << OFFSET_BITS | offset)
}

/// The file number and the offset in it.
pub(in crate::log) fn place(address: LogAddress) -> (u64, u64) {
    (address.0 >> OFFSET_BITS, address.0 & ((1 << OFFSET_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            log: 1 << 100,
            number: 7,
            incarnation: u64::MAX,
            epoch: 2,
            first_frame: 99,
            previous_end: 8192,
            previous_crc: 5,
            containers: 4,
            created_ms: -1,
            file_bytes: 1 << 27,
        }
    }

    #[test]
    fn header_comes_back_as_it_was() {
        assert_eq!(header().encode().len(), 4096);
        assert_eq!(FileHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHeader::decode(&bad), Err(HeaderFault::Damaged), "bit {bit}");
        }
        assert!((0..HEADER_BYTES).all(|cut| FileHeader::decode(&bytes[..cut]).is_err()));
    }

    #[test]
    fn names_and_addresses_go_both_ways() {
        let dir = Path::new("d");
        assert_eq!(log_path(dir, 0xab), Path::new("d/00000000000000ab.log"));
        assert_eq!(log_number("00000000000000ab.log"), Some(0xab));
        assert_eq!(log_number("ab.log"), None);
        assert_eq!(log_number("+0000000000000ab.log"), None);
        assert_eq!(spare_id("spare-0000000000000005"), Some(5));
        assert_eq!(place(address(9, 4160)), (9, 4160));
    }
}
