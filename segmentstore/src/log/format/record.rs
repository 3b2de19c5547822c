//! Records and batches: what a container hands to its log, as bytes.
//!
//! docs/formats.md, section "Log", draws the record header.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::types::{ContainerEpoch, ContainerId, LogAddress, SequenceNumber};

/// Bytes before each record's body.
pub const RECORD_HEADER_BYTES: usize = 24;
/// A batch ends before it grows beyond this, unless one record alone is larger.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Largest record with its header.
pub const RECORD_BYTES_MAX: usize = 17 << 20;
/// The container number under which the log keeps records of its own.
pub(in crate::log) const LOG_ITSELF: u16 = u16::MAX;

/// Encoded records of one container, consecutive in sequence; it lies contiguous in one frame.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(in crate::log) container: ContainerId,
    pub(in crate::log) epoch: ContainerEpoch,
    pub(in crate::log) bytes: Bytes,
    pub(in crate::log) first: SequenceNumber,
    pub(in crate::log) last: SequenceNumber,
    pub(in crate::log) records: u32,
}

impl Batch {
    /// Encoded bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never true: a batch holds at least one record.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sequence numbers of the first and the last record.
    pub fn range(&self) -> (SequenceNumber, SequenceNumber) {
        (self.first, self.last)
    }
}

/// Encodes the records of one container into batches.
#[derive(Debug)]
pub struct BatchBuilder {
    container: ContainerId,
    epoch: ContainerEpoch,
    ready: VecDeque<Batch>,
    filling: BytesMut,
    first: SequenceNumber,
    next: Option<SequenceNumber>,
    records: u32,
}

impl BatchBuilder {
    /// An empty builder for one container and one of its epochs.
    pub fn new(container: ContainerId, epoch: ContainerEpoch) -> Self {
        Self {
            container,
            epoch,
            ready: VecDeque::new(),
            filling: BytesMut::new(),
            first: SequenceNumber(0),
            next: None,
            records: 0,
        }
    }

    /// Encodes one record, its body written by `body`, and returns where the body starts in its batch.
    ///
    /// The batch is the one whose [`Batch::range`] holds `sequence`: a record that would take a batch beyond
    /// [`BATCH_BYTES_MAX`] starts the next one. Panics if `sequence` does not follow the record before, or if the
    /// record is larger than [`RECORD_BYTES_MAX`]: the container checks both.
    pub fn record(
        &mut self,
        sequence: SequenceNumber,
        kind: u8,
        version: u8,
        body: impl FnOnce(&mut BytesMut),
    ) -> u32 {
        assert!(self.next.is_none_or(|next| next == sequence), "record {sequence} is out of turn");
        let start = self.filling.len();
        self.filling.put_u32_le(0);
        self.filling.put_u16_le(self.container.0);
        self.filling.put_u8(kind);
        self.filling.put_u8(version);
        self.filling.put_u64_le(self.epoch.0);
        self.filling.put_u64_le(sequence.0);
        body(&mut self.filling);
        let len = self.filling.len() - start;
        assert!((RECORD_HEADER_BYTES..=RECORD_BYTES_MAX).contains(&len), "record of {len} bytes");
        let body_len = u32::try_from(len - RECORD_HEADER_BYTES).unwrap_or(u32::MAX);
        self.filling[start..start + 4].copy_from_slice(&body_len.to_le_bytes());

        let mut at = start;
        if start > 0 && self.filling.len() > BATCH_BYTES_MAX {
            let over = self.filling.split_off(start);
            self.finish();
            self.filling = over;
            at = 0;
        }
        if self.records == 0 {
            self.first = sequence;
        }
        self.records += 1;
        self.next = Some(sequence.next());
        u32::try_from(at + RECORD_HEADER_BYTES).unwrap_or(u32::MAX)
    }

    /// Bytes encoded and not taken yet.
    pub fn len(&self) -> usize {
        self.filling.len() + self.ready.iter().map(Batch::len).sum::<usize>()
    }

    /// True if there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.records == 0 && self.ready.is_empty()
    }

    /// Takes the oldest batch; call it until it gives `None`.
    pub fn take(&mut self) -> Option<Batch> {
        if self.ready.is_empty() && self.records > 0 {
            self.finish();
        }
        self.ready.pop_front()
    }

    fn finish(&mut self) {
        let last = SequenceNumber(self.first.0 + u64::from(self.records) - 1);
        self.ready.push_back(Batch {
            container: self.container,
            epoch: self.epoch,
            bytes: self.filling.split().freeze(),
            first: self.first,
            last,
            records: self.records,
        });
        self.records = 0;
    }
}

/// One record as a reader gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its number.
    pub sequence: SequenceNumber,
    /// The epoch of the container in which it was written.
    pub epoch: ContainerEpoch,
    /// What it is; the container's word.
    pub kind: u8,
    /// Version of the body's encoding.
    pub version: u8,
    /// The body, a slice of a mapped file or of a frame on the heap.
    pub body: Bytes,
    /// Where the body lies.
    pub address: LogAddress,
}

/// Where one record lies in a payload.
#[derive(Clone, Copy, Debug)]
pub(in crate::log) struct RecordAt {
    pub container: u16,
    pub epoch: u64,
    pub kind: u8,
    pub version: u8,
    pub sequence: u64,
    /// Offset of the body in the payload.
    pub body: usize,
    pub body_len: usize,
}

