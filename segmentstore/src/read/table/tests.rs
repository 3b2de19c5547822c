use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::index::{Change, Limits, MemoryDisk, MemoryRows, Page, Row, Rows, RowsError};
use crate::operation::SegmentKind;
use crate::state::Core;
use crate::types::SequenceNumber;

const TABLE: SegmentId = SegmentId(7);
const VALUE: &[u8] = b"value";
/// Address space that an entry of a one-letter key and [`VALUE`] takes.
const STEP: u64 = (TABLE_ENTRY_OVERHEAD_BYTES + 1 + VALUE.len()) as u64;

/// A table written at the index alone, as its container does before it publishes the new length.
#[derive(Default)]
struct Table {
    sequence: u64,
    length: u64,
    versions: BTreeMap<&'static str, u64>,
}

impl Table {
    fn put(&mut self, index: &Index, name: &'static str) {
        let key = Bytes::from_static(name.as_bytes());
        let version = self.length;
        let previous = self.versions.insert(name, version);
        let row = encode_row(i64::try_from(version).unwrap(), VALUE);
        let mut rows = vec![
            Row::put(key::table_key(TABLE, &key), row),
            Row::put(key::table_version(TABLE, version), key),
        ];
        rows.extend(previous.map(|previous| Row::gone(key::table_version(TABLE, previous))));
        self.sequence += 1;
        self.length += STEP;
        index.apply(rows, SequenceNumber(self.sequence));
    }

    fn view(&self) -> View {
        let core = Core { exists: true, length: self.length, ..Core::default() };
        View::new(TABLE, "t".to_owned(), SegmentKind::HashTable, core)
    }
}

/// Rows that let a key of the table be updated at each scan, after the scan took its look at the overlay.
struct OvertakenRows {
    inner: Arc<MemoryRows>,
    next: Mutex<Vec<&'static str>>,
    world: Mutex<Option<(Index, Table)>>,
}

#[async_trait::async_trait]
impl Rows for OvertakenRows {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError> {
        self.inner.get(key).await
    }

    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError> {
        if let Some((index, table)) = &mut *self.world.lock()
            && let Some(name) = self.next.lock().pop()
        {
            table.put(index, name);
        }
        self.inner.scan(range, limits).await
    }

    async fn write(&self, rows: Vec<Change>, applied: SequenceNumber) -> Result<(), RowsError> {
        self.inner.write(rows, applied).await
    }

    async fn applied(&self) -> Result<SequenceNumber, RowsError> {
        self.inner.applied().await
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Reads a delta to its end as a client does, `count` entries a page, while the keys `updated` are, the last first.
/// Returns the latest version that it told of each key.
async fn delta_while(updated: &[&'static str], count: i32) -> (BTreeMap<Bytes, i64>, Table) {
    let rows = Arc::new(OvertakenRows {
        inner: MemoryDisk::default().open(),
        next: Mutex::default(),
        world: Mutex::default(),
    });
    let index = Index::open(Arc::clone(&rows) as Arc<dyn Rows>).await.unwrap();
    let mut table = Table::default();
    for name in ["a", "b", "c"] {
        table.put(&index, name);
    }
    let mut view = table.view();
    *rows.next.lock() = updated.to_vec();
    *rows.world.lock() = Some((index.clone(), table));
    let (mut told, mut position) = (BTreeMap::new(), 0);
    loop {
        let read = TableRead::new(&view, &index).unwrap();
        let page = read.delta(i64::try_from(position).unwrap(), count).await.unwrap();
        if page.entries.is_empty() {
            break;
        }
        told.extend(page.entries.into_iter().map(|entry| (entry.key.key, entry.key.version)));
        position = page.position;
        view = rows.world.lock().as_ref().map(|(_, table)| table.view()).unwrap();
    }
    let (_, table) = rows.world.lock().take().unwrap();
    (told, table)
}

#[tokio::test]
async fn delta_tells_of_every_key_whatever_is_updated_meanwhile() {
    let orders: [&[&'static str]; 5] =
        [&["a"], &["c", "b", "a"], &["a", "b", "c"], &["a", "a", "a", "a"], &["b", "a", "c", "a", "b"]];
    for updated in orders {
        for count in 1..=4 {
            let (told, table) = delta_while(updated, count).await;
            let wanted = table.versions.iter();
            let wanted: BTreeMap<Bytes, i64> = wanted
                .map(|(name, version)| {
                    (Bytes::from_static(name.as_bytes()), i64::try_from(*version).unwrap())
                })
                .collect();
            assert_eq!(told, wanted, "{updated:?}, {count} a page");
        }
    }
}

#[tokio::test]
async fn delta_tells_of_a_key_indexed_past_the_published_length() {
    let index = Index::open(MemoryDisk::default().open()).await.unwrap();
    let mut table = Table::default();
    table.put(&index, "a");
    let view = table.view();
    table.put(&index, "a");
    let page = TableRead::new(&view, &index).unwrap().delta(0, 10).await.unwrap();
    let versions: Vec<i64> = page.entries.iter().map(|entry| entry.key.version).collect();
    assert_eq!(versions, [i64::try_from(STEP).unwrap()]);
    assert_eq!((page.reached_end, page.position), (true, STEP));
}

#[tokio::test]
async fn large_values_make_short_pages_and_are_not_asked_for_by_the_gigabyte() {
    const COUNT: u64 = 100;
    let index = Index::open(MemoryDisk::default().open()).await.unwrap();
    let value = vec![7; 100 * 1024];
    let step = (TABLE_ENTRY_OVERHEAD_BYTES + 8 + value.len()) as u64;
    let rows = (0..COUNT).flat_map(|number| {
        let (key, version) = (Bytes::copy_from_slice(&number.to_be_bytes()), number * step);
        let row = encode_row(i64::try_from(version).unwrap(), &value);
        [Row::put(key::table_key(TABLE, &key), row), Row::put(key::table_version(TABLE, version), key)]
    });
    index.apply(rows.collect::<Vec<_>>(), SequenceNumber(1));
    let core = Core { exists: true, length: COUNT * step, ..Core::default() };
    let view = View::new(TABLE, "t".to_owned(), SegmentKind::HashTable, core);
    let read = TableRead::new(&view, &index).unwrap();
    let (mut position, mut found) = (0, Vec::new());
    loop {
        let page = read.delta(i64::try_from(position).unwrap(), 4096).await.unwrap();
        assert!(page.entries.iter().map(entry_bytes).sum::<usize>() < TABLE_PAGE_BYTES + 200 * 1024);
        found.extend(page.entries.into_iter().map(|entry| entry.key.key));
        position = page.position;
        if page.reached_end {
            break;
        }
    }
    assert_eq!(found.len() as u64, COUNT, "each once");
    let ask = |times: usize| {
        let key = |_nth| TableKey { key: Bytes::copy_from_slice(&0_u64.to_be_bytes()), version: 0 };
        read.get((0..times).map(key).collect())
    };
    assert_eq!(ask(100).await.unwrap().len(), 100);
    assert!(matches!(ask(1000).await, Err(TableReadError::Illegal(_))));
    let missing = TableKey { key: Bytes::from_static(b"m"), version: 0 };
    let many = read.get(vec![missing; 800_000]).await;
    assert!(matches!(many, Err(TableReadError::Illegal(_))), "20 MB of entries without values");
}
