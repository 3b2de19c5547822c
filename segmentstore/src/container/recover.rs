//! Opening a container: from its index and its log back to the state before the last acknowledgement.
//!
//! One scan of the log from the first surviving frame: a record that the index has seen only says where bytes lie, a
//! later one is applied in full. Then it is proven that the pieces of every segment cover its bytes exactly once.

use super::flush::Flush;
use super::pressure::MemoryLimits;
use super::publish::Publisher;
use super::regroup::Regroup;
use super::rows::index_rows;
use super::task::{Failure, Inbox, Task, Work};
use super::tiering::{Tier, Tiering};
use super::{ContainerHandle, INBOX_OPERATIONS_MAX};
use crate::index::{Index, IndexError, key};
use crate::log::{BatchBuilder, Log, LogError, LogReader, LogWriter, RECORD_HEADER_BYTES};
use crate::operation::{Extent, Record, RecordError};
use crate::read::{ColdReader, Loads, Pins, Views};
use crate::state::{
    AppendPlace, Effect, Pieces, RowError, Segment, State, Uncovered, decode_extent, decode_object,
};
use crate::types::{ContainerEpoch, ContainerId, LogAddress, ObjectId, SegmentId, SequenceNumber};
use bytes::Bytes;
use dhara_stdx::clock::Clock;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events of spawned work that may wait for the task.
const EVENTS_MAX: usize = 1_024;
/// Segment rows read at a time.
const PAGE_ROWS: usize = 4_096;
/// Bytes of segment rows read at a time.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// What a container is opened from.
pub struct ContainerParts {
    /// Which container.
    pub id: ContainerId,
    /// The log; the container opens its own part of it, which ends every earlier owner.
    pub log: Arc<dyn Log>,
    /// The index, opened.
    pub index: Index,
    /// Long-term storage.
    pub tier: Tier,
    /// How much it may keep in memory.
    pub limits: MemoryLimits,
    /// What to do if the log is not there but the index has seen records of it.
    pub lost_log: LostLog,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Where work on the index's store runs.
    pub storage: Handle,
    /// Stops the container.
    pub stop: CancellationToken,
}

/// What to do about a log that is not there although the index has seen records of it.
#[derive(Clone, Debug, Default)]
pub enum LostLog {
    /// The container does not open: the folder may only be missing.
    #[default]
    Refuse,
    /// A person decided to go on with what lies in objects; what is given up is listed here.
    GiveUp(Arc<Mutex<Vec<GivenUp>>>),
}

/// Bytes of a segment that went with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The container.
    pub container: ContainerId,
    /// Canonical name of the segment.
    pub segment: String,
    /// First offset that was readable.
    pub start: u64,
    /// Offset after the last byte that lies in objects, from `start` on without a gap.
    pub stored: u64,
    /// Offset after the last byte: the segment begins here now.
    pub length: u64,
}

