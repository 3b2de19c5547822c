//! The hazards of storage engines that a log can fall into, each held by a test (F.1 to F.8 and F.10).

use crate::log::format::file;
use std::path::Path;

use dhara_stdx::{OpenMode, sim_disk::DiskCall};

use super::world::World;
use super::*;

fn path(number: u64) -> PathBuf {
    file::log_path(Path::new("log"), number)
}

/// A log of one container with `frames` acked frames of one record each, and where each record lies.
fn log_with(disk: &SimDisk, frames: u64, len: usize) -> (LocalLog, Vec<LogAddress>) {
    let log = open_manual(disk, &config(1), 1).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(1)).unwrap();
    let mut at = Vec::new();
    for sequence in 1..=frames {
        writer.append(batch(0, 1, sequence..=sequence, len)).unwrap();
        log.turn().unwrap();
        at.push(writer.durable().try_next().unwrap().unwrap()[0].address);
    }
    (log, at)
}

fn survivors(disk: &SimDisk) -> Result<Vec<u64>, LogError> {
    let log = open_manual(disk, &config(1), 99)?;
    Ok(sequences(&read_all(log.open(ContainerId(0))?.0)))
}

/// F.1, and invariants 1, 3 and 4: power cuts at random places of random histories.
#[test]
fn f01_acked_records_survive_every_power_cut() {
    for seed in 0..150 {
        let mut world = World::new(seed, 3);
        for _ in 0..6 {
            let calls = world.below(60);
            world.disk.power_off_after(calls);
            world.live_and_crash(80);
        }
        drop(world.open().unwrap());
    }
}

/// F.1: one history, cut after each of its disk calls.
#[test]
fn f01_power_cut_after_each_disk_call_loses_nothing() {
    let calls = {
        let mut world = World::new(5, 2);
        world.live_and_crash(0);
        let mut life = world.open().unwrap();
        for _ in 0..150 {
            world.step(&mut life).unwrap();
        }
        world.disk.calls()
    };
    assert!(calls > 60, "{calls}");
    for cut in 0..calls {
        let mut world = World::new(5, 2);
        world.live_and_crash(0);
        world.disk.power_off_after(cut);
        world.live_and_crash(150);
        drop(world.open().unwrap());
    }
}

/// F.2: bytes of an older life of a recycled file never count.
#[test]
fn f02_stale_frames_of_a_recycled_file_are_never_read() {
    for kept in 1..12 {
        let disk = SimDisk::new(2);
        let (log, _) = log_with(&disk, 40, 9000);
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(2)).unwrap();
        for sequence in 41..=60 + kept {
            writer.append(batch(0, 2, sequence..=sequence, 9000)).unwrap();
            let floor = Floor { address: LogAddress(0), sequence: SequenceNumber(sequence) };
            writer.set_floor(floor);
            log.turn().unwrap();
        }
        let reused = disk.trace().iter().any(|call| {
            matches!(call, DiskCall::Name(path)
            if path.to_string_lossy().contains("spare-"))
        });
        assert!(reused, "no file was recycled");
        let left = disk.crash(kept);
        assert_eq!(survivors(&left).unwrap().last(), Some(&(60 + kept)));
        drop(log);
    }
}

/// F.3: a torn tail is cut off, damage to anything acked is refused.
#[test]
fn f03_torn_tail_is_cut_and_acked_damage_is_refused() {
    let disk = SimDisk::new(3);
    let (log, at) = log_with(&disk, 5, 100);
    let offset = |index: usize| file::place(at[index]).1;

    let torn = disk.kill();
    torn.rot(&path(1), offset(4), 1).unwrap();
    assert_eq!(survivors(&torn).unwrap(), [1, 2, 3, 4]);

    let middle = disk.kill();
    middle.rot(&path(1), offset(2), 1).unwrap();
    assert!(matches!(survivors(&middle), Err(LogError::Rotten { .. })));

    log.quiet().unwrap();
    let last_acked = disk.kill();
    last_acked.rot(&path(1), offset(4), 1).unwrap();
    assert!(matches!(survivors(&last_acked), Err(LogError::Rotten { .. })));

    let header = disk.kill();
    header.rot(&path(1), 16, 1).unwrap();
    assert!(matches!(survivors(&header), Err(LogError::Rotten { offset: 0, .. })));

    let unreadable = disk.kill();
    unreadable.make_unreadable(&path(1), offset(2), 1).unwrap();
    assert!(matches!(survivors(&unreadable), Err(LogError::Io { .. })));
    assert_eq!(survivors(&disk.kill()).unwrap(), [1, 2, 3, 4, 5]);
}

