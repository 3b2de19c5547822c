//! Reading a stream: the bytes of a segment, its events, and all segments of a stream merged.
//!
//! [`SegmentReader`] follows one segment over reconnects and truncations; [`frame`] cuts its bytes into events;
//! [`StreamReader`] reads all segments side by side and goes on with their successors once all predecessors are read.

mod frame;
mod segment_reader;
mod stream_reader;

pub use segment_reader::{SegmentRead, SegmentReader};
pub use stream_reader::{Event, ReadFrom, ReadUntil, StreamReader};

use crate::controller::ControllerError;
use crate::segment::{RequestError, SegmentError};
use dhara_stdx::Retry;
use dhara_wire::name::SegmentName;

/// Why a reader does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The controller did not answer, or refused.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The segment store did not answer for longer than the client's patience, or refused.
    #[error("reading segment {segment}")]
    Segment {
        /// The segment.
        segment: String,
        /// What came of the last attempt.
        source: SegmentError,
    },
    /// The segment's bytes are not events.
    #[error("no event begins at offset {offset} of segment {segment}")]
    Malformed {
        /// The segment.
        segment: String,
        /// Where an event should begin.
        offset: i64,
    },
}

impl ReadError {
    /// Whether reading may be tried again from the same position.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Controller(error) => error.retry(),
            Self::Segment { source, .. } => match source.retry() {
                Retry::Never => Retry::Never,
                // Reading changes nothing, so an unknown outcome is no danger.
                Retry::Safe | Retry::Unknown => Retry::Safe,
            },
            Self::Malformed { .. } => Retry::Never,
        }
    }

    /// What stopped a request about `segment` stops its reader.
    fn of(segment: &SegmentName, error: RequestError) -> Self {
        match error {
            RequestError::Controller(error) => Self::Controller(error),
            RequestError::Segment(source) => Self::Segment { segment: segment.to_string(), source },
        }
    }
}
