//! Finds connections for streams that have none, and successors for those that are sealed.
//!
//! One task a writer. It asks the controller and tells the state what it learnt; while it waits, callers go on writing
//! and events gather where their keys lead.

use super::lane::LaneId;
use super::state::Slot;
use super::{Shared, WriteError, connection};
use crate::segment::SegmentError;
use dhara_wire::codec::Uuid;
use dhara_wire::name::SegmentName;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info};

/// Controller calls in flight at once.
const CALLS_MAX: usize = 16;

struct Supervisor {
    shared: Arc<Shared>,
    /// The connection to each store.
    lanes: BTreeMap<String, LaneId>,
    tasks: JoinSet<(LaneId, SegmentError)>,
    trouble: Option<Trouble>,
}

/// Failures since the last sign that the server does its work.
struct Trouble {
    since: Instant,
    failed: u32,
    progress: u64,
    last: Arc<SegmentError>,
}

/// Supervises until the writer ends of its own; dropping the future ends its connections.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut supervisor = Supervisor { shared, lanes: BTreeMap::new(), tasks: JoinSet::new(), trouble: None };
    let error = supervisor.supervise().await;
    info!(stream = %supervisor.shared.stream, %error, "writer ended");
    supervisor.shared.end(&error);
}

impl Supervisor {
    async fn supervise(&mut self) -> WriteError {
        loop {
            let shared = Arc::clone(&self.shared);
            // A connection that ends leaves work behind, so both arms lead to the same turn and none can starve.
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next() => {
                    if let Ok((lane, error)) = ended {
                        self.lane_ended(lane, error);
                    }
                }
                () = shared.supervise.notified() => {}
            }
            if let Err(error) = self.turn().await {
                return error;
            }
        }
    }

    /// Does what there is to do, until nothing is left.
    async fn turn(&mut self) -> Result<(), WriteError> {
        loop {
            let sealed = self.shared.state.lock().take_sealed();
            let homeless = self.shared.state.lock().take_homeless();
            if sealed.is_empty() && homeless.is_empty() {
                return Ok(());
            }
            self.replace(sealed).await?;
            self.settle(homeless).await?;
        }
    }

    async fn replace(&mut self, sealed: Vec<(Slot, SegmentName)>) -> Result<(), WriteError> {
        let core = &self.shared.core;
        let calls = stream::iter(sealed).map(|(slot, name)| async move {
            core.controller.successors(&name).await.map(|successors| (slot, name, successors))
        });
        let found: Vec<_> = calls.buffered(CALLS_MAX).try_collect().await.map_err(controller_error)?;
        for (slot, name, successors) in found {
            let stream = self.shared.stream.clone();
            if successors.is_empty() {
                return Err(WriteError::Sealed { stream });
            }
            debug!(segment = %name, successors = successors.len(), "segment is replaced");
            let named = successors.into_iter().map(|successor| {
                let segment = successor.segment;
                (stream.segment(segment.id), segment.range, Uuid(core.entropy.uuid()))
            });
            let named = named.collect();
            if !self.shared.change(|state, effects| state.replace(slot, named, effects)) {
                return Err(WriteError::Gap { stream });
            }
        }
        Ok(())
    }

    async fn settle(&mut self, homeless: Vec<(Slot, SegmentName)>) -> Result<(), WriteError> {
        if homeless.is_empty() {
            return Ok(());
        }
        self.pause().await?;
        let core = &self.shared.core;
        let calls = stream::iter(homeless).map(|(slot, name)| async move {
            core.controller.locate(&name).await.map(|address| (slot, address))
        });
        let found: Vec<_> = calls.buffered(CALLS_MAX).try_collect().await.map_err(controller_error)?;
        for (slot, address) in found {
            self.adopt(slot, address);
        }
        Ok(())
    }

    /// Gives the stream `slot` to the connection to `address`, which is made if there is none.
    fn adopt(&mut self, slot: Slot, address: String) {
        if let Some(&lane) = self.lanes.get(&address)
            && self.shared.change(|state, effects| state.adopt(lane, slot, effects))
        {
            return;
        }
        let wake = Arc::new(Notify::new());
        let lane = self.shared.change(|state, effects| {
            let lane = state.open_lane(Arc::clone(&wake));
            state.adopt(lane, slot, effects);
            lane
        });
        self.lanes.insert(address.clone(), lane);
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move { (lane, connection::run(shared, lane, wake, address).await) });
    }

    fn lane_ended(&mut self, lane: LaneId, error: SegmentError) {
        debug!(stream = %self.shared.stream, %error, "connection ended");
        self.lanes.retain(|_address, kept| *kept != lane);
        let progress = self.shared.state.lock().progress();
        let before = self.trouble.take().filter(|trouble| trouble.progress == progress);
        let (since, failed) =
            before.map_or_else(|| (Instant::now(), 0), |before| (before.since, before.failed));
        self.trouble = Some(Trouble { since, failed: failed + 1, progress, last: Arc::new(error) });
    }

    /// Waits after a failure, the longer the more there were.
    async fn pause(&mut self) -> Result<(), WriteError> {
        let Some(trouble) = &self.trouble else { return Ok(()) };
        if self.shared.state.lock().progress() != trouble.progress {
            self.trouble = None;
            return Ok(());
        }
        let policy = &self.shared.core.config.retry;
        if trouble.since.elapsed() >= policy.give_up_after {
            let source = Arc::clone(&trouble.last);
            return Err(WriteError::GaveUp { stream: self.shared.stream.clone(), source });
        }
        tokio::time::sleep(policy.pause(trouble.failed)).await;
        Ok(())
    }
}

fn controller_error(error: crate::controller::ControllerError) -> WriteError {
    WriteError::Controller(Arc::new(error))
}
