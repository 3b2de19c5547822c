//! A container of its own on a simulated disk, with rows that can be slow, held against the model of the protocol.
//!
//! The log is driven by hand, so a test decides when anything becomes durable; tokio's clock stands still until a
//! test moves it.

mod crash;
mod fault;
mod golden;
mod load;
mod park;
mod pressure;
mod storm;
mod tier;

use super::{
    ContainerHandle, ContainerParts, Failure, LostLog, MemoryLimits, OpenError, Rules, Tier, UPLOADS_MAX,
    open,
};
use crate::index::{Change, Index, Limits, MemoryDisk, MemoryRows, Page, Rows, RowsError, WriteFault};
use crate::log::{LocalLog, Log, LogConfig, LogError, LogReader, LogRoom, LogWriter, Pace};
use crate::operation::{
    Answer, AppendReply, AppendTag, ConnectionId, Operation, Policy, Refusal, Request, SegmentKind,
    SessionId, TableCondition, TablePut,
};
use crate::read::{ColdCache, ReadConfig, ReadReply};
use crate::state::tests::append_of;
use crate::state::tests::model::Put;
use crate::state::tests::ops::Do;
use crate::tier::{Objects, Uploads};
use crate::types::{ContainerId, LogAddress, SequenceNumber};
use async_trait::async_trait;
use bytes::Bytes;
use dhara_stdx::{Clock, Disk, ManualClock, SeededEntropy, SimDisk};
use dhara_wire::codec::Uuid;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const FILE_BYTES: u64 = 64 << 10;
const CONTAINERS: u16 = 2;
/// Longer than a container takes to look after its index.
const TICK: Duration = Duration::from_millis(300);
/// How long a dead object stays.
const GRACE: Duration = Duration::from_secs(1);

/// Where calls wait while it is shut.
#[derive(Debug, Default)]
struct Gate {
    shut: AtomicBool,
    waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
}

impl Gate {
    fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        while self.let_one_pass(0) {}
    }

    /// Lets one that waits pass; false if none does.
    fn let_one_pass(&self, at: usize) -> bool {
        let mut waiting = self.waiting.lock();
        let one = at.checked_rem(waiting.len()).and_then(|at| waiting.remove(at));
        one.is_some_and(|one| one.send(()).is_ok())
    }

    async fn pass(&self) {
        if self.shut.load(Ordering::SeqCst) {
            let (sender, opened) = oneshot::channel();
            self.waiting.lock().push_back(sender);
            opened.await.expect("a gate outlives those who wait at it");
        }
    }
}

/// Rows whose look-ups return late with what they saw early, and whose writes take effect late.
#[derive(Debug)]
struct SlowRows {
    rows: Arc<MemoryRows>,
    gets: Arc<Gate>,
    writes: Arc<Gate>,
    fault: Arc<Mutex<Option<WriteFault>>>,
}

#[async_trait]
impl Rows for SlowRows {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, RowsError> {
        let seen = self.rows.get(key).await;
        self.gets.pass().await;
        seen
    }

    async fn scan(&self, range: Range<Bytes>, limits: Limits) -> Result<Page, RowsError> {
        self.rows.scan(range, limits).await
    }

    async fn write(&self, rows: Vec<Change>, applied: SequenceNumber) -> Result<(), RowsError> {
        self.writes.pass().await;
        let fault = self.fault.lock().take();
        if fault != Some(WriteFault::Refused) {
            self.rows.write(rows, applied).await?;
        }
        match fault {
            Some(_) => Err(RowsError::Store { doing: "write", source: "asked for by the test".into() }),
            None => Ok(()),
        }
    }

    async fn applied(&self) -> Result<SequenceNumber, RowsError> {
        self.rows.applied().await
    }

    fn epoch(&self) -> u64 {
        self.rows.epoch()
    }

    async fn close(&self) {
        self.rows.close().await;
    }
}

/// A log that can say that it is full.
#[derive(Debug)]
struct NarrowLog {
    log: LocalLog,
    full: AtomicBool,
}

impl Log for NarrowLog {
    fn open(&self, container: ContainerId) -> Result<(Box<dyn LogReader>, Box<dyn LogWriter>), LogError> {
        self.log.open(container)
    }

    fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError> {
        self.log.bytes(at, len)
    }

