//! What containers hand over and what they hear back: pending batches on the way down, durable ones on the way up.
//!
//! The queue itself is not bounded: each container bounds what it has under way by its operations' permits.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::error::LogError;
use super::format::floor::{Floor, Mark};
use super::format::record::Batch;
use super::{Durable, LogRoom};
use crate::types::{ContainerEpoch, ContainerId};

/// Tells one writer what became durable. Clones share one stream of reports.
#[derive(Clone, Debug)]
pub struct DurableWatch(Arc<Watch>);

#[derive(Debug, Default)]
struct Watch {
    state: Mutex<WatchState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WatchState {
    durable: Vec<Durable>,
    ended: Option<LogError>,
}

impl DurableWatch {
    /// Everything that became durable since the last call, in order; waits until there is something.
    ///
    /// # Errors
    /// Why nothing becomes durable any more.
    /// # Cancel safety
    /// Dropped early: nothing is taken.
    pub async fn next(&mut self) -> Result<Vec<Durable>, LogError> {
        loop {
            if let Some(durable) = self.try_next()? {
                return Ok(durable);
            }
            self.0.changed.notified().await;
        }
    }

    /// As [`DurableWatch::next`], but gives `None` instead of waiting.
    ///
    /// # Errors
    /// As [`DurableWatch::next`].
    pub fn try_next(&mut self) -> Result<Option<Vec<Durable>>, LogError> {
        let mut state = self.0.state.lock();
        if !state.durable.is_empty() {
            return Ok(Some(std::mem::take(&mut state.durable)));
        }
        state.ended.clone().map_or(Ok(None), Err)
    }

    fn push(&self, durable: Durable) {
        let mut state = self.0.state.lock();
        if state.ended.is_none() {
            state.durable.push(durable);
        }
    }

    /// Ends the watch. A replaced writer hears nothing more; others still hear what was durable before.
    fn end(&self, why: LogError) {
        let mut state = self.0.state.lock();
        if matches!(why, LogError::Fenced { .. }) {
            state.durable.clear();
        }
        state.ended.get_or_insert(why);
        drop(state);
        self.wake();
    }

    fn wake(&self) {
        self.0.changed.notify_one();
        self.0.changed.notify_waiters();
    }
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    watch: Option<DurableWatch>,
    /// What is durable.
    mark: Mark,
    /// As `mark.next`, with what is under way.
    staged_next: u64,
    epoch: ContainerEpoch,
}

#[derive(Debug)]
struct State {
    batches: VecDeque<Batch>,
    pending_bytes: u64,
    slots: Vec<Slot>,
    floors_changed: bool,
    committing: bool,
    closing: bool,
    ended: Option<LogError>,
}

/// What the log thread does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Write these batches as one frame, and the floors of all containers if they changed.
    Commit { batches: Vec<Batch>, floors: Option<Vec<Floor>> },
    /// Nothing came for a while.
    Quiet,
    /// Everything is written; the log closes.
    Close,
}

/// The meeting place of containers and log thread.
#[derive(Debug)]
pub(super) struct Queue {
    /// A frame takes batches up to this many bytes, or one larger batch.
    fill_bytes: usize,
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
}

impl Queue {
    pub(super) fn new(marks: &[Mark], fill_bytes: usize) -> Self {
        let slot = |mark: &Mark| Slot {
            generation: 0,
            watch: None,
            mark: *mark,
            staged_next: mark.next,
            epoch: ContainerEpoch(mark.epoch),
        };
        let state = State {
            batches: VecDeque::new(),
            pending_bytes: 0,
            slots: marks.iter().map(slot).collect(),
            floors_changed: false,
            committing: false,
            closing: false,
            ended: None,
        };
        Self { fill_bytes, state: Mutex::new(state), work: Condvar::new(), idle: Condvar::new() }
    }

    /// Ends the container's writer, waits for what is under way, and gives the new writer's generation, its watch,
    /// and what is durable.
    pub(super) fn open(&self, container: ContainerId) -> Result<(u64, DurableWatch, Mark), LogError> {
        let mut state = self.state.lock();
        let index = usize::from(container.0);
        if index >= state.slots.len() {
            return Err(LogError::NoContainer { container });
        }
        let generation = state.replace_writer(container, true);
        while state.committing && state.ended.is_none() {
            self.idle.wait(&mut state);
        }
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        // What was under way may have been put back for want of room; it is the old writer's.
        state.forget_batches(container);
        let slot = &mut state.slots[index];
        if slot.generation != generation {
            return Err(LogError::Fenced { container });
        }
        slot.staged_next = slot.mark.next;
        let watch = DurableWatch(Arc::default());
        slot.watch = Some(watch.clone());
        Ok((generation, watch, slot.mark))
    }

    /// Ends one writer, if it is still the container's.
    pub(super) fn close_writer(&self, container: ContainerId, generation: u64) {
        let mut state = self.state.lock();
        if state.slots[usize::from(container.0)].generation == generation {
            state.replace_writer(container, false);
        }
    }

