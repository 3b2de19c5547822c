//! Between the state's typed rows and the index: keys, values, and rows loaded for a waiting operation.

use crate::index::{Index, IndexError, Peek, Row, key};
use crate::operation::TableChange;
use crate::read::{decode_row, encode_row};
use crate::state::{Dirty, KeyVersion, Object, RowChange, RowKey, Rows, encode_extent, encode_object};
use crate::types::{ObjectId, SegmentId};
use bytes::Bytes;
use dhara_wire::codec::Uuid;
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use std::collections::HashMap;

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowValue {
    /// An attribute's value, or the null value.
    Attribute(i64),
    /// A table key's version.
    Version(KeyVersion),
}

/// Rows loaded for operations that wait; pinned until those are judged.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    rows: HashMap<RowKey, (RowValue, u32)>,
}

impl Loaded {
    /// Pins a row; a value known already is newer than one that comes from a load.
    pub(super) fn pin(&mut self, key: RowKey, value: RowValue) {
        self.rows.entry(key).or_insert((value, 0)).1 += 1;
    }

    pub(super) fn unpin(&mut self, key: &RowKey) {
        if let Some((_, pins)) = self.rows.get_mut(key) {
            *pins -= 1;
            if *pins == 0 {
                self.rows.remove(key);
            }
        }
    }

    /// A change reached the index: what was loaded before it is no longer true.
    fn correct(&mut self, key: &RowKey, value: RowValue) {
        if let Some((loaded, _)) = self.rows.get_mut(key) {
            *loaded = value;
        }
    }

    fn get(&self, key: &RowKey) -> Option<RowValue> {
        self.rows.get(key).map(|(value, _)| *value)
    }
}

/// The rows that can be seen at this moment without waiting.
pub(super) struct Seen<'a> {
    pub(super) index: &'a Index,
    pub(super) loaded: &'a Loaded,
}

impl Rows for Seen<'_> {
    fn attribute(&self, segment: SegmentId, attribute: Uuid) -> Option<i64> {
        match self.see(&RowKey::Attribute(segment, attribute))? {
            RowValue::Attribute(value) => Some(value),
            RowValue::Version(_) => None,
        }
    }

    fn table_version(&self, segment: SegmentId, key: &Bytes) -> Option<KeyVersion> {
        match self.see(&RowKey::TableKey(segment, key.clone()))? {
            RowValue::Version(version) => Some(version),
            RowValue::Attribute(_) => None,
        }
    }
}

impl Seen<'_> {
    fn see(&self, key: &RowKey) -> Option<RowValue> {
        match self.index.peek(&index_key(key)) {
            Peek::Found(value) => parse(key, Some(value)),
            Peek::Absent => parse(key, None),
            Peek::Unknown => self.loaded.get(key),
        }
    }
}

/// Looks a row up, waiting for the index's store.
pub(super) async fn load(index: &Index, key: &RowKey) -> Result<Option<RowValue>, IndexError> {
    Ok(parse(key, index.get(&index_key(key)).await?))
}

/// What a row says now, if a look-up that began in `generation` found `found`; `None` if it must be looked up again,
/// because a change may have come and left the overlay since.
pub(super) fn newest(index: &Index, key: &RowKey, found: RowValue, generation: u64) -> Option<RowValue> {
    match index.peek(&index_key(key)) {
        Peek::Found(value) => parse(key, Some(value)),
        Peek::Absent => parse(key, None),
        Peek::Unknown => (index.generation() == generation).then_some(found),
    }
}

/// `None` for a value that this program never wrote.
fn parse(key: &RowKey, row: Option<Bytes>) -> Option<RowValue> {
    match (key, row) {
        (RowKey::Attribute(..), None) => Some(RowValue::Attribute(NULL_ATTRIBUTE_VALUE)),
        (RowKey::Attribute(..), Some(row)) => {
            Some(RowValue::Attribute(i64::from_le_bytes(row.as_ref().try_into().ok()?)))
        }
        (RowKey::TableKey(..), None) => Some(RowValue::Version(KeyVersion::Absent)),
        (RowKey::TableKey(..), Some(row)) => Some(RowValue::Version(KeyVersion::Is(decode_row(row)?.0))),
    }
}

