//! What the log promises, held against real and simulated disks.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use dhara_stdx::{Disk, Entropy, ManualClock, SeededEntropy, SimDisk};

use super::*;

mod contract;
mod crash;
mod damage;
mod world;

/// Size of the files in tests: many of them fit into memory, and rolls are frequent.
const FILE_BYTES: u64 = 64 << 10;

fn config(containers: u16) -> LogConfig {
    LogConfig {
        dir: PathBuf::from("log"),
        containers,
        file_bytes: FILE_BYTES,
        first_file_bytes: FILE_BYTES,
        budget_bytes: 64 * FILE_BYTES,
    }
}

/// Opens a log that the test drives turn by turn.
fn open_manual(disk: &SimDisk, config: &LogConfig, seed: u64) -> Result<LocalLog, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (clock, entropy) = (Arc::new(ManualClock::new(1)), Arc::new(SeededEntropy::new(seed)));
    LocalLog::open(config.clone(), disk, clock, entropy, Pace::Manual)
}

/// The body of record `sequence`: recognisable, and of a length that differs from record to record.
fn body(container: u16, sequence: u64, len: usize) -> Bytes {
    let seed = sequence.wrapping_mul(31).wrapping_add(u64::from(container));
    (0..len).map(|at| u8::try_from((seed + at as u64) % 251).unwrap()).collect()
}

/// One batch of records `sequences`, each of `len` bytes.
fn batch(container: u16, epoch: u64, sequences: std::ops::RangeInclusive<u64>, len: usize) -> Batch {
    let mut builder = BatchBuilder::new(ContainerId(container), ContainerEpoch(epoch));
    for sequence in sequences {
        builder.record(SequenceNumber(sequence), 7, 1, |out| out.put_slice(&body(container, sequence, len)));
    }
    builder.take().unwrap()
}

/// All records of a reader.
fn read_all(mut reader: Box<dyn LogReader>) -> Vec<LogRecord> {
    std::iter::from_fn(|| reader.next().unwrap()).flatten().collect()
}

fn sequences(records: &[LogRecord]) -> Vec<u64> {
    records.iter().map(|record| record.sequence.0).collect()
}
