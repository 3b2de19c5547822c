//! Writers and readers at the tail while long-term storage is away, and after it has come back.
//!
//! Writers keep one rate from the first measurement to the last, so that the three differ by long-term storage alone.

use crate::probe::Probe;
use crate::world::{Aside, Stream, World, figure, line, share};
use anyhow::{Context, Result};
use clap::Args;
use dhara_benches::latency::Latencies;
use dhara_benches::pace::Pace;
use dhara_benches::server::Server;
use dhara_benches::wire::flush_to_storage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SEGMENTS: u16 = 16;
const EVENT_BYTES: u32 = 16 * 1024;

#[derive(Args, Debug)]
pub(crate) struct Outage {
    /// How long long-term storage is away.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// How long it is measured before, and after.
    #[arg(long, default_value_t = 30)]
    calm_seconds: u64,
    /// MB that writers append in a second, to 16 segments.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    megabytes_per_second: u32,
    /// The server's log budget; what comes during the outage must fit.
    #[arg(long, default_value = "8GiB")]
    log_budget: String,
}

/// Writers at a steady rate.
struct Writers {
    stop: Arc<AtomicBool>,
    appending: JoinHandle<Result<Latencies>>,
}

impl Outage {
    pub(crate) async fn run(&self, world: &World) -> Result<()> {
        let tier = world.tier_folder().context("only a folder can be taken away under a running server")?;
        let server = world.start(&["--log-budget", &self.log_budget]).await?;
        let (calm, lasts) = (Duration::from_secs(self.calm_seconds), Duration::from_secs(self.seconds));
        let rate = self.megabytes_per_second;
        line(&format!("{} s without long-term storage, {rate} MB/s to {SEGMENTS} segments", self.seconds))?;
        let history = Stream::create(&server, "history", SEGMENTS).await?;
        let live = Stream::create(&server, "live", 1).await?;
        let mut probe = Probe::new(&server, &live)?;
        let writers = self.write(&server, &history);

        let mut before = probe.measure(sleep(calm)).await?.1;
        let resident = server.resident_bytes();
        let aside = Aside::take(&tier)?;
        let mut meanwhile = probe.measure(sleep(lasts)).await?.1;
        let resident_meanwhile = server.resident_bytes();
        aside.give_back()?;
        let returned = Instant::now();
        let store = server.store.clone();
        let caught_up = async move {
            flush_to_storage(&store).await?;
            anyhow::Ok(returned.elapsed())
        };
        let (caught_up, mut back) = probe.measure(caught_up).await?;
        let mut after = probe.measure(sleep(calm)).await?.1;
        writers.stop.store(true, Ordering::Relaxed);
        let mut acks = writers.appending.await??;

        figure("", "ms p50 / p99 / p99.9 of append, of append to read")?;
        before.print("before")?;
        meanwhile.print("long-term storage away")?;
        back.print("while the backlog goes")?;
        after.print("after")?;
        let quiet = before.p99().max(after.p99());
        figure("tail's p99 while it is away, of that in calm", &share(meanwhile.p99(), quiet))?;
        figure("tail's p99 while the backlog goes, of that in calm", &share(back.p99(), quiet))?;
        figure("writers' acknowledgements, all the time", &acks.describe())?;
        figure(
            "from its return until nothing is in the log only",
            &format!("{:.1} s", caught_up?.as_secs_f64()),
        )?;
        if let (Some((before, _)), Some((now, most))) = (resident, resident_meanwhile) {
            let (before, now, most) = (before >> 20, now >> 20, most >> 20);
            let memory = format!("{before}, {now}, {most} MiB, mapped log included");
            figure("server's memory before, at the end, at most", &memory)?;
        }
        server.stop().await
    }

    fn write(&self, server: &Server, stream: &Stream) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let period = Duration::from_secs(1) * EVENT_BYTES / (self.megabytes_per_second * 1_000_000);
        let start = Instant::now() + Duration::from_secs(1);
        let pace = Pace { segments: stream.segments(), period, event_bytes: EVENT_BYTES as usize, start };
        let (store, stopping) = (server.store.clone(), Arc::clone(&stop));
        let appending = tokio::spawn(async move { pace.run(&store, &stopping).await });
        Writers { stop, appending }
    }
}
