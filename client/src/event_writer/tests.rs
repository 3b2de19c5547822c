//! A writer's state against segment stores in miniature: connections break, segments split and merge at any moment.

use super::ack::Ack;
use super::effect::{Acked, Effects, NotTaken};
use super::lane::LaneId;
use super::state::WriterState;
use bytes::{Bytes, BytesMut};
use dhara_wire::codec::Uuid;
use dhara_wire::command::Command;
use dhara_wire::frame::take_frame;
use dhara_wire::name::{SegmentId, SegmentName, StreamName};
use dhara_wire::range::KeyRange;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

const STORES: usize = 2;
const KEYS: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Write { key: usize },
    Send { store: usize },
    Serve { store: usize },
    Hear { store: usize },
    Break { store: usize },
    Supervise,
    Split { segment: usize },
    Merge { segment: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let store = 0..STORES;
    prop_oneof![
        12 => (0..KEYS).prop_map(|key| Step::Write { key }),
        6 => store.clone().prop_map(|store| Step::Send { store }),
        8 => store.clone().prop_map(|store| Step::Serve { store }),
        8 => store.clone().prop_map(|store| Step::Hear { store }),
        1 => store.prop_map(|store| Step::Break { store }),
        4 => Just(Step::Supervise),
        1 => any::<usize>().prop_map(|segment| Step::Split { segment }),
        1 => any::<usize>().prop_map(|segment| Step::Merge { segment }),
    ]
}

#[derive(Debug)]
struct Segment {
    range: KeyRange,
    sealed: bool,
    successors: Vec<SegmentId>,
    events: Vec<(usize, u32)>,
    writers: BTreeMap<Uuid, i64>,
}

/// A connection: frames on their way, replies on their way back, and whom each writer id stands for.
#[derive(Debug)]
struct Wire {
    lane: LaneId,
    frames: VecDeque<Bytes>,
    replies: VecDeque<Reply>,
    sessions: BTreeMap<Uuid, SegmentId>,
}

#[derive(Debug)]
enum Reply {
    SetUp { slot: usize, last: i64 },
    Acked(Acked),
    Sealed { slot: usize },
}

#[derive(Debug)]
struct World {
    state: WriterState,
    segments: BTreeMap<SegmentId, Segment>,
    wires: [Option<Wire>; STORES],
    next_number: i32,
    epoch: i32,
    next_writer: u128,
    written: [u32; KEYS],
    acks: Vec<Ack>,
}

fn stream() -> StreamName {
    StreamName::new("sc", "st")
}

#[allow(clippy::cast_precision_loss, reason = "few keys")]
fn position(key: usize) -> f64 {
    (key as f64 + 0.5) / KEYS as f64
}

impl World {
    fn new() -> Self {
        let id = SegmentId::new(0, 0);
        let named = vec![(stream().segment(id), KeyRange::ALL, Uuid(1))];
        let mut world = Self {
            state: WriterState::new(named, 4096, 7, Uuid(0)).unwrap(),
            segments: BTreeMap::new(),
            wires: [None, None],
            next_number: 1,
            epoch: 0,
            next_writer: 2,
            written: [0; KEYS],
            acks: Vec::new(),
        };
        world.add_segment(id, KeyRange::ALL);
        world
    }

