//! The rows that lie under the overlay, seen through a few calls.
//!
//! [`Rows`] is all that the index asks of its store: one owner at a time, atomic batches that are durable
//! when they return, and reads that see whole batches only. It never keeps an iterator over a call, so a
//! compaction never waits for a reader. [`super::slate`] is the real one, [`super::memory`] the one for
//! tests and simulation.

use async_trait::async_trait;
use bytes::Bytes;
use dhara_stdx::Retry;
use std::ops::Range;

use crate::types::SequenceNumber;

/// A key with its new value, or with `None` where the key is gone.
pub type Change = (Bytes, Option<Bytes>);

/// How much one scan may return; whatever limit is met first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rows of a page, at least 1.
    pub rows: usize,
    /// Most bytes of keys and values of a page; the first row is returned even where it is larger.
    pub bytes: usize,
}

/// A part of a scan, in ascending order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys with their values; empty only where the range is exhausted.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Where the next page starts (inclusive); `None` where the range is exhausted.
    pub next: Option<Bytes>,
}

/// Rows of one container, held by the owner that opened them last.
#[async_trait]
pub trait Rows: Send + Sync + 'static {
    /// Returns the value of `key`; `None` is certain, never a failed look-up.
    ///
    /// # Errors
    /// [`RowsError`] where the store cannot answer.
    /// # Cancel safety
    /// Changes nothing.
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError>;

    /// Returns the first rows of `range` within `limits`, as of one moment of the call.
    ///
    /// # Errors
    /// [`RowsError`] where the store cannot answer.
    /// # Cancel safety
    /// Changes nothing.
    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError>;

    /// Writes all `rows` and the row `applied` in one atomic batch, durable when this returns. Of a key
    /// given twice the last value stays.
    ///
    /// # Errors
    /// [`RowsError::Fenced`] if a later owner has opened these rows: nothing of the batch is, or will be,
    /// visible to it. After any other error the batch may or may not be there once the rows are opened
    /// again, whole or not at all.
    /// # Cancel safety
    /// None: dropped early, the batch may still be written.
    async fn write(&self, rows: Vec<Change>, applied: SequenceNumber) -> Result<(), RowsError>;

    /// Returns the sequence number of the newest batch, zero if none was ever written.
    ///
    /// # Errors
    /// [`RowsError`] where the store cannot answer, or where the row `applied` is malformed.
    /// # Cancel safety
    /// Changes nothing.
    async fn applied(&self) -> Result<SequenceNumber, RowsError>;

    /// Returns the epoch of this owner, at least one above that of every owner before it.
    fn epoch(&self) -> u64;

    /// Ends this owner without writing anything; calls that wait for the store end with an error.
    ///
    /// # Cancel safety
    /// May be called again.
    async fn close(&self);
}

/// Why rows could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// A later owner has opened these rows; this one can only be dropped.
    #[error("rows belong to a later owner")]
    Fenced,
    /// The rows were closed by their own owner.
    #[error("rows are closed")]
    Closed,
    /// A row has bytes that this version never writes.
    #[error("malformed row {row} of {bytes} bytes")]
    Malformed {
        /// Which row.
        row: &'static str,
        /// How many bytes its value has.
        bytes: usize,
    },
    /// The store could not answer.
    #[error("row store, {doing}")]
    Store {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl RowsError {
    /// What the caller may do. A read may always be made again; of a write nobody knows.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Fenced | Self::Closed | Self::Malformed { .. } => Retry::Never,
            Self::Store { .. } => Retry::Unknown,
        }
    }
}

/// Gathers a page row by row and says when its limits are met.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    limits: Limits,
    bytes: usize,
    page: Page,
}

impl PageBuilder {
    pub(crate) fn new(limits: Limits) -> Self {
        assert!(limits.rows > 0, "a page holds at least one row");
        Self { limits, bytes: 0, page: Page::default() }
    }

    /// Adds a row, or ends the page before it; `false` once the page has ended.
    pub(crate) fn push(&mut self, key: &Bytes, value: &Bytes) -> bool {
        let bytes = self.bytes.saturating_add(key.len()).saturating_add(value.len());
        if !self.page.rows.is_empty()
            && (self.page.rows.len() >= self.limits.rows || bytes > self.limits.bytes)
        {
            self.page.next = Some(key.clone());
            return false;
        }
        self.bytes = bytes;
        self.page.rows.push((key.clone(), value.clone()));
        true
    }

    pub(crate) fn finish(self) -> Page {
        self.page
    }
}
