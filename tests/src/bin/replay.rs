//! Replays the conformance transcripts against a running server.

use anyhow::Result;
use clap::Parser;
use dhara_tests::replay;
use std::process::ExitCode;

/// Replays the conformance transcripts against a running server.
#[derive(Parser)]
struct Arguments {
    /// Segment store, HOST:PORT; the wire transcripts run if it is given.
    #[arg(long)]
    store: Option<String>,
    /// Runs only scenarios with this in their names.
    #[arg(long)]
    only: Option<String>,
    /// Wire scenarios that run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Names the scenarios that pass, too.
    #[arg(long)]
    verbose: bool,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "a program whose purpose is to print")]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut good = true;
    if let Some(store) = &arguments.store {
        let reports = replay::replay_wire(store, arguments.only.as_deref(), arguments.jobs).await?;
        let (text, all_good) = replay::describe(&reports, arguments.verbose);
        println!("{text}");
        good &= all_good;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
