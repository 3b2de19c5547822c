//! Random histories of a stream and readers walking through them, for the tests of this room.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::config::ScalingPolicy;
use super::cut::{FUTURE, StreamCut};
use super::epoch::scale::{self, ScaleOrigin, ScaleRequest, ScaleTerms, Transition};
use super::epoch::{EpochRecord, successors};
use super::segment::{KeyRange, Segment, SegmentId};
use super::state::StreamState;

/// One change of a stream; numbers choose modulo what there is.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Seal `count` neighbours from the `at`-th on and create ranges bounded at these fractions of them.
    Scale { at: usize, count: usize, bounds: Vec<f64> },
    /// Make the number of segments a fixed one.
    Fix(u32),
    /// Merge a transaction begun in this epoch.
    Roll(usize),
}

/// A stream with all rows that its past has left.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) epochs: Vec<EpochRecord>,
    /// The epoch that replaced a segment, one row per sealed segment.
    pub(super) sealed: BTreeMap<SegmentId, i32>,
    now_ms: i64,
}

pub(super) fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0usize..64, 1usize..4, vec(0.01..0.99f64, 0..4))
            .prop_map(|(at, count, bounds)| Change::Scale { at, count, bounds }),
        1 => (1u32..7).prop_map(Change::Fix),
        2 => (0usize..64).prop_map(Change::Roll),
    ]
}

pub(super) fn any_history() -> impl Strategy<Value = History> {
    (1u32..6, 0i32..3, vec(any_change(), 0..12)).prop_map(|(count, first, changes)| {
        let mut history = History::new(count, first);
        for change in &changes {
            history.change(change);
        }
        history
    })
}

impl History {
    pub(super) fn new(count: u32, first_number: i32) -> Self {
        let first = EpochRecord::first(count, first_number, 1000).unwrap();
        Self { epochs: vec![first], sealed: BTreeMap::new(), now_ms: 1000 }
    }

    pub(super) fn active(&self) -> &EpochRecord {
        self.epochs.last().unwrap()
    }

    pub(super) fn segments(&self) -> BTreeMap<SegmentId, Segment> {
        self.epochs.iter().flat_map(|epoch| &epoch.segments).map(|segment| (segment.id(), *segment)).collect()
    }

    pub(super) fn successors(&self, segment: &Segment) -> Vec<super::epoch::Successor> {
        let Some(&sealed_in) = self.sealed.get(&segment.id()) else { return Vec::new() };
        let at = usize::try_from(sealed_in).unwrap();
        successors(segment, &self.epochs[at], &self.epochs[at - 1])
    }

    /// Middles of the pieces into which all bounds of the history cut the key space.
    pub(super) fn keys(&self) -> Vec<f64> {
        let all = self.epochs.iter().flat_map(|epoch| &epoch.segments);
        let mut bounds: Vec<f64> =
            all.flat_map(|segment| [segment.range.low(), segment.range.high()]).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect()
    }

    pub(super) fn change(&mut self, change: &Change) {
        // The clock stands still at times.
        self.now_ms += 5 * i64::from(!matches!(change, Change::Fix(_)));
        match change {
            Change::Scale { at, count, bounds } => {
                self.scale(&self.request(*at, *count, bounds));
            }
            Change::Fix(count) => {
                let policy = ScalingPolicy::fixed(*count);
                if let Some(transition) = scale::change_policy(self.active(), &policy, self.now_ms).unwrap() {
                    self.apply(&transition);
                }
            }
            Change::Roll(at) => self.roll(*at),
        }
    }

    pub(super) fn scale(&mut self, request: &ScaleRequest) {
        let terms = ScaleTerms {
            state: StreamState::Active,
            segments_min: 1,
            origin: ScaleOrigin::Manual,
            now_ms: self.now_ms,
        };
        let transition = scale::submit(self.active(), None, request, terms).unwrap();
        self.apply(&transition);
    }