/// F.4: what one recovery dropped no later one shows, although its bytes are still there.
#[test]
fn f04_dropped_frame_never_comes_back() {
    for seed in 100..250 {
        let mut world = World::new(seed, 2);
        for _ in 0..10 {
            let calls = world.below(25);
            world.disk.power_off_after(calls);
            let steps = world.below(30);
            world.live_and_crash(steps);
        }
        drop(world.open().unwrap());
    }
}

/// F.5, invariant 3: after a failed sync nothing is acked, and what the page cache still shows is not trusted.
#[test]
fn f05_failed_sync_ends_the_log_and_loses_nothing_acked() {
    for (failing, seed) in (0..6).flat_map(|failing| (0..10).map(move |seed| (failing, seed))) {
        let disk = SimDisk::new(seed);
        let (log, _) = log_with(&disk, 3, 500);
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(2)).unwrap();
        disk.fail_sync_after(failing);
        let mut acked = 3;
        for sequence in 4..=20 {
            if writer.append(batch(0, 2, sequence..=sequence, 500)).is_err() || log.turn().is_err() {
                break;
            }
            acked = sequence;
        }
        assert!(acked < 20);
        assert!(matches!(writer.append(batch(0, 2, acked + 1..=acked + 1, 5)), Err(LogError::Io { .. })));
        assert!(matches!(log.turn(), Err(LogError::Closed)));

        // The process starts again with the page cache as it was, shows something, then the power fails.
        let cached = disk.kill();
        let shown = survivors(&cached).unwrap();
        assert!(shown.len() as u64 >= acked);
        let after = survivors(&cached.crash(seed)).unwrap();
        assert!(after.starts_with(&shown), "{} shown, {} left", shown.len(), after.len());
    }
}

/// F.6, invariant 2: writes to a log file only go forward, each synced before the next.
#[test]
fn f06_no_write_touches_what_was_acked_and_one_is_unsynced_at_most() {
    for seed in 0..40 {
        let mut world = World::new(seed, 3);
        let mut life = world.open().unwrap();
        for _ in 0..200 {
            world.step(&mut life).unwrap();
        }
        let (mut ends, mut unsynced) = (std::collections::BTreeMap::new(), None);
        for call in world.disk.trace() {
            match call {
                DiskCall::Write(path, at, len) if path.extension().is_some_and(|kind| kind == "log") => {
                    assert_eq!(unsynced.replace(path.clone()), None);
                    let end = ends.insert(path, at + len).unwrap_or(0);
                    assert!(at >= end, "write at {at} below {end}");
                }
                DiskCall::Sync(_) => unsynced = None,
                DiskCall::Name(path) => drop(ends.remove(&path)),
                _ => {}
            }
        }
    }
}

/// F.7: a full disk is seen in time, stops appends without an error, and freed files start them again.
#[test]
fn f07_full_disk_stalls_and_goes_on_when_a_file_is_freed() {
    let disk = SimDisk::new(7);
    disk.set_capacity(4 * FILE_BYTES);
    let (log, _) = log_with(&disk, 1, 100);
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(2)).unwrap();
    let (mut acked, mut appended) = (1, 1);
    for sequence in 2..=60 {
        writer.append(batch(0, 2, sequence..=sequence, 5000)).unwrap();
        appended = sequence;
        log.turn().unwrap();
        let Some(durable) = writer.durable().try_next().unwrap() else { break };
        acked = durable.last().unwrap().last.0;
    }
    assert!(acked > 1 && acked < appended, "the disk never filled");
    assert_eq!(survivors(&disk.kill()).unwrap().len() as u64, acked);
    writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(acked + 1) });
    while log.turn().unwrap() && acked < appended {
        acked = writer.durable().try_next().unwrap().map_or(acked, |durable| durable.last().unwrap().last.0);
    }
    assert_eq!(acked, appended);
}

/// F.7: frames that only prove the one before leave the room in which files are let go.
#[test]
fn f07_full_log_of_single_events_goes_on_when_a_file_is_freed() {
    let disk = SimDisk::new(7);
    let log = open_manual(&disk, &LogConfig { budget_bytes: 4 * FILE_BYTES, ..config(1) }, 1).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(1)).unwrap();
    let mut acked = 0;
    for sequence in 1..=100 {
        writer.append(batch(0, 1, sequence..=sequence, 10)).unwrap();
        log.turn().unwrap();
        let Some(durable) = writer.durable().try_next().unwrap() else { break };
        acked = durable.last().unwrap().last.0;
        log.quiet().unwrap();
    }
    assert!(acked > 10 && acked < 100, "{acked}: the log never filled");
    writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(acked) });
    for _turn in 0..5 {
        log.turn().unwrap();
    }
    let durable = writer.durable().try_next().unwrap().expect("the log goes on");
    assert_eq!(durable.last().unwrap().last.0, acked + 1);
}

