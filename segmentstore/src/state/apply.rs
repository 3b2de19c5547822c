//! Making durable records applied state. The same code runs live and at replay; it judges nothing.

use super::{Core, Object, Segment, State};
use crate::operation::{Extent, Record, SegmentKind, TableChange};
use crate::types::{ObjectId, SegmentId, SequenceNumber};
use bytes::Bytes;
use dhara_wire::codec::Uuid;

/// What an applied record means for whoever publishes segments to readers, in the order to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A segment is there.
    Created(SegmentId),
    /// Bytes were added; they are the record's data.
    Appended {
        /// The segment.
        segment: SegmentId,
        /// Offset of the first byte.
        offset: u64,
        /// How many, may be 0.
        length: u64,
        /// Events that they hold.
        events: u32,
    },
    /// The source's bytes are now the target's, from `offset` on.
    Moved {
        /// Whose they are.
        target: SegmentId,
        /// Whose they were.
        source: SegmentId,
        /// Offset in the target of the first one.
        offset: u64,
        /// How many, may be 0.
        length: u64,
        /// Events that they hold.
        events: u64,
        /// When the source was created, ms since 1970.
        since_ms: i64,
    },
    /// The segment's numbers changed.
    Changed(SegmentId),
    /// This range of a segment lies in an object from now on.
    Stored(Extent),
    /// The segment is gone.
    Ended(SegmentId),
}

/// A change of a row that is not in memory for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// An attribute has this value.
    Attribute {
        /// The segment.
        segment: SegmentId,
        /// The attribute.
        attribute: Uuid,
        /// Its value.
        value: i64,
    },
    /// A table key has this version and value, or is gone.
    TableKey {
        /// The table.
        segment: SegmentId,
        /// The change.
        change: TableChange,
        /// Only a hash table can be read by version.
        by_version: bool,
    },
    /// A range of a segment lies here.
    Extent(Extent),
    /// No extent begins at this offset any more.
    ExtentGone {
        /// The segment.
        segment: SegmentId,
        /// The offset.
        offset: u64,
    },
    /// An object stands here, or is forgotten.
    Object {
        /// The object.
        id: ObjectId,
        /// What is known of it.
        object: Option<Object>,
    },
    /// The segment is gone; `rows` tells whether rows besides its own may exist.
    Ended {
        /// The segment.
        segment: SegmentId,
        /// Whether rows of it must be swept.
        rows: bool,
    },
}

impl State {
    /// Applies a durable record.
    pub fn apply(&mut self, sequence: SequenceNumber, record: &Record, effects: &mut Vec<Effect>) {
        assert_eq!(sequence, self.applied_upto.next(), "records are applied in order, each once");
        self.applied_upto = sequence;
        match record {
            Record::Created { name, kind, policy, rollover_bytes, time_ms } => {
                let id = SegmentId(sequence.0);
                let segment = self.created(id, name, *kind);
                segment.rollover_bytes = *rollover_bytes;
                segment.created_ms = *time_ms;
                segment.applied =
                    Core { exists: true, modified_ms: *time_ms, policy: *policy, ..Core::default() };
                effects.push(Effect::Created(id));
                self.mark_dirty(id);
            }
            Record::Appended { segment, offset, events, time_ms, writer, number, data } => {
                let length = data.len() as u64;
                self.apply_append(*segment, *offset + length, *events, *time_ms);
                self.set_attribute(sequence, *segment, *writer, *number);
                effects.push(Effect::Appended {
                    segment: *segment,
                    offset: *offset,
                    length,
                    events: *events,
                });
            }
            Record::Sealed { segment, time_ms } => {
                self.change(*segment, effects, |core| {
                    core.sealed = true;
                    core.modified_ms = *time_ms;
                });
            }
            Record::Truncated { segment, start } => {
                self.change(*segment, effects, |core| core.start = *start);
                self.truncate_extents(*segment, *start);
            }
            Record::Deleted { segment } => self.end(*segment, effects),
            Record::PolicySet { segment, policy } => {
                self.change(*segment, effects, |core| core.policy = *policy);
            }
            Record::AttributesSet { segment, values } => self.set_attributes(sequence, *segment, values),
            Record::Merged { .. } => self.apply_merge(sequence, record, effects),
            Record::TableChanged { segment, length, entries, time_ms, changes } => {
                self.change(*segment, effects, |core| {
                    (core.length, core.entries, core.modified_ms) = (*length, *entries, *time_ms);
                });
                self.apply_table(sequence, *segment, changes);
            }
            of_objects => self.apply_objects(of_objects, effects),
        }
    }

