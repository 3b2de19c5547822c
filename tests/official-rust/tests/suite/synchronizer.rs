//! This client's synchronizer: a map of maps that several processes change together.

use pravega_client::sync::synchronizer::{deserialize_from, Synchronizer};

use crate::world::World;

async fn put(map: &mut Synchronizer, inner: &str, value: u64) {
    map.insert(|update| {
        update.insert("outer".to_owned(), inner.to_owned(), "u64".to_owned(), Box::new(value));
        Ok(())
    })
    .await
    .unwrap();
}

fn value(map: &Synchronizer, inner: &str) -> Option<u64> {
    map.get("outer", inner)
        .map(|found| deserialize_from::<u64>(&found.data).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_one_are_seen_by_the_other() {
    let world = World::new().await;
    let mut first = world
        .factory
        .create_synchronizer(world.scope.clone(), "map".to_owned())
        .await;
    let mut second = world
        .factory
        .create_synchronizer(world.scope.clone(), "map".to_owned())
        .await;
    put(&mut first, "a", 1).await;
    put(&mut second, "b", 2).await;
    put(&mut first, "a", 3).await;
    for map in [&mut first, &mut second] {
        map.fetch_updates().await.unwrap();
        assert_eq!((value(map, "a"), value(map, "b")), (Some(3), Some(2)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_keys_are_gone_for_everybody() {
    let world = World::new().await;
    let mut first = world
        .factory
        .create_synchronizer(world.scope.clone(), "map".to_owned())
        .await;
    let mut second = world
        .factory
        .create_synchronizer(world.scope.clone(), "map".to_owned())
        .await;
    put(&mut first, "a", 1).await;
    put(&mut first, "b", 2).await;
    second.fetch_updates().await.unwrap();
    assert_eq!(value(&second, "a"), Some(1));
    first
        .insert(|update| update.insert_tombstone("outer".to_owned(), "a".to_owned()))
        .await
        .unwrap();
    second.fetch_updates().await.unwrap();
    let left: Vec<String> = second.get_inner_map("outer").into_keys().collect();
    assert_eq!(left, ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_increments_are_all_counted() {
    let world = World::new().await;
    let mut setup = world
        .factory
        .create_synchronizer(world.scope.clone(), "sum".to_owned())
        .await;
    put(&mut setup, "sum", 0).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let mut map = world
            .factory
            .create_synchronizer(world.scope.clone(), "sum".to_owned())
            .await;
        map.fetch_updates().await.unwrap();
        workers.push(tokio::spawn(async move {
            for _ in 0..20 {
                map.insert(|update| {
                    let sum: u64 = deserialize_from(&update.get("outer", "sum").unwrap().data).unwrap();
                    update.insert(
                        "outer".to_owned(),
                        "sum".to_owned(),
                        "u64".to_owned(),
                        Box::new(sum + 1),
                    );
                    Ok(())
                })
                .await
                .unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    setup.fetch_updates().await.unwrap();
    assert_eq!(value(&setup, "sum"), Some(60));
}