/// F.7: on a full disk a log opens with the few blocks that letting files go takes, and goes on once it has.
#[test]
fn f07_full_disk_with_nothing_reserved_does_not_keep_the_log_closed() {
    let disk = SimDisk::new(7);
    drop(log_with(&disk, 20, 9000));
    let names = disk.list(&config(1).dir).unwrap();
    let len = |name: &String| disk.open(&config(1).dir.join(name), OpenMode::Read).unwrap().len().unwrap();
    let used: u64 = names.iter().map(len).sum();
    disk.set_capacity(used + 6 * 4096);

    let log = open_manual(&disk, &config(1), 2).unwrap();
    let (reader, mut writer) = log.open(ContainerId(0)).unwrap();
    assert_eq!(read_all(reader).len(), 20);
    writer.begin(ContainerEpoch(2)).unwrap();
    let mut acked = 20;
    loop {
        writer.append(batch(0, 2, acked + 1..=acked + 1, 9000)).unwrap();
        log.turn().unwrap();
        let Some(durable) = writer.durable().try_next().unwrap() else { break };
        acked = durable[0].last.0;
    }
    assert!(acked < 30, "the disk never filled");
    writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(acked) });
    for _turn in 0..5 {
        log.turn().unwrap();
    }
    assert_eq!(writer.durable().try_next().unwrap().expect("the log goes on")[0].last.0, acked + 1);
}

/// F.7: the room for floors is used for a rise that frees enough to go on, not for one that does not.
#[test]
fn f07_full_log_goes_on_whatever_the_size_of_the_files_that_are_freed_first() {
    let disk = SimDisk::new(7);
    let config = LogConfig { budget_bytes: 4 * FILE_BYTES, ..config(1) };
    // A restart shortens the file before it, so there are two small ones.
    let mut acked = 0;
    for epoch in 1..=3 {
        let log = open_manual(&disk, &config, epoch).unwrap();
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(epoch)).unwrap();
        for sequence in acked + 1.. {
            writer.append(batch(0, epoch, sequence..=sequence, 3000)).unwrap();
            log.turn().unwrap();
            let Some(durable) = writer.durable().try_next().unwrap() else { break };
            acked = durable.last().unwrap().last.0;
            if epoch < 3 {
                break;
            }
        }
        if epoch < 3 {
            continue;
        }
        for floor in [2, 3, acked] {
            writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(floor) });
            for _turn in 0..3 {
                log.turn().unwrap();
            }
        }
        let durable = writer.durable().try_next().unwrap().expect("the log goes on");
        assert_eq!(durable.last().unwrap().last.0, acked + 1);
    }
}

/// F.7: the budget refuses before the disk does, and keeps room for what frees space.
#[test]
fn f07_room_falls_to_nothing_before_the_budget_is_used() {
    let disk = SimDisk::new(7);
    let log = open_manual(&disk, &LogConfig { budget_bytes: 8 * FILE_BYTES, ..config(1) }, 1).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(1)).unwrap();
    let mut sequence = 0;
    while log.room().admissible_bytes > 0 {
        sequence += 1;
        writer.append(batch(0, 1, sequence..=sequence, 3000)).unwrap();
        while log.turn().unwrap() {}
        assert!(sequence < 1000);
    }
    assert!(sequence > 10, "a log of small files has room too");
    assert!(log.room().reserved_bytes > 0);
    writer.append(batch(0, 1, sequence + 1..=sequence + 1, 3000)).unwrap();
    log.turn().unwrap();
    assert_eq!(writer.durable().try_next().unwrap().unwrap().last().unwrap().last.0, sequence + 1);
}

/// F.8, invariant 5: bytes in somebody's hands keep their content through any number of recycles.
#[test]
fn f08_borrowed_bytes_never_change_while_files_are_recycled() {
    let disk = SimDisk::new(8);
    let (log, at) = log_with(&disk, 20, 9000);
    let held: Vec<Bytes> = at.iter().map(|at| log.bytes(at.offset(24), 9000).unwrap()).collect();
    let (reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(2)).unwrap();
    let used_before = log.room().used_bytes;
    for sequence in 21..=200 {
        writer.append(batch(0, 2, sequence..=sequence, 9000)).unwrap();
        writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(sequence) });
        log.turn().unwrap();
    }
    for (bytes, sequence) in held.iter().zip(1..) {
        assert_eq!(*bytes, body(0, sequence, 9000));
    }
    assert!(log.room().used_bytes >= used_before, "borrowed files count as used");
    drop((held, reader));
    writer.append(batch(0, 2, 201..=201, 10)).unwrap();
    log.turn().unwrap();
    assert!(log.room().used_bytes <= 2 * FILE_BYTES);
    let names = disk.list(&config(1).dir).unwrap();
    let files = names.iter().filter(|name| file::log_number(name).is_some()).count();
    assert!(files <= 2, "files that nobody reads any more keep their names: {names:?}");
}

