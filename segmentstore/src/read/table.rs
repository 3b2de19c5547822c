//! Reading table segments: keys, iterations and deltas, from the index.

use super::View;
use crate::index::{Index, IndexError, key};
use crate::operation::SegmentKind;
use crate::types::SegmentId;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use dhara_wire::command::{TableEntry, TableKey};
use dhara_wire::limits::{
    KEY_NOT_EXISTS, REPLY_PAYLOAD_BYTES_MAX, TABLE_ENTRY_OVERHEAD_BYTES, TABLE_PAGE_BYTES,
};
use std::ops::Range;

/// Reads of one table.
pub struct TableRead<'a> {
    view: &'a View,
    index: &'a Index,
}

/// A page of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePage {
    /// The entries.
    pub entries: Vec<TableEntry>,
    /// For a delta: this page reaches the end of the table as it was when the read began.
    pub reached_end: bool,
    /// For a delta: where to go on.
    pub position: u64,
}

/// Why a table read has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableReadError {
    /// The index could not answer.
    #[error("read a table")]
    Index(#[from] IndexError),
    /// The request cannot be right.
    #[error("{0}")]
    Illegal(&'static str),
    /// This kind of table does not offer it.
    #[error("{0} is not offered")]
    Unsupported(&'static str),
    /// A row of the index is malformed.
    #[error("row of table {0} is malformed")]
    Row(SegmentId),
}

/// Encodes the value of a table key's row: the version, little-endian, then the value.
pub(crate) fn encode_row(version: i64, value: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(8 + value.len());
    row.put_i64_le(version);
    row.extend_from_slice(value);
    row.freeze()
}

/// Splits the value of a table key's row.
pub(crate) fn decode_row(mut row: Bytes) -> Option<(i64, Bytes)> {
    let version = row.try_get_i64_le().ok()?;
    Some((version, row))
}

/// What an entry takes in a reply besides key and value: four lengths and a version.
const REPLY_ENTRY_BYTES: usize = 4 * 4 + 8;
/// Bytes of entries that a reply holds, beside the name of their segment.
const GET_BYTES_MAX: usize = REPLY_PAYLOAD_BYTES_MAX - 128 * 1024;

impl<'a> TableRead<'a> {
    /// Reads of the table that `view` shows.
    ///
    /// # Errors
    /// [`TableReadError::Illegal`] if it is no table.
    pub fn new(view: &'a View, index: &'a Index) -> Result<Self, TableReadError> {
        if view.kind.is_table() {
            Ok(Self { view, index })
        } else {
            Err(TableReadError::Illegal("not a table segment"))
        }
    }

    /// One entry per key, in order; a missing key has version −1 and no value.
    ///
    /// # Errors
    /// [`TableReadError`] if the index cannot answer; [`TableReadError::Illegal`] if no reply holds all of it.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn get(&self, keys: Vec<TableKey>) -> Result<Vec<TableEntry>, TableReadError> {
        let (mut entries, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        for TableKey { key, .. } in keys {
            let row = self.index.get(&key::table_key(self.view.id, &key)).await?;
            let (version, value) = match row {
                Some(row) => decode_row(row).ok_or(TableReadError::Row(self.view.id))?,
                None => (KEY_NOT_EXISTS, Bytes::new()),
            };
            let entry = TableEntry { key: TableKey { key, version }, value };
            bytes += REPLY_ENTRY_BYTES + entry.key.key.len() + entry.value.len();
            if bytes > GET_BYTES_MAX {
                return Err(TableReadError::Illegal("the entries of these keys are more than a reply holds"));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// A page of entries behind the key `token` (of a hash table) or within `from..=to` (of a fixed-length one; empty
    /// ends are open), in key order, at least one if there is any. The token of the next page is the last key.
    ///
    /// # Errors
    /// [`TableReadError::Illegal`] for arguments that this kind of table does not take.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn iterate(
        &self,
        token: &Bytes,
        from: &Bytes,
        to: &Bytes,
        count: i32,
    ) -> Result<TablePage, TableReadError> {
        let range = self.iteration_range(token, from, to)?;
        let count = usize::try_from(count).unwrap_or(1).max(1);
        let mut page = TablePage::default();
        let mut next = Some(range.start);
        let mut bytes = 0;
        while let Some(start) = next
            && page.entries.len() < count
            && bytes < TABLE_PAGE_BYTES
        {
            let limit = count - page.entries.len();
            let scanned = self.index.scan(start..range.end.clone(), limit, TABLE_PAGE_BYTES - bytes).await?;
            for (row_key, row) in scanned.rows {
                let (_, key) = key::parse_of_segment(key::Kind::TableKey, &row_key)
                    .ok_or(TableReadError::Row(self.view.id))?;
                let key = row_key.slice_ref(key);
                let (version, value) = decode_row(row).ok_or(TableReadError::Row(self.view.id))?;
                let entry = TableEntry { key: TableKey { key, version }, value };
                bytes += entry_bytes(&entry);
                page.entries.push(entry);
            }
            next = scanned.next;
        }
        Ok(page)
    }

    fn iteration_range(
        &self,
        token: &Bytes,
        from: &Bytes,
        to: &Bytes,
    ) -> Result<Range<Bytes>, TableReadError> {
        let all = key::all_of_segment(key::Kind::TableKey, self.view.id);
        match self.view.kind {
            SegmentKind::FixedTable { key_bytes } => {
                let fits = |end: &Bytes| end.is_empty() || end.len() == usize::from(key_bytes);
                if !token.is_empty() {
                    return Err(TableReadError::Illegal("a fixed-length table takes no token"));
                }
                if !fits(from) || !fits(to) {
                    return Err(TableReadError::Illegal("range end has the wrong length"));
                }
                if !to.is_empty() && from > to {
                    return Err(TableReadError::Illegal("range ends are exchanged"));
                }
                let start = if from.is_empty() { all.start } else { key::table_key(self.view.id, from) };
                let end = if to.is_empty() { all.end } else { after(&key::table_key(self.view.id, to)) };
                Ok(start..end)
            }
            _ if !from.is_empty() || !to.is_empty() => {
                Err(TableReadError::Illegal("a hash table takes no range"))
            }
            _ if token.is_empty() => Ok(all),
            _ => Ok(after(&key::table_key(self.view.id, token))..all.end),
        }
    }

    /// The latest entry of each key changed at or after `position`, in version order. A key that is updated meanwhile
    /// is there too, and may come twice.
    ///
    /// # Errors
    /// [`TableReadError::Illegal`] for a position outside the table, `Unsupported` for a fixed-length table.
    /// # Cancel safety
    /// Changes nothing.
    pub async fn delta(&self, position: i64, count: i32) -> Result<TablePage, TableReadError> {
        if matches!(self.view.kind, SegmentKind::FixedTable { .. }) {
            return Err(TableReadError::Unsupported("ReadTableEntriesDelta"));
        }
        let length = self.view.core().length;
        let position = u64::try_from(position)
            .ok()
            .filter(|position| *position <= length)
            .ok_or(TableReadError::Illegal("position is outside the table"))?;
        let count = usize::try_from(count).unwrap_or(1).max(1);
        // The versions of a key only rise, so a scan without an end meets each key, wherever it moves meanwhile.
        let end = key::all_of_segment(key::Kind::TableVersion, self.view.id).end;
        let mut next = Some(key::table_version(self.view.id, position));
        let mut page = TablePage { position: length, ..TablePage::default() };
        let (mut bytes, mut seen_upto) = (0, position);
        while let Some(start) = next {
            if page.entries.len() >= count || bytes >= TABLE_PAGE_BYTES {
                page.position = seen_upto.min(length);
                return Ok(page);
            }
            let limit = count - page.entries.len();
            let scanned = self.index.scan(start..end.clone(), limit, TABLE_PAGE_BYTES).await?;
            for (version_key, key) in scanned.rows {
                let version = version_of(&version_key).ok_or(TableReadError::Row(self.view.id))?;
                // A key without an entry was removed meanwhile.
                let Some(entry) = self.entry(key).await? else { continue };
                let moved_on = u64::try_from(entry.key.version) != Ok(version);
                seen_upto = version + if moved_on { 1 } else { entry_bytes(&entry) as u64 };
                bytes += entry_bytes(&entry);
                page.entries.push(entry);
                // A scan counts the rows that lead to entries, which are small.
                if bytes >= TABLE_PAGE_BYTES {
                    page.position = seen_upto.min(length);
                    return Ok(page);
                }
            }
            next = scanned.next;
        }
        page.reached_end = true;
        Ok(page)
    }

    /// The present entry of `key`. It must not be dropped for having a later version than the row that led to it: a
    /// page without entries tells the client that nothing has changed.
    async fn entry(&self, key: Bytes) -> Result<Option<TableEntry>, TableReadError> {
        let Some(row) = self.index.get(&key::table_key(self.view.id, &key)).await? else { return Ok(None) };
        let (version, value) = decode_row(row).ok_or(TableReadError::Row(self.view.id))?;
        Ok(Some(TableEntry { key: TableKey { key, version }, value }))
    }
}

fn version_of(version_key: &[u8]) -> Option<u64> {
    let (_, version) = key::parse_of_segment(key::Kind::TableVersion, version_key)?;
    Some(u64::from_be_bytes(version.try_into().ok()?))
}

/// How much of its table's address space the entry takes.
fn entry_bytes(entry: &TableEntry) -> usize {
    TABLE_ENTRY_OVERHEAD_BYTES + entry.key.key.len() + entry.value.len()
}

/// The smallest key behind `key`.
fn after(key: &Bytes) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.put_u8(0);
    next.freeze()
}

#[cfg(test)]
mod tests;
