//! A local S3 server, kept in memory, that fails on demand.
//!
//! Speaks as much of S3 as an object store client needs: objects with ranges and conditions, lists in pages, uploads
//! in parts, deletes in bulk. It takes any signature for good. [`Knobs`] make it slow, deaf, forgetful or rude; what
//! it holds outlives [`S3Server::kill`], as a disk does. It is held to the same contract as other servers, see
//! `tests/s3_contract.rs`.

mod answer;
mod bucket;
mod call;
mod knobs;
mod line;
mod serve;
mod xml;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use dhara_stdx::{Clock, SystemClock};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use bucket::Buckets;
pub use knobs::{Calls, Counts, Fault, Knobs, Outage, What};

/// Name of the bucket that is there from the start.
pub const BUCKET: &str = "bucket";

/// What connections share; outlives all of them.
struct Shared {
    buckets: Mutex<Buckets>,
    knobs: Mutex<Knobs>,
    counts: Mutex<Counts>,
    clock: Arc<dyn Clock>,
}

/// A running server; it ends when this is dropped.
pub struct S3Server {
    shared: Arc<Shared>,
    life: Life,
}

/// The time between a start and the end that follows.
struct Life {
    addr: SocketAddr,
    end: CancellationToken,
    serving: JoinHandle<()>,
}

impl S3Server {
    /// Starts a server on a free port of this machine, on the runtime that calls.
    ///
    /// # Errors
    /// If no port can be had.
    /// # Cancel safety
    /// Dropped early: there is no server.
    pub async fn start() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            buckets: Mutex::new(Buckets::with(BUCKET)),
            knobs: Mutex::new(Knobs::default()),
            counts: Mutex::new(Counts::default()),
            clock: SystemClock::handle(),
        });
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let life = serve::listen(any, Arc::clone(&shared)).await?;
        Ok(Self { shared, life })
    }

    /// Ends it at once: connections break, and from the return on new ones are refused.
    ///
    /// # Cancel safety
    /// Dropped early, it ends a moment later.
    pub async fn kill(&mut self) {
        self.life.end.cancel();
        // That it panicked is told where that happened; it has ended all the same.
        drop((&mut self.life.serving).await);
    }

    /// Starts it again at the same address, with all it held. It must be dead.
    ///
    /// # Errors
    /// If somebody else has the port by now.
    /// # Cancel safety
    /// Dropped early, it is dead.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        let addr = self.life.addr;
        let life = serve::listen(addr, Arc::clone(&self.shared)).await;
        self.life = life.with_context(|| format!("start again at {addr}"))?;
        Ok(())
    }

    /// Its address, as a client's endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.life.addr)
    }

    /// What it is to do wrong; changes count from the next call on.
    pub fn knobs(&self) -> MutexGuard<'_, Knobs> {
        self.shared.knobs.lock()
    }

    /// How often it was called so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts.lock().clone()
    }

    /// What it holds.
    pub fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.shared.buckets.lock()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.life.end.cancel();
    }
}
