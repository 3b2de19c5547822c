//! Reads what a log folder holds and decides where the log ends. Writes nothing.
//!
//! The one hard question is whether bytes that do not verify were torn by the crash or rotted after they were acked.
//! It is decided by evidence, never guessed: the next file's header says where a file ended, and in the last file a
//! valid frame further on says that the one before it was durable. Without either, nobody was told that the frame
//! exists, and the log ends before it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dhara_stdx::{DiskFile, OpenMode};

use super::LogConfig;
use super::commit::{Chain, Seams};
use super::error::LogError;
use super::format::file::{FIRST_FRAME_AT, FileHeader, HeaderFault, is_fresh, log_number, log_path};
use super::format::floor::{self, Mark};
use super::format::frame::{BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader};
use super::format::record::{LOG_ITSELF, Records};
use crate::types::{ContainerId, SequenceNumber};

/// Files are read in pieces of at least this size.
const READ_BYTES: usize = 1 << 20;

/// A file as recovery found it.
#[derive(Debug)]
pub(super) struct Found {
    pub path: PathBuf,
    pub header: FileHeader,
    pub file: Arc<dyn DiskFile>,
    pub len: u64,
    /// Where its last kept frame ends.
    pub end: u64,
    /// Last sequence number of each container in it; 0 if it has none.
    pub last: Vec<u64>,
}

/// What a log folder holds.
#[derive(Debug)]
pub(super) struct Recovered {
    pub files: Vec<Found>,
    pub chain: Chain,
    pub marks: Vec<Mark>,
    /// Payloads of valid frames that nothing proves to be durable.
    pub unproven: Vec<Bytes>,
    /// Names of files of no use: half made ones, and log files before a gap that nobody needs.
    pub useless: Vec<String>,
    /// All other names, among them reserved files.
    pub names: Vec<String>,
    /// Frames that were verified.
    pub frames: u64,
}

/// Reads the folder.
pub(super) fn recover(seams: &Seams, config: &LogConfig) -> Result<Recovered, LogError> {
    let names = seams.disk.list(&config.dir).map_err(|source| LogError::io("list", &config.dir, source))?;
    let (fresh, names): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| is_fresh(name));
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| log_number(name)).collect();
    numbers.sort_unstable();
    let gap = numbers.windows(2).rposition(|pair| pair[0] + 1 != pair[1]).map_or(0, |before| before + 1);

    let useless = numbers[..gap].iter().map(|number| format!("{number:016x}.log"));
    let useless = fresh.into_iter().chain(useless).collect();
    let marks = vec![Mark::default(); usize::from(config.containers)];
    let chain = Chain { next: 1, previous_crc: 0 };
    let (files, unproven) = (Vec::new(), Vec::new());
    let mut recovered = Recovered { files, chain, marks, unproven, useless, names, frames: 0 };
    for number in &numbers[gap..] {
        let found = open(seams, config, *number)?;
        recovered.files.push(found);
    }
    check_last(recovered.files.last())?;
    recovered.scan()?;
    Ok(recovered)
}

/// Refuses a last file that is shorter than it was made. It was cut off, frames and their proof alike; or it was shortened
/// since another file followed it, and that one is gone.
fn check_last(last: Option<&Found>) -> Result<(), LogError> {
    match last {
        Some(last) if last.len < last.header.file_bytes => {
            Err(LogError::rotten(&last.path, last.len, "it is cut off there, or the file after it is gone"))
        }
        _ => Ok(()),
    }
}

