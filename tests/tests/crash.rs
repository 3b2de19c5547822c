//! Twenty rounds of the crash harness.

use dhara_tests::{crash, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_keeps_everything_acked() {
    let folder = tempfile::tempdir().unwrap();
    let options = crash::Options {
        binary: server::binary().unwrap(),
        data: folder.path().join("data"),
        rounds: 20,
        seed: 1,
        store_only: false,
        life_ms: (30, 400),
    };
    crash::run(&options, |round, told| println!("round {round}: {told:?}")).await.unwrap();
}
