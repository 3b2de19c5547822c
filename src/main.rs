//! The one binary: servers and command line.

mod cli;
mod config;
mod standalone;

use clap::Parser;
use std::io::Write;
use std::pin::Pin;
use std::process::ExitCode;

/// Time slice of the threads that answer: short, so that they run soon after they are woken, whoever is busy beside them.
const SLICE_US: u32 = 200;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if standard error is gone too.
            drop(writeln!(std::io::stderr(), "dhara: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let cli = cli::Cli::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().on_thread_start(|| {
        dhara_stdx::sched::shape_thread(SLICE_US, 0);
    });
    let runtime = runtime.build()?;
    // Boxed, since `block_on` would make a copy of everything behind it for each kind of runtime.
    let command: Pin<Box<dyn Future<Output = _>>> = Box::pin(cli.run());
    let done = runtime.block_on(command);
    // A task blocked on standard input would hold the process until the next line.
    runtime.shutdown_background();
    Ok(done?)
}
