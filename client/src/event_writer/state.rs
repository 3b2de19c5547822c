//! What a writer knows, and every decision about it: pure, under one short lock.
//!
//! Events of a segment move from its queue to those sent and leave when they are acknowledged. A lost connection moves
//! them back in the same order, a sealed segment moves them to its successors in the same order; no event ever
//! overtakes another of the same key. Nothing here waits, sends or reads a clock.

use super::WriteError;
use super::ack::{Ack, AckCell};
use super::block::{Block, EVENT_HEADER_BYTES};
use super::effect::{Acked, Effects, NotTaken, Unexpected};
use super::lane::{LaneId, LaneQueue, Round};
use super::route::Routes;
use super::stream::{Phase, SegmentStream};
use dhara_wire::codec::Uuid;
use dhara_wire::name::{SegmentId, SegmentName};
use dhara_wire::range::KeyRange;
use std::sync::Arc;
use tokio::sync::Notify;

/// A segment stream's place in its writer; travels as request id. Never used again.
pub(super) type Slot = usize;

/// Everything that one writer holds.
#[derive(Debug)]
pub(super) struct WriterState {
    streams: Vec<SegmentStream>,
    routes: Routes,
    lanes: Vec<Option<LaneQueue>>,
    held_bytes: usize,
    held_bytes_max: usize,
    blocks_rerouted: u64,
    progress: u64,
    homeless: Vec<Slot>,
    sealed: Vec<Slot>,
    ended: Option<WriteError>,
    random: u64,
    /// Whether a large event is on its way, which no other may pass.
    held: bool,
    /// Large events so far, and the attribute that counts them in each segment.
    large_events: i64,
    large_attribute: Uuid,
}

impl WriterState {
    /// A writer to `segments`; `None` unless they cover the key space.
    pub(super) fn new(
        segments: Vec<(SegmentName, KeyRange, Uuid)>,
        held_bytes_max: usize,
        seed: u64,
        large_attribute: Uuid,
    ) -> Option<Self> {
        let ranges = segments.iter().enumerate().map(|(slot, (_, range, _))| (*range, slot)).collect();
        let routes = Routes::new(ranges)?;
        let streams = segments.into_iter().enumerate();
        let streams: Vec<_> = streams
            .map(|(slot, (name, _range, writer_id))| SegmentStream::new(slot, name, writer_id))
            .collect();
        Some(Self {
            homeless: (0..streams.len()).collect(),
            streams,
            routes,
            lanes: Vec::new(),
            held_bytes: 0,
            held_bytes_max,
            blocks_rerouted: 0,
            progress: 0,
            sealed: Vec::new(),
            ended: None,
            random: seed | 1,
            held: false,
            large_events: 0,
            large_attribute,
        })
    }

    /// Takes `event`. With no position it goes anywhere.
    pub(super) fn push(
        &mut self,
        position: Option<f64>,
        event: &[u8],
    ) -> Result<(Ack, Option<Arc<Notify>>), NotTaken> {
        if let Some(error) = &self.ended {
            return Err(NotTaken::Ended(error.clone()));
        }
        let bytes = EVENT_HEADER_BYTES + event.len();
        if self.held {
            return Err(NotTaken::Full);
        }
        if self.held_bytes + bytes > self.held_bytes_max && self.held_bytes > 0 {
            return Err(NotTaken::Full);
        }
        let position = position.unwrap_or_else(|| self.draw());
        let slot = self.routes.find(position);
        self.held_bytes += bytes;
        let ack = Ack::new(Arc::clone(self.streams[slot].push(position, event, None)));
        Ok((ack, self.list(slot, bytes)))
    }

    /// Keeps other events out until [`Self::release`]; false if somebody does so already.
    pub(super) fn hold(&mut self) -> Result<bool, WriteError> {
        match &self.ended {
            Some(error) => Err(error.clone()),
            None => Ok(!std::mem::replace(&mut self.held, true)),
        }
    }

    pub(super) fn release(&mut self) {
        self.held = false;
    }

