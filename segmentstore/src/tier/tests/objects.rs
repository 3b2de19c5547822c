//! Laws of the objects of a container in a store: in memory, and in a folder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dhara_stdx::Retry;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tokio::time::Instant;

use super::*;

fn object_of(id: ObjectId, length: usize) -> (BuiltObject, Stored) {
    let mut builder = ObjectBuilder::new(CONTAINER, id, 0, CREATED_MS);
    let stored = builder.range(SegmentId(1), 0, vec![pattern(length, 0)], vec![]);
    (builder.finish(), stored)
}

fn id(epoch: u32, counter: u32) -> ObjectId {
    ObjectId { epoch, counter }
}

/// Runs a law on each kind of store that needs no network.
async fn on_each<F: Future<Output = ()>>(law: impl Fn(Arc<dyn ObjectStore>) -> F) {
    law(Arc::new(InMemory::new())).await;
    let folder = tempfile::tempdir().unwrap();
    law(local_store(folder.path()).unwrap()).await;
}

#[tokio::test]
async fn object_is_read_as_it_was_put() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, stored) = object_of(ID, 150_000);
        objects.put(&object).await.unwrap();
        let footer = objects.footer(ID).await.unwrap();
        assert_eq!(footer, Footer::decode(&whole(&object)).unwrap());
        let bytes = objects.range(ID, stored.at.into(), stored.length.into()).await.unwrap();
        assert_eq!(verify(&stored, Some(&footer), 0, &bytes), Ok(()));
        let middle = objects.range(ID, u64::from(stored.at) + 65_536, 65_536).await.unwrap();
        assert_eq!(verify(&stored, Some(&footer), 1, &middle), Ok(()));
    })
    .await;
}

#[tokio::test]
async fn pieces_share_no_memory_and_hold_what_lies_there() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, _) = object_of(ID, 300_000);
        objects.put(&object).await.unwrap();
        let all = whole(&object);
        for lengths in [vec![], vec![1], vec![5, 100_000, 65_536, 1]] {
            let pieces = objects.pieces(ID, 77, &lengths).await.unwrap();
            assert!(pieces.iter().map(|piece| u32::try_from(piece.len()).unwrap()).eq(lengths));
            assert!(pieces.iter().all(Bytes::is_unique));
            assert_eq!(pieces.concat(), all[77..77 + pieces.concat().len()]);
        }
        let over = u32::try_from(object.bytes).unwrap();
        for (at, lengths) in [(0, [10, over]), (object.bytes - 5, [5, 1]), (object.bytes + 5, [1, 1])] {
            assert!(objects.pieces(ID, at, &lengths).await.is_err(), "{at} {lengths:?}");
        }
        let missing = objects.pieces(id(9, 9), 0, &[1, 1]).await.unwrap_err();
        assert!(
            matches!(missing, TierError::NotFound { id: ObjectId { epoch: 9, counter: 9 } }),
            "{missing:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn put_again_changes_nothing() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, _) = object_of(ID, 1_000);
        objects.put(&object).await.unwrap();
        objects.put(&object).await.unwrap();
        assert_eq!(objects.list().await.unwrap(), [(ID, object.bytes)]);
        assert_eq!(objects.range(ID, 0, object.bytes).await.unwrap(), whole(&object));
    })
    .await;
}

#[tokio::test]
async fn large_object_goes_up_in_parts_and_comes_back_whole() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, stored) = object_of(ID, (18 << 20) + 5);
        objects.put(&object).await.unwrap();
        let footer = objects.footer(ID).await.unwrap();
        let bytes = objects.range(ID, stored.at.into(), stored.length.into()).await.unwrap();
        assert_eq!(verify(&stored, Some(&footer), 0, &bytes), Ok(()));
    })
    .await;
}

#[tokio::test]
async fn footer_longer_than_a_first_look_is_read() {
    on_each(|store| async move {
        let mut builder = ObjectBuilder::new(CONTAINER, ID, 0, CREATED_MS);
        for offset in 0..5_000 {
            builder.range(SegmentId(offset), offset, vec![pattern(3, 0)], vec![]);
        }
        let objects = Objects::new(store, CONTAINER);
        objects.put(&builder.finish()).await.unwrap();
        assert_eq!(objects.footer(ID).await.unwrap().ranges.len(), 5_000);
    })
    .await;
}

#[tokio::test]
async fn missing_object_is_told_apart() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let errors = [objects.range(ID, 0, 10).await.unwrap_err(), objects.footer(ID).await.unwrap_err()];
        for error in errors {
            assert!(matches!(error, TierError::NotFound { id: ID }), "{error:?}");
            assert_eq!(error.retry(), Retry::Never);
        }
    })
    .await;
}