fn index_key(key: &RowKey) -> Bytes {
    match key {
        RowKey::Attribute(segment, attribute) => key::attribute(*segment, &attribute.0.to_be_bytes()),
        RowKey::TableKey(segment, key) => key::table_key(*segment, key),
    }
}

fn attribute_row(segment: SegmentId, attribute: Uuid, value: i64, born: bool) -> Row {
    let key = key::attribute(segment, &attribute.0.to_be_bytes());
    match value {
        NULL_ATTRIBUTE_VALUE => Row::gone(key),
        value if born => Row::born(key, Bytes::copy_from_slice(&value.to_le_bytes())),
        value => Row::put(key, Bytes::copy_from_slice(&value.to_le_bytes())),
    }
}

/// Turns changes of the state into rows of the index, and corrects what was loaded before.
pub(super) fn index_rows(changes: Vec<RowChange>, loaded: &mut Loaded) -> Vec<Row> {
    let mut rows = Vec::with_capacity(changes.len() * 3);
    for change in changes {
        match change {
            RowChange::Attribute { segment, attribute, value } => {
                loaded.correct(&RowKey::Attribute(segment, attribute), RowValue::Attribute(value));
                rows.push(attribute_row(segment, attribute, value, false));
            }
            RowChange::TableKey { segment, change, by_version } => {
                let version = KeyVersion::from(change.entry.as_ref().map(|(version, _)| *version));
                loaded.correct(&RowKey::TableKey(segment, change.key.clone()), RowValue::Version(version));
                table_rows(segment, change, by_version, &mut rows);
            }
            RowChange::Extent(extent) => {
                rows.push(Row::put(key::extent(extent.segment, extent.offset), encode_extent(&extent)));
            }
            RowChange::ExtentGone { segment, offset } => rows.push(Row::gone(key::extent(segment, offset))),
            RowChange::Object { id, object } => rows.push(object_row(id, object)),
            RowChange::Ended { segment, rows: swept } => {
                rows.push(Row::gone(key::segment(segment)));
                if swept {
                    rows.push(Row::put(key::doomed(segment), Bytes::from_static(&[1])));
                }
            }
        }
    }
    rows
}

fn object_row(id: ObjectId, object: Option<Object>) -> Row {
    let key = key::object(id.epoch.into(), id.counter.into());
    match object {
        Some(object) => Row::put(key, encode_object(&object)),
        None => Row::gone(key),
    }
}

fn table_rows(segment: SegmentId, change: TableChange, by_version: bool, rows: &mut Vec<Row>) {
    let row_key = key::table_key(segment, &change.key);
    let version_key = |version: i64| key::table_version(segment, u64::try_from(version).unwrap_or(0));
    if by_version && let Some(previous) = change.previous {
        rows.push(Row::gone(version_key(previous)));
    }
    let Some((version, value)) = change.entry else {
        rows.push(Row::gone(row_key));
        return;
    };
    if by_version {
        // A version is never used twice.
        rows.push(Row::born(version_key(version), Bytes::copy_from_slice(&change.key)));
    }
    let row = encode_row(version, &value);
    rows.push(if change.previous.is_none() { Row::born(row_key, row) } else { Row::put(row_key, row) });
}

/// The rows that an index flush takes from memory; corrects what was loaded before.
pub(super) fn dirty_rows(dirty: Dirty, loaded: &mut Loaded) -> Vec<Row> {
    let attributes = dirty.attributes.into_iter().map(|(segment, attribute, value, _)| {
        loaded.correct(&RowKey::Attribute(segment, attribute), RowValue::Attribute(value));
        attribute_row(segment, attribute, value, false)
    });
    let segments = dirty.segments.into_iter().map(|(id, row, _)| Row::put(key::segment(id), row));
    attributes.chain(segments).collect()
}
