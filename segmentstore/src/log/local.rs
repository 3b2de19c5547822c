//! [`LocalLog`]: all containers of a process in one stream of files, one thread, one sync at a time.
//!
//! Opening recovers: what was believed is durable before anything is shown, always in a new file of a new epoch. The
//! thread is a loop over [`Committer::commit`]; a simulation calls [`LocalLog::turn`] instead.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use dhara_stdx::{Clock, Disk, DiskLock, Entropy, OpenMode, sched};
use parking_lot::Mutex;

use super::commit::{Committer, Seams, Start, kept_bytes};
use super::error::LogError;
use super::format::file::{FIRST_FRAME_AT, LOCK_NAME};
use super::format::floor::{self, Floor, Mark};
use super::format::frame::{PAYLOAD_BYTES_FILL, frame_bytes};
use super::format::record::Batch;
use super::keeper::Keeper;
use super::queue::{DurableWatch, Queue, Work};
use super::reader::LocalReader;
use super::recovery::recover;
use super::table::FileTable;
use super::{Log, LogEnds, LogRoom, LogWriter};
use crate::types::{ContainerEpoch, ContainerId, LogAddress};

/// After this long without new batches the last frame is proven by an empty one.
const QUIET: Duration = Duration::from_millis(1);
/// How long a full log waits before it looks again whether a file was freed.
const FULL_RETRY: Duration = Duration::from_millis(20);
/// Filled frames that a log file holds at least.
const FILE_FRAMES_MIN: u64 = 8;
/// Time slice of the log thread: it wakes from a sync before a busy thread's slice ends.
const SLICE_US: u32 = 100;
/// Niceness of the thread that fills reserved files.
const KEEPER_NICE: i32 = 10;

/// Where a log lies and how large it may grow.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Folder of the log, its own; made if missing.
    pub dir: PathBuf,
    /// Containers that share the log, `1..=65535`; fixed when the log is made.
    pub containers: u16,
    /// Bytes of a file; a multiple of 4 KiB below 4 GiB.
    pub file_bytes: u64,
    /// Bytes of the first file of each epoch, small since it is zero-filled before the log opens.
    pub first_file_bytes: u64,
    /// Bytes that all files together may have.
    pub budget_bytes: u64,
}

impl LogConfig {
    /// Files of 128 MiB, the first of 16 MiB, 16 GiB in all.
    pub fn new(dir: PathBuf, containers: u16) -> Self {
        Self { dir, containers, file_bytes: 128 << 20, first_file_bytes: 16 << 20, budget_bytes: 16 << 30 }
    }

    /// Files of an eighth of the budget, so that the oldest can go while the next ones are written.
    #[must_use]
    pub fn with_budget(self, budget_bytes: u64) -> Self {
        const MIB: u64 = 1 << 20;
        let file_bytes = (budget_bytes / 8 / MIB * MIB).clamp(32 * MIB, 128 * MIB);
        Self { file_bytes, budget_bytes, ..self }
    }

    /// Largest batch that fits in a file of its own.
    fn batch_bytes_max(&self) -> u64 {
        let floors = floor::encoded_len(usize::from(self.containers));
        let kept = FIRST_FRAME_AT + kept_bytes(floors) + frame_bytes(floors);
        self.file_bytes.saturating_sub(kept)
    }

    /// Bytes up to which a frame takes batches: in a small log a small part of a file, since what a frame finds no
    /// room for is lost with the rest of its file.
    fn fill_bytes(&self) -> usize {
        usize::try_from(self.file_bytes / FILE_FRAMES_MIN)
            .map_or(PAYLOAD_BYTES_FILL, |part| part.min(PAYLOAD_BYTES_FILL))
    }

    /// Bytes that only operations which free space may use.
    fn reserved_bytes(&self) -> u64 {
        (2 * self.file_bytes).min(self.budget_bytes / 4)
    }
}

