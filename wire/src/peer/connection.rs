//! A client's connection, on which many requests may be under way at once.
//!
//! One task owns the socket and gives each reply to the caller whose request it answers. The connection never tries
//! again and never connects again: it tells its callers whether they may.

use super::{FrameReader, FrameWriter, ReadError, ReaderConfig, WriteError};
use crate::codec::DecodeError;
use crate::command::{Command, Hello, KeepAlive};
use crate::limits::{OLDEST_WIRE_VERSION, REPLY_PAYLOAD_BYTES_MAX, WIRE_VERSION};
use dhara_stdx::retry::Retry;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Requests are taken as long as fewer bytes wait for the socket.
const QUEUED_BYTES_MAX: usize = 1024 * 1024;
/// Memory of large replies that a connection keeps to use it again: some readers' replies of a megabyte each.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How a [`RawConnection`] behaves.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// How long connecting and the handshake may take together. 1 to 60 s.
    pub connect_timeout: Duration,
    /// After how much silence of the peer a sign of life is sent and asked for; `None` for never. 10 to 60 s.
    pub keep_alive: Option<Duration>,
    /// After how much silence the peer is taken for dead, if `keep_alive` is on. More than `keep_alive`.
    pub silence_max: Duration,
    /// Requests under way at once; further callers wait. At least 1.
    pub outstanding_max: usize,
}

