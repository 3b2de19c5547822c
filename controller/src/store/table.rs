//! One table: rows read with their versions, changes written as one conditional batch.

use std::sync::Arc;

use bytes::Bytes;

use super::StoreError;
use crate::record::Row;
use crate::segment_client::{Bounds, Entry, Expect, Page, SegmentClient, Write};

/// A row and the version under which it was read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versioned<R> {
    /// The row.
    pub(crate) row: R,
    /// Its version.
    pub(crate) version: i64,
}

impl<R> Versioned<R> {
    /// The condition that nobody has changed the row since.
    pub(crate) fn unchanged(&self) -> Expect {
        Expect::Version(self.version)
    }
}

/// The condition that a row is as it was read, or still not there.
pub(crate) fn unchanged<R>(row: Option<&Versioned<R>>) -> Expect {
    row.map_or(Expect::Absent, Versioned::unchanged)
}

/// Rows to be written together or not at all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch(Vec<Write>);

impl Batch {
    /// A batch without rows.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a row.
    #[must_use]
    pub(crate) fn put<R: Row>(mut self, key: impl Into<Bytes>, row: &R, expect: Expect) -> Self {
        self.0.push(Write { key: key.into(), value: row.to_bytes(), expect });
        self
    }

    /// Adds the rows of another batch.
    #[must_use]
    pub(crate) fn and(mut self, further: Self) -> Self {
        self.0.extend(further.0);
        self
    }
}

/// A table by name.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    client: Arc<dyn SegmentClient>,
    name: String,
}

impl Table {
    /// The table called `name`, which need not exist.
    pub(crate) fn new(client: Arc<dyn SegmentClient>, name: String) -> Self {
        Self { client, name }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads one row.
    pub(crate) async fn get<R: Row>(
        &self,
        key: impl Into<Bytes>,
    ) -> Result<Option<Versioned<R>>, StoreError> {
        let mut found = self.get_entries(vec![key.into()]).await?;
        found.pop().flatten().map(|entry| self.decode(&entry)).transpose()
    }

    /// Reads several rows of one type, each present or not.
    pub(crate) async fn get_all<R: Row>(
        &self,
        keys: Vec<Bytes>,
    ) -> Result<Vec<Option<Versioned<R>>>, StoreError> {
        let found = self.get_entries(keys).await?;
        found.into_iter().map(|entry| entry.map(|entry| self.decode(&entry)).transpose()).collect()
    }

    /// Reads several rows of different types, to be taken apart by [`Table::decode_at`].
    pub(crate) async fn get_entries(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>, StoreError> {
        Ok(self.client.read(&self.name, keys).await?)
    }

    /// Decodes the row at `index` of what [`Table::get_entries`] returned.
    pub(crate) fn decode_at<R: Row>(
        &self,
        entries: &[Option<Entry>],
        index: usize,
    ) -> Result<Option<Versioned<R>>, StoreError> {
        entries.get(index).and_then(Option::as_ref).map(|entry| self.decode(entry)).transpose()
    }

    /// Decodes an entry.
    pub(crate) fn decode<R: Row>(&self, entry: &Entry) -> Result<Versioned<R>, StoreError> {
        let corrupt = |source| StoreError::Corrupt {
            table: self.name.clone(),
            key: String::from_utf8_lossy(&entry.key).trim_end_matches('\0').to_owned(),
            source,
        };
        Ok(Versioned { row: R::from_bytes(&entry.value).map_err(corrupt)?, version: entry.version })
    }

    /// Writes a batch; returns the versions of its rows.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a condition does not hold.
    pub(crate) async fn write(&self, batch: Batch) -> Result<Vec<i64>, StoreError> {
        Ok(self.client.update(&self.name, batch.0).await?)
    }

    /// Removes keys on conditions.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a condition does not hold.
    pub(crate) async fn remove(&self, keys: Vec<(Bytes, Expect)>) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        Ok(self.client.remove(&self.name, keys).await?)
    }

    /// Reads a page of an unsorted table.
    pub(crate) async fn page(&self, token: Bytes) -> Result<Page, StoreError> {
        Ok(self.client.read_page(&self.name, token).await?)
    }

    /// Reads entries of a sorted table.
    pub(crate) async fn range(&self, bounds: Bounds) -> Result<Vec<Entry>, StoreError> {
        Ok(self.client.read_range(&self.name, bounds).await?)
    }

    /// Reads keys of a sorted table.
    pub(crate) async fn key_range(&self, bounds: Bounds) -> Result<Vec<Bytes>, StoreError> {
        Ok(self.client.read_key_range(&self.name, bounds).await?)
    }
}
