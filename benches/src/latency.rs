//! Latencies of one run, and what share of them was how fast.

use std::time::Duration;

/// Latencies as they were measured.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds one.
    pub fn push(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How many were measured.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The latency that `per_mille` of a thousand did not exceed; zero if nothing was measured.
    pub fn quantile(&mut self, per_mille: usize) -> Duration {
        self.0.sort_unstable();
        let index = (self.0.len() * per_mille / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(index).copied().unwrap_or_default()
    }

    /// p50, p99 and p99.9 in milliseconds, as text.
    pub fn describe(&mut self) -> String {
        let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
        let [half, most, nearly_all] = [500, 990, 999].map(|per_mille| ms(self.quantile(per_mille)));
        format!("{half:.3} / {most:.3} / {nearly_all:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_latencies_that_were_measured() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(500), Duration::ZERO);
        (1..=1000).rev().for_each(|ms| latencies.push(Duration::from_millis(ms)));
        assert_eq!(latencies.quantile(500), Duration::from_millis(501));
        assert_eq!(latencies.quantile(999), Duration::from_secs(1));
        assert_eq!(latencies.quantile(1000), Duration::from_secs(1));
    }
}