/// Files that are only kept because somebody reads them count: the disk never holds more than the budget.
#[test]
fn f08_borrowed_files_stay_within_the_budget_and_the_log_goes_on_without_them() {
    let disk = SimDisk::new(9);
    let budget_bytes = 6 * FILE_BYTES;
    let log = open_manual(&disk, &LogConfig { budget_bytes, ..config(1) }, 1).unwrap();
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(1)).unwrap();
    let (mut at, mut held) = (Vec::new(), Vec::new());
    let on_disk = || -> u64 {
        let names = disk.list(Path::new("log")).unwrap().into_iter().filter(|name| name != file::LOCK_NAME);
        names.map(|name| disk.content(&Path::new("log").join(name)).unwrap().len() as u64).sum()
    };
    let (mut acked, appended) = (0, 100);
    for sequence in 1..=appended {
        writer.append(batch(0, 1, sequence..=sequence, 9000)).unwrap();
        log.turn().unwrap();
        assert!(on_disk() <= budget_bytes, "{} bytes", on_disk());
        let Some(durable) = writer.durable().try_next().unwrap() else { continue };
        let last = durable.last().unwrap();
        acked = last.last.0;
        at.push(last.address);
        // Old enough to lie in a sealed file, which is mapped, and let go soon.
        if let Some(before) = at.len().checked_sub(10) {
            held.push(log.bytes(at[before], 9000).unwrap());
            writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(acked - 8) });
        }
    }
    assert!(acked > 10 && acked < appended, "{acked} of {appended}: the log never filled");
    drop(held);
    for _turn in 0..appended {
        writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(acked) });
        log.turn().unwrap();
        assert!(on_disk() <= budget_bytes, "{} bytes", on_disk());
        acked = writer.durable().try_next().unwrap().map_or(acked, |durable| durable.last().unwrap().last.0);
    }
    assert_eq!(acked, appended);
}

/// F.10: nothing can be read before it is durable.
#[test]
fn f10_bytes_are_not_readable_before_they_are_durable() {
    let disk = SimDisk::new(10);
    let (log, at) = log_with(&disk, 2, 100);
    let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
    writer.begin(ContainerEpoch(2)).unwrap();
    writer.append(batch(0, 2, 3..=3, 100)).unwrap();
    let next = at[1].offset(at[1].0 - at[0].0);
    assert!(matches!(log.bytes(next, 1), Err(LogError::Gone { .. })));
    disk.fail_sync_after(0);
    log.turn().unwrap_err();
    assert!(matches!(log.bytes(next, 1), Err(LogError::Gone { .. })));
    assert_eq!(log.bytes(at[1].offset(24), 100).unwrap(), body(0, 2, 100));
}

/// A folder that lost a file which is still needed is refused, wherever the file stood.
#[test]
fn missing_file_is_a_lost_log() {
    let disk = SimDisk::new(11);
    let (log, _) = log_with(&disk, 30, 9000);
    for number in 1..=2 {
        let holed = disk.kill();
        holed.remove(&path(number)).unwrap();
        assert!(matches!(survivors(&holed), Err(LogError::Lost { .. })), "file {number}");
    }
    drop(log);
}

/// Files of another log, another count of containers or another version are named and left alone.
#[test]
fn foreign_files_are_refused() {
    let disk = SimDisk::new(12);
    drop(log_with(&disk, 1, 10));
    let refused = open_manual(&disk, &config(2), 1);
    assert!(matches!(refused.err(), Some(LogError::Foreign { .. })));
    let garbage = disk.open(&path(2), OpenMode::CreateNew).unwrap();
    garbage.write_at(&[7; 4096], 0).unwrap();
    assert!(matches!(survivors(&disk), Err(LogError::Rotten { offset: 0, .. })));
}

/// A restart keeps what was written, costs one small file, and gives back what the last file had reserved.
#[test]
fn idle_restarts_do_not_use_up_the_budget() {
    let disk = SimDisk::new(13);
    drop(log_with(&disk, 3, 10));
    let used = open_manual(&disk, &config(1), 2).unwrap().room().used_bytes;
    for seed in 3..20 {
        assert_eq!(survivors(&disk).unwrap(), [1, 2, 3], "{seed}");
    }
    let after = open_manual(&disk, &config(1), 2).unwrap().room().used_bytes;
    assert!(after - used < 20 * 4 * 4096, "{used} {after}");
}
