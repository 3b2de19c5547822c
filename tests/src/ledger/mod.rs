//! The ledger's events: who wrote it, its number, a checksum, and bytes that follow from both.

pub(crate) mod chance;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use chance::Chance;
use dhara_wire::codec::Uuid;
use std::collections::BTreeMap;

/// Bytes before an event's payload in a segment: type code 0 and length.
const EVENT_HEADER_BYTES: usize = 8;
/// Bytes of writer, number and checksum before the filling.
const LEDGER_BYTES: usize = 20;

/// The id that a ledger's writer has on the wire.
pub(crate) fn writer_id(writer: u64) -> Uuid {
    Uuid((0x6c65_6467_6572_u128 << 80) | u128::from(writer))
}

/// The event `number` of `writer`, as it lies in a segment. Its size and bytes follow from both numbers alone, so that
/// whoever reads it can tell whether it is whole.
pub(crate) fn event(writer: u64, number: i64) -> Bytes {
    let mut chance = Chance::new(writer.rotate_left(40) ^ number.unsigned_abs());
    let length = match chance.within(0..100) {
        0 => chance.within(10_000..60_000),
        1..10 => chance.within(1_000..4_000),
        _ => chance.within(0..200),
    };
    let length = usize::try_from(length).unwrap_or_default();
    let mut filling = BytesMut::with_capacity(length + 8);
    while filling.len() < length {
        filling.put_u64(chance.number());
    }
    filling.truncate(length);
    let mut out = BytesMut::with_capacity(EVENT_HEADER_BYTES + LEDGER_BYTES + length);
    out.put_i32(0);
    out.put_i32(i32::try_from(LEDGER_BYTES + length).unwrap_or_default());
    out.put_u64(writer);
    out.put_i64(number);
    out.put_u32(crc32fast::hash(&filling));
    out.extend_from_slice(&filling);
    out.freeze()
}

/// One event as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Who wrote it.
    pub(crate) writer: u64,
    /// Its number.
    pub(crate) number: i64,
}

/// Cuts `data`, which must hold whole events, and compares every byte with what was written.
///
/// # Errors
/// At the first byte that nobody wrote.
pub(crate) fn entries(mut data: Bytes) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while !data.is_empty() {
        ensure!(data.len() >= EVENT_HEADER_BYTES + LEDGER_BYTES, "{} bytes after the last event", data.len());
        let mut header = data.clone();
        let (kind, length) = (header.get_i32(), header.get_i32());
        let entry = Entry { writer: header.get_u64(), number: header.get_i64() };
        let checksum = header.get_u32();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        ensure!(kind == 0 && length >= LEDGER_BYTES, "no event after {:?}", entries.last());
        let end = EVENT_HEADER_BYTES.saturating_add(length);
        ensure!(end <= data.len(), "half an event after {:?}: {entry:?}", entries.last());
        let got = data.split_to(end);
        let sum = crc32fast::hash(&got[EVENT_HEADER_BYTES + LEDGER_BYTES..]);
        ensure!(sum == checksum, "{entry:?} has another checksum");
        ensure!(got == event(entry.writer, entry.number), "{entry:?} has other bytes than were written");
        entries.push(entry);
    }
    Ok(entries)
}

/// Takes the whole events that `data` begins with, as [`entries`] would; what is left is part of one event.
///
/// # Errors
/// As [`entries`].
pub(crate) fn whole_events(data: &mut BytesMut) -> Result<Vec<Entry>> {
    let mut end = 0;
    while let Some(mut header) = data.get(end..end + EVENT_HEADER_BYTES) {
        let (kind, length) = (header.get_i32(), header.get_i32());
        let length = usize::try_from(length).ok().filter(|_length| kind == 0);
        let next = end + EVENT_HEADER_BYTES + length.with_context(|| format!("no event at {end}"))?;
        if next > data.len() {
            break;
        }
        end = next;
    }
    entries(data.split_to(end).freeze())
}

/// What each writer has in the data, in the order of its numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    last: BTreeMap<u64, i64>,
}

impl Ledger {
    /// Takes the next events of a segment, or of a chain of segments in their order.
    ///
    /// # Errors
    /// If an event is missing, doubled or out of order.
    pub(crate) fn take(&mut self, entries: &[Entry]) -> Result<()> {
        for entry in entries {
            let last = self.last.entry(entry.writer).or_insert(0);
            if entry.number != *last + 1 {
                let what = if entry.number <= *last { "doubled or reordered" } else { "lost before it" };
                bail!("writer {}: event {} after {last}: {what}", entry.writer, entry.number);
            }
            *last = entry.number;
        }
        Ok(())
    }

