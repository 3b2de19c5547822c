//! Where broken promises are brought. The first one ends the run.

use crate::sim::Trace;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// Hears accusations. Clones are the same court.
#[derive(Clone)]
pub(super) struct Court(Arc<Inner>);

struct Inner {
    trace: Trace,
    first: Mutex<Option<String>>,
    heard: Notify,
}

impl Court {
    pub(super) fn new(trace: Trace) -> Self {
        Self(Arc::new(Inner { trace, first: Mutex::default(), heard: Notify::new() }))
    }

    /// Brings a broken promise.
    pub(super) fn accuse(&self, what: String) {
        self.0.trace.note(format_args!("broken: {what}"));
        self.0.first.lock().get_or_insert(what);
        self.0.heard.notify_one();
    }

    /// Brings the broken promise of a check that failed.
    pub(super) fn check(&self, checked: Result<(), String>) {
        if let Err(what) = checked {
            self.accuse(what);
        }
    }

    /// The first broken promise.
    pub(super) fn verdict(&self) -> Option<String> {
        self.0.first.lock().clone()
    }

    /// Waits for the first broken promise.
    pub(super) async fn guilty(&self) {
        while self.verdict().is_none() {
            self.0.heard.notified().await;
        }
    }
}
