//! A table and its one client, who knows exactly what must be in it.

use super::lane::create;
use crate::operation::{Answer, Refusal, Request, SegmentKind, TableCondition, TablePut};
use crate::read::{TablePage, TableRead};
use crate::world::front::Scene;
use crate::world::one_of;
use bytes::{BufMut, Bytes, BytesMut};
use dhara_stdx::{Entropy, SeededEntropy};
use dhara_wire::command::{TableEntry, TableKey};
use dhara_wire::limits::TABLE_ENTRY_OVERHEAD_BYTES;
use std::collections::BTreeMap;
use std::time::Duration;

/// Keys that a table has at most.
const KEYS: u64 = 24;

/// What a table holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    entries: BTreeMap<Bytes, (i64, Bytes)>,
    length: u64,
}

/// A change with its conditions.
#[derive(Clone, Debug)]
enum Change {
    Put(Vec<TablePut>, Option<i64>),
    Remove(Vec<(Bytes, TableCondition)>, Option<i64>),
}

fn bytes_of(key: &Bytes, value: usize) -> u64 {
    u64::try_from(TABLE_ENTRY_OVERHEAD_BYTES + key.len() + value).unwrap_or(u64::MAX)
}

impl Content {
    fn version(&self, key: &Bytes) -> Option<i64> {
        self.entries.get(key).map(|(version, _)| *version)
    }

    /// What becomes of a change.
    fn judge(&mut self, change: &Change) -> Result<Answer, Refusal> {
        let (Change::Put(_, expected) | Change::Remove(_, expected)) = change;
        if let Some(expected) = expected
            && u64::try_from(*expected) != Ok(self.length)
        {
            return Err(Refusal::Truncated { start: self.length });
        }
        let conditions: Vec<(&Bytes, TableCondition)> = match change {
            Change::Put(puts, _) => puts.iter().map(|put| (&put.key, put.condition)).collect(),
            Change::Remove(keys, _) => keys.iter().map(|(key, condition)| (key, *condition)).collect(),
        };
        for (key, condition) in conditions {
            match (condition, self.version(key)) {
                (TableCondition::Any, _) | (TableCondition::Absent, None) => {}
                (TableCondition::Version(wanted), Some(version)) if wanted == version => {}
                (TableCondition::Version(_), None) => return Err(Refusal::KeyDoesNotExist),
                _ => return Err(Refusal::KeyBadVersion),
            }
        }
        match change {
            Change::Put(puts, _) => Ok(Answer::TableUpdated(puts.iter().map(|put| self.put(put)).collect())),
            Change::Remove(keys, _) => {
                for (key, _) in keys {
                    if self.entries.remove(key).is_some() {
                        self.length += bytes_of(key, 0);
                    }
                }
                Ok(Answer::Done)
            }
        }
    }

    fn put(&mut self, put: &TablePut) -> i64 {
        let version = i64::try_from(self.length).unwrap_or(i64::MAX);
        self.length += bytes_of(&put.key, put.value.len());
        self.entries.insert(put.key.clone(), (version, put.value.clone()));
        version
    }
}

fn any_key(chance: &SeededEntropy) -> Bytes {
    Bytes::from(format!("key {}", chance.below(KEYS)))
}

fn any_value(chance: &SeededEntropy) -> Bytes {
    let length = if chance.below(20) == 0 { chance.below(9_000) } else { chance.below(60) };
    let mut value = BytesMut::new();
    while u64::try_from(value.len()).unwrap_or(u64::MAX) < length {
        value.put_u64_le(chance.next_u64());
    }
    value.freeze()
}

/// A condition that holds, as a rule.
fn any_condition(content: &Content, key: &Bytes, chance: &SeededEntropy) -> TableCondition {
    match (chance.below(10), content.version(key)) {
        (1, _) => TableCondition::Version(3),
        (2..6, Some(version)) => TableCondition::Version(version),
        (0, _) | (2..6, None) => TableCondition::Absent,
        _ => TableCondition::Any,
    }
}

fn any_change(content: &Content, chance: &SeededEntropy) -> Change {
    let expected = match chance.below(12) {
        0 => i64::try_from(content.length + 1).ok(),
        1..4 => i64::try_from(content.length).ok(),
        _ => None,
    };
    let mut keys: Vec<Bytes> = (0..=chance.below(5)).map(|_| any_key(chance)).collect();
    keys.sort();
    keys.dedup();
    if chance.below(3) == 0 {
        let remove = |key: Bytes| {
            let condition = any_condition(content, &key, chance);
            (key, condition)
        };
        return Change::Remove(keys.into_iter().map(remove).collect(), expected);
    }
    let put = |key: Bytes| TablePut {
        condition: any_condition(content, &key, chance),
        value: any_value(chance),
        key,
    };
    Change::Put(keys.into_iter().map(put).collect(), expected)
}

