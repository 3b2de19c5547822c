//! Numbers that never repeat, taken from the table in ranges so that most of them cost no round trip.

use std::sync::Arc;

use parking_lot::Mutex;

use super::table::{Batch, Table, unchanged};
use super::{StoreError, Versioned};
use crate::record::name::{META, TRANSACTION_COUNTER_KEY};
use crate::record::scope::CounterRow;
use crate::segment_client::SegmentClient;

/// Numbers taken at a time.
const RANGE: u64 = 4096;

/// A source of numbers. After a crash the rest of the range is lost, which does no harm.
#[derive(Debug)]
pub(crate) struct Counter {
    table: Table,
    range: Mutex<std::ops::Range<u64>>,
}

impl Counter {
    /// The counter of transactions.
    pub(crate) fn new(client: Arc<dyn SegmentClient>) -> Self {
        Self { table: Table::new(client, META.to_owned()), range: Mutex::new(0..0) }
    }

    /// Takes the next number.
    pub(crate) async fn next(&self) -> Result<u64, StoreError> {
        loop {
            let next = self.range.lock().next();
            if let Some(number) = next {
                return Ok(number);
            }
            match self.take_range().await {
                // Of two ranges taken at the same time one is dropped.
                Ok(taken) => *self.range.lock() = taken,
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn take_range(&self) -> Result<std::ops::Range<u64>, StoreError> {
        let found: Option<Versioned<CounterRow>> = self.table.get(TRANSACTION_COUNTER_KEY).await?;
        let start = found.as_ref().map_or(1, |found| found.row.next);
        let end = start.saturating_add(RANGE);
        let batch =
            Batch::new().put(TRANSACTION_COUNTER_KEY, &CounterRow { next: end }, unchanged(found.as_ref()));
        self.table.write(batch).await?;
        Ok(start..end)
    }
}