/// Who runs the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Threads of its own.
    Threads,
    /// The caller, by [`LocalLog::turn`]: for simulations.
    Manual,
}

#[derive(Debug)]
struct Shared {
    config: LogConfig,
    pace: Pace,
    seams: Seams,
    table: Arc<FileTable>,
    keeper: Arc<Keeper>,
    queue: Queue,
}

/// The log of all containers of this process, in one folder.
pub struct LocalLog {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    manual: Mutex<Option<Committer>>,
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

impl fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLog").field("dir", &self.shared.config.dir).finish_non_exhaustive()
    }
}

impl LocalLog {
    /// Opens the log in its folder, an empty folder being a new log. Blocks: it reads all of the log.
    ///
    /// # Errors
    /// [`LogError::Locked`], [`LogError::Rotten`], [`LogError::Lost`], [`LogError::Foreign`], or what the disk says;
    /// the files are then as they were.
    pub fn open(
        config: LogConfig,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        pace: Pace,
    ) -> Result<Self, LogError> {
        let seams = Seams { disk, clock, entropy };
        let lock = lock(&seams, &config)?;
        let (committer, table, keeper, marks) = start(&seams, &config)?;
        let queue = Queue::new(&marks, config.fill_bytes());
        let shared = Arc::new(Shared { config, pace, seams, table, keeper, queue });
        let log = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
            manual: Mutex::new(None),
            lock: Mutex::new(Some(lock)),
        };
        match pace {
            Pace::Manual => *log.manual.lock() = Some(committer),
            Pace::Threads => {
                let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
                    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
                    spawned.map_err(|source| LogError::io("start a thread for", &shared.config.dir, source))
                };
                let (commits, keeps) = (Arc::clone(&shared), Arc::clone(&shared));
                let mut threads = log.threads.lock();
                threads.push(spawn("log", Box::new(move || commit_loop(&commits, committer)))?);
                threads.push(spawn("log-keeper", Box::new(move || keep_loop(&keeps)))?);
            }
        }
        Ok(log)
    }

    /// Writes one frame of what is pending, for a log of [`Pace::Manual`]; false if nothing was pending. What a full
    /// log cannot take stays pending.
    ///
    /// # Errors
    /// Why the log is closed from now on.
    pub fn turn(&self) -> Result<bool, LogError> {
        let mut manual = self.manual.lock();
        let Some(committer) = manual.as_mut() else { return Err(LogError::Closed) };
        let Some(work) = self.shared.queue.poll() else { return Ok(false) };
        let done = work_once(&self.shared, committer, work).and_then(|()| {
            self.shared.keeper.recycle(&self.shared.seams, &self.shared.config, &self.shared.table)
        });
        if let Err(why) = &done {
            self.shared.queue.end(why);
            *manual = None;
        }
        done.map(|()| true)
    }

    /// Proves the last frame, for a log of [`Pace::Manual`]: what threads do after a quiet millisecond.
    ///
    /// # Errors
    /// Why the log is closed from now on.
    pub fn quiet(&self) -> Result<(), LogError> {
        let mut manual = self.manual.lock();
        let Some(committer) = manual.as_mut() else { return Err(LogError::Closed) };
        let done = committer.prove();
        if let Err(why) = &done {
            self.shared.queue.end(why);
            *manual = None;
        }
        done
    }
}

fn lock(seams: &Seams, config: &LogConfig) -> Result<Box<dyn DiskLock>, LogError> {
    seams
        .disk
        .create_dir_all(&config.dir)
        .map_err(|source| LogError::io("make folder", &config.dir, source))?;
    let path = config.dir.join(LOCK_NAME);
    seams.disk.try_lock(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => LogError::Locked { path: config.dir.clone() },
        _ => LogError::io("lock", &path, source),
    })
}

type Started = (Committer, Arc<FileTable>, Arc<Keeper>, Vec<Mark>);

