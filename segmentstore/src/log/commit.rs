//! Writes frames: the one place that appends to log files.
//!
//! A frame is built in memory, written, synced, and only then shown; the next one is not begun before. So at most
//! one frame is not durable, and a valid frame proves all before it. Any error of a write or a sync is final for
//! this committer: what reached the disk is decided by the next recovery.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dhara_stdx::disk::is_out_of_files;
use dhara_stdx::{Clock, Disk, DiskFile, Entropy, OpenMode};

use super::error::LogError;
use super::format::file::{FIRST_FRAME_AT, FileHeader, address, fresh_path, log_path};
use super::format::floor::{self, Floor, Mark};
use super::format::frame::{BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
use super::format::record::Batch;
use super::keeper::Keeper;
use super::table::{FileTable, Freed};
use super::{Durable, LogConfig};
use crate::types::{ContainerEpoch, ContainerId};

/// A log with this much in a file wants reserved files; a log without data does not cost their disk writes.
const WAKE_KEEPER_AT: u64 = 1 << 20;

/// What the rest of the machine gives to a log.
#[derive(Clone, Debug)]
pub(super) struct Seams {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

/// Where the chain of frames stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Number of the next frame.
    pub next: u64,
    /// Header checksum of the frame before.
    pub previous_crc: u32,
}

/// The file that takes frames.
#[derive(Debug)]
struct Active {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    number: u64,
    incarnation: u64,
    /// Where the next frame goes.
    at: u64,
    len: u64,
}

/// Appends frames; owned by the log thread.
#[derive(Debug)]
pub(super) struct Committer {
    seams: Seams,
    config: LogConfig,
    table: Arc<FileTable>,
    keeper: Arc<Keeper>,
    log: u128,
    epoch: u64,
    chain: Chain,
    marks: Vec<Mark>,
    active: Active,
    /// The last frame of data; a frame after it proves it.
    data_frame: u64,
}

/// Batches that are durable now, with the container and epoch of each.
pub(super) type Committed = Vec<(ContainerId, ContainerEpoch, Durable)>;

/// Where a log goes on after recovery.
#[derive(Debug)]
pub(super) struct Start {
    pub log: u128,
    pub epoch: u64,
    pub number: u64,
    pub previous_end: u64,
    pub chain: Chain,
    pub marks: Vec<Mark>,
    /// Records that were found but not proven to be durable: written again before the file gets its name.
    pub unproven: Vec<Bytes>,
}

impl Committer {
    /// Makes the first file of this epoch, whole and durable before it gets its name, so that a crash on the way
    /// leaves the log as it was found.
    pub(super) fn start(
        seams: Seams,
        config: LogConfig,
        (table, keeper): (Arc<FileTable>, Arc<Keeper>),
        start: Start,
    ) -> Result<Self, LogError> {
        let again: u64 = start.unproven.iter().map(|payload| frame_bytes(payload.len())).sum();
        let floors = frame_bytes(floor::encoded_len(start.marks.len()));
        let kept = kept_bytes(floor::encoded_len(start.marks.len()));
        let len_min = FIRST_FRAME_AT + floors + again + kept;
        let fresh = fresh_path(&config.dir, "next");
        // Space that is only reserved would be made usable by each sync of a frame, at twice the price.
        let make = |len| create(&seams, &fresh, len, |file| fill(file, len)).map(|(file, ())| (file, len));
        let (file, fresh, len) = match make(config.first_file_bytes.max(len_min)) {
            Ok((file, len)) => (file, fresh, len),
            // A full disk must not keep the log closed: what frees space goes through it.
            Err(LogError::Full) => match keeper.take_ready().filter(|spare| spare.len >= len_min) {
                Some(spare) => (spare.file, spare.path, spare.len),
                None => make(len_min).map(|(file, len)| (file, fresh, len))?,
            },
            Err(other) => return Err(other),
        };
        let header = FileHeader {
            log: start.log,
            number: start.number,
            incarnation: seams.entropy.next_u64(),
            epoch: start.epoch,
            first_frame: start.chain.next,
            previous_end: start.previous_end,
            previous_crc: start.chain.previous_crc,
            containers: config.containers,
            created_ms: seams.clock.wall_ms(),
            file_bytes: len,
        };
        file.write_at(&header.encode(), 0).map_err(|source| LogError::io("write", &fresh, source))?;
        table.push_active(start.number, header.incarnation, len, start.marks.len());
        let path = log_path(&config.dir, start.number);
        let active = Active {
            file,
            path: fresh.clone(),
            number: start.number,
            incarnation: header.incarnation,
            at: FIRST_FRAME_AT,
            len,
        };
        let (log, epoch, chain, marks) = (start.log, start.epoch, start.chain, start.marks);
        let mut committer =
            Self { seams, config, table, keeper, log, epoch, chain, marks, active, data_frame: 0 };
        committer.write_floors()?;
        for payload in start.unproven {
            committer.write_again(&payload)?;
        }
        committer.active.file.sync_all().map_err(|source| LogError::io("sync", &fresh, source))?;
        let disk = &committer.seams.disk;
        disk.rename(&fresh, &path).map_err(|source| LogError::io("name", &path, source))?;
        sync_dir(&committer.seams, &committer.config)?;
        committer.active.path = path;
        Ok(committer)
    }

    /// What is known of each container.
    pub(super) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Writes `batches` as one frame and returns them once durable. Without batches it writes nothing.
    ///
    /// `floors` are remembered; if they let a file go, they are written too and the files come back freed.
    pub(super) fn commit(
        &mut self,
        batches: &[Batch],
        floors: Option<&[Floor]>,
    ) -> Result<(Committed, Vec<Freed>), LogError> {
        for (mark, floor) in self.marks.iter_mut().zip(floors.unwrap_or_default()) {
            mark.floor = *floor;
        }
        let frees = self.table.can_free(&self.marks);
        let floors_len = floor::encoded_len(self.marks.len());
        if batches.is_empty() {
            let room = self.active.len - self.active.at;
            let freed = if !frees {
                Vec::new()
            } else if room >= frame_bytes(floors_len) + kept_bytes(floors_len) {
                self.free()?
            } else {
                self.free_for(&[])?
            };
            return Ok((Vec::new(), freed));
        }
        let payload: usize = batches.iter().map(Batch::len).sum();
        self.make_room(payload + floors_len)?;

        let mut frame = Frame::with_payload(payload + floors_len);
        let opens_file = self.active.at == FIRST_FRAME_AT;
        if frees || opens_file {
            frame.push(&floor::encode(&self.marks), 1);
        }
        let mut committed = Vec::with_capacity(batches.len());
        let mut touched = Vec::with_capacity(batches.len());
        for batch in batches {
            let at = address(self.active.number, self.active.at + frame.len());
            frame.push(&batch.bytes, batch.records);
            let index = usize::from(batch.container.0);
            let follows = self.marks[index].advance(batch.epoch.0, batch.first.0, batch.last.0);
            assert!(follows, "batch from {} where {} follows", batch.first, self.marks[index].next);
            touched.push((index, batch.last.0));
            let durable = Durable { first: batch.first, last: batch.last, address: at };
            committed.push((batch.container, batch.epoch, durable));
        }
        self.write(frame, &touched)?;
        self.data_frame = self.chain.next - 1;
        let freed = if frees { self.table.free(&self.marks) } else { Vec::new() };
        Ok((committed, freed))
    }

    /// Lets go of the files that nobody needs, once the floors that say so are durable.
    fn free(&mut self) -> Result<Vec<Freed>, LogError> {
        let room = self.active.len - self.active.at;
        let floors = frame_bytes(floor::encoded_len(self.marks.len()));
        if !self.table.can_free(&self.marks) || floors + BLOCK_BYTES > room {
            return Ok(Vec::new());
        }
        self.write_floors()?;
        Ok(self.table.free(&self.marks))
    }

    /// As [`Committer::free`] on a full log that has no room for `batches`. It uses the room that each file keeps for
    /// floors, and there is room for one frame of them: so it waits until what becomes free is enough to go on, or all
    /// that there will be.
    pub(super) fn free_for(&mut self, batches: &[Batch]) -> Result<Vec<Freed>, LogError> {
        let freeable = self.table.freeable(&self.marks);
        let used = self.table.used_bytes() - freeable.bytes;
        let payload: usize = batches.iter().map(Batch::len).sum();
        let enough = freeable.bytes >= self.file_for(payload + floor::encoded_len(self.marks.len()))
            && used + self.config.file_bytes <= self.config.budget_bytes;
        if enough || freeable.all { self.free() } else { Ok(Vec::new()) }
    }

    /// Bytes of the smallest file that holds a payload of this size and what each file keeps room for.
    fn file_for(&self, payload: usize) -> u64 {
        FIRST_FRAME_AT + frame_bytes(payload) + kept_bytes(floor::encoded_len(self.marks.len()))
    }

    /// True if the last frame of data has no frame after it that proves it.
    pub(super) fn unproven(&self) -> bool {
        self.data_frame > 0 && self.data_frame + 1 == self.chain.next
    }

    /// Writes an empty frame, so that damage to the last frame of data can be told from a torn write.
    pub(super) fn prove(&mut self) -> Result<(), LogError> {
        if !self.unproven() {
            return Ok(());
        }
        assert!(self.active.at + BLOCK_BYTES <= self.active.len, "no block was left for the proof");
        self.write(Frame::with_payload(0), &[])
    }

    fn write_floors(&mut self) -> Result<(), LogError> {
        let floors = floor::encode(&self.marks);
        let mut frame = Frame::with_payload(floors.len());
        frame.push(&floors, 1);
        self.write(frame, &[])
    }

    /// Writes records of an earlier epoch once more, without the log's own among them.
    fn write_again(&mut self, payload: &Bytes) -> Result<(), LogError> {
        let mut frame = Frame::with_payload(payload.len());
        let mut touched = Vec::new();
        for record in super::format::record::Records::of(payload) {
            let Some(mark) = self.marks.get_mut(usize::from(record.container)) else { continue };
            let follows = mark.advance(record.epoch, record.sequence, record.sequence);
            assert!(follows, "recovered record {} where {} follows", record.sequence, mark.next);
            touched.push((usize::from(record.container), record.sequence));
            let start = record.body - super::format::record::RECORD_HEADER_BYTES;
            frame.push(&payload[start..record.body + record.body_len], 1);
        }
        if touched.is_empty() {
            return Ok(());
        }
        self.write(frame, &touched)?;
        self.data_frame = self.chain.next - 1;
        Ok(())
    }

    /// Writes and syncs one frame, then shows it.
    fn write(&mut self, frame: Frame, touched: &[(usize, u64)]) -> Result<(), LogError> {
        let (at, bytes, crc) = self.put(frame, false)?;
        self.active.at += bytes.len() as u64;
        self.table.publish(at, bytes, touched);
        self.chain = Chain { next: self.chain.next + 1, previous_crc: crc };
        self.table.set_left(self.active.len - self.active.at);
        if self.active.at > WAKE_KEEPER_AT {
            self.keeper.wake();
        }
        Ok(())
    }

    /// Writes and syncs a frame behind the last one of the active file: where it lies, its bytes and its checksum.
    fn put(&self, frame: Frame, followed: bool) -> Result<(u64, Bytes, u32), LogError> {
        let header = FrameHeader {
            number: self.chain.next,
            epoch: self.epoch,
            payload_len: u32::try_from(frame.bytes.len() - FRAME_HEADER_BYTES).unwrap_or(u32::MAX),
            records: frame.records,
            payload_crc: crc32fast::hash(&frame.bytes[FRAME_HEADER_BYTES..]),
            acked_upto: self.chain.next - 1,
            previous_crc: self.chain.previous_crc,
            followed,
        };
        let Active { file, path, at, len, .. } = &self.active;
        assert!(at.is_multiple_of(BLOCK_BYTES) && at + header.bytes() <= *len, "frame at {at}");
        let (bytes, crc) = frame.seal(&header, self.active.incarnation);
        file.write_at(&bytes, *at).map_err(|source| LogError::io("write", path, source))?;
        file.sync_data().map_err(|source| LogError::io("sync", path, source))?;
        Ok((*at, bytes, crc))
    }

    /// Makes sure that a payload of this size fits, and what each file keeps room for after it.
    fn make_room(&mut self, payload: usize) -> Result<(), LogError> {
        let kept = kept_bytes(floor::encoded_len(self.marks.len()));
        if self.active.at + frame_bytes(payload) + kept <= self.active.len {
            return Ok(());
        }
        let needed = self.file_for(payload);
        assert!(needed <= self.config.file_bytes, "no log file holds a payload of {payload} bytes");
        self.roll(needed)
    }

    /// Seals the active file and goes on in the next one. [`LogError::Full`] changes nothing.
    fn roll(&mut self, needed: u64) -> Result<(), LogError> {
        let used = self.table.used_bytes() + self.keeper.freed_bytes();
        if used + self.config.file_bytes > self.config.budget_bytes {
            return Err(LogError::Full);
        }
        let spare = self.keeper.take(&self.seams, &self.config, needed)?;
        let header = FileHeader {
            log: self.log,
            number: self.active.number + 1,
            incarnation: self.seams.entropy.next_u64(),
            epoch: self.epoch,
            first_frame: self.chain.next,
            previous_end: self.active.at,
            previous_crc: self.chain.previous_crc,
            containers: self.config.containers,
            created_ms: self.seams.clock.wall_ms(),
            file_bytes: spare.len,
        };
        let path = log_path(&self.config.dir, header.number);
        spare
            .file
            .write_at(&header.encode(), 0)
            .map_err(|source| LogError::io("write", &spare.path, source))?;
        spare.file.sync_data().map_err(|source| LogError::io("sync", &spare.path, source))?;
        self.seams.disk.rename(&spare.path, &path).map_err(|source| LogError::io("name", &path, source))?;
        sync_dir(&self.seams, &self.config)?;
        // From now on this file is not the last one; were the next to vanish, nothing else would tell.
        self.put(Frame::with_payload(0), true)?;

        let old = &self.active;
        let map = old.file.map_sealed(old.at).map_err(|source| LogError::io("map", &old.path, source))?;
        self.table.seal(map);
        let (number, incarnation, len) = (header.number, header.incarnation, spare.len);
        self.table.push_active(number, incarnation, len, self.marks.len());
        self.active = Active { file: spare.file, path, number, incarnation, at: FIRST_FRAME_AT, len };
        Ok(())
    }
}

/// Bytes that frames of data leave at the end of a file: for one frame that proves the last one, for one of floors, which
/// lets files go when there is no room for a new one, and for one that says that another file follows.
pub(super) fn kept_bytes(floors: usize) -> u64 {
    frame_bytes(floors) + 2 * BLOCK_BYTES
}

/// A frame being filled.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    records: u32,
}

