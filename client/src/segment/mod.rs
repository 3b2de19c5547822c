//! Talking to segment stores: connections, their pool, and requests about one segment.
//!
//! A request is matched to its reply by id; replies come in any order. A request whose segment has moved or whose
//! connection was lost is made again after the controller was asked anew, so only requests that may be repeated are
//! made here. Appends have connections of their own (`event_writer::connection`).

mod dial;
mod request;

pub(crate) use dial::dial;
pub(crate) use request::{Patience, SegmentClient, Slice, read};
pub use request::{RequestError, SegmentState};

use dhara_stdx::Retry;
use dhara_wire::codec::DecodeError;
use dhara_wire::command::Command;
use dhara_wire::peer::{CallError, ConnectError, ReadError, WriteError};
use std::time::Duration;

/// Why a segment store did not do as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The connection could not be made.
    #[error("connecting to segment store {address}")]
    Connect {
        /// The store.
        address: String,
        /// What came of it.
        source: ConnectError,
    },
    /// The connection ended before the reply came.
    #[error("asking about segment {segment}")]
    Call {
        /// The segment asked about.
        segment: String,
        /// What came of it.
        source: CallError,
    },
    /// The store did not answer in time.
    #[error("no answer about {what} within {limit:?}")]
    Slow {
        /// The segment or store.
        what: String,
        /// The time it had.
        limit: Duration,
    },
    /// Appends could not be sent.
    #[error("sending to segment store {address}")]
    Send {
        /// The store.
        address: String,
        /// What came of it.
        source: WriteError,
    },
    /// Acknowledgements could not be received.
    #[error("hearing from segment store {address}")]
    Receive {
        /// The store.
        address: String,
        /// What came of it.
        source: ReadError,
    },
    /// The store closed the connection.
    #[error("segment store {address} closed the connection")]
    Closed {
        /// The store.
        address: String,
    },
    /// The bytes received are no command.
    #[error("reading a reply")]
    Decode(#[from] DecodeError),
    /// A reply does not fit what was sent.
    #[error("segment store sent an unexpected reply")]
    Unexpected,
    /// The segment is not there: never created, deleted, or merged away.
    #[error("segment {segment} does not exist")]
    Missing {
        /// The segment.
        segment: String,
    },
    /// The segment lives on another store.
    #[error("segment {segment} is on another segment store")]
    Moved {
        /// The segment.
        segment: String,
    },
    /// The store refuses.
    #[error("segment store refuses: {reply} {message}")]
    Refused {
        /// Name of the reply.
        reply: &'static str,
        /// What the store says.
        message: String,
    },
}

impl SegmentError {
    /// Whether the same request may be made again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect { source, .. } => source.retry(),
            Self::Call { source, .. } => source.retry(),
            Self::Moved { .. } => Retry::Safe,
            Self::Slow { .. } | Self::Send { .. } | Self::Receive { .. } | Self::Closed { .. } => {
                Retry::Unknown
            }
            Self::Decode(_) | Self::Unexpected | Self::Missing { .. } | Self::Refused { .. } => Retry::Never,
        }
    }
}

/// The error that a reply stands for.
pub(crate) fn refusal(reply: Command) -> SegmentError {
    let name = reply.name();
    match reply {
        Command::NoSuchSegment(reply) => SegmentError::Missing { segment: reply.segment },
        Command::WrongHost(reply) => SegmentError::Moved { segment: reply.segment },
        Command::ErrorMessage(reply) => SegmentError::Refused { reply: name, message: reply.message },
        Command::OperationUnsupported(reply) => {
            SegmentError::Refused { reply: name, message: reply.operation_name }
        }
        Command::AuthTokenCheckFailed(_) | Command::InvalidEventNumber(_) | Command::SegmentIsSealed(_) => {
            SegmentError::Refused { reply: name, message: String::new() }
        }
        _ => SegmentError::Unexpected,
    }
}
