//! The load of segments, asked for over a bare connection to a store of this process, whose clock the test moves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use bytes::Bytes;
use dhara_segmentstore::container::Rules;
use dhara_segmentstore::read::ReadConfig;
use dhara_segmentstore::store::{Seams, SegmentStore, StoreConfig};
use dhara_segmentstore::tier::BackendOptions;
use dhara_stdx::clock::ManualClock;
use dhara_stdx::disk::RealDisk;
use dhara_stdx::entropy::SeededEntropy;
use dhara_tests::session::{Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{Command, CreateSegment, LoadRead, ReadLoad};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT: &str = "load/stream/0.#epoch.0";
const WRITER: Uuid = Uuid(3);
const TICK_MS: i64 = 5_000;

async fn start(data: &Path, clock: &Arc<ManualClock>) -> SegmentStore {
    let config = StoreConfig {
        data: data.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        containers: 1,
        log_budget_bytes: 1 << 30,
        object_store: None,
        backend: BackendOptions::default(),
        rules: Rules::default(),
        read: ReadConfig::default(),
        index_cache_bytes: 16 << 20,
        connections_max: 16,
    };
    let entropy = Arc::new(SeededEntropy::new(1));
    SegmentStore::start(&config, Seams { disk: Arc::new(RealDisk), clock: clock.clone(), entropy })
        .await
        .unwrap()
}

async fn connect(store: &SegmentStore) -> Session {
    Session::open(&store.local_addr().to_string()).await.unwrap().expect("the store is there")
}

async fn create(session: &mut Session, segment: &str, scale_type: i8) {
    let request = CreateSegment {
        request_id: session.request_id(),
        segment: segment.to_owned(),
        target_rate: 10,
        scale_type,
        delegation_token: String::new(),
        rollover_size_bytes: 0,
    };
    let reply = session.ask(request).await.unwrap();
    assert!(matches!(reply, Some(Command::SegmentCreated(_))), "{reply:?}");
}

async fn write(session: &mut Session, number: i64) {
    let event = Bytes::from_static(b"one event of some bytes");
    for frame in append(Shape::Alone, WRITER, &[event], number, number) {
        session.send(frame).await.unwrap();
    }
    let reply = session.reply().await.unwrap();
    assert!(matches!(reply, Some(Command::DataAppended(_))), "{reply:?}");
}

fn read(session: &mut Session, cursor: i64, wait_ms: i32) -> ReadLoad {
    let request_id = session.request_id();
    ReadLoad { request_id, container_id: 0, cursor, after: -1, wait_ms, delegation_token: String::new() }
}

fn told(reply: Option<Command>) -> LoadRead {
    match reply {
        Some(Command::LoadRead(read)) => read,
        other => panic!("asked for load and got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_hears_of_load_at_once_when_it_waits_and_again_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let store = start(data.path(), &clock).await;
    let (mut client, mut controller) = (connect(&store).await, connect(&store).await);
    create(&mut client, SEGMENT, 2).await;
    create(&mut client, "load/fixed/0.#epoch.0", 0).await;
    client.setup(SEGMENT, WRITER).await.unwrap();
    for number in 1..=10 {
        write(&mut client, number).await;
        clock.advance(TICK_MS);
    }
    let request = read(&mut controller, -1, 60_000);
    let all = told(controller.ask(request.clone()).await.unwrap());
    assert_eq!((all.request_id, all.container_id, all.container_count), (request.request_id, 0, 1));
    assert_eq!((all.next, all.loads.len()), (-1, 1));
    let load = &all.loads[0];
    assert_eq!((&*load.segment, load.scale_type, load.target_rate), (SEGMENT, 2, 10));
    assert_eq!(load.age_ms, 10 * TICK_MS);
    assert!(load.rates.iter().all(|rate| (rate.0 - 0.2).abs() < 1e-9), "{:?}", load.rates);

    let request = read(&mut controller, all.cursor, 60_000);
    controller.send(request).await.unwrap();
    write(&mut client, 11).await;
    let news = told(controller.reply().await.unwrap());
    assert_eq!((news.loads.len(), news.cursor), (1, all.cursor + 1));
    let request = read(&mut controller, news.cursor, 1);
    let none = told(controller.ask(request).await.unwrap());
    assert_eq!(none.cursor, news.cursor);

    clock.advance(TICK_MS);
    store.stop().await;
    assert!(controller.reply().await.unwrap().is_none(), "nothing is sent that was not asked for");
    let store = start(data.path(), &clock).await;
    let mut controller = connect(&store).await;
    let request = read(&mut controller, -1, 0);
    let again = told(controller.ask(request).await.unwrap());
    let load = &again.loads[0];
    assert!(load.rates.iter().all(|rate| (rate.0 - 0.2).abs() < 1e-9), "{:?}", load.rates);
    let other = ReadLoad { container_id: 1, ..read(&mut controller, -1, 0) };
    assert!(controller.ask(other).await.unwrap().is_none(), "there is no such container");
    let stopped = tokio::time::timeout(Duration::from_secs(30), store.stop()).await;
    assert!(stopped.is_ok());
}
