//! Workflows: from a durable intent to a state in which the intent is gone.
//!
//! Callers write intents; [`Engine`] gives each stream, group, table and scope its turn, and a pass over a thing
//! carries out every intent found in its rows. A pass is the same whether it follows a call, a failed pass or a
//! crash: each of its steps may run twice. What is decided comes from `stream`; here it is done.

mod create;
mod delete;
mod group;
mod rows;
mod runner;
mod scale;
mod scope;
mod seal;
mod table;
mod transaction;
mod truncate;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::Retry;
use futures_util::future::BoxFuture;
use futures_util::stream::{self as streams, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::record::name::Kind;
use crate::record::scope::{KeyValueTableRow, KeyValueTableState, Presence, StreamRow};
use crate::segment_client::SegmentError;
use crate::store::{Store, StoreError, StreamTable, Versioned, WorkItem};
use crate::stream::group::{GroupRecord, GroupState};
use crate::stream::{StreamState, Transaction, TransactionId};

pub(crate) use rows::{OWN_CONFIG, OWN_SCALE, OWN_SEAL, OWN_TRUNCATION, Rows};
pub(crate) use runner::{Runner, Turn};
pub(crate) use table::partitions;

/// Workflows fail as the store does.
pub(crate) type Error = StoreError;

/// Most requests that one step has under way at once.
const PARALLEL_MAX: usize = 64;
/// Pause after the first failed pass; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause between failed passes.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a pass leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Nothing that could be done is left.
    Rest,
    /// Every intent that was found is carried out, but there are more transactions; another pass follows.
    Backlog,
    /// An intent is not carried out yet; another pass follows.
    More,
}

/// A request to a segment store that has not been sent yet.
type SegmentRequest<'a, T> = BoxFuture<'a, Result<T, SegmentError>>;

