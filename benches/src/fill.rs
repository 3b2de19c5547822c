//! Filling segments with events as fast as the server takes them, and knowing afterwards what they must hold.

use crate::wire::{self, Acks, Appends, Heard};
use anyhow::{Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use dhara_stdx::{Entropy, SystemEntropy};
use dhara_wire::codec::Uuid;

/// Bytes of a segment that an event takes beside its payload: type and length.
pub const EVENT_HEADER_BYTES: usize = 8;
/// Events are sent in blocks of about this many bytes.
const BLOCK_BYTES: usize = 512 * 1024;
/// Blocks of a segment under way at once.
const BLOCKS_MAX: usize = 8;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Its length.
    pub bytes: u64,
    /// Events in it.
    pub events: u64,
    /// Check over all its bytes.
    pub crc: u32,
}

/// Appends events of `event_bytes` to `segment`, which is empty, until it has at least `bytes`.
///
/// # Errors
/// If the store refuses.
pub async fn fill(store: &str, segment: &str, bytes: u64, event_bytes: usize) -> Result<Ledger> {
    let (mut appends, mut acks) = wire::connect(store).await?;
    let entropy = SystemEntropy::new()?;
    let writer = Uuid(entropy.uuid());
    set_up(&mut appends, &mut acks, writer, segment).await?;
    let mut block = Block::new(&entropy, event_bytes);
    let mut check = crc32fast::Hasher::new();
    let mut ledger = Ledger { bytes: 0, events: 0, crc: 0 };
    let (mut sent, mut acked) = (0, 0);
    loop {
        while sent - acked < BLOCKS_MAX && ledger.bytes < bytes {
            let (data, events) = block.next(ledger.events);
            check.update(&data);
            ledger.bytes += data.len() as u64;
            ledger.events += u64::try_from(events)?;
            appends.append(writer, i64::try_from(ledger.events)?, events, data);
            sent += 1;
        }
        appends.flush().await?;
        if sent == acked {
            ledger.crc = check.finalize();
            return Ok(ledger);
        }
        match acks.next().await? {
            Heard::Acked { .. } => acked += 1,
            Heard::SetUp { .. } => bail!("a set-up that was not asked for"),
        }
    }
}

/// Sets up `writer` and waits for it; returns its last event's number.
///
/// # Errors
/// If the store refuses.
pub async fn set_up(appends: &mut Appends, acks: &mut Acks, writer: Uuid, segment: &str) -> Result<i64> {
    appends.set_up(writer, segment);
    appends.flush().await?;
    match acks.next().await? {
        Heard::SetUp { last, .. } => Ok(last),
        Heard::Acked { .. } => bail!("an acknowledgement instead of a set-up"),
    }
}

/// Blocks of events whose bytes do not repeat: each event begins with its number.
struct Block {
    payload: Vec<u8>,
    events: i32,
}

impl Block {
    fn new(entropy: &impl Entropy, event_bytes: usize) -> Self {
        let mut payload: Vec<u8> = Vec::with_capacity(event_bytes + 8);
        while payload.len() < event_bytes {
            payload.extend_from_slice(&entropy.next_u64().to_le_bytes());
        }
        payload.truncate(event_bytes);
        let events = (BLOCK_BYTES / (EVENT_HEADER_BYTES + event_bytes)).max(1);
        Self { payload, events: i32::try_from(events).unwrap_or(i32::MAX) }
    }

    /// The next block, which begins with event `first`, and how many events it has.
    fn next(&mut self, first: u64) -> (Bytes, i32) {
        let count = usize::try_from(self.events).unwrap_or(1);
        let mut data = BytesMut::with_capacity(count * (EVENT_HEADER_BYTES + self.payload.len()));
        for number in (first..).take(count) {
            for (byte, digit) in self.payload.iter_mut().zip(number.to_be_bytes()) {
                *byte = digit;
            }
            put_event(&mut data, &self.payload);
        }
        (data.freeze(), self.events)
    }
}

/// Writes an event as it stands in a segment.
pub fn put_event(out: &mut BytesMut, payload: &[u8]) {
    out.put_i32(0);
    out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    out.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhara_stdx::SeededEntropy;

    #[test]
    fn every_event_begins_with_its_number_over_all_blocks() {
        let mut blocks = Block::new(&SeededEntropy::new(1), 100);
        let mut number = 0_u64;
        for _block in 0..2 {
            let (data, events) = blocks.next(number);
            assert_eq!(data.len(), usize::try_from(events).unwrap() * (EVENT_HEADER_BYTES + 100));
            for event in data.chunks(EVENT_HEADER_BYTES + 100) {
                assert_eq!(event[..EVENT_HEADER_BYTES], [0, 0, 0, 0, 0, 0, 0, 100]);
                assert_eq!(event[EVENT_HEADER_BYTES..][..8], number.to_be_bytes());
                number += 1;
            }
        }
    }
}
