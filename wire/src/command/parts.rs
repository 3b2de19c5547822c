//! Values nested in commands.

use crate::codec::{Blob, DecodeError, Reader, Wire, put_length};
use crate::limits::KEY_NO_VERSION;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// An event as it lies in a segment: type code 0, length, payload. Holds the payload only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event(pub Bytes);

impl Wire for Event {
    fn put(&self, out: &mut BytesMut) {
        0_i32.put(out);
        put_length(self.0.len(), out);
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        if i32::get(from)? != 0 {
            return Err(DecodeError::Malformed { what: "event" });
        }
        Ok(Self(Blob::get(from)?.0))
    }
}

/// A table key with the version it must have, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// The key's bytes; an empty key carries no version on the wire.
    pub key: Bytes,
    /// [`KEY_NO_VERSION`], [`crate::limits::KEY_NOT_EXISTS`], or a version ≥ 0.
    pub version: i64,
}

impl Wire for TableKey {
    const BYTES_MIN: usize = 8;

    fn put(&self, out: &mut BytesMut) {
        put_length(4 + self.key.len() + 8, out);
        put_length(self.key.len(), out);
        if !self.key.is_empty() {
            out.extend_from_slice(&self.key);
            self.version.put(out);
        }
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let total = i32::get(from)?;
        let key = Blob::get(from)?.0;
        if i64::from(total) != i64::try_from(key.len()).unwrap_or(i64::MAX).saturating_add(12) {
            return Err(DecodeError::Malformed { what: "table key" });
        }
        let version = if key.is_empty() { KEY_NO_VERSION } else { i64::get(from)? };
        Ok(Self { key, version })
    }
}

/// A table key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The key.
    pub key: TableKey,
    /// The value's bytes; may be empty.
    pub value: Bytes,
}

impl Wire for TableEntry {
    const BYTES_MIN: usize = 16;

    fn put(&self, out: &mut BytesMut) {
        self.key.put(out);
        put_length(4 + self.value.len(), out);
        put_length(self.value.len(), out);
        out.extend_from_slice(&self.value);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let key = TableKey::get(from)?;
        let total = i32::get(from)?;
        let value = Blob::get(from)?.0;
        if i64::from(total) != i64::try_from(value.len()).unwrap_or(i64::MAX).saturating_add(4) {
            return Err(DecodeError::Malformed { what: "table value" });
        }
        Ok(Self { key, value })
    }
}

/// Where a table iteration starts and ends; each part may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IteratorArgs {
    /// What the previous page returned; empty at the start.
    pub continuation_token: Bytes,
    /// Always empty, ignored.
    pub prefix_filter: Bytes,
    /// First key, inclusive; fixed key length only.
    pub from_key: Bytes,
    /// Last key, inclusive; fixed key length only.
    pub to_key: Bytes,
}

impl Wire for IteratorArgs {
    fn put(&self, out: &mut BytesMut) {
        for part in [&self.continuation_token, &self.prefix_filter, &self.from_key, &self.to_key] {
            put_length(part.len(), out);
            out.extend_from_slice(part);
        }
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let mut part = || {
            if from.remaining() >= 4 { Blob::get(from).map(|blob| blob.0) } else { Ok(Bytes::new()) }
        };
        Ok(Self { continuation_token: part()?, prefix_filter: part()?, from_key: part()?, to_key: part()? })
    }
}

/// How an attribute changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeUpdateType {
    /// Set only if unset.
    None,
    /// Replace.
    Replace,
    /// Replace if greater.
    ReplaceIfGreater,
    /// Add.
    Accumulate,
    /// Replace if equal to the old value.
    ReplaceIfEquals,
}

/// A change of one attribute, with its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeUpdate {
    /// The attribute.
    pub attribute_id: crate::codec::Uuid,
    /// How it changes.
    pub update_type: AttributeUpdateType,
    /// The new value, or what is added.
    pub new_value: i64,
    /// The value that it must have for [`AttributeUpdateType::ReplaceIfEquals`].
    pub old_value: i64,
}

impl Wire for AttributeUpdate {
    const BYTES_MIN: usize = 33;

