//! Reading frames from a socket.
//!
//! Small frames are slices of one read buffer, so that many come out of one system call. A large one gets a buffer of
//! its own, exactly as long as it is, so that its payload is never copied and holds no other frame in memory.

use super::PROGRESS_TIMEOUT;
use super::spares::Spares;
use crate::codec::DecodeError;
use crate::command::{AppendBlock, AppendBlockEnd, Command, FRAME_HEADER_BYTES};
use crate::frame::{FrameError, FrameHeader};
use crate::limits::PAYLOAD_BYTES_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use dhara_stdx::budget::{ByteBudget, BytePermit};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// Payloads above this get a buffer of their own and a permit.
const SMALL_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// What a connection that waits for its next frame holds at most.
const IDLE_BUFFER_BYTES: usize = 8 * 1024;
/// The most that one system call reads into the shared buffer.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// The most of a large payload that one system call reads. Some kernels let no other thread have the processor before a
/// system call ends, however urgent, and a megabyte into fresh memory takes one to two milliseconds.
const LARGE_READ_BYTES_MAX: usize = 128 * 1024;
/// Bytes per second that a peer must manage, if it sends a large frame.
const LARGE_RATE_MIN: usize = 64 * 1024;

/// How a [`FrameReader`] reads.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// Largest payload accepted, bytes. A server's limit is [`PAYLOAD_BYTES_MAX`], a client's
    /// [`crate::limits::REPLY_PAYLOAD_BYTES_MAX`].
    pub payload_bytes_max: usize,
    /// How long a frame may take from its first byte, or from its permit, to its last, besides a second for each 64 KiB of a
    /// payload above 64 KiB; and how long the end of an append block may be in coming.
    pub progress_timeout: Duration,
    /// What payloads above 64 KiB are taken out of before they are read; `None` for no limit.
    pub budget: Option<ByteBudget>,
    /// How much memory of payloads above 64 KiB is kept to be used again, bytes.
    pub spare_bytes_max: usize,
}

impl Default for ReaderConfig {
    /// A server's limits, without a budget; a connection keeps no memory between frames.
    fn default() -> Self {
        Self {
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            progress_timeout: PROGRESS_TIMEOUT,
            budget: None,
            spare_bytes_max: 0,
        }
    }
}