    pub(super) fn begin(
        &self,
        container: ContainerId,
        generation: u64,
        epoch: ContainerEpoch,
    ) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let slot = state.slot(container, generation)?;
        if epoch < slot.epoch {
            return Err(LogError::Fenced { container });
        }
        slot.epoch = epoch;
        Ok(())
    }

    pub(super) fn append(&self, generation: u64, batch: Batch) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let slot = state.slot(batch.container, generation)?;
        assert!(batch.epoch == slot.epoch, "batch of epoch {} in epoch {}", batch.epoch, slot.epoch);
        let follows = slot.staged_next == 0 || slot.staged_next == batch.first.0;
        assert!(follows, "record {} appended where {} follows", batch.first, slot.staged_next);
        slot.staged_next = batch.last.next().0;
        state.pending_bytes += u64::try_from(batch.len()).unwrap_or(u64::MAX);
        state.batches.push_back(batch);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    pub(super) fn set_floor(&self, container: ContainerId, generation: u64, floor: Floor) {
        let mut state = self.state.lock();
        let Ok(slot) = state.slot(container, generation) else { return };
        if floor.sequence <= slot.mark.floor.sequence {
            return;
        }
        slot.mark.floor = floor;
        state.floors_changed = true;
        drop(state);
        self.work.notify_one();
    }

    /// Subtracts what is under way from `room`.
    pub(super) fn less_pending(&self, room: LogRoom) -> LogRoom {
        let state = self.state.lock();
        let taken = if state.ended.is_some() { u64::MAX } else { state.pending_bytes };
        LogRoom {
            admissible_bytes: room.admissible_bytes.saturating_sub(taken),
            reserved_bytes: room.reserved_bytes.saturating_sub(taken),
            ..room
        }
    }

    /// Lets the log thread finish what was appended and end.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_all();
    }

    /// Ends every writer.
    pub(super) fn end(&self, why: &LogError) {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| why.clone());
        state.batches.clear();
        state.committing = false;
        for slot in &mut state.slots {
            if let Some(watch) = slot.watch.take() {
                watch.end(why.clone());
            }
        }
        drop(state);
        self.idle.notify_all();
    }

    /// Waits for work; `quiet_after` ends the wait when nothing comes, `None` waits for ever.
    pub(super) fn wait(&self, quiet_after: Option<std::time::Duration>) -> Work {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.take(self.fill_bytes) {
                return work;
            }
            if state.closing {
                return Work::Close;
            }
            match quiet_after {
                None => self.work.wait(&mut state),
                Some(limit) => {
                    if self.work.wait_for(&mut state, limit).timed_out() && state.batches.is_empty() {
                        return Work::Quiet;
                    }
                }
            }
        }
    }

    /// As [`Queue::wait`], without waiting.
    pub(super) fn poll(&self) -> Option<Work> {
        self.state.lock().take(self.fill_bytes)
    }

    /// Puts back what could not be written for want of room, and waits for a floor to rise or a while to pass; false
    /// if the log closes.
    pub(super) fn put_back(&self, batches: Vec<Batch>, wait: std::time::Duration) -> bool {
        let mut state = self.state.lock();
        for batch in batches.into_iter().rev() {
            state.pending_bytes += u64::try_from(batch.len()).unwrap_or(0);
            state.batches.push_front(batch);
        }
        state.committing = false;
        state.floors_changed = true;
        self.idle.notify_all();
        if !state.closing {
            self.work.wait_for(&mut state, wait);
        }
        !state.closing
    }

    /// Reports batches as durable, each at its address, and wakes each writer once.
    pub(super) fn publish(&self, durable: &[(ContainerId, ContainerEpoch, Durable)]) {
        let mut touched: Vec<DurableWatch> = Vec::new();
        let mut state = self.state.lock();
        state.committing = false;
        let mut last = None;
        for (container, epoch, durable) in durable {
            let slot = &mut state.slots[usize::from(container.0)];
            let follows = slot.mark.advance(epoch.0, durable.first.0, durable.last.0);
            assert!(follows, "durable record {} where {} follows", durable.first, slot.mark.next);
            let Some(watch) = &slot.watch else { continue };
            watch.push(*durable);
            if last != Some(*container) {
                last = Some(*container);
                if !touched.iter().any(|other| Arc::ptr_eq(&other.0, &watch.0)) {
                    touched.push(watch.clone());
                }
            }
        }
        drop(state);
        self.idle.notify_all();
        for watch in touched {
            watch.wake();
        }
    }
}

impl State {
    fn slot(&mut self, container: ContainerId, generation: u64) -> Result<&mut Slot, LogError> {
        if let Some(why) = &self.ended {
            return Err(why.clone());
        }
        if self.closing {
            return Err(LogError::Closed);
        }
        let slot = &mut self.slots[usize::from(container.0)];
        if slot.generation == generation { Ok(slot) } else { Err(LogError::Fenced { container }) }
    }

    /// Ends the container's writer, drops what it left pending, and gives the next generation.
    fn replace_writer(&mut self, container: ContainerId, fenced: bool) -> u64 {
        let slot = &mut self.slots[usize::from(container.0)];
        slot.generation += 1;
        let generation = slot.generation;
        if let Some(watch) = slot.watch.take() {
            watch.end(if fenced { LogError::Fenced { container } } else { LogError::Closed });
        }
        self.forget_batches(container);
        generation
    }

    fn forget_batches(&mut self, container: ContainerId) {
        self.batches.retain(|batch| batch.container != container);
        self.pending_bytes = self.batches.iter().map(|batch| u64::try_from(batch.len()).unwrap_or(0)).sum();
    }

    fn take(&mut self, fill_bytes: usize) -> Option<Work> {
        if self.batches.is_empty() && !self.floors_changed {
            return None;
        }
        let mut batches = Vec::new();
        let mut bytes = 0;
        while let Some(batch) = self.batches.front() {
            if bytes > 0 && bytes + batch.len() > fill_bytes {
                break;
            }
            bytes += batch.len();
            batches.extend(self.batches.pop_front());
        }
        self.pending_bytes = self.pending_bytes.saturating_sub(u64::try_from(bytes).unwrap_or(0));
        self.committing = true;
        let floors = std::mem::take(&mut self.floors_changed);
        let floors = floors.then(|| self.slots.iter().map(|slot| slot.mark.floor).collect());
        Some(Work::Commit { batches, floors })
    }
}
