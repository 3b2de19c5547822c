//! Random requests: few names, writers and keys, so that they meet.

use super::model::{Model, Put, Segment};
use crate::operation::{ConnectionId, Policy, Request, SegmentKind, SessionId, TableCondition, TablePut};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use dhara_wire::command::{AttributeUpdate, AttributeUpdateType};
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NAMES: u8 = 5;
const WRITERS: u128 = 3;

/// How a value of a request relates to what stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fit {
    None,
    Right,
    Wrong,
    Absent,
}

/// A request in the making; values that must fit are taken from the model when its turn comes.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create { name: u8, kind: u8 },
    Seal { name: u8 },
    Delete { name: u8, other_kind: bool, must_be_empty: bool },
    Truncate { name: u8, permille: i64 },
    SetPolicy { name: u8, rate: i32 },
    GetAttribute { name: u8, attribute: u8 },
    UpdateAttribute { name: u8, attribute: u8, value: i64, fit: Fit },
    Merge { target: u8, source: u8, updates: Vec<(u8, u8, i64, Fit)> },
    MergeBatch { target: u8, sources: Vec<u8> },
    Setup { connection: u8, writer: u8, name: u8 },
    Append { connection: u8, writer: u8, step: i64, bytes: u16, fit: Fit },
    Update { name: u8, puts: Vec<(u8, Fit, u8)>, fit: Fit },
    Remove { name: u8, keys: Vec<(u8, Fit)>, fit: Fit },
    Disconnect { connection: u8 },
}

/// What reaches a container.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    Request(Request),
    Append(Put, Uuid),
    EndSession(SessionId),
    Disconnect(ConnectionId),
}

fn any_fit() -> impl Strategy<Value = Fit> {
    prop_oneof![5 => Just(Fit::None), 4 => Just(Fit::Right), 1 => Just(Fit::Wrong), 1 => Just(Fit::Absent)]
}

pub(crate) fn any_op() -> impl Strategy<Value = Op> {
    let name = || 0..NAMES;
    let attribute = || 0..5_u8;
    let update = (attribute(), 0..5_u8, -3..5_i64, any_fit());
    prop_oneof![
        6 => (name(), 0..8_u8).prop_map(|(name, kind)| Op::Create { name, kind }),
        1 => name().prop_map(|name| Op::Seal { name }),
        2 => (name(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(name, other_kind, must_be_empty)| Op::Delete { name, other_kind, must_be_empty }),
        2 => (name(), -100..1200_i64).prop_map(|(name, permille)| Op::Truncate { name, permille }),
        2 => (name(), any::<i32>()).prop_map(|(name, rate)| Op::SetPolicy { name, rate }),
        4 => (name(), 0..8_u8).prop_map(|(name, attribute)| Op::GetAttribute { name, attribute }),
        3 => (name(), 0..6_u8, -3..5_i64, any_fit())
            .prop_map(|(name, attribute, value, fit)| Op::UpdateAttribute { name, attribute, value, fit }),
        3 => (name(), name(), vec(update, 0..3))
            .prop_map(|(target, source, updates)| Op::Merge { target, source, updates }),
        2 => (name(), vec(name(), 0..4)).prop_map(|(target, sources)| Op::MergeBatch { target, sources }),
        5 => (0..3_u8, 0..3_u8, name())
            .prop_map(|(connection, writer, name)| Op::Setup { connection, writer, name }),
        16 => (0..3_u8, 0..3_u8, prop_oneof![8 => 1..4_i64, 1 => -1..1_i64],
                prop_oneof![1 => Just(0_u16), 8 => 1..60_u16, 1 => 4000..4200_u16], any_fit())
            .prop_map(|(connection, writer, step, bytes, fit)| Op::Append { connection, writer, step, bytes, fit }),
        8 => (name(), vec((0..5_u8, any_fit(), 0..20_u8), 0..4), any_fit())
            .prop_map(|(name, puts, fit)| Op::Update { name, puts, fit }),
        4 => (name(), vec((0..5_u8, any_fit()), 0..3), any_fit())
            .prop_map(|(name, keys, fit)| Op::Remove { name, keys, fit }),
        1 => (0..3_u8).prop_map(|connection| Op::Disconnect { connection }),
    ]
}

/// Turns requests in the making into what connections would send.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Connections get a new number when they come back.
    generation: [u64; 3],
    sessions: BTreeMap<(u8, u8), SessionId>,
    numbers: u32,
    /// Each append's data is unlike every other's.
    filled: u64,
}

