//! The bytes of one segment, over reconnects and truncations.

use super::ReadError;
use crate::segment::{self, Patience, SegmentClient, SegmentError, Slice};
use bytes::Bytes;
use dhara_wire::name::SegmentName;
use dhara_wire::peer::RawConnection;
use std::sync::Arc;

/// Bytes asked for at once.
const READ_BYTES: usize = 1024 * 1024;

/// What a segment reader comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentRead {
    /// The next bytes, at least one, which begin at `offset`.
    Data {
        /// Where they begin.
        offset: i64,
        /// The bytes.
        data: Bytes,
    },
    /// Bytes were given up before they were read; reading goes on at `offset`.
    Truncated {
        /// The first offset that is still there.
        offset: i64,
    },
    /// The segment is sealed and read to its end, or is gone.
    End,
}

/// Reads one segment's bytes in order.
#[derive(Debug)]
pub struct SegmentReader {
    segments: Arc<SegmentClient>,
    segment: SegmentName,
    offset: i64,
    ended: bool,
    connection: Option<RawConnection>,
}

impl SegmentReader {
    pub(crate) fn new(segments: Arc<SegmentClient>, segment: SegmentName, offset: i64) -> Self {
        Self { segments, segment, offset, ended: false, connection: None }
    }

    /// The segment that is read.
    pub fn segment(&self) -> &SegmentName {
        &self.segment
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Waits for the next bytes, or the end.
    ///
    /// # Errors
    /// [`ReadError`] once the client's patience is over; the position stays.
    /// # Cancel safety
    /// Dropped early: nothing was read.
    pub async fn next(&mut self) -> Result<SegmentRead, ReadError> {
        let segments = Arc::clone(&self.segments);
        let mut patience = Patience::new(segments.config());
        while !self.ended {
            let connection = self.connected().await?;
            let read = segment::read(&connection, &self.segment, self.offset, READ_BYTES).await;
            match read {
                Ok(Slice::Data { data, end }) => {
                    self.ended = end;
                    if !data.is_empty() {
                        let offset = self.offset;
                        self.offset += i64::try_from(data.len()).unwrap_or(i64::MAX);
                        return Ok(SegmentRead::Data { offset, data });
                    }
                }
                Ok(Slice::Truncated { start }) if start > self.offset => {
                    self.offset = start;
                    return Ok(SegmentRead::Truncated { offset: start });
                }
                Ok(Slice::Truncated { .. }) => return Err(self.error(SegmentError::Unexpected)),
                Ok(Slice::Missing) => self.ended = true,
                Err(error) => {
                    self.connection = None;
                    patience.after(error).await.map_err(|error| self.error(error))?;
                }
            }
        }
        Ok(SegmentRead::End)
    }

    async fn connected(&mut self) -> Result<RawConnection, ReadError> {
        if let Some(connection) = self.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connected = self.segments.connection(&self.segment).await;
        let connection = connected.map_err(|error| ReadError::of(&self.segment, error))?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    fn error(&self, source: SegmentError) -> ReadError {
        ReadError::Segment { segment: self.segment.to_string(), source }
    }
}
