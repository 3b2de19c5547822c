//! How many objects are on their way at one time.
//!
//! Uploads share a connection, and a time limit ends each that takes too long. On a slow one, as many as a fast one needs
//! would all end like that, begin anew, and never come to an end. So each that fails halves how many may go at one time,
//! down to one, and each that succeeds allows one more.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
struct State {
    allowed: usize,
    /// Turns that are under way and must not be given out again.
    surplus: usize,
}

/// Turns for uploads, in order; clones share them.
#[derive(Clone, Debug)]
pub struct Uploads {
    turns: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
    max: usize,
}

/// May upload one object; dropped early, it counts neither as failed nor as succeeded.
#[derive(Debug)]
pub struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    uploads: Uploads,
}

impl Uploads {
    /// At most `max` at one time, at least 1.
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        let state = Arc::new(Mutex::new(State { allowed: max, surplus: 0 }));
        Self { turns: Arc::new(Semaphore::new(max)), state, max }
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    /// Dropped early: the place in line is lost, nothing else.
    pub async fn turn(&self) -> Turn {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.turns).acquire_owned().await.ok();
        Turn { permit, uploads: self.clone() }
    }

    /// How many may go at one time.
    pub fn allowed(&self) -> usize {
        self.state.lock().allowed
    }
}

impl Turn {
    /// Ends it.
    pub fn end(self, succeeded: bool) {
        let mut state = self.uploads.state.lock();
        if !succeeded {
            let allowed = (state.allowed / 2).max(1);
            state.surplus += state.allowed - allowed;
            state.allowed = allowed;
        } else if state.allowed < self.uploads.max {
            state.allowed += 1;
            match state.surplus.checked_sub(1) {
                Some(surplus) => state.surplus = surplus,
                None => self.uploads.turns.add_permits(1),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.uploads.state.lock();
        if let Some(surplus) = state.surplus.checked_sub(1) {
            state.surplus = surplus;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Takes all turns that there are.
    fn all(uploads: &Uploads) -> Vec<Turn> {
        std::iter::from_fn(|| uploads.turn().now_or_never()).collect()
    }

    #[test]
    fn failures_leave_one_turn_and_successes_bring_the_others_back() {
        let uploads = Uploads::new(8);
        for (succeeded, expected) in [(false, 1), (false, 1), (true, 2), (true, 4), (true, 8), (true, 8)] {
            for turn in all(&uploads) {
                turn.end(succeeded);
            }
            assert_eq!((uploads.allowed(), all(&uploads).len()), (expected, expected));
        }
        drop(all(&uploads));
        assert_eq!(all(&uploads).len(), 8, "who leaves early changes nothing");
        let mut turns = all(&uploads);
        turns.pop().unwrap().end(false);
        assert_eq!((uploads.allowed(), all(&uploads).len()), (4, 0), "seven are under way still");
        drop(turns.drain(..4));
        assert_eq!(all(&uploads).len(), 1, "three are");
    }
}
