//! Completed transactions: one sorted table an hour, dropped as a whole once it is a day old.
//!
//! A key is a hash of the stream's full name and the transaction's id, so the transactions of one stream lie side by
//! side, and an answer outlives the stream.

use bytes::{BufMut, Bytes, BytesMut};
use dhara_wire::hash::seeded_hash;

use super::table::{Batch, Versioned};
use super::{Store, StoreError};
use crate::record::name::{HOUR_KEY_PREFIX, META, completed_table};
use crate::record::scope::{CompletedRow, WorkRow};
use crate::segment_client::{Bounds, Expect};
use crate::stream::{TransactionId, TransactionState};

/// Milliseconds of one table.
const HOUR_MS: i64 = 60 * 60 * 1000;
/// Hours for which the end of a transaction is known.
const HOURS_KEPT: i64 = 24;
/// Bytes of a key: hash of the name, id of the transaction.
const KEY_BYTES: i32 = 32;
/// Most transactions listed.
const LIST_MAX: usize = 500;

fn name_hash(scope: &str, stream: &str) -> [u8; 16] {
    let name = format!("{scope}/{stream}");
    let high = u128::from(seeded_hash("CompletedTransactionsHigh", &name));
    let low = u128::from(seeded_hash("CompletedTransactionsLow", &name));
    ((high << 64) | low).to_be_bytes()
}

fn key(scope: &str, stream: &str, id: TransactionId) -> Bytes {
    let mut key = BytesMut::with_capacity(32);
    key.put_slice(&name_hash(scope, stream));
    key.put_i64(id.high);
    key.put_i64(id.low);
    key.freeze()
}

fn id_in_key(key: &[u8]) -> Option<TransactionId> {
    let high = key.get(16..24)?.try_into().ok()?;
    let low = key.get(24..32)?.try_into().ok()?;
    Some(TransactionId { high: i64::from_be_bytes(high), low: i64::from_be_bytes(low) })
}

impl Store {
    fn hour(&self) -> i64 {
        self.now_ms().div_euclid(HOUR_MS)
    }

    /// Records how transactions of a stream ended. Writing the same again changes nothing.
    pub(crate) async fn complete(
        &self,
        (scope, stream): (&str, &str),
        ids: &[TransactionId],
        state: TransactionState,
    ) -> Result<(), StoreError> {
        let hour = self.hour();
        let table = self.table(completed_table(hour));
        let row = CompletedRow { state, completed_ms: self.now_ms() };
        let put = |batch: Batch, id: &TransactionId| batch.put(key(scope, stream, *id), &row, Expect::Any);
        let batch = ids.iter().fold(Batch::new(), put);
        match table.write(batch.clone()).await {
            Err(error) if error.is_missing() => {
                // The row that will have the table dropped comes before the table.
                let note = WorkRow { announced_ms: row.completed_ms };
                let hours = Batch::new().put(format!("{HOUR_KEY_PREFIX}{hour}"), &note, Expect::Any);
                self.table(META).write(hours).await?;
                self.segments().create_table(table.name(), KEY_BYTES, 0).await?;
                table.write(batch).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    /// How a transaction ended, if that was within the last day.
    pub(crate) async fn completed(
        &self,
        scope: &str,
        stream: &str,
        id: TransactionId,
    ) -> Result<Option<TransactionState>, StoreError> {
        let key = key(scope, stream, id);
        let look = async |hour: i64| -> Result<Option<CompletedRow>, StoreError> {
            match self.table(completed_table(hour)).get::<CompletedRow>(key.clone()).await {
                Err(error) if error.is_missing() => Ok(None),
                other => Ok(other?.map(|found: Versioned<CompletedRow>| found.row)),
            }
        };
        let now = self.hour();
        // Nearly every question is about a transaction that has just ended.
        for hours in [now - 1..=now, now - HOURS_KEPT..=now - 2] {
            let found = futures_util::future::try_join_all(hours.map(look)).await?;
            if let Some(row) = found.into_iter().flatten().next() {
                return Ok(Some(row.state));
            }
        }
        Ok(None)
    }

    /// Transactions of a stream that ended within the last day but not before `since_ms`, newest first.
    pub(crate) async fn list_completed(
        &self,
        scope: &str,
        stream: &str,
        since_ms: i64,
    ) -> Result<Vec<(TransactionId, TransactionState)>, StoreError> {
        let hash = name_hash(scope, stream);
        let bound = |fill: u8| Bytes::from([hash.as_slice(), [fill; 16].as_slice()].concat());
        let mut listed = Vec::new();
        let now = self.hour();
        for hour in (now - HOURS_KEPT..=now).rev() {
            if listed.len() >= LIST_MAX {
                break;
            }
            let found = self.completed_in_hour(hour, &bound(0), &bound(u8::MAX)).await?;
            listed.extend(found.into_iter().filter(|(_id, row)| row.completed_ms >= since_ms));
        }
        listed.sort_by_key(|(_, row): &(TransactionId, CompletedRow)| std::cmp::Reverse(row.completed_ms));
        listed.truncate(LIST_MAX);
        Ok(listed.into_iter().map(|(id, row)| (id, row.state)).collect())
    }

    async fn completed_in_hour(
        &self,
        hour: i64,
        from: &Bytes,
        to: &Bytes,
    ) -> Result<Vec<(TransactionId, CompletedRow)>, StoreError> {
        let table = self.table(completed_table(hour));
        let mut found = Vec::new();
        let mut from = from.clone();
        loop {
            let bounds = Bounds { from: from.clone(), to: to.clone(), count: 1000 };
            let entries = match table.range(bounds).await {
                Err(error) if error.is_missing() => return Ok(found),
                other => other?,
            };
            let Some(last) = entries.last() else { return Ok(found) };
            let Some(next) = key_after(&last.key) else { return Ok(found) };
            from = next;
            for entry in &entries {
                let Some(id) = id_in_key(&entry.key) else { continue };
                found.push((id, table.decode::<CompletedRow>(entry)?.row));
            }
            if from > *to {
                return Ok(found);
            }
        }
    }

    /// Drops the tables of hours that are no longer asked for.
    pub(crate) async fn drop_old_hours(&self) -> Result<(), StoreError> {
        let meta = self.table(META);
        let oldest = self.hour() - HOURS_KEPT;
        let mut token = Bytes::new();
        loop {
            let page = meta.page(token).await?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for entry in &page.entries {
                let name =
                    std::str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(HOUR_KEY_PREFIX));
                let Some(hour) = name.and_then(|hour| hour.parse::<i64>().ok()) else { continue };
                if hour < oldest {
                    self.segments().delete_table(&completed_table(hour)).await?;
                    meta.remove(vec![(entry.key.clone(), Expect::Any)]).await?;
                }
            }
            token = page.token;
        }
    }
}

/// The key that follows `key` among keys of the same length.
fn key_after(key: &[u8]) -> Option<Bytes> {
    let number = u128::from_be_bytes(key.get(16..32)?.try_into().ok()?).checked_add(1)?;
    Some([key.get(..16)?, number.to_be_bytes().as_slice()].concat().into())
}
