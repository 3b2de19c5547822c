//! Requests about one segment, made again where that is safe.

use super::{SegmentError, refusal};
use crate::config::ClientConfig;
use crate::controller::{Controller, ControllerError};
use bytes::Bytes;
use dhara_stdx::Retry;
use dhara_wire::command::{self, Command};
use dhara_wire::name::SegmentName;
use dhara_wire::peer::{ConnectionConfig, RawConnection};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::time::Instant;
use tracing::debug;

/// Requests under way at once on one connection: a reader of a stream has one for each segment.
const OUTSTANDING_MAX: usize = 64 * 1024;

/// Where a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentState {
    /// First readable offset.
    pub start: i64,
    /// Offset after the last byte.
    pub length: i64,
    /// Whether the segment takes no more appends.
    pub sealed: bool,
}

/// Why a request about streams or segments has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The controller did not answer, or refused.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The segment store did not answer, or refused.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl RequestError {
    /// Whether the same request may be made again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Controller(error) => error.retry(),
            Self::Segment(error) => error.retry(),
        }
    }
}

/// What a read of a segment brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// Bytes from the offset asked for; none now, ask again, if it is empty. `end` if nothing follows them.
    Data { data: Bytes, end: bool },
    /// The offset asked for is gone; the first one that is not.
    Truncated { start: i64 },
    /// The segment is gone.
    Missing,
}

/// Makes requests about segments wherever they are; shares a connection to each store.
#[derive(Debug)]
pub(crate) struct SegmentClient {
    controller: Controller,
    config: ClientConfig,
    connections: Mutex<HashMap<String, RawConnection>>,
}

impl SegmentClient {
    pub(crate) fn new(controller: Controller, config: ClientConfig) -> Self {
        Self { controller, config, connections: Mutex::new(HashMap::new()) }
    }

    /// Asks where `segment` stands; `None` if there is none.
    ///
    /// # Errors
    /// [`RequestError`] once the client's patience is over.
    /// # Cancel safety
    /// Changes nothing.
    pub(crate) async fn state(&self, segment: &SegmentName) -> Result<Option<SegmentState>, RequestError> {
        let name = segment.to_string();
        let (request_id, delegation_token) = (0, String::new());
        let request = command::GetStreamSegmentInfo { request_id, segment: name, delegation_token };
        match self.call(segment, request.into()).await? {
            Command::StreamSegmentInfo(info) => Ok(Some(SegmentState {
                start: info.start_offset,
                length: info.write_offset,
                sealed: info.is_sealed,
            })),
            Command::NoSuchSegment(_) => Ok(None),
            other => Err(refusal(other).into()),
        }
    }

    async fn call(&self, segment: &SegmentName, request: Command) -> Result<Command, RequestError> {
        let mut patience = Patience::new(&self.config);
        loop {
            let reply = self.attempt(segment, request.clone()).await;
            let error = match reply {
                Ok(Command::WrongHost(reply)) => SegmentError::Moved { segment: reply.segment },
                Ok(reply) => return Ok(reply),
                Err(RequestError::Segment(error)) => error,
                Err(other) => return Err(other),
            };
            patience.after(error).await?;
        }
    }

    async fn attempt(&self, segment: &SegmentName, request: Command) -> Result<Command, RequestError> {
        let connection = self.shared(&self.controller.locate(segment).await?).await?;
        let limit = self.config.request_timeout;
        let slow = |_elapsed| SegmentError::Slow { what: format!("segment {segment}"), limit };
        let reply = tokio::time::timeout(limit, connection.call(request)).await.map_err(slow)?;
        let unanswered = |source| SegmentError::Call { segment: segment.to_string(), source };
        Ok(reply.map_err(unanswered)?)
    }

    async fn shared(&self, address: &str) -> Result<RawConnection, SegmentError> {
        let known = self.connections.lock().get(address).cloned();
        if let Some(connection) = known.filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        let config = ConnectionConfig {
            connect_timeout: self.config.connect_timeout,
            outstanding_max: OUTSTANDING_MAX,
            ..ConnectionConfig::default()
        };
        let connected = RawConnection::connect(address, config).await;
        let connection =
            connected.map_err(|source| SegmentError::Connect { address: address.to_owned(), source })?;
        self.connections.lock().insert(address.to_owned(), connection.clone());
        Ok(connection)
    }

    /// What requests wait for, and how long.
    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The connection to the store of `segment`.
    ///
    /// # Errors
    /// [`RequestError`] once the client's patience is over.
    /// # Cancel safety
    /// Changes nothing.
    pub(crate) async fn connection(&self, segment: &SegmentName) -> Result<RawConnection, RequestError> {
        let mut patience = Patience::new(&self.config);
        loop {
            let address = self.controller.locate(segment).await?;
            match self.shared(&address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => patience.after(error).await?,
            }
        }
    }
}

/// Reads at most `bytes_max` bytes of `segment` from `offset` on; waits at the tail.
///
/// # Errors
/// [`SegmentError`]; the read may be made again on another connection unless that says [`Retry::Never`].
/// # Cancel safety
/// Changes nothing.
pub(crate) async fn read(
    connection: &RawConnection,
    segment: &SegmentName,
    offset: i64,
    bytes_max: usize,
) -> Result<Slice, SegmentError> {
    let request = command::ReadSegment {
        segment: segment.to_string(),
        offset,
        suggested_length: i32::try_from(bytes_max).unwrap_or(i32::MAX),
        delegation_token: String::new(),
        request_id: 0,
    };
    let unanswered = |source| SegmentError::Call { segment: segment.to_string(), source };
    match connection.call(request).await.map_err(unanswered)? {
        Command::SegmentRead(read) if read.offset == offset => {
            Ok(Slice::Data { data: read.data.0, end: read.end_of_segment })
        }
        Command::SegmentIsSealed(_) => Ok(Slice::Data { data: Bytes::new(), end: true }),
        Command::SegmentIsTruncated(reply) => Ok(Slice::Truncated { start: reply.start_offset }),
        Command::NoSuchSegment(_) => Ok(Slice::Missing),
        other => Err(refusal(other)),
    }
}

/// Pauses between attempts, until they have lasted too long.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    config: &'a ClientConfig,
    since: Instant,
    failed: u32,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(config: &'a ClientConfig) -> Self {
        Self { config, since: Instant::now(), failed: 0 }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `error` itself, if another attempt would be in vain or too late.
    /// # Cancel safety
    /// Dropped early: the failure is not counted.
    pub(crate) async fn after(&mut self, error: SegmentError) -> Result<(), SegmentError> {
        let policy = &self.config.retry;
        if error.retry() == Retry::Never || self.since.elapsed() >= policy.give_up_after {
            return Err(error);
        }
        self.failed += 1;
        debug!(%error, self.failed, "request is made again");
        tokio::time::sleep(policy.pause(self.failed)).await;
        Ok(())
    }
}
