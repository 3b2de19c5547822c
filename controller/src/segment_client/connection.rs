//! One connection to a segment store, shared by many calls: requests are pipelined, replies are found by request id.
//!
//! Two tasks own the socket, one each way. When either meets an error the connection is over and every call that
//! still waits learns that its outcome is unknown; nothing is sent twice from here.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dhara_stdx::net;
use dhara_wire::command::{Command, Hello};
use dhara_wire::frame::take_frame;
use dhara_wire::limits::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Most requests that wait to be written; a further call waits.
const QUEUE_REQUESTS_MAX: usize = 256;
/// Most bytes of requests that wait to be written; a further call waits.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes asked of the socket at a time.
const READ_BYTES: usize = 64 * 1024;

/// Calls that wait for their replies, by request id. `None` once the connection is over.
type Waiting = Mutex<Option<BTreeMap<i64, oneshot::Sender<Command>>>>;

/// A frame that waits to be written, and the share of the byte limit that it holds.
#[derive(Debug)]
struct Request {
    frame: Bytes,
    units: u32,
}

/// Handle of a connection; the connection ends when the last one is dropped.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    queue: mpsc::Sender<Request>,
    queue_bytes: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    _end: Arc<tokio_util::sync::DropGuard>,
}

impl Connection {
    /// Connects and exchanges versions.
    pub(super) async fn open(host: &str) -> io::Result<Self> {
        let (mut reader, mut writer) = net::connect(host).await?.into_split();
        let mut received = BytesMut::with_capacity(READ_BYTES);
        let hello = Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION };
        writer.write_all(&frame(&hello.into())).await?;
        match next_command(&mut reader, &mut received).await? {
            Command::Hello(theirs) if theirs.low_version <= WIRE_VERSION => {}
            other => return Err(io::Error::other(format!("unexpected {} before hello", other.name()))),
        }
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let queue_bytes = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let ended = CancellationToken::new();
        tokio::spawn(write(writer, requests, queue_bytes.clone(), ended.clone()));
        tokio::spawn(read(reader, received, waiting.clone(), ended.clone()));
        Ok(Self { queue, queue_bytes, waiting, _end: Arc::new(ended.drop_guard()) })
    }

    /// Whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_closed() || self.waiting.lock().is_none()
    }

    /// Sends a request, whose id no other request has, and waits for its reply.
    ///
    /// # Errors
    /// The connection is over; the store may have done what was asked.
    pub(super) async fn call(&self, request: &Command) -> io::Result<Command> {
        let id = request.request_id().unwrap_or_default();
        let frame = frame(request);
        let units = u32::try_from(frame.len().min(QUEUE_BYTES_MAX)).unwrap_or(u32::MAX);
        self.queue_bytes.acquire_many(units).await.map_err(|_closed| over())?.forget();
        let slot = self.queue.reserve().await.map_err(|_closed| over())?;
        let (reply, replied) = oneshot::channel();
        match self.waiting.lock().as_mut() {
            Some(waiting) => drop(waiting.insert(id, reply)),
            None => return Err(over()),
        }
        slot.send(Request { frame, units });
        replied.await.map_err(|_dropped| over())
    }
}

fn over() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "connection to the segment store ended")
}

fn frame(command: &Command) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    command.encode(&mut out);
    out.freeze()
}

/// Writes queued requests, as many at a time as are there.
async fn write(
    mut writer: OwnedWriteHalf,
    mut requests: mpsc::Receiver<Request>,
    queue_bytes: Arc<Semaphore>,
    ended: CancellationToken,
) {
    let mut batch = BytesMut::new();
    loop {
        // The end comes first so that a busy queue cannot keep a dead connection.
        let first = tokio::select! {
            biased;
            () = ended.cancelled() => break,
            request = requests.recv() => request,
        };
        let Some(mut next) = first else { break };
        loop {
            batch.extend_from_slice(&next.frame);
            queue_bytes.add_permits(usize::try_from(next.units).unwrap_or_default());
            match requests.try_recv() {
                Ok(request) => next = request,
                Err(_empty) => break,
            }
        }
        if writer.write_all(&batch).await.is_err() {
            break;
        }
        batch.clear();
    }
    ended.cancel();
    queue_bytes.close();
}

/// Hands replies to the calls that wait for them.
async fn read(
    mut reader: OwnedReadHalf,
    mut received: BytesMut,
    waiting: Arc<Waiting>,
    ended: CancellationToken,
) {
    loop {
        // The end comes first so that a busy peer cannot keep a connection that nobody holds.
        let command = tokio::select! {
            biased;
            () = ended.cancelled() => break,
            command = next_command(&mut reader, &mut received) => command,
        };
        let Ok(command) = command else { break };
        let id = command.request_id();
        let caller = id.and_then(|id| waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id)));
        // A caller that has given up needs no answer.
        if let Some(caller) = caller {
            drop(caller.send(command));
        }
    }
    ended.cancel();
    drop(waiting.lock().take());
}

/// Reads up to the next whole command. Bytes behind it stay in `received`, where the next call finds them.
async fn next_command(reader: &mut OwnedReadHalf, received: &mut BytesMut) -> io::Result<Command> {
    loop {
        if let Some((code, payload)) = take_frame(received).map_err(io::Error::other)? {
            return Command::decode(code, payload).map_err(io::Error::other);
        }
        received.reserve(READ_BYTES);
        if reader.read_buf(received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
