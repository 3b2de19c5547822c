use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::index::store::tests::FaultStore;

/// What `settings(false)` is, field by field: where this list and the engine's own defaults part is a decision.
const SETTINGS: &str = r#"{"flush_interval":null,
"wal_enabled":false,
"manifest_poll_interval":"10s",
"manifest_update_timeout":"300s",
"min_filter_keys":1000,
"l0_sst_size_bytes":268435456,
"max_wal_flushes_before_l0_flush":4096,
"l0_max_ssts":32,
"l0_max_ssts_per_key":32,
"l0_flush_parallelism":4,
"max_unflushed_bytes":536870912,
"compactor_options":{"poll_interval":"1s",
"manifest_update_timeout":"300s",
"max_concurrent_compactions":4,
"enable_trivial_move":false,
"scheduler_options":{},
"worker":{"max_concurrent_compactions":4,
"compactions_poll_interval":"1s",
"heartbeat_interval":"10s",
"max_sst_size":268435456,
"max_fetch_tasks":4,
"bytes_to_fetch":2097152,
"max_subcompactions":4,
"min_filter_keys":1000,
"compression_codec":null,
"metric_level":null,
"object_store_max_retries":null},
"metric_level":null,
"commit_compacted_interval":"1s",
"enable_experimental_incremental_compaction":false,
"checkpoint_lifetime":"60s",
"worker_heartbeat_timeout":"30s",
"object_store_max_retries":null},
"compression_codec":null,
"object_store_cache_options":{"root_folder":null,
"max_cache_size_bytes":17179869184,
"part_size_bytes":4194304,
"cache_on_flush":false,
"cache_on_compaction":false,
"preload_disk_cache_on_startup":null,
"scan_interval":"3600s",
"max_open_file_handles":1000},
"garbage_collector_options":{"manifest_options":{"interval":"600s",
"min_age":"3600s",
"dry_run":false},
"wal_options":{"interval":"600s",
"min_age":"300s",
"dry_run":false},
"wal_fence_options":{"interval":"600s",
"min_age":"300s",
"dry_run":false},
"compacted_options":{"interval":"600s",
"min_age":"300s",
"dry_run":false},
"compactions_options":{"interval":"600s",
"min_age":"3600s",
"dry_run":false},
"detach_options":{"interval":"600s"},
"metric_level":null,
"boundary_files_enabled":false,
"object_store_max_retries":null},
"metric_level":"Info",
"default_ttl_millis":null,
"object_store_max_retries":null}"#;

fn options(now_unix_ms: u64) -> SlateOptions {
    SlateOptions {
        now_unix_ms,
        seed: SEEDS.fetch_add(1, Ordering::Relaxed),
        cache: SharedCache::new(16 * MIB),
        runtime: Handle::current(),
        call_timeout: Duration::from_secs(30),
        updates: false,
    }
}

/// A seed for each opening, as a container draws it.
static SEEDS: AtomicU64 = AtomicU64::new(100);
const NOW_MS: u64 = 1_790_000_000_000;

async fn open(store: &Arc<dyn ObjectStore>) -> Arc<dyn Rows> {
    open_slate(Arc::clone(store), Path::from("container-0"), options(NOW_MS)).await.unwrap()
}

fn bytes(text: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref())
}

fn put(key: &str, value: &str) -> Change {
    (bytes(key), Some(bytes(value)))
}

fn all_rows() -> Range<Bytes> {
    bytes(" ")..bytes("~")
}

const PAGE: Limits = Limits { rows: 1_000, bytes: MIB };

async fn each_store(law: impl AsyncFn(Arc<dyn ObjectStore>)) {
    law(Arc::new(InMemory::new())).await;
    let folder = tempfile::tempdir().unwrap();
    law(Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap())).await;
}

#[tokio::test]
async fn batches_are_there_after_reopening() {
    each_store(async |store| {
        let rows = open(&store).await;
        assert_eq!(rows.applied().await.unwrap(), SequenceNumber(0));
        rows.write(vec![put("a", "1"), put("b", "1")], SequenceNumber(4)).await.unwrap();
        rows.write(vec![put("b", "2"), (bytes("a"), None), put("c", "")], SequenceNumber(9)).await.unwrap();
        rows.close().await;
        assert!(matches!(rows.get(b"b").await, Err(RowsError::Closed)));
        let rows = open(&store).await;
        assert_eq!(rows.applied().await.unwrap(), SequenceNumber(9));
        assert_eq!(rows.get(b"a").await.unwrap(), None);
        let page = rows.scan(all_rows(), PAGE).await.unwrap();
        assert_eq!(page.rows, [(bytes("b"), bytes("2")), (bytes("c"), bytes(""))]);
        assert_eq!(page.next, None);
        rows.close().await;
    })
    .await;
}

