//! Carrying out the effects of applied records on the views that readers see, and on the loads that a controller asks for.

use super::backlog::Backlog;
use super::marks::Marks;
use crate::load::Unit;
use crate::log::RECORD_HEADER_BYTES;
use crate::operation::Extent;
use crate::read::{Loads, Traffic, View, Views};
use crate::state::{Added, AppendPlace, Effect, Segment, State};
use crate::types::{LogAddress, SegmentId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The views of a container by segment id, and what of the log they need.
pub(super) struct Publisher {
    views: Arc<Views>,
    by_id: BTreeMap<SegmentId, Arc<View>>,
    pub(super) marks: Marks,
    /// What is not in objects yet.
    pub(super) backlog: Backlog,
    touched: Vec<SegmentId>,
    loads: Arc<Loads>,
    /// Not told to the loads yet: many appends make one call.
    traffic: Vec<Traffic>,
}

/// Where an applied record lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace {
    pub(super) batch: LogAddress,
    pub(super) body: LogAddress,
}

impl Publisher {
    pub(super) fn new(views: Arc<Views>, loads: Arc<Loads>) -> Self {
        let (marks, backlog) = (Marks::default(), Backlog::default());
        let (touched, traffic) = (Vec::new(), Vec::new());
        Self { views, by_id: BTreeMap::new(), marks, backlog, touched, loads, traffic }
    }

    pub(super) fn view(&self, id: SegmentId) -> Option<&Arc<View>> {
        self.by_id.get(&id)
    }

    /// Publishes a segment as the state has it; it has no pieces yet.
    pub(super) fn create(&mut self, state: &State, id: SegmentId) {
        let Some(segment) = state.segment(id) else { return };
        let view = Arc::new(View::new(id, segment.name.clone(), segment.kind, segment.applied));
        self.views.insert(Arc::clone(&view));
        self.by_id.insert(id, view);
        self.loads.follow(segment);
    }

    /// Carries out one record's effects, in their order.
    pub(super) fn carry_out(&mut self, state: &State, effects: &[Effect], place: RecordPlace) {
        for effect in effects {
            match *effect {
                Effect::Created(id) => self.create(state, id),
                Effect::Appended { segment, offset, length, events } => {
                    self.append(state.segment(segment), offset, length, place);
                    self.count(state.segment(segment), (length, events.into()), None);
                }
                Effect::Moved { target, source, offset, length, events, since_ms } => {
                    self.adopt(target, source, offset);
                    self.count(state.segment(target), (length, events), Some(since_ms));
                }
                Effect::Changed(id) => self.change(state, id),
                Effect::Stored(extent) => self.store(&extent),
                Effect::Ended(id) => self.end(id),
            }
        }
    }

    fn append(&mut self, segment: Option<&Segment>, offset: u64, length: u64, place: RecordPlace) {
        let Some(Segment { id, applied, .. }) = segment else { return };
        let Some(view) = self.by_id.get(id) else { return };
        let place = AppendPlace {
            batch: place.batch,
            body: place.body,
            record_header_bytes: RECORD_HEADER_BYTES as u64,
        };
        let added = view.publish(|core, pieces| {
            *core = *applied;
            (length > 0).then(|| pieces.append(*id, offset, length, place))
        });
        match added {
            Some(Added::New(address)) => self.marks.add(address),
            Some(Added::Joined(was, is)) => {
                self.marks.remove(was);
                self.marks.add(is);
            }
            None => return,
        }
        self.backlog.grow(*id, length);
        self.touch(*id);
    }

    /// Remembers bytes and events for the load of a segment that has a scaling policy.
    fn count(&mut self, segment: Option<&Segment>, (bytes, events): (u64, u64), since_ms: Option<i64>) {
        let Some(Segment { id, applied, .. }) = segment else { return };
        if Unit::of(applied.policy.scale_type).is_none() {
            return;
        }
        let now_ms = applied.modified_ms;
        let since_ms = since_ms.unwrap_or(now_ms);
        match self.traffic.last_mut() {
            Some(last) if (last.segment, last.since_ms, last.now_ms) == (*id, since_ms, now_ms) => {
                last.bytes += bytes;
                last.events += events;
            }
            _ => self.traffic.push(Traffic { segment: *id, events, bytes, since_ms, now_ms }),
        }
    }

    fn adopt(&mut self, target: SegmentId, source: SegmentId, offset: u64) {
        let (Some(target_view), Some(source_view)) = (self.by_id.get(&target), self.by_id.get(&source))
        else {
            return;
        };
        let moved = source_view.publish(|core, pieces| {
            core.exists = false;
            std::mem::take(pieces)
        });
        let placed = moved.placed();
        target_view.publish(|core, pieces| {
            pieces.adopt(moved, offset);
            core.length = pieces.end().max(core.length);
        });
        self.backlog.adopt(target, source, placed);
        self.touch(target);
    }

    fn change(&mut self, state: &State, id: SegmentId) {
        let (Some(view), Some(segment)) = (self.by_id.get(&id), state.segment(id)) else { return };
        let applied = segment.applied;
        let marks = &mut self.marks;
        let placed = view.publish(|core, pieces| {
            *core = applied;
            pieces.truncate(applied.start, |piece| marks.forget(&piece));
            pieces.placed()
        });
        self.backlog.set(id, placed);
        self.touch(id);
        if !segment.kind.is_table() {
            self.loads.note(self.traffic.drain(..));
            self.loads.follow(segment);
        }
    }

    /// Shows a range in its object from now on.
    fn store(&mut self, extent: &Extent) {
        let Some(view) = self.by_id.get(&extent.segment) else { return };
        let marks = &mut self.marks;
        let placed = view.publish(|core, pieces| {
            let mut kept = Vec::new();
            pieces.replace(extent.piece(), |piece| marks.forget(&piece), |part| kept.push(part));
            for part in &kept {
                marks.note(part);
            }
            pieces.truncate(core.start, |piece| marks.forget(&piece));
            pieces.placed()
        });
        self.backlog.set(extent.segment, placed);
    }

    fn end(&mut self, id: SegmentId) {
        let Some(view) = self.by_id.remove(&id) else { return };
        self.views.remove(&view);
        let marks = &mut self.marks;
        view.publish(|core, pieces| {
            core.exists = false;
            pieces.truncate(u64::MAX, |piece| marks.forget(&piece));
        });
        self.backlog.set(id, 0);
        self.loads.forget(id);
        view.wake();
    }

    fn touch(&mut self, id: SegmentId) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    /// Wakes the readers of everything published since the last call.
    pub(super) fn wake(&mut self) {
        if !self.traffic.is_empty() {
            self.loads.note(self.traffic.drain(..));
        }
        for id in std::mem::take(&mut self.touched) {
            if let Some(view) = self.by_id.get(&id) {
                view.wake();
            }
        }
    }

    /// Ends all views with their container.
    pub(super) fn close(&mut self) {
        for view in self.views.clear() {
            view.close();
        }
        self.by_id.clear();
        self.loads.close();
    }
}

/// However the container's task ends, by a panic too: readers that wait must hear of it.
impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}
