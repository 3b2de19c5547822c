//! A simulated machine: what survives a crash, and the process that runs on it until then.

use super::court::Court;
use super::front::Front;
use super::log::SimLog;
use crate::container::{
    ContainerHandle, ContainerParts, Failure, LostLog, MemoryLimits, OpenError, Rules, Tier, UPLOADS_MAX,
    open,
};
use crate::index::{Index, SharedCache, SlateOptions, open_slate};
use crate::log::{LocalLog, Log, LogConfig, LogError, Pace};
use crate::read::{ColdCache, ReadConfig};
use crate::sim::store::{Line, SimObjectStore};
use crate::sim::{SimClock, Trace};
use crate::tier::{Objects, Uploads};
use crate::types::ContainerId;
use dhara_stdx::{Clock, Disk, Entropy, SeededEntropy, SimDisk};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// First wait before a failed container is opened again; doubled each time.
const REOPEN_MIN: Duration = Duration::from_millis(100);
/// Longest such wait.
const REOPEN_MAX: Duration = Duration::from_secs(10);

/// How a machine is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) containers: u16,
    pub(super) log_budget_bytes: u64,
    /// Bytes of the cache of index blocks.
    pub(super) cache_bytes: usize,
    pub(super) read: ReadConfig,
    /// Longest wait of the index for one call of the object store.
    pub(super) call_timeout: Duration,
    pub(super) rules: Rules,
    pub(super) limits: MemoryLimits,
    /// How long a dead object stays.
    pub(super) grace: Duration,
}

/// Bytes of a log file: above what all clients have under way at a time.
const FILE_BYTES: u64 = 1 << 20;

/// What a process comes to its end by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Crash {
    /// Power fails: of what was not synced anything may be left.
    PowerCut,
    /// The process dies; what it wrote is there.
    Kill,
}

pub(super) struct Machine {
    pub(super) setup: Setup,
    pub(super) trace: Trace,
    pub(super) court: Court,
    pub(super) clock: Arc<SimClock>,
    pub(super) disk: SimDisk,
    pub(super) objects: SimObjectStore,
    pub(super) front: Arc<Front>,
    chance: SeededEntropy,
    process: Option<Process>,
}