/// Why no further frame can be read. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A header is illegal.
    #[error("reading a frame header")]
    Header(#[from] FrameError),
    /// The socket gave an error.
    #[error("reading from the peer")]
    Io(#[from] io::Error),
    /// The peer closed the connection inside a frame.
    #[error("connection ended inside a frame")]
    Cut,
    /// A frame did not end in time.
    #[error("frame did not end within {limit:?}")]
    Slow {
        /// The time it had.
        limit: Duration,
    },
}

/// A frame as it came.
#[derive(Debug)]
pub struct Frame {
    /// Type code of the command.
    pub code: i32,
    /// The payload.
    pub payload: Bytes,
    /// What the payload takes from the budget; to be kept as long as the payload is.
    pub permit: Option<BytePermit>,
}

impl Frame {
    /// Decodes the command; its blobs are slices of the payload.
    ///
    /// # Errors
    /// As [`Command::decode`].
    pub fn command(&self) -> Result<Command, DecodeError> {
        Command::decode(self.code, self.payload.clone())
    }
}

/// A frame too large for the shared buffer, on its way.
struct Large {
    code: i32,
    body: BytesMut,
    missing_bytes: usize,
    permit: Option<BytePermit>,
}

type Acquire = Pin<Box<dyn Future<Output = BytePermit> + Send>>;

/// Cuts what a peer sends into frames.
pub struct FrameReader<R> {
    source: R,
    config: ReaderConfig,
    buffer: BytesMut,
    /// What the next read into the shared buffer asks for; follows what reads yield.
    chunk_bytes: usize,
    /// Whether the last read left nothing in the socket.
    drained: bool,
    large: Option<Large>,
    spares: Spares,
    /// Kept here so that a dropped [`FrameReader::next`] does not lose its place in line.
    acquire: Option<Acquire>,
    /// When the frame begun must have ended.
    deadline: Option<Instant>,
    /// When the end of the large [`AppendBlock`] that is open must have begun; it must not wait for a permit.
    block: Option<Instant>,
}

impl<R> std::fmt::Debug for FrameReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameReader").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames from `source`.
    pub fn new(source: R, config: ReaderConfig) -> Self {
        Self {
            source,
            spares: Spares::new(config.spare_bytes_max),
            config,
            buffer: BytesMut::new(),
            chunk_bytes: IDLE_BUFFER_BYTES,
            drained: true,
            large: None,
            acquire: None,
            deadline: None,
            block: None,
        }
    }

    /// Reads the next frame; `None` if the peer closed the connection between two frames.
    ///
    /// There is no limit to how long the first byte of a frame may take.
    ///
    /// # Errors
    /// [`ReadError`]; after one, the connection must be closed.
    /// # Cancel safety
    /// Dropped early: nothing is lost, the next call goes on where this one was.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            let ready = self.try_next()?;
            if ready.is_some() {
                return Ok(ready);
            }
            if self.large.is_none()
                && let Some(header) = self.header()?
                && header.payload_bytes > SMALL_PAYLOAD_BYTES_MAX
            {
                let permit = self.permit(header).await;
                self.begin_large(header, permit);
                continue;
            }
            if !self.fill().await? {
                let between_frames = self.large.is_none() && self.buffer.is_empty();
                return if between_frames { Ok(None) } else { Err(ReadError::Cut) };
            }
        }
    }

    /// Takes a frame that is there already, without reading from the socket.
    ///
    /// # Errors
    /// [`ReadError::Header`]; after it, the connection must be closed.
    pub fn try_next(&mut self) -> Result<Option<Frame>, ReadError> {
        if let Some(large) = self.large.take_if(|large| large.missing_bytes == 0) {
            let payload = self.spares.lend(large.body);
            return Ok(Some(self.finish(large.code, payload, large.permit)));
        }
        if self.large.is_some() {
            return Ok(None);
        }
        let Some(header) = self.header()? else { return Ok(None) };
        if header.payload_bytes > SMALL_PAYLOAD_BYTES_MAX || self.buffer.len() < header.frame_bytes() {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEADER_BYTES);
        let payload = self.buffer.split_to(header.payload_bytes).freeze();
        Ok(Some(self.finish(header.code, payload, None)))
    }

    /// The socket. Whoever reads from it loses frames.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    fn header(&self) -> Result<Option<FrameHeader>, FrameError> {
        FrameHeader::peek_up_to(&self.buffer, self.config.payload_bytes_max)
    }

    fn finish(&mut self, code: i32, payload: Bytes, permit: Option<BytePermit>) -> Frame {
        self.deadline = None;
        // Others may come between the two.
        self.block = match code {
            AppendBlock::CODE => permit.as_ref().map(|_held| Instant::now() + self.config.progress_timeout),
            AppendBlockEnd::CODE => None,
            _ => self.block,
        };
        Frame { code, payload, permit }
    }

    /// Waits until the budget has room for the payload of `header`.
    async fn permit(&mut self, header: FrameHeader) -> Option<BytePermit> {
        let budget = self.config.budget.as_ref()?;
        let bytes = u64::try_from(header.payload_bytes).unwrap_or(u64::MAX);
        if self.acquire.is_none() {
            if let Some(permit) = budget.try_acquire(bytes) {
                return Some(permit);
            }
            // A block holds its permit until its end has come: if ends waited too, blocks could hold out each other.
            if self.block.is_some() && header.code == AppendBlockEnd::CODE {
                return None;
            }
            let budget = budget.clone();
            self.acquire = Some(Box::pin(async move { budget.acquire(bytes).await }));
        }
        let permit = self.acquire.as_mut()?.await;
        self.acquire = None;
        Some(permit)
    }

    /// Moves what has come of a large frame to a buffer of its own.
    fn begin_large(&mut self, header: FrameHeader, permit: Option<BytePermit>) {
        self.buffer.advance(FRAME_HEADER_BYTES);
        // Reserved but untouched pages take no memory, so a peer pays for what it sends and not for what it declares.
        let mut body = self.spares.take(header.payload_bytes);
        let here = self.buffer.len().min(header.payload_bytes);
        body.extend_from_slice(&self.buffer.split_to(here));
        self.large =
            Some(Large { code: header.code, body, missing_bytes: header.payload_bytes - here, permit });
        self.deadline = None;
    }

    /// Reads once; `false` at the end of the stream.
    async fn fill(&mut self) -> Result<bool, ReadError> {
        // Between a block and its end nobody is idle: the block holds memory.
        if self.large.is_none() && self.buffer.is_empty() && self.block.is_none() {
            return Ok(self.fill_idle().await? > 0);
        }
        let limit = self.limit();
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + limit);
        let deadline = self.end_of_block_due().map_or(deadline, |due| due.min(deadline));
        let read =
            timeout_at(deadline, self.fill_begun()).await.map_err(|_elapsed| ReadError::Slow { limit })??;
        Ok(read > 0)
    }

    /// How long the frame that has begun may take.
    fn limit(&self) -> Duration {
        let seconds =
            self.large.as_ref().map_or(0, |large| (large.body.len() + large.missing_bytes) / LARGE_RATE_MIN);
        self.config.progress_timeout + Duration::from_secs(seconds as u64)
    }

    /// When the end of an open block must have begun; `None` once it has.
    fn end_of_block_due(&self) -> Option<Instant> {
        let ends = self.large.as_ref().is_some_and(|large| large.code == AppendBlockEnd::CODE);
        self.block.filter(|_due| !ends)
    }

    /// Reads the rest of a frame that has begun.
    async fn fill_begun(&mut self) -> io::Result<usize> {
        if let Some(large) = &mut self.large {
            let room = large.missing_bytes.min(LARGE_READ_BYTES_MAX);
            let read = self.source.read_buf(&mut (&mut large.body).limit(room)).await?;
            large.missing_bytes -= read;
            return Ok(read);
        }
        let frame_bytes = self.header().ok().flatten().map_or(0, FrameHeader::frame_bytes);
        self.buffer.reserve(self.chunk_bytes.max(frame_bytes.saturating_sub(self.buffer.len())));
        self.read_chunk().await
    }

    async fn read_chunk(&mut self) -> io::Result<usize> {
        let room = self.buffer.capacity() - self.buffer.len();
        let read = self.source.read_buf(&mut self.buffer).await?;
        self.learn(read, room);
        Ok(read)
    }

    /// Waits for the first byte of a frame, holding no more than a small buffer meanwhile.
    async fn fill_idle(&mut self) -> io::Result<usize> {
        self.buffer.reserve(if self.drained { IDLE_BUFFER_BYTES } else { self.chunk_bytes });
        poll_fn(|context| {
            let polled = pin!(self.read_chunk()).poll(context);
            if polled.is_pending() && self.buffer.capacity() > IDLE_BUFFER_BYTES {
                self.buffer = BytesMut::with_capacity(IDLE_BUFFER_BYTES);
            }
            polled
        })
        .await
    }

    /// Doubles what is asked for when reads come back full, halves it when they bring little.
    fn learn(&mut self, read: usize, room: usize) {
        self.drained = read < room;
        if !self.drained {
            self.chunk_bytes = (self.chunk_bytes * 2).min(BUFFER_BYTES_MAX);
        } else if read < self.chunk_bytes / 4 {
            self.chunk_bytes = (self.chunk_bytes / 2).max(IDLE_BUFFER_BYTES);
        }
    }
}
