//! The table of one stream, found by name and remembered until it is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::table::{Batch, Table, Versioned, unchanged};
use super::{Store, StoreError};
use crate::record::name::{
    CONFIG, HEAD, Kind, SUBSCRIBERS, TRANSACTION_PREFIX, TRUNCATION, epoch_key, sealed_key, stream_table,
    transaction_key, writer_key,
};
use crate::record::scope::{Presence, StreamRow};
use crate::record::stream::{ConfigRow, Head, SealedRow};
use crate::segment_client::Expect;
use crate::stream::group::Subscription;
use crate::stream::watermark::{Note, WriterMark};
use crate::stream::{EpochRecord, SegmentId, StreamCut, Transaction, TransactionId, TruncationRecord};

/// Most streams remembered; beyond it all are forgotten and found again.
const STREAMS_MAX: usize = 100_000;
/// Most epochs remembered of one stream; beyond it the oldest is forgotten.
const EPOCHS_MAX: usize = 32;
/// Most rows read in one request.
const ROWS_PER_READ: usize = 500;

/// Subscribers of a stream by `scope/group`.
pub(crate) type Subscribers = BTreeMap<String, Subscription>;

/// A stream's own table.
#[derive(Debug)]
pub(crate) struct StreamTable {
    /// Scope of the stream.
    pub(crate) scope: String,
    /// Its name.
    pub(crate) stream: String,
    /// Id that tells it from other streams of the name.
    pub(crate) id: u128,
    table: Table,
    epochs: Mutex<BTreeMap<i32, Arc<EpochRecord>>>,
    last_head: Mutex<Option<Head>>,
}

/// A stream with the state it was found in.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    /// Its table.
    pub(crate) table: Arc<StreamTable>,
    /// Its state.
    pub(crate) head: Versioned<Head>,
}

/// What a look at all rows of a stream finds unfinished.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Transactions that are not completed, with the versions of their rows.
    pub(crate) transactions: Vec<Versioned<Transaction>>,
}

impl Store {
    /// The row of a stream in its scope, if it is there; also while it is being created or deleted.
    pub(crate) async fn find_stream(
        &self,
        scope: &str,
        stream: &str,
    ) -> Result<Option<Versioned<StreamRow>>, StoreError> {
        match self.find_in_scope(scope, Kind::Stream, stream).await {
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) if error.is_missing() => Ok(None),
            other => other,
        }
    }

    /// The table of the stream with this id.
    pub(crate) fn stream_table(&self, scope: &str, stream: &str, id: u128) -> Arc<StreamTable> {
        let key = (scope.to_owned(), stream.to_owned());
        let mut known = self.streams.lock();
        if let Some(table) = known.get(&key).filter(|table| table.id == id) {
            return table.clone();
        }
        if known.len() >= STREAMS_MAX {
            known.clear();
        }
        let table = Arc::new(StreamTable {
            scope: scope.to_owned(),
            stream: stream.to_owned(),
            id,
            table: self.table(stream_table(id)),
            epochs: Mutex::default(),
            last_head: Mutex::default(),
        });
        known.insert(key, table.clone());
        table
    }

    /// Forgets where a stream is.
    pub(crate) fn forget_stream(&self, scope: &str, stream: &str) {
        self.streams.lock().remove(&(scope.to_owned(), stream.to_owned()));
    }

    /// Finds the table of a stream, without a round trip if it has been found before. The stream may be gone.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(crate) async fn stream(&self, scope: &str, stream: &str) -> Result<Arc<StreamTable>, StoreError> {
        let known = self.streams.lock().get(&(scope.to_owned(), stream.to_owned())).cloned();
        match known {
            Some(table) => Ok(table),
            None => Ok(self.open(scope, stream).await?.table),
        }
    }

    /// Finds a stream and its state: one round trip if it has been found before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such stream, [`StoreError::NotReady`] if its rows are not there yet.
    pub(crate) async fn open(&self, scope: &str, stream: &str) -> Result<Opened, StoreError> {
        let known = self.streams.lock().get(&(scope.to_owned(), stream.to_owned())).cloned();
        if let Some(table) = known {
            match table.head().await {
                Ok(Some(head)) => return Ok(Opened { table, head }),
                Ok(None) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
            self.forget_stream(scope, stream);
        }
        let row = self.find_stream(scope, stream).await?.ok_or(StoreError::NotFound("stream"))?.row;
        if row.presence == Presence::Leaving {
            return Err(StoreError::NotFound("stream"));
        }
        let table = self.stream_table(scope, stream, row.id);
        match table.head().await {
            Ok(Some(head)) => Ok(Opened { table, head }),
            Ok(None) => Err(StoreError::NotReady),
            Err(error) if error.is_missing() => Err(StoreError::NotReady),
            Err(error) => Err(error),
        }
    }
}

impl StreamTable {
    /// The table itself.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The state of the stream.
    pub(crate) async fn head(&self) -> Result<Option<Versioned<Head>>, StoreError> {
        let found: Option<Versioned<Head>> = self.table.get(HEAD).await?;
        if let Some(found) = &found {
            self.note_head(found.row);
        }
        Ok(found)
    }

    /// The state as this process read or wrote it last; another controller may have changed it since.
    pub(crate) fn last_head(&self) -> Option<Head> {
        *self.last_head.lock()
    }

    /// Keeps the state that has been read or written.
    pub(crate) fn note_head(&self, head: Head) {
        *self.last_head.lock() = Some(head);
    }

    /// The configuration of the stream.
    pub(crate) async fn config(&self) -> Result<Versioned<ConfigRow>, StoreError> {
        self.table.get(CONFIG).await?.ok_or(StoreError::NotReady)
    }

