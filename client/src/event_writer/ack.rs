//! How a writer's caller learns that an event is durable.
//!
//! All events of a block share one cell, so that an acknowledgement costs nothing per event. When a sealed segment's
//! events go on to its successors, a cell may depend on several blocks; it is settled by the last of them.

use super::WriteError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// The outcome of an event that was written, to be had with [`Ack::durable`]. Dropping it changes nothing for the event.
#[derive(Clone, Debug)]
pub struct Ack(Arc<AckCell>);

impl Ack {
    /// Waits until the event is durable.
    ///
    /// # Errors
    /// Why the writer ended first; the event may or may not be stored.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn durable(self) -> Result<(), WriteError> {
        self.0.settled().await
    }

    /// The outcome, if it is known.
    pub fn outcome(&self) -> Option<Result<(), WriteError>> {
        self.0.outcome.get().cloned()
    }

    /// The outcome of an event that is durable already.
    pub(super) fn known() -> Self {
        let cell = AckCell::new();
        cell.block_is_durable();
        Self(cell)
    }

    pub(super) fn new(cell: Arc<AckCell>) -> Self {
        Self(cell)
    }
}

/// What the events of one block share.
#[derive(Debug)]
pub(super) struct AckCell {
    outcome: OnceLock<Result<(), WriteError>>,
    blocks: AtomicUsize,
    settled: Notify,
}

impl AckCell {
    /// A cell that depends on one block.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { outcome: OnceLock::new(), blocks: AtomicUsize::new(1), settled: Notify::new() })
    }

    /// Makes the cell depend on one more block.
    pub(super) fn depend(&self) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// One block that the cell depends on is durable.
    pub(super) fn block_is_durable(&self) {
        if self.blocks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settle(Ok(()));
        }
    }

    /// The writer ended.
    pub(super) fn fail(&self, error: WriteError) {
        self.settle(Err(error));
    }

    fn settle(&self, outcome: Result<(), WriteError>) {
        // The first outcome stays: a block that was durable cannot fail any more.
        if self.outcome.set(outcome).is_ok() {
            self.settled.notify_waiters();
        }
    }

    async fn settled(&self) -> Result<(), WriteError> {
        let mut settled = std::pin::pin!(self.settled.notified());
        loop {
            settled.as_mut().enable();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            settled.as_mut().await;
            settled.set(self.settled.notified());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cell_is_settled_by_the_last_of_its_blocks() {
        let cell = AckCell::new();
        cell.depend();
        let ack = Ack::new(Arc::clone(&cell));
        cell.block_is_durable();
        assert!(ack.outcome().is_none());
        cell.block_is_durable();
        assert!(ack.durable().await.is_ok());
    }

    #[tokio::test]
    async fn waiting_caller_learns_of_a_failure() {
        let cell = AckCell::new();
        let waiting = tokio::spawn(Ack::new(Arc::clone(&cell)).durable());
        tokio::task::yield_now().await;
        cell.fail(WriteError::Closed);
        assert!(matches!(waiting.await.unwrap(), Err(WriteError::Closed)));
    }
}
