//! Table segments: conditions are judged against the state before the batch; all or nothing.

use super::{Judging, KeyVersion, RowKey, Rows, Segment, State};
use crate::operation::{Answer, Record, Refusal, SegmentKind, TableChange, TableCondition, TablePut};
use crate::types::SegmentId;
use bytes::Bytes;
use dhara_wire::limits::{TABLE_ENTRY_BYTES_MAX, TABLE_ENTRY_OVERHEAD_BYTES, TABLE_KEY_BYTES_MAX};
use std::collections::HashMap;

impl State {
    /// Versions of these keys, staged; `None` for one that is not known.
    fn version(&self, segment: &Segment, key: &Bytes, rows: &dyn Rows) -> Option<KeyVersion> {
        if let Some((version, _)) = self.staged_keys.get(&(segment.id, key.clone())) {
            return Some(*version);
        }
        let known = rows.table_version(segment.id, key);
        known.or_else(|| (!segment.flushed).then_some(KeyVersion::Absent))
    }

    pub(super) fn missing_keys<'a>(
        &self,
        segment: Option<SegmentId>,
        keys: impl IntoIterator<Item = &'a Bytes>,
        rows: &dyn Rows,
    ) -> Vec<RowKey> {
        let Some(segment) = segment.and_then(|id| self.segments.get(&id)) else { return Vec::new() };
        keys.into_iter()
            .filter(|key| self.version(segment, key, rows).is_none())
            .map(|key| RowKey::TableKey(segment.id, key.clone()))
            .collect()
    }

    fn table(&self, name: &str, expected_length: Option<i64>) -> Result<&Segment, Refusal> {
        let id = self.resolve(name).ok_or(Refusal::NoSuchSegment)?;
        let segment = &self.segments[&id];
        if !segment.kind.is_table() {
            return Err(Refusal::Illegal("not a table segment"));
        }
        let length = segment.staged.length;
        match expected_length {
            Some(expected) if u64::try_from(expected) != Ok(length) => {
                Err(Refusal::Truncated { start: length })
            }
            _ => Ok(segment),
        }
    }

    pub(super) fn admit_table_update(
        &mut self,
        name: &str,
        puts: &[TablePut],
        expected_length: Option<i64>,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let segment = self.table(name, expected_length)?;
        let mut batch = Batch::new(segment);
        for put in puts {
            check_key(segment.kind, &put.key)?;
            if TABLE_ENTRY_OVERHEAD_BYTES + put.key.len() + put.value.len() > TABLE_ENTRY_BYTES_MAX {
                return Err(Refusal::Illegal("table entry is too large"));
            }
        }
        for put in puts {
            let before = self.version(segment, &put.key, judging.rows).ok_or(Refusal::Unavailable)?;
            judge(segment.kind, put.condition, before)?;
            batch.put(&put.key, &put.value, before)?;
        }
        let versions = batch.versions();
        self.stage_batch(batch, judging);
        Ok(Answer::TableUpdated(versions))
    }

    pub(super) fn admit_table_remove(
        &mut self,
        name: &str,
        keys: &[(Bytes, TableCondition)],
        expected_length: Option<i64>,
        judging: &mut Judging<'_>,
    ) -> Result<Answer, Refusal> {
        let segment = self.table(name, expected_length)?;
        let mut batch = Batch::new(segment);
        for (key, _) in keys {
            check_key(segment.kind, key)?;
        }
        for (key, condition) in keys {
            let before = self.version(segment, key, judging.rows).ok_or(Refusal::Unavailable)?;
            judge(segment.kind, *condition, before)?;
            batch.remove(key, before)?;
        }
        self.stage_batch(batch, judging);
        Ok(Answer::Done)
    }

    fn stage_batch(&mut self, batch: Batch, judging: &mut Judging<'_>) {
        if batch.changes.is_empty() {
            return;
        }
        let by = self.next;
        for change in &batch.changes {
            let version = KeyVersion::from(change.entry.as_ref().map(|(version, _)| *version));
            self.staged_keys.insert((batch.segment, change.key.clone()), (version, by));
        }
        if let Some(segment) = self.segments.get_mut(&batch.segment) {
            (segment.staged.length, segment.staged.entries) = (batch.length, batch.entries);
            segment.staged.modified_ms = judging.now_ms;
        }
        let record = Record::TableChanged {
            segment: batch.segment,
            length: batch.length,
            entries: batch.entries,
            time_ms: judging.now_ms,
            changes: batch.changes,
        };
        self.record(record, judging.records);
    }
}

/// The changes of one request as they add up.
struct Batch {
    segment: SegmentId,
    length: u64,
    entries: u64,
    changes: Vec<TableChange>,
    /// Version of each key changed so far in the batch.
    changed: HashMap<Bytes, KeyVersion>,
}

impl Batch {
    fn new(segment: &Segment) -> Self {
        Self {
            segment: segment.id,
            length: segment.staged.length,
            entries: segment.staged.entries,
            changes: Vec::new(),
            changed: HashMap::new(),
        }
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, before: KeyVersion) -> Result<(), Refusal> {
        let version = self.advance(key.len() + value.len())?;
        let previous = self.changed.insert(key.clone(), KeyVersion::Is(version)).unwrap_or(before).number();
        self.entries += u64::from(previous.is_none());
        self.changes.push(TableChange { key: key.clone(), entry: Some((version, value.clone())), previous });
        Ok(())
    }

    fn remove(&mut self, key: &Bytes, before: KeyVersion) -> Result<(), Refusal> {
        let previous = self.changed.insert(key.clone(), KeyVersion::Absent).unwrap_or(before).number();
        if previous.is_some() {
            self.advance(key.len())?;
            self.entries -= 1;
            self.changes.push(TableChange { key: key.clone(), entry: None, previous });
        }
        Ok(())
    }

    /// Takes an entry's place in the table's address space; returns its start, which is its version.
    fn advance(&mut self, bytes: usize) -> Result<i64, Refusal> {
        let version = i64::try_from(self.length).map_err(|_beyond| Refusal::Illegal("table is full"))?;
        self.length += (TABLE_ENTRY_OVERHEAD_BYTES + bytes) as u64;
        Ok(version)
    }

    fn versions(&self) -> Vec<i64> {
        self.changes.iter().filter_map(|change| change.entry.as_ref().map(|(version, _)| *version)).collect()
    }
}

fn check_key(kind: SegmentKind, key: &Bytes) -> Result<(), Refusal> {
    match kind {
        SegmentKind::FixedTable { key_bytes } if key.len() != usize::from(key_bytes) => {
            Err(Refusal::Illegal("table key has the wrong length"))
        }
        _ if key.is_empty() => Err(Refusal::Illegal("table key is empty")),
        _ if key.len() > TABLE_KEY_BYTES_MAX => Err(Refusal::Illegal("table key is too long")),
        _ => Ok(()),
    }
}

/// Judges one key. A fixed-length table of Pravega calls a missing key's version bad, a hash table the key missing.
fn judge(kind: SegmentKind, condition: TableCondition, before: KeyVersion) -> Result<(), Refusal> {
    match (condition, before) {
        (TableCondition::Any, _) | (TableCondition::Absent, KeyVersion::Absent) => Ok(()),
        (TableCondition::Version(wanted), KeyVersion::Is(version)) if wanted == version => Ok(()),
        (TableCondition::Version(_), KeyVersion::Absent) if kind == SegmentKind::HashTable => {
            Err(Refusal::KeyDoesNotExist)
        }
        _ => Err(Refusal::KeyBadVersion),
    }
}