    /// The truncation of the stream; none has been if there is no row.
    pub(crate) async fn truncation(&self) -> Result<Option<Versioned<TruncationRecord>>, StoreError> {
        self.table.get(TRUNCATION).await
    }

    /// One epoch.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such epoch.
    pub(crate) async fn epoch(&self, epoch: i32) -> Result<Arc<EpochRecord>, StoreError> {
        let known = self.epochs.lock().get(&epoch).cloned();
        if let Some(record) = known {
            return Ok(record);
        }
        let found: Option<Versioned<EpochRecord>> = self.table.get(epoch_key(epoch)).await?;
        let record = Arc::new(found.ok_or(StoreError::NotFound("epoch"))?.row);
        self.remember_epoch(&record);
        Ok(record)
    }

    /// Several epochs, in the order asked for.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if one is missing.
    pub(crate) async fn epochs(
        &self,
        wanted: impl IntoIterator<Item = i32>,
    ) -> Result<Vec<EpochRecord>, StoreError> {
        let wanted: Vec<i32> = wanted.into_iter().collect();
        let mut records = Vec::with_capacity(wanted.len());
        for part in wanted.chunks(ROWS_PER_READ) {
            let keys = part.iter().map(|epoch| epoch_key(*epoch).into()).collect();
            for found in self.table.get_all::<EpochRecord>(keys).await? {
                records.push(found.ok_or(StoreError::NotFound("epoch"))?.row);
            }
        }
        Ok(records)
    }

    /// Keeps an epoch that has been read or written. Epochs never change.
    pub(crate) fn remember_epoch(&self, record: &Arc<EpochRecord>) {
        let mut epochs = self.epochs.lock();
        epochs.insert(record.epoch, record.clone());
        if epochs.len() > EPOCHS_MAX {
            epochs.pop_first();
        }
    }

    /// When a segment was sealed, if it was replaced.
    pub(crate) async fn sealed(
        &self,
        segment: SegmentId,
    ) -> Result<Option<Versioned<SealedRow>>, StoreError> {
        self.table.get(sealed_key(segment)).await
    }

    /// A transaction that is not completed.
    pub(crate) async fn transaction(
        &self,
        id: TransactionId,
    ) -> Result<Option<Versioned<Transaction>>, StoreError> {
        self.table.get(transaction_key(id)).await
    }

    /// Writes a transaction.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if `expect` does not hold.
    pub(crate) async fn write_transaction(
        &self,
        row: Transaction,
        expect: Expect,
    ) -> Result<Versioned<Transaction>, StoreError> {
        let versions = self.table.write(Batch::new().put(transaction_key(row.id), &row, expect)).await?;
        Ok(Versioned { row, version: versions.first().copied().unwrap_or_default() })
    }

    /// The subscribers of the stream.
    pub(crate) async fn subscribers(&self) -> Result<Option<Versioned<Subscribers>>, StoreError> {
        self.table.get(SUBSCRIBERS).await
    }

    /// Changes the subscribers until nobody else has changed them meanwhile. `change` returns whether it did anything.
    pub(crate) async fn change_subscribers(
        &self,
        change: impl Fn(&mut Subscribers) -> bool + Send,
    ) -> Result<(), StoreError> {
        loop {
            let found = self.subscribers().await?;
            let expect = unchanged(found.as_ref());
            let mut row = found.map(|found| found.row).unwrap_or_default();
            if !change(&mut row) {
                return Ok(());
            }
            match self.write_subscribers(&row, expect).await {
                Err(error) if error.is_conflict() => {}
                other => return other,
            }
        }
    }

    /// Writes the subscribers.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if `expect` does not hold.
    pub(crate) async fn write_subscribers(
        &self,
        row: &Subscribers,
        expect: Expect,
    ) -> Result<(), StoreError> {
        self.table.write(Batch::new().put(SUBSCRIBERS, row, expect)).await.map(drop)
    }

    /// Keeps a writer's time and position, unless they make no sense after what it noted before.
    pub(crate) async fn note_writer(
        &self,
        writer: &str,
        position: &StreamCut,
        time: i64,
    ) -> Result<Note, StoreError> {
        loop {
            let found = self.writer(writer).await?;
            let note = WriterMark::note(found.as_ref().map(|found| &found.row), position.clone(), time);
            let Note::Moved(row) = &note else { return Ok(note) };
            let batch = Batch::new().put(writer_key(writer), row, unchanged(found.as_ref()));
            match self.table.write(batch).await {
                Err(error) if error.is_conflict() => {}
                other => return other.map(|_versions| note),
            }
        }
    }

    /// Says that a writer is gone; `false` if it has never noted a time.
    pub(crate) async fn remove_writer(&self, writer: &str) -> Result<bool, StoreError> {
        loop {
            let Some(found) = self.writer(writer).await? else { return Ok(false) };
            let batch = Batch::new().put(writer_key(writer), &found.row.removed(), found.unchanged());
            match self.table.write(batch).await {
                Err(error) if error.is_conflict() => {}
                other => return other.map(|_versions| true),
            }
        }
    }

    async fn writer(&self, writer: &str) -> Result<Option<Versioned<WriterMark>>, StoreError> {
        self.table.get(writer_key(writer)).await
    }

    /// Looks at all rows of the stream for what is unfinished.
    pub(crate) async fn sweep(&self) -> Result<Sweep, StoreError> {
        let mut sweep = Sweep::default();
        let mut token = Bytes::new();
        loop {
            let page = self.table.page(token).await?;
            if page.entries.is_empty() {
                return Ok(sweep);
            }
            for entry in
                page.entries.iter().filter(|entry| entry.key.starts_with(TRANSACTION_PREFIX.as_bytes()))
            {
                sweep.transactions.push(self.table.decode(entry)?);
            }
            token = page.token;
        }
    }
}
