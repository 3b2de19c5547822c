//! Catching up from long-term storage into a cold server, and readers at the tail meanwhile.
//!
//! What is cold is the server: it was killed and started again. The system's own file cache is not emptied, which takes
//! rights that a benchmark does not have; so the limit is reading the same object files in the same run, just before.

use crate::probe::{Probe, Rounds};
use crate::world::{Stream, World, figure, line, objects, share};
use anyhow::{Result, bail, ensure};
use clap::Args;
use dhara_benches::fill::{Ledger, fill};
use dhara_benches::folder::read_sequentially;
use dhara_benches::limit::{measure_loopback, per_second};
use dhara_benches::server::Server;
use dhara_benches::wire::flush_to_storage;
use dhara_client::{Client, ReadFrom, ReadUntil, SegmentRead};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

const SEGMENTS: u16 = 4;

#[derive(Args, Debug)]
pub(crate) struct Catchup {
    /// GiB to write and read, for each size of events.
    #[arg(long, default_value_t = 4)]
    gib: u64,
    /// Sizes of events, bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 65536])]
    sizes: Vec<usize>,
    /// The server's log budget.
    #[arg(long, default_value = "1GiB")]
    log_budget: String,
    /// How often the tail is measured, alone and while history is read in turn. What is compared are medians of rounds: a
    /// single one is at the mercy of the machine's other tenants.
    #[arg(long, default_value_t = 7)]
    tail_rounds: u32,
    /// How long the tail is measured alone in a round.
    #[arg(long, default_value_t = 5)]
    tail_seconds: u64,
    /// How often history is read in a round.
    #[arg(long, default_value_t = 3)]
    tail_times: u32,
    /// MB/s to read history at while the tail is measured; as fast as it comes unless given.
    #[arg(long)]
    tail_rate: Option<u64>,
}

impl Catchup {
    pub(crate) async fn run(&self, world: &World) -> Result<()> {
        for &event_bytes in &self.sizes {
            let part = world.part(&format!("catchup-{event_bytes}"));
            self.measure(&part, event_bytes).await?;
            part.clear()?;
        }
        Ok(())
    }

    async fn start(&self, world: &World) -> Result<Server> {
        world.start(&["--log-budget", &self.log_budget]).await
    }

    async fn measure(&self, world: &World, event_bytes: usize) -> Result<()> {
        line(&format!("{} GiB, events of {event_bytes} B, {SEGMENTS} segments", self.gib))?;
        let server = self.start(world).await?;
        let mut stream = Stream::create(&server, "history", SEGMENTS).await?;
        let ledgers = self.write(&server, &stream, event_bytes).await?;
        server.stop().await?;
        let limit = measure_limit(world).await?;
        let total = bytes(&ledgers);

        let server = self.start(world).await?;
        stream.reconnect(&server).await?;
        let rate = per_second(total, read_segments(&stream, &ledgers, None).await?);
        figure("catch-up, segments' bytes, CRC equal", &with_share(rate, limit))?;
        server.stop().await?;

        let server = self.start(world).await?;
        stream.reconnect(&server).await?;
        let (events, elapsed) = read_events(&stream, &ledgers).await?;
        let rate = with_share(per_second(total, elapsed), limit);
        let each = per_second(events, elapsed);
        figure("catch-up, events of a stream reader", &format!("{rate}, {each:.0} events/s"))?;
        server.stop().await?;

        let server = self.start(world).await?;
        stream.reconnect(&server).await?;
        self.tail(&server, &stream, &ledgers, limit).await?;
        server.stop().await
    }

    /// Fills all segments and waits until everything is in long-term storage.
    async fn write(&self, server: &Server, stream: &Stream, event_bytes: usize) -> Result<Vec<Ledger>> {
        let started = Instant::now();
        let ledgers = self.fill(server, stream, event_bytes).await?;
        let total = bytes(&ledgers);
        figure("written", &megabytes(per_second(total, started.elapsed())))?;
        flush_to_storage(&server.store).await?;
        figure("written and in long-term storage", &megabytes(per_second(total, started.elapsed())))?;
        Ok(ledgers)
    }

    /// Fills all segments side by side.
    async fn fill(&self, server: &Server, stream: &Stream, event_bytes: usize) -> Result<Vec<Ledger>> {
        let bytes = (self.gib << 30) / u64::from(SEGMENTS);
        let mut tasks = JoinSet::new();
        for (nth, segment) in stream.segments().into_iter().enumerate() {
            let store = server.store.clone();
            tasks.spawn(async move { anyhow::Ok((nth, fill(&store, &segment, bytes, event_bytes).await?)) });
        }
        let mut ledgers = Vec::new();
        while let Some(done) = tasks.join_next().await {
            ledgers.push(done??);
        }
        ledgers.sort_by_key(|(nth, _ledger)| *nth);
        Ok(ledgers.into_iter().map(|(_nth, ledger)| ledger).collect())
    }

