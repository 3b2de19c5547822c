//! The contract of an S3 server, as far as an object store's client relies on it.
//!
//! Runs against the server of `dhara_tests::s3`. With `DHARA_S3=http://host:port/bucket` it runs against that one
//! instead, so that the server of our tests is held to what others do; see `tests/run-suites`.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]

use std::sync::Arc;

use bytes::Bytes;
use dhara_tests::s3::{BUCKET, S3Server};
use futures_util::{StreamExt, TryStreamExt, future, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

/// A client, and the server if it is ours.
struct Contract {
    store: Arc<AmazonS3>,
    /// Keys of one law lie below this, since a foreign server is shared by all.
    prefix: Path,
    server: Option<S3Server>,
}

impl Contract {
    async fn new(law: &str) -> Self {
        let (place, server) = match std::env::var("DHARA_S3") {
            Ok(place) => (place, None),
            Err(_unset) => {
                let server = S3Server::start().await.unwrap();
                (format!("{}/{BUCKET}", server.endpoint()), Some(server))
            }
        };
        let (endpoint, bucket) = place.rsplit_once('/').unwrap();
        let store = Arc::new(client(endpoint, bucket));
        Self { store, prefix: Path::from(law), server }
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    async fn put(&self, name: &str, bytes: &'static str) -> Path {
        let path = self.path(name);
        self.store.put(&path, bytes.into()).await.unwrap();
        path
    }

    async fn read(&self, path: &Path) -> Bytes {
        self.store.get(path).await.unwrap().bytes().await.unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let listed = self.store.list(Some(&self.prefix)).map_ok(|meta| self.name(&meta));
        listed.try_collect().await.unwrap()
    }

    fn name(&self, meta: &ObjectMeta) -> String {
        let parts = meta.location.prefix_match(&self.prefix).unwrap();
        parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
    }
}

fn client(endpoint: &str, bucket: &str) -> AmazonS3 {
    // The client wants to know whose TLS it would use, though these endpoints are plain. One answer is enough.
    let _already = rustls::crypto::ring::default_provider().install_default();
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_bucket_name(bucket)
        .with_access_key_id("any")
        .with_secret_access_key("key")
        .build()
        .unwrap()
}

fn options(mode: PutMode) -> PutOptions {
    PutOptions::from(mode)
}

#[tokio::test]
async fn object_is_read_as_it_was_put() {
    let s3 = Contract::new("whole").await;
    let path = s3.put("object", "0123456789").await;
    let got = s3.store.get(&path).await.unwrap();
    assert_eq!((got.meta.size, got.meta.location.clone()), (10, path.clone()));
    let (e_tag, range) = (got.meta.e_tag.clone(), got.range.clone());
    assert_eq!(range, 0..10);
    assert_eq!(got.bytes().await.unwrap(), "0123456789");
    let head = s3.store.head(&path).await.unwrap();
    assert_eq!((head.size, head.e_tag), (10, e_tag));
}

#[tokio::test]
async fn empty_object_is_an_object() {
    let s3 = Contract::new("empty").await;
    let path = s3.put("object", "").await;
    assert_eq!(s3.store.head(&path).await.unwrap().size, 0);
    assert_eq!(s3.read(&path).await, "");
}

#[tokio::test]
async fn ranges_are_read_from_either_end() {
    let s3 = Contract::new("range").await;
    let path = s3.put("object", "0123456789").await;
    let ranges = [
        (GetRange::Bounded(0..1), "0"),
        (GetRange::Bounded(3..7), "3456"),
        (GetRange::Bounded(8..20), "89"),
        (GetRange::Offset(7), "789"),
        (GetRange::Suffix(3), "789"),
        (GetRange::Suffix(30), "0123456789"),
    ];
    for (range, bytes) in ranges {
        let got = s3.store.get_opts(&path, GetOptions::new().with_range(Some(range.clone()))).await.unwrap();
        assert_eq!(got.meta.size, 10, "{range}");
        assert_eq!(got.bytes().await.unwrap(), bytes, "{range}");
    }
}

#[tokio::test]
async fn range_behind_the_end_is_refused() {
    let s3 = Contract::new("behind").await;
    let path = s3.put("object", "0123456789").await;
    assert!(s3.store.get_range(&path, 10..12).await.is_err());
    assert!(s3.store.get_range(&path, 100..110).await.is_err());
}

#[tokio::test]
async fn missing_object_is_not_found() {
    let s3 = Contract::new("missing").await;
    let path = s3.path("object");
    let errors = [
        s3.store.get(&path).await.map(drop).unwrap_err(),
        s3.store.head(&path).await.map(drop).unwrap_err(),
        s3.store.get_range(&path, 0..1).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn last_put_counts() {
    let s3 = Contract::new("last").await;
    let path = s3.put("object", "first").await;
    let first = s3.store.head(&path).await.unwrap().e_tag;
    s3.put("object", "second").await;
    assert_eq!(s3.read(&path).await, "second");
    assert_ne!(s3.store.head(&path).await.unwrap().e_tag, first, "other bytes have another tag");
}

#[tokio::test]
async fn names_are_kept_letter_by_letter() {
    let s3 = Contract::new("names").await;
    let names = ["a b", "a+b", "a%20b", "a&b<c>\"d'", "ä/ö", "(x)!*,;=:@$"];
    for name in names {
        let path = s3.path(name);
        s3.store.put(&path, PutPayload::from(name.to_owned().into_bytes())).await.unwrap();
        assert_eq!(s3.read(&path).await, name);
    }
    assert_eq!(s3.names().await.len(), names.len());
}

#[tokio::test]
async fn one_of_many_creators_wins() {
    let s3 = Contract::new("create").await;
    let path = s3.path("object");
    let creators = (0..8).map(|creator: u8| {
        let payload = PutPayload::from(vec![creator]);
        s3.store.put_opts(&path, payload, options(PutMode::Create))
    });
    let mut winners = Vec::new();
    for (creator, created) in future::join_all(creators).await.into_iter().enumerate() {
        match created {
            Ok(_result) => winners.push(u8::try_from(creator).unwrap()),
            Err(error) => assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(s3.read(&path).await, winners);
}

#[tokio::test]
async fn update_needs_the_tag_last_read() {
    let s3 = Contract::new("update").await;
    let path = s3.path("object");
    let update = |e_tag: Option<String>| options(PutMode::Update(UpdateVersion { e_tag, version: None }));
    let first = s3.store.put(&path, "first".into()).await.unwrap();
    let second = s3.store.put_opts(&path, "second".into(), update(first.e_tag.clone())).await.unwrap();
    let third = s3.store.put_opts(&path, "third".into(), update(first.e_tag.clone())).await.unwrap_err();
    assert!(matches!(third, Error::Precondition { .. }), "{third:?}");
    assert_eq!(s3.read(&path).await, "second");
    assert_eq!(s3.store.head(&path).await.unwrap().e_tag, second.e_tag);
    let missing = s3.path("missing");
    let refused = s3.store.put_opts(&missing, "x".into(), update(first.e_tag)).await.unwrap_err();
    assert!(matches!(refused, Error::Precondition { .. }), "{refused:?}");
}

#[tokio::test]
async fn one_of_many_updates_wins() {
    let s3 = Contract::new("updates").await;
    let path = s3.path("object");
    let before = s3.store.put(&path, "before".into()).await.unwrap();
    let updates = (0..8).map(|writer: u8| {
        let mode = PutMode::Update(UpdateVersion { e_tag: before.e_tag.clone(), version: None });
        s3.store.put_opts(&path, PutPayload::from(vec![writer]), options(mode))
    });
    let done = future::join_all(updates).await;
    assert_eq!(done.iter().filter(|update| update.is_ok()).count(), 1);
    assert_eq!(s3.read(&path).await.len(), 1);
}

#[tokio::test]
async fn reads_may_depend_on_the_tag() {
    let s3 = Contract::new("conditions").await;
    let path = s3.put("object", "bytes").await;
    let e_tag = s3.store.head(&path).await.unwrap().e_tag;
    let get = |options| s3.store.get_opts(&path, options);
    let other = Some("\"other\"".to_owned());
    get(GetOptions { if_match: e_tag.clone(), ..GetOptions::default() }).await.unwrap();
    get(GetOptions { if_none_match: other.clone(), ..GetOptions::default() }).await.unwrap();
    let refused = get(GetOptions { if_match: other, ..GetOptions::default() }).await.unwrap_err();
    assert!(matches!(refused, Error::Precondition { .. }), "{refused:?}");
    let same = get(GetOptions { if_none_match: e_tag, ..GetOptions::default() }).await.unwrap_err();
    assert!(matches!(same, Error::NotModified { .. }), "{same:?}");
}

#[tokio::test]
async fn list_shows_what_is_below_a_prefix_in_order() {
    let s3 = Contract::new("list").await;
    for name in ["b", "a/2", "a/1", "a/x/3", "c"] {
        s3.put(name, "x").await;
    }
    assert_eq!(s3.names().await, ["a/1", "a/2", "a/x/3", "b", "c"]);
    let below: Vec<ObjectMeta> = s3.store.list(Some(&s3.path("a"))).try_collect().await.unwrap();
    assert_eq!(below.len(), 3);
    assert_eq!(below[0].size, 1);
    let after = s3.store.list_with_offset(Some(&s3.prefix), &s3.path("a").join("2"));
    let after: Vec<String> = after.map_ok(|meta| s3.name(&meta)).try_collect().await.unwrap();
    assert_eq!(after, ["a/x/3", "b", "c"]);
    assert_eq!(s3.store.list(Some(&s3.path("none"))).count().await, 0);
}

#[tokio::test]
async fn list_groups_by_delimiter() {
    let s3 = Contract::new("groups").await;
    for name in ["a/1", "a/2", "b", "c/d/1"] {
        s3.put(name, "x").await;
    }
    let listed = s3.store.list_with_delimiter(Some(&s3.prefix)).await.unwrap();
    let objects: Vec<String> = listed.objects.iter().map(|meta| s3.name(meta)).collect();
    assert_eq!(objects, ["b"]);
    assert_eq!(listed.common_prefixes, [s3.path("a"), s3.path("c")]);
}

#[tokio::test]
async fn list_comes_in_pages() {
    let s3 = Contract::new("pages").await;
    for name in ["a", "b/1", "b/2", "c", "d", "e/1"] {
        s3.put(name, "x").await;
    }
    let prefix = format!("{}/", s3.prefix);
    for (delimiter, expected) in [(None, 6), (Some("/"), 5)] {
        let mut token = None;
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let options = PaginatedListOptions {
                delimiter: delimiter.map(Into::into),
                max_keys: Some(2),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let page = s3.store.list_paginated(Some(&prefix), options).await.unwrap();
            let entries = page.result.objects.iter().map(|meta| &meta.location);
            found.extend(entries.chain(&page.result.common_prefixes).cloned());
            pages += 1;
            token = page.page_token;
            if token.is_none() {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!((found.len(), pages), (expected, 3), "{delimiter:?}");
    }
}

#[tokio::test]
async fn deleted_object_is_gone_and_may_be_deleted_again() {
    let s3 = Contract::new("delete").await;
    let path = s3.put("object", "x").await;
    s3.store.delete(&path).await.unwrap();
    s3.store.delete(&path).await.unwrap();
    assert_eq!(s3.names().await, [] as [&str; 0]);
}

#[tokio::test]
async fn many_are_deleted_at_once() {
    let s3 = Contract::new("bulk").await;
    let mut paths = vec![s3.path("missing")];
    for name in ["a", "b & <c>", "d"] {
        paths.push(s3.put(name, "x").await);
    }
    s3.put("stays", "x").await;
    let deleted = s3.store.delete_stream(stream::iter(paths.clone()).map(Ok).boxed());
    assert_eq!(deleted.try_collect::<Vec<Path>>().await.unwrap(), paths);
    assert_eq!(s3.names().await, ["stays"]);
}

#[tokio::test]
async fn parts_become_an_object_when_they_are_complete() {
    let s3 = Contract::new("parts").await;
    let path = s3.path("object");
    let part = |byte: u8, bytes: usize| PutPayload::from(vec![byte; bytes]);
    let mut upload = s3.store.put_multipart(&path).await.unwrap();
    let parts =
        [upload.put_part(part(1, 5 << 20)), upload.put_part(part(2, 5 << 20)), upload.put_part(part(3, 7))];
    // The order of the parts is that of their numbers, not of their coming.
    for part in parts.into_iter().rev() {
        part.await.unwrap();
    }
    assert!(matches!(s3.store.head(&path).await, Err(Error::NotFound { .. })));
    upload.complete().await.unwrap();
    let bytes = s3.read(&path).await;
    assert_eq!(bytes.len(), (10 << 20) + 7);
    assert!(bytes[..5 << 20].iter().all(|byte| *byte == 1));
    assert!(bytes[5 << 20..10 << 20].iter().all(|byte| *byte == 2));
    assert_eq!(bytes[10 << 20..], [3; 7]);
}

#[tokio::test]
async fn upload_given_up_leaves_nothing() {
    let s3 = Contract::new("abort").await;
    let path = s3.path("object");
    let mut upload = s3.store.put_multipart(&path).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert!(matches!(s3.store.head(&path).await, Err(Error::NotFound { .. })));
    assert!(upload.complete().await.is_err(), "what was given up cannot be completed");
}

#[tokio::test]
async fn small_part_before_the_last_is_refused() {
    let s3 = Contract::new("small").await;
    let path = s3.path("object");
    let mut upload = s3.store.put_multipart(&path).await.unwrap();
    upload.put_part("small".into()).await.unwrap();
    upload.put_part("last".into()).await.unwrap();
    assert!(upload.complete().await.is_err());
    assert!(matches!(s3.store.head(&path).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn bucket_that_is_not_there_is_not_found() {
    let s3 = Contract::new("bucket").await;
    let endpoint = match std::env::var("DHARA_S3") {
        Ok(place) => place.rsplit_once('/').unwrap().0.to_owned(),
        Err(_unset) => s3.server.as_ref().unwrap().endpoint(),
    };
    let store = client(&endpoint, "no-such-bucket");
    let path = Path::from("object");
    for error in [
        store.put(&path, "x".into()).await.map(drop).unwrap_err(),
        store.get(&path).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotFound { .. }), "{error:?}");
    }
    assert!(store.list(None).next().await.unwrap().is_err());
}
