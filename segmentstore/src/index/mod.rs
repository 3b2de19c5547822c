//! The index of a container: all rows it must find again by key.
//!
//! Two layers. The *overlay* holds every change since the last index flush in memory; under it lie the
//! [`Rows`] of the object store, which are always the state at exactly one sequence number, the one in
//! their row `applied`. A flush freezes the overlay as of a sequence number and writes it in one batch with
//! that number, so recovery is: read `applied`, apply the log's later records.
//!
//! A key that the overlay does not know is *unknown*, not absent, until the rows have answered ([`Peek`]).
//! The index never decides when to flush, never reads the log, never retries a failed flush: the container
//! does the first two and closes after the third.
//!
//! Order that matters: `apply` in order of sequence numbers; `freeze` as of the last applied one; one flush
//! at a time.

mod cache;
pub mod key;
mod memory;
mod overlay;
mod rows;
mod slate;
mod store;

use bytes::Bytes;
use dhara_stdx::Retry;
use parking_lot::RwLock;
use std::collections::btree_map::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tokio::time::Instant;

pub use cache::SharedCache;
pub use memory::{MemoryDisk, MemoryRows, WriteFault};
pub use overlay::Row;
pub use rows::{Change, Limits, Page, Rows, RowsError};
pub use slate::{SlateOptions, open_slate};
pub use store::probe_update;

use crate::types::SequenceNumber;
use overlay::{Overlay, Slice};
use rows::PageBuilder;

/// Most rows that one scan looks at in each layer, however many its caller asks for: what is copied under
/// the lock is bounded by it.
pub const SCAN_ROWS_MAX: usize = 4_096;

/// A handle on a container's index; clones share it.
#[derive(Clone)]
pub struct Index {
    shared: Arc<Shared>,
}

struct Shared {
    rows: Arc<dyn Rows>,
    state: RwLock<State>,
}

struct State {
    active: Overlay,
    /// When the first row that `active` holds was applied.
    dirty_since: Option<Instant>,
    /// The sequence number of the newest change in `active` or below.
    newest: SequenceNumber,
    frozen: Option<Arc<Overlay>>,
    /// How often `active` was frozen.
    generation: u64,
    applied: SequenceNumber,
}

/// What the overlay knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// It has this value.
    Found(Bytes),
    /// It certainly has none.
    Absent,
    /// Only the rows below can tell.
    Unknown,
}

/// What the overlay holds, for whoever decides about a flush or about pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Rows that no flush has taken yet.
    pub rows: usize,
    /// Their bytes, with what the overlay itself costs.
    pub bytes: usize,
    /// When the oldest of them was applied.
    pub since: Option<Instant>,
    /// Bytes of the flush in flight.
    pub frozen_bytes: usize,
    /// Whether a flush is in flight.
    pub in_flight: bool,
}

/// A frozen overlay on its way to the rows; there is at most one of an index.
#[derive(Debug)]
#[must_use = "an index with a frozen overlay takes no other flush"]
pub struct Frozen {
    overlay: Arc<Overlay>,
    as_of: SequenceNumber,
}

impl Frozen {
    /// The state that the flush will make durable.
    pub fn as_of(&self) -> SequenceNumber {
        self.as_of
    }

    /// Number of rows of the flush, `applied` not counted.
    pub fn rows(&self) -> usize {
        self.overlay.rows()
    }
}

