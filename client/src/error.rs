//! The one error that covers the whole client, for callers that do not tell operations apart.

use crate::controller::ControllerError;
use crate::event_reader::ReadError;
use crate::event_writer::WriteError;
use crate::segment::SegmentError;
use dhara_stdx::Retry;
use dhara_wire::name::NameError;

/// Any failure of a client's operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name is malformed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A call to the controller was not answered or was refused.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A request to a segment store was not answered or was refused.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A writer ended.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A reader ended.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system has no source of random numbers.
    #[error("drawing random numbers")]
    Entropy(#[source] std::io::Error),
}

impl Error {
    /// Whether the same call may be made again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Name(_) | Self::Entropy(_) => Retry::Never,
            Self::Controller(error) => error.retry(),
            Self::Segment(error) => error.retry(),
            Self::Write(error) => error.retry(),
            Self::Read(error) => error.retry(),
        }
    }
}