    /// Numbers a large event: the attribute that is to carry the number, the number, and where the event routes to.
    pub(super) fn next_large(&mut self, position: Option<f64>) -> (Uuid, i64, f64) {
        self.large_events += 1;
        (self.large_attribute, self.large_events, position.unwrap_or_else(|| self.draw()))
    }

    /// The segment that takes `position` now.
    pub(super) fn segment_at(&self, position: f64) -> (Slot, SegmentName) {
        let slot = self.routes.find(position);
        (slot, self.streams[slot].name.clone())
    }

    /// Names of the streams that need a connection, and forgets that they do.
    pub(super) fn take_homeless(&mut self) -> Vec<(Slot, SegmentName)> {
        let slots = std::mem::take(&mut self.homeless);
        slots.into_iter().map(|slot| (slot, self.streams[slot].name.clone())).collect()
    }

    /// Names of the sealed streams, and forgets that they are to be replaced.
    pub(super) fn take_sealed(&mut self) -> Vec<(Slot, SegmentName)> {
        let slots = std::mem::take(&mut self.sealed);
        slots.into_iter().map(|slot| (slot, self.streams[slot].name.clone())).collect()
    }

    /// A number that grows with every sign that the server does its work.
    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Why the writer ended, if it has.
    pub(super) fn ended(&self) -> Option<&WriteError> {
        self.ended.as_ref()
    }

    /// Opens the queue of a new connection; `wake` is notified when it has something to send.
    pub(super) fn open_lane(&mut self, wake: Arc<Notify>) -> LaneId {
        self.lanes.push(Some(LaneQueue::new(wake)));
        self.lanes.len() - 1
    }

    /// Lets `lane` carry the stream `slot`, from its setup on. False if the lane is gone.
    pub(super) fn adopt(&mut self, lane: LaneId, slot: Slot, effects: &mut Effects) -> bool {
        let Some(queue) = self.lanes[lane].as_mut() else { return false };
        let stream = &mut self.streams[slot];
        if stream.phase != Phase::Homeless {
            return true;
        }
        stream.lane = Some(lane);
        stream.phase = Phase::SettingUp;
        queue.set_up(slot);
        effects.wake.extend(queue.wake());
        true
    }

    /// Takes what `lane` may send now; `None` if it has to wait until it is woken.
    pub(super) fn take_round(&mut self, lane: LaneId) -> Option<Round> {
        let Self { lanes, streams, .. } = self;
        let queue = lanes[lane].as_mut()?;
        let mut round = Round::default();
        while let Some(slot) = queue.next_setup() {
            let stream = &streams[slot];
            if stream.phase == Phase::SettingUp && stream.lane == Some(lane) {
                round.set_up(slot, stream.writer_id, stream.name.to_string());
            }
        }
        queue.keep_alive(&mut round);
        if let Some(id) = queue.begin_round() {
            while !round.is_full() {
                let Some(slot) = queue.next_ready() else { break };
                let stream = &mut streams[slot];
                stream.listed = false;
                if stream.phase != Phase::Ready || stream.lane != Some(lane) {
                    continue;
                }
                while !round.is_full() {
                    let Some(block) = stream.next_block() else { break };
                    queue.sent(id, block.event_bytes());
                    round.append(block.frame().clone(), block.event_bytes());
                    stream.sent.push_back((block, id));
                }
                if stream.waiting_bytes > 0 {
                    stream.listed = true;
                    queue.list(slot);
                }
            }
        }
        if round.is_empty() {
            queue.rest();
            return None;
        }
        Some(round)
    }

    /// The server has set up the stream `slot` and holds its events up to `last_number`.
    pub(super) fn set_up(
        &mut self,
        lane: LaneId,
        slot: Slot,
        last_number: i64,
        effects: &mut Effects,
    ) -> Result<(), Unexpected> {
        let stream = self.streams.get_mut(slot).ok_or(Unexpected)?;
        if stream.lane != Some(lane) {
            return Err(Unexpected);
        }
        if stream.phase != Phase::SettingUp {
            // Found sealed meanwhile.
            return Ok(());
        }
        stream.phase = Phase::Ready;
        let before = self.held_bytes;
        for block in stream.take_stored(last_number) {
            self.held_bytes -= block.event_bytes();
            effects.durable.extend_from_slice(block.cells());
        }
        self.progress += 1;
        effects.room |= self.has_room(before);
        let waiting = self.streams[slot].waiting_bytes;
        if waiting > 0 {
            effects.wake.extend(self.list(slot, waiting));
        }
        Ok(())
    }