/// Walks the records of a payload. Ends early, with `broken` set, where the bytes are no record.
#[derive(Debug)]
pub(in crate::log) struct Records<'a> {
    payload: &'a [u8],
    at: usize,
    pub broken: bool,
}

impl<'a> Records<'a> {
    pub(in crate::log) fn of(payload: &'a [u8]) -> Self {
        Self { payload, at: 0, broken: false }
    }
}

/// Type, version and body of each record in `bytes`, which must begin with one; ends where the bytes are no record.
pub fn walk_records(bytes: &Bytes) -> impl Iterator<Item = (u8, u8, Bytes)> + '_ {
    Records::of(bytes).map(|at| (at.kind, at.version, bytes.slice(at.body..at.body + at.body_len)))
}

impl Iterator for Records<'_> {
    type Item = RecordAt;

    fn next(&mut self) -> Option<RecordAt> {
        if self.at == self.payload.len() || self.broken {
            return None;
        }
        let decoded = decode(&self.payload[self.at..], self.at);
        match decoded {
            Some(record) => self.at = record.body + record.body_len,
            None => self.broken = true,
        }
        decoded
    }
}

fn decode(bytes: &[u8], at: usize) -> Option<RecordAt> {
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let [l0, l1, l2, l3, c0, c1, kind, version, epoch_and_sequence @ ..] = header;
    let (epoch, sequence) = epoch_and_sequence.split_first_chunk::<8>()?;
    let body_len = usize::try_from(u32::from_le_bytes([*l0, *l1, *l2, *l3])).ok()?;
    if body_len > rest.len() {
        return None;
    }
    Some(RecordAt {
        container: u16::from_le_bytes([*c0, *c1]),
        epoch: u64::from_le_bytes(*epoch),
        kind: *kind,
        version: *version,
        sequence: u64::from_le_bytes(sequence.try_into().ok()?),
        body: at + RECORD_HEADER_BYTES,
        body_len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> BatchBuilder {
        BatchBuilder::new(ContainerId(3), ContainerEpoch(9))
    }

    #[test]
    fn walk_gives_each_body_and_ends_at_what_is_no_record() {
        let mut builder = builder();
        for (sequence, body) in [(1, &b"one"[..]), (2, b""), (3, b"three")] {
            builder.record(SequenceNumber(sequence), 7, 1, |out| out.put_slice(body));
        }
        let bytes = builder.take().unwrap().bytes;
        let bodies = |bytes: &Bytes| walk_records(bytes).map(|(_, _, body)| body).collect::<Vec<_>>();
        assert_eq!(bodies(&bytes), [&b"one"[..], b"", b"three"]);
        assert_eq!(bodies(&bytes.slice(..bytes.len() - 1)), [&b"one"[..], b""]);
    }

    #[test]
    fn records_come_back_as_they_went_in() {
        let mut builder = builder();
        let at = builder.record(SequenceNumber(5), 1, 2, |body| body.put_slice(b"hello"));
        let after = builder.record(SequenceNumber(6), 3, 4, |_| {});
        let batch = builder.take().unwrap();
        assert!(builder.is_empty() && builder.take().is_none());
        assert_eq!(batch.range(), (SequenceNumber(5), SequenceNumber(6)));
        let found: Vec<RecordAt> = Records::of(&batch.bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].container, found[0].epoch, found[0].sequence), (3, 9, 5));
        assert_eq!((found[0].kind, found[0].version), (1, 2));
        assert_eq!(found[0].body, usize::try_from(at).unwrap());
        assert_eq!(&batch.bytes[found[0].body..][..found[0].body_len], b"hello");
        assert_eq!((found[1].body, found[1].body_len), (usize::try_from(after).unwrap(), 0));
    }

    #[test]
    fn batch_ends_before_4_mib_and_a_larger_record_goes_alone() {
        let mut builder = builder();
        let large = vec![7; 5 << 20];
        assert_eq!(builder.record(SequenceNumber(1), 0, 0, |body| body.put_slice(b"a")), 24);
        assert_eq!(builder.record(SequenceNumber(2), 0, 0, |body| body.put_slice(&large)), 24);
        assert_eq!(builder.record(SequenceNumber(3), 0, 0, |body| body.put_slice(b"b")), 24);
        let ranges: Vec<_> = std::iter::from_fn(|| builder.take()).map(|batch| batch.range()).collect();
        let alone = |number| (SequenceNumber(number), SequenceNumber(number));
        assert_eq!(ranges, [alone(1), alone(2), alone(3)]);
    }

    #[test]
    #[should_panic(expected = "out of turn")]
    fn sequence_numbers_must_follow_each_other() {
        let mut builder = builder();
        builder.record(SequenceNumber(1), 0, 0, |_| {});
        builder.record(SequenceNumber(3), 0, 0, |_| {});
    }

    #[test]
    fn cut_payload_is_broken_and_never_panics() {
        let mut builder = builder();
        builder.record(SequenceNumber(1), 0, 0, |body| body.put_slice(&[1; 40]));
        let bytes = builder.take().unwrap().bytes;
        for cut in 1..bytes.len() {
            let mut records = Records::of(&bytes[..cut]);
            assert_eq!(records.by_ref().count(), 0);
            assert!(records.broken);
        }
    }
}