/// Gives every thing its turn.
#[derive(Debug)]
pub(crate) struct Engine {
    store: Arc<Store>,
    runners: Mutex<BTreeMap<WorkItem, Arc<Runner>>>,
    recovered: watch::Sender<bool>,
    /// Open transactions by the time at which to look at them; that may be before their leases end, never after.
    leases: Mutex<BTreeSet<(i64, WorkItem, TransactionId)>>,
    /// Since when this controller takes pings, in milliseconds since 1970.
    serving_since_ms: i64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Engine {
    /// An engine whose tasks end when `stop` is cancelled.
    pub(crate) fn new(store: Arc<Store>, stop: CancellationToken) -> Self {
        let recovered = watch::Sender::new(false);
        Self {
            serving_since_ms: store.now_ms(),
            store,
            runners: Mutex::default(),
            recovered,
            leases: Mutex::default(),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// The tables.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The runner of a thing.
    pub(crate) fn runner(&self, item: &WorkItem) -> Arc<Runner> {
        let mut runners = self.runners.lock();
        if let Some(runner) = runners.get(item) {
            return runner.clone();
        }
        let runner = Arc::new(Runner::new(item.clone()));
        runners.insert(item.clone(), runner.clone());
        runner
    }

    /// Asks for a turn of a thing whose intent has been written.
    pub(crate) fn ask(self: &Arc<Self>, runner: &Arc<Runner>) -> Turn {
        let (turn, start) = runner.ask();
        if start {
            let (engine, runner) = (self.clone(), runner.clone());
            self.tasks.spawn(async move {
                let stop = engine.stop.clone();
                // The end comes first: a thing that always has work would otherwise keep the process alive.
                tokio::select! {
                    biased;
                    () = stop.cancelled() => runner.abandon(),
                    () = engine.run(&runner) => {}
                }
            });
        }
        turn
    }

    /// Asks for a turn and waits until it is over; `false` if the controller stops before that.
    ///
    /// # Cancel safety
    /// Dropped early: the turn goes on.
    pub(crate) async fn turn(self: &Arc<Self>, item: &WorkItem) -> bool {
        let runner = self.runner(item);
        let turn = self.ask(&runner);
        self.stop.run_until_cancelled(runner.wait(turn)).await.is_some()
    }

    /// Learns from its rows what is under way with a thing that this process may not have begun.
    pub(crate) async fn learn(&self, item: &WorkItem) -> Result<(), Error> {
        if item.kind != Kind::Stream {
            return Ok(());
        }
        let opened = match self.store.open(&item.scope, &item.name).await {
            Ok(opened) => opened,
            Err(StoreError::NotFound(_) | StoreError::NotReady) => return Ok(()),
            Err(error) => return Err(error),
        };
        let runner = self.runner(item);
        for transaction in opened.table.sweep().await?.transactions {
            self.note(&runner, transaction);
        }
        Ok(())
    }

    /// Remembers a transaction as it stands in its row, and when its lease ends if it is open.
    pub(crate) fn note(&self, runner: &Runner, transaction: Versioned<Transaction>) {
        let at_ms = transaction.row.abort_at_ms(self.serving_since_ms);
        let id = transaction.row.id;
        if runner.note(transaction) {
            self.leases.lock().insert((at_ms, runner.item.clone(), id));
        }
    }

    /// Whether nothing is unfinished with a thing, as far as its rows and this process know.
    pub(crate) async fn is_at_rest(&self, item: &WorkItem) -> Result<bool, Error> {
        let WorkItem { kind, scope, name } = item;
        let outcome = match kind {
            Kind::Stream => return self.is_stream_at_rest(item).await,
            Kind::Scope => {
                return Ok(self
                    .store
                    .find_scope(scope)
                    .await?
                    .is_none_or(|found| found.row.presence == Presence::Live));
            }
            Kind::Group => self.store.find_in_scope(scope, *kind, name).await.map(|found| {
                found.is_none_or(|found: Versioned<GroupRecord>| {
                    found.row.state == GroupState::Active && found.row.pending.is_none()
                })
            }),
            Kind::Table => self.store.find_in_scope(scope, *kind, name).await.map(|found| {
                found.is_none_or(|found: Versioned<KeyValueTableRow>| {
                    found.row.state == KeyValueTableState::Active
                })
            }),
        };
        match outcome {
            Err(StoreError::NotFound(_)) => Ok(true),
            other => other,
        }
    }

    async fn is_stream_at_rest(&self, item: &WorkItem) -> Result<bool, Error> {
        if self.runner(item).has_transactions() {
            return Ok(false);
        }
        let Some(found) = self.store.find_stream(&item.scope, &item.name).await? else { return Ok(true) };
        if found.row.presence == Presence::Leaving {
            return Ok(false);
        }
        match self.store.open(&item.scope, &item.name).await {
            Ok(opened) => Ok(matches!(opened.head.row.state, StreamState::Active | StreamState::Sealed)),
            Err(StoreError::NotFound(_) | StoreError::NotReady) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Drops runners that know nothing and that nobody holds.
    pub(crate) fn retire_idle(&self) {
        self.runners.lock().retain(|_item, runner| Arc::strong_count(runner) > 1 || !runner.is_idle());
    }

    /// Says that everything left behind by a crash is known, so that workflows may choose among it.
    pub(crate) fn set_recovered(&self) {
        self.recovered.send_replace(true);
    }

    /// Waits for the tasks to end after `stop`.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Passes over a thing until its work is done and nobody has asked for more.
    async fn run(self: &Arc<Self>, runner: &Arc<Runner>) {
        let mut recovered = self.recovered.subscribe();
        // The sender lives in this very engine, so it is never gone.
        drop(recovered.wait_for(|recovered| *recovered).await);
        let mut pause = PAUSE_MIN;
        loop {
            let turn = runner.asked();
            match self.pass(runner).await {
                Ok(progress) => {
                    pause = PAUSE_MIN;
                    if !goes_on(runner, turn, progress) {
                        break;
                    }
                }
                Err(error) if error.retry() == Retry::Never => {
                    let item = &runner.item;
                    warn!(scope = item.scope, name = item.name, %error, "workflow cannot go on");
                    if !runner.finish(turn) {
                        break;
                    }
                }
                Err(error) => pause = pause_after(&runner.item, &error, pause).await,
            }
        }
        self.retire(runner);
    }

    /// Drops a runner that knows nothing.
    fn retire(&self, runner: &Arc<Runner>) {
        let mut runners = self.runners.lock();
        // Two references, the map's and the caller's: nobody else is about to use it.
        if Arc::strong_count(runner) <= 2 && runner.is_idle() {
            runners.remove(&runner.item);
        }
    }

    /// One pass over one thing.
    async fn pass(self: &Arc<Self>, runner: &Arc<Runner>) -> Result<Progress, Error> {
        let WorkItem { kind, scope, name } = &runner.item;
        match kind {
            Kind::Stream => self.pass_stream(runner, scope, name).await,
            Kind::Group => self.pass_group(scope, name).await,
            Kind::Table => self.pass_table(scope, name).await,
            Kind::Scope => self.pass_scope(scope).await,
        }
    }

    async fn pass_stream(
        self: &Arc<Self>,
        runner: &Arc<Runner>,
        scope: &str,
        stream: &str,
    ) -> Result<Progress, Error> {
        let Some(found) = self.store.find_stream(scope, stream).await? else {
            runner.clear();
            return Ok(Progress::Rest);
        };
        if found.row.presence == Presence::Leaving {
            runner.clear();
            return self.delete(scope, stream, &found).await;
        }
        let table = self.store.stream_table(scope, stream, found.row.id);
        let rows = match Rows::read(&table).await {
            Err(error) if error.is_missing() => None,
            other => other?,
        };
        match rows {
            Some(mut rows) if rows.head.row.state != StreamState::Creating => {
                self.pass_rows(runner, &table, &mut rows, &found).await
            }
            _ => self.create(&table, &found.row).await,
        }
    }

    /// Carries out each intent of a stream at most once; those that have to wait for another lead to a further pass,
    /// so none starves.
    async fn pass_rows(
        &self,
        runner: &Arc<Runner>,
        table: &StreamTable,
        rows: &mut Rows,
        found: &Versioned<StreamRow>,
    ) -> Result<Progress, Error> {
        let mut progress = self.abort(runner, table).await?;
        progress = progress.max(self.commit(runner, table, rows).await?);
        progress = progress.max(self.update(table, rows, found).await?);
        progress = progress.max(self.scale(table, rows).await?);
        progress = progress.max(self.truncate(table, rows).await?);
        Ok(progress.max(self.seal(runner, table, rows).await?))
    }

    /// Runs requests to segment stores side by side, up to a limit, until one fails.
    async fn each<T: Send>(&self, requests: Vec<SegmentRequest<'_, T>>) -> Result<Vec<T>, Error> {
        Ok(streams::iter(requests).buffered(PARALLEL_MAX).try_collect().await?)
    }
}

/// Whether another pass follows one that ended well.
fn goes_on(runner: &Runner, turn: Turn, progress: Progress) -> bool {
    match progress {
        Progress::More => true,
        Progress::Backlog => {
            runner.pass_on(turn);
            true
        }
        Progress::Rest => runner.finish(turn),
    }
}

/// Waits after a pass that failed and may be tried again; returns the next wait. A lost race is tried at once.
async fn pause_after(item: &WorkItem, error: &Error, pause: Duration) -> Duration {
    debug!(scope = item.scope, name = item.name, %error, "workflow pass failed");
    if error.is_conflict() {
        return pause;
    }
    sleep(pause).await;
    (pause * 2).min(PAUSE_MAX)
}
