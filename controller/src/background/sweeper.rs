//! Looks through the list of unfinished work: once at the start, so that a crash is made good, then now and then to
//! take off the list what has come to rest.

use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::Retry;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::record::name::WORK_BUCKETS;
use crate::store::{StoreError, WorkEntry};
use crate::workflow::Engine;

/// Pause after a look that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Longest time that a sweep waits for one thing.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);

/// Sweeps for good.
pub(super) async fn run(engine: Arc<Engine>, interval: Duration) {
    let found = recovered(&engine).await;
    if found > 0 {
        info!(things = found, "unfinished work taken up");
    }
    engine.set_recovered();
    loop {
        sleep(interval).await;
        if let Err(error) = settle(&engine).await {
            warn!(%error, "sweeping the list of work");
        }
    }
}

/// Recovers, as often as it takes.
async fn recovered(engine: &Arc<Engine>) -> usize {
    loop {
        match recover(engine).await {
            Ok(found) => return found,
            Err(error) => warn!(%error, "looking for unfinished work"),
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Learns all that was left behind, then lets it go on. Returns how many things were on the list.
///
/// A thing whose rows cannot be read is left to itself; the others are not to wait for it.
async fn recover(engine: &Arc<Engine>) -> Result<usize, StoreError> {
    let buckets = (0..WORK_BUCKETS).map(|bucket| engine.store().work().entries(bucket));
    let entries = futures_util::future::try_join_all(buckets).await?.concat();
    for WorkEntry { item, .. } in &entries {
        match engine.learn(item).await {
            Err(error) if error.retry() == Retry::Never => {
                warn!(scope = item.scope, name = item.name, %error, "unfinished work cannot be read");
            }
            other => other?,
        }
    }
    for entry in &entries {
        engine.ask(&engine.runner(&entry.item));
    }
    Ok(entries.len())
}

/// Drives what is on the list and takes off it what has rested long enough.
async fn settle(engine: &Arc<Engine>) -> Result<(), StoreError> {
    for bucket in 0..WORK_BUCKETS {
        for entry in engine.store().work().entries(bucket).await? {
            if !entry.rested {
                continue;
            }
            let item = &entry.item;
            if let Err(error) = settle_one(engine, &entry).await {
                warn!(scope = item.scope, name = item.name, %error, "settling unfinished work");
            }
        }
    }
    engine.retire_idle();
    Ok(())
}

async fn settle_one(engine: &Arc<Engine>, entry: &WorkEntry) -> Result<(), StoreError> {
    engine.learn(&entry.item).await?;
    // What does not come to an end in time stays on the list and keeps its turn.
    let ended = timeout(TURN_TIME_MAX, engine.turn(&entry.item)).await;
    if ended == Ok(true) && engine.is_at_rest(&entry.item).await? {
        engine.store().work().settle(entry).await?;
    }
    Ok(())
}
