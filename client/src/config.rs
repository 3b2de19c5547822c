//! What a client can be told.

use std::time::Duration;

/// Settings of a client. The defaults suit a client beside its server and one far away alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Longest time to connect and shake hands, 100 ms to 60 s. Default 5 s.
    pub connect_timeout: Duration,
    /// Longest wait for an answer that the server owes at once (so not a read at the tail), 1 s to 10 min. Default 60 s.
    pub request_timeout: Duration,
    /// How failed calls are tried again.
    pub retry: RetryPolicy,
    /// Most bytes of events that one writer holds without an acknowledgement; a writer at the limit waits. 1 MiB to
    /// 1 GiB. Default 16 MiB.
    pub in_flight_bytes_max: usize,
    /// Most bytes of events that one reader fetches ahead; 1 MiB to 1 GiB. Default 8 MiB.
    pub prefetch_bytes_max: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_mins(1),
            retry: RetryPolicy::default(),
            in_flight_bytes_max: 16 * 1024 * 1024,
            prefetch_bytes_max: 8 * 1024 * 1024,
        }
    }
}

/// Pauses between attempts, and when to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// First pause; each next one is four times as long. 1 ms to 1 s. Default 2 ms.
    pub pause_min: Duration,
    /// Longest pause, up to 60 s. Default 2 s.
    pub pause_max: Duration,
    /// Time without any progress after which the last error is returned; 0 for no second attempt. Default 2 min.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            pause_min: Duration::from_millis(2),
            pause_max: Duration::from_secs(2),
            give_up_after: Duration::from_mins(2),
        }
    }
}

impl RetryPolicy {
    /// The pause before attempt `failed + 1`, after `failed ≥ 1` failures in a row.
    pub(crate) fn pause(&self, failed: u32) -> Duration {
        let factor = 4_u32.saturating_pow(failed.saturating_sub(1).min(16));
        self.pause_min.saturating_mul(factor).min(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = [1, 2, 3, 100].map(|failed| policy.pause(failed).as_millis()).into();
        assert_eq!(pauses, [2, 8, 32, 2000]);
    }
}
