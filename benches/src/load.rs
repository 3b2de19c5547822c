//! One run: writers that write as fast as they may for a while.

use crate::flush::flushes;
use crate::latency::Latencies;
use anyhow::Result;
use dhara_client::{Client, EventWriter, StreamName, StreamSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const KEYS: usize = 8192;
/// Every so many events the latency of one is measured.
const SAMPLE_EVERY: usize = 97;

/// What is written.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes of an event's payload.
    pub event_bytes: usize,
    /// Writers, each with a connection of its own.
    pub writers: usize,
    /// Segments of the stream.
    pub segments: i32,
    /// Waits for each acknowledgement before the next event.
    pub one_in_flight: bool,
    /// How long events are written.
    pub lasts: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Events written and acknowledged.
    pub events: u64,
    /// From the first event to the last acknowledgement.
    pub elapsed: Duration,
    /// From handing an event over to its acknowledgement.
    pub latencies: Latencies,
    /// Flushes of the disks meanwhile, where they are counted.
    pub flushes: Option<u64>,
}

impl Load {
    /// One line that says what is written.
    pub fn describe(&self) -> String {
        let Self { event_bytes, writers, segments, one_in_flight, .. } = self;
        let how = if *one_in_flight { ", one in flight" } else { "" };
        format!("{event_bytes} B, {writers} writers, {segments} segments{how}")
    }

    /// Creates `stream` and writes to it.
    ///
    /// # Errors
    /// Whatever the client answers.
    pub async fn run(&self, client: &Client, stream: &StreamName) -> Result<Outcome> {
        client.admin().create_stream(stream, &StreamSettings::fixed(self.segments)).await?;
        let mut writers = Vec::new();
        for _nth in 0..self.writers {
            let writer = client.event_writer(stream).await?;
            // The first event of each segment waits for its set-up, which is not what is measured.
            for key in keys(self.segments) {
                writer.write(b"warm-up", Some(&key)).await?;
            }
            writer.flush().await?;
            writers.push(writer);
        }
        let flushed = flushes();
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (nth, writer) in writers.into_iter().enumerate() {
            tasks.spawn(self.clone().write(writer, nth));
        }
        let mut events = 0;
        let mut latencies = Latencies::default();
        while let Some(done) = tasks.join_next().await {
            let (count, measured) = done??;
            events += count;
            latencies.merge(measured);
        }
        let elapsed = started.elapsed();
        let flushes = flushes().zip(flushed).map(|(after, before)| after - before);
        Ok(Outcome { events, elapsed, latencies, flushes })
    }

    async fn write(self, writer: EventWriter, nth: usize) -> Result<(u64, Latencies)> {
        let keys: Vec<_> = keys(self.segments).collect();
        let payload = vec![b'x'; self.event_bytes];
        let mut samples = JoinSet::new();
        let mut latencies = Latencies::default();
        let until = Instant::now() + self.lasts;
        let mut events = 0;
        for (count, key) in keys.iter().cycle().skip(nth * 61).enumerate() {
            let sampled = self.one_in_flight || count % SAMPLE_EVERY == 0;
            let written = Instant::now();
            if sampled && written >= until {
                break;
            }
            let ack = writer.write(&payload, Some(key)).await?;
            events += 1;
            if self.one_in_flight {
                ack.durable().await?;
                latencies.push(written.elapsed());
            } else if sampled {
                samples.spawn(async move { ack.durable().await.map(|()| written.elapsed()) });
            }
        }
        writer.close().await?;
        for latency in samples.join_all().await {
            latencies.push(latency?);
        }
        Ok((events, latencies))
    }
}

/// As many keys as reach all segments.
fn keys(segments: i32) -> impl Iterator<Item = Arc<str>> {
    let count = usize::try_from(segments).unwrap_or(1).saturating_mul(4).max(KEYS);
    (0..count).map(|nth| format!("key-{nth}").into())
}