fn name(name: u8) -> String {
    format!("s/{name}")
}

fn writer(writer: u8) -> Uuid {
    Uuid(u128::from(writer) + 1)
}

/// Writers' own attributes, a few others, and behind them some of the store's.
fn attribute(attribute: u8) -> Uuid {
    match u128::from(attribute) {
        id if id < WRITERS => Uuid(id + 1),
        id if id < 5 => Uuid(id + 1 + (7 << 64)),
        id => Uuid((0x8000_0000_0000_0000 << 64) + id - 4),
    }
}

fn key(key: u8) -> Bytes {
    Bytes::from(if key == 4 { b"longer".to_vec() } else { vec![b'k', key] })
}

/// Every name that a request may have.
pub(crate) fn all_names() -> impl Iterator<Item = String> {
    (0..NAMES).map(name)
}

/// Every key that a request may have.
pub(crate) fn all_keys() -> impl Iterator<Item = Bytes> {
    (0..5).map(key)
}

/// Every attribute that a request may set.
pub(crate) fn all_attributes() -> impl Iterator<Item = Uuid> {
    (0..5).map(attribute)
}

fn update_type(number: u8) -> AttributeUpdateType {
    [
        AttributeUpdateType::None,
        AttributeUpdateType::Replace,
        AttributeUpdateType::ReplaceIfGreater,
        AttributeUpdateType::Accumulate,
        AttributeUpdateType::ReplaceIfEquals,
    ][usize::from(number)]
}

fn fitted(fit: Fit, right: i64) -> i64 {
    match fit {
        Fit::None | Fit::Right => right,
        Fit::Wrong => right.wrapping_add(7),
        Fit::Absent => NULL_ATTRIBUTE_VALUE,
    }
}

fn condition(fit: Fit, present: Option<i64>) -> TableCondition {
    match (fit, present) {
        (Fit::None, _) => TableCondition::Any,
        (Fit::Right, None) | (Fit::Absent, _) => TableCondition::Absent,
        (Fit::Right, Some(version)) => TableCondition::Version(version),
        (Fit::Wrong, present) => TableCondition::Version(present.unwrap_or(0) + 1),
    }
}

impl Clients {
    fn connection(&self, connection: u8) -> ConnectionId {
        ConnectionId(u64::from(connection) + 10 * self.generation[usize::from(connection)])
    }

    /// All connections are gone, as after a crash of the server.
    pub(crate) fn lose_all(&mut self) {
        self.generation.iter_mut().for_each(|generation| *generation += 1);
        self.sessions.clear();
    }

    fn kind(&self, kind: u8) -> SegmentKind {
        match kind {
            0..=3 => SegmentKind::Stream,
            4 => SegmentKind::Transient { connection: self.connection(0).0, epoch: 0 },
            5 => SegmentKind::Transient { connection: self.connection(1).0, epoch: 0 },
            6 => SegmentKind::HashTable,
            _ => SegmentKind::FixedTable { key_bytes: 2 },
        }
    }

    pub(crate) fn resolve(&mut self, op: &Op, model: &Model) -> Vec<Do> {
        match *op {
            Op::Setup { connection, writer, name } => self.set_up(connection, writer, name),
            Op::Append { connection, writer, step, bytes, fit } => {
                self.append((connection, writer), (step, bytes, fit), model)
            }
            Op::Disconnect { connection } => {
                let gone = self.connection(connection);
                self.generation[usize::from(connection)] += 1;
                self.sessions.retain(|(of, _), _| *of != connection);
                vec![Do::Disconnect(gone)]
            }
            _ => vec![Do::Request(self.request(op, model))],
        }
    }

    fn set_up(&mut self, connection: u8, of: u8, segment: u8) -> Vec<Do> {
        self.numbers += 1;
        let session = SessionId { connection: self.connection(connection), number: self.numbers };
        let earlier = self.sessions.insert((connection, of), session);
        let request = Request::SetupAppend { session, name: name(segment), writer: writer(of) };
        earlier.map(Do::EndSession).into_iter().chain([Do::Request(request)]).collect()
    }

