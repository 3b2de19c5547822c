//! Records: decisions of a container, as its log holds them.
//!
//! A record needs no row beside its own segment's to be applied: offsets, versions and final values stand in it.
//! Layouts are drawn in docs/formats.md; integers are little-endian.

use super::extent::{EXTENT_BYTES, Extent, get_extent, get_object, put_extent, put_object};
use crate::types::{ObjectId, SegmentId};
use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use dhara_wire::codec::Uuid;

/// Version of every record layout written today.
pub const RECORD_VERSION: u8 = 1;

/// Bytes of an [`Record::Appended`] body before its data.
pub const APPENDED_HEADER_BYTES: u32 = 8 + 8 + 4 + 8 + 16 + 8;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// A byte sequence.
    Stream,
    /// A byte sequence that lives as long as a connection of one epoch of its container.
    Transient {
        /// The connection that created it.
        connection: u64,
        /// The container epoch it belongs to.
        epoch: u64,
    },
    /// A table with keys of any length.
    HashTable,
    /// A table whose keys all have this length.
    FixedTable {
        /// Bytes of a key, `1..=256`.
        key_bytes: u16,
    },
}

impl SegmentKind {
    /// Whether it holds entries instead of bytes.
    pub fn is_table(self) -> bool {
        matches!(self, Self::HashTable | Self::FixedTable { .. })
    }
}

/// Scale policy of a segment, kept for whoever balances load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Pravega's scale type byte: 0 none, 1 KB/s, 2 events/s; other values are kept as given.
    pub scale_type: i8,
    /// Target rate in the unit of the type.
    pub target_rate: i32,
}

/// A changed table key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The key.
    pub key: Bytes,
    /// New version and value; `None` removes the key.
    pub entry: Option<(i64, Bytes)>,
    /// Version that the key had before; `None` if it was absent.
    pub previous: Option<i64>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A segment came to be; its id is the record's sequence number.
    Created {
        /// Canonical name.
        name: String,
        /// What it is.
        kind: SegmentKind,
        /// Scale policy.
        policy: Policy,
        /// Rollover size, bytes.
        rollover_bytes: i64,
        /// Wall time, ms since 1970.
        time_ms: i64,
    },
    /// Bytes were added at the end.
    Appended {
        /// The segment.
        segment: SegmentId,
        /// Offset of the first byte.
        offset: u64,
        /// Events in the data.
        events: u32,
        /// Wall time, ms since 1970.
        time_ms: i64,
        /// The writer.
        writer: Uuid,
        /// The writer's new number.
        number: i64,
        /// The bytes.
        data: Bytes,
    },
    /// The segment takes no more bytes.
    Sealed {
        /// The segment.
        segment: SegmentId,
        /// Wall time, ms since 1970.
        time_ms: i64,
    },
    /// The segment's start moved.
    Truncated {
        /// The segment.
        segment: SegmentId,
        /// New start.
        start: u64,
    },
    /// The segment is gone.
    Deleted {
        /// The segment.
        segment: SegmentId,
    },
    /// The scale policy changed.
    PolicySet {
        /// The segment.
        segment: SegmentId,
        /// New policy.
        policy: Policy,
    },
    /// Attributes changed.
    AttributesSet {
        /// The segment.
        segment: SegmentId,
        /// Final values; the null value unsets.
        values: Vec<(Uuid, i64)>,
    },
    /// The source became the end of the target and is gone.
    Merged {
        /// The target.
        target: SegmentId,
        /// The source.
        source: SegmentId,
        /// Offset in the target of the source's first byte.
        offset: u64,
        /// Bytes that moved.
        length: u64,
        /// Events that moved.
        events: u64,
        /// Wall time, ms since 1970.
        time_ms: i64,
        /// Final values of the target's changed attributes.
        values: Vec<(Uuid, i64)>,
    },
    /// Table keys changed.
    TableChanged {
        /// The table.
        segment: SegmentId,
        /// The table's length after it.
        length: u64,
        /// Its number of keys after it.
        entries: u64,
        /// Wall time, ms since 1970.
        time_ms: i64,
        /// The changes, in order.
        changes: Vec<TableChange>,
    },
    /// Names that objects may be uploaded under from now on.
    ObjectsPlanned {
        /// The first one.
        first: ObjectId,
        /// How many, > 0.
        count: u32,
    },
    /// An object is uploaded, and these ranges of segments lie in it from now on, wherever they lay before.
    ExtentsSet {
        /// The object.
        object: ObjectId,
        /// How often its bytes were regrouped.
        level: u8,
        /// Its size.
        bytes: u32,
        /// The ranges, at least one; all of them in this object.
        extents: Vec<Extent>,
    },
    /// No range of any segment lies in these objects, nor ever will.
    ObjectsDead {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// These dead objects were deleted.
    ObjectsGone {
        /// The objects.
        objects: Vec<ObjectId>,
    },
}

