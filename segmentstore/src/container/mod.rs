//! One container: the unit of ownership and ordering.
//!
//! A container is one task that owns [`State`](crate::state::State), admits operations in arrival order, hands
//! batches of records to the log, applies what became durable, publishes it and only then answers. Others hold a
//! [`ContainerHandle`]. A failure anywhere ends the whole container; the truth is read again from the log.

mod backlog;
mod flush;
mod marks;
mod park;
mod pressure;
mod publish;
mod recover;
mod regroup;
mod rows;
mod sweep;
mod task;
mod tiering;

pub use backlog::Rules;
pub use pressure::MemoryLimits;
pub use recover::{ContainerParts, GivenUp, LostLog, OpenError, open};
pub use task::Failure;
pub use tiering::Tier;
pub(crate) use tiering::UPLOADS_MAX;

use crate::index::Index;
use crate::log::Log;
use crate::operation::Operation;
use crate::read::{ColdReader, Loads, Views};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Operations that may wait for a container's task; a full queue makes connections wait.
pub const INBOX_OPERATIONS_MAX: usize = 4_096;

/// A handle on an open container; clones share it.
#[derive(Clone)]
pub struct ContainerHandle {
    inbox: mpsc::Sender<Operation>,
    views: Arc<Views>,
    loads: Arc<Loads>,
    index: Index,
    log: Arc<dyn Log>,
    cold: ColdReader,
}

/// The container ended; its clients reconnect and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container is closed")]
pub struct Closed;

impl ContainerHandle {
    /// Hands over an operation, waiting while the inbox is full.
    ///
    /// # Errors
    /// [`Closed`] if the container has ended; the operation had no effect.
    /// # Cancel safety
    /// Dropped before the inbox has room: nothing happened.
    pub async fn send(&self, operation: Operation) -> Result<(), Closed> {
        let slot = self.inbox.reserve().await.map_err(|_closed| Closed)?;
        slot.send(operation);
        Ok(())
    }

    /// The published segments.
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The published load of the segments.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The index, for reads of tables.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The log, for reads of bytes that lie there.
    pub fn log(&self) -> &dyn Log {
        &*self.log
    }

    /// Reads what lies in objects.
    pub fn cold(&self) -> &ColdReader {
        &self.cold
    }

    /// Whether the container has ended.
    pub fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }
}

#[cfg(test)]
mod tests;
