//! Watermarks: what a stream's writers say about time, and when that becomes a mark for its readers.
//!
//! A mark says that whoever has read up to its position has seen everything that the writers wrote before its lower
//! time. It is a record of the mark stream, in the format of Pravega's clients.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::cut::{Epochs, StreamCut};
use super::segment::{KeyRange, SegmentId};

/// Pravega's time between two cycles, in milliseconds.
pub const CYCLE_MS: i64 = 10_000;

/// Row of one writer. Times are in the application's own unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterMark {
    /// The time last noted.
    pub time: i64,
    /// Up to where the writer had written then.
    pub position: StreamCut,
    /// Whether the writer has not been removed.
    pub alive: bool,
}

/// What a note leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Write this row and answer SUCCESS.
    Moved(WriterMark),
    /// It is noted already; answer SUCCESS.
    Unchanged,
    /// The time is before the last one; answer INVALID_TIME.
    InvalidTime,
    /// The position is empty or somewhere before the last one; answer INVALID_POSITION.
    InvalidPosition,
}

/// One watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Least time of the writers.
    pub lower: i64,
    /// Greatest time of the writers.
    pub upper: i64,
    /// Ranges and offsets of segments that cover the key space.
    pub position: BTreeMap<SegmentId, (KeyRange, i64)>,
}

/// What one cycle sees of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Cycle<'a> {
    /// The newest watermark.
    pub previous: Option<&'a Watermark>,
    /// Since when writers have been silent in earlier cycles, in milliseconds since 1970.
    pub silent_since_ms: &'a BTreeMap<String, i64>,
    /// The stream's timestamp aggregation timeout, in milliseconds.
    pub timeout_ms: i64,
    /// Time in milliseconds since 1970.
    pub now_ms: i64,
    /// The epochs that the writers' positions and the newest watermark name.
    pub epochs: Epochs<'a>,
}

/// What one cycle leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The watermark to append.
    pub emit: Option<Watermark>,
    /// Writers that no longer count; their rows can go.
    pub inactive: Vec<String>,
    /// What the next cycle takes as [`Cycle::silent_since_ms`].
    pub silent_since_ms: BTreeMap<String, i64>,
    /// Whether no writer is left, so that the stream needs no cycle until the next note.
    pub idle: bool,
}

/// A record of a mark stream that is no watermark of a known form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading a watermark of {len} bytes")]
pub struct Unreadable {
    /// Length of the record.
    pub len: usize,
}

impl WriterMark {
    /// Decides a note, `existing` being the writer's row.
    pub fn note(existing: Option<&Self>, position: StreamCut, time: i64) -> Note {
        if position.0.is_empty() {
            return Note::InvalidPosition;
        }
        if let Some(last) = existing {
            if time < last.time {
                return Note::InvalidTime;
            }
            let back =
                |(id, offset): (&SegmentId, &i64)| last.position.0.get(id).is_some_and(|at| offset < at);
            if position.0.iter().any(back) {
                return Note::InvalidPosition;
            }
            if last.alive && last.time == time && last.position == position {
                return Note::Unchanged;
            }
        }
        Note::Moved(Self { time, position, alive: true })
    }

    /// Returns the row of the writer once it is removed; what it has noted still binds it.
    #[must_use]
    pub fn removed(&self) -> Self {
        Self { alive: false, ..self.clone() }
    }
}

impl Cycle<'_> {
    /// Decides what the writers' rows lead to.
    pub fn run(&self, writers: &BTreeMap<String, WriterMark>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut counted: Vec<&WriterMark> = Vec::new();
        for (writer, mark) in writers {
            if self.previous.is_none_or(|previous| previous.lower < mark.time) {
                counted.push(mark);
                continue;
            }
            let since_ms = self.silent_since_ms.get(writer).copied().unwrap_or(self.now_ms);
            if !mark.alive || since_ms.saturating_add(self.timeout_ms) <= self.now_ms {
                outcome.inactive.push(writer.clone());
            } else {
                outcome.silent_since_ms.insert(writer.clone(), since_ms);
            }
        }
        outcome.idle = counted.is_empty() && outcome.silent_since_ms.is_empty();
        if outcome.silent_since_ms.is_empty() {
            outcome.emit = self.emit(&counted);
        }
        outcome
    }

    fn emit(&self, writers: &[&WriterMark]) -> Option<Watermark> {
        let lower = writers.iter().map(|mark| mark.time).min()?;
        let upper = writers.iter().map(|mark| mark.time).max()?;
        let position = self.upper_bound(writers)?;
        Some(Watermark { lower, upper, position })
    }

    /// The least position that covers the key space and is behind none of the writers' and the previous one.
    ///
    /// Ids that name no segment are passed over: what a writer has been allowed to note stops nothing.
    fn upper_bound(&self, writers: &[&WriterMark]) -> Option<BTreeMap<SegmentId, (KeyRange, i64)>> {
        let noted = writers.iter().flat_map(|mark| &mark.position.0);
        let noted = noted.filter_map(|(id, offset)| Some((*id, self.epochs.segment(*id)?.range, *offset)));
        let previous = self.previous.iter().flat_map(|previous| &previous.position);
        let previous = previous.map(|(id, (range, offset))| (*id, *range, *offset));
        let mut bound = BTreeMap::new();
        for (id, range, offset) in noted.chain(previous) {
            let (_, most) = bound.entry(id).or_insert((range, offset));
            *most = offset.max(*most);
        }
        let newest = self.epochs.get(bound.keys().next_back()?.epoch())?;
        // Each turn but the last adds a segment of the newest epoch for good.
        for _ in 0..=newest.segments.len() {
            drop_replaced(&mut bound);
            // A replaced segment may have covered keys whose next segment nobody has noted.
            let missing: Vec<_> =
                newest.segments.iter().filter(|segment| !is_covered(segment.range, &bound)).collect();
            if missing.is_empty() {
                return Some(bound);
            }
            bound.extend(missing.into_iter().map(|segment| (segment.id(), (segment.range, 0))));
        }
        None
    }
}

