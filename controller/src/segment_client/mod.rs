//! What the controller asks of segment stores, as one trait; the wire protocol behind it is in [`wire`].
//!
//! Every call may be made twice. What a second call meets (the segment is there, is sealed, is gone) counts as
//! success wherever the first call would have left the same state.

mod connection;
#[cfg(test)]
pub(crate) mod memory;
mod wire;

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use dhara_stdx::Retry;

pub(crate) use wire::WireSegmentClient;

/// With what a segment is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentShape {
    /// Kind of load that the store watches: 0 none, 1 kilobytes, 2 events per second.
    pub(crate) scale_type: u8,
    /// Load in that unit at which the segment is hot.
    pub(crate) rate: i32,
    /// Size in bytes at which its data rolls over; 0 leaves it to the store.
    pub(crate) rollover_bytes: i64,
}

/// Where a segment starts and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    /// First readable offset.
    pub(crate) start: i64,
    /// Offset after the last byte.
    pub(crate) length: i64,
}

/// Condition on a table key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// None.
    Any,
    /// The key is not there.
    Absent,
    /// The key has this version.
    Version(i64),
}

/// One entry of a table update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// Key.
    pub(crate) key: Bytes,
    /// Its new value.
    pub(crate) value: Bytes,
    /// Condition on the key before the update.
    pub(crate) expect: Expect,
}

/// A table entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Key.
    pub(crate) key: Bytes,
    /// Value.
    pub(crate) value: Bytes,
    /// Version of the key.
    pub(crate) version: i64,
}

/// A page of a table iteration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// Entries; none means that the iteration has ended.
    pub(crate) entries: Vec<Entry>,
    /// Where the next page starts.
    pub(crate) token: Bytes,
}

/// Which keys of a sorted table are read, both bounds included.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// First key.
    pub(crate) from: Bytes,
    /// Last key.
    pub(crate) to: Bytes,
    /// How many entries the page should hold; it may hold more.
    pub(crate) count: i32,
}

/// Why a call to a segment store did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SegmentError {
    /// The segment or table is not there.
    #[error("{operation} on {segment}, which does not exist")]
    Missing {
        /// What was asked.
        operation: &'static str,
        /// Of which segment.
        segment: String,
    },
    /// The segment takes no more appends.
    #[error("{operation} on {segment}, which is sealed")]
    Sealed {
        /// What was asked.
        operation: &'static str,
        /// Of which segment.
        segment: String,
    },
    /// A condition of a table update does not hold; nothing was changed.
    #[error("updating {table} on a condition that does not hold")]
    Condition {
        /// The table.
        table: String,
    },
    /// The store cannot be reached, or has not answered in time; it may have done what was asked.
    #[error("{operation} on {segment} at {host}")]
    Unavailable {
        /// What was asked.
        operation: &'static str,
        /// Of which segment.
        segment: String,
        /// Of which store.
        host: String,
        /// What went wrong last.
        #[source]
        source: std::io::Error,
    },
    /// The store refuses for a reason that will not pass.
    #[error("{operation} on {segment}, answered by {answer}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// Of which segment.
        segment: String,
        /// Name of the reply.
        answer: String,
    },
}

impl SegmentError {
    /// Says whether the call may be made again.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { .. } => Retry::Unknown,
            Self::Condition { .. } => Retry::Safe,
            Self::Missing { .. } | Self::Sealed { .. } | Self::Refused { .. } => Retry::Never,
        }
    }

    /// Whether the segment or table is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// Whether a condition of an update did not hold.
    pub(crate) fn is_condition(&self) -> bool {
        matches!(self, Self::Condition { .. })
    }
}

/// Counts a missing segment as success, for calls whose aim is that it be gone.
pub(crate) fn gone_is_fine(outcome: Result<(), SegmentError>) -> Result<(), SegmentError> {
    match outcome {
        Err(SegmentError::Missing { .. }) => Ok(()),
        other => other,
    }
}

/// Segments and tables of the segment stores.
///
/// # Cancel safety
/// A call that is dropped may or may not take effect.
#[async_trait]
pub(crate) trait SegmentClient: Send + Sync + Debug {
    /// Creates a segment, unless it is there.
    async fn create_segment(&self, segment: &str, shape: SegmentShape) -> Result<(), SegmentError>;
    /// Seals a segment, unless it is sealed.
    async fn seal_segment(&self, segment: &str) -> Result<(), SegmentError>;
    /// Deletes a segment, if it is there.
    async fn delete_segment(&self, segment: &str) -> Result<(), SegmentError>;
    /// Moves the start of a segment to `offset`, unless it is there or further.
    async fn truncate_segment(&self, segment: &str, offset: i64) -> Result<(), SegmentError>;
    /// Changes the load that the store watches for.
    async fn update_policy(&self, segment: &str, shape: SegmentShape) -> Result<(), SegmentError>;
    /// Tells start and length of a segment.
    async fn segment_info(&self, segment: &str) -> Result<SegmentInfo, SegmentError>;
    /// Appends whole segments to `target` in this order; those that are gone have been merged before. Returns an
    /// offset at or after each merge.
    async fn merge(&self, target: &str, sources: Vec<String>) -> Result<Vec<i64>, SegmentError>;

    /// Creates a table, unless it is there; keys have `key_bytes` bytes and are sorted, or any length if that is 0.
    async fn create_table(
        &self,
        table: &str,
        key_bytes: i32,
        rollover_bytes: i64,
    ) -> Result<(), SegmentError>;
    /// Deletes a table with all that is in it, if it is there.
    async fn delete_table(&self, table: &str) -> Result<(), SegmentError>;
    /// Writes all entries if all conditions hold, else none. Returns their versions.
    async fn update(&self, table: &str, writes: Vec<Write>) -> Result<Vec<i64>, SegmentError>;
    /// Removes all keys if all conditions hold, else none.
    async fn remove(&self, table: &str, keys: Vec<(Bytes, Expect)>) -> Result<(), SegmentError>;
    /// Reads keys; one answer for each, in order.
    async fn read(&self, table: &str, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>, SegmentError>;
    /// Reads a page of an unsorted table; an empty token starts.
    async fn read_page(&self, table: &str, token: Bytes) -> Result<Page, SegmentError>;
    /// Reads entries of a sorted table in order of their keys.
    async fn read_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Entry>, SegmentError>;
    /// Reads the keys alone of a sorted table, in order.
    async fn read_key_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Bytes>, SegmentError>;
}