/// A record body that cannot be read; the container must not go on without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// This program does not know the type or version.
    #[error("record type {kind} version {version} is unknown")]
    Unknown {
        /// Type byte.
        kind: u8,
        /// Version byte.
        version: u8,
    },
    /// The body does not hold its fields.
    #[error("record of type {kind} is malformed")]
    Malformed {
        /// Type byte.
        kind: u8,
    },
}

const CREATED: u8 = 1;
const APPENDED: u8 = 2;
const SEALED: u8 = 3;
const TRUNCATED: u8 = 4;
const DELETED: u8 = 5;
const POLICY_SET: u8 = 6;
const ATTRIBUTES_SET: u8 = 7;
const MERGED: u8 = 8;
const TABLE_CHANGED: u8 = 9;
const OBJECTS_PLANNED: u8 = 10;
const EXTENTS_SET: u8 = 11;
const OBJECTS_DEAD: u8 = 12;
const OBJECTS_GONE: u8 = 13;

impl Record {
    /// The type byte of [`Record::Appended`], whose data readers look for.
    pub const APPENDED: u8 = APPENDED;

    /// The type byte in the record header.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Created { .. } => CREATED,
            Self::Appended { .. } => APPENDED,
            Self::Sealed { .. } => SEALED,
            Self::Truncated { .. } => TRUNCATED,
            Self::Deleted { .. } => DELETED,
            Self::PolicySet { .. } => POLICY_SET,
            Self::AttributesSet { .. } => ATTRIBUTES_SET,
            Self::Merged { .. } => MERGED,
            Self::TableChanged { .. } => TABLE_CHANGED,
            Self::ObjectsPlanned { .. } => OBJECTS_PLANNED,
            Self::ExtentsSet { .. } => EXTENTS_SET,
            Self::ObjectsDead { .. } => OBJECTS_DEAD,
            Self::ObjectsGone { .. } => OBJECTS_GONE,
        }
    }

    /// About how many bytes the body takes; never less than its data.
    pub fn weight(&self) -> usize {
        const FIELDS: usize = 128;
        match self {
            Self::Created { name, .. } => FIELDS + name.len(),
            Self::Appended { data, .. } => FIELDS + data.len(),
            Self::TableChanged { changes, .. } => {
                let entries = changes.iter().map(|change| {
                    change.key.len() + change.entry.as_ref().map_or(0, |(_, value)| value.len()) + FIELDS
                });
                FIELDS + entries.sum::<usize>()
            }
            Self::AttributesSet { values, .. } | Self::Merged { values, .. } => FIELDS + 24 * values.len(),
            Self::ExtentsSet { extents, .. } => FIELDS + EXTENT_BYTES * extents.len(),
            Self::ObjectsDead { objects } | Self::ObjectsGone { objects } => FIELDS + 8 * objects.len(),
            _ => FIELDS,
        }
    }

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Created { name, kind, policy, rollover_bytes, time_ms } => {
                write_kind(*kind, out);
                put_policy(*policy, out);
                out.put_i64_le(*rollover_bytes);
                out.put_i64_le(*time_ms);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Appended { segment, offset, events, time_ms, writer, number, data } => {
                out.put_u64_le(segment.0);
                out.put_u64_le(*offset);
                out.put_u32_le(*events);
                out.put_i64_le(*time_ms);
                out.put_u128_le(writer.0);
                out.put_i64_le(*number);
                out.extend_from_slice(data);
            }
            Self::Sealed { segment, time_ms } => {
                out.put_u64_le(segment.0);
                out.put_i64_le(*time_ms);
            }
            Self::Truncated { segment, start } => {
                out.put_u64_le(segment.0);
                out.put_u64_le(*start);
            }
            Self::Deleted { segment } => out.put_u64_le(segment.0),
            Self::PolicySet { segment, policy } => {
                out.put_u64_le(segment.0);
                put_policy(*policy, out);
            }
            Self::AttributesSet { segment, values } => {
                out.put_u64_le(segment.0);
                put_values(values, out);
            }
            Self::Merged { target, source, offset, length, events, time_ms, values } => {
                out.put_u64_le(target.0);
                out.put_u64_le(source.0);
                out.put_u64_le(*offset);
                out.put_u64_le(*length);
                out.put_u64_le(*events);
                out.put_i64_le(*time_ms);
                put_values(values, out);
            }
            Self::TableChanged { segment, length, entries, time_ms, changes } => {
                out.put_u64_le(segment.0);
                out.put_u64_le(*length);
                out.put_u64_le(*entries);
                out.put_i64_le(*time_ms);
                put_count(changes.len(), out);
                for change in changes {
                    put_change(change, out);
                }
            }
            of_objects => of_objects.encode_objects(out),
        }
    }

    fn encode_objects(&self, out: &mut BytesMut) {
        match self {
            Self::ObjectsPlanned { first, count } => {
                put_object(*first, out);
                out.put_u32_le(*count);
            }
            Self::ExtentsSet { object, level, bytes, extents } => {
                put_object(*object, out);
                out.put_u8(*level);
                out.put_u32_le(*bytes);
                put_count(extents.len(), out);
                for extent in extents {
                    put_extent(extent, out);
                }
            }
            Self::ObjectsDead { objects } | Self::ObjectsGone { objects } => {
                put_count(objects.len(), out);
                for object in objects {
                    put_object(*object, out);
                }
            }
            _ => unreachable!("called for records of objects"),
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`RecordError`] if type or version is unknown or the body does not hold its fields.
    pub fn decode(kind: u8, version: u8, mut body: Bytes) -> Result<Self, RecordError> {
        if version != RECORD_VERSION || !(CREATED..=OBJECTS_GONE).contains(&kind) {
            return Err(RecordError::Unknown { kind, version });
        }
        decode_fields(kind, &mut body).map_err(|_short| RecordError::Malformed { kind })
    }
}

