//! The tier's objects on an S3 server that does wrong: what was put comes back, and nothing else ever does.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dhara_segmentstore::index::probe_update;
use dhara_segmentstore::tier::{
    BackendOptions, BuiltObject, ObjectBuilder, ObjectError, Objects, ProbeError, TierError, open_store,
    probe, verify,
};
use dhara_segmentstore::types::{ContainerId, ObjectId, SegmentId, Stored};
use dhara_stdx::Retry;
use dhara_tests::s3::{BUCKET, Calls, Fault, Outage, S3Server, What};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::time::timeout;

const ID: ObjectId = ObjectId { epoch: 1, counter: 2 };
const KEY: &str = "tier/v1/c0001/objects/e00000001/00000002";
/// More than the store's client tries by itself.
const ALL_TRIES: usize = 3;

fn store(server: &S3Server, bucket: &str) -> Arc<dyn ObjectStore> {
    let options = BackendOptions {
        endpoint: Some(server.endpoint()),
        allow_http: true,
        unsigned: true,
        ..BackendOptions::default()
    };
    open_store(&format!("s3://{bucket}/tier"), &options).unwrap()
}

async fn start() -> (S3Server, Objects) {
    let server = S3Server::start().await.unwrap();
    let objects = Objects::new(store(&server, BUCKET), ContainerId(1));
    (server, objects)
}

fn object(length: usize) -> (BuiltObject, Stored) {
    let mut builder = ObjectBuilder::new(ContainerId(1), ID, 0, 0);
    let bytes: Bytes = (0..length).map(|at| u8::try_from(at * 7 % 253).unwrap()).collect();
    let stored = builder.range(SegmentId(1), 0, vec![bytes], vec![]);
    (builder.finish(), stored)
}

async fn is_there(objects: &Objects, stored: &Stored) -> bool {
    let footer = objects.footer(ID).await.unwrap();
    let bytes = objects.range(ID, stored.at.into(), stored.length.into()).await.unwrap();
    verify(stored, Some(&footer), 0, &bytes).is_ok()
}

#[tokio::test]
async fn object_lies_below_the_prefix_and_comes_back() {
    let (server, objects) = start().await;
    let (object, stored) = object(200_000);
    objects.put(&object).await.unwrap();
    let length = usize::try_from(object.bytes).unwrap();
    assert_eq!(server.buckets().keys(BUCKET), [(KEY.to_owned(), length)]);
    assert!(is_there(&objects, &stored).await);
    assert_eq!(objects.list().await.unwrap(), [(ID, object.bytes)]);
    objects.delete(ID).await.unwrap();
    assert_eq!(server.buckets().keys(BUCKET), []);
    assert!(matches!(objects.footer(ID).await, Err(TierError::NotFound { id: ID })));
    assert_eq!(server.counts().of("head"), 0, "a footer needs no call of its own for the length");
}

#[tokio::test]
async fn one_failure_is_not_even_noticed() {
    let (server, objects) = start().await;
    let (object, stored) = object(1_000);
    for what in [What::Status(500), What::Status(503), What::Lost, What::Torn] {
        server.knobs().faults = vec![Fault::next(Calls::Any, what)];
        objects.put(&object).await.unwrap();
        server.knobs().faults = vec![Fault::next(Calls::Any, what)];
        assert!(is_there(&objects, &stored).await, "{what:?}");
    }
}

#[tokio::test]
async fn failed_put_may_be_made_again() {
    let (server, objects) = start().await;
    let (object, stored) = object(100_000);
    for what in [What::Status(500), What::Status(503), What::Status(409), What::Status(403), What::Torn] {
        server.knobs().faults = vec![Fault::times(ALL_TRIES, Calls::Writes, what)];
        let error = objects.put(&object).await.unwrap_err();
        assert_eq!(error.retry(), Retry::Safe, "{what:?}");
        assert_eq!(server.buckets().keys(BUCKET), [], "{what:?} stores nothing");
        server.knobs().faults.clear();
        objects.put(&object).await.unwrap();
        assert!(is_there(&objects, &stored).await);
        objects.delete(ID).await.unwrap();
    }
}

#[tokio::test]
async fn put_whose_answers_were_lost_was_done_and_may_be_made_again() {
    let (server, objects) = start().await;
    let (object, stored) = object(100_000);
    server.knobs().faults = vec![Fault::times(ALL_TRIES, Calls::Writes, What::Lost)];
    let error = objects.put(&object).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Safe);
    assert!(is_there(&objects, &stored).await);
    objects.put(&object).await.unwrap();
    assert!(is_there(&objects, &stored).await);
}

#[tokio::test]
async fn large_object_goes_in_equal_parts_and_never_half() {
    let (server, objects) = start().await;
    let (object, stored) = object((20 << 20) + 1);
    for (skip, what) in [(1, What::Status(500)), (2, What::Torn), (3, What::Status(500))] {
        server.knobs().faults = vec![Fault { skip, ..Fault::times(4 * ALL_TRIES, Calls::Writes, what) }];
        assert_eq!(objects.put(&object).await.unwrap_err().retry(), Retry::Safe);
        assert_eq!(server.buckets().keys(BUCKET), []);
        assert_eq!(server.buckets().open_uploads(BUCKET), 0, "what failed is given up");
    }
    server.knobs().faults.clear();
    let before = server.counts().of("part");
    objects.put(&object).await.unwrap();
    assert_eq!(server.counts().of("part") - before, 3);
    assert!(is_there(&objects, &stored).await);
}

