//! Where the bytes of a segment lie: pieces in offset order that cover `start..length` exactly once.

use crate::operation::APPENDED_HEADER_BYTES;
use crate::types::{LogAddress, SegmentId, Stored};
use std::collections::VecDeque;

/// Appends below this size may share a piece with their neighbours, to be copied out when read.
const SMALL_BYTES: u64 = 4 * 1024;
/// A shared piece ends at this size, so that finding an offset in it stays cheap.
const SHARED_BYTES_MAX: u64 = 1024 * 1024;
/// A shared piece may span at most this many bytes of log for each of its own.
const SPAN_FACTOR_MAX: u64 = 16;

/// Where the bytes of a piece are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One stretch of the log.
    Place {
        /// Its first byte.
        data: LogAddress,
    },
    /// The data of several append records of one segment among other records of one batch.
    Records {
        /// First byte of the first record, its header included.
        first: LogAddress,
        /// Bytes of log from there to the end of the last record.
        span: u32,
        /// The segment that the records name; a merge may have moved the bytes since.
        segment: SegmentId,
        /// Offset of the first byte in that segment.
        offset: u64,
    },
    /// A part of a range of an object.
    Extent {
        /// The range.
        stored: Stored,
        /// Bytes of the range before the piece's first one.
        skip: u32,
    },
}

/// A stretch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the first byte in the segment.
    pub offset: u64,
    /// How many bytes, > 0.
    pub length: u64,
    /// Where they are.
    pub source: Source,
}

impl Piece {
    /// Offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The log address that stands for the whole piece: all its bytes lie in that log file. `None` for an extent.
    pub fn address(&self) -> Option<LogAddress> {
        match self.source {
            Source::Place { data } => Some(data),
            Source::Records { first, .. } => Some(first),
            Source::Extent { .. } => None,
        }
    }

    /// Whether its bytes lie in the log.
    pub fn is_place(&self) -> bool {
        self.address().is_some()
    }

    /// The part of it that lies in `from..to`; `None` if there is none.
    #[must_use]
    pub fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (offset, end) = (from.max(self.offset), to.min(self.end()));
        let length = end.checked_sub(offset).filter(|length| *length > 0)?;
        let cut = offset - self.offset;
        let source = match self.source {
            Source::Place { data } => Source::Place { data: data.offset(cut) },
            Source::Records { first, span, segment, offset } => {
                Source::Records { first, span, segment, offset: offset + cut }
            }
            Source::Extent { stored, skip } => {
                Source::Extent { stored, skip: skip.checked_add(u32::try_from(cut).ok()?)? }
            }
        };
        Some(Self { offset, length, source })
    }
}

/// Where an append record lies in the log.
#[derive(Clone, Copy, Debug)]
pub struct AppendPlace {
    /// First byte of the batch that holds the record.
    pub batch: LogAddress,
    /// First byte of the record's body.
    pub body: LogAddress,
    /// Bytes of a record's header.
    pub record_header_bytes: u64,
}

/// A hole in, or an overlap of, a segment's pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {expected} to {found} are not covered exactly once")]
pub struct Uncovered {
    /// Where the next piece had to begin.
    pub expected: u64,
    /// Where it begins.
    pub found: u64,
}

/// The pieces of a segment, in offset order.
#[derive(Debug, Default)]
pub struct Pieces {
    list: VecDeque<Piece>,
    /// No append joins a piece that begins below this offset: it came by a merge, so that the log's records give its
    /// bytes to another segment, or was cut.
    closed_upto: u64,
    /// Bytes of all places.
    placed: u64,
}

/// How an append changed the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// A piece of its own at this address.
    New(LogAddress),
    /// It joined the last piece, whose address was and is now.
    Joined(LogAddress, LogAddress),
}

impl Pieces {
    /// Adds the data of an append record, > 0 bytes, at the end.
    pub fn append(&mut self, segment: SegmentId, offset: u64, length: u64, place: AppendPlace) -> Added {
        assert!(length > 0, "an empty append has no place");
        let data = place.body.offset(u64::from(APPENDED_HEADER_BYTES));
        if let Some(last) = self.list.back_mut()
            && last.end() == offset
            && last.offset >= self.closed_upto
            && length < SMALL_BYTES
            && let Some(was) = last.address().filter(|address| *address >= place.batch)
            && let Some(shared) = share(last, segment, length, data, place)
        {
            *last = shared;
            self.placed += length;
            return Added::Joined(was, shared.address().unwrap_or(was));
        }
        self.placed += length;
        self.list.push_back(Piece { offset, length, source: Source::Place { data } });
        Added::New(data)
    }

    /// Adds all pieces of a merged segment, whose first byte is now at `offset`.
    pub fn adopt(&mut self, source: Self, offset: u64) {
        let end = source.list.back().map_or(offset, |last| last.end() + offset);
        self.closed_upto = self.closed_upto.max(end);
        self.placed += source.placed;
        self.list
            .extend(source.list.into_iter().map(|piece| Piece { offset: piece.offset + offset, ..piece }));
    }

    /// Drops the pieces that lie wholly below `start`.
    pub fn truncate(&mut self, start: u64, mut dropped: impl FnMut(Piece)) {
        while let Some(piece) = self.list.front()
            && piece.end() <= start
        {
            let piece = *piece;
            self.list.pop_front();
            self.uncount(&piece);
            dropped(piece);
        }
    }

