//! Damaged bytes of every format: nothing panics, nothing takes memory that its bytes do not pay for, and whatever is
//! understood is understood the same a second time.
//!
//! `cargo test` runs a few thousand cases of a fixed seed. `DHARA_FUZZ_SECONDS=600` goes on with fresh seeds for so
//! long; what it finds is named by target and seed, and `DHARA_FUZZ_SEED` begins there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

mod chance;
mod index;
mod log;
mod object;
mod record;
mod wire;

use chance::Chance;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::time::Instant;

/// A kind of bytes, and how to try one damaged sample of it: whether it was understood.
struct Target {
    name: &'static str,
    /// Cases for each seed; those of slow targets are few.
    cases: u32,
    case: fn(&mut Chance) -> bool,
    /// Of a thousand samples at least so many are understood in spite of the damage: else nothing is tried.
    understood_min: u32,
}

const TARGETS: &[Target] = &[
    Target { name: "records in a batch", cases: 4_000, case: log::walk, understood_min: 100 },
    Target { name: "log file", cases: 60, case: log::recover, understood_min: 50 },
    Target {
        name: "log file with right checksums",
        cases: 60,
        case: log::recover_forged,
        understood_min: 20,
    },
    Target { name: "record body", cases: 8_000, case: record::body, understood_min: 100 },
    Target { name: "object", cases: 1_000, case: object::damaged, understood_min: 1 },
    Target { name: "object with right checksums", cases: 2_000, case: object::forged, understood_min: 20 },
    Target { name: "row of a segment", cases: 4_000, case: index::segment, understood_min: 300 },
    Target { name: "row of an extent", cases: 4_000, case: index::extent, understood_min: 300 },
    Target {
        name: "row of an object or of what is applied",
        cases: 4_000,
        case: index::small,
        understood_min: 300,
    },
    Target { name: "index key", cases: 4_000, case: index::key, understood_min: 50 },
    Target { name: "wire frame", cases: 8_000, case: wire::frame, understood_min: 100 },
];

/// Address space that a whole run may take besides what it had; a length believed before its bytes came takes more.
const GROWTH_KIB_MAX: u64 = 512 * 1024;

/// Most address space that this process ever had, KiB: room that was reserved counts, touched or not.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

/// Tries a target with one seed; how many samples it understood.
fn run(target: &Target, seed: u64) -> u32 {
    let mut chance = Chance::new(seed);
    let mut understood = 0;
    for case in 0..target.cases {
        let tried = catch_unwind(AssertUnwindSafe(|| (target.case)(&mut chance)));
        // The panic itself was printed where it happened.
        let one = tried.ok().unwrap_or_else(|| panic!("{}: case {case} of seed {seed}", target.name));
        understood += u32::from(one);
    }
    understood
}

#[test]
fn damaged_bytes_are_refused_or_understood_the_same_twice() {
    let first = number("DHARA_FUZZ_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(number("DHARA_FUZZ_SECONDS").unwrap_or(0));
    let before = peak_kib();
    for seed in first.. {
        for target in TARGETS {
            let understood = run(target, seed);
            assert!(
                understood * 1_000 >= target.understood_min * target.cases && understood < target.cases,
                "{}: {understood} of {} understood with seed {seed}",
                target.name,
                target.cases
            );
        }
        let grown = peak_kib() - before;
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB after seed {seed}");
        if Instant::now() >= end {
            break;
        }
    }
}
