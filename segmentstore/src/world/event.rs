//! Events whose bytes follow from who wrote them, so that whoever reads one knows what it must be.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::LazyLock;

/// Who wrote an event, and which of its own it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EventId {
    /// The writer; never used for another purpose.
    pub(super) writer: u32,
    /// 1 for the writer's first event in a segment, then +1 each.
    pub(super) number: u32,
}

/// Bytes before an event's own: writer, number, length of the whole, CRC of all that.
const HEADER_BYTES: usize = 16;

/// Most bytes behind the header.
const OWN_BYTES_MAX: usize = 20_000;
/// Bytes of noise, of which every event shows a part.
const NOISE_BYTES: usize = 1 << 16;

static NOISE: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..).flat_map(|word| mix(word).to_le_bytes()).take(NOISE_BYTES).collect());

/// Length of the whole event; most are small, a few are not.
fn length_of(id: EventId) -> usize {
    let mixed = mix(u64::from(id.writer) << 32 | u64::from(id.number));
    let spread = usize::try_from(mixed >> 40).unwrap_or(0);
    let own = match mixed % 100 {
        0..70 => spread % 200,
        70..95 => spread % 3_000,
        _ => spread % OWN_BYTES_MAX,
    };
    HEADER_BYTES + own
}

/// SplitMix64's mixing step.
fn mix(of: u64) -> u64 {
    let mut mixed = of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

impl EventId {
    /// The event's bytes.
    pub(super) fn bytes(self) -> Bytes {
        let length = length_of(self);
        let mut out = BytesMut::with_capacity(length);
        out.put_u32_le(self.writer);
        out.put_u32_le(self.number);
        out.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
        out.put_u32_le(crc32fast::hash(&out));
        out.extend_from_slice(self.own(length));
        out.freeze()
    }

    /// The bytes behind the header: a stretch of noise that begins where the id says.
    fn own(self, length: usize) -> &'static [u8] {
        let mixed = mix(u64::from(self.number) << 32 | u64::from(self.writer));
        let from = usize::try_from(mixed >> 40).unwrap_or(0) % (NOISE_BYTES - OWN_BYTES_MAX);
        &NOISE[from..from + length - HEADER_BYTES]
    }

    /// How many bytes the event has.
    pub(super) fn length(self) -> u64 {
        u64::try_from(length_of(self)).unwrap_or(u64::MAX)
    }

    /// The event at the front of `bytes` with its length; `None` if more bytes are needed to tell.
    ///
    /// # Errors
    /// What is wrong with bytes that are no event.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let mut header = &bytes[..HEADER_BYTES];
        let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
        let id = Self { writer: header.get_u32_le(), number: header.get_u32_le() };
        let length = usize::try_from(header.get_u32_le()).unwrap_or(usize::MAX);
        if header.get_u32_le() != crc || length != length_of(id) {
            return Err(format!("no event begins with {:02x?}", &bytes[..HEADER_BYTES]));
        }
        if bytes.len() < length {
            return Ok(None);
        }
        if bytes[HEADER_BYTES..length] != *id.own(length) {
            return Err(format!("{id:?} has other bytes than were written"));
        }
        Ok(Some((id, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_told_from_its_bytes_and_from_no_others() {
        for number in 1..200 {
            let id = EventId { writer: 7, number };
            let bytes = id.bytes();
            assert_eq!(bytes.len() as u64, id.length());
            assert_eq!(EventId::parse(&bytes), Ok(Some((id, bytes.len()))));
            assert_eq!(EventId::parse(&bytes[..bytes.len() - 1]), Ok(None));
            for at in [0, 5, 9, 13, bytes.len() - 1] {
                let mut rotten = bytes.to_vec();
                rotten[at] ^= 1;
                assert!(EventId::parse(&rotten).is_err(), "byte {at} of {number}");
            }
        }
    }
}