/// Recovers and begins a new epoch.
fn start(seams: &Seams, config: &LogConfig) -> Result<Started, LogError> {
    let recovered = recover(seams, config)?;
    for name in &recovered.useless {
        let path = config.dir.join(name);
        seams.disk.remove(&path).map_err(|source| LogError::io("remove", &path, source))?;
    }
    let keeper = Arc::new(Keeper::default());
    keeper.adopt(seams, config, &recovered.names)?;

    let table = Arc::new(FileTable::default());
    let last = recovered.files.last();
    let start = Start {
        log: last.map_or_else(|| seams.entropy.uuid(), |found| found.header.log),
        epoch: last.map_or(1, |found| found.header.epoch + 1),
        number: last.map_or(1, |found| found.header.number + 1),
        previous_end: last.map_or(0, |found| found.end),
        chain: recovered.chain,
        marks: recovered.marks,
        unproven: recovered.unproven,
    };
    // A file without frames may have been made just before a kill, with nothing in the one before to say so.
    let next = recovered.files.iter().skip(1).map(|next| (next.header.epoch, next.end == FIRST_FRAME_AT));
    let next: Vec<(u64, bool)> = next.chain([(start.epoch, false)]).collect();
    let mut ended = Vec::new();
    for (found, (next_epoch, next_is_empty)) in recovered.files.into_iter().zip(next) {
        if (found.header.epoch < next_epoch || next_is_empty) && found.end < found.len {
            // Opened before this epoch has a file: a start that fails leaves the log as it was.
            let opened = seams.disk.open(&found.path, OpenMode::Write);
            let file = opened.map_err(|source| LogError::io("open", &found.path, source))?;
            ended.push((file, found.path.clone(), found.header.number, found.end));
        }
        let failed = |source| LogError::io("map", &found.path, source);
        let map = found.file.map_sealed(found.end).map_err(failed)?;
        table.push_sealed((found.header.number, found.header.incarnation), found.len, map, found.last);
    }
    let parts = (Arc::clone(&table), Arc::clone(&keeper));
    let committer = Committer::start(seams.clone(), config.clone(), parts, start)?;
    for (file, path, number, end) in ended {
        // The file after it says where it ends, so what it reserved behind that is given back; and its length says from
        // then on that there is a file after it.
        let shortened = file.set_len(end).and_then(|()| file.sync_all());
        shortened.map_err(|source| LogError::io("shorten", &path, source))?;
        table.set_len(number, end);
    }
    let marks = committer.marks().to_vec();
    Ok((committer, table, keeper, marks))
}

/// Ends every writer on whatever way the log thread ends, a panic among them.
struct EndOnDrop<'a>(&'a Shared);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.queue.end(&LogError::Closed);
        self.0.keeper.close();
    }
}

fn commit_loop(shared: &Shared, mut committer: Committer) {
    sched::shape_thread(SLICE_US, 0);
    let _end = EndOnDrop(shared);
    loop {
        let work = shared.queue.wait(committer.unproven().then_some(QUIET));
        let close = matches!(work, Work::Close);
        if let Err(why) = work_once(shared, &mut committer, work) {
            tracing::error!(error = %why, "log closed");
            shared.queue.end(&why);
            return;
        }
        if close {
            return;
        }
    }
}

fn keep_loop(shared: &Shared) {
    sched::shape_thread(SLICE_US, KEEPER_NICE);
    while let Err(why) = shared.keeper.run(&shared.seams, &shared.config, &shared.table) {
        tracing::warn!(error = %why, "log files could not be reserved or given back, it is tried again");
        if !shared.keeper.pause() {
            return;
        }
    }
}

