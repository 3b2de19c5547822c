//! The turn of one thing: its workflows run one at a time, in one task that lives as long as there is work.
//!
//! Callers write an intent, ask for a turn and may wait for it. A turn that begins after the call sees the intent,
//! so waiting for that turn is waiting for the intent.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::{Versioned, WorkItem};
use crate::stream::{Transaction, TransactionId};

/// Number of a turn.
pub(crate) type Turn = u64;

/// What this process knows of one thing's work.
#[derive(Debug)]
pub(crate) struct Runner {
    /// The thing.
    pub(crate) item: WorkItem,
    state: Mutex<RunnerState>,
    done: watch::Sender<Turn>,
}

#[derive(Debug, Default)]
struct RunnerState {
    /// The last turn asked for.
    asked: Turn,
    /// Whether the task is there.
    running: bool,
    /// Open transactions as this process wrote or read them last; the stored rows decide.
    open: BTreeMap<TransactionId, Versioned<Transaction>>,
    /// Transactions to be merged, in the order of their commit calls.
    committing: BTreeMap<u64, Transaction>,
    /// Transactions to be dropped.
    aborting: BTreeSet<TransactionId>,
    /// Highest place in the order given out.
    last_order: u64,
}

impl Runner {
    /// A runner without work.
    pub(crate) fn new(item: WorkItem) -> Self {
        Self { item, state: Mutex::default(), done: watch::Sender::new(0) }
    }

    /// Asks for a turn; `true` if the caller has to start the task.
    pub(super) fn ask(&self) -> (Turn, bool) {
        let mut state = self.state.lock();
        state.asked += 1;
        let start = !state.running;
        state.running = true;
        (state.asked, start)
    }

    /// The last turn asked for: what a pass that begins now will have done.
    pub(super) fn asked(&self) -> Turn {
        self.state.lock().asked
    }

    /// Tells the callers that `turn` is over; `false` if the task may end because nobody has asked for more.
    pub(super) fn finish(&self, turn: Turn) -> bool {
        self.done.send_replace(turn);
        let mut state = self.state.lock();
        state.running = state.asked > turn;
        state.running
    }

    /// Tells the callers that `turn` is over although the task goes on.
    pub(super) fn pass_on(&self, turn: Turn) {
        self.done.send_replace(turn);
    }

    /// Tells that the task is gone without having done its work.
    pub(super) fn abandon(&self) {
        self.state.lock().running = false;
    }

    /// Waits until `turn` is over.
    ///
    /// # Cancel safety
    /// Dropped early: the turn goes on.
    pub(super) async fn wait(&self, turn: Turn) {
        let mut done = self.done.subscribe();
        // The sender lives in this very runner, so it is never gone.
        drop(done.wait_for(|done| *done >= turn).await);
    }

    /// Whether nothing is known that would be lost with this runner.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        !state.running && state.open.is_empty() && state.committing.is_empty() && state.aborting.is_empty()
    }

    /// Whether transactions are under way.
    pub(crate) fn has_transactions(&self) -> bool {
        let state = self.state.lock();
        !(state.open.is_empty() && state.committing.is_empty() && state.aborting.is_empty())
    }

    /// Remembers a transaction as it stands in its row; whether it is open and was not known to be.
    pub(super) fn note(&self, transaction: Versioned<Transaction>) -> bool {
        use crate::stream::TransactionState as State;
        let mut state = self.state.lock();
        let id = transaction.row.id;
        match transaction.row.state {
            State::Open => return state.open.insert(id, transaction).is_none(),
            State::Committing => {
                state.open.remove(&id);
                let order = transaction.row.commit.as_ref().map_or(0, |commit| commit.order);
                state.last_order = state.last_order.max(order);
                state.committing.insert(order, transaction.row);
            }
            State::Aborting => {
                state.open.remove(&id);
                state.aborting.insert(id);
            }
            State::Committed | State::Aborted => drop(state.open.remove(&id)),
        }
        false
    }

    /// An open transaction, if this process knows it.
    pub(crate) fn open(&self, id: TransactionId) -> Option<Versioned<Transaction>> {
        self.state.lock().open.get(&id).cloned()
    }

    /// Forgets what was known of an open transaction.
    pub(crate) fn forget(&self, id: TransactionId) {
        self.state.lock().open.remove(&id);
    }

    /// Gives out the next place in the order of commit calls.
    ///
    /// Places are times, so that they rise over restarts and roughly over controllers too.
    pub(crate) fn next_order(&self, now_ms: i64) -> u64 {
        let mut state = self.state.lock();
        let time = u64::try_from(now_ms).unwrap_or_default().saturating_mul(1000);
        state.last_order = time.max(state.last_order + 1);
        state.last_order
    }

    /// Transactions to be merged, in order.
    pub(super) fn committing(&self) -> Vec<TransactionId> {
        self.state.lock().committing.values().map(|transaction| transaction.id).collect()
    }

    /// Writers and times told with the commit calls of transactions, with their places in `ids`.
    pub(super) fn marks(&self, ids: &[TransactionId]) -> Vec<(usize, (String, i64))> {
        let state = self.state.lock();
        let place = |id: TransactionId| ids.iter().position(|other| *other == id);
        let mark = |transaction: &Transaction| {
            let mark = transaction.commit.as_ref().and_then(|commit| commit.mark.clone())?;
            Some((place(transaction.id)?, mark))
        };
        state.committing.values().filter_map(mark).collect()
    }

    /// Forgets transactions that have been merged.
    pub(super) fn committed(&self, ids: &[TransactionId]) {
        self.state.lock().committing.retain(|_order, transaction| !ids.contains(&transaction.id));
    }

    /// Transactions to be dropped.
    pub(super) fn aborting(&self) -> Vec<TransactionId> {
        self.state.lock().aborting.iter().copied().collect()
    }

    /// Forgets a transaction that has been dropped.
    pub(super) fn aborted(&self, id: TransactionId) {
        self.state.lock().aborting.remove(&id);
    }

    /// Forgets everything: the stream is gone.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.open.clear();
        state.committing.clear();
        state.aborting.clear();
    }
}
