//! One segment whose tail is appended to and read at a steady rate, for the latencies of both.

use crate::world::{Stream, figure};
use anyhow::{Result, bail};
use dhara_benches::latency::Latencies;
use dhara_benches::pace::{Pace, follow};
use dhara_benches::server::Server;
use dhara_client::SegmentReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// An event at the tail each millisecond.
const TAIL_PERIOD: Duration = Duration::from_millis(1);
const TAIL_EVENT_BYTES: usize = 1024;

/// Latencies of appends and reads at the tail.
#[derive(Default)]
pub(crate) struct Tail {
    pub(crate) acks: Latencies,
    pub(crate) reads: Latencies,
}

impl Tail {
    /// Prints both; `when` says beside what.
    pub(crate) fn print(&mut self, when: &str) -> Result<()> {
        let (acks, reads) = (self.acks.describe(), self.reads.describe());
        figure(&format!("tail at 1000 events/s of 1 KiB, {when}"), &format!("{acks}, {reads}"))
    }

    /// The 99th percentile of the time from append to read, seconds.
    pub(crate) fn p99(&mut self) -> f64 {
        self.reads.quantile(990).as_secs_f64()
    }
}

/// Latencies at the tail in several rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    all: Tail,
    /// The 99th percentile from append to read of each round, seconds.
    p99: Vec<f64>,
}

impl Rounds {
    pub(crate) fn add(&mut self, mut round: Tail) {
        self.p99.push(round.p99());
        self.p99.sort_unstable_by(f64::total_cmp);
        self.all.acks.merge(round.acks);
        self.all.reads.merge(round.reads);
    }

    /// Prints the latencies of all rounds together, and the 99th percentile of each; `when` says beside what.
    pub(crate) fn print(&mut self, when: &str) -> Result<()> {
        self.all.print(when)?;
        let each: Vec<String> = self.p99.iter().map(|p99| format!("{:.3}", p99 * 1e3)).collect();
        figure("", &format!("p99 of append to read in each round: {}", each.join(", ")))
    }

    /// The median of the rounds' 99th percentiles, seconds; zero if there was no round.
    pub(crate) fn p99(&self) -> f64 {
        self.p99.get(self.p99.len() / 2).copied().unwrap_or_default()
    }
}

/// Appends to the end of a segment and reads there.
pub(crate) struct Probe {
    store: String,
    segment: String,
    reader: Option<SegmentReader>,
}

impl Probe {
    pub(crate) fn new(server: &Server, live: &Stream) -> Result<Self> {
        let segment = live.segments().concat();
        let reader = live.client.segment_reader(&segment.parse()?, 0);
        Ok(Self { store: server.store.clone(), segment, reader: Some(reader) })
    }

    /// Measures for as long as `other` takes.
    pub(crate) async fn measure<T>(&mut self, other: impl Future<Output = T>) -> Result<(T, Tail)> {
        let Some(mut reader) = self.reader.take() else { bail!("an earlier measurement did not end") };
        let stop = Arc::new(AtomicBool::new(false));
        // Late enough for the set-up to be over.
        let start = Instant::now() + Duration::from_millis(200);
        let segments = vec![self.segment.clone()];
        let pace = Pace { segments, period: TAIL_PERIOD, event_bytes: TAIL_EVENT_BYTES, start };
        let (store, stopping) = (self.store.clone(), Arc::clone(&stop));
        let appending: JoinHandle<Result<Latencies>> =
            tokio::spawn(async move { pace.run(&store, &stopping).await });
        let reading: JoinHandle<Result<(SegmentReader, Latencies)>> = tokio::spawn(async move {
            let latencies = follow(&mut reader, TAIL_EVENT_BYTES, start).await?;
            Ok((reader, latencies))
        });
        tokio::time::sleep_until(start).await;
        let result = other.await;
        stop.store(true, Ordering::Relaxed);
        let acks = appending.await??;
        let (reader, reads) = reading.await??;
        self.reader = Some(reader);
        Ok((result, Tail { acks, reads }))
    }
}