/// Why a container does not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log cannot be read.
    #[error("read the log of container {container}")]
    Log {
        /// The container.
        container: ContainerId,
        /// What the log reported.
        #[source]
        source: LogError,
    },
    /// The index cannot be read.
    #[error("read the index of container {container}")]
    Index {
        /// The container.
        container: ContainerId,
        /// What the index reported.
        #[source]
        source: IndexError,
    },
    /// A segment's row is malformed.
    #[error("read the index of container {container}")]
    Row {
        /// The container.
        container: ContainerId,
        /// Which row.
        #[source]
        source: RowError,
    },
    /// A record is malformed or from a later version.
    #[error("record {sequence} of container {container}")]
    Record {
        /// The container.
        container: ContainerId,
        /// Its sequence number.
        sequence: SequenceNumber,
        /// What is wrong with it.
        #[source]
        source: RecordError,
    },
    /// Records are missing between what the index has seen and what the log holds.
    #[error("log of container {container} goes on at record {found}, but the index ends at {applied}")]
    Gap {
        /// The container.
        container: ContainerId,
        /// The last record that the index has seen, or the last one read.
        applied: SequenceNumber,
        /// The next one that the log holds.
        found: SequenceNumber,
    },
    /// The log ends before what the index has seen: it is not the log of this index, or a disk was lost.
    #[error(
        "log of container {container} is lost: the index has seen record {applied}, the log ends at {last}"
    )]
    Lost {
        /// The container.
        container: ContainerId,
        /// The last record that the index has seen.
        applied: SequenceNumber,
        /// The last one that the log ever held; 0 for none.
        last: SequenceNumber,
    },
    /// The log was written in a later epoch than the index has come to: the index was lost, or an earlier one put back.
    #[error("index of container {container} is older than its log: it has come to epoch {epoch} only")]
    IndexBehind {
        /// The container.
        container: ContainerId,
        /// The epoch that the index gave to this opening.
        epoch: ContainerEpoch,
    },
    /// A row of an extent or an object is malformed.
    #[error("row {key:02x?} of container {container} is malformed")]
    Tier {
        /// The container.
        container: ContainerId,
        /// The row's key.
        key: Bytes,
    },
    /// Bytes of a segment are nowhere, or twice.
    #[error("segment {name} of container {container}")]
    Coverage {
        /// The container.
        container: ContainerId,
        /// The segment.
        name: String,
        /// Where the pieces fail.
        #[source]
        source: Uncovered,
    },
}

/// Opens a container and starts its task; the join handle tells how it ended.
///
/// # Errors
/// [`OpenError`] if log and index do not make up a whole state.
/// # Cancel safety
/// Dropped early: nothing was changed besides fencing earlier owners.
pub async fn open(
    parts: ContainerParts,
) -> Result<(ContainerHandle, JoinHandle<Result<(), Failure>>), OpenError> {
    let started = Instant::now();
    let ContainerParts { id, log, index, tier, limits, lost_log, clock, storage, stop } = parts;
    let log_error = |source| OpenError::Log { container: id, source };
    let epoch = ContainerEpoch(index.epoch());
    let recovery = Recovery::begin(id, &index, epoch, lost_log).await?;
    let (mut recovery, mut writer) = scan(recovery, Arc::clone(&log), index.clone()).await?;
    let views = Arc::new(Views::default());
    let loads = Arc::new(Loads::new(Arc::clone(&clock)));
    let publisher = recovery.publish(Publisher::new(Arc::clone(&views), Arc::clone(&loads)))?;
    recovery.state.settle(recovery.last.next());
    let given_up = std::mem::take(&mut recovery.given_up);
    let unflushed_bytes = usize::try_from(recovery.unflushed_bytes).unwrap_or(usize::MAX);
    writer.begin(epoch).map_err(|source| match source {
        LogError::Fenced { container } => OpenError::IndexBehind { container, epoch },
        source => log_error(source),
    })?;
    let (sender, inbox) = mpsc::channel(INBOX_OPERATIONS_MAX);
    let (event_sender, events) = mpsc::channel(EVENTS_MAX);
    let pins = Pins::default();
    let cold = ColdReader::new(id, tier.objects.clone(), pins.clone(), tier.cache.clone());
    let handle =
        ContainerHandle { inbox: sender, views, loads, index: index.clone(), log: Arc::clone(&log), cold };
    let mut task = Task {
        id,
        state: recovery.state,
        index,
        log,
        durable: writer.durable(),
        writer,
        batch: BatchBuilder::new(id, epoch),
        publisher,
        clock,
        storage,
        inbox: Inbox(inbox),
        events,
        event_sender,
        stop,
        tiering: Tiering::new(tier, pins),
        // A container that is killed again and again must not read more each time.
        flush: Flush { sweep_due: true, logged_bytes: unflushed_bytes, ..Flush::default() },
        regroup: Regroup::default(),
        work: Work::new(limits),
    };
    task.stage_new_epoch(given_up).map_err(|failure| match failure {
        Failure::Log { source, .. } => log_error(source),
        _ => unreachable!("staging touches the log only"),
    })?;
    // A floor that let no file go was not kept, and in a quiet container nothing else raises it.
    task.raise_floor();
    task.log_opened(started.elapsed());
    let running = tokio::spawn(task.run());
    Ok((handle, running))
}

