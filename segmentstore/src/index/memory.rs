//! Rows in a `BTreeMap`, for tests and simulation.
//!
//! A [`MemoryDisk`] outlives the owners that open it, so a test can drop one at any point and open the next
//! as after a crash. It can refuse the next write, before or after it took effect, as a store whose answer
//! is lost.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::rows::{Change, Limits, Page, PageBuilder, Rows, RowsError};
use crate::types::SequenceNumber;

/// What survives a crash: the rows, `applied`, and the epoch of the last owner.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<Bytes, Bytes>,
    applied: SequenceNumber,
    epoch: u64,
    fault: Option<WriteFault>,
}

/// What becomes of the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It fails and changes nothing.
    Refused,
    /// It takes effect, and its answer is lost.
    AnswerLost,
}

impl MemoryDisk {
    /// Opens the rows for a new owner and fences all earlier ones.
    pub fn open(&self) -> Arc<MemoryRows> {
        let mut state = self.state.lock();
        state.epoch += 1;
        Arc::new(MemoryRows { disk: self.clone(), epoch: state.epoch, closed: Mutex::new(false) })
    }

    /// Lets the next write end with an error.
    pub fn fail_next_write(&self, fault: WriteFault) {
        self.state.lock().fault = Some(fault);
    }

    /// Returns all rows, without `applied`.
    pub fn rows(&self) -> BTreeMap<Bytes, Bytes> {
        self.state.lock().rows.clone()
    }
}

/// One owner's handle on a [`MemoryDisk`].
#[derive(Debug)]
pub struct MemoryRows {
    disk: MemoryDisk,
    epoch: u64,
    closed: Mutex<bool>,
}

impl MemoryRows {
    fn check_open(&self) -> Result<(), RowsError> {
        if *self.closed.lock() { Err(RowsError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Rows for MemoryRows {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError> {
        self.check_open()?;
        Ok(self.disk.state.lock().rows.get(key).cloned())
    }

    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError> {
        self.check_open()?;
        let mut page = PageBuilder::new(limits);
        if range.start < range.end {
            let state = self.disk.state.lock();
            for (key, value) in state.rows.range(range) {
                if !page.push(key, value) {
                    break;
                }
            }
        }
        Ok(page.finish())
    }

    async fn write(&self, rows: Vec<Change>, applied: SequenceNumber) -> Result<(), RowsError> {
        self.check_open()?;
        let mut state = self.disk.state.lock();
        if state.epoch != self.epoch {
            return Err(RowsError::Fenced);
        }
        let fault = state.fault.take();
        if fault == Some(WriteFault::Refused) {
            return Err(fault_error());
        }
        for (key, value) in rows {
            match value {
                Some(value) => drop(state.rows.insert(key, value)),
                None => drop(state.rows.remove(&key)),
            }
        }
        state.applied = applied;
        if fault == Some(WriteFault::AnswerLost) { Err(fault_error()) } else { Ok(()) }
    }

    async fn applied(&self) -> Result<SequenceNumber, RowsError> {
        self.check_open()?;
        Ok(self.disk.state.lock().applied)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    async fn close(&self) {
        *self.closed.lock() = true;
    }
}

fn fault_error() -> RowsError {
    RowsError::Store { doing: "write a batch", source: "fault asked for by the test".into() }
}
