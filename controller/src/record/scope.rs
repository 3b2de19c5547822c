//! Rows of the tables that list things: scopes, and the streams, reader groups and key-value tables of a scope.

use super::codec::{Row, fields, tags};
use crate::stream::StreamConfig;
use crate::stream::TransactionState;
use crate::stream::group::{
    GroupConfig, GroupRecord, GroupRetention, GroupState, StreamName, SubscriptionChange,
};

/// Whether a thing is there or on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// There, or being made.
    Live,
    /// Being removed; the row goes last.
    Leaving,
}

/// Row of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeRow {
    /// Id that names the scope's table and tells it from earlier scopes of the name.
    pub(crate) id: u128,
    /// Whether it is being removed.
    pub(crate) presence: Presence,
    /// Whether what is in it is removed with it.
    pub(crate) recursive: bool,
}

/// Row of a stream within its scope: the intent to create it, then its place in listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// Id that names the stream's table and tells it from earlier streams of the name.
    pub(crate) id: u128,
    /// Whether it is being removed.
    pub(crate) presence: Presence,
    /// Creation time in milliseconds since 1970.
    pub(crate) created_ms: i64,
    /// Number of the first segment.
    pub(crate) first_number: i32,
    /// The configuration in force, copied here for creation and for listings by tag.
    pub(crate) config: StreamConfig,
}

/// Row of a key-value table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyValueTableRow {
    /// State.
    pub(crate) state: KeyValueTableState,
    /// Creation time in milliseconds since 1970.
    pub(crate) created_ms: i64,
    /// Number of the first partition's segment.
    pub(crate) first_number: i32,
    /// Configuration.
    pub(crate) config: KeyValueTableConfig,
}

/// State of a key-value table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyValueTableState {
    /// Recorded; its segments may not be there yet.
    Creating,
    /// At rest.
    Active,
    /// Its segments are being removed.
    Deleting,
}

/// Configuration of a key-value table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyValueTableConfig {
    /// Number of partitions, at least 1.
    pub(crate) partitions: u32,
    /// Bytes of a primary key, at least 1.
    pub(crate) primary_key_bytes: i32,
    /// Bytes of a secondary key.
    pub(crate) secondary_key_bytes: i32,
    /// Rollover size of the segments in bytes; 0 leaves it to the store.
    pub(crate) rollover_bytes: i64,
}

/// Row of the work table: something of this name may be unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkRow {
    /// When work was last announced, in milliseconds since 1970.
    pub(crate) announced_ms: i64,
}

/// Row that hands out numbers in ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterRow {
    /// The first number not handed out.
    pub(crate) next: u64,
}

/// Row that says which layout the tables have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionRow {
    /// Number of the layout.
    pub(crate) layout: u32,
}

/// The highest segment number that a deleted stream or table had used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastNumberRow {
    /// The number.
    pub(crate) number: i32,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompletedRow {
    /// Committed or aborted.
    pub(crate) state: TransactionState,
    /// When, in milliseconds since 1970.
    pub(crate) completed_ms: i64,
}

impl Row for ScopeRow {}
impl Row for StreamRow {}
impl Row for KeyValueTableRow {}
impl Row for GroupRecord {}
impl Row for WorkRow {}
impl Row for CounterRow {}
impl Row for VersionRow {}
impl Row for LastNumberRow {}
impl Row for CompletedRow {}

fields! {
    ScopeRow { id, presence, recursive }
    StreamRow { id, presence, created_ms, first_number, config }
    KeyValueTableRow { state, created_ms, first_number, config }
    KeyValueTableConfig { partitions, primary_key_bytes, secondary_key_bytes, rollover_bytes }
    WorkRow { announced_ms }
    CounterRow { next }
    VersionRow { layout }
    LastNumberRow { number }
    CompletedRow { state, completed_ms }
    StreamName { scope, stream }
    GroupConfig {
        refresh_ms, checkpoint_interval_ms, checkpoints_max, retention, starting, ending, rollover_bytes,
    }
    GroupRecord { id, generation, state, config, pending }
    SubscriptionChange { subscribe, unsubscribe }
}

tags! {
    Presence { Live = 0, Leaving = 1 }
    KeyValueTableState { Creating = 1, Active = 2, Deleting = 3 }
    GroupState { Creating = 1, Active = 2, Deleting = 3 }
    GroupRetention { None = 0, Manual = 1, Automatic = 2 }
}
