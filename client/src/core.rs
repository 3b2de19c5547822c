//! What everything made by one client shares.

use crate::config::ClientConfig;
use crate::controller::Controller;
use crate::segment::SegmentClient;
use dhara_stdx::Entropy;
use std::sync::Arc;

/// Settings, connections and chance of one client.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: ClientConfig,
    pub(crate) controller: Controller,
    pub(crate) segments: SegmentClient,
    pub(crate) entropy: Arc<dyn Entropy>,
}
