//! The controller transcripts against `dhara standalone`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use dhara_tests::replay::controller::Servers;
use dhara_tests::replay::rpc::Controller;
use dhara_tests::replay::wire::Outcome;
use dhara_tests::{replay, server};
use std::path::Path;

/// Scenarios at the same time: enough that those which wait do not add up.
const JOBS: usize = 8;

fn not_yet_built() -> Vec<String> {
    let text = std::fs::read_to_string(replay::folder("controller").join("not-yet-built.txt")).unwrap();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn is_listed(list: &[String], name: &str) -> bool {
    list.iter()
        .any(|entry| entry == name || entry.strip_suffix('*').is_some_and(|file| name.starts_with(file)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_transcript_of_what_is_built_holds() {
    let list = not_yet_built();
    let whole_files: Vec<&str> = list.iter().filter_map(|entry| entry.strip_suffix('*')).collect();
    let mut scenarios = replay::load(&replay::folder("controller")).unwrap();
    scenarios.retain(|scenario| !whole_files.iter().any(|file| scenario.name.starts_with(file)));

    let data = tempfile::tempdir().unwrap();
    let server = server::Server::start(&server::binary().unwrap(), data.path()).await.unwrap();
    let servers = Servers {
        controller: Controller::new(&server.controller).unwrap(),
        store: server.store.clone(),
        rest: server.rest.clone(),
    };
    let reports = replay::replay_controller(&servers, scenarios, JOBS).await.unwrap();

    let (text, _) = replay::describe(&reports, false);
    println!("{text}");
    let passed = |report: &&replay::Report| matches!(report.outcome, Outcome::Passed);
    let stale: Vec<&str> = reports
        .iter()
        .filter(passed)
        .map(|report| report.name.as_str())
        .filter(|name| is_listed(&list, name))
        .collect();
    assert!(stale.is_empty(), "these hold now, take them out of not-yet-built.txt: {stale:?}");
    let wrong: Vec<replay::Report> =
        reports.into_iter().filter(|report| !passed(&report) && !is_listed(&list, &report.name)).collect();
    let (text, _) = replay::describe(&wrong, false);
    assert!(wrong.is_empty(), "{text}");
    let (status, _) = server.stop().await.unwrap();
    assert!(status.success(), "stopped with {status}");
}

#[test]
fn documentation_names_the_list_of_what_is_not_yet_built() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, section) = text.split_once("## Not yet built").expect("a section about what is not yet built");
    let section = section.split("\n## ").next().unwrap();
    assert!(section.contains("tests/conformance/controller/not-yet-built.txt"), "{section}");
}

#[test]
fn every_entry_of_the_list_names_a_scenario() {
    let scenarios = replay::load(&replay::folder("controller")).unwrap();
    for entry in not_yet_built() {
        let one = std::slice::from_ref(&entry);
        assert!(scenarios.iter().any(|scenario| is_listed(one, &scenario.name)), "{entry} names nothing");
    }
}