fn open(seams: &Seams, config: &LogConfig, number: u64) -> Result<Found, LogError> {
    let path = log_path(&config.dir, number);
    let failed = |source| LogError::io("open", &path, source);
    let file = seams.disk.open(&path, OpenMode::Read).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    let mut block = vec![0; usize::try_from(BLOCK_BYTES.min(len)).unwrap_or(0)];
    file.read_exact_at(&mut block, 0).map_err(|source| LogError::io("read", &path, source))?;
    let foreign = |what: String| LogError::Foreign { path: path.clone(), what };
    let header = match FileHeader::decode(&block) {
        Ok(header) => header,
        Err(HeaderFault::Damaged) => return Err(LogError::rotten(&path, 0, "file header")),
        Err(HeaderFault::Version(found)) => return Err(foreign(format!("format version {found}"))),
    };
    if header.number != number {
        return Err(foreign(format!("its header says file {}", header.number)));
    }
    if header.containers != config.containers {
        return Err(foreign(format!("{} containers, {} configured", header.containers, config.containers)));
    }
    let last = vec![0; usize::from(config.containers)];
    Ok(Found { path, header, file, len, end: FIRST_FRAME_AT, last })
}

impl Recovered {
    /// Verifies every frame and every sequence number, oldest first.
    fn scan(&mut self) -> Result<(), LogError> {
        let Some(front) = self.files.first() else { return Ok(()) };
        let log = front.header.log;
        self.chain = Chain { next: front.header.first_frame, previous_crc: front.header.previous_crc };
        let mut oldest = None;
        for index in 0..self.files.len() {
            let (before, rest) = self.files.split_at_mut(index);
            let Some((found, after)) = rest.split_first_mut() else { break };
            if found.header.log != log {
                return Err(LogError::Foreign {
                    path: found.path.clone(),
                    what: "another log's id".to_owned(),
                });
            }
            let (marks, frames) = (&mut self.marks, &mut self.frames);
            let state = &mut Scan { chain: self.chain, marks, frames, oldest: &mut oldest };
            let links = before.last().is_none_or(|previous| previous.end == found.header.previous_end)
                && found.header.first_frame == state.chain.next
                && found.header.previous_crc == state.chain.previous_crc;
            if !links {
                return Err(LogError::rotten(&found.path, 0, "does not follow the file before"));
            }
            match after.first() {
                Some(next) => state.sealed_file(found, next.header.first_frame)?,
                None => self.unproven = state.last_file(found)?,
            }
            self.chain = state.chain;
        }
        // An epoch that ended before it wrote anything may leave a file without frames, but never all of them.
        let Some(oldest) = oldest else {
            return Err(LogError::rotten(&self.files[0].path, FIRST_FRAME_AT, "first frame of the log"));
        };
        check_floors(&oldest, &self.marks)
    }
}

/// Refuses a log whose oldest surviving record comes after one that is still needed.
fn check_floors(oldest: &[Mark], marks: &[Mark]) -> Result<(), LogError> {
    for (index, (first, mark)) in oldest.iter().zip(marks).enumerate() {
        let needed = mark.floor.sequence.0.max(1);
        if first.next > needed {
            return Err(lost(index, needed, first.next));
        }
    }
    Ok(())
}

fn lost(container: usize, expected: u64, found: u64) -> LogError {
    let container = ContainerId(u16::try_from(container).unwrap_or(u16::MAX));
    LogError::Lost { container, expected: SequenceNumber(expected), found: SequenceNumber(found) }
}

/// The running state of a scan over files.
struct Scan<'a> {
    chain: Chain,
    marks: &'a mut Vec<Mark>,
    frames: &'a mut u64,
    /// The first floors met: those of the oldest file.
    oldest: &'a mut Option<Vec<Mark>>,
}