    /// The server has made everything up to `ack` durable.
    pub(super) fn acked(
        &mut self,
        lane: LaneId,
        ack: Acked,
        effects: &mut Effects,
    ) -> Result<(), Unexpected> {
        let stream = self.streams.get_mut(ack.slot).ok_or(Unexpected)?;
        let known = stream.lane == Some(lane) && stream.writer_id == ack.writer_id;
        let queue = self.lanes[lane].as_mut().filter(|_lane| known).ok_or(Unexpected)?;
        let before = self.held_bytes;
        let mut durable = 0;
        while stream.sent.front().is_some_and(|(block, _)| block.last_number() <= ack.number) {
            if let Some((block, round)) = stream.sent.pop_front() {
                durable += 1;
                self.held_bytes -= block.event_bytes();
                queue.acked(round);
                effects.durable.extend_from_slice(block.cells());
            }
        }
        self.progress += 1;
        effects.wake.extend(queue.wake_if_waiting());
        effects.room |= self.has_room(before);
        if durable == 0 { Err(Unexpected) } else { Ok(()) }
    }

    /// The segment of `slot` takes no more appends.
    pub(super) fn seal(&mut self, lane: LaneId, slot: Slot, effects: &mut Effects) -> Result<(), Unexpected> {
        let stream = self.streams.get_mut(slot).ok_or(Unexpected)?;
        if stream.lane != Some(lane) {
            return Err(Unexpected);
        }
        if matches!(stream.phase, Phase::SettingUp | Phase::Ready) {
            self.forget(lane, slot, effects);
            self.streams[slot].phase = Phase::Sealed;
            self.progress += 1;
            self.sealed.push(slot);
            effects.supervise = true;
        }
        Ok(())
    }

    /// The segment of `slot`, which holds no events, was found sealed on another connection.
    pub(super) fn seal_idle(&mut self, slot: Slot, effects: &mut Effects) {
        let stream = &mut self.streams[slot];
        if matches!(stream.phase, Phase::Homeless | Phase::SettingUp | Phase::Ready) {
            stream.phase = Phase::Sealed;
            self.homeless.retain(|homeless| *homeless != slot);
            self.sealed.push(slot);
            effects.supervise = true;
        }
    }

    /// The segment of `slot` is served by another store now.
    pub(super) fn moved(
        &mut self,
        lane: LaneId,
        slot: Slot,
        effects: &mut Effects,
    ) -> Result<(), Unexpected> {
        let stream = self.streams.get_mut(slot).ok_or(Unexpected)?;
        if stream.lane != Some(lane) {
            return Err(Unexpected);
        }
        if matches!(stream.phase, Phase::SettingUp | Phase::Ready) {
            self.forget(lane, slot, effects);
            self.streams[slot].rewind();
            self.homeless.push(slot);
            effects.supervise = true;
        }
        Ok(())
    }

    /// The connection of `lane` is gone: what it carried needs another one.
    pub(super) fn close_lane(&mut self, lane: LaneId, effects: &mut Effects) {
        self.lanes[lane] = None;
        for (slot, stream) in self.streams.iter_mut().enumerate() {
            if stream.lane == Some(lane) {
                let carried = matches!(stream.phase, Phase::SettingUp | Phase::Ready);
                stream.lane = None;
                if carried {
                    stream.rewind();
                    self.homeless.push(slot);
                }
            }
        }
        effects.supervise = true;
    }

    /// Asks `lane` for a sign of life.
    pub(super) fn ask_for_life(&mut self, lane: LaneId, effects: &mut Effects) {
        if let Some(queue) = self.lanes[lane].as_mut() {
            queue.ask_for_life();
            effects.wake.extend(queue.wake());
        }
    }

