//! Replays the conformance transcripts of `tests/conformance` against any server, strictly: no scenario is tried twice
//! and none is left out because the original fails it.
//!
//! The format is described in `tests/conformance/README.md`.

pub mod connection;
pub mod controller;
pub mod layout;
pub mod matcher;
pub mod pattern;
pub mod rest;
pub mod rpc;
pub mod value;
pub mod wire;

use anyhow::{Context, Result};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A reply that is not what the transcript demands; every other error is a fault of the transcript or the network.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// One scenario of a transcript.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// File, without its ending, and name: `02-segment-life/create`.
    pub name: String,
    /// The section of the specification that it shows.
    pub spec: String,
    /// The scenario as it stands in the file.
    pub body: Json,
}

/// How one scenario went.
#[derive(Debug)]
pub struct Report {
    /// Name of the scenario.
    pub name: String,
    /// Its section.
    pub spec: String,
    /// How it ended.
    pub outcome: wire::Outcome,
    /// How long it took.
    pub took: Duration,
}

/// Where the transcripts of `kind` (`wire` or `controller`) lie.
pub fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(kind)
}

/// Reads all scenarios of a folder, in order of their files.
///
/// # Errors
/// If a file cannot be read or is no list of scenarios.
pub fn load(folder: &Path) -> Result<Vec<Scenario>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let file = path.file_stem().and_then(|stem| stem.to_str()).context("a file has a name")?.to_owned();
        let text = std::fs::read_to_string(&path)?;
        let list: Vec<Json> = serde_json::from_str(&text).with_context(|| format!("transcript {file}"))?;
        for body in list {
            let text = |member: &str| body[member].as_str().unwrap_or_default().to_owned();
            scenarios.push(Scenario { name: format!("{file}/{}", text("name")), spec: text("spec"), body });
        }
    }
    Ok(scenarios)
}

/// A token that no other scenario of this or any other run has: names made with it never clash.
pub fn run_token(scenario: usize, chars: usize) -> String {
    #[allow(clippy::disallowed_methods, reason = "names must differ from one process run to the next")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = (since.as_nanos() ^ (u128::from(std::process::id()) << 64)).wrapping_add(scenario as u128);
    let mut state = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let mut token = String::from("c");
    while token.len() < chars {
        state ^= state >> 61;
        state = state.wrapping_mul(0xda94_2042_e4dd_58b5);
        let digit = u32::try_from((state >> 64) % 36).unwrap_or_default();
        token.push(char::from_digit(digit, 36).unwrap_or('0'));
    }
    token
}

/// Replays every wire scenario whose name contains `only`, `jobs` at a time.
///
/// # Errors
/// If the transcripts cannot be read.
pub async fn replay_wire(store: &str, only: Option<&str>, jobs: usize) -> Result<Vec<Report>> {
    let scenarios = load(&folder("wire"))?;
    let chosen: Vec<(usize, Scenario)> = scenarios
        .into_iter()
        .enumerate()
        .filter(|(_, scenario)| only.is_none_or(|part| scenario.name.contains(part)))
        .collect();
    let mut reports = Vec::new();
    for batch in chosen.chunks(jobs.max(1)) {
        let mut running = Vec::new();
        for (at, scenario) in batch.iter().cloned() {
            let store = store.to_owned();
            running.push(tokio::spawn(async move {
                let start = Instant::now();
                let outcome = wire::run_scenario(&store, run_token(at, 13), &scenario.body).await;
                Report { name: scenario.name, spec: scenario.spec, outcome, took: start.elapsed() }
            }));
        }
        for task in running {
            reports.push(task.await?);
        }
    }
    Ok(reports)
}

/// Replays every scenario of `scenarios` against a controller, `jobs` at a time.
///
/// # Errors
/// If a scenario panics.
pub async fn replay_controller(
    servers: &controller::Servers,
    scenarios: Vec<Scenario>,
    jobs: usize,
) -> Result<Vec<Report>> {
    let scenarios: Vec<(usize, Scenario)> = scenarios.into_iter().enumerate().collect();
    let mut reports = Vec::new();
    for batch in scenarios.chunks(jobs.max(1)) {
        let mut running = Vec::new();
        for (at, scenario) in batch.iter().cloned() {
            let servers = servers.clone();
            running.push(tokio::spawn(async move {
                let start = Instant::now();
                let outcome = controller::run_scenario(&servers, run_token(at, 8), &scenario.body).await;
                Report { name: scenario.name, spec: scenario.spec, outcome, took: start.elapsed() }
            }));
        }
        for task in running {
            reports.push(task.await?);
        }
    }
    Ok(reports)
}

/// The lines that tell how `reports` went, failures in full, and the closing line.
pub fn describe(reports: &[Report], verbose: bool) -> (String, bool) {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut lines = Vec::new();
    for report in reports {
        let took = report.took.as_millis();
        match &report.outcome {
            wire::Outcome::Passed => {
                passed += 1;
                if verbose {
                    lines.push(format!("ok    {}  ({took} ms)", report.name));
                }
            }
            wire::Outcome::Skipped(why) => {
                skipped += 1;
                lines.push(format!("skip  {}  ({why})", report.name));
            }
            wire::Outcome::Failed(why) => {
                failed += 1;
                lines.push(format!("FAIL  {}  [spec {}] ({took} ms)\n    {why}", report.name, report.spec));
            }
        }
    }
    lines.push(format!("{passed} passed, {failed} failed, {skipped} skipped"));
    (lines.join("\n"), passed > 0 && failed == 0 && skipped == 0)
}
