//! Looks through the list of unfinished work: once at the start, so that a crash is made good, then now and then to
//! take off the list what has come to rest.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::record::name::WORK_BUCKETS;
use crate::store::StoreError;
use crate::workflow::Engine;

/// Pause after a look that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Sweeps for good.
pub(super) async fn run(engine: Arc<Engine>, interval: Duration) {
    loop {
        match recover(&engine).await {
            Ok(found) => {
                if found > 0 {
                    info!(things = found, "unfinished work taken up");
                }
                break;
            }
            Err(error) => warn!(%error, "looking for unfinished work"),
        }
        sleep(RETRY_PAUSE).await;
    }
    engine.set_recovered();
    loop {
        sleep(interval).await;
        if let Err(error) = settle(&engine).await {
            warn!(%error, "sweeping the list of work");
        }
    }
}

/// Learns all that was left behind, then lets it go on. Returns how many things were on the list.
async fn recover(engine: &Arc<Engine>) -> Result<usize, StoreError> {
    let buckets = (0..WORK_BUCKETS).map(|bucket| engine.store().work().entries(bucket));
    let entries = futures_util::future::try_join_all(buckets).await?.concat();
    for entry in &entries {
        engine.learn(&entry.item).await?;
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
            engine.learn(&entry.item).await?;
            engine.turn(&entry.item).await;
            if engine.is_at_rest(&entry.item).await? {
                engine.store().work().settle(&entry).await?;
            }
        }
    }
    Ok(())
}
