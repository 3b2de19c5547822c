//! What each call means: arguments are checked, the outcome decided, an intent written and its work waited for.
//!
//! Nothing here knows gRPC or REST. Outcomes that callers tell apart are values; [`ServiceError`] is for the rest.

mod change;
mod group;
mod query;
mod scale;
mod scope;
mod stream;
mod table;
mod transaction;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::Retry;
use dhara_wire::hash::container_of;
use dhara_wire::name::stream_of_mark;
use tokio::time::timeout;

use crate::config::{ControllerConfig, HostPort};
use crate::record::name::segment;
use crate::store::{Store, StoreError, WorkItem};
use crate::stream::SegmentId;
use crate::stream::name::is_stored_name;
use crate::workflow::Engine;

pub(crate) use change::{StreamChange, StreamDeletion};
pub(crate) use group::{GroupCreated, GroupDeleted, GroupUpdated, Reported, SubscriberReport};
pub(crate) use scale::Scaling;
pub(crate) use scope::{NamePage, ScopeCreation, ScopeDeletion};
pub(crate) use stream::StreamCreation;
pub(crate) use table::{TableCreation, TableDeletion};
pub(crate) use transaction::{End, Pinged, TransactionEnding};

/// Pause before a call that lost a race looks again: a store may refuse a condition before what it refuses it for
/// can be read.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// Why a call has no outcome of its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServiceError {
    /// The arguments make no sense, whatever is stored.
    #[error("{0}")]
    Invalid(String),
    /// There is no such thing.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The stream's state forbids it.
    #[error("{0}")]
    Precondition(&'static str),
    /// The work goes on but takes longer than a call may.
    #[error("work is still going on")]
    Deadline,
    /// The controller stops; the work goes on when it starts again.
    #[error("the controller is stopping")]
    Stopping,
    /// The store could not do it.
    #[error(transparent)]
    Store(StoreError),
}

impl ServiceError {
    /// Says whether the call may be made again.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Deadline | Self::Stopping => Retry::Unknown,
            Self::Store(error) => error.retry(),
            Self::Invalid(_) | Self::NotFound(_) | Self::Precondition(_) => Retry::Never,
        }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(what) => Self::NotFound(what),
            other => Self::Store(other),
        }
    }
}

/// Outcome of a call that cannot fail in a way of its own.
pub(crate) type Outcome<T> = Result<T, ServiceError>;

/// Everything a controller is asked for.
#[derive(Debug)]
pub(crate) struct Service {
    engine: Arc<Engine>,
    store: Arc<Store>,
    config: ControllerConfig,
    advertised: HostPort,
}

impl Service {
    /// The service of one controller, which clients reach at `advertised`.
    pub(crate) fn new(engine: Arc<Engine>, config: ControllerConfig, advertised: HostPort) -> Self {
        Self { store: engine.store().clone(), engine, config, advertised }
    }

    /// Controllers that are alive.
    pub(crate) fn controllers(&self) -> Vec<HostPort> {
        vec![self.advertised.clone()]
    }

    /// The store that has the container of a segment, whether or not the segment exists.
    pub(crate) fn store_of(&self, scope: &str, stream: &str, id: SegmentId) -> Outcome<HostPort> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        let container =
            container_of(&segment(scope, stream, id), u32::from(self.config.container_count.max(1)));
        let stores = &self.config.store;
        let index = usize::try_from(container).unwrap_or_default() % stores.len().max(1);
        stores.get(index).cloned().ok_or(ServiceError::Precondition("no segment store"))
    }

    /// Waits for a turn of a thing as long as a call may take; the turn goes on in any case.
    async fn turn(&self, item: &WorkItem) -> Outcome<()> {
        match timeout(self.config.call_time_max, self.engine.turn(item)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ServiceError::Stopping),
            Err(_elapsed) => Err(ServiceError::Deadline),
        }
    }
}

/// Refuses an empty name.
fn check_present(what: &'static str, name: &str) -> Outcome<()> {
    if name.is_empty() { Err(ServiceError::Invalid(format!("{what} is empty"))) } else { Ok(()) }
}

/// Whether a stream of the name can be there: as callers name them, or the mark stream of one.
fn may_exist(stream: &str) -> bool {
    is_stored_name(stream) || stream_of_mark(stream).is_some_and(is_stored_name)
}

/// Refuses a continuation token that no listing has given out.
fn check_token(token: &str) -> Outcome<()> {
    if token.is_empty() || may_exist(token) {
        Ok(())
    } else {
        Err(ServiceError::Invalid(String::from("unknown continuation token")))
    }
}
