//! Walks a log folder without changing it and says what is there and what cannot be read.

use std::sync::Arc;

use dhara_stdx::{Disk, Entropy, ManualClock, SeededEntropy};

use super::LogConfig;
use super::commit::Seams;
use super::error::LogError;
use super::recovery::recover;
use crate::types::SequenceNumber;

/// What a log folder holds.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// Log files.
    pub files: u64,
    /// Valid frames up to the end of the log or the first damage.
    pub frames: u64,
    /// Last record of each container, `None` if it has none.
    pub last: Vec<Option<SequenceNumber>>,
    /// Frames at the end that a restart would write again: nothing proves that they are durable.
    pub unproven_frames: u64,
}

/// Reads the whole log as a start would, and writes nothing. The log may be in use; what is appended meanwhile may
/// look torn.
///
/// # Errors
/// The first thing that would keep the log from opening.
pub fn check(config: &LogConfig, disk: Arc<dyn Disk>) -> Result<CheckReport, LogError> {
    let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(0));
    let seams = Seams { disk, clock: Arc::new(ManualClock::new(0)), entropy };
    let recovered = recover(&seams, config)?;
    let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
    let last = recovered.marks.iter().map(|mark| mark.next.checked_sub(1).map(SequenceNumber));
    Ok(CheckReport {
        files: count(recovered.files.len()),
        frames: recovered.frames,
        last: last.collect(),
        unproven_frames: count(recovered.unproven.len()),
    })
}
