use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

use super::*;

type Model = BTreeMap<Bytes, Bytes>;

fn key(n: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'k', n])
}

fn value(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

fn all() -> Range<Bytes> {
    key(0)..key(u8::MAX)
}

/// Runs a future that never has to wait, as all do above rows in memory.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("rows in memory answer at once"),
    }
}

/// One step of a container's life.
#[derive(Clone, Debug)]
enum Step {
    /// A record sets or removes rows.
    Apply(Vec<(u8, Change)>),
    /// The overlay is frozen, with one row of the container's own.
    Freeze(u8),
    /// The frozen overlay is written.
    Flush,
    /// The frozen overlay is written or not, and the process ends.
    FlushFails(bool),
    Crash,
    Scan {
        start: u8,
        end: u8,
        limit_rows: usize,
        limit_bytes: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put,
    Gone,
}

fn any_step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![3 => Just(Change::Put), 2 => Just(Change::Gone)];
    prop_oneof![
        8 => vec((0..12_u8, change), 0..4).prop_map(Step::Apply),
        3 => (0..12_u8).prop_map(Step::Freeze),
        3 => Just(Step::Flush),
        1 => any::<bool>().prop_map(Step::FlushFails),
        1 => Just(Step::Crash),
        4 => (0..13_u8, 0..13_u8, 1..6_usize, 0..40_usize).prop_map(|(start, end, limit_rows, limit_bytes)| {
            Step::Scan { start, end, limit_rows, limit_bytes }
        }),
    ]
}

/// An index beside what it should be: the state now, and the state as of each sequence number.
struct World {
    disk: MemoryDisk,
    index: Index,
    frozen: Option<Frozen>,
    model: Model,
    history: BTreeMap<SequenceNumber, Model>,
    last: SequenceNumber,
}

impl World {
    fn new() -> Self {
        let disk = MemoryDisk::default();
        let index = now(Index::open(disk.open())).unwrap();
        let history = BTreeMap::from([(SequenceNumber(0), Model::new())]);
        Self { disk, index, frozen: None, model: Model::new(), history, last: SequenceNumber(0) }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Apply(changes) => self.apply(&changes),
            Step::Freeze(own) => self.freeze(own),
            Step::Flush => {
                if let Some(frozen) = self.frozen.take() {
                    let as_of = frozen.as_of();
                    prop_assert_eq!(now(self.index.flush(frozen)).unwrap(), as_of);
                    prop_assert_eq!(self.index.applied(), as_of);
                    prop_assert!(!self.index.dirty().in_flight);
                }
            }
            Step::FlushFails(answer_lost) => {
                if let Some(frozen) = self.frozen.take() {
                    let fault = if answer_lost { WriteFault::AnswerLost } else { WriteFault::Refused };
                    self.disk.fail_next_write(fault);
                    prop_assert!(now(self.index.flush(frozen)).is_err());
                    self.agrees()?;
                    prop_assert!(self.index.freeze([], self.last).is_none());
                    self.crash()?;
                }
            }
            Step::Crash => self.crash()?,
            Step::Scan { start, end, limit_rows, limit_bytes } => {
                self.scan(key(start)..key(end), limit_rows, limit_bytes)?;
            }
        }
        self.agrees()
    }

    fn apply(&mut self, changes: &[(u8, Change)]) {
        self.last = self.last.next();
        let mut rows = Vec::new();
        for &(n, change) in changes {
            let key = key(n);
            match change {
                Change::Put => {
                    let born = !self.model.contains_key(&key);
                    let value = value(self.last.0);
                    self.model.insert(key.clone(), value.clone());
                    rows.push(if born { Row::born(key, value) } else { Row::put(key, value) });
                }
                Change::Gone => {
                    self.model.remove(&key);
                    rows.push(Row::gone(key));
                }
            }
        }
        self.index.apply(rows, self.last);
        self.history.insert(self.last, self.model.clone());
    }

    fn freeze(&mut self, own: u8) {
        let row = (key(own), value(self.last.0 | 1 << 32));
        if let Some(frozen) = self.index.freeze([Row::put(row.0.clone(), row.1.clone())], self.last) {
            assert!(self.frozen.is_none(), "one flush at a time");
            self.model.insert(row.0, row.1);
            self.history.insert(self.last, self.model.clone());
            self.frozen = Some(frozen);
        }
    }

    /// Ends the process: whatever was not flushed is gone, and the rows are the state at exactly `applied`.
    fn crash(&mut self) -> Result<(), TestCaseError> {
        self.frozen = None;
        self.index = now(Index::open(self.disk.open())).unwrap();
        self.last = self.index.applied();
        self.model = self.history[&self.last].clone();
        prop_assert_eq!(&self.disk.rows(), &self.model);
        self.history.retain(|sequence, _| *sequence <= self.last);
        Ok(())
    }

    /// Each key and the whole space read as in the model.
    fn agrees(&self) -> Result<(), TestCaseError> {
        for n in 0..12 {
            let expected = self.model.get(&key(n)).cloned();
            prop_assert_eq!(&now(self.index.get(&key(n))).unwrap(), &expected);
            match self.index.peek(&key(n)) {
                Peek::Found(value) => prop_assert_eq!(Some(value), expected),
                Peek::Absent => prop_assert_eq!(None, expected),
                Peek::Unknown => {}
            }
        }
        self.scan(all(), 3, usize::MAX)
    }

    fn scan(&self, range: Range<Bytes>, limit_rows: usize, limit_bytes: usize) -> Result<(), TestCaseError> {
        let expected: Vec<_> = if range.start < range.end {
            self.model.range(range.clone()).map(|(key, value)| (key.clone(), value.clone())).collect()
        } else {
            Vec::new()
        };
        let (mut seen, mut rest) = (Vec::new(), range);
        loop {
            let page = now(self.index.scan(rest.clone(), limit_rows, limit_bytes)).unwrap();
            let bytes: usize = page.rows.iter().map(|(key, value)| key.len() + value.len()).sum();
            prop_assert!(page.rows.len() <= limit_rows && (bytes <= limit_bytes || page.rows.len() == 1));
            let last_len = page.rows.len();
            seen.extend(page.rows);
            let Some(next) = page.next else { break };
            prop_assert!(next > rest.start, "each page gets further");
            prop_assert!(last_len > 0, "only the last page may be empty");
            rest.start = next;
        }
        prop_assert_eq!(seen, expected);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn index_agrees_with_model_through_flushes_and_crashes(steps in vec(any_step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step)?;
        }
    }
}

