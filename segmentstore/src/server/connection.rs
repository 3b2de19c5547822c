//! One connection: a task that reads and dispatches, one that writes.

use super::Shared;
use super::append::Writers;
use super::outbox::{Outbox, Taken};
use crate::container::ContainerHandle;
use crate::operation::{ConnectionId, Operation};
use bytes::{Buf, Bytes};
use dhara_stdx::budget::ByteBudget;
use dhara_stdx::sched::give_way;
use dhara_wire::command::{Command, Direction};
use dhara_wire::peer::{Frame, FrameReader, ReaderConfig};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

/// The first frame must have come by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// A write that makes no progress for this long ends the connection.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a server that stops waits for a peer to take the replies that it is owed.
const LAST_REPLIES: Duration = Duration::from_secs(2);
/// Table reads that one connection may have under way.
const TABLE_READS_MAX: usize = 64;
/// Bytes that one connection may be having read from objects at one time; further reads wait, so that what one client
/// asks for does not stand in line before everybody's.
const COLD_READ_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Reads that one connection may have waiting at tails.
const PARKED_READS_MAX: usize = 65_536;
/// Bytes handed to one write: while the kernel copies megabytes for one connection, the others on this thread wait, and some
/// kernels let no other thread have the processor meanwhile.
const WRITE_BYTES_MAX: usize = 128 * 1024;
/// Slices handed to one vectored write.
const WRITE_SLICES_MAX: usize = 64;

/// The connection must end; replies that are due still leave.
#[derive(Debug)]
pub(super) struct Close(pub(super) &'static str);

pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) shared: Arc<Shared>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) writers: Writers,
    /// Containers that hold a session or a transient segment of this connection, by the address of their state.
    pub(super) visited: BTreeMap<usize, ContainerHandle>,
    /// Reads under way; dropped with the connection.
    pub(super) reads: JoinSet<()>,
    pub(super) table_reads: Arc<Semaphore>,
    pub(super) cold_reads: ByteBudget,
}

impl Connection {
    /// Serves a connection to its end.
    pub(super) async fn serve(stream: TcpStream, id: ConnectionId, shared: Arc<Shared>) {
        let (read_half, write_half) = stream.into_split();
        let outbox = Arc::new(Outbox::default());
        let stop = shared.stop.clone();
        let frames = FrameReader::new(
            read_half,
            ReaderConfig { budget: Some(shared.frames.clone()), ..ReaderConfig::default() },
        );
        let mut connection = Self {
            id,
            shared,
            outbox: Arc::clone(&outbox),
            writers: Writers::new(Arc::clone(&outbox)),
            visited: BTreeMap::new(),
            reads: JoinSet::new(),
            table_reads: Arc::new(Semaphore::new(TABLE_READS_MAX)),
            cold_reads: ByteBudget::new(COLD_READ_BYTES_MAX),
        };
        let storage = connection.shared.storage.clone();
        let writing = write_all(write_half, &outbox, &storage);
        let reading = async {
            tokio::select! { biased;
                // Final; reading cannot starve behind it.
                () = stop.cancelled() => {}
                close = connection.read_all(frames) => debug!(connection = id.0, why = close.0, "connection ends"),
            }
            outbox.close();
            connection.leave(&stop).await;
        };
        let served = futures_util::future::join(
            async {
                let written = writing.await;
                // Whoever cannot be written to is not read from any more.
                outbox.close();
                written
            },
            reading,
        );
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_REPLIES).await;
        };
        tokio::select! { biased;
            (written, ()) = served => if let Err(error) = written {
                debug!(connection = id.0, %error, "write");
            },
            () = late => debug!(connection = id.0, "the peer takes its last replies too slowly"),
        }
    }

    async fn read_all(&mut self, mut frames: FrameReader<tokio::net::tcp::OwnedReadHalf>) -> Close {
        let mut greeted = false;
        loop {
            self.outbox.room().await;
            if self.outbox.is_closing() {
                return Close("the outbox closed");
            }
            let next = async {
                if greeted {
                    frames.next().await
                } else {
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, frames.next()).await {
                        Ok(next) => next,
                        Err(_elapsed) => Ok(None),
                    }
                }
            };
            let outbox = Arc::clone(&self.outbox);
            let next = tokio::select! { biased;
                next = next => next,
                // A container that refuses an append closes the outbox; the next frame may never come.
                () = outbox.closed() => return Close("a reply closed the connection"),
            };
            let frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => return Close("the peer left"),
                Err(error) => {
                    debug!(connection = self.id.0, %error, "read");
                    return Close("frames cannot be read");
                }
            };
            greeted = true;
            let taken = tokio::select! { biased;
                // A container that takes nothing at the moment does not keep a connection that has ended.
                () = outbox.closed() => return Close("a reply closed the connection"),
                taken = self.take_frame(frame) => taken,
            };
            if let Err(close) = taken {
                return close;
            }
            while self.reads.try_join_next().is_some() {}
            if self.reads.len() > PARKED_READS_MAX {
                return Close("too many waiting reads");
            }
        }
    }

    async fn take_frame(&mut self, frame: Frame) -> Result<(), Close> {
        let Frame { code, payload, permit } = frame;
        let command = match Command::decode(code, payload) {
            Ok(command) => command,
            Err(error) => {
                debug!(connection = self.id.0, %error, "decode");
                return Err(Close("a frame is malformed"));
            }
        };
        if let Err(error) = self.writers.blocks.check(&command) {
            debug!(connection = self.id.0, %error, "append block");
            return Err(Close("a command inside a block"));
        }
        match command.direction() {
            Direction::Client | Direction::Both | Direction::Admin | Direction::Private => {
                self.dispatch(command, permit).await
            }
            // Filler at top level is skipped; anything else that a client may not send ends the connection.
            Direction::Inner if matches!(command, Command::Padding(_)) => Ok(()),
            _ => Err(Close("a client may not send this")),
        }
    }

    /// Remembers a container that must hear of the connection's end.
    pub(super) fn visit(&mut self, container: &ContainerHandle) {
        let key = std::ptr::from_ref(container.views()) as usize;
        self.visited.entry(key).or_insert_with(|| container.clone());
    }

    async fn leave(&mut self, stop: &CancellationToken) {
        self.reads.abort_all();
        if stop.is_cancelled() {
            // Every container stops next, and with it its epoch ends all sessions and transient segments. One that takes
            // nothing at the moment must not keep the others from stopping.
            return;
        }
        for container in std::mem::take(&mut self.visited).into_values() {
            // A container that has ended forgot the connection with everything else.
            let _ended = container.send(Operation::Disconnected(self.id)).await;
        }
    }
}

