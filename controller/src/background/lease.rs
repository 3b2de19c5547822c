//! Ends transactions that nobody pings.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::workflow::Engine;

/// Time between two looks at leases: how late an abort may be.
const TICK: Duration = Duration::from_millis(500);

/// Looks at leases for good.
pub(super) async fn run(engine: Arc<Engine>) {
    loop {
        sleep(TICK).await;
        engine.end_leases().await;
    }
}