    fn add_segment(&mut self, id: SegmentId, range: KeyRange) {
        let segment = Segment {
            range,
            sealed: false,
            successors: Vec::new(),
            events: Vec::new(),
            writers: BTreeMap::new(),
        };
        self.segments.insert(id, segment);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { key } => self.write(key),
            Step::Send { store } => self.send(store),
            Step::Serve { store } => self.serve(store),
            Step::Hear { store } => self.hear(store),
            Step::Break { store } => self.break_wire(store),
            Step::Supervise => self.supervise(),
            Step::Split { segment } => self.split(segment),
            Step::Merge { segment } => self.merge(segment),
        }
    }

    fn write(&mut self, key: usize) {
        let mut event = vec![u8::try_from(key).unwrap()];
        event.extend(self.written[key].to_be_bytes());
        match self.state.push(Some(position(key)), &event) {
            Ok((ack, _wake)) => {
                self.written[key] += 1;
                self.acks.push(ack);
            }
            Err(NotTaken::Full) => {}
            Err(NotTaken::Ended(error)) => panic!("{error}"),
        }
    }

    fn send(&mut self, store: usize) {
        let Some(wire) = self.wires[store].as_mut() else { return };
        if let Some(round) = self.state.take_round(wire.lane) {
            wire.frames.extend(round.frames);
        }
    }

    fn serve(&mut self, store: usize) {
        let Some(wire) = self.wires[store].as_mut() else { return };
        let Some(frame) = wire.frames.pop_front() else { return };
        let (code, payload) = take_frame(&mut BytesMut::from(&frame[..])).unwrap().unwrap();
        match Command::decode(code, payload).unwrap() {
            Command::SetupAppend(setup) => {
                let name: SegmentName = setup.segment.parse().unwrap();
                wire.sessions.insert(setup.writer_id, name.id);
                let last = self.segments[&name.id].writers.get(&setup.writer_id).copied();
                let slot = usize::try_from(setup.request_id).unwrap();
                wire.replies.push_back(Reply::SetUp { slot, last: last.unwrap_or(i64::MIN) });
            }
            Command::AppendBlockEnd(end) => {
                let slot = usize::try_from(end.request_id).unwrap();
                let segment = self.segments.get_mut(&wire.sessions[&end.writer_id]).unwrap();
                if segment.sealed {
                    wire.replies.push_back(Reply::Sealed { slot });
                    return;
                }
                let last = segment.writers.entry(end.writer_id).or_insert(0);
                assert_eq!(*last + i64::from(end.num_events), end.last_event_number);
                *last = end.last_event_number;
                segment.events.extend(events(end.data.0));
                let (writer_id, number) = (end.writer_id, end.last_event_number);
                wire.replies.push_back(Reply::Acked(Acked { slot, writer_id, number }));
            }
            other => panic!("{other:?}"),
        }
    }

    fn hear(&mut self, store: usize) {
        let Some(wire) = self.wires[store].as_mut() else { return };
        let Some(reply) = wire.replies.pop_front() else { return };
        let lane = wire.lane;
        let mut effects = Effects::default();
        let heard = match reply {
            Reply::SetUp { slot, last } => self.state.set_up(lane, slot, last, &mut effects),
            Reply::Acked(ack) => self.state.acked(lane, ack, &mut effects),
            Reply::Sealed { slot } => self.state.seal(lane, slot, &mut effects),
        };
        heard.unwrap();
        settle(&effects);
    }

    fn break_wire(&mut self, store: usize) {
        let Some(wire) = self.wires[store].take() else { return };
        let mut effects = Effects::default();
        self.state.close_lane(wire.lane, &mut effects);
        settle(&effects);
    }

    fn supervise(&mut self) {
        let mut effects = Effects::default();
        for (slot, name) in self.state.take_sealed() {
            let successors = self.segments[&name.id].successors.clone();
            let mut named = Vec::new();
            for id in successors {
                named.push((stream().segment(id), self.segments[&id].range, Uuid(self.next_writer)));
                self.next_writer += 1;
            }
            assert!(self.state.replace(slot, named, &mut effects));
        }
        for (slot, name) in self.state.take_homeless() {
            let store = usize::try_from(name.id.number()).unwrap() % STORES;
            let lane = self.lane(store);
            assert!(self.state.adopt(lane, slot, &mut effects));
        }
        settle(&effects);
    }

    fn lane(&mut self, store: usize) -> LaneId {
        let wire = self.wires[store].get_or_insert_with(|| Wire {
            lane: self.state.open_lane(Arc::new(Notify::new())),
            frames: VecDeque::new(),
            replies: VecDeque::new(),
            sessions: BTreeMap::new(),
        });
        wire.lane
    }

    fn live(&self) -> Vec<SegmentId> {
        self.segments.iter().filter(|(_, segment)| !segment.sealed).map(|(id, _)| *id).collect()
    }

    fn replace(&mut self, sealed: &[SegmentId], ranges: &[KeyRange]) {
        self.epoch += 1;
        let mut successors = Vec::new();
        for range in ranges {
            let id = SegmentId::new(self.next_number, self.epoch);
            self.next_number += 1;
            self.add_segment(id, *range);
            successors.push(id);
        }
        for id in sealed {
            let segment = self.segments.get_mut(id).unwrap();
            segment.sealed = true;
            segment.successors.clone_from(&successors);
        }
    }

    fn split(&mut self, nth: usize) {
        let live = self.live();
        let id = live[nth % live.len()];
        let range = self.segments[&id].range;
        self.replace(&[id], &range.split(2));
    }

    fn merge(&mut self, nth: usize) {
        let mut live = self.live();
        live.sort_by(|a, b| self.segments[a].range.max.total_cmp(&self.segments[b].range.max));
        if live.len() < 2 {
            return;
        }
        let at = nth % (live.len() - 1);
        let (low, high) = (live[at], live[at + 1]);
        let range = KeyRange { min: self.segments[&low].range.min, max: self.segments[&high].range.max };
        self.replace(&[low, high], &[range]);
    }

    /// Runs without trouble until everything is acknowledged.
    fn finish(&mut self) {
        for _round in 0..10_000 {
            if self.state.pending().is_empty() {
                return;
            }
            self.supervise();
            for store in 0..STORES {
                self.send(store);
                self.serve(store);
                self.hear(store);
            }
        }
        panic!("writer does not come to rest");
    }

    /// Each key's events as a reader meets them: segments in the order of their creation.
    fn stored(&self) -> [Vec<u32>; KEYS] {
        let mut stored = [const { Vec::new() }; KEYS];
        for segment in self.segments.values() {
            for (key, number) in &segment.events {
                stored[*key].push(*number);
            }
        }
        stored
    }
}