/// Changes a table and reads it back, in every way that there is.
pub(in crate::world) async fn table(scene: Scene, container: u16, number: u32, chance: SeededEntropy) {
    let name = format!("table{number}");
    let exists = |refusal: &Refusal| *refusal == Refusal::AlreadyExists;
    scene.see_to(container, create(&name, SegmentKind::HashTable), exists).await;
    let mut content = Content::default();
    while scene.pause(Duration::from_millis(chance.below(800))).await {
        let change = any_change(&content, &chance);
        let mut after = content.clone();
        let expected = after.judge(&change);
        let request = match change.clone() {
            Change::Put(puts, expected_length) => {
                Request::TableUpdate { name: name.clone(), puts, expected_length }
            }
            Change::Remove(keys, expected_length) => {
                Request::TableRemove { name: name.clone(), keys, expected_length }
            }
        };
        let outcome = scene.dial(container).await.ask(request).await;
        let doubtful = outcome == Err(Refusal::Unavailable);
        if !doubtful && outcome != expected {
            scene.court.accuse(format!("{name}: {change:?} gave {outcome:?}, not {expected:?}"));
            return;
        }
        if !doubtful && chance.below(6) != 0 {
            content = after;
            continue;
        }
        let Some(found) = look(&scene, container, &name, &chance).await else { return };
        if found != after && !(doubtful && found == content) {
            scene.court.accuse(format!("{name} holds {found:?}, not {after:?}"));
            return;
        }
        content = found;
    }
}

/// All that a table holds, read until one look is not disturbed.
async fn look(scene: &Scene, container: u16, name: &str, chance: &SeededEntropy) -> Option<Content> {
    loop {
        let handle = scene.dial(container).await.handle;
        let Some(view) = handle.views().find(name) else {
            if handle.is_closed() {
                continue;
            }
            scene.court.accuse(format!("{name} is gone though nobody asked"));
            return None;
        };
        let looked = match TableRead::new(&view, handle.index()) {
            Ok(read) => look_once(&read, chance).await,
            Err(error) => Some(Err(error.to_string())),
        };
        let core = view.core();
        match looked {
            Some(Ok(entries)) if u64::try_from(entries.len()) == Ok(core.entries) => {
                return Some(Content { entries, length: core.length });
            }
            Some(Ok(entries)) => {
                scene.court.accuse(format!("{name} counts {} entries, has {entries:?}", core.entries));
                return None;
            }
            Some(Err(what)) => {
                scene.court.accuse(format!("{name}: {what}"));
                return None;
            }
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

type Entries = BTreeMap<Bytes, (i64, Bytes)>;

/// Iterates, reads a delta, and looks keys up; none if the store failed meanwhile. Whatever disagrees is an error.
async fn look_once(read: &TableRead<'_>, chance: &SeededEntropy) -> Option<Result<Entries, String>> {
    let nothing = Bytes::new();
    let page = one_of(chance, [1, 2, 3, 7, 40]);
    let (mut entries, mut token) = (Entries::new(), Bytes::new());
    loop {
        let TablePage { entries: found, .. } = read.iterate(&token, &nothing, &nothing, page).await.ok()?;
        let Some(last) = found.last() else { break };
        token = last.key.key.clone();
        for TableEntry { key, value } in found {
            if entries.insert(key.key.clone(), (key.version, value)).is_some() {
                return Some(Err(format!("an iteration yields {:?} twice", key.key)));
            }
        }
    }
    let (mut changed, mut position) = (Entries::new(), 0);
    loop {
        let delta = read.delta(position, page).await.ok()?;
        changed
            .extend(delta.entries.into_iter().map(|entry| (entry.key.key, (entry.key.version, entry.value))));
        position = i64::try_from(delta.position).unwrap_or(i64::MAX);
        if delta.reached_end {
            break;
        }
    }
    if changed != entries {
        return Some(Err(format!("a delta yields {changed:?}, an iteration {entries:?}")));
    }
    let key = any_key(chance);
    let ask = vec![TableKey { key: key.clone(), version: 0 }];
    let got = read.get(ask).await.ok()?;
    let present = entries.get(&key).map_or(-1, |(version, _)| *version);
    if got.iter().map(|entry| entry.key.version).ne([present]) {
        return Some(Err(format!("{key:?} is {got:?}, an iteration yields version {present}")));
    }
    Some(Ok(entries))
}
