//! A log under storm, and a model of what it promised.
//!
//! Each life opens the log, compares what survived with the model, then appends, raises floors and takes turns until
//! the power fails. What was once acked or shown must stay; what was once dropped must never come back.

use std::collections::BTreeMap;

use super::*;

/// What one container was promised.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// Records acked or shown by a recovery, with the epoch in which they were written.
    known: BTreeMap<u64, u64>,
    /// Last record handed over in the current life.
    submitted: u64,
    floor: u64,
}

pub(super) struct World {
    pub disk: SimDisk,
    pub config: LogConfig,
    chance: SeededEntropy,
    promises: Vec<Promise>,
    life: u64,
}

/// One life of the log: the open log and a writer for each container.
pub(super) struct Life {
    pub log: LocalLog,
    writers: Vec<Box<dyn LogWriter>>,
    watches: Vec<DurableWatch>,
    epoch: u64,
}

/// The length of a record's body depends on its number and epoch, as its bytes do.
fn length(sequence: u64, epoch: u64) -> usize {
    let spread = sequence.wrapping_mul(7919).wrapping_add(epoch * 104_729) % 97;
    usize::try_from(if spread < 5 { spread * 3000 } else { spread * 11 }).unwrap()
}

fn content(container: u16, sequence: u64, epoch: u64) -> Bytes {
    body(container, sequence.wrapping_add(epoch * 1_000_003), length(sequence, epoch))
}

impl World {
    pub(super) fn new(seed: u64, containers: u16) -> Self {
        Self {
            disk: SimDisk::new(seed),
            config: config(containers),
            chance: SeededEntropy::new(seed ^ 0x5eed),
            promises: vec![Promise::default(); usize::from(containers)],
            life: 0,
        }
    }

    /// Opens the log and compares.
    pub(super) fn open(&mut self) -> Result<Life, LogError> {
        let log = open_manual(&self.disk, &self.config, self.chance.next_u64())?;
        let ended = self.life;
        self.life += 1;
        let (mut writers, mut watches) = (Vec::new(), Vec::new());
        for container in 0..self.config.containers {
            let (reader, mut writer) = log.open(ContainerId(container))?;
            let last = reader.last();
            let records = read_all(reader);
            self.compare(container, &records, ended);
            assert_eq!(last.map_or(0, |last| last.0), self.promises[usize::from(container)].submitted);
            for record in &records {
                let len = u32::try_from(record.body.len()).unwrap();
                assert_eq!(log.bytes(record.address, len).unwrap(), record.body);
            }
            writer.begin(ContainerEpoch(self.life)).unwrap();
            watches.push(writer.durable());
            writers.push(writer);
        }
        Ok(Life { log, writers, watches, epoch: self.life })
    }

    /// Invariant 4: nothing acked or shown is missing, nothing dropped is back.
    fn compare(&mut self, container: u16, records: &[LogRecord], ended: u64) {
        let promise = &mut self.promises[usize::from(container)];
        let known_last = promise.known.last_key_value().map_or(0, |(last, _)| *last);
        let last = records.last().map_or(known_last, |record| record.sequence.0);
        assert!(last >= known_last, "container {container} lost {last}..{known_last}");
        if let Some(first) = records.first() {
            assert!(first.sequence.0 <= promise.floor.max(1), "container {container} lost what it needs");
        } else {
            assert!(known_last < promise.floor.max(1), "container {container} lost all it needs");
        }
        for (record, expected) in records.iter().zip(records[..].first().map_or(0, |r| r.sequence.0)..) {
            let (sequence, epoch) = (record.sequence.0, record.epoch.0);
            assert_eq!(sequence, expected, "container {container} has a gap");
            assert_eq!(record.body, content(container, sequence, epoch));
            match promise.known.get(&sequence) {
                Some(known) => assert_eq!(epoch, *known, "record {sequence} was replaced"),
                None => assert_eq!(epoch, ended, "record {sequence} of epoch {epoch} came back"),
            }
            promise.known.insert(sequence, epoch);
        }
        promise.submitted = last;
    }

    /// Takes one random step; an error is the end of this life.
    pub(super) fn step(&mut self, life: &mut Life) -> Result<(), LogError> {
        let container = self.chance.below(u64::from(self.config.containers));
        let index = usize::try_from(container).unwrap();
        match self.chance.below(8) {
            0..=3 => self.append(life, index),
            4..=5 => life.log.turn().map(drop),
            6 => life.log.quiet(),
            _ => {
                self.raise_floor(life, index);
                Ok(())
            }
        }?;
        self.hear(life);
        Ok(())
    }

    fn append(&mut self, life: &mut Life, index: usize) -> Result<(), LogError> {
        let promise = &mut self.promises[index];
        let container = u16::try_from(index).unwrap();
        let mut builder = BatchBuilder::new(ContainerId(container), ContainerEpoch(life.epoch));
        for _ in 0..=self.chance.below(4) {
            promise.submitted += 1;
            let bytes = content(container, promise.submitted, life.epoch);
            builder.record(SequenceNumber(promise.submitted), 0, 0, |out| out.put_slice(&bytes));
        }
        life.writers[index].append(builder.take().unwrap())
    }

    fn raise_floor(&mut self, life: &mut Life, index: usize) {
        let promise = &mut self.promises[index];
        let Some((acked, _)) = promise.known.last_key_value() else { return };
        let floor = (acked + 1).saturating_sub(self.chance.below(30)).max(promise.floor);
        promise.floor = floor;
        let floor = Floor { address: LogAddress(0), sequence: SequenceNumber(floor) };
        life.writers[index].set_floor(floor);
    }

    /// Takes note of what is acked; all of it can be read, at its address, at once.
    fn hear(&mut self, life: &mut Life) {
        for (index, watch) in life.watches.iter_mut().enumerate() {
            let Ok(Some(durable)) = watch.try_next() else { continue };
            let promise = &mut self.promises[index];
            for one in durable {
                let known_last = promise.known.last_key_value().map_or(0, |(last, _)| *last);
                assert!(known_last == 0 || known_last + 1 == one.first.0, "acked out of order");
                let container = u16::try_from(index).unwrap();
                let first = content(container, one.first.0, life.epoch);
                let at = one.address.offset(RECORD_HEADER_BYTES as u64);
                assert_eq!(life.log.bytes(at, u32::try_from(first.len()).unwrap()).unwrap(), first);
                promise.known.extend((one.first.0..=one.last.0).map(|sequence| (sequence, life.epoch)));
            }
        }
    }

    /// Lives until an error or for `steps`, then cuts the power: what is left is the disk of the next life.
    pub(super) fn live_and_crash(&mut self, steps: u64) {
        if let Ok(mut life) = self.open() {
            for _ in 0..steps {
                if self.step(&mut life).is_err() {
                    break;
                }
            }
            self.hear(&mut life);
            self.disk = self.disk.crash(self.chance.next_u64());
        } else {
            // The power failed while it opened: nothing was shown, so no life has begun.
            self.disk = self.disk.crash(self.chance.next_u64());
        }
    }

    /// A number that chance gives.
    pub(super) fn below(&self, below: u64) -> u64 {
        self.chance.below(below)
    }
}
