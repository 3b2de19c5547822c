//! A connection that keeps every frame it has received, so that an alternative can be tried again from the same place.
//!
//! A task reads all the time: a server that waits for its replies to be taken must not block what is being sent.

use super::layout::decode;
use super::value::hex;
use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use dhara_wire::command::FRAME_HEADER_BYTES;
use dhara_wire::limits::REPLY_PAYLOAD_BYTES_MAX;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a peer may refuse to read what is sent.
const SEND_TIMEOUT: Duration = Duration::from_mins(1);
/// Events that may wait; far above what a transcript leaves unread.
const EVENTS_MAX: usize = 1 << 16;

/// What can happen on a connection.
#[derive(Clone)]
pub enum Event {
    /// A frame came.
    Frame(i32, Bytes),
    /// The stream cannot be cut into frames.
    Broken(String),
    /// The peer closed the connection.
    Close,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Close => write!(f, "the connection closed"),
            Self::Broken(why) => write!(f, "{why}"),
            Self::Frame(code, payload) => match decode(*code, payload) {
                Ok(reply) => {
                    write!(f, "{} {:?}\n      payload {}", reply.command, reply.fields, hex(payload))
                }
                Err(error) => write!(f, "an undecodable frame ({error:#})\n      payload {}", hex(payload)),
            },
        }
    }
}

/// A connection under test.
pub struct Connection {
    write: OwnedWriteHalf,
    events: mpsc::Receiver<Event>,
    reader: JoinHandle<()>,
    seen: Vec<Event>,
    /// Index in `seen` of the next event to hand out.
    pub position: usize,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Connection {
    /// Connects; sends nothing.
    ///
    /// # Errors
    /// If nobody listens.
    pub async fn open(address: &str) -> Result<Self> {
        #[allow(
            clippy::disallowed_methods,
            reason = "these tests are a stranger to the server: real sockets"
        )]
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let reader = tokio::spawn(read_all(read, sender));
        Ok(Self { write, events, reader, seen: Vec::new(), position: 0 })
    }

    /// The next event; `None` if nothing happened for `wait`, or nothing can any more.
    pub async fn next(&mut self, wait: Duration) -> Option<Event> {
        if self.position == self.seen.len() {
            let event = timeout_at(Instant::now() + wait, self.events.recv()).await.ok()??;
            self.seen.push(event);
        }
        self.position += 1;
        self.seen.get(self.position - 1).cloned()
    }

    /// Forgets the events handed out so far; none of them can be seen again.
    pub fn forget(&mut self) {
        self.seen.drain(..self.position);
        self.position = 0;
    }

    /// Sends bytes. That the peer closed meanwhile is no error: the next event tells.
    ///
    /// # Errors
    /// If the peer does not read.
    pub async fn send(&mut self, data: &[u8]) -> Result<()> {
        match timeout(SEND_TIMEOUT, self.write.write_all(data)).await {
            Ok(_sent_or_closed) => Ok(()),
            Err(_elapsed) => bail!("the server does not read what is sent"),
        }
    }
}

async fn read_all(mut read: OwnedReadHalf, events: mpsc::Sender<Event>) {
    let mut buffer = BytesMut::new();
    loop {
        while buffer.len() >= FRAME_HEADER_BYTES {
            let mut header = &buffer[..FRAME_HEADER_BYTES];
            let (code, length) = (bytes::Buf::get_i32(&mut header), bytes::Buf::get_i32(&mut header));
            let Some(length) = usize::try_from(length).ok().filter(|n| *n <= REPLY_PAYLOAD_BYTES_MAX) else {
                let broken = Event::Broken(format!("a reply frame of type {code} with length {length}"));
                let _closed = events.send(broken).await;
                return;
            };
            if buffer.len() < FRAME_HEADER_BYTES + length {
                buffer.reserve(FRAME_HEADER_BYTES + length - buffer.len());
                break;
            }
            let payload = buffer.split_to(FRAME_HEADER_BYTES + length).freeze().slice(FRAME_HEADER_BYTES..);
            if events.send(Event::Frame(code, payload)).await.is_err() {
                return;
            }
        }
        buffer.reserve(1 << 16);
        match read.read_buf(&mut buffer).await {
            Ok(count) if count > 0 => {}
            _closed => break,
        }
    }
    if !buffer.is_empty() {
        let _closed = events.send(Event::Broken(format!("closed inside a frame: {}", hex(&buffer)))).await;
    }
    let _closed = events.send(Event::Close).await;
}
