//! What was measured, by phase.

use crate::ledger::Entry;
use crate::ledger::chance::Chance;
use anyhow::{Result, ensure};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::time::Instant;

/// A part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Before the trouble.
    #[default]
    Calm,
    /// While it lasts.
    Troubled,
    /// After it, still under load, and until long-term storage has everything.
    After,
}

/// What was measured in one phase.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// From sending an append to its ack.
    pub acks: Vec<Duration>,
    /// From sending an append to its bytes at the tail reader.
    pub tails: Vec<Duration>,
    /// From asking for bytes that were written earlier to having all of them.
    pub history: Vec<Duration>,
    /// From asking about a segment to the answer, once a second.
    pub probes: Vec<Duration>,
    /// Most anonymous memory of the server, bytes.
    pub memory: u64,
    /// Most that the log took on disk, bytes.
    pub log: u64,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// By phase, in their order.
    pub phases: [(Phase, Measured); 3],
    /// From the last append until long-term storage had everything.
    pub catch_up: Duration,
    /// From exec to ready after the kill.
    pub ready_after: Duration,
    /// Bytes written, and read back after the kill.
    pub bytes: i64,
    /// How long reading back took.
    pub read_back: Duration,
    /// Transactions that were committed, and found after the kill.
    pub transactions: usize,
}

/// Collects what is measured; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<(Phase, [Measured; 3])>>);

impl Told {
    /// Everything from now on is of this phase.
    pub(super) fn enter(&self, phase: Phase) {
        self.0.lock().0 = phase;
    }

    pub(super) fn acked(&self, after: Duration) {
        self.with(|phase| phase.acks.push(after));
    }

    pub(super) fn followed(&self, after: Duration) {
        self.with(|phase| phase.tails.push(after));
    }

    pub(super) fn read_back(&self, after: Duration) {
        self.with(|phase| phase.history.push(after));
    }

    pub(super) fn probed(&self, after: Duration) {
        self.with(|phase| phase.probes.push(after));
    }

    pub(super) fn looked(&self, memory: u64, log: u64) {
        self.with(|phase| {
            phase.memory = phase.memory.max(memory);
            phase.log = phase.log.max(log);
        });
    }

    pub(super) fn phases(&self) -> [(Phase, Measured); 3] {
        let [calm, troubled, after] = self.0.lock().1.clone();
        [(Phase::Calm, calm), (Phase::Troubled, troubled), (Phase::After, after)]
    }

    fn with(&self, measure: impl FnOnce(&mut Measured)) {
        let mut held = self.0.lock();
        let phase = held.0 as usize;
        if let Some(measured) = held.1.get_mut(phase) {
            measure(measured);
        }
    }
}

/// How far a writer and its reader are; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    writer: u64,
    under_way: Arc<Mutex<VecDeque<(i64, Instant)>>>,
    /// Where each acknowledged append begins, and the number of its first event.
    acked: Arc<Mutex<Vec<(i64, i64)>>>,
    end: channel::Sender<Option<i64>>,
}

impl Progress {
    /// Of a writer that has not begun.
    pub(super) fn of(writer: u64) -> Self {
        Self { writer, under_way: Arc::default(), acked: Arc::default(), end: channel::Sender::new(None) }
    }

    /// Checks that events are of this writer, who has the segment for itself.
    ///
    /// # Errors
    /// At the first one that is not.
    pub(super) fn check(&self, entries: &[Entry]) -> Result<()> {
        let stranger = entries.iter().find(|entry| entry.writer != self.writer);
        ensure!(stranger.is_none(), "an event of another writer than {}: {stranger:?}", self.writer);
        Ok(())
    }

    /// An append up to event `last` is being sent.
    pub(super) fn sent(&self, last: i64, at: Instant) {
        self.under_way.lock().push_back((last, at));
    }

    /// The reader has every event up to `number`; how long each append took to come to it.
    pub(super) fn seen(&self, number: i64) -> Vec<Duration> {
        let mut under_way = self.under_way.lock();
        let seen = under_way.partition_point(|(last, _sent)| *last <= number);
        under_way.drain(..seen).map(|(_last, sent)| sent.elapsed()).collect()
    }

    /// The append at `offset`, whose first event is `number`, was acknowledged.
    pub(super) fn acked(&self, offset: i64, number: i64) {
        self.acked.lock().push((offset, number));
    }

    /// Some append and the end of the one `count` appends later, of those acknowledged: offset, first event, end.
    pub(super) fn some(&self, chance: &mut Chance, count: usize) -> Option<(i64, i64, i64)> {
        let acked = self.acked.lock();
        let from = chance.within(0..u64::try_from(acked.len().checked_sub(1)?).ok().filter(|n| *n > 0)?);
        let from = usize::try_from(from).ok()?;
        let (offset, number) = acked[from];
        Some((offset, number, acked[(from + count).min(acked.len() - 1)].0))
    }

    /// The writer is done; the segment has `length` bytes.
    pub(super) fn ended(&self, length: i64) {
        self.end.send_replace(Some(length));
    }

    /// Waits until the writer is done and the reader, at offset `at`, has everything.
    pub(super) async fn read_all(&self, at: i64) {
        // The sender lives in `self`.
        let mut end = self.end.subscribe();
        let _ended = end.wait_for(|end| end.is_some_and(|length| length <= at)).await;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<9} {:>8}  {:<24} {:<24} {:>8}  {:<24} {:<24} memory  log",
            "phase", "appends", "ack ms", "tail ms", "rereads", "reread ms", "probe ms"
        )?;
        for (phase, measured) in &self.phases {
            let Measured { acks, tails, history, probes, memory, log } = measured;
            let name = format!("{phase:?}").to_lowercase();
            let (appends, rereads) = (acks.len(), history.len());
            let [acks, tails, history, probes] = [acks, tails, history, probes].map(|all| describe(all));
            let (memory, log) = (memory >> 20, log >> 20);
            writeln!(
                f,
                "{name:<9} {appends:>8}  {acks:<24} {tails:<24} {rereads:>8}  {history:<24} {probes:<24} {memory:>4} M  {log} M"
            )?;
        }
        let Self { catch_up, ready_after, bytes, read_back, transactions, .. } = self;
        write!(
            f,
            "all in long-term storage {catch_up:.1?} after the last append; killed, ready in {ready_after:.1?}; \
             {bytes} bytes and {transactions} transactions read back in {read_back:.1?}, all as acknowledged"
        )
    }
}

/// p50, p99 and the longest, in milliseconds.
fn describe(latencies: &[Duration]) -> String {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let at =
        |per_cent: usize| sorted.get((sorted.len() * per_cent / 100).min(sorted.len().saturating_sub(1)));
    let ms = |latency: Option<&Duration>| latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e3);
    format!("{:.2} / {:.2} / {:.2}", ms(at(50)), ms(at(99)), ms(at(100)))
}
