//! Log files: damaged as a disk damages them, and with checksums that were made to fit the damage.

use super::chance::Chance;
use bytes::{BufMut, Bytes};
use dhara_segmentstore::log::{
    BatchBuilder, LocalLog, Log, LogConfig, LogError, LogRecord, Pace, RECORD_HEADER_BYTES, walk_records,
};
use dhara_segmentstore::types::{ContainerEpoch, ContainerId, SequenceNumber};
use dhara_stdx::{Disk, ManualClock, OpenMode, SeededEntropy, SimDisk};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CONTAINERS: u16 = 2;
const FILE_BYTES: u64 = 64 << 10;
const BLOCK: usize = 4096;
const FRAME_HEADER: usize = 64;
const FIRST_FILE: &str = "log/0000000000000001.log";

fn open(disk: &SimDisk, seed: u64) -> Result<LocalLog, LogError> {
    let config = LogConfig {
        dir: PathBuf::from("log"),
        containers: CONTAINERS,
        file_bytes: FILE_BYTES,
        first_file_bytes: FILE_BYTES,
        budget_bytes: 64 * FILE_BYTES,
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    LocalLog::open(
        config,
        disk,
        Arc::new(ManualClock::new(1)),
        Arc::new(SeededEntropy::new(seed)),
        Pace::Manual,
    )
}

/// Batches of two containers in turn, of a few bytes and of several blocks.
fn written(chance: &mut Chance) -> SimDisk {
    let disk = SimDisk::new(chance.number());
    let log = open(&disk, chance.number()).unwrap();
    let mut writers: Vec<_> =
        (0..CONTAINERS).map(|number| log.open(ContainerId(number)).unwrap().1).collect();
    let mut next = [1; CONTAINERS as usize];
    for writer in &mut writers {
        writer.begin(ContainerEpoch(1)).unwrap();
    }
    for _ in 0..2 + chance.below(6) {
        let container = chance.below(usize::from(CONTAINERS));
        let number = u16::try_from(container).unwrap();
        let mut builder = BatchBuilder::new(ContainerId(number), ContainerEpoch(1));
        for _ in 0..=chance.below(3) {
            let body = chance.bytes(6_000);
            builder.record(SequenceNumber(next[container]), 2, 1, |out| out.put_slice(&body));
            next[container] += 1;
        }
        writers[container].append(builder.take().unwrap()).unwrap();
        log.turn().unwrap();
    }
    if chance.below(2) == 0 {
        log.quiet().unwrap();
    }
    disk.kill()
}

fn overwrite(disk: &SimDisk, bytes: &[u8]) {
    let file = disk.open(Path::new(FIRST_FILE), OpenMode::Write).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
}

/// Everything that a log shows; `None` if it does not open or cannot be read.
fn shown(log: &LocalLog) -> Option<Vec<Vec<LogRecord>>> {
    let read = |number| {
        let (mut reader, _writer) = log.open(ContainerId(number)).ok()?;
        let mut records = Vec::new();
        while let Some(more) = reader.next().ok()? {
            records.extend(more);
        }
        Some(records)
    };
    (0..CONTAINERS).map(read).collect()
}

/// What a recovery shows it has made durable: another one shows the same.
fn recovered_twice(disk: &SimDisk) -> bool {
    let Ok(log) = open(disk, 5) else { return false };
    let Some(first) = shown(&log) else { return false };
    drop(log);
    let again = open(&disk.kill(), 6).expect("what opened once opens again");
    let second = shown(&again).expect("what was read once is read again");
    let plain = |all: &[Vec<LogRecord>]| -> Vec<Vec<(u64, Bytes)>> {
        all.iter()
            .map(|of| of.iter().map(|record| (record.sequence.0, record.body.clone())).collect())
            .collect()
    };
    assert_eq!(plain(&first), plain(&second));
    true
}

pub(crate) fn recover(chance: &mut Chance) -> bool {
    let disk = written(chance);
    for _ in 0..=chance.below(2) {
        let at = chance.number() % (10 * BLOCK as u64);
        disk.rot(Path::new(FIRST_FILE), at, 1 + chance.number() % 300).unwrap();
    }
    recovered_twice(&disk)
}

/// Gives a frame the checksums of what it holds now.
fn forge(file: &mut [u8], at: usize) {
    let incarnation: [u8; 8] = file[40..48].try_into().unwrap();
    let length = u32::from_le_bytes(file[at + 28..at + 32].try_into().unwrap());
    let payload = at + FRAME_HEADER;
    let end = usize::try_from(length).unwrap().saturating_add(payload).min(file.len());
    let crc = crc32fast::hash(&file[payload..end]);
    file[at + 36..at + 40].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32fast::hash(&[&incarnation, &file[at..at + 60]].concat());
    file[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
}

pub(crate) fn recover_forged(chance: &mut Chance) -> bool {
    let disk = written(chance);
    let mut file = disk.content(Path::new(FIRST_FILE)).unwrap();
    let starts: Vec<usize> =
        (BLOCK..file.len()).step_by(BLOCK).filter(|at| file[*at..].starts_with(b"DFRM")).collect();
    let at = *chance.one_of(&starts);
    // Anywhere in the header, or in the first two records' headers.
    let mut head = file[at..at + FRAME_HEADER + 2 * RECORD_HEADER_BYTES].to_vec();
    let whole = head.len();
    chance.damage(&mut head);
    head.resize(whole, 0);
    file[at..at + whole].copy_from_slice(&head);
    forge(&mut file, at);
    overwrite(&disk, &file);
    recovered_twice(&disk)
}

pub(crate) fn walk(chance: &mut Chance) -> bool {
    let mut batch = Vec::new();
    for sequence in 1..=3_u64 {
        let body = chance.bytes(60);
        batch.put_u32_le(u32::try_from(body.len()).unwrap());
        batch.put_u16_le(1);
        batch.put_u8(chance.byte());
        batch.put_u8(1);
        batch.put_u64_le(1);
        batch.put_u64_le(sequence);
        batch.put_slice(&body);
    }
    let bytes = Bytes::from(chance.damaged(&[batch]));
    let found: Vec<_> = walk_records(&bytes).collect();
    let taken: usize = found.iter().map(|(_, _, body)| RECORD_HEADER_BYTES + body.len()).sum();
    assert!(taken <= bytes.len(), "{taken} bytes out of {}", bytes.len());
    assert!(found.into_iter().eq(walk_records(&bytes)));
    taken == bytes.len()
}