fn is_covered(range: KeyRange, bound: &BTreeMap<SegmentId, (KeyRange, i64)>) -> bool {
    let mut left = vec![range];
    for (covered, _) in bound.values() {
        left = left.into_iter().flat_map(|part| part.without(*covered)).collect();
    }
    left.is_empty()
}

/// Drops the segments with which newer ones share keys: those have been written to their end.
fn drop_replaced(bound: &mut BTreeMap<SegmentId, (KeyRange, i64)>) {
    let all: Vec<(SegmentId, KeyRange)> = bound.iter().map(|(id, (range, _))| (*id, *range)).collect();
    bound.retain(|id, (range, _)| !all.iter().any(|(newer, other)| newer > id && other.overlaps(*range)));
}

impl Watermark {
    /// Encodes the watermark as a record of the mark stream.
    ///
    /// # Source
    /// Pravega's versioned serializer, version 0 revision 0 of `Watermark` and of `SegmentWithRange` as its keys.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(24 + 40 * self.position.len());
        body.extend(self.lower.to_be_bytes());
        body.extend(self.upper.to_be_bytes());
        put_count(&mut body, self.position.len());
        for (id, (range, offset)) in &self.position {
            let mut key = Vec::with_capacity(24);
            key.extend(id.raw().to_be_bytes());
            key.extend(range.low().to_be_bytes());
            key.extend(range.high().to_be_bytes());
            put_envelope(&mut body, &key);
            body.extend(offset.to_be_bytes());
        }
        let mut record = Vec::with_capacity(body.len() + 8);
        put_envelope(&mut record, &body);
        record
    }

    /// Decodes a record of the mark stream.
    ///
    /// # Errors
    /// [`Unreadable`] if it is no watermark of a known form.
    pub fn decode(record: &[u8]) -> Result<Self, Unreadable> {
        let mut input = Input(record);
        input.watermark().ok_or(Unreadable { len: record.len() })
    }
}

/// Writes a body as the only revision of version 0.
fn put_envelope(output: &mut Vec<u8>, body: &[u8]) {
    output.extend([0, 0, 1, 0]);
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    output.extend(len.to_be_bytes());
    output.extend(body);
}

/// Writes a count in the compact form: 1, 2 or 4 bytes, told apart by the top bits.
fn put_count(output: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match count.to_be_bytes() {
        [0, 0, 0, one @ 0..0x80] => output.push(one),
        [0, 0, high @ 0..0x40, low] => output.extend([high | 0x80, low]),
        [top, rest @ ..] => {
            output.push(top | 0xc0);
            output.extend(rest);
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn watermark(&mut self) -> Option<Watermark> {
        let mut body = self.envelope()?;
        let (lower, upper) = (body.i64()?, body.i64()?);
        let mut position = BTreeMap::new();
        for _ in 0..body.count()? {
            let mut key = body.envelope()?;
            let id = SegmentId::from_raw(key.i64()?);
            let range = KeyRange::new(key.f64()?, key.f64()?)?;
            position.insert(id, (range, body.i64()?));
        }
        Some(Watermark { lower, upper, position })
    }

    /// Reads an envelope of version 0 and returns its first revision; later ones are passed over.
    fn envelope(&mut self) -> Option<Input<'a>> {
        let [0, 0, revisions @ 1..=0x7f] = self.take()? else { return None };
        let mut first = None;
        for revision in 0..revisions {
            let [id] = self.take()?;
            let len = usize::try_from(u32::from_be_bytes(self.take()?)).ok()?;
            let (body, rest) = self.0.split_at_checked(len)?;
            self.0 = rest;
            if revision == 0 {
                first = (id == 0).then_some(Input(body));
            }
        }
        first
    }

    fn count(&mut self) -> Option<u32> {
        let [first] = self.take()?;
        Some(match first {
            0..0x80 => u32::from(first),
            0x80..0xc0 => {
                let [low] = self.take()?;
                u32::from_be_bytes([0, 0, first & 0x3f, low])
            }
            _ => {
                let [a, b, c] = self.take()?;
                u32::from_be_bytes([first & 0x3f, a, b, c])
            }
        })
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_be_bytes)
    }

    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}
