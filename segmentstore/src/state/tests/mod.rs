//! The state against a model of the protocol, and against itself replayed from its records.

use super::*;
use crate::operation::{Answer, Append, AppendReply, AppendTag, ConnectionId, Record, Refusal, Request};
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use model::{Model, Put, plain};
use ops::{Clients, Do, Op, any_op};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) mod model;
pub(crate) mod ops;

/// Nobody listens.
struct Nobody;

impl AppendReply for Nobody {
    fn appended(&self, _: &AppendTag, _: Result<Answer, Refusal>) {}
}

pub(crate) fn append_of(put: &Put, writer: Uuid, reply: Arc<dyn AppendReply>) -> Append {
    let tag = AppendTag {
        session: put.session,
        writer,
        segment: Arc::from("as spelled"),
        number: put.number,
        request_id: put.number,
    };
    Append {
        tag,
        data: put.data.clone(),
        events: put.events,
        expected_offset: put.expected_offset,
        reply,
        permit: None,
    }
}

/// Rows outside memory: changes since the last flush, what a flush has written, and what was looked up for the
/// request at hand.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outside {
    attributes: BTreeMap<(SegmentId, u128), i64>,
    entries: BTreeMap<(SegmentId, Bytes), (i64, Bytes)>,
    segments: BTreeMap<SegmentId, Bytes>,
    /// Known without a look-up: not flushed yet.
    fresh: BTreeSet<RowKey>,
    looked_up: BTreeSet<RowKey>,
}

impl Outside {
    fn knows(&self, key: &RowKey) -> bool {
        self.fresh.contains(key) || self.looked_up.contains(key)
    }

    fn take(&mut self, change: RowChange) {
        match change {
            RowChange::Attribute { segment, attribute, value } => {
                self.fresh.insert(RowKey::Attribute(segment, attribute));
                self.set_attribute(segment, attribute, value);
            }
            RowChange::TableKey { segment, change, .. } => {
                self.fresh.insert(RowKey::TableKey(segment, change.key.clone()));
                let key = (segment, change.key);
                let before = self.entries.get(&key).map(|(version, _)| *version);
                assert_eq!(before, change.previous, "a change names the version that it replaces");
                match change.entry {
                    Some(entry) => drop(self.entries.insert(key, entry)),
                    None => drop(self.entries.remove(&key)),
                }
            }
            RowChange::Extent(_) | RowChange::ExtentGone { .. } | RowChange::Object { .. } => {
                unreachable!("nothing is stored here")
            }
            RowChange::Ended { segment, rows } => {
                let any = self.attributes.keys().any(|(of, _)| *of == segment)
                    || self.entries.keys().any(|(of, _)| *of == segment);
                assert!(rows || !any, "rows of an ended segment must be swept");
                self.segments.remove(&segment);
                self.attributes.retain(|(of, _), _| *of != segment);
                self.entries.retain(|(of, _), _| *of != segment);
            }
        }
    }

    fn set_attribute(&mut self, segment: SegmentId, attribute: Uuid, value: i64) {
        if value == NULL_ATTRIBUTE_VALUE {
            self.attributes.remove(&(segment, attribute.0));
        } else {
            self.attributes.insert((segment, attribute.0), value);
        }
    }

    fn flush(&mut self, state: &mut State) {
        let dirty = state.take_dirty();
        for (id, attribute, value, _) in dirty.attributes {
            self.set_attribute(id, attribute, value);
        }
        self.segments.extend(dirty.segments.into_iter().map(|(id, row, _)| (id, row)));
        self.fresh.clear();
    }

    /// The rows alone, without what is known of them.
    fn rows(&self) -> Self {
        Self { fresh: BTreeSet::new(), looked_up: BTreeSet::new(), ..self.clone() }
    }
}

impl Rows for Outside {
    fn attribute(&self, segment: SegmentId, attribute: Uuid) -> Option<i64> {
        let value = self.attributes.get(&(segment, attribute.0)).copied().unwrap_or(NULL_ATTRIBUTE_VALUE);
        self.knows(&RowKey::Attribute(segment, attribute)).then_some(value)
    }

    fn table_version(&self, segment: SegmentId, key: &Bytes) -> Option<KeyVersion> {
        let version = self.entries.get(&(segment, key.clone())).map(|(version, _)| *version);
        self.knows(&RowKey::TableKey(segment, key.clone())).then_some(KeyVersion::from(version))
    }
}

