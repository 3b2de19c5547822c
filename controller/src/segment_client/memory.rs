//! Segments and tables in memory, for tests: the answers of a store without one, and failures on demand.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{Bounds, Entry, Expect, Page, SegmentClient, SegmentError, SegmentInfo, SegmentShape, Write};

/// A segment store in memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    segments: BTreeMap<String, Segment>,
    tables: BTreeMap<String, BTreeMap<Bytes, (Bytes, i64)>>,
    last_version: i64,
    /// Calls still answered before all others fail, once set.
    calls_left: Option<u64>,
    /// Whether the first call that fails is carried out all the same, as if its reply were lost.
    lose_reply: bool,
    calls: u64,
}

/// A segment in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) data: Vec<u8>,
    pub(crate) start: i64,
    pub(crate) sealed: bool,
}

impl Segment {
    fn length(&self) -> i64 {
        i64::try_from(self.data.len()).unwrap()
    }
}

impl MemoryStore {
    /// Answers `calls` more calls, then fails all others as a dead connection does. With `lose_reply` the call that
    /// fails first takes effect.
    pub(crate) fn fail_after(&self, calls: u64, lose_reply: bool) {
        let mut content = self.0.lock();
        content.calls_left = Some(calls);
        content.lose_reply = lose_reply;
    }

    /// Answers again.
    pub(crate) fn heal(&self) {
        self.0.lock().calls_left = None;
    }

    /// Number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// All segments by name.
    pub(crate) fn segments(&self) -> BTreeMap<String, Segment> {
        self.0.lock().segments.clone()
    }

    /// Names of all tables with their keys and values.
    pub(crate) fn tables(&self) -> BTreeMap<String, BTreeMap<Bytes, Bytes>> {
        let rows = |rows: &BTreeMap<Bytes, (Bytes, i64)>| {
            rows.iter().map(|(k, (v, _))| (k.clone(), v.clone())).collect()
        };
        self.0.lock().tables.iter().map(|(name, table)| (name.clone(), rows(table))).collect()
    }

    /// Appends to a segment as a client would.
    pub(crate) fn append(&self, segment: &str, data: &[u8]) {
        let mut content = self.0.lock();
        let found = content.segments.get_mut(segment).unwrap_or_else(|| panic!("no segment {segment}"));
        assert!(!found.sealed, "{segment} is sealed");
        found.data.extend_from_slice(data);
    }

    fn run<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut Content) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        let mut content = self.0.lock();
        content.calls += 1;
        let dead = || SegmentError::Unavailable {
            operation: "calling",
            segment: name.to_owned(),
            host: String::from("memory"),
            source: std::io::ErrorKind::ConnectionAborted.into(),
        };
        match content.calls_left {
            Some(0) => Err(dead()),
            Some(1) if content.lose_reply => {
                content.calls_left = Some(0);
                drop(act(&mut content));
                Err(dead())
            }
            Some(left) => {
                content.calls_left = Some(left - 1);
                act(&mut content)
            }
            None => act(&mut content),
        }
    }
}

impl Content {
    fn segment(&mut self, name: &str) -> Result<&mut Segment, SegmentError> {
        self.segments.get_mut(name).ok_or_else(|| missing(name))
    }

    fn table(&mut self, name: &str) -> Result<&mut BTreeMap<Bytes, (Bytes, i64)>, SegmentError> {
        self.tables.get_mut(name).ok_or_else(|| missing(name))
    }

    fn check<'a>(
        &mut self,
        table: &str,
        mut conditions: impl Iterator<Item = (&'a Bytes, Expect)>,
    ) -> Result<(), SegmentError> {
        let rows = self.table(table)?;
        let holds = |(key, expect): (&Bytes, Expect)| match (expect, rows.get(key)) {
            (Expect::Any, _) | (Expect::Absent, None) => true,
            (Expect::Version(version), Some((_, found))) => version == *found,
            _ => false,
        };
        if conditions.all(holds) { Ok(()) } else { Err(SegmentError::Condition { table: table.to_owned() }) }
    }
}

fn missing(name: &str) -> SegmentError {
    SegmentError::Missing { operation: "calling", segment: name.to_owned() }
}

#[async_trait]
impl SegmentClient for MemoryStore {
    async fn create_segment(&self, segment: &str, _shape: SegmentShape) -> Result<(), SegmentError> {
        self.run(segment, |content| {
            content.segments.entry(segment.to_owned()).or_default();
            Ok(())
        })
    }

