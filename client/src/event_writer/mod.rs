//! Writing events to a stream.
//!
//! [`EventWriter::write`] puts an event into the block of the segment that its key leads to and returns; a task per
//! connection sends blocks and settles what is acknowledged; a supervisor finds connections and successors. All of
//! them share one state under one short lock ([`state`]), which alone decides.

mod ack;
mod block;
mod connection;
mod effect;
mod lane;
mod large;
mod route;
mod state;
mod stream;
mod supervisor;
#[cfg(test)]
mod tests;

pub use ack::Ack;

use crate::controller::ControllerError;
use crate::core::Core;
use crate::segment::SegmentError;
use dhara_stdx::Retry;
use dhara_wire::codec::Uuid;
use dhara_wire::hash::routing_position;
use dhara_wire::limits::EVENT_BYTES_MAX;
use dhara_wire::name::StreamName;
use effect::{Effects, NotTaken};
use parking_lot::Mutex;
use state::WriterState;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Why an event was not written, or may not have been.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The event is larger than an event, or one that is taken without waiting, may be.
    #[error("event of {bytes} bytes is too large")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The stream takes no more events.
    #[error("stream {stream} is sealed")]
    Sealed {
        /// The stream.
        stream: StreamName,
    },
    /// The controller names segments that do not cover the key space.
    #[error("segments of stream {stream} leave a gap in the key space")]
    Gap {
        /// The stream.
        stream: StreamName,
    },
    /// The controller did not answer, or refused.
    #[error("finding where to write")]
    Controller(#[source] Arc<ControllerError>),
    /// No segment store took the events for longer than the client's patience.
    #[error("writing to stream {stream}")]
    GaveUp {
        /// The stream.
        stream: StreamName,
        /// What came of the last attempt.
        source: Arc<SegmentError>,
    },
    /// The writer was closed or dropped first.
    #[error("writer is closed")]
    Closed,
}

impl WriteError {
    /// Whether the same event may be written again: [`Retry::Unknown`] if it may be stored already.
    pub fn retry(&self) -> Retry {
        match self {
            Self::TooLarge { .. } | Self::Sealed { .. } | Self::Gap { .. } => Retry::Never,
            Self::Controller(_) | Self::GaveUp { .. } | Self::Closed => Retry::Unknown,
        }
    }
}

/// Writes events to one stream: exactly once while the writer lives, and in order among events of one key.
///
/// Many tasks may share a writer. Dropping it gives up what is not acknowledged; [`Self::close`] does not.
#[derive(Debug)]
pub struct EventWriter {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What callers, connections and supervisor share.
#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    stream: StreamName,
    state: Mutex<WriterState>,
    /// Notified when a full writer has room again, or has ended.
    room: Notify,
    /// Notified when the supervisor has something to do.
    supervise: Notify,
}

impl EventWriter {
    /// Finds the stream's segments and starts to connect.
    pub(crate) async fn open(core: Arc<Core>, stream: StreamName) -> Result<Self, WriteError> {
        let found = core.controller.current_segments(&stream).await;
        let segments = found.map_err(|error| WriteError::Controller(Arc::new(error)))?;
        if segments.is_empty() {
            return Err(WriteError::Sealed { stream });
        }
        let named = segments
            .iter()
            .map(|segment| (stream.segment(segment.id), segment.range, Uuid(core.entropy.uuid())));
        let held_bytes_max = core.config.in_flight_bytes_max;
        let state = WriterState::new(
            named.collect(),
            held_bytes_max,
            core.entropy.next_u64(),
            Uuid(core.entropy.uuid()),
        );
        let Some(state) = state else { return Err(WriteError::Gap { stream }) };
        let shared = Arc::new(Shared {
            core,
            stream,
            state: Mutex::new(state),
            room: Notify::new(),
            supervise: Notify::new(),
        });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let supervised = supervisor::run(Arc::clone(&shared));
        let stopped = stop.clone();
        tasks.spawn(async move { stopped.run_until_cancelled_owned(supervised).await });
        shared.supervise.notify_one();
        Ok(Self { shared, tasks, stop })
    }

    /// Takes `event` in the order of calls, and waits only while the writer holds as many un-acknowledged bytes as it
    /// may. Events with the same `key` are stored in the order they were taken; one without a key goes anywhere. The
    /// bytes are copied before this returns. An event above 8 MiB is durable when this returns; until then the writer
    /// takes no other.
    ///
    /// # Errors
    /// [`WriteError::TooLarge`], or why the writer has ended. What becomes of the event later is for [`Ack::durable`]
    /// to say.
    /// # Cancel safety
    /// Dropped while it waits: the event was not taken. One above 8 MiB may or may not be stored.
    pub async fn write(&self, event: &[u8], key: Option<&str>) -> Result<Ack, WriteError> {
        let position = key.map(routing_position);
        if event.len() > EVENT_BYTES_MAX {
            return self.write_large(event, position).await;
        }
        if let Some(ack) = self.try_push(event, position)? {
            return Ok(ack);
        }
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            room.as_mut().enable();
            if let Some(ack) = self.try_push(event, position)? {
                return Ok(ack);
            }
            room.await;
        }
    }

    /// Takes `event`, of at most 8 MiB, as [`Self::write`] does if there is room; `None` if the writer is full.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn try_write(&self, event: &[u8], key: Option<&str>) -> Result<Option<Ack>, WriteError> {
        self.try_push(event, key.map(routing_position))
    }

    /// Waits until everything taken before this call is durable.
    ///
    /// # Errors
    /// Why the writer ended first.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn flush(&self) -> Result<(), WriteError> {
        let pending = self.pending()?;
        for ack in pending {
            ack.durable().await?;
        }
        Ok(())
    }

    /// Waits until everything taken is durable, and ends the writer.
    ///
    /// # Errors
    /// As [`Self::flush`]; the writer is ended all the same.
    /// # Cancel safety
    /// Dropped early: the writer is dropped.
    pub async fn close(self) -> Result<(), WriteError> {
        let flushed = self.flush().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        flushed
    }

    fn pending(&self) -> Result<Vec<Ack>, WriteError> {
        let state = self.shared.state.lock();
        match state.ended() {
            Some(error) => Err(error.clone()),
            None => Ok(state.pending()),
        }
    }

    fn try_push(&self, event: &[u8], position: Option<f64>) -> Result<Option<Ack>, WriteError> {
        if event.len() > EVENT_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes: event.len() });
        }
        let pushed = self.shared.state.lock().push(position, event);
        match pushed {
            Ok((ack, wake)) => {
                if let Some(wake) = wake {
                    wake.notify_one();
                }
                Ok(Some(ack))
            }
            Err(NotTaken::Full) => Ok(None),
            Err(NotTaken::Ended(error)) => Err(error),
        }
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
        self.shared.end(&WriteError::Closed);
    }
}

impl Shared {
    /// Changes the state, and does what follows from it once the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut WriterState, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let changed = change(&mut self.state.lock(), &mut effects);
        for wake in &effects.wake {
            wake.notify_one();
        }
        for cell in &effects.durable {
            cell.block_is_durable();
        }
        if effects.room {
            self.room.notify_waiters();
        }
        if effects.supervise {
            self.supervise.notify_one();
        }
        changed
    }

    /// Ends the writer with `error`, unless it has ended.
    fn end(&self, error: &WriteError) {
        let cells = self.state.lock().end(error);
        for cell in cells {
            cell.fail(error.clone());
        }
        self.room.notify_waiters();
    }
}
