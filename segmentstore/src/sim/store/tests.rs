use super::*;
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutOptions, UpdateVersion};

fn store(weather: Weather) -> SimObjectStore {
    let store = SimObjectStore::new(7, 1_790_000_000_000, Trace::new(true));
    store.set_weather(weather);
    store
}

fn path(name: &str) -> Path {
    Path::from(name)
}

async fn listed(store: &SimObjectStore) -> Vec<String> {
    store.list(None).map(|meta| meta.unwrap().location.to_string()).collect().await
}

fn create() -> PutOptions {
    PutMode::Create.into()
}

#[tokio::test(start_paused = true)]
async fn behaves_as_a_store_in_good_weather() {
    let store = store(Weather::default());
    let first = store.put(&path("a/b/c"), "one".into()).await.unwrap();
    store.put(&path("a/d"), "two".into()).await.unwrap();
    let refused = store.put_opts(&path("a/d"), "x".into(), create()).await;
    assert!(matches!(refused, Err(object_store::Error::AlreadyExists { .. })));
    let update = |e_tag| PutOptions::from(PutMode::Update(UpdateVersion { e_tag, version: None }));
    store.put_opts(&path("a/b/c"), "three".into(), update(first.e_tag.clone())).await.unwrap();
    let refused = store.put_opts(&path("a/b/c"), "x".into(), update(first.e_tag)).await;
    assert!(matches!(refused, Err(object_store::Error::Precondition { .. })));
    assert_eq!(store.get_range(&path("a/b/c"), 1..3).await.unwrap(), "hr");
    assert_eq!(store.head(&path("a/d")).await.unwrap().size, 3);
    let level = store.list_with_delimiter(Some(&path("a"))).await.unwrap();
    assert_eq!(level.common_prefixes, [path("a/b")]);
    assert_eq!(level.objects.len(), 1);
    assert_eq!(listed(&store).await, ["a/b/c", "a/d"]);
    store.delete(&path("a/d")).await.unwrap();
    assert!(matches!(store.get(&path("a/d")).await, Err(object_store::Error::NotFound { .. })));
    let mut upload = store.put_multipart(&path("m")).await.unwrap();
    let parts = [upload.put_part("on".into()), upload.put_part("e".into())];
    for part in parts {
        part.await.unwrap();
    }
    assert_eq!(store.content(&path("m")), None);
    upload.complete().await.unwrap();
    assert_eq!(store.get(&path("m")).await.unwrap().bytes().await.unwrap(), "one");
}

#[tokio::test(start_paused = true)]
async fn each_fault_is_what_it_says() {
    for fault in Fault::ALL {
        let store = store(Weather::default());
        store.fail_change(0, fault);
        let path = path("a");
        let put = store.put_opts(&path, "data".into(), create());
        let answer = tokio::time::timeout(Duration::from_mins(1), put).await;
        let takes_effect = matches!(fault, Fault::ReplyLost | Fault::Unanswered);
        let silent = matches!(fault, Fault::Swallowed | Fault::Unanswered);
        assert_eq!(answer.is_err(), silent, "{fault:?}");
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.is_err()), "{fault:?}");
        assert_eq!(store.content(&path).is_some(), takes_effect, "{fault:?}");
        store.put(&path, "again".into()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn outage_has_no_effect_and_ends() {
    for outage in [Outage::Refuses, Outage::Silent] {
        let store = store(Weather { outage, ..Weather::default() });
        let put = tokio::time::timeout(Duration::from_mins(1), store.put(&path("a"), "data".into())).await;
        assert_eq!(put.is_err(), outage == Outage::Silent);
        assert!(store.objects().is_empty());
        store.set_weather(Weather::default());
        store.put(&path("a"), "data".into()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn change_may_arrive_after_whoever_sent_it_is_gone() {
    let slow = Weather { latency_us: 2_000_000..2_000_001, ..Weather::default() };
    let store = store(slow);
    for n in 0..20 {
        let object = path(&format!("{n}"));
        let put = store.put(&object, "data".into());
        assert!(tokio::time::timeout(Duration::from_millis(1), put).await.is_err());
    }
    assert!(store.objects().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let arrived = store.objects().len();
    assert!(0 < arrived && arrived < 20, "{arrived}");
}

#[tokio::test(start_paused = true)]
async fn stale_list_shows_what_was() {
    let store = store(Weather { list_lag: Duration::from_secs(5), ..Weather::default() });
    store.put(&path("a"), "1".into()).await.unwrap();
    assert!(listed(&store).await.is_empty());
    tokio::time::advance(Duration::from_secs(5)).await;
    store.delete(&path("a")).await.unwrap();
    assert_eq!(listed(&store).await, ["a"]);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(listed(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn full_store_takes_nothing_more() {
    let store = store(Weather { capacity_bytes: Some(4), ..Weather::default() });
    store.put(&path("a"), "123".into()).await.unwrap();
    store.put(&path("b"), "12".into()).await.unwrap_err();
    store.put(&path("a"), "1234".into()).await.unwrap();
    store.delete(&path("a")).await.unwrap();
    store.put(&path("b"), "1234".into()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn store_can_be_had_as_it_was_between_any_two_changes() {
    let store = store(Weather::default());
    store.put(&path("a"), "1".into()).await.unwrap();
    store.put(&path("b"), "2".into()).await.unwrap();
    store.delete(&path("a")).await.unwrap();
    let then = async |changes: usize| listed(&store.as_after(changes, 1)).await;
    assert_eq!(store.changes(), 3);
    assert_eq!(then(0).await, Vec::<String>::new());
    assert_eq!(then(1).await, ["a"]);
    assert_eq!(then(2).await, ["a", "b"]);
    assert_eq!(then(3).await, ["b"]);
}

/// The trace of some calls in bad weather.
async fn bad_weather(seed: u64) -> u64 {
    let trace = Trace::new(false);
    let store = SimObjectStore::new(seed, 0, trace.clone());
    store.set_weather(Weather {
        latency_us: 1_000..50_000,
        slow_permille: 100,
        slow: Duration::from_secs(3),
        refused_permille: 100,
        reply_lost_permille: 100,
        ..Weather::default()
    });
    let puts = (0..50).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.put(&path(&format!("{n}")), "data".into()).await.is_ok() })
    });
    let mut ended = [0, 0];
    for put in puts.collect::<Vec<_>>() {
        ended[usize::from(put.await.unwrap())] += 1;
    }
    assert!(ended.iter().all(|count| *count > 0));
    trace.hash()
}

#[tokio::test(start_paused = true)]
async fn weather_of_a_seed_is_the_same_each_time() {
    let first = bad_weather(1).await;
    assert_eq!(first, bad_weather(1).await);
    assert_ne!(first, bad_weather(2).await);
}
