//! Starting a server whose log holds much that is in no object.
//!
//! The log is kept un-tiered by taking long-term storage away under the running server: its folder is moved aside and
//! a file stands in its place, so that every upload fails. Before the next start the folder comes back.

use crate::world::{Aside, Stream, World, figure, line, share};
use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use clap::Args;
use dhara_benches::fill::{Ledger, fill, put_event, set_up};
use dhara_benches::folder::{files, read_sequentially};
use dhara_benches::limit::per_second;
use dhara_benches::wire::{self, Heard, flush_to_storage};
use dhara_stdx::{Entropy, SystemEntropy};
use dhara_wire::codec::Uuid;
use tokio::task::JoinSet;
use tokio::time::Instant;

const SEGMENTS: u16 = 4;

#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// Sizes of the un-tiered log, GiB.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 10])]
    gib: Vec<u64>,
    /// Bytes of an event.
    #[arg(long, default_value_t = 1024)]
    event_bytes: usize,
}

impl Recover {
    pub(crate) async fn run(&self, world: &World) -> Result<()> {
        for &gib in &self.gib {
            let part = world.part(&format!("recover-{gib}"));
            self.measure(&part, gib).await?;
            part.clear()?;
        }
        Ok(())
    }

    async fn measure(&self, world: &World, gib: u64) -> Result<()> {
        let tier = world.tier_folder().context("only a folder can be taken away under a running server")?;
        // So large that the log is never short of room, which would be another measurement.
        let budget = format!("{}GiB", gib * 8);
        let settings = ["--log-budget", &budget, "--tier-after", "86400"];
        let server = world.start(&settings).await?;
        let stream = Stream::create(&server, "recover", SEGMENTS).await?;
        flush_to_storage(&server.store).await?;
        let aside = Aside::take(&tier)?;
        let mut tasks = JoinSet::new();
        for segment in stream.segments() {
            let (store, bytes, event_bytes) =
                (server.store.clone(), (gib << 30) / u64::from(SEGMENTS), self.event_bytes);
            tasks.spawn(async move { fill(&store, &segment, bytes, event_bytes).await });
        }
        let ledgers = tasks.join_all().await.into_iter().collect::<Result<Vec<Ledger>>>()?;
        server.stop().await?;
        aside.give_back()?;

        let log = files(&world.log_folder())?;
        // Twice: the start to be measured finds them in the system's file cache as the second reading does.
        let reading = move || read_sequentially(&log).and_then(|_cold| read_sequentially(&log));
        let (log_bytes, limit) = tokio::task::spawn_blocking(reading).await??;
        let events: u64 = ledgers.iter().map(|ledger| ledger.events).sum();
        line(&format!("{gib} GiB in no object, {events} events, {log_bytes} bytes of log files"))?;
        let started = Instant::now();
        let server = world.start(&settings).await?;
        let ready = started.elapsed();
        append_one(&server.store, &stream).await?;
        let acknowledged = started.elapsed();
        let rate = per_second(log_bytes, acknowledged);
        figure("from start to ready", &format!("{:.2} s", ready.as_secs_f64()))?;
        figure("from start to the first ack", &format!("{:.2} s", acknowledged.as_secs_f64()))?;
        figure("log a second, of reading its files in a row", &share(rate, limit))?;
        let resident = server.resident_bytes().map_or(0, |(_now, most)| most);
        figure("server's memory at most, mapped log included", &format!("{} MiB", resident >> 20))?;
        for (segment, length) in lengths(&server.store, &stream).await? {
            if !ledgers.iter().any(|ledger| length == ledger.bytes || length == ledger.bytes + ONE_EVENT) {
                bail!("{segment} has {length} bytes after the start");
            }
        }
        server.stop().await
    }
}

/// Bytes of the event that proves that appends are taken.
const ONE_EVENT: u64 = 13;

async fn append_one(store: &str, stream: &Stream) -> Result<()> {
    let segments = stream.segments();
    let segment = segments.first().context("a stream without segments")?;
    let (mut appends, mut acks) = wire::connect(store).await?;
    let writer = Uuid(SystemEntropy::new()?.uuid());
    set_up(&mut appends, &mut acks, writer, segment).await?;
    let mut event = BytesMut::new();
    put_event(&mut event, b"first");
    appends.append(writer, 1, 1, event.freeze());
    appends.flush().await?;
    match acks.next().await? {
        Heard::Acked { .. } => Ok(()),
        Heard::SetUp { .. } => bail!("a set-up twice"),
    }
}

async fn lengths(store: &str, stream: &Stream) -> Result<Vec<(String, u64)>> {
    use dhara_wire::command::{Command, GetStreamSegmentInfo};
    let connection = wire::requests(store).await?;
    let mut lengths = Vec::new();
    for segment in stream.segments() {
        let (request_id, delegation_token) = (0, String::new());
        let asked = GetStreamSegmentInfo { request_id, segment: segment.clone(), delegation_token };
        match connection.call(asked).await? {
            Command::StreamSegmentInfo(info) => lengths.push((segment, u64::try_from(info.write_offset)?)),
            other => bail!("{segment}: {other:?}"),
        }
    }
    Ok(lengths)
}
