//! A server under load whose long-term storage goes away and comes back.
//!
//! Writers append at a steady rate and a reader follows each of them at the tail. In the middle long-term storage is in
//! trouble for a while; then the writers stop and the server has to bring everything there by itself. At the end it is
//! killed, and all that was acknowledged is read back from its first byte. The ledger judges every byte; memory, the log's
//! size and latencies are told per phase, for whoever runs this to judge.

mod follow;
mod history;
mod mixed;
mod told;
mod trouble;
mod watch;
mod write;

use crate::ledger::chance::Chance;
use crate::server::Server;
use crate::session::Session;
use anyhow::{Context, Result, anyhow, ensure};
use mixed::Mixed;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use told::Progress;
use write::Written;

pub use told::{Phase, Summary, Told};
use trouble::Place;
pub use trouble::Trouble;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub binary: PathBuf,
    /// Its data; empty at first.
    pub data: PathBuf,
    /// What is wrong with long-term storage in the middle.
    pub trouble: Trouble,
    /// For [`Trouble::Full`]: an empty folder on that file system.
    pub small: Option<PathBuf>,
    /// How long all is well first, and again after the trouble.
    pub calm: Duration,
    /// How long the trouble lasts.
    pub troubled: Duration,
    /// Writers, one to a segment.
    pub writers: u64,
    /// Bytes that all of them write in a second.
    pub bytes_per_second: u64,
    /// Readers of random places of what was written.
    pub historians: u64,
    /// Whether a table and transactions are changed all along; only for trouble in which cold reads still work.
    pub mixed: bool,
    /// Further flags of the server.
    pub flags: Vec<String>,
    /// Where all choices come from.
    pub seed: u64,
}

impl Options {
    fn small_folder(&self) -> Result<&Path> {
        self.small.as_deref().context("no folder on a small file system was given")
    }
}

/// How long the server may take to catch up by itself once nothing is written any more.
const CATCH_UP_MAX: Duration = Duration::from_mins(5);
/// How often what is far behind is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs it all.
///
/// # Errors
/// At the first broken promise, and if the server has not caught up in five minutes.
pub async fn run(options: &Options) -> Result<Summary> {
    let mut place = Place::make(options).await?;
    let server = start(options, &place).await?;
    let told = Told::default();
    let mut load = Load::start(options, &server, &told).await?;
    let phases = async {
        sleep(options.calm).await;
        told.enter(Phase::Troubled);
        place.trouble(options).await?;
        told.enter(Phase::After);
        sleep(options.calm).await;
        anyhow::Ok(())
    };
    tokio::select! {
        biased;
        phases = phases => phases?,
        why = load.broken() => return Err(why),
    }
    let written = load.stop().await?;
    let catch_up = caught_up(&server, &written).await?;
    server.kill().await?;
    load.mixed.killed().await?;

    let server = start(options, &place).await?;
    let ready_after = server.ready_after;
    let read = Instant::now();
    let bytes = verify(&server, &written).await.context("after the kill")?;
    let read_back = read.elapsed();
    let transactions = load.mixed.verify(&server).await.context("after the kill")?;
    let (status, _printed) = server.stop().await?;
    ensure!(status.success(), "stopped with {status}");
    Ok(Summary { phases: told.phases(), catch_up, ready_after, bytes, read_back, transactions })
}

/// Everybody who works on the server.
struct Load {
    stop: channel::Sender<bool>,
    writers: JoinSet<Result<Written>>,
    readers: JoinSet<Result<()>>,
    mixed: Mixed,
    watch: JoinHandle<()>,
}

impl Load {
    async fn start(options: &Options, server: &Server, told: &Told) -> Result<Self> {
        let segments: Vec<String> =
            (0..options.writers).map(|n| format!("outage/stream/{n}.#epoch.0")).collect();
        let mut session = Session::open(&server.store).await?.context("gone")?;
        for segment in &segments {
            session.create(segment).await?;
        }
        let (stop, stopped) = channel::channel(false);
        let (mut writers, mut readers, mut all) = (JoinSet::new(), JoinSet::new(), Vec::new());
        let store = || server.store.clone();
        for (writer, segment) in (1..).zip(&segments) {
            let plan = write::Plan::new(writer, segment, options);
            let progress = Progress::of(writer);
            all.push((segment.clone(), progress.clone()));
            readers.spawn(follow::run(segment.clone(), store(), progress.clone(), told.clone()));
            writers.spawn(write::run(plan, store(), stopped.clone(), progress, told.clone()));
        }
        let mut chance = Chance::new(options.seed);
        for _ in 0..options.historians {
            let (all, chance) = (all.clone(), chance.fork());
            readers.spawn(history::run(all, store(), chance, stopped.clone(), told.clone()));
        }
        readers.spawn(history::probe(segments, store(), stopped, told.clone()));
        let mixed = Mixed::start(options, server, chance.fork()).await?;
        let watch = tokio::spawn(watch::run(server.pid()?, options.data.clone(), told.clone()));
        Ok(Self { stop, writers, readers, mixed, watch })
    }

    /// Waits for somebody to end before being told to, which only a fault explains.
    async fn broken(&mut self) -> anyhow::Error {
        let ended = tokio::select! {
            biased;
            Some(ended) = self.writers.join_next() => ended.map(|done| done.map(drop)),
            Some(ended) = self.readers.join_next() => ended,
            ended = self.mixed.broken() => ended,
        };
        match ended {
            Ok(Ok(())) => anyhow!("a worker ended before it was told to"),
            Ok(Err(error)) => error,
            Err(panicked) => anyhow::Error::new(panicked).context("a worker panicked"),
        }
    }

    /// Lets the writers come to their end and the readers read all of it; what was written.
    async fn stop(&mut self) -> Result<Vec<Written>> {
        self.stop.send_replace(true);
        let mut written = Vec::new();
        while let Some(writer) = self.writers.join_next().await {
            written.push(writer.context("a writer panicked")??);
        }
        while let Some(reader) = self.readers.join_next().await {
            reader.context("a reader panicked")??;
        }
        self.watch.abort();
        Ok(written)
    }
}

async fn start(options: &Options, place: &Place) -> Result<Server> {
    let mut flags: Vec<&str> = place.flags.iter().map(String::as_str).collect();
    flags.extend(options.flags.iter().map(String::as_str));
    let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key"), ("AWS_REGION", "us-east-1")];
    Server::start_with(&options.binary, &options.data, &flags, &keys).await
}

/// Waits until long-term storage has everything, which nobody asks for; how long that took.
async fn caught_up(server: &Server, written: &[Written]) -> Result<Duration> {
    let mut session = Session::open(&server.store).await?.context("gone")?;
    let start = Instant::now();
    loop {
        let mut behind = 0;
        for writer in written {
            behind += writer.length - watch::stored(&mut session, &writer.segment).await?;
        }
        if behind == 0 {
            return Ok(start.elapsed());
        }
        let waited = start.elapsed();
        ensure!(waited < CATCH_UP_MAX, "long-term storage is {behind} bytes behind after {waited:?}");
        sleep(LOOK_EVERY).await;
    }
}

/// Reads every segment from its first byte and compares it with what was acknowledged; how many bytes that were.
async fn verify(server: &Server, written: &[Written]) -> Result<i64> {
    let mut session = Session::open(&server.store).await?.context("gone")?;
    let mut bytes = 0;
    for writer in written {
        bytes += writer.verify(&mut session).await.with_context(|| writer.segment.clone())?;
    }
    Ok(bytes)
}