    /// The slot of a live stream to segment `id`, if there is one.
    fn slot_of(&self, id: SegmentId) -> Option<Slot> {
        let live = |stream: &SegmentStream| !matches!(stream.phase, Phase::Sealed | Phase::Replaced);
        self.streams.iter().position(|stream| stream.name.id == id && live(stream))
    }

    /// Gives the keys and the un-acknowledged events of the sealed stream `slot` to `successors`. False if those do not
    /// cover its keys.
    pub(super) fn replace(
        &mut self,
        slot: Slot,
        successors: Vec<(SegmentName, KeyRange, Uuid)>,
        effects: &mut Effects,
    ) -> bool {
        let mut ranges = Vec::with_capacity(successors.len());
        for (name, range, writer_id) in successors {
            let known = self.slot_of(name.id);
            let successor = known.unwrap_or_else(|| {
                let slot = self.streams.len();
                self.streams.push(SegmentStream::new(slot, name, writer_id));
                self.homeless.push(slot);
                slot
            });
            ranges.push((range, successor));
        }
        let Some(routes) = self.routes.replace(slot, ranges) else { return false };
        self.routes = routes;
        effects.room = true;
        let stream = &mut self.streams[slot];
        stream.phase = Phase::Replaced;
        for block in stream.take_all() {
            self.reroute(&block, effects);
        }
        effects.supervise = true;
        true
    }

    fn reroute(&mut self, block: &Block, effects: &mut Effects) {
        self.blocks_rerouted += 1;
        let from = (self.blocks_rerouted, block.cells());
        for (position, event) in block.events() {
            let slot = self.routes.find(position);
            self.streams[slot].push(position, event, Some(from));
            effects.wake.extend(self.list(slot, EVENT_HEADER_BYTES + event.len()));
        }
        effects.durable.extend_from_slice(block.cells());
    }

    /// Ends the writer: nothing is taken any more, and everything held fails.
    pub(super) fn end(&mut self, error: &WriteError) -> Vec<Arc<AckCell>> {
        self.ended.get_or_insert_with(|| error.clone());
        self.held_bytes = 0;
        let blocks = self.streams.iter_mut().flat_map(SegmentStream::take_all);
        blocks.flat_map(|block| block.cells().to_vec()).collect()
    }

    /// An ack of everything taken so far and not yet durable.
    pub(super) fn pending(&self) -> Vec<Ack> {
        let cells = self.streams.iter().flat_map(SegmentStream::cells);
        cells.map(|cell| Ack::new(Arc::clone(cell))).collect()
    }

    /// Notes that `bytes` more wait in `slot`, and returns whom to wake.
    fn list(&mut self, slot: Slot, bytes: usize) -> Option<Arc<Notify>> {
        let stream = &mut self.streams[slot];
        if stream.phase != Phase::Ready {
            return None;
        }
        let queue = self.lanes[stream.lane?].as_mut()?;
        queue.waits(bytes);
        if !stream.listed {
            stream.listed = true;
            queue.list(slot);
        }
        queue.wake_if_waiting()
    }

    /// Lets the lane forget what `slot` has sent on it and what waits to be.
    fn forget(&mut self, lane: LaneId, slot: Slot, effects: &mut Effects) {
        let stream = &self.streams[slot];
        if let Some(queue) = self.lanes[lane].as_mut() {
            stream.sent.iter().for_each(|(_block, round)| queue.acked(*round));
            if stream.phase == Phase::Ready {
                queue.waits_no_more(stream.waiting_bytes);
            }
            effects.wake.extend(queue.wake_if_waiting());
        }
    }

    /// Whether the writer went from more than half full to less: one wake-up then serves many events. An empty writer
    /// has room for an event of any size.
    fn has_room(&self, before: usize) -> bool {
        let half = self.held_bytes_max / 2;
        before > half && self.held_bytes <= half || before > 0 && self.held_bytes == 0
    }

    /// A random position for an event without a key.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from_bits(0x3ff0_0000_0000_0000 | (self.random >> 12)) - 1.0
    }
}
