//! Appending events at a given rate, whatever the server makes of it.
//!
//! Each event has a time at which it is due, and its latency counts from there: a server that stalls is charged with
//! all that was due meanwhile, not with the one event that met it.

use crate::fill::{EVENT_HEADER_BYTES, put_event};
use crate::latency::Latencies;
use crate::metronome::Metronome;
use crate::wire::{self, Acks, Appends, Heard};
use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use dhara_client::{SegmentRead, SegmentReader};
use dhara_stdx::{Entropy, SystemEntropy};
use dhara_wire::codec::Uuid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Stamp of the last event.
const LAST: u64 = u64::MAX;

/// Appends by one connection.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Segments, which take turns; each has a writer of its own.
    pub segments: Vec<String>,
    /// From one event to the next.
    pub period: Duration,
    /// Bytes of an event's payload, at least 8.
    pub event_bytes: usize,
    /// When the first event is due. Stamps count from here.
    pub start: Instant,
}

impl Pace {
    /// Appends until `stop` is set; latencies run from when an event was due to its acknowledgement.
    ///
    /// # Errors
    /// If the store refuses.
    pub async fn run(&self, store: &str, stop: &AtomicBool) -> Result<Latencies> {
        let (mut appends, mut acks) = wire::connect(store).await?;
        let first = SystemEntropy::new()?.uuid() >> 32;
        for (nth, segment) in (0..).zip(&self.segments) {
            appends.set_up(Uuid(first + nth), segment);
        }
        appends.flush().await?;
        for _segment in &self.segments {
            let Heard::SetUp { .. } = acks.next().await? else {
                bail!("an acknowledgement before an append")
            };
        }
        // What the set-ups took is nobody's latency.
        let turns = Turns { pace: self, writer: first, from: self.start.max(Instant::now()) };
        let total = AtomicU64::new(LAST);
        let sending = turns.send(&mut appends, stop, &total);
        let hearing = turns.hear(&mut acks, &total);
        tokio::try_join!(sending, hearing).map(|((), latencies)| latencies)
    }
}

/// Which event is whose, and due when.
struct Turns<'a> {
    pace: &'a Pace,
    /// The first writer; the others follow it.
    writer: u128,
    /// When the first event is due.
    from: Instant,
}

impl Turns<'_> {
    async fn send(&self, appends: &mut Appends, stop: &AtomicBool, total: &AtomicU64) -> Result<()> {
        let mut payload = vec![b'x'; self.pace.event_bytes];
        // Missed ticks come at once, so that the rate is kept.
        let mut ticks = Metronome::new(self.from, self.pace.period)?;
        for count in 0_u64.. {
            ticks.tick().await?;
            let last = stop.load(Ordering::Relaxed);
            if last {
                total.store(count + 1, Ordering::Relaxed);
            }
            let stamp = if last { LAST } else { nanoseconds(self.due(count) - self.pace.start) };
            for (byte, digit) in payload.iter_mut().zip(stamp.to_be_bytes()) {
                *byte = digit;
            }
            let mut event = BytesMut::with_capacity(EVENT_HEADER_BYTES + payload.len());
            put_event(&mut event, &payload);
            let (turn, number) = (count % self.writers(), count / self.writers());
            let writer = Uuid(self.writer + u128::from(turn));
            appends.append(writer, i64::try_from(number)?, 1, event.freeze());
            appends.flush().await?;
            if last {
                break;
            }
        }
        Ok(())
    }

    async fn hear(&self, acks: &mut Acks, total: &AtomicU64) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        let mut acked = 0;
        while acked < total.load(Ordering::Relaxed) {
            let Heard::Acked { writer, number } = acks.next().await? else { bail!("a set-up twice") };
            let turn = u64::try_from(writer.0.checked_sub(self.writer).context("a writer of nobody")?)?;
            let count = u64::try_from(number)? * self.writers() + turn;
            latencies.push(Instant::now().saturating_duration_since(self.due(count)));
            acked += 1;
        }
        Ok(latencies)
    }

    fn due(&self, count: u64) -> Instant {
        self.from + self.pace.period.mul_f64(as_f64(count))
    }

    fn writers(&self) -> u64 {
        self.pace.segments.len() as u64
    }
}

/// Reads what a [`Pace`] appends to its only segment, to the last event; latencies run from when an event was due to its
/// arrival here.
///
/// # Errors
/// If the store refuses, or the segment has other bytes.
pub async fn follow(reader: &mut SegmentReader, event_bytes: usize, start: Instant) -> Result<Latencies> {
    let whole = EVENT_HEADER_BYTES + event_bytes;
    let mut latencies = Latencies::default();
    let mut buffer = BytesMut::new();
    loop {
        let SegmentRead::Data { data, .. } = reader.next().await? else { bail!("the segment ended") };
        let now = Instant::now();
        buffer.extend_from_slice(&data);
        while buffer.len() >= whole {
            let event = buffer.split_to(whole);
            let stamp =
                event.get(EVENT_HEADER_BYTES..EVENT_HEADER_BYTES + 8).context("event without a stamp")?;
            match u64::from_be_bytes(stamp.try_into()?) {
                LAST => return Ok(latencies),
                stamp => latencies.push(now.saturating_duration_since(start + Duration::from_nanos(stamp))),
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(LAST - 1)
}

#[allow(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
