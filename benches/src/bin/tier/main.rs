//! What long-term storage costs and gives: reading from it, writing to it, starting without it.
//!
//! Every run starts a Dhara of its own in a new folder and removes the folder afterwards. Build both with `--release`.

mod catchup;
mod outage;
mod probe;
mod recover;
mod trickle;
mod world;
mod writers;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dhara_stdx::{Entropy, SystemEntropy};
use std::path::PathBuf;
use world::World;

/// Measures Dhara's long-term storage.
#[derive(Debug, Parser)]
struct Options {
    /// The server's binary; without it, `dhara` beside this one.
    #[arg(long, global = true, value_name = "FILE", env = "DHARA_BIN")]
    binary: Option<PathBuf>,
    /// Folder for the data of what is started here.
    #[arg(long, global = true, value_name = "DIR", default_value = "./bench-data")]
    data: PathBuf,
    /// Where long-term storage is, as for `dhara standalone --object-store`; without it, a folder among the data.
    #[arg(long, global = true, value_name = "URL")]
    tier: Option<String>,
    /// Address of the object store instead of the provider's own; http:// is allowed.
    #[arg(long, global = true, value_name = "URL", requires = "tier")]
    tier_endpoint: Option<String>,
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Debug, Subcommand)]
enum Measure {
    /// Reads a stream from long-term storage into a cold server, and what that does to readers at the tail.
    Catchup(catchup::Catchup),
    /// Takes long-term storage away and gives it back under writers and readers at the tail.
    Outage(outage::Outage),
    /// Appends a little to many segments: objects a second, latency, memory.
    Trickle(trickle::Trickle),
    /// Starts a server whose log holds much that is in no object.
    Recover(recover::Recover),
    /// Looks up writers and table keys among many, present and absent.
    Writers(writers::Writers),
}

/// Time slice of the threads that measure: short, so that they see an answer soon after it comes on a busy machine too.
const SLICE_US: u32 = 100;

fn main() -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().on_thread_start(|| {
        dhara_stdx::sched::shape_thread(SLICE_US, 0);
    });
    runtime.build()?.block_on(run())
}

async fn run() -> Result<()> {
    let options = Options::parse();
    let run = format!("{:08x}", SystemEntropy::new()?.next_u64() >> 32);
    let data = options.data.join(run);
    std::fs::create_dir_all(&data)?;
    let world = World::new(options.binary, data.clone(), options.tier, options.tier_endpoint)?;
    let done = match options.measure {
        Measure::Catchup(catchup) => catchup.run(&world).await,
        Measure::Outage(outage) => outage.run(&world).await,
        Measure::Trickle(trickle) => trickle.run(&world).await,
        Measure::Recover(recover) => recover.run(&world).await,
        Measure::Writers(writers) => writers.run(&world).await,
    };
    std::fs::remove_dir_all(&data)?;
    done
}
