//! The state of a container, pure: what stands, what is in flight, and what a request makes of it.
//!
//! [`State::admit`] judges a request against *staged* state and returns the records that it decides; [`State::apply`]
//! makes durable records *applied* state. Readers and the index only ever see applied state. Nothing here is async,
//! reads a clock, or touches log, disk or index: rows that are not in memory are seen through [`Rows`], and
//! [`State::missing`] tells which of them a request needs before it can be judged.
//!
//! All segments of a container are in memory; attributes and table keys are not.

mod admit;
mod apply;
mod attribute;
mod extent;
mod piece;
mod segment;
mod session;
mod table;

pub use apply::{Effect, RowChange};
pub use extent::{Object, Phase, decode_extent, decode_object, encode_extent, encode_object};
pub use piece::{Added, AppendPlace, Piece, Pieces, Source, Uncovered};
pub use segment::{Core, RowError, Segment};

use crate::operation::{Record, SegmentKind, SessionId};
use crate::types::{ContainerEpoch, SegmentId, SequenceNumber};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use session::Session;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A row that a request needs and memory may lack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// An attribute's value.
    Attribute(SegmentId, Uuid),
    /// A table key's version.
    TableKey(SegmentId, Bytes),
}

/// Rows outside memory, as far as they are known at this moment.
pub trait Rows {
    /// The value of an attribute (the null value if unset); `None` if it is not known.
    fn attribute(&self, segment: SegmentId, attribute: Uuid) -> Option<i64>;
    /// The version of a table key; `None` if it is not known.
    fn table_version(&self, segment: SegmentId, key: &Bytes) -> Option<KeyVersion>;
}

/// What is known of a table key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVersion {
    /// It does not exist.
    Absent,
    /// It exists with this version.
    Is(i64),
}

impl KeyVersion {
    /// The version, if the key exists.
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Absent => None,
            Self::Is(version) => Some(version),
        }
    }
}

impl From<Option<i64>> for KeyVersion {
    fn from(version: Option<i64>) -> Self {
        version.map_or(Self::Absent, Self::Is)
    }
}

/// What a judgement sees, and where its decisions go.
pub(crate) struct Judging<'a> {
    pub(crate) rows: &'a dyn Rows,
    pub(crate) now_ms: i64,
    pub(crate) records: &'a mut Vec<(SequenceNumber, Record)>,
}

/// The state of one container.
pub struct State {
    epoch: ContainerEpoch,
    /// Sequence number that the next record will get.
    next: SequenceNumber,
    segments: BTreeMap<SegmentId, Segment>,
    /// Staged: a name is here from the admission of its creation to that of its end.
    names: HashMap<String, SegmentId>,
    sessions: HashMap<SessionId, Session>,
    /// Transient segments, so that the end of a connection need not look at all segments.
    transients: BTreeSet<SegmentId>,
    /// Sequence number of the last applied record.
    applied_upto: SequenceNumber,
    /// Versions of table keys changed by records in flight, with the newest such record.
    staged_keys: HashMap<(SegmentId, Bytes), (KeyVersion, SequenceNumber)>,
    /// Segments whose rows differ from the index, each once.
    dirty_segments: Vec<SegmentId>,
    /// Resident attributes whose rows differ from the index, each once.
    dirty_attributes: Vec<(SegmentId, Uuid)>,
    objects: extent::Objects,
    /// Row changes not yet taken by the index.
    changes: Vec<RowChange>,
}

impl State {
    /// An empty state whose first record will follow `applied`.
    pub fn new(epoch: ContainerEpoch, applied: SequenceNumber) -> Self {
        Self {
            epoch,
            next: applied.next(),
            segments: BTreeMap::new(),
            names: HashMap::new(),
            sessions: HashMap::new(),
            transients: BTreeSet::new(),
            applied_upto: applied,
            staged_keys: HashMap::new(),
            dirty_segments: Vec::new(),
            dirty_attributes: Vec::new(),
            objects: extent::Objects::default(),
            changes: Vec::new(),
        }
    }

    /// Sequence number that the next record will get.
    pub fn next_sequence(&self) -> SequenceNumber {
        self.next
    }

    /// Takes in a segment's row, before any record is applied.
    pub fn load_segment(&mut self, segment: Segment) {
        self.names.insert(segment.name.clone(), segment.id);
        self.insert(segment);
    }

    fn insert(&mut self, segment: Segment) {
        if matches!(segment.kind, SegmentKind::Transient { .. }) {
            self.transients.insert(segment.id);
        }
        let replaced = self.segments.insert(segment.id, segment);
        assert!(replaced.is_none(), "a segment id is never used twice");
    }

    /// Sequence number of the last applied record.
    pub fn applied_upto(&self) -> SequenceNumber {
        self.applied_upto
    }

    /// Makes staged state equal to applied state: the last step of recovery.
    pub fn settle(&mut self, next: SequenceNumber) {
        assert!(self.next <= next, "sequence numbers never go back");
        self.next = next;
        for segment in self.segments.values_mut() {
            segment.staged = segment.applied;
        }
    }

    /// The segment of that name, staged.
    pub fn resolve(&self, name: &str) -> Option<SegmentId> {
        self.names.get(name).copied()
    }

    /// The name by which a session was set up.
    pub fn session_name(&self, session: SessionId) -> Option<&str> {
        self.sessions.get(&session).map(|session| &*session.name)
    }

    /// A segment by id.
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(&id)
    }

    /// All segments, by id.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values()
    }

    /// Takes the row changes that came up since the last call.
    pub fn take_changes(&mut self, into: &mut Vec<RowChange>) {
        into.append(&mut self.changes);
    }

    /// Takes the rows, as of the last applied record, of everything resident that differs from the index.
    ///
    /// From here on the segments count as present in the index's store.
    pub fn take_dirty(&mut self) -> Dirty {
        let mut dirty = Dirty::default();
        for (id, attribute) in std::mem::take(&mut self.dirty_attributes) {
            let Some(segment) = self.segments.get_mut(&id) else { continue };
            let Some(resident) = segment.attributes.get_mut(&attribute) else { continue };
            if resident.dirty {
                resident.dirty = false;
                dirty.attributes.push((id, attribute, resident.applied, !segment.flushed));
            }
        }
        for id in std::mem::take(&mut self.dirty_segments) {
            let Some(segment) = self.segments.get_mut(&id) else { continue };
            segment.dirty = false;
            dirty.segments.push((id, segment.encode_row(), !segment.flushed));
            segment.flushed = true;
        }
        dirty
    }

    /// Whether any segment or resident attribute differs from the index.
    pub fn is_dirty(&self) -> bool {
        !self.dirty_segments.is_empty() || !self.dirty_attributes.is_empty()
    }

    fn mark_dirty(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.get_mut(&id)
            && !segment.dirty
        {
            segment.dirty = true;
            self.dirty_segments.push(id);
        }
    }
}

/// Rows that [`State::take_dirty`] hands to an index flush; the flag tells that the store has no such row.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Segment rows.
    pub segments: Vec<(SegmentId, Bytes, bool)>,
    /// Attribute values.
    pub attributes: Vec<(SegmentId, Uuid, i64, bool)>,
}

#[cfg(test)]
pub(crate) mod tests;