    fn append(&mut self, by: (u8, u8), (step, bytes, fit): (i64, u16, Fit), model: &Model) -> Vec<Do> {
        let Some(session) = self.sessions.get(&by).copied() else { return Vec::new() };
        let (length, last) = model.session(session).unwrap_or_default();
        let length = i64::try_from(length).unwrap();
        let expected_offset = match fit {
            Fit::None => None,
            Fit::Right => Some(length),
            Fit::Wrong => Some(length + 1),
            Fit::Absent => Some(-1),
        };
        let number = if last == NULL_ATTRIBUTE_VALUE { step } else { last + step };
        self.filled += 1;
        let data = (0..u64::from(bytes)).map(|at| u8::try_from((self.filled * 37 + at * 11) % 251).unwrap());
        let events = u32::from(bytes % 5) + 1;
        let put = Put { session, number, data: data.collect(), events, expected_offset };
        vec![Do::Append(put, writer(by.1))]
    }

    fn request(&self, op: &Op, model: &Model) -> Request {
        let length = |of: u8| model.segments.get(&name(of)).map_or(0, Segment::length);
        let signed = |length: u64| i64::try_from(length).unwrap();
        let expected = |fit: Fit, of: u8| match fit {
            Fit::Right => Some(signed(length(of))),
            Fit::Wrong => Some(signed(length(of)) + 1),
            Fit::None | Fit::Absent => None,
        };
        match *op {
            Op::Create { name: of, kind } => {
                let policy = Policy { scale_type: 1, target_rate: i32::from(kind) };
                Request::Create { name: name(of), kind: self.kind(kind), policy, rollover_bytes: 9 }
            }
            Op::Seal { name: of } => Request::Seal { name: name(of) },
            Op::Delete { name: of, other_kind, must_be_empty } => {
                let table = model.segments.get(&name(of)).is_some_and(|segment| segment.kind.is_table());
                Request::Delete { name: name(of), table: table ^ other_kind, must_be_empty }
            }
            Op::Truncate { name: of, permille } => {
                Request::Truncate { name: name(of), offset: signed(length(of)) * permille / 1000 }
            }
            Op::SetPolicy { name: of, rate } => {
                Request::UpdatePolicy { name: name(of), policy: Policy { scale_type: 2, target_rate: rate } }
            }
            Op::GetAttribute { name: of, attribute: id } => {
                Request::GetAttribute { name: name(of), attribute: attribute(id) }
            }
            Op::UpdateAttribute { name: of, attribute: id, value, fit } => Request::UpdateAttribute {
                name: name(of),
                attribute: attribute(id),
                new_value: if value == -3 { NULL_ATTRIBUTE_VALUE } else { value },
                expected: fitted(fit, model.attribute(&name(of), attribute(id))),
            },
            Op::Merge { target, source, ref updates } => {
                let update = |(id, kind, value, fit): &(u8, u8, i64, Fit)| AttributeUpdate {
                    attribute_id: attribute(*id),
                    update_type: update_type(*kind),
                    new_value: *value,
                    old_value: fitted(*fit, model.attribute(&name(target), attribute(*id))),
                };
                let updates = updates.iter().map(update).collect();
                Request::Merge { target: name(target), source: name(source), updates }
            }
            Op::MergeBatch { target, ref sources } => Request::MergeBatch {
                target: name(target),
                sources: sources.iter().map(|source| name(*source)).collect(),
            },
            Op::Update { name: of, ref puts, fit } => {
                let put = |(id, fit, fill): &(u8, Fit, u8)| TablePut {
                    key: key(*id),
                    value: Bytes::from(vec![*fill; usize::from(*fill)]),
                    condition: condition(*fit, model.version(&name(of), &key(*id))),
                };
                let puts = puts.iter().map(put).collect();
                Request::TableUpdate { name: name(of), puts, expected_length: expected(fit, of) }
            }
            Op::Remove { name: of, ref keys, fit } => {
                let judged =
                    |(id, fit): &(u8, Fit)| (key(*id), condition(*fit, model.version(&name(of), &key(*id))));
                let keys = keys.iter().map(judged).collect();
                Request::TableRemove { name: name(of), keys, expected_length: expected(fit, of) }
            }
            Op::Setup { .. } | Op::Append { .. } | Op::Disconnect { .. } => {
                unreachable!("resolved by the caller")
            }
        }
    }
}
