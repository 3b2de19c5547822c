//! What every [`Log`] must do, whatever it is made of. Runs on a log with threads on a real disk and on one that is
//! driven by hand on a simulated disk.

use dhara_stdx::{RealDisk, SystemClock, SystemEntropy};

use super::*;

/// Makes durable what was appended: a log with threads does it by itself.
type Drive<'a> = &'a dyn Fn(&LocalLog);

fn on_each_log(check: impl Fn(&LocalLog, Drive<'_>)) {
    let manual = open_manual(&SimDisk::new(1), &config(4), 1).unwrap();
    check(&manual, &|log| while log.turn().unwrap() {});

    let folder = tempfile::tempdir().unwrap();
    let config = LogConfig { dir: folder.path().join("log"), ..config(4) };
    let (clock, entropy) = (SystemClock::handle(), SystemEntropy::handle().unwrap());
    let threads = LocalLog::open(config, RealDisk::handle(), clock, entropy, Pace::Threads).unwrap();
    check(&threads, &|_| {});
}

/// Waits until record `last` is durable.
fn wait_for(watch: &mut DurableWatch, last: u64) -> Vec<Durable> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut all = Vec::new();
    while all.last().is_none_or(|durable: &Durable| durable.last.0 < last) {
        all.extend(runtime.block_on(watch.next()).unwrap());
    }
    all
}

#[test]
fn appended_batch_becomes_durable_and_is_read_back_by_address() {
    on_each_log(|log, drive| {
        let (mut reader, mut writer) = log.open(ContainerId(2)).unwrap();
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.last(), None);
        writer.begin(ContainerEpoch(1)).unwrap();
        let mut watch = writer.durable();
        for first in (1..=100).step_by(2) {
            writer.append(batch(2, 1, first..=first + 1, 1000)).unwrap();
        }
        drive(log);
        let durable = wait_for(&mut watch, 100);
        assert_eq!(durable.len(), 50);
        for one in &durable {
            let body_at = one.address.offset(RECORD_HEADER_BYTES as u64);
            assert_eq!(log.bytes(body_at, 1000).unwrap(), body(2, one.first.0, 1000));
        }
        assert!(durable.windows(2).all(|pair| pair[0].address < pair[1].address));

        let (reader, _writer) = log.open(ContainerId(2)).unwrap();
        assert_eq!(reader.last(), Some(SequenceNumber(100)));
        let records = read_all(reader);
        assert_eq!(sequences(&records), (1..=100).collect::<Vec<_>>());
        for record in &records {
            assert_eq!(record.body, body(2, record.sequence.0, 1000));
            assert_eq!(log.bytes(record.address, 1000).unwrap(), record.body);
            assert_eq!((record.kind, record.version, record.epoch), (7, 1, ContainerEpoch(1)));
        }
    });
}

#[test]
fn later_open_ends_the_earlier_writer_and_drops_what_it_left_pending() {
    on_each_log(|log, drive| {
        let (_reader, mut old) = log.open(ContainerId(0)).unwrap();
        old.begin(ContainerEpoch(1)).unwrap();
        let mut old_watch = old.durable();
        old.append(batch(0, 1, 1..=1, 10)).unwrap();
        let (reader, mut new) = log.open(ContainerId(0)).unwrap();
        let seen = reader.last().map_or(0, |last| last.0);
        assert_eq!(sequences(&read_all(reader)), (1..=seen).collect::<Vec<_>>());
        let refused = old.append(batch(0, 1, 2..=2, 10));
        assert!(matches!(refused, Err(LogError::Fenced { .. })));
        assert!(matches!(old_watch.try_next(), Err(LogError::Fenced { .. })));

        new.begin(ContainerEpoch(2)).unwrap();
        new.append(batch(0, 2, seen + 1..=seen + 3, 10)).unwrap();
        drive(log);
        wait_for(&mut new.durable(), seen + 3);
        assert!(matches!(old_watch.try_next(), Err(LogError::Fenced { .. })));
        let (reader, mut late) = log.open(ContainerId(0)).unwrap();
        assert_eq!(sequences(&read_all(reader)), (1..=seen + 3).collect::<Vec<_>>());
        assert!(matches!(late.begin(ContainerEpoch(1)), Err(LogError::Fenced { .. })));
    });
}