/// Why the index could not answer. After a failed flush the container closes: what lies below is then known
/// only to the next owner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The row `applied` could not be read.
    #[error("open the index")]
    Open(#[source] RowsError),
    /// A key could not be looked up.
    #[error("look up a key")]
    Get(#[source] RowsError),
    /// A range could not be scanned.
    #[error("scan a range")]
    Scan(#[source] RowsError),
    /// A flush did not end well.
    #[error("flush the index as of {as_of}")]
    Flush {
        /// The state that may or may not be durable now.
        as_of: SequenceNumber,
        /// What the rows reported.
        #[source]
        source: RowsError,
    },
}

impl IndexError {
    /// Whether a later owner has taken over.
    pub fn is_fenced(&self) -> bool {
        matches!(self.rows_error(), RowsError::Fenced)
    }

    /// What the caller may do; never a second flush, whatever this says.
    pub fn retry(&self) -> Retry {
        match (self, self.rows_error()) {
            (_, RowsError::Fenced | RowsError::Closed | RowsError::Malformed { .. }) => Retry::Never,
            (Self::Flush { .. }, RowsError::Store { .. }) => Retry::Unknown,
            (_, RowsError::Store { .. }) => Retry::Safe,
        }
    }

    fn rows_error(&self) -> &RowsError {
        match self {
            Self::Open(source) | Self::Get(source) | Self::Scan(source) | Self::Flush { source, .. } => {
                source
            }
        }
    }
}

impl Index {
    /// Opens an index with an empty overlay above `rows`.
    ///
    /// # Errors
    /// [`IndexError::Open`] if `applied` cannot be read.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn open(rows: Arc<dyn Rows>) -> Result<Self, IndexError> {
        let applied = rows.applied().await.map_err(IndexError::Open)?;
        let state = State {
            active: Overlay::default(),
            dirty_since: None,
            newest: applied,
            frozen: None,
            generation: 0,
            applied,
        };
        Ok(Self { shared: Arc::new(Shared { rows, state: RwLock::new(state) }) })
    }

    /// Looks `key` up in the overlay only.
    pub fn peek(&self, key: &[u8]) -> Peek {
        let state = self.shared.state.read();
        let entry =
            state.active.get(key).or_else(|| state.frozen.as_ref().and_then(|frozen| frozen.get(key)));
        match entry {
            Some(Some(value)) => Peek::Found(value.clone()),
            Some(None) => Peek::Absent,
            None => Peek::Unknown,
        }
    }

    /// Looks `key` up everywhere: `None` is certain.
    ///
    /// The answer was true at some moment of the call. Who acts on it later, as an operation that waited
    /// for it, first compares [`Self::generation`].
    ///
    /// # Errors
    /// [`IndexError::Get`] if the rows cannot answer.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        match self.peek(key) {
            Peek::Found(value) => Ok(Some(value)),
            Peek::Absent => Ok(None),
            // A change between the peek and this look-up is either not in the rows yet, and then the older
            // value was true when the call began, or it is.
            Peek::Unknown => self.shared.rows.get(key).await.map_err(IndexError::Get),
        }
    }

    /// Counts freezes. A value that [`Self::get`] returned is still the newest if the overlay knows nothing
    /// newer ([`Peek::Unknown`]) *and* this number is the one read before the call; if it has risen, a
    /// later change may have left the overlay again, and the key must be looked up anew.
    pub fn generation(&self) -> u64 {
        self.shared.state.read().generation
    }

    /// Returns the first rows of `range`: at most `limit_rows` ([`SCAN_ROWS_MAX`] if that is less) and
    /// `limit_bytes`, but one row whatever its size. A page is empty only where the range is exhausted.
    ///
    /// The rows of a page are those of one moment of the call, whatever is applied or flushed meanwhile.
    ///
    /// # Errors
    /// [`IndexError::Scan`] if the rows cannot answer.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn scan(
        &self,
        mut range: Range<Bytes>,
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Page, IndexError> {
        let limit_rows = limit_rows.clamp(1, SCAN_ROWS_MAX);
        let mut look_rows = limit_rows;
        loop {
            let look = Limits { rows: look_rows, bytes: limit_bytes };
            let page = self.look(range.clone(), look, limit_rows).await?;
            match page.next {
                // All that was seen is deleted, so more of the same is likely.
                Some(next) if page.rows.is_empty() => range.start = next,
                _ => return Ok(page),
            }
            look_rows = look_rows.saturating_mul(4).min(SCAN_ROWS_MAX);
        }
    }

    /// Looks at no more than `look` of each layer, all as of one moment.
    async fn look(&self, range: Range<Bytes>, look: Limits, limit_rows: usize) -> Result<Page, IndexError> {
        loop {
            let (active, frozen, generation) = {
                let state = self.shared.state.read();
                (state.active.slice(range.clone(), look.rows), state.frozen.clone(), state.generation)
            };
            let below = self.shared.rows.scan(range.clone(), look).await.map_err(IndexError::Scan)?;
            // Changes of `frozen` may be in `below` already and are the same. Those of a flush that was
            // frozen since are later than `active` was copied, so look again.
            if self.generation() == generation {
                let frozen = frozen.map(|frozen| frozen.slice(range, look.rows)).unwrap_or_default();
                let limits = Limits { rows: limit_rows, bytes: look.bytes };
                return Ok(merge(limits, below, frozen, active));
            }
        }
    }

    /// Takes in changes as of the record `sequence`, in order. Several calls may name one record: an attribute
    /// leaves memory, or a sweep goes on, between records.
    pub fn apply(&self, rows: impl IntoIterator<Item = Row>, sequence: SequenceNumber) {
        let mut state = self.shared.state.write();
        assert!(sequence >= state.newest, "records are applied in order: {sequence} after {}", state.newest);
        state.newest = sequence;
        for row in rows {
            assert!(key::is_row(&row.key), "a row of the index has a key of its own: {:?}", row.key);
            state.active.apply(row);
        }
        if state.active.rows() == 0 {
            state.dirty_since = None;
        } else if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
        }
    }

    /// Returns what the overlay holds.
    pub fn dirty(&self) -> Dirty {
        let state = self.shared.state.read();
        Dirty {
            rows: state.active.rows(),
            bytes: state.active.bytes(),
            since: state.dirty_since,
            frozen_bytes: state.frozen.as_ref().map_or(0, |frozen| frozen.bytes()),
            in_flight: state.frozen.is_some(),
        }
    }

    /// Freezes the overlay, which must hold the changes of every record up to and including `as_of` and of none
    /// after it. `extra_rows` join it: rows whose owner keeps them itself and brings their state as of `as_of`.
    ///
    /// Returns `None` while another flush is in flight, and where nothing happened since the last one.
    pub fn freeze(&self, extra_rows: impl IntoIterator<Item = Row>, as_of: SequenceNumber) -> Option<Frozen> {
        let mut state = self.shared.state.write();
        assert!(
            as_of >= state.newest,
            "the overlay holds changes up to {}, later than {as_of}",
            state.newest
        );
        if state.frozen.is_some() || (as_of == state.applied && state.active.rows() == 0) {
            return None;
        }
        let mut overlay = std::mem::take(&mut state.active);
        for row in extra_rows {
            overlay.apply(row);
        }
        let overlay = Arc::new(overlay);
        state.frozen = Some(Arc::clone(&overlay));
        state.newest = as_of;
        state.dirty_since = None;
        state.generation += 1;
        Some(Frozen { overlay, as_of })
    }

    /// Writes what was frozen and returns its `as_of` once that is durable.
    ///
    /// # Errors
    /// [`IndexError::Flush`]; reads stay right, no other flush is taken, and the container closes.
    /// # Cancel safety
    /// None: dropped early is like failed.
    pub async fn flush(&self, frozen: Frozen) -> Result<SequenceNumber, IndexError> {
        let Frozen { overlay, as_of } = frozen;
        let written = self.shared.rows.write(overlay.changes(), as_of).await;
        written.map_err(|source| IndexError::Flush { as_of, source })?;
        let dropped = {
            let mut state = self.shared.state.write();
            assert!(as_of >= state.applied, "a flush as of {as_of} ends after one as of {}", state.applied);
            state.applied = as_of;
            state.frozen.take()
        };
        assert!(
            dropped.is_some_and(|dropped| Arc::ptr_eq(&dropped, &overlay)),
            "the flushed overlay is the frozen one"
        );
        Ok(as_of)
    }

    /// Returns the sequence number up to which the rows below are durable.
    pub fn applied(&self) -> SequenceNumber {
        self.shared.state.read().applied
    }

    /// Returns the owner's epoch, which is the container's.
    pub fn epoch(&self) -> u64 {
        self.shared.rows.epoch()
    }

    /// Ends the owner. What was not flushed stays in the log alone.
    ///
    /// # Cancel safety
    /// May be called again.
    pub async fn close(&self) {
        self.shared.rows.close().await;
    }
}

/// Merges three layers, the newest last, as far as all of them were seen.
fn merge(limits: Limits, below: Page, frozen: Slice, active: Slice) -> Page {
    let seen_to = [&below.next, &frozen.next, &active.next].into_iter().flatten().min().cloned();
    let mut newest: BTreeMap<Bytes, Option<Bytes>> =
        below.rows.into_iter().map(|(key, value)| (key, Some(value))).collect();
    newest.extend(frozen.changes);
    newest.extend(active.changes);
    let mut page = PageBuilder::new(limits);
    for (key, value) in newest {
        if seen_to.as_ref().is_some_and(|seen_to| key >= *seen_to) {
            break;
        }
        if let Some(value) = value
            && !page.push(&key, &value)
        {
            return page.finish();
        }
    }
    Page { next: seen_to, ..page.finish() }
}

#[cfg(test)]
mod tests;
