//! Puts a server under load and takes its long-term storage away for a while.

use anyhow::Result;
use clap::Parser;
use dhara_tests::outage::{self, Trouble};
use dhara_tests::server;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Puts a server under load and takes its long-term storage away for a while.
#[derive(Parser)]
struct Arguments {
    /// What is wrong with long-term storage.
    #[arg(long, value_enum, default_value = "errors")]
    trouble: Trouble,
    /// For `full`: an empty folder on a small file system of its own, which will be filled.
    #[arg(long, required_if_eq("trouble", "full"))]
    folder: Option<PathBuf>,
    /// Seconds of load before and after the trouble.
    #[arg(long, default_value_t = 20)]
    calm: u64,
    /// Seconds of trouble.
    #[arg(long, default_value_t = 60)]
    troubled: u64,
    /// Writers, one to a segment.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    writers: u64,
    /// Bytes that all of them write in a second.
    #[arg(long, default_value_t = 4 << 20)]
    bytes_per_second: u64,
    /// Readers of random places of what was written.
    #[arg(long, default_value_t = 0)]
    historians: u64,
    /// Changes a table and commits transactions all along; only for trouble in which cold reads still work.
    #[arg(long)]
    mixed: bool,
    /// Where all choices come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server; built from this workspace if it is not given.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Its data; a folder that is removed at the end if it is not given.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Further flags of the server, after `--`.
    #[arg(last = true)]
    flags: Vec<String>,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "a program whose purpose is to print")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<outage::Summary> {
    let folder = tempfile::tempdir()?;
    let options = outage::Options {
        binary: arguments.bin.map_or_else(server::binary, Ok)?,
        data: arguments.data.unwrap_or_else(|| folder.path().join("data")),
        trouble: arguments.trouble,
        small: arguments.folder,
        calm: Duration::from_secs(arguments.calm),
        troubled: Duration::from_secs(arguments.troubled),
        writers: arguments.writers,
        bytes_per_second: arguments.bytes_per_second,
        historians: arguments.historians,
        mixed: arguments.mixed,
        flags: arguments.flags,
        seed: arguments.seed,
    };
    outage::run(&options).await
}
