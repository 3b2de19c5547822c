//! Laws of the objects of a container in a store: in memory, and in a folder.

use std::sync::Arc;

use dhara_stdx::Retry;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

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