/// One step of the log: a frame, the proof of one, or the end.
fn work_once(shared: &Shared, committer: &mut Committer, work: Work) -> Result<(), LogError> {
    let (batches, floors) = match work {
        Work::Quiet | Work::Close => return committer.prove(),
        Work::Commit { batches, floors } => (batches, floors),
    };
    match committer.commit(&batches, floors.as_deref()) {
        Ok((committed, freed)) => {
            shared.queue.publish(&committed);
            shared.keeper.give(freed);
            Ok(())
        }
        Err(LogError::Full) => {
            shared.keeper.give(committer.free_for(&batches)?);
            let wait = match shared.pace {
                Pace::Threads => FULL_RETRY,
                Pace::Manual => Duration::ZERO,
            };
            if shared.queue.put_back(batches, wait) { Ok(()) } else { Err(LogError::Full) }
        }
        Err(why) => Err(why),
    }
}

impl Log for LocalLog {
    fn open(&self, container: ContainerId) -> Result<LogEnds, LogError> {
        let (generation, watch, mark) = self.shared.queue.open(container)?;
        let files = self.shared.table.views();
        let reader = LocalReader::new(self.shared.config.dir.clone(), container, files, mark);
        let writer = LocalWriter { shared: Arc::clone(&self.shared), container, generation, watch };
        Ok((Box::new(reader), Box::new(writer)))
    }

    fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError> {
        self.shared.table.bytes(at, len)
    }

    fn room(&self) -> LogRoom {
        let Shared { config, table, keeper, queue, .. } = &*self.shared;
        let (used_bytes, left) = (table.used_bytes() + keeper.freed_bytes(), table.left_bytes());
        let within_budget = config.budget_bytes.saturating_sub(used_bytes);
        // On a full disk only what is reserved already can be filled.
        let more = if keeper.is_full() { within_budget.min(keeper.ready_bytes()) } else { within_budget };
        // What ends a file early is lost: a frame that did not fit.
        let whole =
            more / config.file_bytes * config.file_bytes.saturating_sub(frame_bytes(config.fill_bytes()));
        let reserved_bytes = whole + left;
        let admissible_bytes = reserved_bytes.saturating_sub(config.reserved_bytes());
        queue.less_pending(LogRoom {
            admissible_bytes,
            reserved_bytes,
            used_bytes,
            budget_bytes: config.budget_bytes,
        })
    }

    fn oldest(&self) -> LogAddress {
        self.shared.table.oldest()
    }

    fn blocks(&self) -> bool {
        self.shared.pace == Pace::Threads
    }

    fn close(&self) {
        self.shared.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        let manual = self.manual.lock().take();
        if let Some(mut committer) = manual {
            while let Some(work) = self.shared.queue.poll() {
                if work_once(&self.shared, &mut committer, work).is_err() {
                    break;
                }
            }
            // The log closes either way; the next recovery finds what could not be proven.
            drop(committer.prove());
            self.shared.queue.end(&LogError::Closed);
        }
        for thread in threads {
            // A panic of that thread has ended every writer already.
            drop(thread.join());
        }
        *self.lock.lock() = None;
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// Writer of one container.
#[derive(Debug)]
struct LocalWriter {
    shared: Arc<Shared>,
    container: ContainerId,
    generation: u64,
    watch: DurableWatch,
}

impl LogWriter for LocalWriter {
    fn begin(&mut self, epoch: ContainerEpoch) -> Result<(), LogError> {
        self.shared.queue.begin(self.container, self.generation, epoch)
    }

    fn append(&mut self, batch: Batch) -> Result<(), LogError> {
        assert!(batch.container == self.container, "batch of container {}", batch.container);
        let bytes = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        if bytes > self.shared.config.batch_bytes_max() {
            return Err(LogError::TooLarge { bytes });
        }
        self.shared.queue.append(self.generation, batch)
    }

    fn durable(&self) -> DurableWatch {
        self.watch.clone()
    }

    fn set_floor(&mut self, floor: Floor) {
        self.shared.queue.set_floor(self.container, self.generation, floor);
    }

    fn close(self: Box<Self>) {
        self.shared.queue.close_writer(self.container, self.generation);
    }
}
