//! What a writer learns by SetupAppend is true, wherever and whenever it asks (invariant 10).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use bytes::Bytes;
use dhara_tests::server::{self, Server};
use dhara_tests::session::{NEVER_WROTE, Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{Command, DeleteSegment, MergeSegments, SealSegment, SetupAppend, TruncateSegment};
use std::time::Duration;
use tokio::time::timeout;

const SEGMENT: &str = "truths/stream/0.#epoch.0";
const WRITER: Uuid = Uuid(7);
/// Events that the writer has written.
const WRITTEN: i64 = 40;
/// Other writers of the same segment.
const OTHERS: u32 = 10_000;
/// How long a setup may take; a debug build on a shared machine gets more.
const SETUP_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });

fn payload(number: i64) -> Bytes {
    Bytes::from(format!("event {number:04}"))
}

async fn open(server: &Server) -> Session {
    Session::open(&server.store).await.unwrap().expect("the server is there")
}

async fn write(session: &mut Session, segment: &str, writer: Uuid, numbers: std::ops::RangeInclusive<i64>) {
    let last = session.setup(segment, writer).await.unwrap();
    assert!(last.is_some_and(|last| last < *numbers.start()), "set up at {last:?}");
    for number in numbers.clone() {
        for frame in append(Shape::Alone, writer, &[payload(number)], number, number) {
            session.send(frame).await.unwrap();
        }
    }
    for number in numbers {
        match session.reply().await.unwrap() {
            Some(Command::DataAppended(ack)) => {
                assert_eq!((ack.event_number, ack.request_id), (number, number));
            }
            other => panic!("writing {number}: {other:?}"),
        }
    }
}

async fn length(session: &mut Session, segment: &str) -> i64 {
    session.info(segment).await.unwrap().unwrap().write_offset
}

/// Sets up on `session` and then tries to write each of the last events again, on connections of their own.
async fn check(server: &Server, session: &mut Session, when: &str) {
    let last = timeout(SETUP_WITHIN, session.setup(SEGMENT, WRITER)).await.expect("a setup in time").unwrap();
    assert_eq!(last, Some(WRITTEN), "{when}");
    let before = length(session, SEGMENT).await;
    for number in WRITTEN - 5..=WRITTEN {
        let mut again = open(server).await;
        assert_eq!(again.setup(SEGMENT, WRITER).await.unwrap(), Some(WRITTEN), "{when}");
        for frame in append(Shape::Exact, WRITER, &[payload(number)], number, 1) {
            again.send(frame).await.unwrap();
        }
        match again.reply().await.unwrap() {
            None => {}
            Some(Command::InvalidEventNumber(reply)) => {
                assert_eq!((reply.writer_id, reply.request_id), (WRITER, 1), "{when}");
                assert!(again.reply().await.unwrap().is_none(), "{when}: the connection must close");
            }
            Some(other) => panic!("{when}: event {number} again: {other:?}"),
        }
    }
    assert_eq!(length(&mut open(server).await, SEGMENT).await, before, "{when}: the segment grew");
}

