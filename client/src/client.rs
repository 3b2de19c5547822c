//! The client: one controller, and everything made from it.

use crate::admin::Admin;
use crate::config::ClientConfig;
use crate::controller::{Controller, ControllerError};
use crate::core::Core;
use crate::event_reader::{ReadError, ReadFrom, ReadUntil, SegmentReader, StreamReader};
use crate::event_writer::{EventWriter, WriteError};
use crate::segment::{RequestError, SegmentClient, SegmentError};
use dhara_stdx::{Retry, SystemEntropy};
use dhara_wire::name::{NameError, SegmentName, StreamName};
use std::sync::Arc;

/// A client of one controller and the segment stores it names. Clones share all connections.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

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

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Controller(error) => Self::Controller(error),
            RequestError::Segment(error) => Self::Segment(error),
        }
    }
}

impl Client {
    /// Connects to the controller at `uri`, which is `tcp://host:port`.
    ///
    /// # Errors
    /// [`Error::Controller`] if nobody answers there.
    /// # Cancel safety
    /// Dropped early: no connection is left.
    pub async fn connect(uri: &str, config: ClientConfig) -> Result<Self, Error> {
        let entropy = SystemEntropy::handle().map_err(Error::Entropy)?;
        let controller = Controller::connect(uri, &config).await?;
        let segments = SegmentClient::new(controller.clone(), config.clone());
        Ok(Self { core: Arc::new(Core { config, controller, segments, entropy }) })
    }

    /// The controller's calls as they are.
    pub fn controller(&self) -> &Controller {
        &self.core.controller
    }

    /// Creates, changes and lists scopes and streams.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.core))
    }

    /// Opens a writer of events to `stream`.
    ///
    /// # Errors
    /// [`Error::Write`] if the stream is missing or sealed.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn event_writer(&self, stream: &StreamName) -> Result<EventWriter, Error> {
        Ok(EventWriter::open(Arc::clone(&self.core), stream.clone()).await?)
    }

    /// Opens a reader of all events of `stream` between two points.
    ///
    /// # Errors
    /// [`Error::Read`] if the stream is missing.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn stream_reader(
        &self,
        stream: &StreamName,
        from: ReadFrom,
        until: ReadUntil,
    ) -> Result<StreamReader, Error> {
        Ok(StreamReader::open(Arc::clone(&self.core), stream.clone(), from, until).await?)
    }

    /// Reads the bytes of `segment` from `offset` on.
    pub fn segment_reader(&self, segment: &SegmentName, offset: i64) -> SegmentReader {
        // Connections of its own, so that a read that waits at the tail ends with its reader.
        let core = &self.core;
        let segments = SegmentClient::new(core.controller.clone(), core.config.clone());
        SegmentReader::new(Arc::new(segments), segment.clone(), offset)
    }
}