/// A state with its rows, and the records that it decided.
struct World {
    state: State,
    outside: Outside,
    records: Vec<(SequenceNumber, Record)>,
    applied: usize,
    sessions: BTreeMap<ConnectionId, Vec<SessionId>>,
    /// Rows as a flush left them.
    flushed: Option<(SequenceNumber, Outside)>,
    cores: BTreeMap<SegmentId, Core>,
}

const EPOCH: ContainerEpoch = ContainerEpoch(3);

impl World {
    fn new() -> Self {
        Self {
            state: State::new(EPOCH, SequenceNumber(0)),
            outside: Outside::default(),
            records: Vec::new(),
            applied: 0,
            sessions: BTreeMap::new(),
            flushed: None,
            cores: BTreeMap::new(),
        }
    }

    /// Does what a container does with it, looking up what is missing.
    fn judge(&mut self, what: &Do, now_ms: i64) -> Option<Result<Answer, Refusal>> {
        let before = self.state.next_sequence();
        let decided = self.records.len();
        let outcome = match what {
            Do::Request(request) => {
                self.outside.looked_up.clear();
                self.outside.looked_up = self.state.missing(request, &self.outside).into_iter().collect();
                assert!(self.state.missing(request, &self.outside).is_empty());
                let outcome = self.state.admit(request, &self.outside, now_ms, &mut self.records);
                if let Request::SetupAppend { session, .. } = request {
                    self.sessions.entry(session.connection).or_default().push(*session);
                }
                Some(outcome)
            }
            Do::Append(put, writer) => {
                let judged = self.state.admit_append(&append_of(put, *writer, Arc::new(Nobody)), now_ms);
                Some(judged.map(|(record, answer)| {
                    self.records.push((before, record));
                    answer
                }))
            }
            Do::EndSession(session) => {
                self.state.end_session(*session);
                None
            }
            Do::Disconnect(connection) => {
                let sessions = self.sessions.remove(connection).unwrap_or_default();
                self.state.admit_disconnect(*connection, &sessions, &mut self.records);
                None
            }
        };
        if matches!(outcome, Some(Err(_))) {
            assert_eq!(self.records.len(), decided, "a refusal decides nothing");
        }
        for (n, (sequence, _)) in self.records[decided..].iter().enumerate() {
            assert_eq!(sequence.0, before.0 + n as u64, "records are numbered without a gap");
        }
        self.take_changes();
        outcome
    }

    fn take_changes(&mut self) {
        let mut changes = Vec::new();
        self.state.take_changes(&mut changes);
        for change in changes {
            self.outside.take(change);
        }
    }

    fn apply(&mut self, most: usize) {
        for _ in 0..most {
            let Some((sequence, record)) = self.records.get(self.applied) else { return };
            self.state.apply(*sequence, record, &mut Vec::new());
            self.applied += 1;
            self.take_changes();
        }
        for segment in self.state.segments() {
            let core = segment.applied;
            assert!(core.start <= core.length || segment.kind.is_table());
            let earlier = self.cores.insert(segment.id, core).unwrap_or_default();
            assert!(earlier.start <= core.start && earlier.length <= core.length, "they never fall");
            assert!(!earlier.sealed || (core.sealed && core.length == earlier.length), "sealed is final");
        }
    }

    fn flush(&mut self) {
        self.outside.flush(&mut self.state);
        self.flushed = Some((self.state.applied_upto(), self.outside.rows()));
    }

    fn compare(&mut self, model: &Model) -> Result<(), TestCaseError> {
        let names: Vec<&String> = self.state.names.keys().collect();
        prop_assert_eq!(names.len(), model.segments.len());
        for (name, expected) in &model.segments {
            let id = self.state.resolve(name).expect("the segment is there");
            let segment = &self.state.segments[&id];
            prop_assert_eq!(segment.kind, expected.kind);
            prop_assert_eq!(segment.staged, segment.applied);
            let core = segment.applied;
            prop_assert!(core.exists);
            prop_assert_eq!((core.start, core.length), (expected.start, expected.length()));
            prop_assert_eq!((core.sealed, core.events), (expected.sealed, expected.events));
            prop_assert_eq!(core.entries, expected.entries.len() as u64);
            let of = |(segment, _): &(SegmentId, u128)| *segment == id;
            let attributes: BTreeMap<u128, i64> = self
                .outside
                .attributes
                .iter()
                .filter(|(key, _)| of(key))
                .map(|((_, attribute), value)| (*attribute, *value))
                .collect();
            prop_assert_eq!(&attributes, &expected.attributes);
            let entries: BTreeMap<Bytes, (i64, Bytes)> = self
                .outside
                .entries
                .iter()
                .filter(|((segment, _), _)| *segment == id)
                .map(|((_, key), entry)| (key.clone(), entry.clone()))
                .collect();
            prop_assert_eq!(&entries, &expected.entries);
        }
        Ok(())
    }
}

