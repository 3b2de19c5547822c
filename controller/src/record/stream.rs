//! Rows of a stream's own table: what `stream` decides over, as it is stored.

use bytes::{Bytes, BytesMut};

use super::codec::{CorruptRow, Field, Row, fields, tags};
use crate::stream::group::{GroupId, Subscription};
use crate::stream::transaction::{Commit, RollingStart, Round};
use crate::stream::watermark::WriterMark;
use crate::stream::{
    EpochRecord, KeyRange, RatePolicy, RetentionPolicy, ScaleOrigin, ScalingPolicy, Segment, SegmentId,
    StreamConfig, StreamCut, StreamState, Transaction, TransactionId, TransactionState, Transition,
    TruncationRecord,
};

/// The row that every workflow of a stream changes: its version keeps two of them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// State of the stream.
    pub(crate) state: StreamState,
    /// Number of the active epoch; of the last one if the stream is sealed.
    pub(crate) active_epoch: i32,
}

/// The configuration in force and the one that is being put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    /// In force.
    pub(crate) current: StreamConfig,
    /// Asked for and not yet in force.
    pub(crate) pending: Option<StreamConfig>,
}

/// The pending scale, if any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ScaleRow {
    /// The scale.
    pub(crate) pending: Option<Transition>,
}

/// The commit round under way, if any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CommitRow {
    /// The round.
    pub(crate) pending: Option<Round>,
}

/// That the stream is to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SealRow {
    /// Whether a caller has asked for it.
    pub(crate) asked: bool,
}

/// When and how long a segment was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedRow {
    /// The epoch that replaced the segment.
    pub(crate) epoch: i32,
    /// Its length in bytes once it is known.
    pub(crate) length: Option<i64>,
}

impl Row for Head {}
impl Row for ConfigRow {}
impl Row for ScaleRow {}
impl Row for CommitRow {}
impl Row for SealRow {}
impl Row for SealedRow {}
impl Row for WriterMark {}
impl Row for EpochRecord {}
impl Row for Transaction {}
impl Row for TruncationRecord {}
impl Row for std::collections::BTreeMap<String, Subscription> {}

fields! {
    Head { state, active_epoch }
    ConfigRow { current, pending }
    ScaleRow { pending }
    CommitRow { pending }
    SealRow { asked }
    SealedRow { epoch, length }
    WriterMark { time, position, alive }
    StreamConfig { scaling, retention, tags, timestamp_aggregation_timeout_ms, rollover_bytes }
    RatePolicy { rate, factor, segments_min }
    Segment { number, epoch, range, created_ms }
    EpochRecord { epoch, reference_epoch, segments, created_ms, splits, merges }
    RollingStart { active_epoch, decided_ms }
    Transition { active_epoch, created_ms, seal, create, origin }
    TruncationRecord { cut, delete, updating }
    TransactionId { high, low }
    Commit { order, called_ms, mark }
    Transaction { id, state, created_ms, lease_ms, lease_end_ms, execution_end_ms, commit }
    Round { epoch, transactions, rolling }
    Subscription { id, generation, cut }
}

tags! {
    StreamState {
        Creating = 1, Active = 2, Updating = 3, Scaling = 4, Committing = 5, Truncating = 6, Sealing = 7, Sealed = 8,
    }
    ScaleOrigin { Manual = 0, Auto = 1, Policy = 2 }
    TransactionState { Open = 1, Committing = 2, Committed = 3, Aborting = 4, Aborted = 5 }
}

impl Field for SegmentId {
    fn put(&self, out: &mut BytesMut) {
        self.raw().put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        i64::get(from).map(Self::from_raw)
    }
}

impl Field for StreamCut {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        Field::get(from).map(Self)
    }
}

impl Field for GroupId {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        u128::get(from).map(Self)
    }
}

impl Field for KeyRange {
    fn put(&self, out: &mut BytesMut) {
        self.low().put(out);
        self.high().put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        Self::new(f64::get(from)?, f64::get(from)?).ok_or(CorruptRow("no key range"))
    }
}

impl Field for ScalingPolicy {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Self::Fixed { segments, rate, factor } => {
                0_u8.put(out);
                RatePolicy { rate: *rate, factor: *factor, segments_min: *segments }.put(out);
            }
            Self::ByKilobytes(policy) => {
                1_u8.put(out);
                policy.put(out);
            }
            Self::ByEvents(policy) => {
                2_u8.put(out);
                policy.put(out);
            }
        }
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        let tag = u8::get(from)?;
        let policy = RatePolicy::get(from)?;
        match tag {
            0 => {
                let RatePolicy { rate, factor, segments_min: segments } = policy;
                Ok(Self::Fixed { segments, rate, factor })
            }
            1 => Ok(Self::ByKilobytes(policy)),
            2 => Ok(Self::ByEvents(policy)),
            _ => Err(CorruptRow("unknown tag")),
        }
    }
}

impl Field for RetentionPolicy {
    fn put(&self, out: &mut BytesMut) {
        match self {
            Self::Time { .. } => 1_u8.put(out),
            Self::Size { .. } => 2_u8.put(out),
        }
        self.limits().put(out);
    }
    fn get(from: &mut Bytes) -> Result<Self, CorruptRow> {
        let tag = u8::get(from)?;
        let (min, max) = Field::get(from)?;
        match tag {
            1 => Ok(Self::Time { min_ms: min, max_ms: max }),
            2 => Ok(Self::Size { min_bytes: min, max_bytes: max }),
            _ => Err(CorruptRow("unknown tag")),
        }
    }
}
