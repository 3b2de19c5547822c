//! Redis Streams with `appendfsync always`, as a peer: every acknowledgement there is covered by a flush too.

use crate::flush::flushes;
use crate::latency::Latencies;
use crate::load::Outcome;
use anyhow::{Context, Result, bail};
use bytes::{Buf, BytesMut};
use dhara_stdx::net;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A Redis server of the benchmark's own; it ends with this value.
#[derive(Debug)]
pub struct Redis {
    server: Child,
    address: String,
}

impl Redis {
    /// Starts `redis-server` in `dir`; `None` if it is not installed.
    ///
    /// # Errors
    /// If it is installed but does not come up.
    pub async fn start(dir: &Path) -> Result<Option<Self>> {
        std::fs::create_dir_all(dir)?;
        let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        drop(listener);
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
            .arg("--dir")
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let server = match started {
            Ok(server) => server,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("starting redis-server"),
        };
        let redis = Self { server, address: address.to_string() };
        for _attempt in 0..200 {
            if net::connect(&redis.address).await.is_ok() {
                return Ok(Some(redis));
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("redis-server does not answer");
    }

    /// Adds entries of `event_bytes` to one stream, `pipeline` of them un-answered, for as long as `lasts`.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn run(&self, event_bytes: usize, pipeline: usize, lasts: Duration) -> Result<Outcome> {
        let mut socket = net::connect(&self.address).await?;
        let event = "x".repeat(event_bytes);
        let add =
            format!("*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\ne\r\n${event_bytes}\r\n{event}\r\n");
        let batch = pipeline.div_ceil(2);
        let adds = add.repeat(batch).into_bytes();
        let flushed = flushes();
        let started = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        let mut latencies = Latencies::default();
        let mut batches = std::collections::VecDeque::new();
        let mut buffer = BytesMut::new();
        while answered < sent || started.elapsed() < lasts {
            while sent - answered + batch <= pipeline && started.elapsed() < lasts {
                socket.write_all(&adds).await?;
                sent += batch;
                batches.push_back((sent, Instant::now()));
            }
            answered += replies(&mut socket, &mut buffer).await?;
            while batches.front().is_some_and(|(upto, _)| *upto <= answered) {
                latencies.push(batches.pop_front().map_or(Duration::ZERO, |(_, at)| at.elapsed()));
            }
        }
        let elapsed = started.elapsed();
        let flushes = flushes().zip(flushed).map(|(after, before)| after - before);
        Ok(Outcome { events: answered as u64, elapsed, latencies, flushes })
    }

    /// Ends the server.
    ///
    /// # Errors
    /// Whatever the system answers.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.server.kill().await?)
    }
}

/// Reads what is there and counts whole replies: an id behind its length.
async fn replies(socket: &mut TcpStream, buffer: &mut BytesMut) -> Result<usize> {
    if socket.read_buf(buffer).await? == 0 {
        bail!("redis-server closed the connection");
    }
    let mut count = 0;
    loop {
        if buffer.first() == Some(&b'-') {
            bail!("redis-server refuses: {}", String::from_utf8_lossy(buffer));
        }
        let mut ends =
            buffer.windows(2).enumerate().filter(|(_, pair)| pair == b"\r\n").map(|(at, _)| at + 2);
        let (Some(_length), Some(end)) = (ends.next(), ends.next()) else { return Ok(count) };
        buffer.advance(end);
        count += 1;
    }
}