#[tokio::test]
async fn delete_may_be_said_twice() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, _) = object_of(ID, 10);
        objects.put(&object).await.unwrap();
        objects.delete(ID).await.unwrap();
        objects.delete(ID).await.unwrap();
        assert_eq!(objects.list().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn containers_share_a_store_and_no_name() {
    on_each(|store| async move {
        let mine = Objects::new(Arc::clone(&store), CONTAINER);
        let other = Objects::new(Arc::clone(&store), ContainerId(4));
        let mut ids = [id(2, 0), id(1, u32::MAX), id(u32::MAX, 7), id(1, 3)];
        for id in ids {
            mine.put(&object_of(id, 10).0).await.unwrap();
        }
        for name in [
            "v1/c0003/objects/e00000001/00000003x",
            "v1/c0003/objects/E00000001/00000009",
            "v1/c0003/index/1",
        ] {
            store.put(&Path::from(name), "not ours".into()).await.unwrap();
        }
        ids.sort_unstable();
        let listed: Vec<ObjectId> = mine.list().await.unwrap().into_iter().map(|(id, _)| id).collect();
        assert_eq!(listed, ids);
        assert_eq!(other.list().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn another_object_under_the_name_is_refused() {
    on_each(|store| async move {
        let objects = Objects::new(Arc::clone(&store), CONTAINER);
        let (object, _) = object_of(id(9, 9), 10);
        let path = Path::from("v1/c0003/objects/e0000001f/000000a2");
        store.put(&path, object.payload).await.unwrap();
        let error = objects.footer(ID).await.unwrap_err();
        assert!(matches!(error, TierError::Malformed { id: ID, .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn read_behind_the_end_is_refused() {
    on_each(|store| async move {
        let objects = Objects::new(store, CONTAINER);
        let (object, _) = object_of(ID, 10);
        objects.put(&object).await.unwrap();
        assert!(objects.range(ID, object.bytes - 5, 10).await.is_err());
        assert!(objects.range(ID, object.bytes + 5, 10).await.is_err());
    })
    .await;
}

const FOR_EVER: Duration = Duration::from_hours(1_000);

/// The kind of answer and the time after which a call ended without one.
async fn gave_up_after(call: impl Future<Output = Result<(), TierError>>) -> Duration {
    let start = Instant::now();
    let error = call.await.unwrap_err();
    assert!(matches!(error, TierError::TimedOut { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::Safe);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn call_that_is_not_answered_ends() {
    let config = ThrottleConfig {
        wait_put_per_call: FOR_EVER,
        wait_get_per_call: FOR_EVER,
        wait_delete_per_call: FOR_EVER,
        wait_list_per_call: FOR_EVER,
        ..ThrottleConfig::default()
    };
    let objects = Objects::new(Arc::new(ThrottledStore::new(InMemory::new(), config)), CONTAINER);
    let small = gave_up_after(objects.put(&object_of(ID, 10).0)).await;
    let large = gave_up_after(objects.put(&object_of(ID, 15 << 20).0)).await;
    assert!(small < large, "more bytes get more time: {small:?}, {large:?}");
    let calls = [
        gave_up_after(async { objects.footer(ID).await.map(drop) }).await,
        gave_up_after(async { objects.range(ID, 0, 10).await.map(drop) }).await,
        gave_up_after(objects.delete(ID)).await,
        gave_up_after(async { objects.list().await.map(drop) }).await,
    ];
    assert!(calls.iter().chain([&large]).all(|call| *call < Duration::from_mins(1)), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn upload_whose_parts_are_not_answered_ends() {
    let config = ThrottleConfig { wait_put_per_call: FOR_EVER, ..ThrottleConfig::default() };
    let store = Arc::new(ThrottledStore::new(InMemory::new(), config));
    let objects = Objects::new(store, CONTAINER);
    gave_up_after(objects.put(&object_of(ID, 17 << 20).0)).await;
    assert_eq!(objects.list().await.unwrap(), []);
}

/// A store that cannot count from the end of an object, as Azure's.
#[derive(Debug)]
struct NoSuffix(InMemory);

impl fmt::Display for NoSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[async_trait]
impl ObjectStore for NoSuffix {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        if matches!(options.range, Some(GetRange::Suffix(_))) {
            return Err(Error::NotSupported { source: "suffix".into() });
        }
        self.0.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn footer_is_found_without_counting_from_the_end() {
    let objects = Objects::new(Arc::new(NoSuffix(InMemory::new())), CONTAINER);
    assert!(matches!(objects.footer(ID).await, Err(TierError::NotFound { id: ID })));
    for length in [10, 200_000] {
        let (object, _) = object_of(ID, length);
        objects.put(&object).await.unwrap();
        assert_eq!(objects.footer(ID).await.unwrap(), Footer::decode(&whole(&object)).unwrap());
    }
}
