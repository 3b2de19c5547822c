//! Wall time of a simulated machine: goes with tokio's clock and jumps when told to.

use dhara_stdx::Clock;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

/// A wall clock that passes with tokio's, paused or not.
#[derive(Debug)]
pub struct SimClock {
    start: Instant,
    start_ms: AtomicI64,
}

impl SimClock {
    /// Shows `unix_ms` now.
    pub fn new(unix_ms: i64) -> Self {
        Self { start: Instant::now(), start_ms: AtomicI64::new(unix_ms) }
    }

    /// Jumps by `ms`, either way.
    pub fn jump(&self, ms: i64) {
        self.start_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.start_ms.load(Ordering::SeqCst).saturating_add(passed)
    }
}
