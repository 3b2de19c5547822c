//! What goes in and out of a writer's state besides events.

use super::WriteError;
use super::ack::AckCell;
use super::state::Slot;
use dhara_wire::codec::Uuid;
use std::sync::Arc;
use tokio::sync::Notify;

/// Why an event was not taken.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// The writer holds as much as it may.
    Full,
    /// The writer has ended.
    Ended(WriteError),
}

/// What a change of the state asks its caller to do once the lock is released.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Effects {
    /// Cells of blocks that are durable.
    pub(super) durable: Vec<Arc<AckCell>>,
    /// Lanes that have something to send.
    pub(super) wake: Vec<Arc<Notify>>,
    /// Whether callers that found the writer full may try again.
    pub(super) room: bool,
    /// Whether the supervisor has something to do.
    pub(super) supervise: bool,
}

/// An acknowledgement as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) slot: Slot,
    pub(super) writer_id: Uuid,
    pub(super) number: i64,
}

/// A reply that does not fit what was sent; the connection cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server acknowledges what was not sent")]
pub(super) struct Unexpected;