/// Builds the state anew from rows and the records after them, as a recovery does; returns its rows.
fn replayed(from: Option<&(SequenceNumber, Outside)>, records: &[(SequenceNumber, Record)]) -> Outside {
    let (upto, mut outside) = from.cloned().unwrap_or_default();
    let mut state = State::new(ContainerEpoch(EPOCH.0 + 1), upto);
    for (id, row) in &outside.segments {
        state.load_segment(Segment::decode_row(*id, row.clone()).expect("a row of ours"));
    }
    for (sequence, record) in records.iter().filter(|(sequence, _)| *sequence > upto) {
        let mut encoded = bytes::BytesMut::new();
        record.encode(&mut encoded);
        let read = Record::decode(record.kind(), crate::operation::RECORD_VERSION, encoded.freeze());
        state.apply(*sequence, &read.expect("a record of ours"), &mut Vec::new());
        let mut changes = Vec::new();
        state.take_changes(&mut changes);
        for change in changes {
            outside.take(change);
        }
    }
    outside.flush(&mut state);
    outside.rows()
}

/// How far apply lags behind after a step, and whether the index is flushed then.
type Lag = (u8, bool);

fn run(steps: &[(Op, Lag)]) -> Result<(), TestCaseError> {
    let (mut world, mut clients) = (World::new(), Clients::default());
    let mut model = Model::new(EPOCH.0);
    for (now_ms, (op, (apply, flush))) in (1000..).zip(steps) {
        for what in clients.resolve(op, &model) {
            let outcome = world.judge(&what, now_ms).map(plain);
            let expected = match &what {
                Do::Request(request) => Some(model.judge(request, now_ms)),
                Do::Append(put, _) => Some(model.append(put)),
                Do::EndSession(session) => {
                    model.end_session(*session);
                    None
                }
                Do::Disconnect(connection) => {
                    model.disconnect(*connection);
                    None
                }
            };
            prop_assert_eq!(outcome, expected, "{:?}", what);
        }
        world.apply(usize::from(*apply));
        if *flush {
            world.flush();
        }
        prop_assert_eq!(world.state.sessions.len(), model.sessions());
    }
    world.apply(usize::MAX);
    prop_assert!(world.state.staged_keys.is_empty(), "nothing is staged once all is applied");
    let flushed = world.flushed.take();
    world.flush();
    world.compare(&model)?;
    prop_assert_eq!(&replayed(None, &world.records), &world.outside.rows());
    prop_assert_eq!(&replayed(flushed.as_ref(), &world.records), &world.outside.rows());
    let resident: usize = world.state.segments().map(|segment| segment.attributes.len()).sum();
    prop_assert!(resident <= model.sessions(), "only open sessions keep attributes in memory");
    Ok(())
}

fn any_steps(most: usize) -> impl Strategy<Value = Vec<(Op, Lag)>> {
    vec(
        (any_op(), (prop_oneof![2 => Just(0_u8), 2 => 0..4_u8, 1 => Just(40)], prop::bool::weighted(0.1))),
        0..most,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Invariants 8 to 12, 14, 15, 18 to 20, 22, 23 and 50.
    #[test]
    fn state_agrees_with_the_model_and_with_its_replay(steps in any_steps(120)) {
        run(&steps)?;
    }
}

/// Found by the model: the attributes of a policy in flight were those before it.
#[test]
fn policy_in_flight_is_what_the_next_request_sees() {
    let steps = [
        Op::Create { name: 0, kind: 0 },
        Op::SetPolicy { name: 0, rate: 77 },
        Op::GetAttribute { name: 0, attribute: 6 },
        Op::GetAttribute { name: 0, attribute: 7 },
    ];
    run(&steps.map(|op| (op, (0, false)))).unwrap();
}
