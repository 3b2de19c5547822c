//! The log of a simulated process: a local log whose turns are taken by a task, each after a while that chance gives.

use crate::log::{Batch, DurableWatch, Floor, LocalLog, Log, LogEnds, LogError, LogRoom, LogWriter};
use crate::sim::Trace;
use crate::types::{ContainerEpoch, ContainerId, LogAddress};
use bytes::Bytes;
use dhara_stdx::{SeededEntropy, SimDisk};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// After this long without work the last frame is proven.
const QUIET: Duration = Duration::from_millis(1);
/// A full log looks this often whether a file was freed.
const FULL_RETRY: Duration = Duration::from_millis(20);
/// Longest time that a sync takes, as a rule.
const SYNC_US_MAX: u64 = 400;
/// And once in a while.
const SLOW_SYNC_US_MAX: u64 = 200_000;

/// A log whose work is seen.
pub(super) struct SimLog {
    log: LocalLog,
    disk: SimDisk,
    trace: Trace,
    /// Calls to the disk that the trace has.
    traced: AtomicU64,
    work: Arc<Notify>,
}

impl SimLog {
    pub(super) fn new(log: LocalLog, disk: SimDisk, trace: Trace) -> Self {
        let log = Self { log, disk, trace, traced: AtomicU64::new(0), work: Arc::default() };
        log.note();
        log
    }

    /// Takes turns until the log ends, and tells why it did.
    pub(super) async fn drive(&self, chance: &SeededEntropy) -> LogError {
        loop {
            self.work.notified().await;
            loop {
                let slow = chance.below(500) == 0;
                let most = if slow { SLOW_SYNC_US_MAX } else { SYNC_US_MAX };
                tokio::time::sleep(Duration::from_micros(20 + chance.below(most))).await;
                match self.turn() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(ended) => return ended,
                }
            }
            tokio::select! { biased;
                // Work first: it keeps its turn, and is then waited for above.
                () = self.work.notified() => self.work.notify_one(),
                () = tokio::time::sleep(QUIET) => {
                    let proven = self.log.quiet();
                    self.note();
                    if let Err(ended) = proven {
                        return ended;
                    }
                }
            }
        }
    }

    /// Writes one frame; false if there was none to write. A full log is left alone for a while.
    fn turn(&self) -> Result<bool, LogError> {
        let before = self.disk.calls();
        let pending = self.log.turn();
        self.note();
        if pending? && self.disk.calls() == before {
            let work = Arc::clone(&self.work);
            drop(tokio::spawn(async move {
                tokio::time::sleep(FULL_RETRY).await;
                work.notify_one();
            }));
            return Ok(false);
        }
        Ok(self.disk.calls() != before)
    }

    /// Puts what the disk was asked for since the last call into the trace.
    fn note(&self) {
        let seen = self.traced.load(Ordering::SeqCst);
        let calls = self.disk.trace_from(seen);
        self.traced.fetch_add(u64::try_from(calls.len()).unwrap_or(0), Ordering::SeqCst);
        for call in calls {
            self.trace.note(format_args!("disk {call:?}"));
        }
    }
}

impl Log for SimLog {
    fn open(&self, container: ContainerId) -> Result<LogEnds, LogError> {
        let (reader, inner) = self.log.open(container)?;
        Ok((reader, Box::new(SimWriter { inner, work: Arc::clone(&self.work) })))
    }

    fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError> {
        self.log.bytes(at, len)
    }

    fn room(&self) -> LogRoom {
        self.log.room()
    }

    fn oldest(&self) -> LogAddress {
        self.log.oldest()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn close(&self) {
        self.log.close();
        self.note();
    }
}

/// Wakes whoever takes the log's turns.
struct SimWriter {
    inner: Box<dyn LogWriter>,
    work: Arc<Notify>,
}

impl LogWriter for SimWriter {
    fn begin(&mut self, epoch: ContainerEpoch) -> Result<(), LogError> {
        self.inner.begin(epoch)
    }

    fn append(&mut self, batch: Batch) -> Result<(), LogError> {
        self.inner.append(batch)?;
        self.work.notify_one();
        Ok(())
    }

    fn durable(&self) -> DurableWatch {
        self.inner.durable()
    }

    fn set_floor(&mut self, floor: Floor) {
        self.inner.set_floor(floor);
        self.work.notify_one();
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }
}