    /// These places and, where any lie, `extents` instead of them. Both are in offset order.
    #[must_use]
    pub fn with_extents(self, extents: impl IntoIterator<Item = Piece>) -> Self {
        let mut all = Self { closed_upto: self.closed_upto, ..Self::default() };
        let mut extents = extents.into_iter().peekable();
        let mut stored_upto = 0;
        for place in self.list {
            let mut rest = place.part(stored_upto, u64::MAX);
            while let Some(place) = rest
                && let Some(extent) = extents.next_if(|extent| extent.offset < place.end())
            {
                all.list.extend(place.part(0, extent.offset));
                stored_upto = extent.end();
                all.list.push_back(extent);
                rest = place.part(stored_upto, u64::MAX);
            }
            all.list.extend(rest);
        }
        all.list.extend(extents);
        all.placed = all.list.iter().filter(|piece| piece.is_place()).map(|piece| piece.length).sum();
        if stored_upto > 0 {
            all.closed_upto = all.closed_upto.max(all.end());
        }
        all
    }

    fn uncount(&mut self, piece: &Piece) {
        if piece.is_place() {
            self.placed -= piece.length;
        }
    }

    /// Puts an extent where other pieces lie; they are cut or dropped. `dropped` and `cut` hear of the pieces that go and
    /// of the parts that stay.
    pub fn replace(&mut self, extent: Piece, mut dropped: impl FnMut(Piece), mut cut: impl FnMut(Piece)) {
        assert!(!extent.is_place(), "only an extent replaces pieces");
        let from = self.list.partition_point(|piece| piece.end() <= extent.offset);
        let to = self.list.partition_point(|piece| piece.offset < extent.end());
        let later = self.list.split_off(to.max(from));
        let gone = self.list.split_off(from);
        let mut rest = None;
        for piece in gone {
            self.uncount(&piece);
            dropped(piece);
            if let Some(head) = piece.part(0, extent.offset) {
                self.recount(head, &mut cut);
                self.list.push_back(head);
            }
            rest = piece.part(extent.end(), u64::MAX);
        }
        self.list.push_back(extent);
        if let Some(rest) = rest {
            self.closed_upto = self.closed_upto.max(rest.end());
            self.recount(rest, &mut cut);
            self.list.push_back(rest);
        }
        self.list.extend(later);
    }

    fn recount(&mut self, piece: Piece, cut: &mut impl FnMut(Piece)) {
        if piece.is_place() {
            self.placed += piece.length;
        }
        cut(piece);
    }

    /// Bytes that lie in the log only.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Whether every byte of `from..to` lies in the log.
    pub fn are_places(&self, from: u64, to: u64) -> bool {
        let mut covered = from;
        for piece in self.from(from).take_while(|piece| piece.offset < to) {
            if covered < to && (piece.offset > covered || !piece.is_place()) {
                return false;
            }
            covered = piece.end();
        }
        covered >= to
    }

    /// Offset after the last byte of the extents that lead the segment, beginning at `start`.
    pub fn stored_upto(&self, start: u64) -> u64 {
        let leading = self.from(start).take_while(|piece| !piece.is_place());
        leading.fold(start, |_, piece| piece.end())
    }

    /// The piece that holds `offset`.
    pub fn find(&self, offset: u64) -> Option<Piece> {
        let at = self.list.partition_point(|piece| piece.end() <= offset);
        self.list.get(at).filter(|piece| piece.offset <= offset).copied()
    }

    /// The pieces from the one that holds `offset` on.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = &Piece> {
        let at = self.list.partition_point(|piece| piece.end() <= offset);
        self.list.range(at..)
    }

    /// The first start of a piece at or after `target`. Pieces start where appends do.
    pub fn boundary(&self, target: u64) -> Option<u64> {
        let at = self.list.partition_point(|piece| piece.offset < target);
        self.list.get(at).map(|piece| piece.offset)
    }

    /// Offset after the last byte; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.list.back().map_or(0, Piece::end)
    }

    /// All pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.list.iter()
    }

    /// Proves that the pieces cover `start..length` exactly once.
    ///
    /// # Errors
    /// [`Uncovered`] at the first hole or overlap.
    pub fn prove(&self, start: u64, length: u64) -> Result<(), Uncovered> {
        let mut covered = start;
        for (i, piece) in self.list.iter().enumerate() {
            let fits = piece.offset == covered || (i == 0 && piece.offset <= start && piece.end() > start);
            if !fits {
                return Err(Uncovered { expected: covered, found: piece.offset });
            }
            covered = piece.end();
        }
        if covered == length { Ok(()) } else { Err(Uncovered { expected: covered, found: length }) }
    }
}

/// One piece for `last` and the append behind it, if that is worth while.
fn share(
    last: &Piece,
    segment: SegmentId,
    length: u64,
    data: LogAddress,
    place: AppendPlace,
) -> Option<Piece> {
    let (first, origin) = match last.source {
        Source::Records { first, segment: of, offset, .. } if of == segment => (first, offset),
        Source::Place { data } if last.length < SMALL_BYTES => {
            let before = u64::from(APPENDED_HEADER_BYTES) + place.record_header_bytes;
            (LogAddress(data.0.checked_sub(before)?), last.offset)
        }
        Source::Records { .. } | Source::Place { .. } | Source::Extent { .. } => return None,
    };
    let total = last.length + length;
    let span = data.0 + length - first.0;
    if total > SHARED_BYTES_MAX || span > total * SPAN_FACTOR_MAX {
        return None;
    }
    let source = Source::Records { first, span: u32::try_from(span).ok()?, segment, offset: origin };
    Some(Piece { offset: last.offset, length: total, source })
}

#[cfg(test)]
mod tests;
