//! Appends per second, and how long each takes, beside what the machine gives at best.
//!
//! The limit of a pipelined run is the disk's sequential write; that of one event in flight is a round trip on the
//! loopback interface and one durable write of 4 KiB.
//!
//! Without `--target` it starts the `dhara` binary beside it; build both with `--release`.

use anyhow::Result;
use clap::Parser;
use dhara_benches::limit::{Limits, per_second};
use dhara_benches::load::{Load, Outcome};
use dhara_benches::redis::Redis;
use dhara_benches::server::Server;
use dhara_client::{Client, ClientConfig, StreamName};
use dhara_stdx::{Entropy, SystemEntropy};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measures appends on any Pravega-compatible server.
#[derive(Debug, Parser)]
struct Options {
    /// Controller of the server to measure, for example tcp://127.0.0.1:9090; without it a Dhara is started.
    #[arg(long, value_name = "URI")]
    target: Option<String>,
    /// Folder for the data of what is started here, and for measuring the disk.
    #[arg(long, value_name = "DIR", default_value = "./bench-data")]
    data: PathBuf,
    /// How long each run writes.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Sizes of events, bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1024, 65536])]
    sizes: Vec<usize>,
    /// Numbers of writers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    writers: Vec<usize>,
    /// Numbers of segments.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 5000])]
    segments: Vec<i32>,
    /// Leaves out the runs with one event in flight.
    #[arg(long)]
    pipelined_only: bool,
    /// Leaves out Redis.
    #[arg(long)]
    no_redis: bool,
    /// Leaves out the machine's limits.
    #[arg(long)]
    no_limits: bool,
}

/// What a figure is a figure of.
#[derive(Clone, Copy, Debug)]
struct Shape {
    event_bytes: usize,
    one_in_flight: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let run = format!("{:08x}", SystemEntropy::new()?.next_u64() >> 32);
    let data = options.data.join(&run);
    let done = measure(&options, &run, &data).await;
    std::fs::remove_dir_all(&data)?;
    done
}

async fn measure(options: &Options, run: &str, data: &Path) -> Result<()> {
    std::fs::create_dir_all(data)?;
    let limits = if options.no_limits { None } else { Some(Limits::measure(data).await?) };
    limits.as_ref().map_or(Ok(()), print_limits)?;
    header()?;
    let server = match options.target {
        Some(_) => None,
        None => Some(Server::start(&data.join("dhara")).await?),
    };
    let given = options.target.as_deref();
    let uri = given.or(server.as_ref().map(|server| server.controller.as_str())).unwrap_or_default();
    let client = Client::connect(uri, ClientConfig::default()).await?;
    let scope = format!("bench-{run}");
    client.admin().create_scope(&scope).await?;
    for (nth, load) in loads(options).into_iter().enumerate() {
        let stream = StreamName::new(&scope, format!("run-{nth}"));
        let outcome = load.run(&client, &stream).await?;
        let shape = Shape { event_bytes: load.event_bytes, one_in_flight: load.one_in_flight };
        print_outcome(&load.describe(), shape, outcome, limits.as_ref())?;
    }
    if let Some(server) = server {
        server.stop().await?;
    }
    if !options.no_redis {
        measure_redis(options, &data.join("redis"), limits.as_ref()).await?;
    }
    Ok(())
}

fn loads(options: &Options) -> Vec<Load> {
    let lasts = Duration::from_secs(options.seconds);
    let mut loads = Vec::new();
    for &event_bytes in &options.sizes {
        if !options.pipelined_only {
            loads.push(Load { event_bytes, writers: 1, segments: 1, one_in_flight: true, lasts });
        }
        for &segments in &options.segments {
            for &writers in &options.writers {
                loads.push(Load { event_bytes, writers, segments, one_in_flight: false, lasts });
            }
        }
    }
    loads
}

async fn measure_redis(options: &Options, dir: &Path, limits: Option<&Limits>) -> Result<()> {
    let lasts = Duration::from_secs(options.seconds);
    let Some(redis) = Redis::start(dir).await? else {
        return line("Redis is not installed");
    };
    for &event_bytes in &options.sizes {
        for pipeline in [1, 1000] {
            let outcome = redis.run(event_bytes, pipeline, lasts).await?;
            let shape = Shape { event_bytes, one_in_flight: pipeline == 1 };
            let what = format!("Redis, {event_bytes} B, {pipeline} in flight");
            print_outcome(&what, shape, outcome, limits)?;
        }
    }
    redis.stop().await
}

fn print_limits(limits: &Limits) -> Result<()> {
    let mut sync = limits.sync.clone();
    line("limits of this machine, now")?;
    line(&format!("  fdatasync of 4 KiB    {} ms (p50 / p99 / p99.9)", sync.describe()))?;
    line(&format!("  sequential write      {:.0} MB/s", limits.disk_bytes_per_second / 1e6))?;
    line(&format!("  loopback              {:.0} MB/s", limits.loopback_bytes_per_second / 1e6))?;
    let round_trip = limits.loopback_round_trip.as_secs_f64() * 1e6;
    line(&format!("  loopback round trip   {round_trip:.1} µs"))
}

fn header() -> Result<()> {
    let ack = "ack ms p50 / p99 / p99.9";
    line(&format!(
        "{:44} {:>10} {:>8} {:>8}  {ack:26} {:>8} {:>10}",
        "", "events/s", "MB/s", "of limit", "flush/s", "flush/ack"
    ))
}

#[allow(clippy::cast_precision_loss, reason = "figures to print")]
fn print_outcome(what: &str, load: Shape, mut outcome: Outcome, limits: Option<&Limits>) -> Result<()> {
    let rate = per_second(outcome.events, outcome.elapsed);
    let bytes = rate * load.event_bytes as f64;
    let share = limits.map_or_else(
        || "?".to_owned(),
        |limits| {
            let limit = limits.clone();
            let share = if load.one_in_flight {
                limit.durable_round_trip().as_secs_f64() / outcome.latencies.quantile(500).as_secs_f64()
            } else {
                bytes / limit.disk_bytes_per_second
            };
            format!("{:.0} %", share * 100.0)
        },
    );
    let acks = outcome.latencies.describe();
    let flushes = outcome.flushes.map_or_else(
        || format!("{:>8} {:>10}", "?", "?"),
        |flushes| {
            let each = flushes as f64 / outcome.events.max(1) as f64;
            format!("{:>8.0} {each:>10.5}", per_second(flushes, outcome.elapsed))
        },
    );
    line(&format!("{what:44} {rate:>10.0} {:>8.1} {share:>8}  {acks:26} {flushes}", bytes / 1e6))
}

fn line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
