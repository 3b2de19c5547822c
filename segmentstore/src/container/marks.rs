//! Which part of the log a container still needs, pure.
//!
//! The log's addresses are cut into buckets. For each the first batch that begins in it is kept, and how many live
//! pieces lie in it. The floor is the start of a batch, so that recovery meets whole batches only.

use crate::state::Piece;
use crate::types::{LogAddress, SequenceNumber};
use std::collections::BTreeMap;

/// Bytes of log that share a count: a power of two, small beside a log file.
const BUCKET_BITS: u32 = 22;

/// First needed byte and record of a container's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) address: LogAddress,
    pub(crate) sequence: SequenceNumber,
}

/// Batches and pieces by bucket.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    batches: BTreeMap<u64, Mark>,
    pieces: BTreeMap<u64, u64>,
    /// All pieces.
    places: u64,
}

fn bucket(address: LogAddress) -> u64 {
    address.0 >> BUCKET_BITS
}

impl Marks {
    /// A batch became durable.
    pub(crate) fn batch(&mut self, address: LogAddress, first: SequenceNumber) {
        self.batches.entry(bucket(address)).or_insert(Mark { address, sequence: first });
    }

    /// A live piece lies at `address`.
    pub(crate) fn add(&mut self, address: LogAddress) {
        *self.pieces.entry(bucket(address)).or_default() += 1;
        self.places += 1;
    }

    /// A piece is no longer needed.
    pub(crate) fn remove(&mut self, address: LogAddress) {
        let bucket = bucket(address);
        let Some(count) = self.pieces.get_mut(&bucket) else { unreachable!("every piece was added") };
        *count -= 1;
        self.places -= 1;
        if *count == 0 {
            self.pieces.remove(&bucket);
        }
    }

    /// How many live pieces lie in the log.
    pub(crate) fn places(&self) -> u64 {
        self.places
    }

    /// Adds a piece, if it lies in the log.
    pub(crate) fn note(&mut self, piece: &Piece) {
        if let Some(address) = piece.address() {
            self.add(address);
        }
    }

    /// Removes a piece, if it lies in the log.
    pub(crate) fn forget(&mut self, piece: &Piece) {
        if let Some(address) = piece.address() {
            self.remove(address);
        }
    }

    /// Where the log must begin if the index holds everything up to and including `flushed`; drops what lies below.
    /// `None` if no batch is known.
    pub(crate) fn floor(&mut self, flushed: SequenceNumber) -> Option<Mark> {
        let unflushed = self.batches.values().rev().find(|mark| mark.sequence <= flushed.next());
        let mut floor = *unflushed.or_else(|| self.batches.values().next())?;
        // The batch of the first piece in a bucket may have begun in an earlier one.
        let holding = self.pieces.first_key_value().and_then(|(&oldest, _)| {
            self.batches.range(..oldest).next_back().or_else(|| self.batches.iter().next())
        });
        match holding {
            Some((_, mark)) if mark.address <= floor.address => floor = *mark,
            // A container that is quiet needs nothing of its last batch either, and must not keep the file that holds it.
            _ => floor.sequence = floor.sequence.max(flushed.next()),
        }
        self.batches = self.batches.split_off(&bucket(floor.address));
        Some(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: u64 = 1 << BUCKET_BITS;

    #[test]
    fn floor_is_the_first_unflushed_record_and_its_batch() {
        let mut marks = Marks::default();
        for n in 0..10 {
            marks.batch(LogAddress(n * BUCKET), SequenceNumber(1 + 100 * n));
        }
        let floor = marks.floor(SequenceNumber(450)).unwrap();
        assert_eq!(floor, Mark { address: LogAddress(4 * BUCKET), sequence: SequenceNumber(451) });
        let floor = marks.floor(SequenceNumber(1000)).unwrap();
        assert_eq!(floor, Mark { address: LogAddress(9 * BUCKET), sequence: SequenceNumber(1001) });
    }

    #[test]
    fn a_live_piece_holds_the_floor_below_its_batch() {
        let mut marks = Marks::default();
        marks.batch(LogAddress(BUCKET - 10), SequenceNumber(1));
        marks.batch(LogAddress(BUCKET + 100), SequenceNumber(5));
        marks.batch(LogAddress(9 * BUCKET), SequenceNumber(9));
        // Began in the first bucket, reaches into the second.
        marks.add(LogAddress(BUCKET + 50));
        assert_eq!(marks.floor(SequenceNumber(20)).map(|mark| mark.sequence), Some(SequenceNumber(1)));
        marks.remove(LogAddress(BUCKET + 50));
        assert_eq!(marks.floor(SequenceNumber(20)).map(|mark| mark.sequence), Some(SequenceNumber(21)));
    }
}