    fn room(&self) -> LogRoom {
        let room = self.log.room();
        let admissible = if self.full.load(Ordering::SeqCst) { 0 } else { room.budget_bytes };
        LogRoom { admissible_bytes: admissible, ..room }
    }

    fn oldest(&self) -> LogAddress {
        self.log.oldest()
    }

    fn close(&self) {
        self.log.close();
    }
}

/// What survives a crash.
struct World {
    disk: SimDisk,
    rows: Vec<MemoryDisk>,
    objects: Arc<InMemory>,
    limits: MemoryLimits,
    lost_log: LostLog,
    clock: Arc<ManualClock>,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let rows = (0..CONTAINERS).map(|_| MemoryDisk::default()).collect();
        let (clock, objects) = (Arc::new(ManualClock::new(1_000)), Arc::default());
        let (disk, limits, lost_log) = (SimDisk::new(seed), MemoryLimits::default(), LostLog::Refuse);
        Self { disk, rows, objects, limits, lost_log, clock, seed }
    }

    /// Small objects, so that few bytes make several.
    fn tier(&self, container: u16) -> Tier {
        let store = Arc::clone(&self.objects) as Arc<dyn ObjectStore>;
        let rules = Rules { own_bytes: 64, object_bytes: 256, ..Rules::default() };
        let cache = ColdCache::new(ReadConfig::default(), tokio::runtime::Handle::current());
        let (objects, uploads) = (Objects::new(store, ContainerId(container)), Uploads::new(UPLOADS_MAX));
        Tier { objects, uploads, cache, rules, grace: GRACE }
    }

    fn open_log(&mut self) -> Arc<NarrowLog> {
        self.seed += 1;
        let config = LogConfig {
            dir: PathBuf::from("log"),
            containers: CONTAINERS,
            file_bytes: FILE_BYTES,
            first_file_bytes: FILE_BYTES,
            budget_bytes: 1024 * FILE_BYTES,
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let entropy = Arc::new(SeededEntropy::new(self.seed));
        let log = LocalLog::open(config, disk, self.clock.clone(), entropy, Pace::Manual).unwrap();
        Arc::new(NarrowLog { log, full: AtomicBool::new(false) })
    }

    /// Opens the first container on a log of its own.
    async fn open(&mut self) -> Running {
        let log = self.open_log();
        self.open_on(&log, 0).await.unwrap()
    }

    async fn open_on(&self, log: &Arc<NarrowLog>, container: u16) -> Result<Running, OpenError> {
        let (gets, writes, fault) = (Arc::<Gate>::default(), Arc::<Gate>::default(), Arc::default());
        let rows = SlowRows {
            rows: self.rows[usize::from(container)].open(),
            gets: Arc::clone(&gets),
            writes: Arc::clone(&writes),
            fault: Arc::clone(&fault),
        };
        let stop = CancellationToken::new();
        let parts = ContainerParts {
            id: ContainerId(container),
            log: Arc::clone(log) as Arc<dyn Log>,
            index: Index::open(Arc::new(rows)).await.unwrap(),
            tier: self.tier(container),
            limits: self.limits,
            lost_log: self.lost_log.clone(),
            clock: self.clock.clone(),
            storage: tokio::runtime::Handle::current(),
            stop: stop.clone(),
        };
        let (handle, task) = open(parts).await?;
        let (log, heard) = (Arc::clone(log), Heard::default());
        let running = Running { handle, task, log, gets, writes, fault, stop, heard };
        running.settle().await;
        Ok(running)
    }

    /// Cuts the power: of what was not synced anything may be left.
    async fn crash(&mut self, running: Running, seed: u64) {
        self.disk = self.disk.crash(seed);
        running.task.abort();
        drop(running.task.await);
    }
}

/// An open container.
struct Running {
    handle: ContainerHandle,
    task: JoinHandle<Result<(), Failure>>,
    log: Arc<NarrowLog>,
    gets: Arc<Gate>,
    writes: Arc<Gate>,
    /// What becomes of the next write of the index.
    fault: Arc<Mutex<Option<WriteFault>>>,
    stop: CancellationToken,
    heard: Heard,
}

type Outcome = Result<Answer, Refusal>;

/// Outcomes in the order in which they came, by the number that the test gave the operation.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<(usize, Outcome)>>>);

impl Heard {
    fn all(&self) -> Vec<(usize, Outcome)> {
        self.0.lock().clone()
    }

