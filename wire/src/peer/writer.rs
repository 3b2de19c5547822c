//! Writing frames to a socket, many in one system call.

use super::PROGRESS_TIMEOUT;
use crate::codec::Blob;
use crate::command::{AppendBlockEnd, Command, ConditionalBlockEnd, SegmentRead};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// Buffers handed to one vectored write.
const SLICES_MAX: usize = 64;
/// Data below this is copied next to its frame's other fields.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// Why no further frame can be written. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The socket gave an error.
    #[error("writing to the peer")]
    Io(#[from] io::Error),
    /// The peer did not take what was sent in time.
    #[error("peer did not take a frame within {limit:?}")]
    Slow {
        /// The time it had.
        limit: Duration,
    },
}

/// Queues frames for a peer and writes them in as few system calls as they need.
///
/// The queue has no limit of its own: whoever pushes looks at [`FrameWriter::queued_bytes`] first.
#[derive(Debug)]
pub struct FrameWriter<W> {
    sink: W,
    progress_timeout: Duration,
    /// Frames that are still being joined.
    open: BytesMut,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    /// When the first buffer of the queue must have left.
    deadline: Option<Instant>,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes to `sink`; a buffer begun must leave within [`PROGRESS_TIMEOUT`].
    pub fn new(sink: W) -> Self {
        Self {
            sink,
            progress_timeout: PROGRESS_TIMEOUT,
            open: BytesMut::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            deadline: None,
        }
    }

    /// Queues a command. Large data of reads and appends is queued as it is, without a copy.
    pub fn push(&mut self, command: &Command) {
        match command {
            Command::SegmentRead(read) if read.data.0.len() > COPIED_BYTES_MAX => self.push_read(read),
            Command::AppendBlockEnd(end) if end.data.0.len() > COPIED_BYTES_MAX => self.push_block_end(end),
            Command::ConditionalBlockEnd(end) if end.data.0.len() > COPIED_BYTES_MAX => {
                self.push_conditional(end);
            }
            _ => {
                let before = self.open.len();
                command.encode(&mut self.open);
                self.queued_bytes += self.open.len() - before;
            }
        }
    }

    /// Queues frames that are encoded already.
    pub fn push_bytes(&mut self, frames: Bytes) {
        if frames.len() <= COPIED_BYTES_MAX {
            self.queued_bytes += frames.len();
            self.open.extend_from_slice(&frames);
        } else {
            self.seal_open();
            self.queued_bytes += frames.len();
            self.queue.push_back(frames);
        }
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Writes everything that is queued.
    ///
    /// # Errors
    /// [`WriteError`]; after one, the connection must be closed.
    /// # Cancel safety
    /// Dropped early: what has not left stays queued, and the next call goes on at the very byte.
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        self.seal_open();
        while !self.queue.is_empty() {
            let limit = self.progress_timeout;
            let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + limit);
            let written = timeout_at(deadline, self.write_once())
                .await
                .map_err(|_elapsed| WriteError::Slow { limit })??;
            self.retire(written);
        }
        Ok(())
    }

    /// Closes the sending side after what was flushed.
    ///
    /// # Errors
    /// [`WriteError::Io`] as the socket reports it.
    /// # Cancel safety
    /// Dropped early: the side may or may not be closed; calling again is harmless.
    pub async fn shutdown(&mut self) -> Result<(), WriteError> {
        Ok(self.sink.shutdown().await?)
    }

    async fn write_once(&mut self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let written = self.sink.write_vectored(&slices[..count]).await?;
        if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
    }

    /// Drops the first `written` bytes of the queue.
    fn retire(&mut self, mut written: usize) {
        self.queued_bytes -= written;
        while let Some(first) = self.queue.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.queue.pop_front();
            self.deadline = None;
        }
    }

    fn seal_open(&mut self) {
        if !self.open.is_empty() {
            self.queue.push_back(self.open.split().freeze());
        }
    }

    fn push_read(&mut self, read: &SegmentRead) {
        let empty = SegmentRead { data: Blob::default(), ..read.clone() };
        self.push_split(&empty.into(), 8, &read.data.0);
    }

    fn push_block_end(&mut self, end: &AppendBlockEnd) {
        let empty = AppendBlockEnd { data: Blob::default(), ..end.clone() };
        self.push_split(&empty.into(), 4 + 8 + 8, &end.data.0);
    }

    fn push_conditional(&mut self, end: &ConditionalBlockEnd) {
        let empty = ConditionalBlockEnd { data: Blob::default(), ..end.clone() };
        self.push_split(&empty.into(), 8, &end.data.0);
    }

    /// Queues `command`, whose blob is empty and followed by `tail_bytes`, as if it held `data`.
    fn push_split(&mut self, command: &Command, tail_bytes: usize, data: &Bytes) {
        let start = self.open.len();
        command.encode(&mut self.open);
        let tail = self.open.split_off(self.open.len() - tail_bytes);
        let blob_length = self.open.len() - 4;
        add_length(&mut self.open[start + 4..start + 8], data.len());
        add_length(&mut self.open[blob_length..], data.len());
        self.queued_bytes += self.open.len() - start + data.len() + tail.len();
        self.seal_open();
        self.queue.push_back(data.clone());
        self.open = tail;
    }
}

/// Adds `bytes` to the length that stands in `at`.
fn add_length(at: &mut [u8], bytes: usize) {
    let length = (&*at).get_u32().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    assert!(i32::try_from(length).is_ok(), "frame of {length} bytes");
    at.copy_from_slice(&length.to_be_bytes());
}
