//! One segment and its row.

use super::attribute::Attribute;
use crate::operation::{Extent, Policy, SegmentKind, read_kind, write_kind};
use crate::types::SegmentId;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use dhara_wire::codec::Uuid;
use std::collections::{BTreeMap, HashMap};

/// The numbers of a segment. Two copies exist: one staged, one applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Whether it exists: false before its creation, and after its end, is applied or staged.
    pub exists: bool,
    /// First readable offset.
    pub start: u64,
    /// Offset after the last byte; of a table, the end of its version space.
    pub length: u64,
    /// Takes no more bytes.
    pub sealed: bool,
    /// Events appended so far.
    pub events: u64,
    /// Keys of a table.
    pub entries: u64,
    /// Wall time of the last change, ms since 1970.
    pub modified_ms: i64,
    /// Scale policy.
    pub policy: Policy,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    /// Sequence number of its creation.
    pub id: SegmentId,
    /// Canonical name.
    pub name: String,
    /// What it is.
    pub kind: SegmentKind,
    /// Rollover size, bytes.
    pub rollover_bytes: i64,
    /// Wall time of its creation, ms since 1970.
    pub created_ms: i64,
    /// As of the last admitted record.
    pub staged: Core,
    /// As of the last applied record.
    pub applied: Core,
    /// Attributes held in memory: those of open sessions and of records in flight.
    pub(super) attributes: HashMap<Uuid, Attribute>,
    /// Its ranges that lie in objects, by offset.
    pub(super) extents: BTreeMap<u64, Extent>,
    /// The index's store may hold rows of it.
    pub(super) flushed: bool,
    /// Rows besides its own may exist, in the index or on the way there.
    pub(super) has_rows: bool,
    /// Its row differs from the index.
    pub(super) dirty: bool,
}

/// A segment row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row of segment {id} is malformed")]
pub struct RowError {
    /// The segment.
    pub id: SegmentId,
}

const ROW_VERSION: u8 = 1;

impl Segment {
    pub(super) fn new(id: SegmentId, name: String, kind: SegmentKind) -> Self {
        Self {
            id,
            name,
            kind,
            rollover_bytes: 0,
            created_ms: 0,
            staged: Core::default(),
            applied: Core::default(),
            attributes: HashMap::new(),
            extents: BTreeMap::new(),
            flushed: false,
            has_rows: false,
            dirty: false,
        }
    }

    /// Its ranges that lie in objects, in offset order.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.extents.values()
    }

    /// Encodes the row, as of applied state.
    pub(super) fn encode_row(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96 + self.name.len());
        out.put_u8(ROW_VERSION);
        write_kind(self.kind, &mut out);
        out.put_i8(self.applied.policy.scale_type);
        out.put_i32_le(self.applied.policy.target_rate);
        out.put_i64_le(self.rollover_bytes);
        out.put_i64_le(self.created_ms);
        out.put_u64_le(self.applied.start);
        out.put_u64_le(self.applied.length);
        out.put_u8(u8::from(self.applied.sealed));
        out.put_u64_le(self.applied.events);
        out.put_u64_le(self.applied.entries);
        out.put_i64_le(self.applied.modified_ms);
        out.extend_from_slice(self.name.as_bytes());
        out.freeze()
    }

    /// Reads a row of the index.
    ///
    /// # Errors
    /// [`RowError`] if it is not one that a version of this program wrote.
    pub fn decode_row(id: SegmentId, mut row: Bytes) -> Result<Self, RowError> {
        Self::read_row(id, &mut row).ok_or(RowError { id })
    }

    fn read_row(id: SegmentId, row: &mut Bytes) -> Option<Self> {
        if row.try_get_u8().ok()? != ROW_VERSION {
            return None;
        }
        let kind = read_kind(row)?;
        let policy = Policy { scale_type: row.try_get_i8().ok()?, target_rate: row.try_get_i32_le().ok()? };
        let (rollover_bytes, created_ms) = (row.try_get_i64_le().ok()?, row.try_get_i64_le().ok()?);
        let core = Core {
            exists: true,
            start: row.try_get_u64_le().ok()?,
            length: row.try_get_u64_le().ok()?,
            sealed: row.try_get_u8().ok()? != 0,
            events: row.try_get_u64_le().ok()?,
            entries: row.try_get_u64_le().ok()?,
            modified_ms: row.try_get_i64_le().ok()?,
            policy,
        };
        let name = String::from_utf8(row.to_vec()).ok()?;
        if core.start > core.length {
            return None;
        }
        let mut segment = Self::new(id, name, kind);
        (segment.rollover_bytes, segment.created_ms) = (rollover_bytes, created_ms);
        (segment.staged, segment.applied, segment.flushed) = (core, core, true);
        Some(segment)
    }
}