impl Frame {
    fn with_payload(len: usize) -> Self {
        let whole = usize::try_from(frame_bytes(len)).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(whole);
        bytes.resize(FRAME_HEADER_BYTES, 0);
        Self { bytes, records: 0 }
    }

    /// Bytes so far, header included.
    fn len(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    fn push(&mut self, bytes: &[u8], records: u32) {
        self.bytes.extend_from_slice(bytes);
        self.records += records;
    }

    fn seal(mut self, header: &FrameHeader, incarnation: u64) -> (Bytes, u32) {
        let mut encoded = [0; FRAME_HEADER_BYTES];
        let crc = header.encode(incarnation, &mut encoded);
        self.bytes[..FRAME_HEADER_BYTES].copy_from_slice(&encoded);
        self.bytes.resize(usize::try_from(header.bytes()).unwrap_or(usize::MAX), 0);
        (Bytes::from(self.bytes), crc)
    }
}

/// Bytes of zeros written at a time.
const FILL_BYTES: u64 = 4 << 20;

/// Writes zeros over a whole file; durable with its next sync.
fn fill(file: &dyn DiskFile, len: u64) -> std::io::Result<()> {
    let mut at = 0;
    while at < len {
        let piece = FILL_BYTES.min(len - at);
        file.fill_zeros(usize::try_from(piece).unwrap_or(usize::MAX), at)?;
        at += piece;
    }
    Ok(())
}

/// Makes a file of `len` reserved bytes in place of whatever has that name, and fills it as `fill` does.
/// [`LogError::Full`] leaves no file.
pub(super) fn create<T>(
    seams: &Seams,
    path: &std::path::Path,
    len: u64,
    fill: impl FnOnce(&dyn DiskFile) -> std::io::Result<T>,
) -> Result<(Arc<dyn DiskFile>, T), LogError> {
    let failed = |doing| move |source| LogError::io(doing, path, source);
    if seams.disk.exists(path).map_err(failed("look for"))? {
        seams.disk.remove(path).map_err(failed("remove"))?;
    }
    let no_room = |doing, source: std::io::Error| match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LogError::Full,
        // As passing as a full disk; more so, since whatever ends gives one back.
        _ if is_out_of_files(&source) => LogError::Full,
        _ => LogError::io(doing, path, source),
    };
    let opened = seams.disk.open(path, OpenMode::CreateNew);
    let file = opened.map_err(|source| no_room("create", source))?;
    let reserved = file.allocate(len).map_err(|source| no_room("reserve", source));
    // Some file systems find space for what is written, whatever they reserved.
    let filled = reserved.and_then(|()| fill(&*file).map_err(|source| no_room("fill", source)));
    match filled {
        Ok(filled) => Ok((file, filled)),
        Err(why) => {
            drop(seams.disk.remove(path));
            Err(why)
        }
    }
}

pub(super) fn sync_dir(seams: &Seams, config: &LogConfig) -> Result<(), LogError> {
    seams.disk.sync_dir(&config.dir).map_err(|source| LogError::io("sync folder", &config.dir, source))
}
