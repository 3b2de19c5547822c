//! The log: where a container's records become durable, in order, before anything else happens.
//!
//! A container sees its own part only, through three traits: [`Log`] opens it, [`LogReader`] gives what survived,
//! [`LogWriter`] takes batches and tells when they are durable. [`LocalLog`] lays all containers of a process into
//! one stream of files, so that one sync serves them all.
//!
//! It never interprets a record's body, never retries a sync, never hands out a byte that is not durable, and never
//! decides on its own to skip what it cannot read.

use bytes::Bytes;

use crate::types::{ContainerEpoch, ContainerId, LogAddress, SequenceNumber};

mod check;
mod commit;
mod error;
mod format;
mod keeper;
mod local;
mod queue;
mod reader;
mod recovery;
mod table;
#[cfg(test)]
mod tests;

pub use check::{CheckReport, check};
pub use error::LogError;
pub use format::floor::Floor;
pub use format::record::{
    BATCH_BYTES_MAX, Batch, BatchBuilder, LogRecord, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, walk_records,
};
pub use local::{LocalLog, LogConfig, Pace};
pub use queue::DurableWatch;

/// A batch that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Its first record.
    pub first: SequenceNumber,
    /// Its last record.
    pub last: SequenceNumber,
    /// Where its first byte lies; the batch is contiguous from there.
    pub address: LogAddress,
}

/// How much a log may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRoom {
    /// Bytes that ordinary operations may still add; at 0 they are refused.
    pub admissible_bytes: u64,
    /// Bytes that operations which free space may still add; never less than `admissible_bytes`.
    pub reserved_bytes: u64,
    /// Bytes of all log files, those included that are only kept because somebody reads them.
    pub used_bytes: u64,
    /// Bytes that all log files may have.
    pub budget_bytes: u64,
}

impl LogRoom {
    /// Whether whoever pins the log should let go of what it can: its files take a quarter of the budget, or no more
    /// may be added.
    pub fn is_pressed(&self) -> bool {
        const SHARE: u64 = 4;
        self.admissible_bytes == 0 || self.used_bytes > self.budget_bytes / SHARE
    }
}

/// The two ends of a container's log: what survived, and where it goes on.
pub type LogEnds = (Box<dyn LogReader>, Box<dyn LogWriter>);

/// The logs of all containers of this process.
pub trait Log: Send + Sync {
    /// Opens the log of `container` and ends every earlier writer of it: once this returns, nothing handed to an
    /// earlier writer becomes durable and no earlier watch reports anything.
    ///
    /// Blocks while a frame is being synced, so it belongs on a blocking thread.
    ///
    /// # Errors
    /// [`LogError::NoContainer`], or why the whole log is closed.
    fn open(&self, container: ContainerId) -> Result<LogEnds, LogError>;

    /// Durable bytes at `at`, which must not cross the end of their batch. Never blocks on the disk, except for pages
    /// of a mapped file that are not in memory; never copies.
    ///
    /// # Errors
    /// [`LogError::Gone`] if these bytes were never durable or their file has been let go.
    fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError>;

    /// How much may still be appended, by all containers together.
    fn room(&self) -> LogRoom;

    /// The address of the oldest byte still kept: everything below is gone.
    fn oldest(&self) -> LogAddress;

    /// Whether opening and reading it may block a thread for long; a simulated log never does, and there a second
    /// thread would make two runs of one seed differ.
    fn blocks(&self) -> bool {
        true
    }

    /// Writes what was appended, then closes; blocks until that is durable.
    fn close(&self);
}

/// What survived of one container's log, oldest first.
pub trait LogReader: Send {
    /// The records of the next frame that holds any of this container; `None` at the end.
    ///
    /// Starts at the oldest surviving file, so records below the floor may come first.
    ///
    /// # Errors
    /// [`LogError::Rotten`] if bytes no longer verify.
    fn next(&mut self) -> Result<Option<Vec<LogRecord>>, LogError>;

    /// The last record that this log holds or ever held, `None` if it never held one. A container that knows a later
    /// one has lost its log.
    fn last(&self) -> Option<SequenceNumber>;

    /// The last floor that survived.
    fn floor(&self) -> Floor;
}

/// Takes the records of one container.
pub trait LogWriter: Send {
    /// Says in which epoch the container writes from now on; comes before the first append.
    ///
    /// # Errors
    /// [`LogError::Fenced`] if a later epoch was seen, or a later writer opened.
    fn begin(&mut self, epoch: ContainerEpoch) -> Result<(), LogError>;

    /// Hands over a batch whose first record follows the last one handed over; never blocks. In a log that never held
    /// a record of this container the first one may have any number.
    ///
    /// The caller bounds what is under way by the permits that its operations hold.
    ///
    /// # Errors
    /// Why nothing can be appended any more; [`LogError::TooLarge`] changes nothing.
    fn append(&mut self, batch: Batch) -> Result<(), LogError>;

    /// The one watch of this writer: its reports go to whichever handle asks first.
    fn durable(&self) -> DurableWatch;

    /// Says that bytes and records below `floor` are not needed any more; never goes back.
    fn set_floor(&mut self, floor: Floor);

    /// Ends this writer: what it appended and is not under way yet is dropped.
    fn close(self: Box<Self>);
}
