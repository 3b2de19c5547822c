//! Kills a server again and again and compares what it promised with what it kept.

use anyhow::Result;
use clap::Parser;
use dhara_tests::power_cut::PowerCut;
use dhara_tests::{crash, server};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Kills a server again and again and compares what it promised with what it kept.
#[derive(Parser)]
struct Arguments {
    /// How many kills.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Where all choices come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server; built from this workspace if it is not given.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Its data; a folder that is removed at the end if it is not given.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Segments and tables only, without streams and transactions.
    #[arg(long)]
    store_only: bool,
    /// Cuts the power with each kill: everything that was not flushed is gone. Linux with a C compiler only.
    #[arg(long)]
    power_cut: bool,
    /// Shortest time that a server works before it is killed, ms.
    #[arg(long, default_value_t = 30)]
    life_ms_min: u64,
    /// Longest time, ms.
    #[arg(long, default_value_t = 500)]
    life_ms_max: u64,
    /// Further arguments of the server.
    #[arg(last = true)]
    server: Vec<String>,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "a program whose purpose is to print")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "a program whose purpose is to print")]
async fn run(arguments: Arguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = arguments.data.unwrap_or_else(|| folder.path().join("data"));
    let power_cut = if arguments.power_cut { Some(PowerCut::inside(&data)?) } else { None };
    let options = crash::Options {
        binary: arguments.bin.map_or_else(server::binary, Ok)?,
        data: power_cut.as_ref().map_or(data, |power_cut| power_cut.watched().join("data")),
        arguments: arguments.server,
        power_cut,
        rounds: arguments.rounds,
        seed: arguments.seed,
        store_only: arguments.store_only,
        life_ms: (arguments.life_ms_min, arguments.life_ms_max.max(arguments.life_ms_min + 1)),
    };
    let mut slowest = Duration::ZERO;
    let mut last = crash::Round::default();
    crash::run(&options, |round, told| {
        slowest = slowest.max(told.ready_after);
        last = told;
        let crash::Round { ready_after, events, transactions, life } = told;
        println!(
            "round {round}: ready in {} ms, {events} events and {transactions} transactions kept, killed after {} ms",
            ready_after.as_millis(),
            life.as_millis()
        );
    })
    .await?;
    println!(
        "{} rounds passed, seed {}: nothing acked lost, doubled or reordered; slowest start {} ms",
        options.rounds,
        options.seed,
        slowest.as_millis()
    );
    Ok(())
}
