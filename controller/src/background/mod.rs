//! Work that nobody waits for: what a crash has left behind, leases, and rows whose time is over.

mod janitor;
mod lease;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::workflow::Engine;

/// The background tasks of one controller; they end when their token is cancelled.
pub(crate) fn spawn(
    engine: &Arc<Engine>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    sweep_interval: Duration,
) {
    tasks.spawn(stop.clone().run_until_cancelled_owned(sweeper::run(engine.clone(), sweep_interval)));
    tasks.spawn(stop.clone().run_until_cancelled_owned(lease::run(engine.clone())));
    tasks.spawn(stop.clone().run_until_cancelled_owned(janitor::run(engine.clone())));
}