#[test]
fn row_that_was_born_and_died_leaves_nothing() {
    let index = now(Index::open(MemoryDisk::default().open())).unwrap();
    index.apply([Row::born(key(1), value(1))], SequenceNumber(1));
    index.apply([Row::put(key(1), value(2))], SequenceNumber(2));
    assert!(index.dirty().since.is_some());
    index.apply([Row::gone(key(1))], SequenceNumber(3));
    assert_eq!(index.dirty(), Dirty::default());
    let frozen = index.freeze([], SequenceNumber(3)).unwrap();
    assert_eq!(frozen.rows(), 0);
    assert_eq!(now(index.flush(frozen)).unwrap(), SequenceNumber(3));
}

#[test]
fn tombstone_outlives_a_row_born_over_it() {
    let disk = MemoryDisk::default();
    let index = now(Index::open(disk.open())).unwrap();
    index.apply([Row::put(key(1), value(1))], SequenceNumber(1));
    now(index.flush(index.freeze([], SequenceNumber(1)).unwrap())).unwrap();
    index.apply([Row::gone(key(1)), Row::born(key(1), value(2)), Row::gone(key(1))], SequenceNumber(2));
    assert_eq!(index.peek(&key(1)), Peek::Absent);
    now(index.flush(index.freeze([], SequenceNumber(2)).unwrap())).unwrap();
    assert_eq!(disk.rows(), Model::new());
}

#[test]
fn unknown_is_not_absent() {
    let index = now(Index::open(MemoryDisk::default().open())).unwrap();
    assert_eq!(index.peek(&key(1)), Peek::Unknown);
    index.apply([Row::gone(key(1))], SequenceNumber(1));
    assert_eq!(index.peek(&key(1)), Peek::Absent);
    let _in_flight = index.freeze([], SequenceNumber(1)).unwrap();
    assert_eq!(index.peek(&key(1)), Peek::Absent);
}

#[test]
fn freeze_where_nothing_happened_is_none() {
    let index = now(Index::open(MemoryDisk::default().open())).unwrap();
    assert!(index.freeze([Row::put(key(1), value(1))], SequenceNumber(0)).is_none());
    index.apply([], SequenceNumber(1));
    let frozen = index.freeze([], SequenceNumber(1)).unwrap();
    assert!(index.freeze([], SequenceNumber(1)).is_none());
    now(index.flush(frozen)).unwrap();
    assert!(index.freeze([], SequenceNumber(1)).is_none());
    index.apply([Row::gone(key(3))], SequenceNumber(1));
    assert!(index.freeze([], SequenceNumber(1)).is_some());
}