impl Default for ConnectionConfig {
    /// 10 s to connect, a sign of life after 20 s, dead after 180 s, 1,024 requests under way.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(20)),
            silence_max: Duration::from_mins(3),
            outstanding_max: 1024,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address could not be resolved or did not answer.
    #[error("connecting to {addr}")]
    Io {
        /// The address.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// The handshake could not be read.
    #[error("reading the peer's hello")]
    Read(#[from] ReadError),
    /// The handshake could not be sent.
    #[error("sending hello")]
    Write(#[from] WriteError),
    /// The peer's first frame is no Hello, or it sent none.
    #[error("peer did not say hello")]
    NoHello,
    /// The peer speaks no version that this client speaks.
    #[error("peer speaks versions {low} to {high}")]
    Version {
        /// The peer's newest version.
        high: i32,
        /// The peer's oldest version.
        low: i32,
    },
    /// Connecting and handshake took too long.
    #[error("no handshake within {limit:?}")]
    Slow {
        /// The time they had.
        limit: Duration,
    },
}

impl ConnectError {
    /// Nothing was asked yet, so connecting may be tried again unless the versions do not fit.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Version { .. } => Retry::Never,
            _ => Retry::Safe,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseCause {
    /// The peer closed it.
    #[error("peer closed the connection")]
    Peer,
    /// Reading gave an error.
    #[error("connection could not be read")]
    Read(#[source] Arc<ReadError>),
    /// Writing gave an error.
    #[error("connection could not be written")]
    Write(#[source] Arc<WriteError>),
    /// The peer sent what is no command.
    #[error("peer sent an undecodable frame")]
    Undecodable(#[source] DecodeError),
    /// The peer gave no sign of life.
    #[error("peer fell silent")]
    Silent,
    /// Its task was stopped from outside.
    #[error("connection was dropped")]
    Dropped,
}

/// Why a request has no reply.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection ended before the request was sent; the peer has not seen it.
    #[error("connection ended before the request was sent")]
    Unsent {
        /// Why it ended.
        #[source]
        cause: CloseCause,
    },
    /// The connection ended before the reply came; the peer may have done what was asked.
    #[error("connection ended before the reply")]
    Unanswered {
        /// Why it ended.
        #[source]
        cause: CloseCause,
    },
    /// The command has no request id, so no reply could be told for its own.
    #[error("command {name} has no request id")]
    NoRequestId {
        /// The command's name.
        name: &'static str,
    },
}

impl CallError {
    /// Whether the request may be sent again on another connection.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unsent { .. } => Retry::Safe,
            Self::Unanswered { .. } => Retry::Unknown,
            Self::NoRequestId { .. } => Retry::Never,
        }
    }
}

type Answer = Result<Command, CallError>;

struct Request {
    command: Command,
    answer: oneshot::Sender<Answer>,
}

/// A connection to a segment store. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub struct RawConnection {
    requests: mpsc::Sender<Request>,
    version: i32,
    /// A caller that waited for a reply has gone.
    gone: Arc<Notify>,
}

/// Tells the connection's task when its caller goes.
struct Caller<'a>(&'a Notify);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl RawConnection {
    /// Connects to `addr`, `host:port`, says hello, and spawns the task that serves the connection until it closes.
    ///
    /// # Errors
    /// [`ConnectError`].
    /// # Cancel safety
    /// Dropped early: no connection is left.
    pub async fn connect(addr: &str, config: ConnectionConfig) -> Result<Self, ConnectError> {
        let limit = config.connect_timeout;
        let connected = async {
            let socket = dhara_stdx::net::connect(addr).await;
            let socket = socket.map_err(|source| ConnectError::Io { addr: addr.to_owned(), source })?;
            Self::over(socket, config).await
        };
        let (connection, serve) =
            timeout(limit, connected).await.map_err(|_elapsed| ConnectError::Slow { limit })??;
        // Not a stray: it ends with the last handle or with the connection, whichever is first.
        drop(tokio::spawn(serve));
        Ok(connection)
    }

    /// Says hello over a socket that is connected already. The future returned beside the connection serves it and
    /// must be polled until it ends.
    ///
    /// # Errors
    /// [`ConnectError`], but no time-out.
    /// # Cancel safety
    /// Dropped early: the socket is closed.
    pub async fn over<S>(
        socket: S,
        config: ConnectionConfig,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<S>), ConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (source, sink) = tokio::io::split(socket);
        let reader_config = ReaderConfig {
            payload_bytes_max: REPLY_PAYLOAD_BYTES_MAX,
            spare_bytes_max: SPARE_BYTES_MAX,
            ..ReaderConfig::default()
        };
        let mut reader = FrameReader::new(source, reader_config);
        let mut writer = FrameWriter::new(sink);
        let version = greet(&mut reader, &mut writer).await?;
        let (requests, queue) = mpsc::channel(config.outstanding_max);
        let gone = Arc::new(Notify::new());
        let service = Service {
            reader,
            writer,
            queue,
            gone: Arc::clone(&gone),
            outstanding: BTreeMap::new(),
            next_id: 1,
            heard: Instant::now(),
            asked: Instant::now(),
            config,
        };
        Ok((Self { requests, version, gone }, service.run()))
    }

    /// The newest wire version that both sides speak.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Whether the connection has ended, so that every call would be in vain.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Sends `command` under a request id of the connection's own and returns the reply, whatever it says.
    ///
    /// Replies may come in another order than requests. There is no time limit: a read at the tail waits.
    ///
    /// # Errors
    /// [`CallError`] if the connection ended.
    /// # Cancel safety
    /// Dropped early: the request may or may not have been sent; its reply is dropped, and another call takes its place.
    pub async fn call(&self, command: impl Into<Command>) -> Result<Command, CallError> {
        let command = command.into();
        if command.request_id().is_none() {
            return Err(CallError::NoRequestId { name: command.name() });
        }
        let (answer, reply) = oneshot::channel();
        let unsent = |_request| CallError::Unsent { cause: CloseCause::Dropped };
        self.requests.send(Request { command, answer }).await.map_err(unsent)?;
        let _caller = Caller(&self.gone);
        reply.await.unwrap_or(Err(CallError::Unanswered { cause: CloseCause::Dropped }))
    }
}

/// Exchanges hellos; returns the version in force.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    reader: &mut FrameReader<ReadHalf<S>>,
    writer: &mut FrameWriter<WriteHalf<S>>,
) -> Result<i32, ConnectError> {
    writer.push(&Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }.into());
    writer.flush().await?;
    let frame = reader.next().await?.ok_or(ConnectError::NoHello)?;
    let Ok(Command::Hello(Hello { high_version: high, low_version: low })) = frame.command() else {
        return Err(ConnectError::NoHello);
    };
    if low > WIRE_VERSION || high < OLDEST_WIRE_VERSION {
        return Err(ConnectError::Version { high, low });
    }
    Ok(high.min(WIRE_VERSION))
}

