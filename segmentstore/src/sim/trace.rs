//! What happened in a simulated world, in order, with its time: two runs of one seed must agree on all of it.

use parking_lot::Mutex;
use std::fmt::{self, Write};
use std::sync::Arc;
use tokio::time::Instant;

/// Takes note of events and folds them into one number. Clones are the same trace.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    hash: u64,
    events: u64,
    line: String,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that begins now; with `keeps` it remembers each event's text, to find where two runs part.
    pub fn new(keeps: bool) -> Self {
        let inner = Inner {
            start: Instant::now(),
            hash: FNV_OFFSET,
            events: 0,
            line: String::new(),
            lines: keeps.then(Vec::new),
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Takes note of an event of this moment.
    pub fn note(&self, event: fmt::Arguments<'_>) {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        inner.line.clear();
        let at = inner.start.elapsed().as_micros();
        // Writing to a string cannot fail.
        let _written = write!(inner.line, "{at} {event}");
        inner.hash = fold(inner.hash, inner.line.as_bytes());
        inner.events += 1;
        if let Some(lines) = &mut inner.lines {
            lines.push(inner.line.clone());
        }
    }

    /// One number for everything noted so far.
    pub fn hash(&self) -> u64 {
        self.0.lock().hash
    }

    /// How many events were noted so far.
    pub fn events(&self) -> u64 {
        self.0.lock().events
    }

    /// The texts, if they are kept.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().lines.clone().unwrap_or_default()
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a, with a byte behind each event that no text holds.
fn fold(hash: u64, text: &[u8]) -> u64 {
    text.iter().chain(&[0xff]).fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hash_tells_order_time_and_text() {
        let hash_of = async |events: &[&str], wait_ms: u64| {
            let trace = Trace::new(false);
            for event in events {
                trace.note(format_args!("{event}"));
                tokio::time::advance(std::time::Duration::from_millis(wait_ms)).await;
            }
            trace.hash()
        };
        let first = hash_of(&["a", "b"], 1).await;
        assert_eq!(first, hash_of(&["a", "b"], 1).await);
        assert_ne!(first, hash_of(&["b", "a"], 1).await);
        assert_ne!(first, hash_of(&["ab"], 1).await);
        assert_ne!(first, hash_of(&["a", "b"], 2).await);
    }
}