    /// A request that is in order.
    pub(super) fn request(&self, at: usize, count: usize, bounds: &[f64]) -> ScaleRequest {
        let segments = &self.active().segments;
        let first = at % segments.len();
        let sealed = &segments[first..(first + count).min(segments.len())];
        let (low, high) = (sealed[0].range.low(), sealed[sealed.len() - 1].range.high());
        let inner = bounds.iter().map(|fraction| low + (high - low) * fraction);
        let mut all: Vec<f64> =
            inner.filter(|bound| low < *bound && *bound < high).chain([low, high]).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        ScaleRequest {
            seal: sealed.iter().map(Segment::id).collect(),
            ranges: all.windows(2).map(|pair| (pair[0], pair[1])).rev().collect(),
        }
    }

    pub(super) fn apply(&mut self, transition: &Transition) {
        let next = transition.apply(self.active()).unwrap();
        self.sealed.extend(transition.seal.iter().map(|id| (*id, next.epoch)));
        self.epochs.push(next);
    }

    fn roll(&mut self, at: usize) {
        // Transactions carry the reference epoch, and those of the active one are merged without rolling.
        let begun = self.epochs[at % self.epochs.len()].reference_epoch;
        let begun = self.epochs[usize::try_from(begun).unwrap()].clone();
        let active = self.active().clone();
        if begun.reference_epoch == active.reference_epoch {
            return;
        }
        let rolled = active.rolled(&begun, self.now_ms).unwrap();
        self.sealed.extend(active.segments.iter().map(|segment| (segment.id(), rolled.transactions.epoch)));
        let duplicates = rolled.transactions.segments.iter();
        self.sealed.extend(duplicates.map(|segment| (segment.id(), rolled.active.epoch)));
        self.epochs.push(rolled.transactions);
        self.epochs.push(rolled.active);
    }
}

/// A reader that reads all segments of a stream, each after its predecessors.
#[derive(Debug, Clone, Default)]
pub(super) struct Reader {
    pub(super) done: BTreeSet<SegmentId>,
    pub(super) at: BTreeMap<SegmentId, i64>,
    pub(super) future: BTreeSet<SegmentId>,
}

impl Reader {
    pub(super) fn at_start(history: &History) -> Self {
        let at = history.epochs[0].segments.iter().map(|segment| (segment.id(), 0)).collect();
        Self { at, ..Self::default() }
    }

    /// Reads on in one segment, or finishes it and turns to its successors.
    fn step(&mut self, history: &History, choice: usize, bytes: Option<i64>) {
        let choice = choice % self.at.len().max(1);
        let Some((&id, offset)) = self.at.iter_mut().nth(choice) else { return };
        if let Some(bytes) = bytes {
            *offset += bytes;
            return;
        }
        let successors = history.successors(&history.segments()[&id]);
        if successors.is_empty() {
            return;
        }
        self.at.remove(&id);
        self.done.insert(id);
        for successor in successors {
            let next = successor.segment.id();
            if successor.predecessors.iter().all(|id| self.done.contains(id)) {
                self.future.remove(&next);
                self.at.insert(next, 0);
            } else {
                self.future.insert(next);
            }
        }
    }

    pub(super) fn walk(&mut self, history: &History, steps: &[(usize, Option<i64>)]) {
        for (choice, bytes) in steps {
            self.step(history, *choice, *bytes);
        }
    }

    pub(super) fn cut(&self) -> StreamCut {
        let future = self.future.iter().map(|id| (*id, FUTURE));
        StreamCut(self.at.iter().map(|(id, offset)| (*id, *offset)).chain(future).collect())
    }
}

pub(super) fn any_steps(count: usize) -> impl Strategy<Value = Vec<(usize, Option<i64>)>> {
    vec((0usize..64, prop_oneof![1 => (1i64..9).prop_map(Some), 3 => Just(None)]), 0..count)
}

/// The range, whose bounds are known to make sense.
pub(super) fn range(low: f64, high: f64) -> KeyRange {
    KeyRange::new(low, high).unwrap()
}

/// The id as the conformance transcripts write it.
pub(super) fn id(epoch: i32, number: i32) -> SegmentId {
    SegmentId::new(epoch, number)
}