    fn of(&self, number: usize) -> Option<Outcome> {
        let heard = self.0.lock();
        let mut outcomes = heard.iter().filter(|(of, _)| *of == number).map(|(_, outcome)| outcome.clone());
        let first = outcomes.next();
        assert!(outcomes.next().is_none(), "operation {number} was answered twice");
        first
    }
}

/// Hears of one append.
struct Listener {
    number: usize,
    heard: Heard,
}

impl AppendReply for Listener {
    fn appended(&self, _: &AppendTag, outcome: Outcome) {
        self.heard.0.lock().push((self.number, outcome));
    }
}

impl Running {
    /// Lets every task run until all of them wait.
    async fn idle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Makes durable what was appended, until nothing moves any more.
    async fn settle(&self) {
        self.idle().await;
        while self.log.log.turn().unwrap_or(false) {
            self.idle().await;
        }
        self.idle().await;
    }

    /// Moves the clock, then settles.
    async fn pass(&self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            tokio::time::advance(time.min(Duration::from_secs(1))).await;
            self.settle().await;
        }
    }

    /// Makes what is in the overlay part of the rows.
    async fn flush(&self) {
        // A log that is filling up is what makes a container flush at once.
        self.log.full.store(true, Ordering::SeqCst);
        self.pass(TICK).await;
        self.log.full.store(false, Ordering::SeqCst);
        // A container that found the log full looks again at its next tick.
        self.pass(TICK).await;
    }

    async fn send(&self, number: usize, what: &Do) {
        let operation = match what {
            Do::Request(request) => {
                let heard = self.heard.clone();
                let call = move |outcome: Outcome| heard.0.lock().push((number, outcome));
                Operation::Call(request.clone(), Box::new(call))
            }
            Do::Append(put, writer) => {
                let listener = Listener { number, heard: self.heard.clone() };
                Operation::Append(append_of(put, *writer, Arc::new(listener)))
            }
            Do::EndSession(session) => Operation::EndSession(*session),
            Do::Disconnect(connection) => Operation::Disconnected(*connection),
        };
        self.handle.send(operation).await.unwrap();
    }

    async fn request(&self, number: usize, request: Request) {
        self.send(number, &Do::Request(request)).await;
    }

    async fn append(&self, number: usize, session: SessionId, event: i64, data: &'static [u8]) {
        let put =
            Put { session, number: event, data: Bytes::from_static(data), events: 1, expected_offset: None };
        self.send(number, &Do::Append(put, WRITER)).await;
    }

    /// All that a reader gets of a segment from its start on.
    async fn content(&self, name: &str) -> Option<Vec<u8>> {
        let view = self.handle.views().find(name)?;
        let (mut at, mut content) = (view.core().start, Vec::new());
        while at < view.core().length {
            let read = view.read(self.handle.log(), self.handle.cold(), at, 1 << 20);
            // The clock stands still, so nothing but the read itself can end it.
            match tokio::time::timeout(Duration::from_secs(1), read).await.map(Result::unwrap) {
                Ok(ReadReply::Data { chunks, .. }) => {
                    assert!(!chunks.is_empty() && chunks.iter().all(|chunk| !chunk.is_empty()));
                    content.extend(chunks.iter().flat_map(|chunk| chunk.iter().copied()));
                    at = view.core().start + content.len() as u64;
                }
                other => panic!("there are bytes at {at} of {name}, but a read gave {other:?}"),
            }
        }
        Some(content)
    }

    /// Stops in order.
    async fn stop(self) -> Heard {
        self.stop.cancel();
        while !self.task.is_finished() {
            self.settle().await;
        }
        self.task.await.unwrap().unwrap();
        self.heard
    }
}

const WRITER: Uuid = Uuid(0xfeed);

fn session(connection: u64, number: u32) -> SessionId {
    SessionId { connection: ConnectionId(connection), number }
}

fn create(name: &str, kind: SegmentKind) -> Request {
    Request::Create { name: name.into(), kind, policy: Policy::default(), rollover_bytes: 0 }
}

fn set_up(session: SessionId, name: &str) -> Request {
    Request::SetupAppend { session, name: name.into(), writer: WRITER }
}

fn put(name: &str, key: &str, condition: TableCondition) -> Request {
    let put = TablePut {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"value"),
        condition,
    };
    Request::TableUpdate { name: name.into(), puts: vec![put], expected_length: None }
}

/// Runs on one thread whose clock stands still.
fn on_paused_clock(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test);
}