    /// The tail beside threads that only compute, and then alone and while history is read in turn.
    async fn tail(&self, server: &Server, stream: &Stream, ledgers: &[Ledger], limit: f64) -> Result<()> {
        let lasts = Duration::from_secs(self.tail_seconds);
        let live = Stream::create(server, "live", 1).await?;
        let mut probe = Probe::new(server, &live)?;
        // Connections and code are warm afterwards.
        probe.measure(sleep(Duration::from_secs(1))).await?;
        let (computed, mut computing) = probe.measure(compute(lasts)).await?;
        computed?;
        let each = self.tail_rate.map(|rate| (rate * 1_000_000 / u64::from(SEGMENTS)).max(1));
        let (mut alone, mut meanwhile, mut took) = (Rounds::default(), Rounds::default(), Duration::ZERO);
        for _round in 0..self.tail_rounds {
            alone.add(probe.measure(sleep(lasts)).await?.1);
            let reading = read_apart(server, stream, ledgers, self.tail_times, each);
            let (read, tail) = probe.measure(reading).await?;
            took += read?;
            meanwhile.add(tail);
        }
        let times = u64::from(self.tail_rounds) * u64::from(self.tail_times);
        figure(
            "catch-up while the tail is read",
            &with_share(per_second(bytes(ledgers) * times, took), limit),
        )?;
        figure("", "ms p50 / p99 / p99.9 of append, of append to read")?;
        computing.print("beside two threads that only compute")?;
        alone.print("alone")?;
        meanwhile.print("while catching up")?;
        let (quiet, computing, moved) = (alone.p99(), computing.p99(), meanwhile.p99());
        figure("tail's p99 while catching up, of that alone, medians", &share(moved, quiet))?;
        figure("tail's p99 while catching up, of that beside computing", &share(moved, computing))
    }
}

/// Reads all segments side by side, each at `rate` bytes per second if one is given, and compares what they hold with
/// what was written.
async fn read_segments(stream: &Stream, ledgers: &[Ledger], rate: Option<u64>) -> Result<Duration> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (segment, ledger) in stream.segments().iter().zip(ledgers) {
        tasks.spawn(read_segment(stream.client.clone(), segment.parse()?, *ledger, rate));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

/// As [`read_segments`] `times` times, by a thread of its own: whoever reads history is seldom the program that reads at
/// the tail.
async fn read_apart(
    server: &Server,
    stream: &Stream,
    ledgers: &[Ledger],
    times: u32,
    rate: Option<u64>,
) -> Result<Duration> {
    let (controller, name, ledgers) = (server.controller.clone(), stream.name.clone(), ledgers.to_vec());
    on_thread("catch-up", move || {
        // It would have the short slice of the thread that it comes from.
        dhara_stdx::sched::shape_thread(0, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let stream = Stream::open(&controller, name, SEGMENTS).await?;
            let mut elapsed = Duration::ZERO;
            for _time in 0..times {
                elapsed += read_segments(&stream, &ledgers, rate).await?;
            }
            Ok(elapsed)
        })
    })
    .await?
}

/// Keeps two threads busy for `lasts`, one with the priority of a reader and one with that of the server's storage
/// threads; they touch neither memory nor disk nor network.
async fn compute(lasts: Duration) -> Result<()> {
    let until = Instant::now() + lasts;
    let busy = move |nice| {
        dhara_stdx::sched::shape_thread(0, nice);
        while Instant::now() < until {
            for _turn in 0..1000 {
                std::hint::spin_loop();
            }
        }
    };
    let (reader, storage) = (on_thread("computes", move || busy(0)), on_thread("computes", move || busy(10)));
    tokio::try_join!(reader, storage).map(|((), ())| ())
}

/// What `work` gives, on a thread of its own.
async fn on_thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Whoever does not wait for it any more has failed already.
        let _told = done.send(work());
    })?;
    let result = result.await?;
    ensure!(thread.join().is_ok(), "thread {name} panicked");
    Ok(result)
}

async fn read_segment(
    client: Client,
    segment: dhara_client::SegmentName,
    ledger: Ledger,
    rate: Option<u64>,
) -> Result<()> {
    let started = Instant::now();
    let mut reader = client.segment_reader(&segment, 0);
    let mut check = crc32fast::Hasher::new();
    let mut read = 0;
    while read < ledger.bytes {
        let SegmentRead::Data { data, .. } = reader.next().await? else { bail!("{segment} ends at {read}") };
        check.update(&data);
        read += data.len() as u64;
        if let Some(rate) = rate {
            sleep_until(started + Duration::from_micros(read * 1_000_000 / rate)).await;
        }
    }
    if read != ledger.bytes || check.finalize() != ledger.crc {
        bail!("{segment} does not hold what was written");
    }
    Ok(())
}

/// Reads all events; their number must be that of the ledgers.
async fn read_events(stream: &Stream, ledgers: &[Ledger]) -> Result<(u64, Duration)> {
    let started = Instant::now();
    let mut reader = stream.client.stream_reader(&stream.name, ReadFrom::Head, ReadUntil::Tail).await?;
    let mut events = 0;
    while let Some(_event) = reader.next().await? {
        events += 1;
        while reader.next_ready().is_some() {
            events += 1;
        }
    }
    let elapsed = started.elapsed();
    let written: u64 = ledgers.iter().map(|ledger| ledger.events).sum();
    if events != written {
        bail!("{events} events read, {written} written");
    }
    Ok((events, elapsed))
}

/// What reading the objects' files and passing their bytes over loopback allow, bytes per second.
async fn measure_limit(world: &World) -> Result<f64> {
    let loopback = measure_loopback().await?;
    figure("limit: one connection on loopback", &megabytes(loopback))?;
    let Some(folder) = world.tier_folder() else { return Ok(loopback) };
    let files = objects(&folder)?;
    let (bytes, rate) = tokio::task::spawn_blocking(move || read_sequentially(&files)).await??;
    figure(&format!("limit: {} MB of object files in a row", bytes / 1_000_000), &megabytes(rate))?;
    Ok(rate.min(loopback))
}

fn bytes(ledgers: &[Ledger]) -> u64 {
    ledgers.iter().map(|ledger| ledger.bytes).sum()
}

fn megabytes(rate: f64) -> String {
    format!("{:.0} MB/s", rate / 1e6)
}

fn with_share(rate: f64, limit: f64) -> String {
    format!("{}, {} of the limit", megabytes(rate), share(rate, limit))
}
