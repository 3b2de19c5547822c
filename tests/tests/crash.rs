//! Rounds of the crash harness: kills, and kills with the power cut.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]

use dhara_tests::power_cut::{Lie, PowerCut};
use dhara_tests::{crash, server};
use std::path::Path;
use std::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_keeps_everything_acked() {
    let folder = tempfile::tempdir().unwrap();
    let options = crash::Options {
        binary: server::binary().unwrap(),
        data: folder.path().join("data"),
        arguments: Vec::new(),
        power_cut: None,
        rounds: 20,
        seed: 1,
        store_only: false,
        life_ms: (30, 400),
    };
    crash::run(&options, |round, told| println!("round {round}: {told:?}")).await.unwrap();
}

/// Rounds whose data passes through log, index and objects within their short lives.
fn with_power_cuts(power_cut: PowerCut, rounds: u32) -> crash::Options {
    crash::Options {
        binary: server::binary().unwrap(),
        data: power_cut.watched().join("data"),
        arguments: ["--tier-after", "1", "--log-budget", "256MiB"].map(str::to_owned).to_vec(),
        power_cut: Some(power_cut),
        rounds,
        seed: 2,
        store_only: false,
        life_ms: (30, 400),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_keeps_everything_acked_when_the_power_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let options = with_power_cuts(PowerCut::inside(folder.path()).unwrap(), 6);
    crash::run(&options, |round, told| println!("round {round}: {told:?}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_of_what_no_flush_kept_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let power_cut = PowerCut::inside(folder.path()).unwrap().with(Lie::DataSync);
    let found = crash::run(&with_power_cuts(power_cut, 6), |_, _| {}).await.unwrap_err();
    let found = format!("{found:#}");
    assert!(found.starts_with("round 2, seed 2: plain segments: "), "{found}");
}

/// What lies below `folder`: the paths of folders, and of files with what is in them.
fn content(folder: &Path, path: &str, found: &mut Vec<String>) {
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let (below, path) = (folder.join(&name), format!("{path}{}", name.to_string_lossy()));
        if below.is_dir() {
            found.push(format!("{path}/"));
            content(&below, &format!("{path}/"), found);
        } else {
            found.push(format!("{path}={}", String::from_utf8_lossy(&std::fs::read(below).unwrap())));
        }
    }
}

#[test]
fn power_cut_keeps_exactly_what_was_flushed() {
    // What a shell does to a folder that durably holds `old` and `below/one`, and what is left of it.
    let cases = [
        ("true", "below/ below/one=1 old=abc"),
        ("printf x > new", "below/ below/one=1 old=abc"),
        ("printf x > new; sync new", "below/ below/one=1 old=abc"),
        ("printf x > new; sync .", "below/ below/one=1 new= old=abc"),
        ("printf x > new; sync new .", "below/ below/one=1 new=x old=abc"),
        ("printf x > new; sync new .; printf y >> new", "below/ below/one=1 new=x old=abc"),
        ("printf x >> old", "below/ below/one=1 old=abc"),
        ("printf x >> old; sync -d old", "below/ below/one=1 old=abcx"),
        ("printf x > old", "below/ below/one=1 old=abc"),
        ("printf x > old; sync old", "below/ below/one=1 old=x"),
        ("truncate -s 1 old", "below/ below/one=1 old=abc"),
        ("truncate -s 1 old; truncate -s 2 old; sync old", "below/ below/one=1 old=a\0"),
        ("mv old name", "below/ below/one=1 old=abc"),
        ("mv old name; sync .", "below/ below/one=1 name=abc"),
        ("printf x > new; sync new; mv new old; sync .", "below/ below/one=1 old=x"),
        ("ln old name; sync .; printf x >> name; sync name", "below/ below/one=1 name=abcx old=abcx"),
        ("rm old", "below/ below/one=1 old=abc"),
        ("rm old; sync .", "below/ below/one=1"),
        ("rm below/one; sync .", "below/ below/one=1 old=abc"),
        ("mkdir a; printf x > a/b; sync a/b a", "below/ below/one=1 old=abc"),
        ("mkdir a; printf x > a/b; sync a/b .", "a/ below/ below/one=1 old=abc"),
        ("mkdir a; printf x > a/b; sync a/b a .", "a/ a/b=x below/ below/one=1 old=abc"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let power_cut = PowerCut::inside(folder.path()).unwrap();
    for (script, left) in cases {
        std::fs::remove_dir_all(power_cut.watched()).unwrap();
        std::fs::create_dir_all(power_cut.watched().join("below")).unwrap();
        std::fs::write(power_cut.watched().join("old"), "abc").unwrap();
        std::fs::write(power_cut.watched().join("below/one"), "1").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(power_cut.watched()).envs(power_cut.environment());
        assert!(shell.status().unwrap().success(), "{script}");
        power_cut.strike().unwrap();
        let mut found = Vec::new();
        content(power_cut.watched(), "", &mut found);
        assert_eq!(found.join(" "), left, "{script}");
    }
}