    fn put(&self, out: &mut BytesMut) {
        self.attribute_id.put(out);
        let update_type: i8 = match self.update_type {
            AttributeUpdateType::None => 0,
            AttributeUpdateType::Replace => 1,
            AttributeUpdateType::ReplaceIfGreater => 2,
            AttributeUpdateType::Accumulate => 3,
            AttributeUpdateType::ReplaceIfEquals => 4,
        };
        update_type.put(out);
        self.new_value.put(out);
        self.old_value.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let attribute_id = crate::codec::Uuid::get(from)?;
        let update_type = match i8::get(from)? {
            0 => AttributeUpdateType::None,
            1 => AttributeUpdateType::Replace,
            2 => AttributeUpdateType::ReplaceIfGreater,
            3 => AttributeUpdateType::Accumulate,
            4 => AttributeUpdateType::ReplaceIfEquals,
            _ => return Err(DecodeError::Malformed { what: "attribute update" }),
        };
        Ok(Self { attribute_id, update_type, new_value: i64::get(from)?, old_value: i64::get(from)? })
    }
}

/// A source of a batch merge and an offset of the target at or after its merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedSource {
    /// The source segment.
    pub source: String,
    /// The target's length after it.
    pub new_target_write_offset: i64,
}

impl Wire for MergedSource {
    const BYTES_MIN: usize = 10;

    fn put(&self, out: &mut BytesMut) {
        self.source.put(out);
        self.new_target_write_offset.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { source: String::get(from)?, new_target_write_offset: i64::get(from)? })
    }
}

/// A storage chunk of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Length as recorded, bytes.
    pub length_in_metadata: i64,
    /// Length as found, bytes.
    pub length_in_storage: i64,
    /// Offset of the chunk's first byte in the segment.
    pub start_offset: i64,
    /// The chunk's name in storage.
    pub chunk_name: String,
    /// Whether storage has it.
    pub exists_in_storage: bool,
}

impl Wire for ChunkInfo {
    const BYTES_MIN: usize = 27;

    fn put(&self, out: &mut BytesMut) {
        self.length_in_metadata.put(out);
        self.length_in_storage.put(out);
        self.start_offset.put(out);
        self.chunk_name.put(out);
        self.exists_in_storage.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            length_in_metadata: i64::get(from)?,
            length_in_storage: i64::get(from)?,
            start_offset: i64::get(from)?,
            chunk_name: String::get(from)?,
            exists_in_storage: bool::get(from)?,
        })
    }
}

/// A rate per second, as an IEEE 754 double in big-endian order. Two are equal if their bytes are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate(pub f64);

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Rate {}

impl Wire for Rate {
    const BYTES_MIN: usize = 8;

    fn put(&self, out: &mut BytesMut) {
        out.put_f64(self.0);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(from.take(8)?.get_f64()))
    }
}

/// What a segment with a scaling policy has to bear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLoad {
    /// The segment, under its canonical name.
    pub segment: String,
    /// 1 if rates are in units of 1,024 bytes, 2 if in events.
    pub scale_type: i8,
    /// The rate that its policy aims at.
    pub target_rate: i32,
    /// Averages over 10 seconds and over 2, 5, 10 and 20 minutes.
    pub rates: [Rate; 5],
    /// Time since its creation, ms.
    pub age_ms: i64,
}

impl Wire for SegmentLoad {
    const BYTES_MIN: usize = 2 + 1 + 4 + 5 * 8 + 8;

    fn put(&self, out: &mut BytesMut) {
        self.segment.put(out);
        self.scale_type.put(out);
        self.target_rate.put(out);
        for rate in self.rates {
            rate.put(out);
        }
        self.age_ms.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self, DecodeError> {
        let (segment, scale_type, target_rate) = (String::get(from)?, i8::get(from)?, i32::get(from)?);
        let mut rates = [Rate::default(); 5];
        for rate in &mut rates {
            *rate = Rate::get(from)?;
        }
        Ok(Self { segment, scale_type, target_rate, rates, age_ms: i64::get(from)? })
    }
}
