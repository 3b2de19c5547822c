//! What is known of one segment: which events lie where, and what was promised about it.
//!
//! A fact once known stays true for ever: it was read or acknowledged, so it was durable.

use super::event::EventId;
use std::collections::{BTreeMap, BTreeSet};

/// Facts and promises of a segment that holds events.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) name: String,
    /// Events by offset.
    facts: BTreeMap<u64, EventId>,
    /// Offsets by event.
    places: BTreeMap<EventId, u64>,
    /// Events that are there though nobody was told where.
    owed: BTreeSet<EventId>,
    /// Writers whose events must never be seen.
    barred: BTreeSet<u32>,
    /// Writers whose events come all together, side by side, or not at all; with their count.
    whole: BTreeMap<u32, u32>,
    /// Everything below was read from the first byte on.
    pub(super) read_upto: u64,
    /// Highest offset that the segment was asked to begin at, and highest that it is known to.
    pub(super) start_asked: u64,
    pub(super) start_known: u64,
    /// Length at which it was seen sealed.
    sealed_at: Option<u64>,
    /// Somebody asked for it to be sealed, or for its end.
    pub(super) may_be_sealed: bool,
    pub(super) may_be_gone: bool,
    /// Appends without bytes count as events that cannot be read.
    pub(super) unreadable_events: bool,
}

impl Book {
    pub(super) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// An event lies at `offset`: somebody read it there or was told so.
    pub(super) fn fact(&mut self, offset: u64, event: EventId) -> Result<(), String> {
        let name = &self.name;
        if let Some(known) = self.facts.get(&offset) {
            if *known == event {
                return Ok(());
            }
            return Err(format!("{name}: {event:?} at {offset}, where {known:?} was"));
        }
        if self.barred.contains(&event.writer) {
            return Err(format!("{name}: {event:?} at {offset} is of what was aborted"));
        }
        if let Some((at, before)) = self.facts.range(..offset).next_back()
            && at + before.length() > offset
        {
            return Err(format!("{name}: {event:?} at {offset} lies over {before:?} at {at}"));
        }
        let end = offset + event.length();
        if let Some((at, behind)) = self.facts.range(offset..).next()
            && *at < end
        {
            return Err(format!("{name}: {event:?} at {offset} lies over {behind:?} at {at}"));
        }
        if self.sealed_at.is_some_and(|sealed_at| end > sealed_at) {
            return Err(format!("{name}: {event:?} at {offset} is behind the end of a sealed segment"));
        }
        if let Some(other) = self.places.insert(event, offset) {
            return Err(format!("{name}: {event:?} is at {other} and at {offset}"));
        }
        self.facts.insert(offset, event);
        Ok(())
    }

    /// An event was stored; where is not known.
    pub(super) fn owe(&mut self, event: EventId) {
        self.owed.insert(event);
    }

    /// The events of `writer` must never be seen.
    pub(super) fn bar(&mut self, writer: u32) -> Result<(), String> {
        self.barred.insert(writer);
        match self.places.range(of_writer(writer)).next() {
            Some((event, at)) => Err(format!("{}: {event:?} at {at} is of what was aborted", self.name)),
            None => Ok(()),
        }
    }

    /// All `count` events of `writer` come side by side, or none does.
    pub(super) fn keep_whole(&mut self, writer: u32, count: u32) {
        self.whole.insert(writer, count);
    }

