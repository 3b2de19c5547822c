//! Names: of segments as they stand on the wire, and what users may call scopes and streams.
//!
//! [`SegmentName`] is a stream segment's name taken apart; the functions here work on any qualified name, since
//! transactions, transient segments and tables have names of their own. [`rule`] judges what users choose.

mod segment;
#[cfg(test)]
mod tests;

pub mod rule;

pub use segment::{NameError, SegmentId, SegmentName, StreamName};

use crate::codec::Uuid;
use std::borrow::Cow;

const EPOCH: &str = ".#epoch.";
const TRANSACTION: &str = "#transaction.";
const TRANSIENT: &str = "#transient.";
const TABLE: &str = "_kvtable";
const READER_GROUP: &str = "_RG";
const MARK: &str = "_MARK";
/// Characters of a UUID in hex without dashes.
const UUID_CHARS: usize = 32;

/// Returns the name of the segment in which transaction `id` collects what is meant for `parent`.
pub fn transaction(parent: &str, id: Uuid) -> String {
    format!("{parent}{TRANSACTION}{:032x}", id.0)
}

/// Returns the name of a transient segment of `parent`.
pub fn transient(parent: &str, writer: Uuid, random: Uuid) -> String {
    format!("{parent}{TRANSIENT}{:032x}.{:032x}", writer.0, random.0)
}

/// Returns whether `name` is that of a transaction's segment.
pub fn is_transaction(name: &str) -> bool {
    split(name, TRANSACTION).is_some()
}

/// Returns whether `name` is that of a transient segment.
pub fn is_transient(name: &str) -> bool {
    split(name, TRANSIENT).is_some()
}

/// Returns the id of the transaction that `name` belongs to; `None` for every other segment.
pub fn transaction_id(name: &str) -> Option<Uuid> {
    let (_parent, id) = split(name, TRANSACTION)?;
    // Signs are digits to `from_str_radix`.
    let hex = id.get(..UUID_CHARS).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u128::from_str_radix(hex, 16).ok().map(Uuid)
}

/// Returns the segment that a transaction or transient segment is merged into; `None` for every other segment.
pub fn parent(name: &str) -> Option<&str> {
    split(name, TRANSACTION).or_else(|| split(name, TRANSIENT)).map(|(parent, _id)| parent)
}

/// Returns the part of `name` that decides the container: without transaction, transient and epoch suffix.
pub fn primary(name: &str) -> &str {
    let name = parent(name).unwrap_or(name);
    name.rfind(EPOCH).map_or(name, |end| &name[..end])
}

/// Returns the spelling under which a segment is kept: a transaction's name drops its parent's epoch.
///
/// A transaction opened in one epoch may be committed to a segment of a later one with the same number, and is named
/// by either.
pub fn canonical(name: &str) -> Cow<'_, str> {
    match split(name, TRANSACTION) {
        Some((parent, id)) if parent.contains(EPOCH) => {
            Cow::Owned(format!("{}{TRANSACTION}{id}", primary(name)))
        }
        _ => Cow::Borrowed(name),
    }
}

/// Returns whether `name` is that of a segment of a user's stream; tables, transactions and Pravega's own are not.
pub fn is_user_segment(name: &str) -> bool {
    name.parse::<SegmentName>()
        .is_ok_and(|name| !name.stream.scope.is_empty() && rule::check_stream(&name.stream.stream).is_ok())
}

/// Returns the stream part in the segment names of a key-value table, or of a Rust client's reader group.
pub fn table_stream(table: &str) -> String {
    format!("{table}{TABLE}")
}

/// Returns the table whose segments have this stream part, if it is a table's.
pub fn table_of_stream(stream: &str) -> Option<&str> {
    stream.strip_suffix(TABLE)
}

/// Returns the stream that holds a reader group's state.
pub fn reader_group_stream(group: &str) -> String {
    format!("{READER_GROUP}{group}")
}

/// Returns the reader group whose state `stream` holds, if it does.
pub fn reader_group_of_stream(stream: &str) -> Option<&str> {
    stream.strip_prefix(READER_GROUP)
}

/// Returns the stream that holds a stream's watermarks.
pub fn mark_stream(stream: &str) -> String {
    format!("{MARK}{stream}")
}

/// Returns the stream whose watermarks `stream` holds, if it does.
pub fn stream_of_mark(stream: &str) -> Option<&str> {
    stream.strip_prefix(MARK)
}

/// Splits at the last `marker`, if at least a UUID's length follows it.
fn split<'a>(name: &'a str, marker: &str) -> Option<(&'a str, &'a str)> {
    name.rsplit_once(marker).filter(|(_parent, id)| id.len() >= UUID_CHARS)
}
