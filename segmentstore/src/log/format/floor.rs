//! Floors: what each container still needs, kept in the log itself.
//!
//! Each file opens with a record of the log's own that holds the floor and the next sequence number of every
//! container, and another is written before a file is let go. So a recovery knows what must be there.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::record::{LOG_ITSELF, RECORD_HEADER_BYTES};
use crate::types::{LogAddress, SequenceNumber};

/// Kind of the record.
pub(in crate::log) const FLOORS_KIND: u8 = 1;
const FLOORS_VERSION: u8 = 1;
const MARK_BYTES: usize = 32;

/// The first byte and the first record that a container still needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Where that record lies, or any address after the last unneeded one.
    pub address: LogAddress,
    /// That record, or the one that will come next if none is needed.
    pub sequence: SequenceNumber,
}

/// What the log knows about one container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::log) struct Mark {
    /// Latest epoch seen.
    pub epoch: u64,
    /// Sequence number of the next record; 0 if there never was one.
    pub next: u64,
    pub floor: Floor,
}

impl Mark {
    /// Counts `first..=last` as written; false if `first` does not follow.
    pub(in crate::log) fn advance(&mut self, epoch: u64, first: u64, last: u64) -> bool {
        let follows = (self.next == 0 || self.next == first) && epoch >= self.epoch && first > 0;
        if follows {
            self.epoch = epoch;
            self.next = last + 1;
        }
        follows
    }
}

/// Bytes of the record that holds the marks of this many containers.
pub(in crate::log) fn encoded_len(containers: usize) -> usize {
    RECORD_HEADER_BYTES + 4 + containers * MARK_BYTES
}

/// Encodes the record that holds all marks.
pub(in crate::log) fn encode(marks: &[Mark]) -> Bytes {
    let mut out = BytesMut::with_capacity(encoded_len(marks.len()));
    let body = encoded_len(marks.len()) - RECORD_HEADER_BYTES;
    out.put_u32_le(u32::try_from(body).unwrap_or(u32::MAX));
    out.put_u16_le(LOG_ITSELF);
    out.put_u8(FLOORS_KIND);
    out.put_u8(FLOORS_VERSION);
    out.put_u64_le(0);
    out.put_u64_le(0);
    out.put_u32_le(u32::try_from(marks.len()).unwrap_or(u32::MAX));
    for mark in marks {
        out.put_u64_le(mark.epoch);
        out.put_u64_le(mark.next);
        out.put_u64_le(mark.floor.sequence.0);
        out.put_u64_le(mark.floor.address.0);
    }
    out.freeze()
}

/// Reads the body of such a record; `None` if it is not one for `containers` containers.
pub(in crate::log) fn decode(kind: u8, version: u8, mut body: &[u8], containers: u16) -> Option<Vec<Mark>> {
    let count = usize::from(containers);
    if kind != FLOORS_KIND || version != FLOORS_VERSION || body.len() != 4 + count * MARK_BYTES {
        return None;
    }
    if body.get_u32_le() != u32::from(containers) {
        return None;
    }
    let marks = (0..count).map(|_| {
        let (epoch, next, sequence) = (body.get_u64_le(), body.get_u64_le(), body.get_u64_le());
        let address = LogAddress(body.get_u64_le());
        Mark { epoch, next, floor: Floor { address, sequence: SequenceNumber(sequence) } }
    });
    Some(marks.collect())
}

#[cfg(test)]
mod tests {
    use super::super::record::Records;
    use super::*;

    #[test]
    fn marks_come_back_as_they_were() {
        let floor = Floor { address: LogAddress(77), sequence: SequenceNumber(5) };
        let marks = [Mark { epoch: 3, next: 9, floor }, Mark::default()];
        let bytes = encode(&marks);
        let record = Records::of(&bytes).next().unwrap();
        let body = &bytes[record.body..];
        assert_eq!((record.container, bytes.len()), (LOG_ITSELF, encoded_len(2)));
        assert_eq!(decode(record.kind, record.version, body, 2), Some(marks.to_vec()));
        assert_eq!(decode(record.kind, record.version, body, 3), None);
        assert_eq!(decode(record.kind, record.version, &body[1..], 2), None);
    }

    #[test]
    fn mark_refuses_a_gap_and_an_older_epoch() {
        let mut mark = Mark::default();
        assert!(mark.advance(2, 10, 12));
        assert!(!mark.advance(2, 14, 14));
        assert!(!mark.advance(1, 13, 13));
        assert!(mark.advance(3, 13, 13));
        assert_eq!(mark.next, 14);
    }
}
