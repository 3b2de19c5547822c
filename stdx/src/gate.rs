//! A gate: work enters, the owner closes it and waits until all who entered have left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// High bit: closed. The other bits count those inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

#[derive(Debug, Default)]
struct Inner {
    state: AtomicUsize,
    empty: Notify,
}

/// Counts work in progress and shuts it out at the end. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

/// Leave to be inside; dropping it leaves.
#[derive(Debug)]
pub struct GateGuard(Arc<Inner>);

impl Gate {
    /// An open gate with nobody inside.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters, or gives `None` once the gate is closed.
    pub fn enter(&self) -> Option<GateGuard> {
        let entered = self.0.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state & CLOSED == 0).then_some(state + 1)
        });
        entered.is_ok().then(|| GateGuard(Arc::clone(&self.0)))
    }

    /// Lets nobody in from now on; those inside may finish.
    pub fn close(&self) {
        let before = self.0.state.fetch_or(CLOSED, Ordering::AcqRel);
        if before & !CLOSED == 0 {
            self.0.empty.notify_waiters();
        }
    }

    /// True once [`Gate::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.0.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.0.state.load(Ordering::Acquire) & !CLOSED
    }

    /// Waits until the gate is closed and everybody has left.
    ///
    /// # Cancel safety
    /// Waiting changes nothing; call it again at will.
    pub async fn wait(&self) {
        loop {
            let left = self.0.empty.notified();
            if self.0.state.load(Ordering::Acquire) == CLOSED {
                return;
            }
            left.await;
        }
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        let before = self.0.state.fetch_sub(1, Ordering::AcqRel);
        if before == CLOSED + 1 {
            self.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closed_gate_waits_for_those_inside_and_lets_nobody_in() {
        let gate = Gate::new();
        let first = gate.enter().unwrap();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait().await }
        });
        gate.close();
        assert!(gate.enter().is_none());
        assert_eq!(gate.inside(), 1);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn closing_an_empty_gate_releases_those_who_wait() {
        let gate = Gate::new();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait().await }
        });
        tokio::task::yield_now().await;
        gate.close();
        waiting.await.unwrap();
        assert!(gate.is_closed());
    }
}