    /// The segment was seen to end for good at `length`.
    pub(super) fn sealed(&mut self, length: u64) -> Result<(), String> {
        let name = &self.name;
        if !self.may_be_sealed {
            return Err(format!("{name}: sealed at {length} though nobody asked"));
        }
        if self.sealed_at.is_some_and(|sealed_at| sealed_at != length) {
            return Err(format!("{name}: sealed at {:?} and at {length}", self.sealed_at));
        }
        self.sealed_at = Some(length);
        match self.facts.last_key_value() {
            Some((at, last)) if at + last.length() > length => {
                Err(format!("{name}: sealed at {length}, before the end of {last:?} at {at}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed_at.is_some()
    }

    /// What bytes of the segment must be, if all events there are known.
    pub(super) fn expected(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let (first, _) = self.facts.range(..=offset).next_back()?;
        let (mut at, mut bytes) = (*first, Vec::new());
        for (event_at, event) in self.facts.range(first..) {
            if at != *event_at {
                return None;
            }
            bytes.extend_from_slice(&event.bytes());
            at += event.length();
            if at >= offset + length {
                let from = usize::try_from(offset - first).ok()?;
                return Some(bytes.get(from..from + usize::try_from(length).ok()?)?.to_vec());
            }
        }
        None
    }

    /// An offset where an event begins, the `nth` of those in `range`.
    pub(super) fn boundary(&self, range: std::ops::Range<u64>, nth: u64) -> Option<u64> {
        let count = u64::try_from(self.facts.range(range.clone()).count()).ok()?;
        let nth = usize::try_from(nth.checked_rem(count)?).ok()?;
        self.facts.range(range).nth(nth).map(|(at, _)| *at)
    }

    /// Nothing was ever stored, so that nobody may have made it.
    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.owed.is_empty()
    }

    /// Whether an event may begin at `offset`, for all that is known.
    pub(super) fn may_begin_at(&self, offset: u64) -> bool {
        self.facts.contains_key(&offset) || offset >= self.read_upto
    }

    /// How many events have been seen.
    pub(super) fn events(&self) -> usize {
        self.facts.len()
    }

    /// Checks a segment that was read from `start` to its end: `read` holds every event there by offset.
    pub(super) fn complete(
        &self,
        (start, length): (u64, u64),
        read: &BTreeMap<u64, EventId>,
    ) -> Result<(), String> {
        let name = &self.name;
        if start < self.start_known || start > self.start_asked.max(self.start_known) {
            return Err(format!("{name}: begins at {start}, was truncated at {}", self.start_known));
        }
        for (at, event) in self.facts.range(start..) {
            if read.get(at) != Some(event) {
                return Err(format!("{name}: {event:?} at {at} is gone, length {length}"));
            }
        }
        for event in &self.owed {
            if !self.places.contains_key(event) {
                return Err(format!("{name}: {event:?} was stored and is nowhere"));
            }
        }
        self.in_order()
    }

    /// Each writer's events are there without gap and in order; what must be whole is.
    fn in_order(&self) -> Result<(), String> {
        let name = &self.name;
        let mut last: Option<(EventId, u64)> = None;
        for (event, at) in &self.places {
            let before = last.filter(|(before, _)| before.writer == event.writer);
            let expected = before.map_or(1, |(before, _)| before.number + 1);
            if event.number != expected {
                return Err(format!("{name}: {event:?} at {at} where number {expected} follows"));
            }
            if let Some((before, before_at)) = before {
                let end = before_at + before.length();
                let beside = !self.whole.contains_key(&event.writer) || end == *at;
                if *at < end || !beside {
                    return Err(format!("{name}: {event:?} at {at} follows {before:?} at {before_at}"));
                }
            }
            last = Some((*event, *at));
        }
        for (writer, count) in &self.whole {
            let seen = self.places.range(of_writer(*writer)).count();
            if seen != 0 && u32::try_from(seen) != Ok(*count) {
                return Err(format!("{name}: {seen} of {count} events of {writer} are there"));
            }
        }
        Ok(())
    }
}

fn of_writer(writer: u32) -> std::ops::RangeInclusive<EventId> {
    EventId { writer, number: 0 }..=EventId { writer, number: u32::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(writer: u32, number: u32) -> EventId {
        EventId { writer, number }
    }

    /// A book of these events, one behind the other.
    fn book(events: &[EventId]) -> (Book, BTreeMap<u64, EventId>) {
        let (mut book, mut read, mut at) = (Book::new("s".into()), BTreeMap::new(), 0);
        for event in events {
            book.fact(at, *event).unwrap();
            read.insert(at, *event);
            at += event.length();
        }
        (book, read)
    }

    #[test]
    fn book_accepts_what_is_right() {
        let (mut book, read) = book(&[event(1, 1), event(2, 1), event(1, 2)]);
        book.owe(event(2, 1));
        book.complete((0, 0), &read).unwrap();
    }

    #[test]
    fn book_tells_what_is_lost_doubled_out_of_order_or_torn() {
        let (first, second) = (event(1, 1), event(1, 2));
        let (mut lost, mut read) = book(&[first, second]);
        read.pop_last();
        assert!(lost.complete((0, 0), &read).is_err());
        assert!(lost.fact(0, second).is_err());
        assert!(lost.fact(1, event(9, 1)).is_err());
        assert!(lost.fact(1_000_000, first).is_err());
        let (swapped, read) = book(&[second, first]);
        assert!(swapped.complete((0, 0), &read).is_err());
        let (skipped, read) = book(&[second]);
        assert!(skipped.complete((0, 0), &read).is_err());
        let (mut owing, read) = book(&[first]);
        owing.owe(second);
        assert!(owing.complete((0, 0), &read).is_err());
        let (mut torn, read) = book(&[first, event(2, 1), second]);
        torn.keep_whole(1, 2);
        assert!(torn.complete((0, 0), &read).is_err());
        let (mut half, read) = book(&[first]);
        half.keep_whole(1, 2);
        assert!(half.complete((0, 0), &read).is_err());
        let (mut aborted, _) = book(&[first]);
        assert!(aborted.bar(1).is_err());
        let (moved, read) = book(&[first]);
        assert!(moved.complete((5, 9), &read).is_err());
    }

    #[test]
    fn sealed_segment_has_one_end() {
        let (mut unasked, _) = book(&[event(1, 1)]);
        let end = event(1, 1).length();
        assert!(unasked.sealed(end).is_err());
        let (mut sealed, _) = book(&[event(1, 1)]);
        sealed.may_be_sealed = true;
        sealed.sealed(end).unwrap();
        assert!(sealed.sealed(end + 1).is_err());
        assert!(sealed.fact(end, event(1, 2)).is_err());
    }
}
