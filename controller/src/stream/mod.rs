//! A stream as a value: everything that can be decided about it without doing anything.
//!
//! Functions here take the rows they need and the time, and return the rows to write. They never wait, lock, log,
//! read a clock or touch disk and net, so each of them can be run twice, and tested against a model.

pub mod config;
pub mod cut;
pub mod epoch;
pub mod group;
pub mod name;
pub mod retention;
pub mod scaling;
pub mod segment;
pub mod state;
pub mod transaction;
pub mod watermark;

#[cfg(test)]
mod sample;

pub use config::{ConfigError, RatePolicy, RetentionPolicy, ScalingPolicy, StreamConfig};
pub use cut::truncation::{self, Truncation, TruncationError, TruncationRecord, segments_between};
pub use cut::{CutError, CutOrder, Epochs, PlacedCut, Reversed, StreamCut, ValidCut};
pub use epoch::scale::{
    self, ScaleError, ScaleOrigin, ScaleRefusal, ScaleRequest, ScaleStatus, ScaleTerms, Transition,
};
pub use epoch::{EpochRecord, Exhausted, RollingEpochs, Successor, successors};
pub use segment::{KeyRange, Segment, SegmentId};
pub use state::{Admission, StreamState, Workflow};
pub use transaction::{
    Merge, MergePlan, Rolling, RollingStart, Round, Transaction, TransactionId, TransactionState,
};