fn settle(effects: &Effects) {
    effects.durable.iter().for_each(|cell| cell.block_is_durable());
}

fn events(mut data: Bytes) -> Vec<(usize, u32)> {
    let mut events = Vec::new();
    while !data.is_empty() {
        let event = data.split_to(13);
        let number = u32::from_be_bytes(event[9..].try_into().unwrap());
        events.push((usize::from(event[8]), number));
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn every_event_is_stored_once_and_in_order_of_its_key(
        steps in proptest::collection::vec(any_step(), 0..400),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.finish();
        let stored = world.stored();
        for (key, written) in world.written.iter().enumerate() {
            prop_assert_eq!(&stored[key], &(0..*written).collect::<Vec<_>>(), "key {}", key);
        }
        prop_assert!(world.acks.iter().all(|ack| matches!(ack.outcome(), Some(Ok(())))));
    }
}

#[test]
fn full_writer_takes_no_event_until_half_is_acknowledged() {
    let mut world = World::new();
    world.supervise();
    while world.state.push(Some(0.5), &[0; 500]).is_ok() {}
    let mut room = false;
    for _turn in 0..100 {
        world.send(0);
        while world.wires[0].as_ref().is_some_and(|wire| !wire.frames.is_empty()) {
            let wire = world.wires[0].as_mut().unwrap();
            let frame = wire.frames.pop_front().unwrap();
            let (code, payload) = take_frame(&mut BytesMut::from(&frame[..])).unwrap().unwrap();
            let mut effects = Effects::default();
            match Command::decode(code, payload).unwrap() {
                Command::SetupAppend(_) => world.state.set_up(wire.lane, 0, i64::MIN, &mut effects).unwrap(),
                Command::AppendBlockEnd(end) => {
                    let (writer_id, number) = (end.writer_id, end.last_event_number);
                    world.state.acked(wire.lane, Acked { slot: 0, writer_id, number }, &mut effects).unwrap();
                }
                other => panic!("{other:?}"),
            }
            room |= effects.room;
        }
    }
    assert!(room);
    assert!(world.state.push(Some(0.5), &[0; 500]).is_ok());
}

#[test]
fn acknowledgement_of_what_was_not_sent_is_refused() {
    let mut world = World::new();
    world.supervise();
    let lane = world.wires[0].as_ref().unwrap().lane;
    let mut effects = Effects::default();
    for (slot, writer_id) in [(0, Uuid(1)), (0, Uuid(9)), (usize::MAX, Uuid(1))] {
        let ack = Acked { slot, writer_id, number: 1 };
        assert!(world.state.acked(lane, ack, &mut effects).is_err());
    }
}

#[test]
fn ended_writer_fails_what_it_holds_and_takes_no_more() {
    let mut world = World::new();
    let (ack, _wake) = world.state.push(None, b"x").unwrap();
    for cell in world.state.end(&super::WriteError::Closed) {
        cell.fail(super::WriteError::Closed);
    }
    assert!(matches!(ack.outcome(), Some(Err(super::WriteError::Closed))));
    assert!(matches!(world.state.push(None, b"x"), Err(NotTaken::Ended(_))));
}
