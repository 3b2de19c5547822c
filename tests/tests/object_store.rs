//! A server whose long-term storage is a bucket that comes and goes.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]

use bytes::Bytes;
use dhara_tests::outage::{self, Trouble};
use dhara_tests::s3::{BUCKET, Outage, S3Server};
use dhara_tests::server::{self, Server, Starting};
use dhara_tests::session::{Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{Command, FlushToStorage};
use std::path::Path;
use std::time::Duration;

const SEGMENT: &str = "bucket/stream/0.#epoch.0";
const WRITER: Uuid = Uuid(7);

fn spawn(folder: &Path, s3: &S3Server) -> Starting {
    let place = format!("s3://{BUCKET}/dhara");
    let endpoint = s3.endpoint();
    let more = ["--object-store", &place, "--object-store-endpoint", &endpoint, "--object-store-allow-http"];
    let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key"), ("AWS_REGION", "us-east-1")];
    Server::spawn(&server::binary().unwrap(), folder, &more, &keys).unwrap()
}

async fn start(folder: &Path, s3: &S3Server) -> Server {
    spawn(folder, s3).ready().await.unwrap()
}

/// Appends an event and waits until it is acknowledged.
async fn write(session: &mut Session, number: i64) {
    let event = Bytes::from(format!("event {number:06}"));
    for frame in append(Shape::Alone, WRITER, &[event], number, number) {
        session.send(frame).await.unwrap();
    }
    let reply = session.reply().await.unwrap();
    assert!(
        matches!(&reply, Some(Command::DataAppended(acked)) if acked.event_number == number),
        "{reply:?}"
    );
}

fn flush() -> FlushToStorage {
    FlushToStorage { container_id: 0, delegation_token: String::new(), request_id: 900 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_waits_for_its_object_store_and_outlives_its_outages() {
    let s3 = S3Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();

    // Down at the start: the server waits and opens by itself.
    s3.knobs().outage = Outage::Errors;
    let healing = async {
        while s3.counts().writes() == 0 {
            tokio::task::yield_now().await;
        }
        s3.knobs().outage = Outage::None;
    };
    let (server, ()) = tokio::join!(start(folder.path(), &s3), healing);

    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, WRITER).await.unwrap();
    for number in 1..=100 {
        write(&mut session, number).await;
    }
    assert!(matches!(session.ask(flush()).await.unwrap(), Some(Command::StorageFlushed(_))));

    // Down again: a known writer goes on and its bytes are read at the tail; a flush waits.
    let stored = session.info(SEGMENT).await.unwrap().unwrap().write_offset;
    s3.knobs().outage = Outage::Errors;
    let mut asking = Session::open(&server.store).await.unwrap().unwrap();
    asking.send(flush()).await.unwrap();
    for number in 101..=200 {
        write(&mut session, number).await;
    }
    let length = session.info(SEGMENT).await.unwrap().unwrap().write_offset;
    let tail = session.read_range(SEGMENT, stored, length).await.unwrap();
    assert_eq!(i64::try_from(tail.len()).unwrap(), length - stored);

    // Back: what waited goes on by itself, and what was killed then is all there.
    s3.knobs().outage = Outage::None;
    assert!(matches!(asking.reply().await.unwrap(), Some(Command::StorageFlushed(_))));
    let all = session.read_range(SEGMENT, 0, length).await.unwrap();
    assert!(matches!(session.ask(flush()).await.unwrap(), Some(Command::StorageFlushed(_))));
    server.kill().await.unwrap();
    let server = start(folder.path(), &s3).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    assert_eq!(session.read_range(SEGMENT, 0, length).await.unwrap(), all);
    assert_eq!(session.setup(SEGMENT, WRITER).await.unwrap(), Some(200));
    server.kill().await.unwrap();
}

async fn stops_in_time(outage: Outage) {
    let s3 = S3Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &s3).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    session.create(SEGMENT).await.unwrap();
    session.setup(SEGMENT, WRITER).await.unwrap();
    write(&mut session, 1).await;
    s3.knobs().outage = outage;
    write(&mut session, 2).await;
    let (status, _printed) = server.stop().await.unwrap();
    assert!(status.success(), "{outage:?}: {status}");

    s3.knobs().outage = Outage::None;
    let server = start(folder.path(), &s3).await;
    let mut session = Session::open(&server.store).await.unwrap().unwrap();
    assert_eq!(session.setup(SEGMENT, WRITER).await.unwrap(), Some(2), "{outage:?}");
    server.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_stops_in_time_whatever_its_object_store_does() {
    tokio::join!(stops_in_time(Outage::Errors), stops_in_time(Outage::Silence));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_waits_for_its_object_store_stops_when_it_is_asked_to() {
    let s3 = S3Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    s3.knobs().outage = Outage::Errors;
    let starting = spawn(folder.path(), &s3);
    while s3.counts().writes() == 0 {
        tokio::task::yield_now().await;
    }
    let (status, printed) = starting.stop().await.unwrap();
    assert!(status.success() && printed.is_empty(), "{status}: {printed}");
}

/// A short run of the outage harness.
async fn outlives(trouble: Trouble) {
    let folder = tempfile::tempdir().unwrap();
    let options = outage::Options {
        binary: server::binary().unwrap(),
        data: folder.path().join("data"),
        trouble,
        small: None,
        calm: Duration::from_secs(1),
        troubled: Duration::from_secs(3),
        writers: 3,
        bytes_per_second: 1 << 20,
        // History and tables are looked up in the store, which must answer at times.
        historians: u64::from(trouble == Trouble::Faults),
        mixed: trouble == Trouble::Faults,
        flags: ["--tier-after", "1", "--log-budget", "256MiB"].map(str::to_owned).to_vec(),
        seed: 1,
    };
    let summary = outage::run(&options).await.unwrap();
    for (phase, measured) in &summary.phases {
        assert!(!measured.acks.is_empty() && !measured.tails.is_empty(), "{trouble:?}, {phase:?}: no load");
    }
    assert_eq!(summary.transactions > 0, options.mixed, "{trouble:?}: transactions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loaded_server_outlives_a_store_that_is_gone_and_one_that_lies() {
    tokio::join!(outlives(Trouble::Gone), outlives(Trouble::Faults));
}