/// Writes whatever the outbox holds until it is closed and empty. What was read from long-term storage is written by the
/// threads of `storage`: to copy it into a socket takes as long as to read it, and acknowledgements would wait meanwhile.
async fn write_all<S>(mut stream: S, outbox: &Outbox, storage: &Handle) -> io::Result<()>
where
    S: AsyncWrite + Unpin + Send + 'static,
{
    while let Some(Taken { chunks, cold }) = outbox.take().await {
        if cold {
            let write = async move { write_chunks(&mut stream, chunks, give_way).await.map(|()| stream) };
            stream = AbortOnDropHandle::new(storage.spawn(write)).await.map_err(io::Error::other)??;
        } else {
            write_chunks(&mut stream, chunks, || {}).await?;
        }
    }
    stream.shutdown().await
}

/// The beginning of `chunks` for one write, and how many bytes that is.
fn slices(chunks: &[Bytes]) -> (Vec<IoSlice<'_>>, usize) {
    let (mut slices, mut bytes) = (Vec::new(), 0);
    for chunk in chunks.iter().take(WRITE_SLICES_MAX) {
        let part = chunk.len().min(WRITE_BYTES_MAX - bytes);
        slices.push(IoSlice::new(&chunk[..part]));
        bytes += part;
        if bytes == WRITE_BYTES_MAX {
            break;
        }
    }
    (slices, bytes)
}

/// Writes `chunks` whole; calls `between` after each write of much.
async fn write_chunks(
    stream: &mut (impl AsyncWrite + Unpin),
    mut chunks: Vec<Bytes>,
    between: fn(),
) -> io::Result<()> {
    let mut first = 0;
    while first < chunks.len() {
        let (slices, bytes) = slices(&chunks[first..]);
        let write = tokio::time::timeout(WRITE_TIMEOUT, stream.write_vectored(&slices));
        let mut written = write.await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(chunk) = chunks.get_mut(first) {
            if written < chunk.len() {
                chunk.advance(written);
                break;
            }
            written -= chunk.len();
            first += 1;
        }
        if bytes == WRITE_BYTES_MAX {
            between();
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
