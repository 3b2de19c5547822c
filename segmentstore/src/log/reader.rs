//! Gives one container what survived of its log.

use std::collections::VecDeque;
use std::path::PathBuf;

use bytes::Bytes;

use super::LogReader;
use super::error::LogError;
use super::format::file::{FIRST_FRAME_AT, address, log_path};
use super::format::floor::{Floor, Mark};
use super::format::frame::{FRAME_HEADER_BYTES, FrameHeader};
use super::format::record::{LogRecord, Records};
use super::table::{Content, FileView};
use crate::types::{ContainerEpoch, ContainerId, SequenceNumber};

/// Walks the frames of all files as they were when the container was opened.
#[derive(Debug)]
pub(super) struct LocalReader {
    pub dir: PathBuf,
    pub container: ContainerId,
    pub files: VecDeque<FileView>,
    /// Where the next frame of the front file starts.
    pub at: u64,
    pub mark: Mark,
}

impl LocalReader {
    pub(super) fn new(dir: PathBuf, container: ContainerId, files: VecDeque<FileView>, mark: Mark) -> Self {
        Self { dir, container, files, at: FIRST_FRAME_AT, mark }
    }

    /// The next frame of the front file and where it starts; `None` at that file's end.
    fn frame(&mut self) -> Result<Option<(u64, Bytes)>, LogError> {
        let Some(file) = self.files.front_mut() else { return Ok(None) };
        let at = self.at;
        let rotten = |what| LogError::rotten(&log_path(&self.dir, file.number), at, what);
        let rest = match &mut file.content {
            Content::Active(frames) => {
                let Some((start, frame)) = frames.pop_front() else { return Ok(None) };
                self.at = start;
                frame
            }
            Content::Sealed(bytes) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                if from >= bytes.len() {
                    return Ok(None);
                }
                bytes.slice(from..)
            }
        };
        let at = self.at;
        let (header, _) =
            FrameHeader::decode(&rest, file.incarnation).ok_or_else(|| rotten("frame header"))?;
        let end = FRAME_HEADER_BYTES + header.payload();
        if end > rest.len() || crc32fast::hash(&rest[FRAME_HEADER_BYTES..end]) != header.payload_crc {
            return Err(rotten("frame payload"));
        }
        self.at += header.bytes();
        Ok(Some((at, rest.slice(FRAME_HEADER_BYTES..end))))
    }

    fn records(&self, number: u64, at: u64, payload: &Bytes) -> Vec<LogRecord> {
        let ours = Records::of(payload).filter(|record| record.container == self.container.0);
        let records = ours.map(|record| {
            let offset = at + u64::try_from(FRAME_HEADER_BYTES + record.body).unwrap_or(u64::MAX);
            LogRecord {
                sequence: SequenceNumber(record.sequence),
                epoch: ContainerEpoch(record.epoch),
                kind: record.kind,
                version: record.version,
                body: payload.slice(record.body..record.body + record.body_len),
                address: address(number, offset),
            }
        });
        records.collect()
    }
}

impl LogReader for LocalReader {
    fn next(&mut self) -> Result<Option<Vec<LogRecord>>, LogError> {
        while let Some(number) = self.files.front().map(|file| file.number) {
            while let Some((at, payload)) = self.frame()? {
                let records = self.records(number, at, &payload);
                if !records.is_empty() {
                    return Ok(Some(records));
                }
            }
            self.files.pop_front();
            self.at = FIRST_FRAME_AT;
        }
        Ok(None)
    }

    fn last(&self) -> Option<SequenceNumber> {
        self.mark.next.checked_sub(1).map(SequenceNumber)
    }

    fn floor(&self) -> Floor {
        self.mark.floor
    }
}
