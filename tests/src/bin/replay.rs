//! Replays the conformance transcripts against a running server.

use anyhow::Result;
use clap::Parser;
use dhara_tests::replay;
use dhara_tests::replay::controller::Servers;
use dhara_tests::replay::rpc::Controller;
use std::process::ExitCode;

/// Replays the conformance transcripts against a running server.
#[derive(Parser)]
struct Arguments {
    /// Segment store, HOST:PORT; the wire transcripts run if it is given.
    #[arg(long)]
    store: Option<String>,
    /// Controller, HOST:PORT; the controller transcripts run if it is given, with the store and REST too.
    #[arg(long, requires = "store", requires = "rest")]
    controller: Option<String>,
    /// REST, http://HOST:PORT.
    #[arg(long)]
    rest: Option<String>,
    /// Leaves the wire transcripts out.
    #[arg(long)]
    controller_only: bool,
    /// Runs the requests that leave lasting damage in Pravega, too.
    #[arg(long)]
    hostile: bool,
    /// Runs only scenarios with this in their names.
    #[arg(long)]
    only: Option<String>,
    /// Scenarios that run at the same time.
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
    if let Some(store) = arguments.store.as_ref().filter(|_| !arguments.controller_only) {
        let reports = replay::replay_wire(store, arguments.only.as_deref(), arguments.jobs).await?;
        let (text, all_good) = replay::describe(&reports, arguments.verbose);
        println!("{text}");
        good &= all_good;
    }
    if let (Some(controller), Some(store), Some(rest)) =
        (&arguments.controller, arguments.store, arguments.rest)
    {
        let controller = Controller::new(controller)?;
        let mut scenarios = replay::load(&replay::folder("controller"))?;
        // These need a server with accounts.
        scenarios.retain(|scenario| !scenario.name.starts_with("auth/"));
        scenarios.retain(|scenario| arguments.hostile || !scenario.name.starts_with("hostile/"));
        scenarios.retain(|scenario| arguments.only.as_ref().is_none_or(|part| scenario.name.contains(part)));
        let servers = Servers { controller, store, rest };
        let reports = replay::replay_controller(&servers, scenarios, arguments.jobs).await?;
        let (text, all_good) = replay::describe(&reports, arguments.verbose);
        println!("{text}");
        good &= all_good;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