    async fn seal_segment(&self, segment: &str) -> Result<(), SegmentError> {
        self.run(segment, |content| {
            content.segment(segment)?.sealed = true;
            Ok(())
        })
    }

    async fn delete_segment(&self, segment: &str) -> Result<(), SegmentError> {
        self.run(segment, |content| {
            content.segments.remove(segment);
            Ok(())
        })
    }

    async fn truncate_segment(&self, segment: &str, offset: i64) -> Result<(), SegmentError> {
        self.run(segment, |content| {
            let found = content.segment(segment)?;
            assert!((0..=found.length()).contains(&offset), "truncating within the segment");
            found.start = found.start.max(offset);
            Ok(())
        })
    }

    async fn update_policy(&self, segment: &str, _shape: SegmentShape) -> Result<(), SegmentError> {
        self.run(segment, |content| content.segment(segment).map(drop))
    }

    async fn segment_info(&self, segment: &str) -> Result<SegmentInfo, SegmentError> {
        self.run(segment, |content| {
            let found = content.segment(segment)?;
            Ok(SegmentInfo { start: found.start, length: found.length() })
        })
    }

    async fn merge(&self, target: &str, sources: Vec<String>) -> Result<Vec<i64>, SegmentError> {
        self.run(target, |content| {
            let mut ends = Vec::new();
            for source in &sources {
                if content.segment(target)?.sealed {
                    return Err(SegmentError::Sealed { operation: "merging", segment: target.to_owned() });
                }
                let data = content.segments.remove(source).map(|source| source.data).unwrap_or_default();
                let found = content.segment(target)?;
                found.data.extend(data);
                ends.push(found.length());
            }
            Ok(ends)
        })
    }

    async fn create_table(&self, table: &str, _key_bytes: i32, _rollover: i64) -> Result<(), SegmentError> {
        self.run(table, |content| {
            content.tables.entry(table.to_owned()).or_default();
            Ok(())
        })
    }

    async fn delete_table(&self, table: &str) -> Result<(), SegmentError> {
        self.run(table, |content| {
            content.tables.remove(table);
            Ok(())
        })
    }

    async fn update(&self, table: &str, writes: Vec<Write>) -> Result<Vec<i64>, SegmentError> {
        self.run(table, |content| {
            content.check(table, writes.iter().map(|write| (&write.key, write.expect)))?;
            let mut versions = Vec::new();
            for write in &writes {
                content.last_version += 1;
                let version = content.last_version;
                content.table(table)?.insert(write.key.clone(), (write.value.clone(), version));
                versions.push(version);
            }
            Ok(versions)
        })
    }

    async fn remove(&self, table: &str, keys: Vec<(Bytes, Expect)>) -> Result<(), SegmentError> {
        self.run(table, |content| {
            content.check(table, keys.iter().map(|(key, expect)| (key, *expect)))?;
            let rows = content.table(table)?;
            for (key, _expect) in &keys {
                rows.remove(key);
            }
            Ok(())
        })
    }

    async fn read(&self, table: &str, keys: Vec<Bytes>) -> Result<Vec<Option<Entry>>, SegmentError> {
        self.run(table, |content| {
            let rows = content.table(table)?;
            let entry = |key: &Bytes| rows.get(key).map(|(value, version)| entry(key, value, *version));
            Ok(keys.iter().map(entry).collect())
        })
    }

    async fn read_page(&self, table: &str, token: Bytes) -> Result<Page, SegmentError> {
        self.run(table, |content| {
            let rows = content.table(table)?;
            let after = rows.iter().filter(|(key, _)| **key > token || token.is_empty());
            let entries: Vec<Entry> =
                after.map(|(key, (value, version))| entry(key, value, *version)).take(3).collect();
            let token = entries.last().map_or(token, |last| last.key.clone());
            Ok(Page { entries, token })
        })
    }

    async fn read_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Entry>, SegmentError> {
        self.run(table, |content| {
            let rows = content.table(table)?;
            let range = rows.range(bounds.from..=bounds.to);
            let count = usize::try_from(bounds.count).unwrap();
            Ok(range.map(|(key, (value, version))| entry(key, value, *version)).take(count).collect())
        })
    }

    async fn read_key_range(&self, table: &str, bounds: Bounds) -> Result<Vec<Bytes>, SegmentError> {
        Ok(self.read_range(table, bounds).await?.into_iter().map(|entry| entry.key).collect())
    }
}

fn entry(key: &Bytes, value: &Bytes, version: i64) -> Entry {
    Entry { key: key.clone(), value: value.clone(), version }
}