#[test]
fn containers_do_not_see_each_other() {
    on_each_log(|log, drive| {
        let mut writers: Vec<_> = (0..4).map(|c| log.open(ContainerId(c)).unwrap().1).collect();
        for (container, writer) in (0..).zip(&mut writers) {
            writer.begin(ContainerEpoch(1)).unwrap();
            writer.append(batch(container, 1, 1..=10, 50)).unwrap();
        }
        drive(log);
        for (container, writer) in (0..).zip(&writers) {
            wait_for(&mut writer.durable(), 10);
            let records = read_all(log.open(ContainerId(container)).unwrap().0);
            assert_eq!(sequences(&records), (1..=10).collect::<Vec<_>>());
            assert!(records.iter().all(|record| record.body == body(container, record.sequence.0, 50)));
        }
        assert!(matches!(log.open(ContainerId(4)).err(), Some(LogError::NoContainer { .. })));
    });
}

#[test]
fn raised_floors_free_old_files_and_their_addresses_are_gone() {
    on_each_log(|log, drive| {
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(1)).unwrap();
        let mut watch = writer.durable();
        let mut first = None;
        for sequence in 1..=60 {
            writer.append(batch(0, 1, sequence..=sequence, 9000)).unwrap();
            drive(log);
            first.get_or_insert(wait_for(&mut watch, sequence)[0].address);
        }
        let used = log.room().used_bytes;
        assert!(log.bytes(first.unwrap(), 10).is_ok());
        writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(61) });
        drive(log);
        writer.append(batch(0, 1, 61..=61, 10)).unwrap();
        drive(log);
        wait_for(&mut watch, 61);
        // Files count until a thread of the log's own has recycled or removed them.
        while log.room().used_bytes >= used {
            std::thread::yield_now();
        }
        assert!(log.oldest() > first.unwrap());
        assert!(matches!(log.bytes(first.unwrap(), 10), Err(LogError::Gone { .. })));
        let records = read_all(log.open(ContainerId(0)).unwrap().0);
        assert_eq!(records.last().unwrap().sequence.0, 61);
    });
}

/// F.8 and invariant 5 on real maps: a reply that is slow to leave keeps its bytes.
#[test]
fn borrowed_bytes_outlive_any_number_of_recycled_files() {
    on_each_log(|log, drive| {
        let (_, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(1)).unwrap();
        let mut watch = writer.durable();
        let mut held = Vec::new();
        for sequence in 1..=40 {
            writer.append(batch(0, 1, sequence..=sequence, 9000)).unwrap();
            drive(log);
            let at = wait_for(&mut watch, sequence)[0].address.offset(RECORD_HEADER_BYTES as u64);
            held.push((at, sequence));
        }
        let held: Vec<_> =
            held.into_iter().map(|(at, sequence)| (log.bytes(at, 9000).unwrap(), sequence)).collect();
        for sequence in 41..=200 {
            writer.append(batch(0, 1, sequence..=sequence, 9000)).unwrap();
            writer.set_floor(Floor { address: LogAddress(0), sequence: SequenceNumber(sequence - 1) });
            drive(log);
            wait_for(&mut watch, sequence);
        }
        assert!(held.iter().all(|(bytes, sequence)| *bytes == body(0, *sequence, 9000)));
    });
}

#[test]
fn batch_larger_than_a_file_is_refused_and_changes_nothing() {
    on_each_log(|log, drive| {
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(1)).unwrap();
        let refused = writer.append(batch(0, 1, 1..=1, 70_000));
        assert!(matches!(refused, Err(LogError::TooLarge { .. })));
        writer.append(batch(0, 1, 1..=1, 40_000)).unwrap();
        drive(log);
        wait_for(&mut writer.durable(), 1);
    });
}

#[test]
fn closed_log_refuses_and_a_closed_one_was_written_out() {
    on_each_log(|log, _drive| {
        let (_reader, mut writer) = log.open(ContainerId(0)).unwrap();
        writer.begin(ContainerEpoch(1)).unwrap();
        writer.append(batch(0, 1, 1..=1, 10)).unwrap();
        log.close();
        assert_eq!(wait_for(&mut writer.durable(), 1).len(), 1);
        assert!(matches!(writer.append(batch(0, 1, 2..=2, 10)), Err(LogError::Closed)));
        assert!(matches!(log.open(ContainerId(0)).err(), Some(LogError::Closed)));
    });
}

#[test]
fn folder_is_open_in_one_process_at_a_time() {
    let disk = SimDisk::new(1);
    let first = open_manual(&disk, &config(1), 1).unwrap();
    assert!(matches!(open_manual(&disk, &config(1), 2).err(), Some(LogError::Locked { .. })));
    drop(first);
    open_manual(&disk, &config(1), 2).unwrap();
}
