//! Every request that changes a segment, twice and in the wrong order, on two connections at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of the test functions themselves"
)]

use bytes::Bytes;
use dhara_tests::server::{self, Server};
use dhara_tests::session::{Session, Shape, append};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{
    Command, CreateSegment, CreateTableSegment, DeleteSegment, DeleteTableSegment, MergeSegments,
    SealSegment, TruncateSegment,
};

const TOKEN: String = String::new();

async fn open(server: &Server) -> Session {
    Session::open(&server.store).await.unwrap().expect("the server is there")
}

fn create(request_id: i64, segment: &str) -> Command {
    let segment = segment.to_owned();
    let (target_rate, scale_type, rollover_size_bytes) = (0, 0, 0);
    CreateSegment {
        request_id,
        segment,
        target_rate,
        scale_type,
        delegation_token: TOKEN,
        rollover_size_bytes,
    }
    .into()
}

fn seal(request_id: i64, segment: &str) -> Command {
    SealSegment { request_id, segment: segment.to_owned(), delegation_token: TOKEN }.into()
}

fn delete(request_id: i64, segment: &str) -> Command {
    DeleteSegment { request_id, segment: segment.to_owned(), delegation_token: TOKEN }.into()
}

fn truncate(request_id: i64, segment: &str, truncation_offset: i64) -> Command {
    TruncateSegment { request_id, segment: segment.to_owned(), truncation_offset, delegation_token: TOKEN }
        .into()
}

fn merge(request_id: i64, target: &str, source: &str) -> Command {
    MergeSegments {
        request_id,
        target: target.to_owned(),
        source: source.to_owned(),
        delegation_token: TOKEN,
        attribute_updates: Vec::new(),
    }
    .into()
}

fn create_table(request_id: i64, segment: &str) -> Command {
    CreateTableSegment {
        request_id,
        segment: segment.to_owned(),
        delegation_token: TOKEN,
        sorted_deprecated: false,
        key_length: 0,
        rollover_size_bytes: 0,
    }
    .into()
}

fn delete_table(request_id: i64, segment: &str) -> Command {
    let must_be_empty = true;
    DeleteTableSegment { request_id, segment: segment.to_owned(), must_be_empty, delegation_token: TOKEN }
        .into()
}

/// Two connections that send the same request at the same time.
struct Pair(Session, Session);

impl Pair {
    async fn open(server: &Server) -> Self {
        Self(open(server).await, open(server).await)
    }

    /// Names of both replies, sorted; each must carry the id of its request.
    async fn ask(&mut self, request: impl Fn(i64) -> Command) -> [&'static str; 2] {
        self.0.send(request(101)).await.unwrap();
        self.1.send(request(202)).await.unwrap();
        let replies = [self.0.reply().await.unwrap(), self.1.reply().await.unwrap()];
        let mut names =
            replies.map(|reply| reply.expect("a reply")).map(|reply| (reply.request_id(), reply.name()));
        assert_eq!(names.map(|(id, _)| id), [Some(101), Some(202)], "{names:?}");
        names.sort_by_key(|(_, name)| *name);
        names.map(|(_, name)| name)
    }
}

async fn fill(session: &mut Session, segment: &str, writer: u128) -> i64 {
    session.create(segment).await.unwrap();
    session.setup(segment, Uuid(writer)).await.unwrap();
    let data = Bytes::from_static(b"sixteen bytes it");
    for frame in append(Shape::Alone, Uuid(writer), &[data], 1, 1) {
        session.send(frame).await.unwrap();
    }
    match session.reply().await.unwrap() {
        Some(Command::DataAppended(ack)) => ack.current_segment_write_offset,
        other => panic!("filling {segment}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_requests_answer_alike_and_act_once() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&server::binary().unwrap(), data.path()).await.unwrap();
    let mut pair = Pair::open(&server).await;
    let (target, source) = ("twice/target/0.#epoch.0", "twice/source/0.#epoch.0");

    assert_eq!(pair.ask(|id| create(id, target)).await, ["SegmentAlreadyExists", "SegmentCreated"]);
    assert_eq!(pair.ask(|id| create(id, target)).await, ["SegmentAlreadyExists"; 2]);
    let mut session = open(&server).await;
    let target_length = fill(&mut session, target, 1).await;
    let source_length = fill(&mut session, source, 2).await;

    assert_eq!(pair.ask(|id| merge(id, target, source)).await, ["NoSuchSegment", "SegmentsMerged"]);
    assert_eq!(pair.ask(|id| merge(id, target, source)).await, ["NoSuchSegment"; 2]);
    let info = session.info(target).await.unwrap().unwrap();
    assert_eq!(info.write_offset, target_length + source_length, "the target grows once");

    assert_eq!(pair.ask(|id| truncate(id, target, 8)).await, ["SegmentTruncated"; 2]);
    assert_eq!(pair.ask(|id| truncate(id, target, 24)).await, ["SegmentTruncated"; 2]);
    let back = pair.ask(|id| truncate(id, target, 8)).await;
    assert!(back.iter().all(|name| matches!(*name, "SegmentTruncated" | "SegmentIsTruncated")), "{back:?}");
    let info = session.info(target).await.unwrap().unwrap();
    assert_eq!(info.start_offset, 24, "a truncation never goes back");

    assert_eq!(pair.ask(|id| seal(id, target)).await, ["SegmentIsSealed", "SegmentSealed"]);
    assert_eq!(pair.ask(|id| seal(id, target)).await, ["SegmentIsSealed"; 2]);
    assert_eq!(pair.ask(|id| delete(id, target)).await, ["NoSuchSegment", "SegmentDeleted"]);
    assert_eq!(pair.ask(|id| delete(id, target)).await, ["NoSuchSegment"; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_the_wrong_order_are_refused_by_name() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&server::binary().unwrap(), data.path()).await.unwrap();
    let mut pair = Pair::open(&server).await;
    let (segment, table) = ("order/segment/0.#epoch.0", "order/table/0.#epoch.0");

    for wrong in [seal, delete] {
        assert_eq!(pair.ask(|id| wrong(id, segment)).await, ["NoSuchSegment"; 2]);
    }
    assert_eq!(pair.ask(|id| truncate(id, segment, 0)).await, ["NoSuchSegment"; 2]);
    assert_eq!(pair.ask(|id| merge(id, segment, "order/none/0.#epoch.0")).await, ["NoSuchSegment"; 2]);
    assert_eq!(pair.ask(|id| delete_table(id, table)).await, ["NoSuchSegment"; 2]);

    assert_eq!(pair.ask(|id| create_table(id, table)).await, ["SegmentAlreadyExists", "SegmentCreated"]);
    assert_eq!(pair.ask(|id| create_table(id, table)).await, ["SegmentAlreadyExists"; 2]);
    assert_eq!(pair.ask(|id| delete_table(id, table)).await, ["NoSuchSegment", "SegmentDeleted"]);
    assert_eq!(pair.ask(|id| delete_table(id, table)).await, ["NoSuchSegment"; 2]);

    assert_eq!(pair.ask(|id| create(id, segment)).await, ["SegmentAlreadyExists", "SegmentCreated"]);
    let mut session = open(&server).await;
    let length = fill(&mut session, segment, 1).await;
    let beyond = pair.ask(|id| truncate(id, segment, length + 1)).await;
    assert!(beyond.iter().all(|name| *name != "SegmentTruncated"), "{beyond:?}");
    let info = session.info(segment).await.unwrap().unwrap();
    assert_eq!((info.start_offset, info.write_offset), (0, length), "a refusal changes nothing");
}
