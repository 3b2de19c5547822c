//! Which files there are and where their durable bytes can be had: the read path of everything un-tiered.
//!
//! Sealed files are mapped; the frames of the active file stay on the heap until it is sealed. A lookup holds a
//! read lock for an index and a binary search.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use dhara_stdx::{FileMap, MapBorrows};
use parking_lot::RwLock;

use super::error::LogError;
use super::format::file::{address, place};
use super::format::floor::Mark;
use crate::types::LogAddress;

/// What a reader needs to walk one file.
#[derive(Clone, Debug)]
pub(super) struct FileView {
    pub number: u64,
    pub incarnation: u64,
    pub content: Content,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The file from its first byte to its end.
    Sealed(Bytes),
    /// Durable frames by offset.
    Active(VecDeque<(u64, Bytes)>),
}

#[derive(Debug)]
enum Held {
    Sealed(FileMap),
    Active(Vec<(u64, Bytes)>),
}

#[derive(Debug)]
struct Entry {
    incarnation: u64,
    /// Bytes on disk.
    len: u64,
    held: Held,
    /// Last sequence number of each container in this file; 0 if it has none.
    last: Vec<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of the front file; the others follow without a gap.
    first: u64,
    files: VecDeque<Entry>,
}

/// A file that nobody needs any more.
#[derive(Debug)]
pub(super) struct Freed {
    pub number: u64,
    pub len: u64,
    /// Who still reads it: until nobody does its blocks must neither change nor go.
    pub borrows: MapBorrows,
}

/// Files that nobody needs any more, but whose floors are not durable yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freeable {
    pub bytes: u64,
    /// No sealed file would be left.
    pub all: bool,
}

/// All files of the log. Only the committer changes it.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    inner: RwLock<Inner>,
    /// Bytes not written yet in the active file.
    left: AtomicU64,
}

impl FileTable {
    /// Adds the next file, with nothing durable in it yet.
    pub(super) fn push_active(&self, number: u64, incarnation: u64, len: u64, containers: usize) {
        self.push(
            number,
            Entry { incarnation, len, held: Held::Active(Vec::new()), last: vec![0; containers] },
        );
    }

    /// Adds the next file, already sealed.
    pub(super) fn push_sealed(
        &self,
        (number, incarnation): (u64, u64),
        len: u64,
        map: FileMap,
        last: Vec<u64>,
    ) {
        self.push(number, Entry { incarnation, len, held: Held::Sealed(map), last });
    }

    fn push(&self, number: u64, entry: Entry) {
        let mut inner = self.inner.write();
        if inner.files.is_empty() {
            inner.first = number;
        }
        let expected = inner.first + u64::try_from(inner.files.len()).unwrap_or(u64::MAX);
        assert!(number == expected, "log file {number} added where {expected} follows");
        inner.files.push_back(entry);
    }

    /// Shows a durable frame of the active file; `touched` are containers and their last record in it.
    pub(super) fn publish(&self, offset: u64, frame: Bytes, touched: &[(usize, u64)]) {
        let mut inner = self.inner.write();
        let Some(Entry { held: Held::Active(frames), last, .. }) = inner.files.back_mut() else {
            unreachable!("the last log file is the active one");
        };
        for (container, sequence) in touched {
            last[*container] = *sequence;
        }
        frames.push((offset, frame));
    }

    /// Serves the last file from `map` from now on.
    pub(super) fn seal(&self, map: FileMap) {
        let mut inner = self.inner.write();
        let frames =
            inner.files.back_mut().map(|entry| std::mem::replace(&mut entry.held, Held::Sealed(map)));
        drop(inner);
        drop(frames);
    }

    /// Lets go of the files at the front that hold nothing any of `marks` needs; the active file always stays.
    pub(super) fn free(&self, marks: &[Mark]) -> Vec<Freed> {
        let mut freed = Vec::new();
        let mut inner = self.inner.write();
        while inner.files.len() > 1 && inner.files[0].unneeded(marks) {
            let number = inner.first;
            inner.first += 1;
            let Some(entry) = inner.files.pop_front() else { break };
            let borrows = match entry.held {
                Held::Sealed(map) => map.release(),
                Held::Active(_) => unreachable!("only the last log file is active"),
            };
            freed.push(Freed { number, len: entry.len, borrows });
        }
        freed
    }

    /// True if [`FileTable::free`] would let go of a file.
    pub(super) fn can_free(&self, marks: &[Mark]) -> bool {
        let inner = self.inner.read();
        inner.files.len() > 1 && inner.files[0].unneeded(marks)
    }

    /// What [`FileTable::free`] would let go of.
    pub(super) fn freeable(&self, marks: &[Mark]) -> Freeable {
        let inner = self.inner.read();
        let sealed = inner.files.len().saturating_sub(1);
        let unneeded = inner.files.iter().take(sealed).take_while(|entry| entry.unneeded(marks));
        let (files, bytes) = unneeded.fold((0, 0), |(files, bytes), entry| (files + 1, bytes + entry.len));
        Freeable { bytes, all: files == sealed }
    }

    /// Bytes of all files.
    pub(super) fn used_bytes(&self) -> u64 {
        self.inner.read().files.iter().map(|entry| entry.len).sum()
    }

    /// Notes that a sealed file was shortened to its end.
    pub(super) fn set_len(&self, number: u64, len: u64) {
        let mut inner = self.inner.write();
        let index = number.checked_sub(inner.first).and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| inner.files.get_mut(index)) {
            entry.len = len;
        }
    }

    /// Notes how many bytes the active file can still take.
    pub(super) fn set_left(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that the active file can still take.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// The address before which everything is gone.
    pub(super) fn oldest(&self) -> LogAddress {
        address(self.inner.read().first, 0)
    }

    /// Durable bytes.
    pub(super) fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError> {
        let (number, offset) = place(at);
        let gone = || LogError::Gone { address: at };
        let len = usize::try_from(len).map_err(|_wide| gone())?;
        let inner = self.inner.read();
        let index = number.checked_sub(inner.first).and_then(|index| usize::try_from(index).ok());
        let entry = index.and_then(|index| inner.files.get(index)).ok_or_else(gone)?;
        let (start, whole) = match &entry.held {
            Held::Sealed(map) => (0, map.bytes()),
            Held::Active(frames) => {
                let after = frames.partition_point(|(start, _)| *start <= offset);
                let (start, frame) =
                    after.checked_sub(1).and_then(|before| frames.get(before)).ok_or_else(gone)?;
                (*start, frame)
            }
        };
        let from = usize::try_from(offset - start).map_err(|_wide| gone())?;
        let end = from.checked_add(len).filter(|end| *end <= whole.len()).ok_or_else(gone)?;
        Ok(whole.slice(from..end))
    }

    /// All files as they are now, oldest first.
    pub(super) fn views(&self) -> VecDeque<FileView> {
        let inner = self.inner.read();
        let numbered = (inner.first..).zip(&inner.files);
        let view = |(number, entry): (u64, &Entry)| {
            let content = match &entry.held {
                Held::Sealed(map) => Content::Sealed(map.bytes().clone()),
                Held::Active(frames) => Content::Active(frames.clone().into()),
            };
            FileView { number, incarnation: entry.incarnation, content }
        };
        numbered.map(view).collect()
    }
}

impl Entry {
    fn unneeded(&self, marks: &[Mark]) -> bool {
        self.last.iter().zip(marks).all(|(last, mark)| *last < mark.floor.sequence.0.max(1))
    }
}