async fn others_write(session: &mut Session) {
    let writer = |number: u32| Uuid(u128::from(number) + 1_000);
    for batch in (0..OTHERS).collect::<Vec<_>>().chunks(500) {
        for number in batch {
            let segment = SEGMENT.to_owned();
            let request_id = i64::from(*number);
            let setup = SetupAppend {
                request_id,
                writer_id: writer(*number),
                segment,
                delegation_token: String::new(),
            };
            session.send(setup).await.unwrap();
        }
        for _ in batch {
            match session.reply().await.unwrap() {
                Some(Command::AppendSetup(reply)) => assert_eq!(reply.last_event_number, NEVER_WROTE),
                other => panic!("setting up: {other:?}"),
            }
        }
        for number in batch {
            for frame in append(Shape::Alone, writer(*number), &[payload(1)], 1, i64::from(*number)) {
                session.send(frame).await.unwrap();
            }
        }
        for _ in batch {
            assert!(matches!(session.reply().await.unwrap(), Some(Command::DataAppended(_))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_tells_the_last_durable_number_whatever_happened_since() {
    let data = tempfile::tempdir().unwrap();
    let binary = server::binary().unwrap();
    let server = Server::start(&binary, data.path()).await.unwrap();
    let mut first = open(&server).await;
    first.create(SEGMENT).await.unwrap();
    write(&mut first, SEGMENT, WRITER, 1..=WRITTEN).await;
    check(&server, &mut first, "on the same connection").await;
    check(&server, &mut open(&server).await, "on another connection").await;
    others_write(&mut first).await;
    check(&server, &mut first, "with many other writers").await;
    server.stop().await.unwrap();

    let server = Server::start(&binary, data.path()).await.unwrap();
    check(&server, &mut open(&server).await, "after a restart").await;
    server.kill().await.unwrap();

    let server = Server::start(&binary, data.path()).await.unwrap();
    let mut session = open(&server).await;
    check(&server, &mut session, "after a kill").await;
    let truncation_offset = length(&mut session, SEGMENT).await;
    let truncate = TruncateSegment {
        request_id: 1,
        segment: SEGMENT.to_owned(),
        truncation_offset,
        delegation_token: String::new(),
    };
    assert!(matches!(session.ask(truncate).await.unwrap(), Some(Command::SegmentTruncated(_))));
    check(&server, &mut session, "after a truncation to the tail").await;
    server.kill().await.unwrap();

    let server = Server::start(&binary, data.path()).await.unwrap();
    check(&server, &mut open(&server).await, "after a truncation and a kill").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_on_a_segment_that_takes_no_appends_tells_so() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&server::binary().unwrap(), data.path()).await.unwrap();
    let mut session = open(&server).await;
    let (sealed, deleted) = ("truths/sealed/0.#epoch.0".to_owned(), "truths/deleted/0.#epoch.0".to_owned());
    let (source, target) = ("truths/source/0.#epoch.0".to_owned(), "truths/target/0.#epoch.0".to_owned());
    for segment in [&sealed, &deleted, &source, &target] {
        session.create(segment).await.unwrap();
        write(&mut session, segment, WRITER, 1..=3).await;
    }
    let token = String::new;
    let seal = SealSegment { request_id: 1, segment: sealed.clone(), delegation_token: token() };
    assert!(matches!(session.ask(seal).await.unwrap(), Some(Command::SegmentSealed(_))));
    let delete = DeleteSegment { request_id: 2, segment: deleted.clone(), delegation_token: token() };
    assert!(matches!(session.ask(delete).await.unwrap(), Some(Command::SegmentDeleted(_))));
    let merge = MergeSegments {
        request_id: 3,
        target: target.clone(),
        source: source.clone(),
        delegation_token: token(),
        attribute_updates: Vec::new(),
    };
    assert!(matches!(session.ask(merge).await.unwrap(), Some(Command::SegmentsMerged(_))));

    let mut session = open(&server).await;
    assert_eq!(session.setup(&sealed, WRITER).await.unwrap(), Some(3), "a sealed segment tells what it has");
    for frame in append(Shape::Alone, WRITER, &[payload(4)], 4, 44) {
        session.send(frame).await.unwrap();
    }
    match session.reply().await.unwrap() {
        Some(Command::SegmentIsSealed(reply)) => assert_eq!(reply.request_id, 44),
        other => panic!("writing to a sealed segment: {other:?}"),
    }
    assert_eq!(
        session.setup(&target, WRITER).await.unwrap(),
        Some(3),
        "a merge changes no writer of the target"
    );
    for gone in [deleted, source, "truths/unknown/0.#epoch.0".to_owned()] {
        let setup = SetupAppend {
            request_id: 9,
            writer_id: WRITER,
            segment: gone.clone(),
            delegation_token: token(),
        };
        match session.ask(setup).await.unwrap() {
            Some(Command::NoSuchSegment(reply)) => assert_eq!((reply.request_id, &reply.segment), (9, &gone)),
            other => panic!("setting up on {gone}: {other:?}"),
        }
    }
}
