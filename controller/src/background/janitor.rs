//! Drops what has been kept long enough: the ends of transactions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

use crate::workflow::Engine;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_mins(15);

/// Looks for good.
pub(super) async fn run(engine: Arc<Engine>) {
    loop {
        sleep(INTERVAL).await;
        if let Err(error) = engine.store().drop_old_hours().await {
            warn!(%error, "dropping old ends of transactions");
        }
    }
}