#[tokio::test]
async fn later_owner_fences_earlier_one() {
    each_store(async |store| {
        let first = open(&store).await;
        first.write(vec![put("a", "1")], SequenceNumber(1)).await.unwrap();
        let second = open(&store).await;
        assert!(second.epoch() > first.epoch());
        let refused = first.write(vec![put("a", "2")], SequenceNumber(2)).await;
        assert!(matches!(refused, Err(RowsError::Fenced)), "{refused:?}");
        assert_eq!(second.get(b"a").await.unwrap(), Some(bytes("1")));
        second.write(vec![put("a", "3")], SequenceNumber(2)).await.unwrap();
        first.close().await;
        second.close().await;
        let third = open(&store).await;
        assert!(third.epoch() > second.epoch());
        assert_eq!(third.get(b"a").await.unwrap(), Some(bytes("3")));
        third.close().await;
    })
    .await;
}

#[tokio::test]
async fn pages_of_a_scan_join_without_gap() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rows = open(&store).await;
    let written: BTreeMap<Bytes, Bytes> =
        (0..50).map(|n| (bytes(format!("k{n:02}")), bytes("value"))).collect();
    let batch = written.clone().into_iter().map(|(key, value)| (key, Some(value))).collect();
    rows.write(batch, SequenceNumber(1)).await.unwrap();
    for limits in
        [Limits { rows: 7, bytes: MIB }, Limits { rows: 1_000, bytes: 20 }, Limits { rows: 50, bytes: 0 }]
    {
        let (mut seen, mut range) = (Vec::new(), all_rows());
        loop {
            let page = rows.scan(range.clone(), limits).await.unwrap();
            assert!(!page.rows.is_empty() && page.rows.len() <= limits.rows);
            seen.extend(page.rows);
            let Some(next) = page.next else { break };
            range.start = next;
        }
        assert_eq!(seen, Vec::from_iter(written.clone()));
    }
    rows.close().await;
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_stops_neither_writes_nor_compactions() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let an_hour_ms = 3_600_000;
    let mut n = 0;
    for life in 0..4 {
        let options = options(NOW_MS - life * an_hour_ms);
        let rows = open_slate(Arc::clone(&store), Path::from("container-0"), options).await.unwrap();
        // More flushes than the engine takes without a compaction.
        for _ in 0..40 {
            n += 1;
            let write = rows.write(batch(n), SequenceNumber(n));
            tokio::time::timeout(Duration::from_secs(1), write).await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(251)).await;
        }
        assert_eq!(rows.scan(all_rows(), PAGE).await.unwrap().rows, state_at(n));
        rows.close().await;
    }
}

/// The batch of a sequence number: one key changes, one comes, the one before goes.
fn batch(n: u64) -> Vec<Change> {
    let gone = bytes(format!("only {}", n - 1));
    vec![put("every", &n.to_string()), put(&format!("only {n}"), "here"), (gone, None)]
}