/// Reads the container's log, on a thread that may block if it needs one.
async fn scan(
    mut recovery: Recovery,
    log: Arc<dyn Log>,
    index: Index,
) -> Result<(Recovery, Box<dyn LogWriter>), OpenError> {
    let blocks = log.blocks();
    let scan = move || {
        let container = recovery.container;
        let (mut reader, writer) =
            log.open(container).map_err(|source| OpenError::Log { container, source })?;
        recovery.scan(&mut *reader, &index)?;
        Ok((recovery, writer))
    };
    if !blocks {
        return scan();
    }
    match tokio::task::spawn_blocking(scan).await {
        Ok(scanned) => scanned,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Takes in a row of one of the kinds that a container keeps in memory.
fn load_row(
    container: ContainerId,
    kind: key::Kind,
    key: Bytes,
    row: Bytes,
    state: &mut State,
) -> Result<(), OpenError> {
    let malformed = |key| OpenError::Tier { container, key };
    match kind {
        key::Kind::Object => {
            let object = key::parse_object(&key).and_then(|(epoch, counter)| {
                Some(ObjectId { epoch: epoch.try_into().ok()?, counter: counter.try_into().ok()? })
            });
            match (object, decode_object(row)) {
                (Some(id), Some(object)) => state.load_object(id, object),
                _ => return Err(malformed(key)),
            }
        }
        key::Kind::Extent => {
            let parsed = key::parse_extent(&key).and_then(|(id, offset)| decode_extent(id, offset, row));
            state.load_extent(&parsed.ok_or_else(|| malformed(key))?);
        }
        _ => {
            let Some((id, _)) = key::parse_of_segment(key::Kind::Segment, &key) else { return Ok(()) };
            let segment =
                Segment::decode_row(id, row).map_err(|source| OpenError::Row { container, source })?;
            state.load_segment(segment);
        }
    }
    Ok(())
}

struct Recovery {
    container: ContainerId,
    state: State,
    /// The last record that the index has seen.
    flushed: SequenceNumber,
    /// The last record read.
    last: SequenceNumber,
    places: BTreeMap<SegmentId, Pieces>,
    batches: Vec<(LogAddress, SequenceNumber)>,
    lost_log: LostLog,
    /// Bytes of log that the index has not seen.
    unflushed_bytes: u64,
    /// Segments that lost bytes with their log.
    given_up: Vec<SegmentId>,
}

impl Recovery {
    async fn begin(
        container: ContainerId,
        index: &Index,
        epoch: ContainerEpoch,
        lost_log: LostLog,
    ) -> Result<Self, OpenError> {
        let flushed = index.applied();
        let mut state = State::new(epoch, flushed);
        for kind in [key::Kind::Segment, key::Kind::Object, key::Kind::Extent] {
            let all = key::all(kind);
            let mut next = Some(all.start);
            while let Some(start) = next {
                let page = index
                    .scan(start..all.end.clone(), PAGE_ROWS, PAGE_BYTES)
                    .await
                    .map_err(|source| OpenError::Index { container, source })?;
                for (key, row) in page.rows {
                    load_row(container, kind, key, row, &mut state)?;
                }
                next = page.next;
            }
        }
        let (places, batches, given_up) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(Self {
            container,
            state,
            flushed,
            last: flushed,
            places,
            batches,
            lost_log,
            unflushed_bytes: 0,
            given_up,
        })
    }

    fn scan(&mut self, reader: &mut dyn LogReader, index: &Index) -> Result<(), OpenError> {
        if reader.last().is_none()
            && self.flushed > SequenceNumber(0)
            && let LostLog::GiveUp(given_up) = &self.lost_log
        {
            self.given_up = self.state.give_up_unstored(|segment, start, stored| {
                let (container, length) = (self.container, segment.applied.length);
                let segment = segment.name.clone();
                given_up.lock().push(GivenUp { container, segment, start, stored, length });
            });
            return Ok(());
        }
        let last = reader.last().unwrap_or_default();
        if last < self.flushed {
            return Err(OpenError::Lost { container: self.container, applied: self.flushed, last });
        }
        let mut read_upto: Option<SequenceNumber> = None;
        let mut effects = Vec::new();
        let container = self.container;
        let log_error = |source| OpenError::Log { container, source };
        while let Some(records) = reader.next().map_err(log_error)? {
            // Batches of other containers may lie between ours, and no piece may reach over them.
            let (mut batch, mut end) = (LogAddress::default(), None);
            for logged in records {
                let header = LogAddress(logged.address.0 - RECORD_HEADER_BYTES as u64);
                if end != Some(header) {
                    batch = header;
                    self.batches.push((batch, logged.sequence));
                }
                end = Some(logged.address.offset(logged.body.len() as u64));
                let follows = read_upto
                    .map_or(logged.sequence <= self.flushed.next(), |upto| logged.sequence == upto.next());
                if !follows {
                    let applied = read_upto.unwrap_or(self.flushed);
                    return Err(OpenError::Gap {
                        container: self.container,
                        applied,
                        found: logged.sequence,
                    });
                }
                read_upto = Some(logged.sequence);
                let record = Record::decode(logged.kind, logged.version, logged.body).map_err(|source| {
                    OpenError::Record { container: self.container, sequence: logged.sequence, source }
                })?;
                let place = AppendPlace {
                    batch,
                    body: logged.address,
                    record_header_bytes: RECORD_HEADER_BYTES as u64,
                };
                self.place(&record, place);
                if logged.sequence > self.flushed {
                    self.unflushed_bytes += end.map_or(0, |end| end.0 - header.0);
                    self.apply(logged.sequence, &record, index, &mut effects);
                }
            }
        }
        self.last = self.last.max(read_upto.unwrap_or(self.flushed));
        Ok(())
    }

    /// Notes where the record's bytes lie, whether or not the index has seen it.
    fn place(&mut self, record: &Record, place: AppendPlace) {
        match record {
            Record::Appended { segment, offset, data, .. } if !data.is_empty() => {
                let pieces = self.places.entry(*segment).or_default();
                let _added = pieces.append(*segment, *offset, data.len() as u64, place);
            }
            Record::Merged { target, source, offset, .. } => {
                if let Some(moved) = self.places.remove(source) {
                    self.places.entry(*target).or_default().adopt(moved, *offset);
                }
            }
            Record::Deleted { segment } => drop(self.places.remove(segment)),
            _ => {}
        }
    }

    fn apply(&mut self, sequence: SequenceNumber, record: &Record, index: &Index, effects: &mut Vec<Effect>) {
        effects.clear();
        self.state.apply(sequence, record, effects);
        let mut changes = Vec::new();
        self.state.take_changes(&mut changes);
        if !changes.is_empty() {
            index.apply(index_rows(changes, &mut super::rows::Loaded::default()), sequence);
        }
    }

    /// Proves coverage and publishes every segment.
    fn publish(&mut self, mut publisher: Publisher) -> Result<Publisher, OpenError> {
        for (address, first) in &self.batches {
            publisher.marks.batch(*address, *first);
        }
        for segment in self.state.segments() {
            let mut pieces = self.places.remove(&segment.id).unwrap_or_default();
            let core = segment.applied;
            // What the log still holds of bytes that were stored is not needed.
            pieces = pieces.with_extents(segment.extents().map(Extent::piece));
            pieces.truncate(core.start, |_| {});
            let length = if segment.kind.is_table() { core.start } else { core.length };
            pieces.prove(core.start, length).map_err(|source| OpenError::Coverage {
                container: self.container,
                name: segment.name.clone(),
                source,
            })?;
            pieces.iter().for_each(|piece| publisher.marks.note(piece));
            publisher.backlog.set(segment.id, pieces.placed());
            publisher.create(&self.state, segment.id);
            if let Some(view) = publisher.view(segment.id) {
                view.publish(|_, published| *published = pieces);
            }
        }
        Ok(publisher)
    }
}