/// A field is missing or illegal; the caller knows which record it was.
struct Malformed;

impl From<TryGetError> for Malformed {
    fn from(_: TryGetError) -> Self {
        Self
    }
}

fn decode_fields(kind: u8, body: &mut Bytes) -> Result<Record, Malformed> {
    if kind == CREATED {
        let kind = get_kind(body)?;
        let policy = get_policy(body)?;
        let (rollover_bytes, time_ms) = (body.try_get_i64_le()?, body.try_get_i64_le()?);
        let name = String::from_utf8(body.to_vec()).map_err(|_not_utf8| Malformed)?;
        return Ok(Record::Created { name, kind, policy, rollover_bytes, time_ms });
    }
    if kind >= OBJECTS_PLANNED {
        return decode_objects(kind, body);
    }
    let segment = SegmentId(body.try_get_u64_le()?);
    Ok(match kind {
        APPENDED => Record::Appended {
            segment,
            offset: body.try_get_u64_le()?,
            events: body.try_get_u32_le()?,
            time_ms: body.try_get_i64_le()?,
            writer: Uuid(body.try_get_u128_le()?),
            number: body.try_get_i64_le()?,
            data: std::mem::take(body),
        },
        SEALED => Record::Sealed { segment, time_ms: body.try_get_i64_le()? },
        TRUNCATED => Record::Truncated { segment, start: body.try_get_u64_le()? },
        DELETED => Record::Deleted { segment },
        POLICY_SET => Record::PolicySet { segment, policy: get_policy(body)? },
        ATTRIBUTES_SET => Record::AttributesSet { segment, values: get_values(body)? },
        MERGED => Record::Merged {
            target: segment,
            source: SegmentId(body.try_get_u64_le()?),
            offset: body.try_get_u64_le()?,
            length: body.try_get_u64_le()?,
            events: body.try_get_u64_le()?,
            time_ms: body.try_get_i64_le()?,
            values: get_values(body)?,
        },
        _ => Record::TableChanged {
            segment,
            length: body.try_get_u64_le()?,
            entries: body.try_get_u64_le()?,
            time_ms: body.try_get_i64_le()?,
            changes: {
                let count = body.try_get_u32_le()?;
                (0..count).map(|_| get_change(body)).collect::<Result<_, _>>()?
            },
        },
    })
}