impl Scan<'_> {
    /// Reads a file of which the next one says where it ends: whatever does not verify before that is damage.
    fn sealed_file(&mut self, found: &mut Found, ends_before: u64) -> Result<(), LogError> {
        let mut reader = FileReader::new(found);
        let (mut at, mut last) = (FIRST_FRAME_AT, std::mem::take(&mut found.last));
        while self.chain.next < ends_before {
            let frame = self.follow(&mut reader, at)?;
            let frame = frame.ok_or_else(|| LogError::rotten(&found.path, at, "frame of a sealed file"))?;
            self.take(&frame, (&found.path, at), &mut last)?;
            at += frame.header.bytes();
        }
        found.last = last;
        found.end = at;
        Ok(())
    }

    /// Reads the last file up to the last frame that is proven, and returns the valid ones after it.
    fn last_file(&mut self, found: &mut Found) -> Result<Vec<Bytes>, LogError> {
        let mut reader = FileReader::new(found);
        let (mut at, mut last) = (FIRST_FRAME_AT, std::mem::take(&mut found.last));
        // Only one frame is ever under way, so at most the last valid one is not proven: keep it apart.
        let mut waiting: Option<(u64, FrameHeader, u32, Bytes)> = None;
        while let Some(frame) = self.follow(&mut reader, at)? {
            if frame.header.followed {
                return Err(LogError::rotten(&found.path, at, "the log file that follows it is gone"));
            }
            if frame.header.acked_upto + 1 != frame.header.number {
                return Err(LogError::rotten(&found.path, at, "frame proves less than it must"));
            }
            let (header, crc) = (frame.header, frame.crc);
            let here = (at, header, crc, Bytes::copy_from_slice(frame.payload));
            self.chain = Chain { next: header.number + 1, previous_crc: crc };
            at += header.bytes();
            if let Some((at, header, crc, payload)) = waiting.replace(here) {
                let proven = Frame { header, crc, payload: &payload };
                self.take_records(&proven, (&found.path, at), &mut last)?;
                found.end = at + header.bytes();
            }
        }
        if reader.any_frame_beyond(at, self.chain.next)? {
            return Err(LogError::rotten(&found.path, at, "frame that a later one proves"));
        }
        found.last = last;
        let Some((at, header, crc, payload)) = waiting else { return Ok(Vec::new()) };
        self.chain = Chain { next: header.number, previous_crc: header.previous_crc };
        // Its records are checked like all others but count only once they are written again; the log's own among
        // them stands at its start and is a fact whether that frame is durable or not.
        let mut trial = self.marks.clone();
        let frame = Frame { header, crc, payload: &payload };
        let last = &mut vec![0; trial.len()];
        let mut checked =
            Scan { chain: self.chain, marks: &mut trial, frames: self.frames, oldest: self.oldest };
        checked.take_records(&frame, (&found.path, at), last)?;
        if let Some(floors) = floors_of(&payload, self.marks.len()) {
            self.take_floors(&floors)?;
        }
        Ok(vec![payload])
    }

    /// The frame at `at` if it is valid and follows the one before.
    fn follow<'r>(&mut self, reader: &'r mut FileReader, at: u64) -> Result<Option<Frame<'r>>, LogError> {
        let (next, previous) = (self.chain.next, self.chain.previous_crc);
        let frame = reader.frame(at)?;
        Ok(frame.filter(|frame| frame.header.number == next && frame.header.previous_crc == previous))
    }

    fn take(&mut self, frame: &Frame<'_>, at: (&PathBuf, u64), last: &mut [u64]) -> Result<(), LogError> {
        self.take_records(frame, at, last)?;
        self.chain = Chain { next: frame.header.number + 1, previous_crc: frame.crc };
        Ok(())
    }

    /// Counts the records of a frame.
    fn take_records(
        &mut self,
        frame: &Frame<'_>,
        at: (&PathBuf, u64),
        last: &mut [u64],
    ) -> Result<(), LogError> {
        let rotten = |what| LogError::rotten(at.0, at.1, what);
        *self.frames += 1;
        let mut records = Records::of(frame.payload);
        let mut count = 0;
        for record in records.by_ref() {
            count += 1;
            if record.container == LOG_ITSELF {
                let containers = u16::try_from(self.marks.len()).unwrap_or(u16::MAX);
                let body = &frame.payload[record.body..record.body + record.body_len];
                let floors = floor::decode(record.kind, record.version, body, containers);
                self.take_floors(&floors.ok_or_else(|| rotten("record of an unknown kind"))?)?;
                continue;
            }
            let index = usize::from(record.container);
            let mark = self.marks.get_mut(index).ok_or_else(|| rotten("record of an unknown container"))?;
            let expected = mark.next;
            if !mark.advance(record.epoch, record.sequence, record.sequence) {
                return Err(lost(index, expected, record.sequence));
            }
            last[index] = record.sequence;
        }
        if records.broken || count != frame.header.records {
            return Err(rotten("records of a valid frame"));
        }
        Ok(())
    }

    /// Compares the log's own count with ours; in the oldest file there is nothing to compare yet.
    fn take_floors(&mut self, floors: &[Mark]) -> Result<(), LogError> {
        self.oldest.get_or_insert_with(|| floors.to_vec());
        for (index, (mark, written)) in self.marks.iter_mut().zip(floors).enumerate() {
            if mark.next != 0 && mark.next != written.next {
                return Err(lost(index, written.next, mark.next));
            }
            *mark = *written;
        }
        Ok(())
    }
}

