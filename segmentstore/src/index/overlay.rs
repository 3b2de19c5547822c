//! Changes that the rows below do not have yet: one sorted map, pure.
//!
//! An overlay never drops a tombstone that could uncover an older row; only a row that was *born* in it
//! leaves nothing when it dies.

use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::ops::Range;

/// What an entry costs besides its key and value: its place in the map and the headers of two `Bytes`.
pub(crate) const ENTRY_BYTES: usize = 96;

/// One change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// Its value, or `None` where the row goes.
    pub value: Option<Bytes>,
    /// Whether it is certain that no such row existed just before; see [`Row::born`].
    pub born: bool,
}

impl Row {
    /// Sets `key` to `value`, whether or not it had one.
    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self { key, value: Some(value), born: false }
    }

    /// Sets `key`, of which it is *certain* that it had no value just before this change. If it dies before
    /// the next index flush nothing of it is ever written; where the certainty was wrong the old row comes
    /// back to life, so it may only come from a key that was never used or from a look-up that answered.
    pub fn born(key: Bytes, value: Bytes) -> Self {
        Self { key, value: Some(value), born: true }
    }

    /// Removes `key`, whether or not it had a value.
    pub fn gone(key: Bytes) -> Self {
        Self { key, value: None, born: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    value: Option<Bytes>,
    born: bool,
}

/// A sorted map of changes with their size.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    entries: BTreeMap<Bytes, Entry>,
    bytes: usize,
}

impl Overlay {
    /// Takes in one change; the newest of a key stays.
    pub(crate) fn apply(&mut self, row: Row) {
        let Row { key, value, born } = row;
        let key_bytes = key.len();
        match self.entries.entry(key) {
            btree_map::Entry::Vacant(slot) => {
                if born && value.is_none() {
                    return;
                }
                self.bytes += entry_bytes(key_bytes, value.as_ref());
                slot.insert(Entry { value, born });
            }
            btree_map::Entry::Occupied(mut slot) => {
                self.bytes -= entry_bytes(key_bytes, slot.get().value.as_ref());
                // What lies below was settled by the first change of the key in this overlay; later ones
                // cannot know better.
                if slot.get().born && value.is_none() {
                    drop(slot.remove());
                    return;
                }
                self.bytes += entry_bytes(key_bytes, value.as_ref());
                slot.get_mut().value = value;
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn rows(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the first `rows_max` changes of `range`, and the key where they go on.
    pub(crate) fn slice(&self, range: Range<Bytes>, rows_max: usize) -> Slice {
        let mut slice = Slice::default();
        if range.start >= range.end {
            return slice;
        }
        for (key, entry) in self.entries.range(range) {
            if slice.changes.len() == rows_max {
                slice.next = Some(key.clone());
                break;
            }
            slice.changes.push((key.clone(), entry.value.clone()));
        }
        slice
    }

    /// Returns all changes in order of their keys.
    pub(crate) fn changes(&self) -> Vec<(Bytes, Option<Bytes>)> {
        self.entries.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }
}

/// Some changes of a range in order; complete up to `next`.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    pub(crate) changes: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) next: Option<Bytes>,
}

fn entry_bytes(key_bytes: usize, value: Option<&Bytes>) -> usize {
    ENTRY_BYTES + key_bytes + value.map_or(0, Bytes::len)
}
