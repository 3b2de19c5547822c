//! Worlds by their seeds. `DHARA_SIM_SEEDS=n` runs so many, `DHARA_SIM_SEED=s` one alone; what it broke is printed
//! with the seed, and `cargo run --release -p dhara-segmentstore --example sim --features sim -- --help` tells how to
//! look closer.

use super::*;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of an ordinary run.
const SEEDS: u64 = 100;
/// Seeds that broke a promise once, besides those within the first [`SEEDS`].
const REMEMBERED: &[u64] = &[];
/// The process of a seed that is run several times.
const TELL: &str = "DHARA_SIM_TELL";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

fn seeds() -> Vec<u64> {
    match (number("DHARA_SIM_SEED"), number("DHARA_SIM_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (0..count).collect(),
        (None, None) => (0..SEEDS).chain(REMEMBERED.iter().copied()).collect(),
    }
}

/// Tries all, several at a time; returns what was wrong.
fn each<T: Sync>(all: &[T], one: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        let work = || {
            let mut broken = Vec::new();
            while let Some(this) = all.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) {
                broken.extend(one(this));
            }
            broken
        };
        let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        working.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn no_storm_breaks_a_promise() {
    let seeds = seeds();
    let broken =
        each(&seeds, |seed| run(*seed).err().map(|broken| format!("DHARA_SIM_SEED={seed} {broken}")));
    assert!(broken.is_empty(), "{} of {} seeds:\n{}", broken.len(), seeds.len(), broken.join("\n"));
}

/// Each thing that may go wrong, at each call to disk and store at which it may. One in some runs with the others;
/// `DHARA_SIM_MATRIX=1` runs them all.
#[test]
fn no_single_blow_breaks_a_promise() {
    let step = if number("DHARA_SIM_MATRIX").is_some() { 1 } else { 17 };
    let blows: Vec<Blow> = blows().unwrap().into_iter().step_by(step).collect();
    assert!(blows.len() * step > 500, "{}", blows.len());
    let broken = each(&blows, |blow| run_blow(*blow).err().map(|broken| format!("{blow:?}: {broken}")));
    assert!(broken.is_empty(), "{} of {} blows:\n{}", broken.len(), blows.len(), broken.join("\n"));
}

#[test]
fn seed_is_the_same_world_in_every_process() {
    let seed = 11;
    if number(TELL).is_some() {
        println!("{TELL} {:?}", run(seed));
        return;
    }
    let tell = || {
        let name = "world::tests::seed_is_the_same_world_in_every_process";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let told = child.args(["--exact", name, "--nocapture"]).env(TELL, "1").output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        told.lines().find(|line| line.contains(TELL)).unwrap().to_owned()
    };
    let first = tell();
    assert!(first.contains("hash"), "{first}");
    assert_eq!(first, tell());
    assert_eq!(first, tell());
}

#[test]
fn seeds_are_different_worlds() {
    assert_ne!(run(4).unwrap().hash, run(5).unwrap().hash);
}