/// A valid frame.
pub(super) struct Frame<'a> {
    pub header: FrameHeader,
    pub crc: u32,
    pub payload: &'a [u8],
}

/// The floors with which a payload opens.
fn floors_of(payload: &[u8], containers: usize) -> Option<Vec<Mark>> {
    let record = Records::of(payload).next().filter(|record| record.container == LOG_ITSELF)?;
    let body = &payload[record.body..record.body + record.body_len];
    floor::decode(record.kind, record.version, body, u16::try_from(containers).ok()?)
}

/// Reads a file in large pieces, by `pread`: a block that cannot be read is an error and not a signal.
pub(super) struct FileReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    incarnation: u64,
    len: u64,
    piece: Vec<u8>,
    piece_at: u64,
}

impl FileReader {
    pub(super) fn new(found: &Found) -> Self {
        Self {
            file: Arc::clone(&found.file),
            path: found.path.clone(),
            incarnation: found.header.incarnation,
            len: found.len,
            piece: Vec::new(),
            piece_at: 0,
        }
    }

    /// The frame at `at`; `None` if there is none that verifies.
    pub(super) fn frame(&mut self, at: u64) -> Result<Option<Frame<'_>>, LogError> {
        let Some((header, crc)) = self.header(at)? else { return Ok(None) };
        let whole = FRAME_HEADER_BYTES + header.payload();
        let Some(bytes) = self.bytes(at, whole)? else { return Ok(None) };
        let payload = &bytes[FRAME_HEADER_BYTES..];
        let valid = crc32fast::hash(payload) == header.payload_crc;
        Ok(valid.then_some(Frame { header, crc, payload }))
    }

    /// True if at `at` or later stands a valid frame header with a number above `number`.
    fn any_frame_beyond(&mut self, mut at: u64, number: u64) -> Result<bool, LogError> {
        while at + BLOCK_BYTES <= self.len {
            if self.header(at)?.is_some_and(|(header, _)| header.number > number) {
                return Ok(true);
            }
            at += BLOCK_BYTES;
        }
        Ok(false)
    }

    fn header(&mut self, at: u64) -> Result<Option<(FrameHeader, u32)>, LogError> {
        let incarnation = self.incarnation;
        let bytes = self.bytes(at, FRAME_HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| FrameHeader::decode(bytes, incarnation)))
    }

    /// Bytes of the file; `None` beyond its end.
    fn bytes(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>, LogError> {
        let wanted = u64::try_from(len).unwrap_or(u64::MAX);
        if at.saturating_add(wanted) > self.len {
            return Ok(None);
        }
        let held = u64::try_from(self.piece.len()).unwrap_or(0);
        if at < self.piece_at || at + wanted > self.piece_at + held {
            let most = usize::try_from(self.len - at).unwrap_or(usize::MAX);
            self.piece.resize(len.max(READ_BYTES).min(most), 0);
            self.piece_at = at;
            let read = self.file.read_exact_at(&mut self.piece, at);
            read.map_err(|source| LogError::io("read", &self.path, source))?;
        }
        let from = usize::try_from(at - self.piece_at).unwrap_or(usize::MAX);
        Ok(self.piece.get(from..from + len))
    }
}
