//! What the machine gives at best: the limits beside which a server's figures stand.

use crate::latency::Latencies;
use anyhow::Result;
use dhara_stdx::{Disk, OpenMode, RealDisk, net};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const SYNCS: u64 = 500;
const BLOCK_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1024 * 1024;
const CHUNKS: u64 = 256;
const ROUND_TRIPS: u32 = 5000;

/// The machine's limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Writing 4 KiB after 4 KiB, each made durable.
    pub sync: Latencies,
    /// Bytes per second, written in pieces of 1 MiB and made durable at the end.
    pub disk_bytes_per_second: f64,
    /// Bytes per second over one connection to the own machine.
    pub loopback_bytes_per_second: f64,
    /// One byte there and one back.
    pub loopback_round_trip: Duration,
}

impl Limits {
    /// Measures in `dir` and over the loopback interface.
    ///
    /// # Errors
    /// Whatever disk or net answer.
    pub async fn measure(dir: &Path) -> Result<Self> {
        let dir = dir.to_owned();
        let disk = tokio::task::spawn_blocking(move || measure_disk(&dir));
        let (sync, disk_bytes_per_second) = disk.await??;
        let loopback_round_trip = measure_round_trip().await?;
        let loopback_bytes_per_second = measure_loopback().await?;
        Ok(Self { sync, disk_bytes_per_second, loopback_bytes_per_second, loopback_round_trip })
    }
}

impl Limits {
    /// The least that an acknowledgement takes: there, durable, and back.
    pub fn durable_round_trip(mut self) -> Duration {
        self.loopback_round_trip + self.sync.quantile(500)
    }
}

fn measure_disk(dir: &Path) -> Result<(Latencies, f64)> {
    let disk = RealDisk;
    disk.create_dir_all(dir)?;
    let path = dir.join("limit");
    let file = disk.open(&path, OpenMode::CreateNew)?;
    file.allocate(CHUNKS * CHUNK_BYTES as u64)?;
    let chunk = vec![7; CHUNK_BYTES];
    // Once over, so that what is measured rewrites allocated blocks as a log does.
    for nth in 0..CHUNKS {
        file.write_at(&chunk, nth * CHUNK_BYTES as u64)?;
    }
    file.sync_data()?;
    let started = Instant::now();
    for nth in 0..CHUNKS {
        file.write_at(&chunk, nth * CHUNK_BYTES as u64)?;
    }
    file.sync_data()?;
    let rate = per_second(CHUNKS * CHUNK_BYTES as u64, started.elapsed());
    let mut sync = Latencies::default();
    for nth in 0..SYNCS {
        let started = Instant::now();
        file.write_at(&chunk[..BLOCK_BYTES], nth * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        sync.push(started.elapsed());
    }
    disk.remove(&path)?;
    Ok((sync, rate))
}

/// Measures how many bytes a second one connection to the own machine carries.
///
/// # Errors
/// Whatever the net answers.
pub async fn measure_loopback() -> Result<f64> {
    let (mut near, mut far) = connected().await?;
    let total = CHUNKS * CHUNK_BYTES as u64 * 4;
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; CHUNK_BYTES];
        while far.read(&mut buffer).await? > 0 {}
        anyhow::Ok(())
    });
    let chunk = vec![7; CHUNK_BYTES];
    let started = Instant::now();
    for _nth in 0..CHUNKS * 4 {
        near.write_all(&chunk).await?;
    }
    drop(near);
    reading.await??;
    Ok(per_second(total, started.elapsed()))
}

/// Measures how long one byte takes to the own machine and back.
///
/// # Errors
/// Whatever the net answers.
pub async fn measure_round_trip() -> Result<Duration> {
    let (mut near, mut far) = connected().await?;
    let echo = tokio::spawn(async move {
        let mut byte = [0];
        while far.read(&mut byte).await? > 0 {
            far.write_all(&byte).await?;
        }
        anyhow::Ok(())
    });
    let started = Instant::now();
    let mut byte = [7];
    for _nth in 0..ROUND_TRIPS {
        near.write_all(&byte).await?;
        near.read_exact(&mut byte).await?;
    }
    let elapsed = started.elapsed() / ROUND_TRIPS;
    drop(near);
    echo.await??;
    Ok(elapsed)
}

async fn connected() -> Result<(tokio::net::TcpStream, tokio::net::TcpStream)> {
    let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?.to_string();
    let (near, far) = tokio::join!(net::connect(&address), net::accept(&listener));
    Ok((near?, far?.0))
}

/// `count` things in `elapsed`, per second.
#[allow(clippy::cast_precision_loss, reason = "a figure to print")]
pub fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}
