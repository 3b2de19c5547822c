//! Rows in SlateDB on an object store.
//!
//! One database a container, its write-ahead log off: a batch is one memtable, flushed to one sorted object and
//! published by one manifest, so the rows are always the state at one batch. Opening raises the writer epoch in the
//! manifest, which fences every earlier owner: its next batch is refused. All work of the engine, compaction and
//! encoding of batches included, runs on the runtime handle given; only look-ups run where they are called.
//!
//! Values that come out are copies: a slice of a block would keep all of it alive as long as its row.

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::admin::Admin;
use slatedb::config::{
    CloseOptions, CompactionWorkerOptions, CompactorOptions, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ScanOptions, Settings,
};
use slatedb::{CloseReason, Db, ErrorKind, VersionedCompactions, VersionedManifest, WriteBatch};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::cache::SharedCache;
use super::key;
use super::rows::{Change, Limits, Page, PageBuilder, Rows, RowsError};
use super::store::{Guard, GuardedStore};
use crate::types::SequenceNumber;

const MIB: usize = 1024 * 1024;

/// How long the engine may end in its own way, before the store answers nothing any more.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long a closing owner waits after that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What [`open_slate`] needs besides the store.
#[derive(Clone)]
pub struct SlateOptions {
    /// Wall time now, in milliseconds since 1970; from here on tokio's clock counts.
    pub now_unix_ms: u64,
    /// Decides jitter and, with the time, the names of objects, so that a run can be repeated. A new one for
    /// each opening: two lives with one seed could give one name to two objects.
    pub seed: u64,
    /// The cache of this process.
    pub cache: SharedCache,
    /// The storage runtime.
    pub runtime: Handle,
    /// Longest wait for one call of the store; 30 s serves everything from a local folder to a far bucket.
    pub call_timeout: Duration,
    /// Whether the store has conditional overwrites; see [`super::probe_update`].
    pub updates: bool,
}

/// Opens the rows under `prefix` of `store`, makes them if there are none, and fences every earlier owner.
///
/// Waits while the store is down.
///
/// # Errors
/// [`RowsError::Fenced`] if a later owner opens them meanwhile, [`RowsError::Store`] if they cannot be read.
/// # Cancel safety
/// Dropped early, all that was begun ends; an earlier owner may be fenced.
pub async fn open_slate(
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    options: SlateOptions,
) -> Result<Arc<dyn Rows>, RowsError> {
    let closing = CancellationToken::new();
    let close_if_dropped = closing.clone().drop_guard();
    let guard = Guard { call_timeout: options.call_timeout, closing: closing.clone() };
    let store: Arc<dyn ObjectStore> = Arc::new(GuardedStore::new(store, guard));
    let clock = Arc::new(EngineClock::new(options.now_unix_ms));
    let (cache, scope) = options.cache.scope();
    let admin = Admin::builder(prefix.clone(), Arc::clone(&store))
        .with_system_clock(Arc::clone(&clock) as Arc<dyn SystemClock>)
        .with_seed(options.seed)
        .build();
    let builder = Db::builder(prefix, store)
        .with_settings(settings(options.updates))
        .with_system_clock(Arc::clone(&clock) as Arc<dyn SystemClock>)
        .with_seed(options.seed)
        .with_db_cache(cache, scope);
    let db = run(&options.runtime, "open", async move {
        clock.reach(newest_time(&admin).await?);
        let db = builder.build().await?;
        // An earlier owner may have written until it was fenced.
        clock.reach(newest_time_of(&db.manifest()));
        Ok(db)
    })
    .await?;
    let epoch = db.manifest().writer_epoch();
    let SlateOptions { cache, runtime, .. } = options;
    close_if_dropped.disarm();
    Ok(Arc::new(SlateRows { db, epoch, runtime, closing, cache, scope }))
}

/// The newest time that the engine has recorded anywhere, in milliseconds since 1970.
async fn newest_time(admin: &Admin) -> Result<i64, slatedb::Error> {
    let Some(manifest) = admin.read_manifest(None).await? else { return Ok(i64::MIN) };
    let compactions = admin.read_compactions(None).await?;
    let jobs = compactions.iter().flat_map(VersionedCompactions::recent_compactions);
    let newest_job = jobs.map(|job| job.id().timestamp_ms()).max().unwrap_or(0);
    Ok(newest_time_of(&manifest).max(time(newest_job)))
}

