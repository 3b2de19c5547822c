//! The wire transcripts against `dhara standalone`.

use dhara_tests::{replay, server};

/// Scenarios at the same time: enough that those which wait do not add up.
const JOBS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wire_transcript_holds() {
    let data = tempfile::tempdir().unwrap();
    let server = server::Server::start(&server::binary().unwrap(), data.path()).await.unwrap();
    let reports = replay::replay_wire(&server.store, None, JOBS).await.unwrap();
    let (text, good) = replay::describe(&reports, false);
    println!("{text}");
    assert!(good, "{text}");
    let (status, _) = server.stop().await.unwrap();
    assert!(status.success(), "stopped with {status}");
}
