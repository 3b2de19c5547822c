//! Rows in tables, typed: what the controller knows, read and written with their versions.
//!
//! Holds no decision: it finds tables, batches changes and pages through listings. Caches hold only what never
//! changes (ids by name until their table is gone, epochs).

mod completed;
mod counter;
mod listing;
mod scope;
mod stream;
mod table;
mod work;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use dhara_stdx::{Clock, Entropy, Retry};
use parking_lot::Mutex;

use crate::record::CorruptRow;
use crate::record::name::{DELETED, META, SCOPES, SORTED_KEY_BYTES, VERSION_KEY, WORK_BUCKETS, work_table};
use crate::record::scope::VersionRow;
use crate::segment_client::{Expect, SegmentClient, SegmentError};
use crate::stream::Exhausted;

pub(crate) use counter::Counter;
pub(crate) use stream::{Opened, StreamTable};
pub(crate) use table::{Batch, Table, Versioned};
pub(crate) use work::{Work, WorkEntry, WorkItem};

/// Layout of the tables that this version writes.
const LAYOUT: u32 = 1;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// There is no such thing.
    #[error("finding a {0}")]
    NotFound(&'static str),
    /// The stream is still being created.
    #[error("reading a stream that is being created")]
    NotReady,
    /// Somebody else has changed the rows meanwhile; nothing was written.
    #[error("changing rows of {table} that have changed meanwhile")]
    Conflict {
        /// The table.
        table: String,
    },
    /// A segment store could not do its part.
    #[error(transparent)]
    Segment(SegmentError),
    /// A row cannot be read.
    #[error("reading row {key} of {table}")]
    Corrupt {
        /// The table.
        table: String,
        /// The row's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: CorruptRow,
    },
    /// The tables were written by another version.
    #[error("reading tables of layout {0}")]
    Layout(u32),
    /// Numbers of the stream have run out.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl StoreError {
    /// Says whether the call may be made again.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } | Self::NotReady => Retry::Safe,
            Self::Segment(error) => error.retry(),
            _ => Retry::Never,
        }
    }

    /// Whether somebody else has changed the rows meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether a table or segment is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Segment(error) if error.is_missing())
    }
}

impl From<SegmentError> for StoreError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Condition { table } => Self::Conflict { table },
            other => Self::Segment(other),
        }
    }
}

/// The controller's tables.
#[derive(Debug)]
pub(crate) struct Store {
    client: Arc<dyn SegmentClient>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    scope_ids: Mutex<BTreeMap<String, u128>>,
    streams: Mutex<BTreeMap<(String, String), Arc<StreamTable>>>,
    work: Work,
    transactions: Counter,
}

impl Store {
    /// The tables behind `client`. Nothing is read or written yet.
    pub(crate) fn new(
        client: Arc<dyn SegmentClient>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            work: Work::new(client.clone(), clock.clone()),
            transactions: Counter::new(client.clone()),
            client,
            clock,
            entropy,
            scope_ids: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    /// Makes the fixed tables if this is the first start; the version row is written last and read first.
    pub(crate) async fn prepare(&self) -> Result<(), StoreError> {
        let meta = self.table(META);
        match meta.get::<VersionRow>(VERSION_KEY).await {
            Ok(Some(found)) if found.row.layout == LAYOUT => return Ok(()),
            Ok(Some(found)) => return Err(StoreError::Layout(found.row.layout)),
            Ok(None) => {}
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
        let sorted_bytes = i32::try_from(SORTED_KEY_BYTES).unwrap_or(i32::MAX);
        let work: Vec<String> = (0..WORK_BUCKETS).map(work_table).collect();
        let mut tables = vec![(META, 0), (DELETED, 0), (SCOPES, sorted_bytes)];
        tables.extend(work.iter().map(|table| (table.as_str(), 0)));
        let creates =
            tables.into_iter().map(|(table, key_bytes)| self.client.create_table(table, key_bytes, 0));
        futures_util::future::try_join_all(creates).await?;
        let row = VersionRow { layout: LAYOUT };
        meta.write(Batch::new().put(VERSION_KEY, &row, Expect::Any)).await?;
        Ok(())
    }

    /// The segments behind the tables.
    pub(crate) fn segments(&self) -> &dyn SegmentClient {
        self.client.as_ref()
    }

    /// The wall time in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    /// A random id.
    pub(crate) fn fresh_id(&self) -> u128 {
        self.entropy.uuid()
    }

    /// The list of everything that may be unfinished.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// The numbers of transactions.
    pub(crate) fn transaction_numbers(&self) -> &Counter {
        &self.transactions
    }

    /// A table by name.
    pub(crate) fn table(&self, name: impl Into<String>) -> Table {
        Table::new(self.client.clone(), name.into())
    }
}
