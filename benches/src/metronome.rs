//! Ticks at the microsecond. The timers of tokio are good for a millisecond, which is more than an append takes.

use anyhow::{Result, ensure};
use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Ticks with a steady period. Ticks that nobody waited for are kept and come at once.
#[derive(Debug)]
pub struct Metronome {
    timer: AsyncFd<OwnedFd>,
    ready: u64,
}

impl Metronome {
    /// The first tick is at `start`, or now if that is over; a runtime with I/O must be entered.
    ///
    /// # Errors
    /// If `period` is zero, or the system has no timer to give.
    pub fn new(start: Instant, period: Duration) -> Result<Self> {
        ensure!(!period.is_zero(), "a period of nothing");
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // Zero would disarm it.
        let first = start.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let times =
            Itimerspec { it_interval: Timespec::try_from(period)?, it_value: Timespec::try_from(first)? };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        #[allow(
            deprecated,
            reason = "what replaces it is unsafe for descriptors that may close; this one is owned"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer, ready: 0 })
    }

    /// Waits for the next tick. Cancel safe: a tick that was not returned comes next time.
    ///
    /// # Errors
    /// If the system fails to read its timer.
    pub async fn tick(&mut self) -> Result<()> {
        while self.ready == 0 {
            let mut guard = self.timer.readable().await?;
            // The kernel counts in the machine's own order.
            #[allow(clippy::host_endian_bytes, reason = "never leaves the machine")]
            let from_kernel = u64::from_ne_bytes;
            let mut count = [0; 8];
            match read(self.timer.get_ref(), &mut count) {
                Ok(_eight) => self.ready = from_kernel(count),
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        self.ready -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_tick_is_early_and_none_is_lost() {
        let period = Duration::from_micros(300);
        let start = Instant::now() + Duration::from_millis(2);
        let mut metronome = Metronome::new(start, period).unwrap();
        for tick in 0..100 {
            metronome.tick().await.unwrap();
            assert!(Instant::now() >= start + period * tick, "tick {tick}");
        }
        Metronome::new(start, Duration::ZERO).unwrap_err();
    }
}