struct Service<S> {
    reader: FrameReader<ReadHalf<S>>,
    writer: FrameWriter<WriteHalf<S>>,
    queue: mpsc::Receiver<Request>,
    gone: Arc<Notify>,
    outstanding: BTreeMap<i64, oneshot::Sender<Answer>>,
    next_id: i64,
    /// When the peer last sent a frame.
    heard: Instant,
    /// When a sign of life was last asked for.
    asked: Instant,
    config: ConnectionConfig,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Service<S> {
    async fn run(mut self) {
        let Err(cause) = self.serve().await else { return };
        self.queue.close();
        while let Ok(request) = self.queue.try_recv() {
            // A caller that has gone needs no answer.
            drop(request.answer.send(Err(CallError::Unsent { cause: cause.clone() })));
        }
        for answer in std::mem::take(&mut self.outstanding).into_values() {
            drop(answer.send(Err(CallError::Unanswered { cause: cause.clone() })));
        }
    }

    /// Serves until the last handle is dropped, which is no error, or the connection ends.
    async fn serve(&mut self) -> Result<(), CloseCause> {
        loop {
            if self.is_crowded() {
                self.outstanding.retain(|_id, answer| !answer.is_closed());
            }
            let (crowded, has_room) = (self.is_crowded(), self.has_room());
            let next_tick = self.next_tick();
            // Replies first: the peer sends no more of them than were asked for, so requests get their turn. Writing
            // ends as soon as the socket is full or the queue empty.
            tokio::select! {
                biased;
                frame = self.reader.next() => {
                    let frame = frame.map_err(|error| CloseCause::Read(Arc::new(error)))?.ok_or(CloseCause::Peer)?;
                    self.heard = Instant::now();
                    self.answer(frame.command().map_err(CloseCause::Undecodable)?);
                }
                written = self.writer.flush(), if self.writer.queued_bytes() > 0 => {
                    written.map_err(|error| CloseCause::Write(Arc::new(error)))?;
                }
                request = self.queue.recv(), if has_room => match request {
                    Some(request) => self.admit(request),
                    None => return Ok(()),
                },
                () = self.gone.notified(), if crowded => {}
                () = sleep_until(next_tick), if self.config.keep_alive.is_some() => self.tick()?,
            }
        }
    }

    fn is_crowded(&self) -> bool {
        self.outstanding.len() >= self.config.outstanding_max
    }

    fn has_room(&self) -> bool {
        !self.is_crowded() && self.writer.queued_bytes() < QUEUED_BYTES_MAX
    }

    /// Queues a request, and with it all that wait, so that they leave together.
    fn admit(&mut self, request: Request) {
        let mut next = Some(request);
        while let Some(Request { mut command, answer }) = next {
            let id = self.next_id;
            self.next_id += 1;
            command.set_request_id(id);
            self.writer.push(&command);
            self.outstanding.insert(id, answer);
            next = if self.has_room() { self.queue.try_recv().ok() } else { None };
        }
    }

    /// Gives a reply to its caller. Signs of life and replies that nobody waits for are dropped.
    fn answer(&mut self, reply: Command) {
        if let Some(answer) = reply.request_id().and_then(|id| self.outstanding.remove(&id)) {
            drop(answer.send(Ok(reply)));
        }
    }

    fn next_tick(&self) -> Instant {
        let quiet = self.config.keep_alive.unwrap_or(self.config.silence_max);
        (self.heard.max(self.asked) + quiet).min(self.heard + self.config.silence_max)
    }

    fn tick(&mut self) -> Result<(), CloseCause> {
        let now = Instant::now();
        if now >= self.heard + self.config.silence_max {
            return Err(CloseCause::Silent);
        }
        self.asked = now;
        self.writer.push(&KeepAlive {}.into());
        Ok(())
    }
}
