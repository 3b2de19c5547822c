//! A writer of a table segment: conditional batches, all or nothing, with rising versions.

use crate::ledger::chance::Chance;
use crate::session::Session;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dhara_wire::command::{
    Command, CreateTableSegment, GetTableSegmentInfo, ReadTable, RemoveTableKeys, TableEntry, TableKey,
    UpdateTableEntries,
};
use dhara_wire::limits::{KEY_NO_VERSION, KEY_NOT_EXISTS, NULL_TABLE_SEGMENT_OFFSET};
use std::collections::{BTreeMap, BTreeSet};

const KEYS: u64 = 24;

/// Key to version and value, of the keys that exist.
type Content = BTreeMap<u64, (i64, u64)>;

/// What the writer remembers over crashes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    segment: String,
    content: Content,
    /// The change whose outcome is unknown: the value of each key, none if it is removed.
    pending: BTreeMap<u64, Option<u64>>,
    /// Highest version seen.
    version: i64,
    /// Next value, so that no two updates write the same.
    value: u64,
}

fn key(number: u64) -> Bytes {
    format!("key-{number:03}").into()
}

fn value(number: u64) -> Bytes {
    let mut text = number.to_string();
    text.push_str(&"=".repeat(usize::try_from(number % 90).unwrap_or_default()));
    text.into()
}

fn number(value: &Bytes) -> Result<u64> {
    Ok(std::str::from_utf8(value)?.trim_end_matches('=').parse()?)
}

impl Table {
    /// A table of `scope` that does not exist yet.
    pub(crate) fn new(scope: &str) -> Self {
        Self { segment: format!("{scope}/table/0.#epoch.0"), version: KEY_NOT_EXISTS, ..Self::default() }
    }

