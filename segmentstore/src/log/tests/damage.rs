//! The format as it lies on disk: a golden file, and bytes that chance has changed.

use crate::log::format::file;
use crate::log::format::floor;
use crate::log::format::frame;
use crate::log::format::record;
use std::fmt::Write;
use std::path::Path;

use dhara_stdx::OpenMode;
use proptest::prelude::*;

use super::*;

/// The bytes of a file that holds one batch, as docs/formats.md draws them: never change without a new version.
const GOLDEN: &str = include_str!("golden.hex");

/// The frame that says that another file follows, without the zeros at its end.
const GOLDEN_FOLLOWED: &str = concat!(
    "4446524d0101400005000000000000000100000000000000529f0f13000000000000000000000000",
    "04000000000000005abebd9b00000000000000002ffc1455"
);

fn small_log() -> SimDisk {
    let disk = SimDisk::new(1);
    let log = open_manual(&disk, &config(2), 42).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(1)).unwrap();
    writer.begin(ContainerEpoch(3)).unwrap();
    writer.append(batch(1, 3, 1..=2, 20)).unwrap();
    log.turn().unwrap();
    writer.append(batch(1, 3, 3..=3, 5000)).unwrap();
    log.turn().unwrap();
    log.quiet().unwrap();
    disk.kill()
}

/// Each block up to its last byte that is not zero, as one line of hex.
fn blocks_in_hex(bytes: &[u8]) -> String {
    let used =
        bytes.chunks(4096).map(|block| &block[..block.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1)]);
    used.take(3).map(|block| hex(block) + "\n").collect()
}

/// The last block that is not all zeros, up to its last byte that is not zero.
fn last_block_in_hex(bytes: &[u8]) -> String {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let start = used.saturating_sub(1) / 4096 * 4096;
    hex(&bytes[start..used])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

#[test]
fn format_is_the_golden_one() {
    let found = small_log().content(&file::log_path(Path::new("log"), 1)).unwrap();
    assert_eq!(blocks_in_hex(&found), GOLDEN);
}

#[test]
fn check_reports_what_is_there_and_changes_nothing() {
    let disk = small_log();
    let before = disk.content(&file::log_path(Path::new("log"), 1)).unwrap();
    let report = check(&config(2), Arc::new(disk.clone())).unwrap();
    assert_eq!((report.files, report.frames), (1, 4));
    assert_eq!(report.last, [None, Some(SequenceNumber(3))]);
    assert_eq!(disk.calls(), 0);
    assert_eq!(disk.content(&file::log_path(Path::new("log"), 1)).unwrap(), before);
    disk.rot(&file::log_path(Path::new("log"), 1), 8192 + 70, 1).unwrap();
    assert!(matches!(check(&config(2), Arc::new(disk)), Err(LogError::Rotten { .. })));
}

#[test]
fn last_file_that_is_cut_off_or_gone_is_found() {
    let path = |number| file::log_path(Path::new("log"), number);
    let refused = |disk: &SimDisk| match open_manual(disk, &config(2), 43) {
        Err(LogError::Rotten { path, offset, .. }) => (path, offset),
        other => panic!("{other:?}"),
    };
    let disk = small_log();
    disk.open(&path(1), OpenMode::Write).unwrap().set_len(8192).unwrap();
    assert_eq!(refused(&disk), (path(1), 8192), "in the middle of what was acknowledged");
    disk.open(&path(1), OpenMode::Write).unwrap().set_len(FILE_BYTES - 1).unwrap();
    assert_eq!(refused(&disk), (path(1), FILE_BYTES - 1), "behind all frames");

    let disk = small_log();
    let log = open_manual(&disk, &config(2), 43).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(1)).unwrap();
    writer.begin(ContainerEpoch(4)).unwrap();
    writer.append(batch(1, 4, 4..=4, 20)).unwrap();
    log.turn().unwrap();
    let disk = disk.kill();
    disk.remove(&path(2)).unwrap();
    assert_eq!(refused(&disk).0, path(1), "it was shortened when the file after it was made");
}

#[test]
fn file_that_is_gone_after_the_log_went_on_in_it_is_found() {
    let path = |number| file::log_path(Path::new("log"), number);
    let disk = SimDisk::new(1);
    let log = open_manual(&disk, &config(1), 42).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(1)).unwrap();
    let mut sequence = 0;
    for files in 2..=5 {
        while !disk.exists(&path(files)).unwrap() {
            sequence += 1;
            writer.append(batch(0, 1, sequence..=sequence, 9000)).unwrap();
            log.turn().unwrap();
        }
    }
    let whole = disk.kill();
    assert_eq!(last_block_in_hex(&whole.content(&path(1)).unwrap()), GOLDEN_FOLLOWED);
    assert!(check(&config(1), Arc::new(whole.clone())).is_ok());
    for gone in 2..=5 {
        let disk = whole.kill();
        for number in gone..=5 {
            disk.remove(&path(number)).unwrap();
        }
        match open_manual(&disk, &config(1), 43) {
            Err(LogError::Rotten { path: found, .. }) => assert_eq!(found, path(gone - 1)),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    /// Damaged bytes never panic, never show a wrong byte, and never lose a proven record silently.
    #[test]
    fn changed_bytes_are_found_or_harmless(changes in prop::collection::vec((0..FILE_BYTES, 1..9000_u64), 1..4)) {
        let disk = small_log();
        for (at, len) in changes {
            disk.rot(&file::log_path(Path::new("log"), 1), at, len).unwrap();
        }
        if let Ok(log) = open_manual(&disk, &config(2), 1) {
            let records = read_all(log.open(ContainerId(1)).unwrap().0);
            let wide = |sequence| if sequence == 3 { 5000 } else { 20 };
            for record in &records {
                prop_assert_eq!(&record.body, &body(1, record.sequence.0, wide(record.sequence.0)));
            }
        }
    }

    /// Random bytes in place of a header or a frame never panic.
    #[test]
    fn random_bytes_decode_to_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200), incarnation: u64) {
        prop_assert!(file::FileHeader::decode(&bytes).is_err());
        prop_assert!(frame::FrameHeader::decode(&bytes, incarnation).is_none());
        let records = record::Records::of(&bytes).count();
        prop_assert!(records <= bytes.len() / RECORD_HEADER_BYTES);
        for containers in 0..3 {
            prop_assert!(floor::decode(1, 1, &bytes, containers).is_none_or(|m| m.len() == usize::from(containers)));
        }
    }
}