struct Process {
    log: Arc<SimLog>,
    cold: ColdCache,
    line: Line,
    stop: CancellationToken,
    /// Told when the log has ended.
    broken: Arc<Notify>,
    keepers: Vec<Arc<Keeper>>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Machine {
    pub(super) fn new(seed: u64, setup: Setup, trace: Trace, unix_ms: i64) -> Self {
        let chance = SeededEntropy::new(seed);
        let objects = SimObjectStore::new(chance.next_u64(), unix_ms, trace.clone());
        Self {
            setup,
            court: Court::new(trace.clone()),
            clock: Arc::new(SimClock::new(unix_ms)),
            disk: SimDisk::new(chance.next_u64()),
            objects,
            front: Arc::new(Front::new(setup.containers)),
            trace,
            chance,
            process: None,
        }
    }

    /// Starts a process: opens the log and sets out to open every container.
    ///
    /// # Errors
    /// Why the log does not open.
    pub(super) fn start(&mut self) -> Result<(), LogError> {
        let config = LogConfig {
            dir: PathBuf::from("log"),
            containers: self.setup.containers,
            file_bytes: FILE_BYTES,
            first_file_bytes: FILE_BYTES / 4,
            budget_bytes: self.setup.log_budget_bytes,
        };
        self.trace.note(format_args!("process starts"));
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let entropy = Arc::new(SeededEntropy::new(self.chance.next_u64()));
        let log = LocalLog::open(config, disk, clock, entropy, Pace::Manual)?;
        let log = Arc::new(SimLog::new(log, self.disk.clone(), self.trace.clone()));
        let (stop, broken) = (CancellationToken::new(), Arc::new(Notify::new()));
        let line = self.objects.line();
        let (driven, ended) = (Arc::clone(&log), Arc::clone(&broken));
        let (trace, chance) = (self.trace.clone(), SeededEntropy::new(self.chance.next_u64()));
        let drive = async move {
            let why = driven.drive(&chance).await;
            trace.note(format_args!("log ends: {why}"));
            ended.notify_one();
        };
        let mut tasks = vec![AbortOnDropHandle::new(tokio::spawn(drive))];
        let cache = SharedCache::new(self.setup.cache_bytes);
        let cold = ColdCache::new(self.setup.read, Handle::current());
        let mut keepers = Vec::new();
        for number in 0..self.setup.containers {
            let keeper = Arc::new(Keeper {
                id: ContainerId(number),
                log: Arc::clone(&log) as Arc<dyn Log>,
                objects: Arc::new(line.store()),
                cache: cache.clone(),
                cold: cold.clone(),
                setup: self.setup,
                clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
                chance: SeededEntropy::new(self.chance.next_u64()),
                stop: stop.clone(),
                front: Arc::clone(&self.front),
                court: self.court.clone(),
                trace: self.trace.clone(),
                running: Mutex::default(),
                replace: Notify::new(),
            });
            tasks.push(AbortOnDropHandle::new(tokio::spawn(Arc::clone(&keeper).keep())));
            keepers.push(keeper);
        }
        self.process = Some(Process { log, cold, line, stop, broken, keepers, tasks });
        Ok(())
    }

    /// Waits until the log has ended, which is the end of the process too.
    pub(super) async fn broken(&self) {
        match &self.process {
            Some(process) => process.broken.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the process at once.
    pub(super) fn crash(&mut self, how: Crash) {
        self.trace.note(format_args!("{how:?}"));
        self.front.close();
        if let Some(process) = self.process.take() {
            process.line.cut();
            process.keepers.iter().for_each(|keeper| drop(keeper.running.lock().take()));
            drop(process);
        }
        self.disk = match how {
            Crash::PowerCut => self.disk.crash(self.chance.next_u64()),
            Crash::Kill => self.disk.kill(),
        };
    }

    /// Ends the process in order, as far as it does within `patience`; false if it had to be killed.
    pub(super) async fn stop(&mut self, patience: Duration) -> bool {
        self.trace.note(format_args!("stop"));
        let Some(process) = &mut self.process else { return true };
        process.stop.cancel();
        let keepers = process.tasks.split_off(1);
        let ended = tokio::time::timeout(patience, futures_util::future::join_all(keepers)).await;
        if ended.is_err() {
            self.crash(Crash::Kill);
            return false;
        }
        self.front.close();
        if let Some(process) = self.process.take() {
            process.cold.close().await;
            let held = process.cold.inflight_bytes();
            if held > 0 {
                self.court.accuse(format!("{held} bytes are held for reads that have ended"));
            }
            process.log.close();
            process.line.cut();
        }
        true
    }

    /// Lets the task of a container die amid its work.
    pub(super) fn kill_container(&self, number: u16) {
        self.trace.note(format_args!("container {number} dies"));
        if let Some(keeper) = self.keeper(number) {
            drop(keeper.running.lock().take());
        }
    }

    /// Opens a container anew while its owner still runs.
    pub(super) fn replace_owner(&self, number: u16) {
        self.trace.note(format_args!("container {number} gets another owner"));
        if let Some(keeper) = self.keeper(number) {
            keeper.replace.notify_one();
        }
    }

    fn keeper(&self, number: u16) -> Option<&Keeper> {
        self.process.as_ref()?.keepers.get(usize::from(number)).map(|keeper| &**keeper)
    }
}

/// Keeps one container open.
struct Keeper {
    id: ContainerId,
    log: Arc<dyn Log>,
    objects: Arc<dyn ObjectStore>,
    cache: SharedCache,
    cold: ColdCache,
    setup: Setup,
    clock: Arc<dyn Clock>,
    chance: SeededEntropy,
    stop: CancellationToken,
    front: Arc<Front>,
    court: Court,
    trace: Trace,
    /// The task of the container; it dies with its handle.
    running: Mutex<Option<AbortOnDropHandle<()>>>,
    replace: Notify,
}

impl Keeper {
    async fn keep(self: Arc<Self>) {
        let mut wait = REOPEN_MIN;
        let mut earlier = Vec::new();
        loop {
            if let Some((handle, ended)) = self.open().await {
                wait = REOPEN_MIN;
                self.front.set(self.id, Some(handle));
                tokio::select! { biased;
                    // An owner that ends is replaced anyway.
                    () = ended.notified() => self.front.set(self.id, None),
                    () = self.replace.notified() => {
                        // The earlier owner finds out by itself.
                        earlier.extend(self.running.lock().take());
                        continue;
                    }
                }
            }
            if self.stop.is_cancelled() {
                return;
            }
            tokio::select! { biased;
                // Final; nothing can starve behind it.
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(REOPEN_MAX);
        }
    }

    /// Opens the container; what is told when it has ended comes with it.
    async fn open(&self) -> Option<(ContainerHandle, Arc<Notify>)> {
        let id = self.id;
        let options = SlateOptions {
            now_unix_ms: u64::try_from(self.clock.wall_ms()).unwrap_or(0),
            seed: self.chance.next_u64(),
            cache: self.cache.clone(),
            runtime: Handle::current(),
            call_timeout: self.setup.call_timeout,
            updates: true,
        };
        let prefix = Path::from(format!("v1/c{:04x}/index", id.0));
        let opening = async {
            let rows = open_slate(Arc::clone(&self.objects), prefix, options).await;
            let rows = rows.map_err(|error| format!("{error}, {error:?}"))?;
            Index::open(rows).await.map_err(|error| format!("{error}, {error:?}"))
        };
        let index = tokio::select! { biased;
            // Final; nothing can starve behind it.
            () = self.stop.cancelled() => return None,
            index = opening => index,
        };
        let index = match index {
            Ok(index) => index,
            Err(error) => {
                self.trace.note(format_args!("container {id} does not open: {error}"));
                return None;
            }
        };
        let parts = ContainerParts {
            id,
            log: Arc::clone(&self.log),
            index,
            tier: Tier {
                objects: Objects::new(Arc::clone(&self.objects), id),
                uploads: Uploads::new(UPLOADS_MAX),
                cache: self.cold.clone(),
                rules: self.setup.rules,
                grace: self.setup.grace,
            },
            limits: self.setup.limits,
            lost_log: LostLog::Refuse,
            clock: Arc::clone(&self.clock),
            storage: Handle::current(),
            stop: self.stop.clone(),
        };
        match open(parts).await {
            Ok((handle, running)) => {
                let ended = Arc::new(Notify::new());
                let watch =
                    watch(id, AbortOnDropHandle::new(running), self.court.clone(), self.trace.clone());
                let told = OnDrop(Arc::clone(&ended));
                let task = tokio::spawn(async move {
                    let _told = told;
                    watch.await;
                });
                *self.running.lock() = Some(AbortOnDropHandle::new(task));
                Some((handle, ended))
            }
            Err(error) => {
                self.judge(&error);
                None
            }
        }
    }

    fn judge(&self, error: &OpenError) {
        let id = self.id;
        self.trace.note(format_args!("container {id} does not open: {error}"));
        match error {
            OpenError::Log { .. } | OpenError::Index { .. } => {}
            broken => self.court.accuse(format!("container {id} does not open: {broken}, {broken:?}")),
        }
    }
}

/// Tells on whatever way its owner ends.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Waits for the end of a container and judges it.
async fn watch(id: ContainerId, running: AbortOnDropHandle<Result<(), Failure>>, court: Court, trace: Trace) {
    match running.await {
        Ok(Ok(())) => trace.note(format_args!("container {id} stopped")),
        Ok(Err(failure)) => trace.note(format_args!("container {id} failed: {failure}, {failure:?}")),
        Err(died) if died.is_panic() => court.accuse(format!("container {id}: {}", words(died.into_panic()))),
        Err(_aborted) => trace.note(format_args!("container {id} died")),
    }
}

/// What a panic said.
pub(super) fn words(panicked: Box<dyn std::any::Any + Send>) -> String {
    match panicked.downcast::<String>() {
        Ok(words) => *words,
        Err(other) => other.downcast::<&str>().map_or("panicked".to_owned(), |words| (*words).to_owned()),
    }
}
