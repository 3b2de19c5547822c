//! Wall time. Durations and time-outs come from tokio's clock, which a simulation pauses.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the wall time; never used to order events.
pub trait Clock: Debug + Send + Sync {
    /// Milliseconds since 1970-01-01 UTC; may jump either way.
    fn wall_ms(&self) -> i64;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clock as the handle that the rest of the house takes.
    pub fn handle() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn wall_ms(&self) -> i64 {
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis());
        i64::try_from(since(SystemTime::now())).unwrap_or(i64::MAX)
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Starts at `ms`.
    pub fn new(ms: i64) -> Self {
        Self(AtomicI64::new(ms))
    }

    /// Jumps to `ms`, forward or back.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    /// Moves by `ms`.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(5);
        assert_eq!(clock.wall_ms(), 5);
        clock.advance(10);
        assert_eq!(clock.wall_ms(), 15);
        clock.set(1);
        assert_eq!(clock.wall_ms(), 1);
    }

    #[test]
    fn system_clock_is_past_2024() {
        assert!(SystemClock::handle().wall_ms() > 1_704_067_200_000);
    }
}
