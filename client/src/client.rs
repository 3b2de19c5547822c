//! The client: one controller, and everything made from it.

use crate::admin::Admin;
use crate::config::ClientConfig;
use crate::controller::Controller;
use crate::error::Error;
use crate::event_reader::{ReadFrom, ReadUntil, SegmentReader, StreamReader};
use crate::event_writer::EventWriter;
use crate::segment::SegmentClient;
use dhara_stdx::{Entropy, SystemEntropy};
use dhara_wire::name::{SegmentName, StreamName};
use std::sync::Arc;

/// A client of one controller and the segment stores it names. Clones share all connections.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

/// What everything made by one client shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: ClientConfig,
    pub(crate) controller: Controller,
    pub(crate) segments: SegmentClient,
    pub(crate) entropy: Arc<dyn Entropy>,
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
