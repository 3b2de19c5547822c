//! Walking the records in a stretch of log, for readers of what lies in them.

use super::record::Records;
use bytes::Bytes;

/// Type, version and body of each record in `bytes`, which must begin with one; ends where the bytes are no record.
pub fn walk_records(bytes: &Bytes) -> impl Iterator<Item = (u8, u8, Bytes)> + '_ {
    Records::of(bytes).map(|at| (at.kind, at.version, bytes.slice(at.body..at.body + at.body_len)))
}