#[tokio::test]
async fn lost_answer_to_the_last_step_of_an_upload_is_settled_by_the_next_put() {
    let (server, objects) = start().await;
    let (object, stored) = object(17 << 20);
    server.knobs().faults = vec![Fault { skip: 3, ..Fault::times(ALL_TRIES, Calls::Writes, What::Lost) }];
    let first = objects.put(&object).await;
    server.knobs().faults.clear();
    assert_eq!(first.unwrap_err().retry(), Retry::Safe);
    assert!(is_there(&objects, &stored).await);
    objects.put(&object).await.unwrap();
    assert!(is_there(&objects, &stored).await);
    assert_eq!(server.buckets().open_uploads(BUCKET), 0);
}

#[tokio::test]
async fn rotten_byte_is_noticed_wherever_it_is() {
    let (server, objects) = start().await;
    let (object, stored) = object(200_000);
    let last = usize::try_from(object.bytes).unwrap() - 1;
    objects.put(&object).await.unwrap();
    let footer = objects.footer(ID).await.unwrap();
    assert!(server.buckets().rot(BUCKET, KEY, 64 + 70_000));
    let bytes = objects.range(ID, stored.at.into(), stored.length.into()).await.unwrap();
    assert_eq!(verify(&stored, Some(&footer), 0, &bytes), Err(ObjectError::Block { block: 1 }));
    for at in [last, last - 10, last - 30, last - 70] {
        objects.put(&object).await.unwrap();
        assert!(server.buckets().rot(BUCKET, KEY, at));
        let error = objects.footer(ID).await.unwrap_err();
        assert!(matches!(error, TierError::Malformed { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn outage_ends_and_nothing_is_lost() {
    let (mut server, objects) = start().await;
    let (object, stored) = object(1_000);
    objects.put(&object).await.unwrap();
    server.knobs().outage = Outage::Errors;
    assert_eq!(objects.footer(ID).await.unwrap_err().retry(), Retry::Safe);
    assert_eq!(objects.put(&object).await.unwrap_err().retry(), Retry::Safe);
    server.knobs().outage = Outage::None;
    assert!(is_there(&objects, &stored).await);
    server.kill().await;
    assert_eq!(objects.footer(ID).await.unwrap_err().retry(), Retry::Safe);
    server.restart().await.unwrap();
    assert!(is_there(&objects, &stored).await);
}

#[tokio::test]
async fn silence_lasts_until_it_is_broken() {
    let (server, objects) = start().await;
    let (object, stored) = object(1_000);
    objects.put(&object).await.unwrap();
    server.knobs().outage = Outage::Silence;
    assert!(timeout(Duration::from_millis(200), objects.footer(ID)).await.is_err());
    assert!(server.counts().of("get") > 0, "it was asked");
    server.knobs().outage = Outage::None;
    assert!(is_there(&objects, &stored).await);
}

#[tokio::test]
async fn slow_answers_come_whole() {
    let (server, objects) = start().await;
    let (object, stored) = object(200_000);
    objects.put(&object).await.unwrap();
    server.knobs().latency = Duration::from_millis(5);
    server.knobs().slow_body = Duration::from_millis(5);
    let start = tokio::time::Instant::now();
    assert!(is_there(&objects, &stored).await);
    // Two calls, of which the second has four pieces at least.
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn deletes_may_be_lost_and_said_again() {
    let (server, objects) = start().await;
    let (object, _) = object(1_000);
    objects.put(&object).await.unwrap();
    server.knobs().faults = vec![Fault::times(ALL_TRIES, Calls::Deletes, What::Lost)];
    // Whatever came of it, it may be said again.
    let first = objects.delete(ID).await;
    assert!(first.is_ok() || first.is_err_and(|error| error.retry() == Retry::Safe));
    server.knobs().faults.clear();
    objects.delete(ID).await.unwrap();
    assert_eq!(server.buckets().keys(BUCKET), []);
}

#[tokio::test]
async fn list_in_many_pages_is_whole() {
    let (server, objects) = start().await;
    server.knobs().page = Some(2);
    for counter in 0..7 {
        let id = ObjectId { epoch: 1, counter };
        let mut builder = ObjectBuilder::new(ContainerId(1), id, 0, 0);
        builder.range(SegmentId(1), 0, vec![Bytes::from_static(b"x")], vec![]);
        objects.put(&builder.finish()).await.unwrap();
    }
    assert_eq!(objects.list().await.unwrap().len(), 7);
    assert_eq!(server.counts().of("list"), 4);
}

#[tokio::test]
async fn probe_names_what_is_wrong() {
    let mut server = S3Server::start().await.unwrap();
    let good = store(&server, BUCKET);
    probe(&*good, 1).await.unwrap();
    assert_eq!(server.buckets().keys(BUCKET), []);
    let wrong = probe(&*store(&server, "another"), 1).await.unwrap_err();
    assert!(matches!(wrong, ProbeError::NoBucket { .. }), "{wrong:?}");
    server.knobs().deny = true;
    let denied = probe(&*good, 1).await.unwrap_err();
    assert!(matches!(denied, ProbeError::Denied { doing: "write a probe", .. }), "{denied:?}");
    server.knobs().deny = false;
    server.knobs().faults = vec![Fault::next(Calls::Reads, What::Status(403))];
    let denied = probe(&*good, 1).await.unwrap_err();
    assert!(matches!(denied, ProbeError::Denied { doing: "read a probe", .. }), "{denied:?}");
    server.kill().await;
    let dead = probe(&*good, 1).await.unwrap_err();
    assert!(matches!(dead, ProbeError::Unreachable { .. }), "{dead:?}");
}

#[tokio::test]
async fn server_has_conditional_updates() {
    let server = S3Server::start().await.unwrap();
    assert!(probe_update(&*store(&server, BUCKET), &Path::from("store")).await.unwrap());
    assert_eq!(server.buckets().keys(BUCKET), []);
}