    /// Creates the table.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) async fn create(&self, store: &str) -> Result<()> {
        let mut session = Session::open(store).await?.context("gone")?;
        let request = CreateTableSegment {
            request_id: session.request_id(),
            segment: self.segment.clone(),
            delegation_token: String::new(),
            sorted_deprecated: false,
            key_length: 0,
            rollover_size_bytes: 0,
        };
        match session.ask(request).await?.context("gone")? {
            Command::SegmentCreated(_) | Command::SegmentAlreadyExists(_) => Ok(()),
            other => bail!("creating the table: {other:?}"),
        }
    }

    /// Changes random keys until the server is gone.
    ///
    /// # Errors
    /// If the server breaks a promise.
    pub(crate) async fn run(&mut self, store: &str, mut chance: Chance) -> Result<()> {
        let Some(mut session) = Session::open(store).await? else { return Ok(()) };
        loop {
            let chosen: BTreeSet<u64> = (0..chance.within(1..5)).map(|_| chance.within(0..KEYS)).collect();
            let wrong = chance.once_in(10);
            let remove = !wrong && chance.once_in(4);
            let request_id = session.request_id();
            let command = if remove {
                self.removal(&chosen, request_id)
            } else {
                self.update(&chosen, wrong, request_id)
            };
            let Some(reply) = session.ask(command).await? else { return Ok(()) };
            match reply {
                Command::TableEntriesUpdated(done) if !wrong && !remove => {
                    ensure!(done.updated_versions.len() == chosen.len(), "a version for each key");
                    for (key, version) in chosen.iter().zip(done.updated_versions) {
                        ensure!(version > self.version, "version {version} after {}", self.version);
                        let value = self.pending.get(key).copied().flatten().context("pending")?;
                        self.content.insert(*key, (version, value));
                    }
                    self.version = self.content.values().map(|entry| entry.0).max().unwrap_or(self.version);
                }
                Command::TableKeysRemoved(_) if remove => {
                    self.content.retain(|key, _| !chosen.contains(key));
                }
                Command::TableKeyBadVersion(_) | Command::TableKeyDoesNotExist(_) if wrong => {}
                other => bail!("table (wrong condition: {wrong}, removal: {remove}): {other:?}"),
            }
            self.pending.clear();
        }
    }

    fn version_of(&self, key: u64) -> i64 {
        self.content.get(&key).map_or(KEY_NOT_EXISTS, |entry| entry.0)
    }

    fn update(&mut self, chosen: &BTreeSet<u64>, wrong: bool, request_id: i64) -> Command {
        let mut entries = Vec::new();
        for number in chosen {
            self.value += 1;
            if !wrong {
                self.pending.insert(*number, Some(self.value));
            }
            let version = self.version_of(*number);
            entries
                .push(TableEntry { key: TableKey { key: key(*number), version }, value: value(self.value) });
        }
        if wrong && let Some(entry) = entries.last_mut() {
            // One wrong condition must spoil the whole batch. No version is that high.
            entry.key.version = i64::MAX - 1;
        }
        UpdateTableEntries {
            request_id,
            segment: self.segment.clone(),
            delegation_token: String::new(),
            entries,
            table_segment_offset: NULL_TABLE_SEGMENT_OFFSET,
        }
        .into()
    }

    fn removal(&mut self, chosen: &BTreeSet<u64>, request_id: i64) -> Command {
        self.pending = chosen.iter().map(|key| (*key, None)).collect();
        let version = |number: &u64| self.content.get(number).map_or(KEY_NO_VERSION, |entry| entry.0);
        let keys =
            chosen.iter().map(|number| TableKey { key: key(*number), version: version(number) }).collect();
        RemoveTableKeys {
            request_id,
            segment: self.segment.clone(),
            delegation_token: String::new(),
            keys,
            table_segment_offset: NULL_TABLE_SEGMENT_OFFSET,
        }
        .into()
    }

    /// Reads all keys and compares them: everything acked, and the pending batch whole or not at all.
    ///
    /// # Errors
    /// At the first broken promise.
    pub(crate) async fn verify(&mut self, store: &str) -> Result<usize> {
        let mut session = Session::open(store).await?.context("gone")?;
        let found = read(&mut session, &self.segment).await?;
        let values = |content: &Content| -> BTreeMap<u64, u64> {
            content.iter().map(|(key, entry)| (*key, entry.1)).collect()
        };
        let before = values(&self.content);
        let mut after = before.clone();
        for (key, value) in std::mem::take(&mut self.pending) {
            match value {
                Some(value) => after.insert(key, value),
                None => after.remove(&key),
            };
        }
        let got = values(&found);
        ensure!(got == before || got == after, "the table holds {got:?}, due {before:?} or {after:?}");
        for (key, (version, value)) in &found {
            match self.content.get(key) {
                Some((known, same)) if same == value => {
                    ensure!(known == version, "key {key}: version {version} was {known}");
                }
                _ => ensure!(*version > self.version, "key {key}: version {version} after {}", self.version),
            }
        }
        let request = GetTableSegmentInfo {
            request_id: session.request_id(),
            segment: self.segment.clone(),
            delegation_token: String::new(),
        };
        match session.ask(request).await?.context("gone")? {
            Command::TableSegmentInfo(info) => {
                let count = i64::try_from(found.len())?;
                ensure!(info.entry_count == count, "{} entries counted, {count} found", info.entry_count);
            }
            other => bail!("asking about the table: {other:?}"),
        }
        self.version = found.values().map(|entry| entry.0).max().unwrap_or(0).max(self.version);
        self.content = found;
        Ok(self.content.len())
    }
}

async fn read(session: &mut Session, segment: &str) -> Result<Content> {
    let keys = (0..KEYS).map(|number| TableKey { key: key(number), version: KEY_NO_VERSION }).collect();
    let request = ReadTable {
        request_id: session.request_id(),
        segment: segment.to_owned(),
        delegation_token: String::new(),
        keys,
    };
    let Command::TableRead(read) = session.ask(request).await?.context("gone")? else {
        bail!("the table cannot be read")
    };
    ensure!(u64::try_from(read.entries.len())? == KEYS, "one entry for each key");
    let mut content = Content::new();
    for (at, entry) in (0..KEYS).zip(read.entries) {
        if entry.key.version >= 0 {
            ensure!(entry.key.key == key(at), "entry {at} has another key");
            content.insert(at, (entry.key.version, number(&entry.value)?));
        }
    }
    Ok(content)
}