    fn apply_objects(&mut self, record: &Record, effects: &mut Vec<Effect>) {
        match record {
            Record::ObjectsPlanned { first, count } => self.apply_planned(*first, *count),
            Record::ExtentsSet { object, level, bytes, extents } => {
                self.apply_extents((*object, *level, *bytes), extents, effects);
            }
            Record::ObjectsDead { objects } => self.apply_dead(objects),
            Record::ObjectsGone { objects } => self.apply_gone(objects),
            _ => unreachable!("called for records of objects"),
        }
    }

    /// The length that `data` had when it was encoded is all that apply needs of an append.
    fn apply_append(&mut self, id: SegmentId, length: u64, events: u32, time_ms: i64) {
        if let Some(segment) = self.segments.get_mut(&id) {
            assert!(segment.applied.length <= length && !segment.applied.sealed, "appends only add");
            segment.applied.length = length;
            segment.applied.events += u64::from(events);
            segment.applied.modified_ms = time_ms;
        }
        self.mark_dirty(id);
    }

    fn created(&mut self, id: SegmentId, name: &str, kind: SegmentKind) -> &mut Segment {
        if !self.segments.contains_key(&id) {
            self.names.insert(name.to_owned(), id);
            self.insert(Segment::new(id, name.to_owned(), kind));
        }
        match self.segments.get_mut(&id) {
            Some(segment) => segment,
            None => unreachable!("inserted above"),
        }
    }

    fn change(&mut self, id: SegmentId, effects: &mut Vec<Effect>, change: impl FnOnce(&mut Core)) {
        if let Some(segment) = self.segments.get_mut(&id) {
            change(&mut segment.applied);
            effects.push(Effect::Changed(id));
        }
        self.mark_dirty(id);
    }

    fn end(&mut self, id: SegmentId, effects: &mut Vec<Effect>) {
        let Some(segment) = self.segments.remove(&id) else { return };
        if self.names.get(&segment.name) == Some(&id) {
            self.names.remove(&segment.name);
        }
        self.transients.remove(&id);
        self.end_extents(&segment);
        self.changes.push(RowChange::Ended { segment: id, rows: segment.flushed || segment.has_rows });
        effects.push(Effect::Ended(id));
    }

    fn apply_merge(&mut self, sequence: SequenceNumber, record: &Record, effects: &mut Vec<Effect>) {
        let Record::Merged { target, source, offset, length, events, time_ms, values } = record else {
            unreachable!("called for merges")
        };
        let (target, source, offset, length, events) = (*target, *source, *offset, *length, *events);
        let since_ms = self.segments.get(&source).map_or(*time_ms, |source| source.created_ms);
        effects.push(Effect::Moved { target, source, offset, length, events, since_ms });
        self.change(target, effects, |core| {
            core.length = offset + length;
            core.events += events;
            core.modified_ms = *time_ms;
        });
        self.set_attributes(sequence, target, values);
        self.move_extents(target, source, offset);
        self.end(source, effects);
    }

    fn set_attributes(&mut self, sequence: SequenceNumber, id: SegmentId, values: &[(Uuid, i64)]) {
        for (attribute, value) in values {
            self.set_attribute(sequence, id, *attribute, *value);
        }
    }

    /// Sets an attribute where it lives: in memory while something pins it, else in the index.
    fn set_attribute(&mut self, sequence: SequenceNumber, id: SegmentId, attribute: Uuid, value: i64) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        segment.has_rows = true;
        if let Some(resident) = segment.attributes.get_mut(&attribute) {
            resident.applied = value;
            if resident.sessions > 0 || resident.staged_by > sequence {
                if !resident.dirty {
                    resident.dirty = true;
                    self.dirty_attributes.push((id, attribute));
                }
                return;
            }
            segment.attributes.remove(&attribute);
        }
        self.changes.push(RowChange::Attribute { segment: id, attribute, value });
    }

    fn apply_table(&mut self, sequence: SequenceNumber, id: SegmentId, changes: &[TableChange]) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        segment.has_rows = true;
        let by_version = segment.kind == SegmentKind::HashTable;
        for change in changes {
            let key: (SegmentId, Bytes) = (id, change.key.clone());
            if self.staged_keys.get(&key).is_some_and(|(_, by)| *by == sequence) {
                self.staged_keys.remove(&key);
            }
            self.changes.push(RowChange::TableKey { segment: id, change: change.clone(), by_version });
        }
    }
}