fn state_at(n: u64) -> Vec<(Bytes, Bytes)> {
    if n == 0 {
        return Vec::new();
    }
    vec![(bytes("every"), bytes(n.to_string())), (bytes(format!("only {n}")), bytes("here"))]
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_put_the_rows_are_those_of_one_batch() {
    let mut seen = std::collections::BTreeSet::new();
    for puts in 0..8 {
        let store = Arc::new(FaultStore::default());
        let rows = open(&(Arc::clone(&store) as Arc<dyn ObjectStore>)).await;
        rows.write(batch(1), SequenceNumber(1)).await.unwrap();
        store.silent_after(puts);
        let mut acked = 1;
        for n in 2..5 {
            let write = rows.write(batch(n), SequenceNumber(n));
            match tokio::time::timeout(Duration::from_mins(5), write).await {
                Ok(result) => result.unwrap(),
                Err(_elapsed) => break,
            }
            acked = n;
        }
        drop(rows);
        let rows = open(&store.inner()).await;
        let applied = rows.applied().await.unwrap().0;
        assert!((acked..=acked + 1).contains(&applied), "{acked} acked, {applied} applied");
        assert_eq!(rows.scan(all_rows(), PAGE).await.unwrap().rows, state_at(applied));
        rows.write(batch(applied + 1), SequenceNumber(applied + 1)).await.unwrap();
        assert_eq!(rows.scan(all_rows(), PAGE).await.unwrap().rows, state_at(applied + 1));
        rows.close().await;
        seen.insert(applied);
    }
    assert_eq!(Vec::from_iter(seen), [1, 2, 3, 4], "crashes fell before, within and after each batch");
}

#[tokio::test(start_paused = true)]
async fn close_ends_what_waits_for_a_silent_store() {
    let store = Arc::new(FaultStore::default());
    let rows = open(&(Arc::clone(&store) as Arc<dyn ObjectStore>)).await;
    rows.write(batch(1), SequenceNumber(1)).await.unwrap();
    store.silent_after(0);
    let start = Instant::now();
    let (written, ()) = tokio::join!(rows.write(batch(2), SequenceNumber(2)), rows.close());
    assert!(written.is_err());
    assert!(start.elapsed() < CLOSE_GRACE + CLOSE_TIMEOUT);
    assert!(matches!(rows.get(b"every").await, Err(RowsError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn opening_waits_for_a_silent_store_and_ends_when_dropped() {
    let store = Arc::new(FaultStore::default());
    store.silent_after(0);
    let opening = open_slate(Arc::clone(&store) as Arc<dyn ObjectStore>, Path::from("c"), options(NOW_MS));
    assert!(tokio::time::timeout(Duration::from_hours(1), opening).await.is_err());
    // What was aborted goes when the runtime gets to it.
    tokio::task::yield_now().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn four_flushes_a_second_never_wait_for_compaction() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rows = open(&store).await;
    let mut slowest = Duration::ZERO;
    for n in 1..=100 {
        let start = Instant::now();
        rows.write(batch(n), SequenceNumber(n)).await.unwrap();
        slowest = slowest.max(start.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert_eq!(rows.scan(all_rows(), PAGE).await.unwrap().rows, state_at(100));
    rows.close().await;
}

#[tokio::test(start_paused = true)]
async fn absent_key_is_told_from_a_cache_that_scans_have_washed() {
    let store = Arc::new(FaultStore::default());
    let options = SlateOptions { cache: SharedCache::new(MIB), ..options(NOW_MS) };
    let cache = options.cache.clone();
    let inner = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let rows = open_slate(inner, Path::from("c"), options).await.unwrap();
    let large = (0..4_000).map(|n| (bytes(format!("k{n:05}")), Some(bytes([0; 1_024])))).collect();
    rows.write(large, SequenceNumber(1)).await.unwrap();
    assert_eq!(
        rows.scan(all_rows(), Limits { rows: 4_000, bytes: 8 * MIB }).await.unwrap().rows.len(),
        4_000
    );
    assert!((MIB / 2..=MIB).contains(&cache.bytes()), "{} bytes", cache.bytes());
    store.silent_after(0);
    let mut told = 0;
    for n in 0..100 {
        let key = format!("k{n:05} not there");
        let get = tokio::time::timeout(Duration::from_millis(1), rows.get(key.as_bytes()));
        told += usize::from(matches!(get.await, Ok(Ok(None))));
    }
    assert!(told >= 90, "a filter may take a few of 100 keys for present, {told} were told absent");
    rows.close().await;
    assert_eq!(cache.bytes(), 0);
}

/// All objects of a store with their bytes, after some life.
async fn life(seed: u64) -> Vec<(String, Bytes)> {
    use futures_util::StreamExt;
    use object_store::ObjectStoreExt;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let options = SlateOptions { seed, ..options(NOW_MS) };
    let rows = open_slate(Arc::clone(&store), Path::from("container-0"), options).await.unwrap();
    for n in 1..=12 {
        rows.write(batch(n), SequenceNumber(n)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    rows.close().await;
    let objects: Vec<_> = store.list(None).map(|object| object.unwrap().location).collect().await;
    let mut bytes = Vec::new();
    for path in objects {
        bytes.push((path.to_string(), store.get(&path).await.unwrap().bytes().await.unwrap()));
    }
    bytes
}

#[test]
fn life_of_a_seed_is_the_same_each_time() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(life(seed))
    };
    let first = run(1);
    assert!(first == run(1));
    assert!(first != run(2));
}

#[test]
fn settings_are_the_measured_ones() {
    let json = settings(false).to_json_string().unwrap().replace(',', ",\n");
    assert_eq!(json, SETTINGS);
}
