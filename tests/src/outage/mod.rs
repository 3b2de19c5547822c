//! A server under load whose long-term storage goes away and comes back.
//!
//! Writers append at a steady rate and a reader follows each of them at the tail. In the middle long-term storage is in
//! trouble for a while; then the writers stop and the server has to bring everything there by itself. At the end it is
//! killed, and all that was acknowledged is read back from its first byte. The ledger judges every byte; memory, the log's
//! size and latencies are told per phase, for whoever runs this to judge.

mod follow;
mod told;
mod trouble;
mod watch;
mod write;

use crate::server::Server;
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
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
    /// How long all is well first, and again after the trouble.
    pub calm: Duration,
    /// How long the trouble lasts.
    pub troubled: Duration,
    /// Writers, one to a segment.
    pub writers: u64,
    /// Bytes that all of them write in a second.
    pub bytes_per_second: u64,
    /// Further flags of the server.
    pub flags: Vec<String>,
    /// Where all choices come from.
    pub seed: u64,
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
    let mut place = Place::make(&options.trouble).await?;
    let server = start(options, &place).await?;
    let told = Told::default();
    let segments: Vec<String> = (0..options.writers).map(|n| format!("outage/stream/{n}.#epoch.0")).collect();
    let mut session = Session::open(&server.store).await?.context("gone")?;
    for segment in &segments {
        session.create(segment).await?;
    }

    let (stop, stopped) = channel::channel(false);
    let mut writers = JoinSet::new();
    let mut readers = JoinSet::new();
    for (writer, segment) in (1..).zip(&segments) {
        let plan = write::Plan::new(writer, segment, options);
        let progress = told::Progress::new();
        readers.spawn(follow::run(segment.clone(), server.store.clone(), progress.clone(), told.clone()));
        writers.spawn(write::run(plan, server.store.clone(), stopped.clone(), progress, told.clone()));
    }
    let watch = tokio::spawn(watch::run(server.pid()?, options.data.clone(), told.clone()));

    let phases = async {
        sleep(options.calm).await;
        told.enter(Phase::Troubled);
        place.trouble(options).await?;
        told.enter(Phase::After);
        sleep(options.calm).await;
        anyhow::Ok(())
    };
    let broken = async {
        // Neither ends before it is told to, unless something is wrong.
        tokio::select! {
            ended = writers.join_next() => ended.map(|ended| ended.map(|done| done.map(drop))),
            ended = readers.join_next() => ended,
        }
    };
    tokio::select! {
        phases = phases => phases?,
        ended = broken => {
            ended.context("nobody writes")?.context("a worker panicked")??;
            anyhow::bail!("a worker ended before it was told to");
        }
    }
    stop.send_replace(true);
    let mut written = Vec::new();
    while let Some(writer) = writers.join_next().await {
        written.push(writer.context("a writer panicked")??);
    }
    while let Some(reader) = readers.join_next().await {
        reader.context("a reader panicked")??;
    }
    let catch_up = caught_up(&mut session, &written).await?;
    watch.abort();
    server.kill().await?;

    let server = start(options, &place).await?;
    let read = Instant::now();
    let bytes = verify(&server, &written).await.context("after the kill")?;
    let read_back = read.elapsed();
    let ready_after = server.ready_after;
    let (status, _printed) = server.stop().await?;
    ensure!(status.success(), "stopped with {status}");
    Ok(Summary { phases: told.phases(), catch_up, ready_after, bytes, read_back })
}

async fn start(options: &Options, place: &Place) -> Result<Server> {
    let mut flags: Vec<&str> = place.flags.iter().map(String::as_str).collect();
    flags.extend(options.flags.iter().map(String::as_str));
    let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key"), ("AWS_REGION", "us-east-1")];
    Server::start_with(&options.binary, &options.data, &flags, &keys).await
}

/// Waits until long-term storage has everything, which nobody asks for; how long that took.
async fn caught_up(session: &mut Session, written: &[Written]) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let mut behind = 0;
        for writer in written {
            behind += writer.length - watch::stored(session, &writer.segment).await?;
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