    /// The last number of a writer, 0 if it has none.
    pub(crate) fn last(&self, writer: u64) -> i64 {
        self.last.get(&writer).copied().unwrap_or(0)
    }

    /// Checks that everything `acked` is there and nothing that was never `sent`.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(&self, writer: u64, acked: i64, sent: i64) -> Result<()> {
        let last = self.last(writer);
        ensure!(last >= acked, "writer {writer}: {acked} was acked, the data ends at {last}");
        ensure!(last <= sent, "writer {writer}: the data ends at {last}, only {sent} were sent");
        Ok(())
    }
}

/// Checks whole runs: each run's events stand together, whole, once, and runs come in rising order.
///
/// # Errors
/// If a run is torn, doubled, incomplete or out of order.
pub(crate) fn runs(entries: &[Entry], length_of: impl Fn(u64) -> Option<i64>) -> Result<Vec<u64>> {
    let mut runs: Vec<u64> = Vec::new();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let length = length_of(first.writer).with_context(|| format!("nobody wrote run {}", first.writer))?;
        let length = usize::try_from(length)?;
        ensure!(rest.len() >= length, "run {} is torn", first.writer);
        for (at, entry) in rest[..length].iter().enumerate() {
            let whole = entry.writer == first.writer && usize::try_from(entry.number)? == at + 1;
            ensure!(whole, "run {} is torn by {entry:?} at place {}", first.writer, at + 1);
        }
        if let Some(before) = runs.last() {
            ensure!(*before < first.writer, "run {} stands after run {before}", first.writer);
        }
        runs.push(first.writer);
        rest = &rest[length..];
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(events: &[(u64, i64)]) -> Bytes {
        let mut data = BytesMut::new();
        for (writer, number) in events {
            data.extend_from_slice(&event(*writer, *number));
        }
        data.freeze()
    }

    #[test]
    fn whole_data_passes() {
        let mut ledger = Ledger::default();
        ledger.take(&entries(segment(&[(1, 1), (2, 1), (1, 2)])).unwrap()).unwrap();
        ledger.check(1, 1, 3).unwrap();
        assert_eq!(ledger.last(2), 1);
    }

    #[test]
    fn lost_doubled_and_reordered_events_are_found() {
        for bad in [vec![(1, 1), (1, 3)], vec![(1, 1), (1, 1)], vec![(1, 2), (1, 1)]] {
            assert!(Ledger::default().take(&entries(segment(&bad)).unwrap()).is_err(), "{bad:?}");
        }
        let mut ledger = Ledger::default();
        ledger.take(&entries(segment(&[(1, 1)])).unwrap()).unwrap();
        assert!(ledger.check(1, 2, 2).is_err(), "an acked event is gone");
        assert!(ledger.check(1, 0, 0).is_err(), "an event that was never sent");
    }

    #[test]
    fn a_changed_byte_and_a_cut_are_found() {
        let data = segment(&[(1, 1), (1, 2)]);
        for at in 0..data.len() {
            let mut changed = BytesMut::from(&data[..]);
            changed[at] ^= 1;
            assert!(entries(changed.freeze()).is_err(), "byte {at}");
        }
        assert!(entries(data.slice(..data.len() - 1)).is_err());
    }

    #[test]
    fn whole_events_come_out_of_any_two_halves() {
        let data = segment(&[(1, 1), (1, 2), (1, 3)]);
        let all = entries(data.clone()).unwrap();
        for cut in 0..=data.len() {
            let mut rest = BytesMut::from(&data[..cut]);
            let mut found = whole_events(&mut rest).unwrap();
            rest.extend_from_slice(&data[cut..]);
            found.extend(whole_events(&mut rest).unwrap());
            assert!(rest.is_empty(), "cut at {cut}");
            assert_eq!(found, all, "cut at {cut}");
        }
        assert!(whole_events(&mut BytesMut::from(&[1_u8; 8][..])).is_err());
    }

    #[test]
    fn torn_runs_are_found() {
        let of_two = |_: u64| Some(2);
        let read = |events: &[(u64, i64)]| runs(&entries(segment(events)).unwrap(), of_two);
        assert_eq!(read(&[(1, 1), (1, 2), (3, 1), (3, 2)]).unwrap(), [1, 3]);
        assert!(read(&[(1, 1), (3, 1), (1, 2), (3, 2)]).is_err());
        assert!(read(&[(1, 1), (1, 2), (1, 1), (1, 2)]).is_err());
        assert!(read(&[(3, 1), (3, 2), (1, 1), (1, 2)]).is_err());
        assert!(read(&[(1, 1)]).is_err());
    }
}