fn decode_objects(kind: u8, body: &mut Bytes) -> Result<Record, Malformed> {
    match kind {
        OBJECTS_PLANNED => {
            let (first, count) = (get_object(body).ok_or(Malformed)?, body.try_get_u32_le()?);
            first.counter.checked_add(count).filter(|_| count > 0).ok_or(Malformed)?;
            Ok(Record::ObjectsPlanned { first, count })
        }
        EXTENTS_SET => {
            let object = get_object(body).ok_or(Malformed)?;
            let (level, bytes, count) = (body.try_get_u8()?, body.try_get_u32_le()?, body.try_get_u32_le()?);
            let extents =
                (0..count).map(|_| get_extent(object, body)).collect::<Option<_>>().ok_or(Malformed)?;
            Ok(Record::ExtentsSet { object, level, bytes, extents })
        }
        _ => {
            let count = body.try_get_u32_le()?;
            let objects = (0..count).map(|_| get_object(body)).collect::<Option<_>>().ok_or(Malformed)?;
            Ok(if kind == OBJECTS_DEAD {
                Record::ObjectsDead { objects }
            } else {
                Record::ObjectsGone { objects }
            })
        }
    }
}

fn put_count(count: usize, out: &mut BytesMut) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    assert!(count < u32::MAX, "a frame cannot hold so many elements");
    out.put_u32_le(count);
}

/// Writes what a segment is: a type byte and 16 bytes of its parameters.
pub fn write_kind(kind: SegmentKind, out: &mut BytesMut) {
    let (tag, first, second) = match kind {
        SegmentKind::Stream => (0, 0, 0),
        SegmentKind::Transient { connection, epoch } => (1, connection, epoch),
        SegmentKind::HashTable => (2, 0, 0),
        SegmentKind::FixedTable { key_bytes } => (3, u64::from(key_bytes), 0),
    };
    out.put_u8(tag);
    out.put_u64_le(first);
    out.put_u64_le(second);
}

fn get_kind(from: &mut Bytes) -> Result<SegmentKind, Malformed> {
    read_kind(from).ok_or(Malformed)
}

/// Reads what [`write_kind`] wrote; `None` if it is not that.
pub fn read_kind(from: &mut Bytes) -> Option<SegmentKind> {
    let (tag, first, second) =
        (from.try_get_u8().ok()?, from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
    match tag {
        0 => Some(SegmentKind::Stream),
        1 => Some(SegmentKind::Transient { connection: first, epoch: second }),
        2 => Some(SegmentKind::HashTable),
        3 => u16::try_from(first).ok().map(|key_bytes| SegmentKind::FixedTable { key_bytes }),
        _ => None,
    }
}

fn put_policy(policy: Policy, out: &mut BytesMut) {
    out.put_i8(policy.scale_type);
    out.put_i32_le(policy.target_rate);
}

fn get_policy(from: &mut Bytes) -> Result<Policy, Malformed> {
    Ok(Policy { scale_type: from.try_get_i8()?, target_rate: from.try_get_i32_le()? })
}

fn put_values(values: &[(Uuid, i64)], out: &mut BytesMut) {
    put_count(values.len(), out);
    for (attribute, value) in values {
        out.put_u128_le(attribute.0);
        out.put_i64_le(*value);
    }
}

fn get_values(from: &mut Bytes) -> Result<Vec<(Uuid, i64)>, Malformed> {
    let count = from.try_get_u32_le()?;
    (0..count).map(|_| Ok((Uuid(from.try_get_u128_le()?), from.try_get_i64_le()?))).collect()
}

/// A missing version; versions are never negative.
const NO_VERSION: i64 = -1;

fn put_change(change: &TableChange, out: &mut BytesMut) {
    put_count(change.key.len(), out);
    out.extend_from_slice(&change.key);
    out.put_i64_le(change.previous.unwrap_or(NO_VERSION));
    if let Some((version, value)) = &change.entry {
        out.put_i64_le(*version);
        put_count(value.len(), out);
        out.extend_from_slice(value);
    } else {
        out.put_i64_le(NO_VERSION);
    }
}

fn get_change(from: &mut Bytes) -> Result<TableChange, Malformed> {
    let key = get_bytes(from)?;
    let previous = Some(from.try_get_i64_le()?).filter(|version| *version >= 0);
    let version = from.try_get_i64_le()?;
    let entry = if version < 0 { None } else { Some((version, get_bytes(from)?)) };
    Ok(TableChange { key, entry, previous })
}

fn get_bytes(from: &mut Bytes) -> Result<Bytes, Malformed> {
    let length = usize::try_from(from.try_get_u32_le()?).map_err(|_too_long| Malformed)?;
    if length > from.len() {
        return Err(Malformed);
    }
    Ok(from.split_to(length))
}

#[cfg(test)]
mod tests;
