//! Runs simulated worlds by their seeds until one breaks a promise.
//!
//! `cargo run --release -p dhara-segmentstore --example sim --features sim -- --seeds 10000`

#![allow(clippy::print_stdout, reason = "the output is what the program is for")]

use dhara_segmentstore::world::{blows, run, run_blow, run_traced};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

const HELP: &str = "\
Runs simulated worlds by their seeds.

  --seeds N     run so many (default 1000)
  --from S      beginning with this seed (default 0)
  --threads N   at a time (default: one for each core)
  --seed S      run this one alone
  --trace FILE  and write down each of its steps
  --matrix N    run a calm world with each single blow, every Nth of them
";

struct Arguments {
    seeds: u64,
    from: u64,
    threads: u64,
    seed: Option<u64>,
    trace: Option<String>,
    matrix: Option<usize>,
}

fn arguments() -> Option<Arguments> {
    let threads = std::thread::available_parallelism().ok()?.get();
    let threads = u64::try_from(threads).ok()?;
    let mut arguments = Arguments { seeds: 1_000, from: 0, threads, seed: None, trace: None, matrix: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--seeds" => arguments.seeds = value.parse().ok()?,
            "--from" => arguments.from = value.parse().ok()?,
            "--threads" => arguments.threads = value.parse().ok()?,
            "--seed" => arguments.seed = Some(value.parse().ok()?),
            "--trace" => arguments.trace = Some(value),
            "--matrix" => arguments.matrix = value.parse().ok().filter(|step| *step > 0),
            _ => return None,
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        println!("{HELP}");
        return ExitCode::FAILURE;
    };
    let broken = match (arguments.seed, arguments.matrix) {
        (Some(seed), _) => one(seed, arguments.trace.as_deref()),
        (None, Some(step)) => matrix(step),
        (None, None) => many(&arguments),
    };
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, trace: Option<&str>) -> u64 {
    let (outcome, lines) = run_traced(seed, trace.is_some());
    println!("{outcome:?}");
    if let Some(path) = trace
        && let Err(error) = std::fs::write(path, lines.join("\n"))
    {
        println!("{path}: {error}");
    }
    u64::from(outcome.is_err())
}

fn matrix(step: usize) -> u64 {
    let blows = match blows() {
        Ok(blows) => blows,
        Err(violation) => {
            println!("calm: {violation}");
            return 1;
        }
    };
    let mut broken = 0;
    for blow in blows.iter().step_by(step) {
        if let Err(violation) = run_blow(*blow) {
            broken += 1;
            println!("{blow:?}\n  {violation}");
        }
    }
    println!("{} blows, {broken} broke a promise", blows.len().div_ceil(step));
    broken
}

/// Runs many, and tells how to run again those that break a promise.
fn many(arguments: &Arguments) -> u64 {
    let (next, broken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (steps, blows, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= arguments.seeds {
                        return;
                    }
                    match run(arguments.from + at) {
                        Ok(outcome) => {
                            steps.fetch_add(outcome.steps, Ordering::Relaxed);
                            blows.fetch_add(outcome.blows, Ordering::Relaxed);
                            events.fetch_add(outcome.events, Ordering::Relaxed);
                        }
                        Err(violation) => {
                            broken.fetch_add(1, Ordering::Relaxed);
                            println!("--seed {}\n  {violation}", violation.seed);
                        }
                    }
                    if (at + 1).is_multiple_of(500) {
                        println!("{} seeds", at + 1);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner();
    println!(
        "{} seeds, {broken} broke a promise: {} steps, {} blows, {} events",
        arguments.seeds,
        steps.into_inner(),
        blows.into_inner(),
        events.into_inner()
    );
    broken
}