/// The newest time in a manifest: of a batch, or in the name of an object.
fn newest_time_of(manifest: &VersionedManifest) -> i64 {
    let views = manifest.all_sst_views().flat_map(|view| [view.id, view.sst.id.value()]);
    let compacted = [manifest.last_compacted_l0_sst_view_id(), manifest.last_compacted_l0_sst_id()];
    let newest_name = views.chain(compacted.into_iter().flatten()).map(|id| id.timestamp_ms()).max();
    manifest.last_l0_clock_tick().max(time(newest_name.unwrap_or(0)))
}

fn time(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}

/// The engine's settings; every value that differs from its default was measured.
pub(crate) fn settings(updates: bool) -> Settings {
    Settings {
        // The container's own log is the log, and the index decides when to flush.
        wal_enabled: false,
        flush_interval: None,
        // Above any batch, so that the engine never cuts or stalls one.
        l0_sst_size_bytes: 256 * MIB,
        max_unflushed_bytes: 512 * MIB,
        l0_max_ssts: 32,
        l0_max_ssts_per_key: 32,
        manifest_poll_interval: Duration::from_secs(10),
        compactor_options: Some(compactor_options()),
        garbage_collector_options: Some(garbage_collector_options(updates)),
        ..Settings::default()
    }
}

/// With the default of 5 s each, every eighth flush waits 4 to 12 s for a compaction.
fn compactor_options() -> CompactorOptions {
    CompactorOptions {
        poll_interval: Duration::from_secs(1),
        commit_compacted_interval: Duration::from_secs(1),
        // No read of ours outlives a request.
        checkpoint_lifetime: Duration::from_mins(1),
        worker: Some(CompactionWorkerOptions {
            compactions_poll_interval: Duration::from_secs(1),
            ..CompactionWorkerOptions::default()
        }),
        ..CompactorOptions::default()
    }
}

/// Without conditional overwrites an owner that wakes after a pause is kept from re-creating a deleted manifest by
/// nothing but its age, so it has to be longer than any pause.
fn garbage_collector_options(updates: bool) -> GarbageCollectorOptions {
    let mut options =
        GarbageCollectorOptions { boundary_files_enabled: updates, ..GarbageCollectorOptions::default() };
    // Fences of a log that is off; nothing else deletes them, and each opening leaves one.
    options.wal_fence_options = Some(GarbageCollectorDirectoryOptions::default());
    if !updates {
        let aged = GarbageCollectorDirectoryOptions {
            min_age: Duration::from_hours(1),
            ..GarbageCollectorDirectoryOptions::default()
        };
        options.manifest_options = Some(aged);
        options.compactions_options = Some(aged);
    }
    options
}

struct SlateRows {
    db: Db,
    epoch: u64,
    runtime: Handle,
    closing: CancellationToken,
    cache: SharedCache,
    scope: u64,
}

impl SlateRows {
    /// While closing, the engine may report any of its parts as broken.
    fn or_closed(&self, error: RowsError) -> RowsError {
        match error {
            RowsError::Store { .. } if self.closing.is_cancelled() => RowsError::Closed,
            error => error,
        }
    }
}

#[async_trait]
impl Rows for SlateRows {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError> {
        let value = self.db.get(key).await.map_err(|error| rows_error("look up a row", error));
        let value = value.map_err(|error| self.or_closed(error))?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError> {
        if range.start >= range.end {
            return Ok(Page::default());
        }
        let db = self.db.clone();
        run(&self.runtime, "scan rows", async move {
            let options = ScanOptions::default().with_cache_blocks(true);
            let mut rows = db.scan_with_options(range, &options).await?;
            let mut page = PageBuilder::new(limits);
            while let Some(row) = rows.next().await? {
                let (key, value) = (Bytes::copy_from_slice(&row.key), Bytes::copy_from_slice(&row.value));
                if !page.push(&key, &value) {
                    break;
                }
            }
            Ok(page.finish())
        })
        .await
        .map_err(|error| self.or_closed(error))
    }

