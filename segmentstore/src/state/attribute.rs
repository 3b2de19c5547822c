//! Attributes: values held in memory while a session or a record in flight needs them, and their conditions.

use super::{Judging, RowKey, Rows, Segment, State};
use crate::operation::{Answer, Record, Refusal};
use crate::types::{SegmentId, SequenceNumber};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{AttributeUpdate, AttributeUpdateType};
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use std::collections::HashMap;

/// High half of the ids of attributes that the store itself keeps.
const CORE_HIGH: u128 = 0x8000_0000_0000_0000;

/// An attribute in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute {
    /// As of the last admitted record.
    pub(super) staged: i64,
    /// The record that staged it; it may leave memory once that is applied.
    pub(super) staged_by: SequenceNumber,
    /// As of the last applied record.
    pub(super) applied: i64,
    /// Open sessions of this writer.
    pub(super) sessions: u32,
    /// Differs from the index.
    pub(super) dirty: bool,
}

impl Attribute {
    pub(super) fn loaded(value: i64) -> Self {
        Self { staged: value, staged_by: SequenceNumber(0), applied: value, sessions: 0, dirty: false }
    }
}

/// Whether clients may not set this attribute.
pub(super) fn is_core(attribute: Uuid) -> bool {
    attribute.0 >> 64 == CORE_HIGH
}

impl Segment {
    /// The staged value of an attribute; `None` if it is not known.
    pub(super) fn attribute(&self, attribute: Uuid, rows: &dyn Rows) -> Option<i64> {
        if is_core(attribute) {
            return Some(self.core_attribute(attribute));
        }
        if let Some(resident) = self.attributes.get(&attribute) {
            return Some(resident.staged);
        }
        let known = rows.attribute(self.id, attribute);
        // A segment that no flush has written has no rows besides those in the overlay.
        known.or_else(|| (!self.flushed).then_some(NULL_ATTRIBUTE_VALUE))
    }

    fn core_attribute(&self, attribute: Uuid) -> i64 {
        match attribute.0 & u128::from(u64::MAX) {
            0 => self.created_ms,
            1 => i64::try_from(self.staged.events).unwrap_or(i64::MAX),
            2 => i64::from(self.staged.policy.scale_type),
            3 => i64::from(self.staged.policy.target_rate),
            4 => self.rollover_bytes,
            _ => NULL_ATTRIBUTE_VALUE,
        }
    }

    fn needs_attribute(&self, attribute: Uuid, rows: &dyn Rows) -> Option<RowKey> {
        self.attribute(attribute, rows).is_none().then_some(RowKey::Attribute(self.id, attribute))
    }
}

impl State {
    /// The rows that changing or reading these attributes needs.
    pub(super) fn missing_attributes(
        &self,
        segment: Option<SegmentId>,
        attributes: impl IntoIterator<Item = Uuid>,
        rows: &dyn Rows,
    ) -> Vec<RowKey> {
        let Some(segment) = segment.and_then(|id| self.segments.get(&id)) else { return Vec::new() };
        attributes.into_iter().filter_map(|attribute| segment.needs_attribute(attribute, rows)).collect()
    }

    /// Stages an attribute's value, which moves it into memory until the record is applied.
    pub(super) fn stage_attribute(&mut self, id: SegmentId, attribute: Uuid, value: i64, was: i64) {
        let by = self.next;
        if let Some(segment) = self.segments.get_mut(&id) {
            let resident = segment.attributes.entry(attribute).or_insert(Attribute::loaded(was));
            resident.staged = value;
            resident.staged_by = by;
        }
    }

    pub(super) fn admit_get_attribute(
        &self,
        name: &str,
        attribute: Uuid,
        rows: &dyn Rows,
    ) -> Result<Answer, Refusal> {
        let id = self.resolve(name).ok_or(Refusal::NoSuchSegment)?;
        let value = self.segments[&id].attribute(attribute, rows).ok_or(Refusal::Unavailable)?;
        Ok(Answer::Attribute(value))
    }

    pub(super) fn admit_update_attribute(
        &mut self,
        name: &str,
        update: &AttributeUpdate,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let id = self.stream(name)?;
        if self.segments[&id].staged.sealed {
            return Err(Refusal::Sealed);
        }
        let Some(changes) = self.judge_updates(id, std::slice::from_ref(update), judging.rows)? else {
            return Ok(Answer::AttributeUpdated(false));
        };
        self.stage_attributes(id, &changes);
        let values = changes.iter().map(|change| (change.attribute, change.value)).collect();
        self.record(Record::AttributesSet { segment: id, values }, judging.records);
        Ok(Answer::AttributeUpdated(true))
    }

    pub(super) fn stage_attributes(&mut self, id: SegmentId, changes: &[AttributeChange]) {
        for change in changes {
            self.stage_attribute(id, change.attribute, change.value, change.was);
        }
    }

    /// Judges updates one after the other, each seeing those before it; `None` if a condition does not hold.
    pub(super) fn judge_updates(
        &self,
        id: SegmentId,
        updates: &[AttributeUpdate],
        rows: &dyn Rows,
    ) -> Result<Option<Vec<AttributeChange>>, Refusal> {
        let segment = &self.segments[&id];
        let mut changes: Vec<AttributeChange> = Vec::with_capacity(updates.len());
        let mut places: HashMap<Uuid, usize> = HashMap::with_capacity(updates.len());
        for update in updates {
            if is_core(update.attribute_id) {
                return Err(Refusal::Illegal("attribute belongs to the store"));
            }
            let earlier = places.get(&update.attribute_id).copied();
            let was = match earlier {
                Some(at) => changes[at].value,
                None => segment.attribute(update.attribute_id, rows).ok_or(Refusal::Unavailable)?,
            };
            let Some(value) = updated(update, was) else { return Ok(None) };
            if let Some(at) = earlier {
                changes[at].value = value;
            } else {
                places.insert(update.attribute_id, changes.len());
                changes.push(AttributeChange { attribute: update.attribute_id, was, value });
            }
        }
        Ok(Some(changes))
    }
}

/// An attribute's value before and after a batch of updates.
pub(super) struct AttributeChange {
    pub(super) attribute: Uuid,
    pub(super) was: i64,
    pub(super) value: i64,
}

/// The value after one update; `None` if its condition does not hold.
fn updated(update: &AttributeUpdate, was: i64) -> Option<i64> {
    let new = update.new_value;
    match update.update_type {
        AttributeUpdateType::None => (was == NULL_ATTRIBUTE_VALUE).then_some(new),
        AttributeUpdateType::Replace => Some(new),
        AttributeUpdateType::ReplaceIfGreater => (was == NULL_ATTRIBUTE_VALUE || new > was).then_some(new),
        AttributeUpdateType::Accumulate if was == NULL_ATTRIBUTE_VALUE => Some(new),
        AttributeUpdateType::Accumulate => Some(was.wrapping_add(new)),
        AttributeUpdateType::ReplaceIfEquals => (was == update.old_value).then_some(new),
    }
}
