//! The list of everything that may be unfinished: what a controller looks through after a crash.
//!
//! A row is written before the first intent of a stream, group, table or scope. It is refreshed while the thing is
//! used and removed some time after it has come to rest, so a busy stream pays for it once in half a minute.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dhara_stdx::Clock;
use parking_lot::Mutex;

use super::StoreError;
use super::table::{Batch, Table};
use crate::record::name::{Kind, WORK_BUCKETS, work_table};
use crate::record::scope::WorkRow;
use crate::segment_client::{Expect, SegmentClient};

/// A row announced this long ago is announced again by the next intent.
const REFRESH_MS: i64 = 30_000;
/// A row must be this old to be removed: longer than [`REFRESH_MS`] by more than clocks of controllers differ.
const REST_MS: i64 = 60_000;

/// A thing that may be unfinished.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkItem {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its scope.
    pub(crate) scope: String,
    /// Its name; empty for the scope itself.
    pub(crate) name: String,
}

/// A row of the list with what it takes to remove it.
#[derive(Debug, Clone)]
pub(crate) struct WorkEntry {
    /// What may be unfinished.
    pub(crate) item: WorkItem,
    /// Whether the row is old enough to be removed.
    pub(crate) rested: bool,
    key: Bytes,
    version: i64,
    bucket: u32,
}

/// The list.
#[derive(Debug)]
pub(crate) struct Work {
    client: Arc<dyn SegmentClient>,
    clock: Arc<dyn Clock>,
    announced: Mutex<BTreeMap<WorkItem, i64>>,
}

impl WorkItem {
    /// A stream.
    pub(crate) fn stream(scope: &str, stream: &str) -> Self {
        Self { kind: Kind::Stream, scope: scope.to_owned(), name: stream.to_owned() }
    }

    fn key(&self) -> Bytes {
        let mut key = vec![self.kind.byte()];
        key.extend_from_slice(self.scope.as_bytes());
        key.push(b'/');
        key.extend_from_slice(self.name.as_bytes());
        key.into()
    }

    fn from_key(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let (scope, name) = std::str::from_utf8(rest).ok()?.split_once('/')?;
        Some(Self { kind: Kind::from_byte(*kind)?, scope: scope.to_owned(), name: name.to_owned() })
    }

    fn bucket(&self) -> u32 {
        crc(&self.key()) % WORK_BUCKETS
    }
}

/// A stable spread of names over buckets.
fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl Work {
    /// The list behind `client`.
    pub(crate) fn new(client: Arc<dyn SegmentClient>, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, announced: Mutex::default() }
    }

    fn table(&self, bucket: u32) -> Table {
        Table::new(self.client.clone(), work_table(bucket))
    }

    /// Makes sure that a crash from now on will not be overlooked.
    pub(crate) async fn announce(&self, item: &WorkItem) -> Result<(), StoreError> {
        let now_ms = self.clock.wall_ms();
        let known = self.announced.lock().get(item).copied();
        if known.is_some_and(|at| (0..REFRESH_MS).contains(&now_ms.saturating_sub(at))) {
            return Ok(());
        }
        let batch = Batch::new().put(item.key(), &WorkRow { announced_ms: now_ms }, Expect::Any);
        self.table(item.bucket()).write(batch).await?;
        self.announced.lock().insert(item.clone(), now_ms);
        Ok(())
    }

    /// Reads one bucket of the list.
    pub(crate) async fn entries(&self, bucket: u32) -> Result<Vec<WorkEntry>, StoreError> {
        let table = self.table(bucket);
        let now_ms = self.clock.wall_ms();
        self.announced.lock().retain(|_item, at| now_ms.saturating_sub(*at) < REFRESH_MS);
        let mut found = Vec::new();
        let mut token = Bytes::new();
        loop {
            let page = table.page(token).await?;
            if page.entries.is_empty() {
                return Ok(found);
            }
            for entry in page.entries {
                let Some(item) = WorkItem::from_key(&entry.key) else { continue };
                let row = table.decode::<WorkRow>(&entry)?.row;
                let rested = now_ms.saturating_sub(row.announced_ms) > REST_MS;
                found.push(WorkEntry { item, rested, key: entry.key, version: entry.version, bucket });
            }
            token = page.token;
        }
    }

    /// Takes a row off the list, unless it has been announced again meanwhile.
    pub(crate) async fn settle(&self, entry: &WorkEntry) -> Result<(), StoreError> {
        self.announced.lock().remove(&entry.item);
        let unchanged = Expect::Version(entry.version);
        match self.table(entry.bucket).remove(vec![(entry.key.clone(), unchanged)]).await {
            Err(error) if error.is_conflict() => Ok(()),
            other => other,
        }
    }
}
