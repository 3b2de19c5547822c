//! Names of tables, rows and segments.

use bytes::Bytes;

use crate::stream::{SegmentId, TransactionId};

/// Bytes of a key in a sorted table: a kind and the longest name, filled up with zeros.
pub(crate) const SORTED_KEY_BYTES: usize = 256;
/// Number of work tables over which pending work is spread.
pub(crate) const WORK_BUCKETS: u32 = 4;

/// Sorted table of all scopes.
pub(crate) const SCOPES: &str = "_system/_tables/dhara/scopes";
/// Layout version, counters, hours of completed transactions.
pub(crate) const META: &str = "_system/_tables/dhara/meta";
/// Highest segment numbers of deleted streams and tables.
pub(crate) const DELETED: &str = "_system/_tables/dhara/deleted";

/// Row of [`META`] that says which layout the tables have.
pub(crate) const VERSION_KEY: &str = "version";
/// Row of [`META`] from which transaction numbers are taken.
pub(crate) const TRANSACTION_COUNTER_KEY: &str = "transactions";
/// Start of the rows of [`META`] that name hours with completed transactions.
pub(crate) const HOUR_KEY_PREFIX: &str = "hour/";

/// Row of a stream's table with its state.
pub(crate) const HEAD: &str = "head";
/// Row of a stream's table with its configuration.
pub(crate) const CONFIG: &str = "config";
/// Row of a stream's table with its pending scale.
pub(crate) const SCALE: &str = "scale";
/// Row of a stream's table with its truncation.
pub(crate) const TRUNCATION: &str = "truncation";
/// Row of a stream's table with its commit round.
pub(crate) const COMMIT: &str = "commit";
/// Row of a stream's table that asks for its seal.
pub(crate) const SEAL: &str = "seal";
/// Row of a stream's table with its subscribers.
pub(crate) const SUBSCRIBERS: &str = "subscribers";
/// Start of the rows of a stream's table with its transactions.
pub(crate) const TRANSACTION_PREFIX: &str = "txn/";

/// What a row of a scope's table names; the first byte of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A reader group.
    Group,
    /// A key-value table.
    Table,
    /// A stream.
    Stream,
    /// A scope, in the table of all scopes and among the work.
    Scope,
}

impl Kind {
    /// Returns the byte with which keys of this kind start.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Group => b'g',
            Self::Table => b'k',
            Self::Stream => b's',
            Self::Scope => b'c',
        }
    }

    /// Returns the kind whose keys start with `byte`.
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'g' => Some(Self::Group),
            b'k' => Some(Self::Table),
            b's' => Some(Self::Stream),
            b'c' => Some(Self::Scope),
            _ => None,
        }
    }
}

/// Key of `name` in a sorted table. Names have at most 255 bytes and none of them is zero.
pub(crate) fn sorted_key(kind: Kind, name: &str) -> Bytes {
    let mut key = Vec::with_capacity(SORTED_KEY_BYTES);
    key.push(kind.byte());
    key.extend_from_slice(name.as_bytes());
    key.resize(SORTED_KEY_BYTES, 0);
    Bytes::from(key)
}

/// The first key after that of `name`, or the last of the kind if `name` is `None`.
pub(crate) fn sorted_key_after(kind: Kind, name: Option<&str>) -> Bytes {
    let mut key = sorted_key(kind, name.unwrap_or_default()).to_vec();
    match name {
        // The last byte is filling or an ASCII character of the longest name: it can be raised.
        Some(_) => key[SORTED_KEY_BYTES - 1] += 1,
        None => key[1..].fill(u8::MAX),
    }
    Bytes::from(key)
}

/// The name in a key of a sorted table.
pub(crate) fn name_in_sorted_key(key: &[u8]) -> Option<&str> {
    let name = key.get(1..)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).ok()
}

/// Table of a scope.
pub(crate) fn scope_table(id: u128) -> String {
    table("scope", format_args!("{id:032x}"))
}

/// Table of a stream.
pub(crate) fn stream_table(id: u128) -> String {
    table("stream", format_args!("{id:032x}"))
}

/// Table of pending work of one bucket.
pub(crate) fn work_table(bucket: u32) -> String {
    table("work", format_args!("{bucket}"))
}

/// Table of the transactions completed in one hour since 1970.
pub(crate) fn completed_table(hour: i64) -> String {
    table("completed", format_args!("{hour}"))
}

fn table(kind: &str, which: std::fmt::Arguments<'_>) -> String {
    format!("_system/_tables/dhara/{kind}/{which}")
}

/// Row of an epoch.
pub(crate) fn epoch_key(epoch: i32) -> String {
    format!("epoch/{epoch}")
}

/// Row of a sealed segment.
pub(crate) fn sealed_key(segment: SegmentId) -> String {
    format!("sealed/{segment}")
}

/// Row of a transaction.
pub(crate) fn transaction_key(id: TransactionId) -> String {
    format!("{TRANSACTION_PREFIX}{id}")
}

/// Row of a writer's mark.
pub(crate) fn writer_key(writer: &str) -> String {
    format!("writer/{writer}")
}

/// Name of a segment on its store.
pub(crate) fn segment(scope: &str, stream: &str, id: SegmentId) -> String {
    format!("{scope}/{stream}/{id}")
}

/// Name of a transaction's segment on its store; its parent has the transaction's epoch.
pub(crate) fn transaction_segment(scope: &str, stream: &str, number: i32, id: TransactionId) -> String {
    format!("{scope}/{stream}/{}#transaction.{id}", id.segment(number))
}

/// Name of a key-value table's segment on its store.
pub(crate) fn key_value_segment(scope: &str, table: &str, id: SegmentId) -> String {
    format!("{scope}/{table}_kvtable/{id}")
}
