//! This client's own tables: one table segment each, without the controller.

use std::collections::BTreeMap;

use futures_util::{pin_mut, StreamExt};
use pravega_client::sync::table::{Table, TableError};

use crate::world::World;

const ABSENT: i64 = -1;
const ANY_OFFSET: i64 = -1;

async fn get(table: &Table, key: &str) -> Option<(String, i64)> {
    table.get(&key.to_owned()).await.unwrap()
}

async fn put(table: &Table, key: &str, value: &str) -> i64 {
    table
        .insert(&key.to_owned(), &value.to_owned(), ANY_OFFSET)
        .await
        .unwrap()
}

async fn put_if(table: &Table, key: &str, value: &str, version: i64) -> Result<i64, TableError> {
    let (key, value) = (key.to_owned(), value.to_owned());
    table.insert_conditionally(&key, &value, version, ANY_OFFSET).await
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_inserted_replaced_and_removed() {
    let world = World::new().await;
    let table = world
        .factory
        .create_table(world.scope.clone(), "table".to_owned())
        .await;
    assert_eq!(get(&table, "key").await, None);
    let first = put(&table, "key", "one").await;
    assert_eq!(get(&table, "key").await, Some(("one".to_owned(), first)));
    let second = put(&table, "key", "two").await;
    assert!(second > first);
    assert_eq!(get(&table, "key").await, Some(("two".to_owned(), second)));
    table.remove(&"key".to_owned(), ANY_OFFSET).await.unwrap();
    assert_eq!(get(&table, "key").await, None);
    table.remove(&"key".to_owned(), ANY_OFFSET).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_kept() {
    let world = World::new().await;
    let table = world
        .factory
        .create_table(world.scope.clone(), "table".to_owned())
        .await;
    let version = put_if(&table, "key", "one", ABSENT).await.unwrap();
    let again = put_if(&table, "key", "two", ABSENT).await;
    assert!(
        matches!(again, Err(TableError::IncorrectKeyVersion { .. })),
        "{again:?}"
    );
    assert!(put_if(&table, "other", "two", version).await.is_err());
    assert_eq!(get(&table, "other").await, None);
    let next = put_if(&table, "key", "two", version).await.unwrap();
    let stale = table.remove_conditionally(&"key".to_owned(), version, ANY_OFFSET).await;
    assert!(
        matches!(stale, Err(TableError::IncorrectKeyVersion { .. })),
        "{stale:?}"
    );
    table
        .remove_conditionally(&"key".to_owned(), next, ANY_OFFSET)
        .await
        .unwrap();
    assert_eq!(get(&table, "key").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_applied_as_a_whole_or_not_at_all() {
    let world = World::new().await;
    let table = world
        .factory
        .create_table(world.scope.clone(), "table".to_owned())
        .await;
    let keys: Vec<String> = (0..20).map(|number| format!("key-{number}")).collect();
    let value = "value".to_owned();
    let batch = keys.iter().map(|key| (key, &value, ABSENT)).collect();
    let versions = table.insert_conditionally_all(batch, ANY_OFFSET).await.unwrap();
    assert_eq!(versions.len(), keys.len());

    let changed = "changed".to_owned();
    let one_stale = keys
        .iter()
        .zip(&versions)
        .map(|(key, version)| (key, &changed, if key == "key-19" { version - 1 } else { *version }));
    assert!(table
        .insert_conditionally_all(one_stale.collect(), ANY_OFFSET)
        .await
        .is_err());
    let found: Vec<Option<(String, i64)>> = table.get_all(keys.iter().collect()).await.unwrap();
    assert!(found.into_iter().all(|entry| entry.unwrap().0 == "value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn iteration_meets_each_entry_once() {
    let world = World::new().await;
    let table = world
        .factory
        .create_table(world.scope.clone(), "table".to_owned())
        .await;
    let mut expected = BTreeMap::new();
    for number in 0..95 {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        put(&table, &key, &value).await;
        expected.insert(key, value);
    }
    let entries = table.read_entries_stream::<String, String>(10);
    pin_mut!(entries);
    let (mut found, mut count) = (BTreeMap::new(), 0);
    while let Some(entry) = entries.next().await {
        let (key, value, _version) = entry.unwrap();
        found.insert(key, value);
        count += 1;
    }
    assert_eq!((found, count), (expected.clone(), 95));

    let keys = table.read_keys_stream::<String>(7);
    pin_mut!(keys);
    let mut found = Vec::new();
    while let Some(key) = keys.next().await {
        found.push(key.unwrap().0);
    }
    found.sort();
    assert_eq!(found, expected.into_keys().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_shows_what_was_written_since() {
    let world = World::new().await;
    let table = world
        .factory
        .create_table(world.scope.clone(), "table".to_owned())
        .await;
    for number in 0..25 {
        put(&table, &format!("key-{number}"), "old").await;
    }
    let mut position = 0;
    for (value, count) in [("old", 25), ("new", 5)] {
        if value == "new" {
            for number in 0..5 {
                put(&table, &format!("key-{number}"), "new").await;
            }
        }
        let delta = table.read_entries_stream_from_position::<String, String>(10, position);
        pin_mut!(delta);
        let mut found = 0;
        while let Some(entry) = delta.next().await {
            let (_key, read, _version, last) = entry.unwrap();
            assert_eq!(read, value);
            found += 1;
            position = last;
        }
        assert_eq!(found, count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_conditional_increments_are_all_counted() {
    let world = World::new().await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        let table = world
            .factory
            .create_table(world.scope.clone(), "counter".to_owned())
            .await;
        workers.push(tokio::spawn(async move {
            let key = "sum".to_owned();
            let mut done = 0;
            while done < 25 {
                let (sum, version) = table.get(&key).await.unwrap().unwrap_or((0u64, ABSENT));
                let step = table.insert_conditionally(&key, &(sum + 1), version, ANY_OFFSET).await;
                match step {
                    Ok(_) => done += 1,
                    Err(TableError::IncorrectKeyVersion { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let table = world
        .factory
        .create_table(world.scope.clone(), "counter".to_owned())
        .await;
    let sum: (u64, i64) = table.get(&"sum".to_owned()).await.unwrap().unwrap();
    assert_eq!(sum.0, 100);
}