    async fn write(&self, rows: Vec<Change>, applied: SequenceNumber) -> Result<(), RowsError> {
        let db = self.db.clone();
        run(&self.runtime, "write a batch", async move {
            let mut batch = WriteBatch::new();
            for (key, value) in rows {
                match value {
                    Some(value) => batch.put_bytes(key, value),
                    None => batch.delete(key),
                }
            }
            batch.put_bytes(key::applied(), key::applied_value(applied));
            drop(db.write(batch).await?);
            db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await
        })
        .await
        .map_err(|error| self.or_closed(error))
    }

    async fn applied(&self) -> Result<SequenceNumber, RowsError> {
        match self.get(&key::applied()).await? {
            None => Ok(SequenceNumber::default()),
            Some(value) => {
                key::parse_applied(&value).ok_or(RowsError::Malformed { row: "applied", bytes: value.len() })
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    async fn close(&self) {
        let (db, closing) = (self.db.clone(), self.closing.clone());
        let closed = run(&self.runtime, "close", async move {
            let options = CloseOptions::default().with_flush_type(None);
            let mut close = std::pin::pin!(db.close_with_options(options));
            let ended = match tokio::time::timeout(CLOSE_GRACE, &mut close).await {
                Ok(_closed_or_was) => true,
                Err(_elapsed) => {
                    closing.cancel();
                    tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_ok()
                }
            };
            Ok(ended)
        });
        if !closed.await.unwrap_or(false) {
            warn!(epoch = self.epoch, "index engine did not end in time");
        }
        self.closing.cancel();
        self.cache.forget(self.scope);
    }
}

impl Drop for SlateRows {
    fn drop(&mut self) {
        self.closing.cancel();
        self.cache.forget(self.scope);
    }
}

/// Runs the engine's part of a call on the storage runtime; it ends with the call.
async fn run<T: Send + 'static>(
    runtime: &Handle,
    doing: &'static str,
    work: impl Future<Output = Result<T, slatedb::Error>> + Send + 'static,
) -> Result<T, RowsError> {
    match AbortOnDropHandle::new(runtime.spawn(work)).await {
        Ok(result) => result.map_err(|error| rows_error(doing, error)),
        Err(ended) => Err(RowsError::Store { doing, source: Box::new(ended) }),
    }
}

fn rows_error(doing: &'static str, error: slatedb::Error) -> RowsError {
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => RowsError::Fenced,
        ErrorKind::Closed(CloseReason::Clean) => RowsError::Closed,
        _ => RowsError::Store { doing, source: Box::new(error) },
    }
}

/// A clock this much behind is worth a word.
const BEHIND_WORTH_A_WORD: i64 = 1_000;

/// Wall time read once, then counted by tokio's clock, which simulation can pause.
///
/// The engine refuses batches and compactions while its clock is behind any time that it has recorded: a machine
/// whose clock was set back would not write for as long. [`Self::reach`] moves this clock on instead.
#[derive(Debug)]
struct EngineClock {
    start: Instant,
    start_unix_ms: AtomicI64,
}

impl EngineClock {
    fn new(now_unix_ms: u64) -> Self {
        Self { start: Instant::now(), start_unix_ms: AtomicI64::new(time(now_unix_ms)) }
    }

    /// Sees to it that the clock shows at least `unix_ms` from now on.
    fn reach(&self, unix_ms: i64) {
        let behind_ms = unix_ms.saturating_sub(self.now().timestamp_millis());
        if behind_ms > 0 {
            if behind_ms > BEHIND_WORTH_A_WORD {
                warn!(behind_ms, "wall clock is behind the index, which goes on from its own newest time");
            }
            self.start_unix_ms.fetch_add(behind_ms, Ordering::SeqCst);
        }
    }
}

impl SystemClock for EngineClock {
    fn now(&self) -> DateTime<Utc> {
        let start = DateTime::from_timestamp_millis(self.start_unix_ms.load(Ordering::SeqCst));
        start.unwrap_or(DateTime::UNIX_EPOCH) + self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn ticker(&self, duration: Duration) -> SystemClockTicker<'_> {
        SystemClockTicker::new(self, duration)
    }
}

#[cfg(test)]
mod tests;