/// Rows whose scan waits, once it has its answer, until the test lets it go.
struct SlowRows {
    inner: Arc<MemoryRows>,
    before: Notify,
    answered: Notify,
    go: Notify,
}

#[async_trait::async_trait]
impl Rows for SlowRows {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError> {
        self.inner.get(key).await
    }

    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError> {
        self.answered.notify_one();
        self.before.notified().await;
        let page = self.inner.scan(range, limits).await;
        self.answered.notify_one();
        self.go.notified().await;
        page
    }

    async fn write(&self, rows: Vec<rows::Change>, applied: SequenceNumber) -> Result<(), RowsError> {
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

/// Every record moves one row on: the two keys never both have a value and are never both without.
fn move_row(index: &Index, to: u8, sequence: u64) {
    let rows = [Row::put(key(to), value(sequence)), Row::gone(key(1 - to))];
    index.apply(rows, SequenceNumber(sequence));
}

async fn flush_as_of(index: &Index, sequence: u64) {
    let frozen = index.freeze([], SequenceNumber(sequence)).unwrap();
    index.flush(frozen).await.unwrap();
}

#[tokio::test]
async fn scan_overtaken_by_a_flush_is_still_of_one_moment() {
    for flush_before_answer in [false, true] {
        let disk = MemoryDisk::default();
        let rows = Arc::new(SlowRows {
            inner: disk.open(),
            before: Notify::new(),
            answered: Notify::new(),
            go: Notify::new(),
        });
        let index = Index::open(Arc::clone(&rows) as Arc<dyn Rows>).await.unwrap();
        move_row(&index, 0, 1);
        flush_as_of(&index, 1).await;
        let scan = tokio::spawn({
            let index = index.clone();
            async move { index.scan(all(), 10, usize::MAX).await.unwrap() }
        });
        rows.answered.notified().await;
        if flush_before_answer {
            move_row(&index, 1, 2);
            flush_as_of(&index, 2).await;
        }
        rows.before.notify_one();
        rows.answered.notified().await;
        if !flush_before_answer {
            move_row(&index, 1, 2);
            flush_as_of(&index, 2).await;
        }
        rows.go.notify_one();
        // Overtaken, it looks again.
        rows.before.notify_one();
        rows.go.notify_one();
        let page = scan.await.unwrap();
        assert_eq!(page.rows, [(key(1), value(2))]);
    }
}

#[tokio::test]
async fn generation_tells_that_a_looked_up_value_may_be_old() {
    let index = Index::open(MemoryDisk::default().open()).await.unwrap();
    let generation = index.generation();
    assert_eq!(index.get(&key(1)).await.unwrap(), None);
    index.apply([Row::put(key(1), value(1))], SequenceNumber(1));
    flush_as_of(&index, 1).await;
    assert_eq!(index.peek(&key(1)), Peek::Unknown);
    assert_ne!(index.generation(), generation);
}

#[test]
fn page_after_many_tombstones_is_not_empty() {
    let index = now(Index::open(MemoryDisk::default().open())).unwrap();
    let rows = (0..200).map(|n| Row::put(key(n), value(1)));
    index.apply(rows, SequenceNumber(1));
    now(index.flush(index.freeze([], SequenceNumber(1)).unwrap())).unwrap();
    index.apply((0..199).map(|n| Row::gone(key(n))), SequenceNumber(2));
    let page = now(index.scan(all(), 1, usize::MAX)).unwrap();
    assert_eq!(page, Page { rows: vec![(key(199), value(1))], next: None });
}

#[test]
fn failed_flush_is_unknown_and_a_failed_read_may_be_made_again() {
    let disk = MemoryDisk::default();
    let index = now(Index::open(disk.open())).unwrap();
    index.apply([Row::put(key(1), value(1))], SequenceNumber(1));
    disk.fail_next_write(WriteFault::AnswerLost);
    let error = now(index.flush(index.freeze([], SequenceNumber(1)).unwrap())).unwrap_err();
    assert_eq!((error.retry(), error.is_fenced()), (Retry::Unknown, false));
    let later = now(Index::open(disk.open())).unwrap();
    assert_eq!(later.applied(), SequenceNumber(1));
    assert!(later.epoch() > index.epoch());
    let index = now(Index::open(disk.open())).unwrap();
    later.apply([Row::put(key(1), value(2))], SequenceNumber(2));
    let error = now(later.flush(later.freeze([], SequenceNumber(2)).unwrap())).unwrap_err();
    assert_eq!((error.retry(), error.is_fenced()), (Retry::Never, true));
    now(index.close());
    assert_eq!(now(index.get(&key(1))).unwrap_err().retry(), Retry::Never);
}
