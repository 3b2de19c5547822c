//! Many segments that get a little each: what it costs in objects, latency and memory.
//!
//! The same events a second go to one segment before and after, so that latency stands beside what the machine gives in
//! the same run.

use crate::world::{Stream, World, figure, is_object, line, share};
use anyhow::Result;
use clap::Args;
use dhara_benches::folder;
use dhara_benches::latency::Latencies;
use dhara_benches::limit::per_second;
use dhara_benches::pace::Pace;
use dhara_benches::server::Server;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const EVENT_BYTES: usize = 1024;
/// How often the folder of long-term storage is looked through.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(crate) struct Trickle {
    /// Segments, each with one event of 1 KiB a second.
    #[arg(long, default_value_t = 5000)]
    segments: u16,
    /// Connections that they share.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// How long events trickle.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How long one segment is measured, before and after.
    #[arg(long, default_value_t = 30)]
    one_seconds: u64,
    /// The server's log budget.
    #[arg(long, default_value = "4GiB")]
    log_budget: String,
}

/// Files that came to be in long-term storage.
#[derive(Debug, Default)]
struct Puts {
    objects: u64,
    index: u64,
}

impl Trickle {
    pub(crate) async fn run(&self, world: &World) -> Result<()> {
        let server = world.start(&["--log-budget", &self.log_budget]).await?;
        line(&format!("{} segments at 1 KiB/s each, {} connections", self.segments, self.connections))?;
        let one = Stream::create(&server, "one", 1).await?;
        let many = Stream::create(&server, "many", self.segments).await?;
        let one_lasts = Duration::from_secs(self.one_seconds);
        let lasts = Duration::from_secs(self.seconds);

        let mut before = self.append(&server, &one, sleep(one_lasts)).await?;
        let resident = server.resident_bytes();
        let folder = world.tier_folder();
        let (puts, counted) = (count_puts(folder, lasts), Instant::now());
        let (mut trickling, puts) = self.append_and(&server, &many, puts).await?;
        let elapsed = counted.elapsed();
        figure("events acknowledged", &format!("{:.0} /s", per_second(trickling.count(), elapsed)))?;
        print_memory(&server, resident)?;
        let mut after = self.append(&server, &one, sleep(one_lasts)).await?;
        match puts? {
            Some(puts) => {
                let rate = |count| format!("{:.2} /s ({count})", per_second(count, elapsed));
                figure("objects put", &rate(puts.objects))?;
                figure("files of the index put", &rate(puts.index))?;
                figure("all puts", &rate(puts.objects + puts.index))?;
            }
            None => figure("objects put", "not counted: long-term storage is no folder")?,
        }
        figure("", "append ms p50 / p99 / p99.9, p95")?;
        let rows = [
            ("one segment at the same rate, before", &mut before),
            ("all segments", &mut trickling),
            ("one segment at the same rate, after", &mut after),
        ];
        for (what, latencies) in rows {
            let p95 = latencies.quantile(950).as_secs_f64() * 1e3;
            figure(what, &format!("{}, {p95:.3}", latencies.describe()))?;
        }
        let mut one = before;
        one.merge(after);
        let (many, one) = (trickling.quantile(950).as_secs_f64(), one.quantile(950).as_secs_f64());
        figure("p95 of all segments, of that of one", &share(many, one))?;
        server.stop().await
    }

    async fn append(
        &self,
        server: &Server,
        stream: &Stream,
        lasts: impl Future<Output = ()>,
    ) -> Result<Latencies> {
        Ok(self.append_and(server, stream, lasts).await?.0)
    }

    /// Appends to `stream`, at the same rate whatever its number of segments, for as long as `other` takes.
    async fn append_and<T>(
        &self,
        server: &Server,
        stream: &Stream,
        other: impl Future<Output = T>,
    ) -> Result<(Latencies, T)> {
        let names = stream.segments();
        let connections = u32::try_from(self.connections)?;
        let period = Duration::from_secs(1) * connections / u32::from(self.segments);
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for nth in 0..self.connections {
            // A stream with fewer segments than connections is written by all of them.
            let share = names.iter().skip(nth % names.len()).step_by(self.connections);
            let start = Instant::now() + Duration::from_secs(1);
            let pace = Pace { segments: share.cloned().collect(), period, event_bytes: EVENT_BYTES, start };
            let (store, stop) = (server.store.clone(), Arc::clone(&stop));
            tasks.spawn(async move { pace.run(&store, &stop).await });
        }
        let result = other.await;
        stop.store(true, Ordering::Relaxed);
        let mut latencies = Latencies::default();
        while let Some(done) = tasks.join_next().await {
            latencies.merge(done??);
        }
        Ok((latencies, result))
    }
}

/// Counts what appears in `folder`; a file that comes and goes between two looks is missed, which no object does.
async fn count_puts(folder: Option<PathBuf>, lasts: Duration) -> Result<Option<Puts>> {
    let Some(folder) = folder else {
        sleep(lasts).await;
        return Ok(None);
    };
    let until = Instant::now() + lasts;
    let mut known: BTreeSet<PathBuf> = folder::files(&folder)?.into_keys().collect();
    let mut puts = Puts::default();
    while Instant::now() < until {
        sleep(LOOK_EVERY).await;
        let looking = folder.clone();
        let files = tokio::task::spawn_blocking(move || folder::files(&looking)).await??;
        for path in files.into_keys() {
            // What is being written has a name of its own until it is whole.
            let partial = path.to_string_lossy().contains('#');
            if !partial && known.insert(path.clone()) {
                let count = if is_object(&path) { &mut puts.objects } else { &mut puts.index };
                *count += 1;
            }
        }
    }
    Ok(Some(puts))
}

fn print_memory(server: &Server, before: Option<(u64, u64)>) -> Result<()> {
    let (Some((before, _)), Some((now, most))) = (before, server.resident_bytes()) else {
        return figure("server's memory", "not told by this system");
    };
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let (before, now, most) = (mib(before), mib(now), mib(most));
    figure("server's memory before, after, at most", &format!("{before}, {now}, {most}"))
}
