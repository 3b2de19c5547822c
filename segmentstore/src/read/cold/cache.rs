//! What all containers of a store share for reading objects: the cache, what is under way, and the budgets.
//!
//! A unit is *coming* while a GET for it is under way, then *kept* for a reader that goes through its segment in
//! order, or in the cache. It goes from the first to the second or third in one step, so whoever looks finds it, and
//! a GET is never made twice for two who look at the same time. A unit that was kept goes to the cache once its
//! reader has passed it; there it is as good as read once, so one long scan does not wash out what several want.
//!
//! Memory: `cache_bytes` for the cache; `inflight_bytes` for GETs that a read waits for (a quarter), for what is read
//! ahead, under way or kept (a half), and for replies that have not left yet (a quarter). Who waits for one of these
//! holds none that another needs to go on. Reading ahead never waits: it does without.

use super::ColdError;
use super::fetch::Landing;
use super::unit::{UNIT_BYTES, UnitKey};
use super::window::{Position, Window, Windows};
use crate::tier::Footer;
use crate::types::{ContainerId, ObjectId};
use bytes::Bytes;
use dhara_stdx::budget::{ByteBudget, BytePermit};
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// GETs under way at one time.
const GETS_MAX: usize = 32;
/// GETs that reading ahead leaves to reads that wait.
const GETS_RESERVED: usize = 8;
/// Share of the cache that footers get beside it: they decide whether a read takes one round trip or two.
const FOOTER_SHARE: u64 = 16;
/// Share of the cache for what was asked for again. The rest passes through, and serves readers that follow others.
const HOT_SHARE: f64 = 0.75;
/// What an entry costs besides its bytes: key, slot, and the handle on the bytes.
const ENTRY_BYTES: u64 = 160;
/// A reader that does not come back for so long is taken to have ended.
const IDLE: Duration = Duration::from_secs(10);
/// How often that is looked at while there are readers.
const SWEEP: Duration = Duration::from_secs(1);

/// What reading objects may take in memory.
#[derive(Clone, Copy, Debug)]
pub struct ReadConfig {
    /// Bytes of objects that are kept in case they are read again, ≥ 1 MiB for any use; 256 MiB by default. Footers
    /// take up to a sixteenth of it besides.
    pub cache_bytes: u64,
    /// Bytes of objects on their way, ≥ 4 MiB for any speed; 128 MiB by default. Fewer make reads wait for each other.
    pub inflight_bytes: u64,
}

impl ReadConfig {
    /// A cache of `cache_bytes`, with half as many bytes on their way: 8 MiB at least, 128 MiB at most.
    pub fn of_cache(cache_bytes: u64) -> Self {
        Self { cache_bytes, inflight_bytes: (cache_bytes / 2).clamp(8 << 20, 128 << 20) }
    }
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self::of_cache(256 << 20)
    }
}

/// Reads of objects in one process; clones are the same.
#[derive(Clone, Debug)]
pub struct ColdCache(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    units: Cache<UnitKey, Bytes, UnitWeight, FixedHash>,
    pub(super) footers: Cache<(ContainerId, ObjectId), Arc<Footer>, FooterWeight, FixedHash>,
    /// For GETs that a read waits for.
    pub(super) fetching: Budget,
    /// For what is read ahead of its reader.
    pub(super) ahead: Budget,
    /// For replies that have not left yet.
    pub(super) replies: Budget,
    pub(super) gets: Arc<Semaphore>,
    state: Mutex<State>,
    storage: Handle,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// The same eviction in every run, so that a seed can replay one.
type FixedHash = BuildHasherDefault<DefaultHasher>;

/// A footer that is being read; its outcome serves all who came meanwhile.
type FooterCell = OnceCell<Result<Arc<Footer>, ColdError>>;

/// A share in the reading of a footer.
pub(super) struct FooterComing<'a> {
    shared: &'a Shared,
    key: (ContainerId, ObjectId),
    cell: Arc<FooterCell>,
}

/// A budget that knows its size.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) bytes: ByteBudget,
    pub(super) bytes_max: u64,
}

#[derive(Debug, Default)]
struct State {
    coming: HashMap<UnitKey, Landing>,
    footers: HashMap<(ContainerId, ObjectId), Arc<FooterCell>>,
    kept: HashMap<UnitKey, Kept>,
    windows: Windows,
    /// Readers that go through a segment in order, those included whose read is under way.
    sequential: u64,
    sweeps: bool,
}

/// A unit that belongs to a window.
#[derive(Debug)]
enum Kept {
    Coming,
    Here { bytes: Bytes, _permit: BytePermit },
}

/// Where a unit is.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// Here, checked.
    Here(Bytes),
    /// A GET for it is under way.
    Coming(Landing),
    /// Nobody has asked for it.
    Absent,
}

/// How a look-up counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// As a use.
    Use,
    /// As part of a use that counted already: one reader that takes a unit in small steps uses it once.
    GoOn,
}

/// A reader during a read; what its window keeps is given back if the read fails or is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    shared: Arc<Shared>,
    pub(super) window: Window,
}

#[derive(Clone, Debug)]
pub(super) struct UnitWeight;

#[derive(Clone, Debug)]
pub(super) struct FooterWeight;

impl Weighter<UnitKey, Bytes> for UnitWeight {
    fn weight(&self, _key: &UnitKey, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + ENTRY_BYTES
    }
}

impl Weighter<(ContainerId, ObjectId), Arc<Footer>> for FooterWeight {
    fn weight(&self, _key: &(ContainerId, ObjectId), footer: &Arc<Footer>) -> u64 {
        footer.memory_bytes() as u64 + ENTRY_BYTES
    }
}

impl Budget {
    fn new(bytes_max: u64) -> Self {
        Self { bytes: ByteBudget::new(bytes_max), bytes_max }
    }
}

impl ColdCache {
    /// An empty cache; GETs run on `storage`, behind whatever answers clients.
    pub fn new(config: ReadConfig, storage: Handle) -> Self {
        let part = config.inflight_bytes / 4;
        Self(Arc::new(Shared {
            units: cache(config.cache_bytes, u64::from(UNIT_BYTES), UnitWeight),
            footers: cache(config.cache_bytes / FOOTER_SHARE, 4 << 10, FooterWeight),
            fetching: Budget::new(part),
            ahead: Budget::new(config.inflight_bytes - 2 * part),
            replies: Budget::new(part),
            gets: Arc::new(Semaphore::new(GETS_MAX)),
            state: Mutex::default(),
            storage,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Bytes of objects on their way now: fetched, kept for a reader, or in replies that have not left.
    pub fn inflight_bytes(&self) -> u64 {
        let Shared { fetching, ahead, replies, .. } = &*self.0;
        [fetching, ahead, replies].iter().map(|budget| budget.bytes.held()).sum()
    }

    /// Bytes that the cache holds now, footers included.
    pub fn cached_bytes(&self) -> u64 {
        self.0.units.weight() + self.0.footers.weight()
    }

    /// Ends all reads under way; they fail, and so does each later one.
    ///
    /// # Cancel safety
    /// May be called again.
    pub async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.0.forget_idle(Instant::now());
    }
}

/// One shard, so that the budget is exact: a look-up costs nothing beside what it saves.
fn cache<K, V, W>(bytes: u64, entry_bytes: u64, weighter: W) -> Cache<K, V, W, FixedHash>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let entries = usize::try_from(bytes / entry_bytes).unwrap_or(usize::MAX).max(16);
    let mut options = OptionsBuilder::new();
    options.shards(1).weight_capacity(bytes).estimated_items_capacity(entries).hot_allocation(HOT_SHARE);
    #[allow(clippy::expect_used, reason = "all that the builder asks for is set above")]
    let options = options.build().expect("capacities are set");
    Cache::with_options(options, weighter, FixedHash::default(), DefaultLifecycle::default())
}

impl Shared {
    /// Runs a task of reading on the storage runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn_on(task, &self.storage));
    }

    pub(super) fn find(&self, key: &UnitKey, touch: Touch) -> Found {
        let state = self.state.lock();
        if let Some(Kept::Here { bytes, .. }) = state.kept.get(key) {
            return Found::Here(bytes.clone());
        }
        let cached = match touch {
            Touch::Use => self.units.get(key),
            Touch::GoOn => self.units.peek(key),
        };
        match (cached, state.coming.get(key)) {
            (Some(bytes), _) => Found::Here(bytes),
            (None, Some(landing)) => Found::Coming(landing.clone()),
            (None, None) => Found::Absent,
        }
    }

    /// Joins, or begins, the reading of a footer.
    pub(super) fn footer_coming(&self, key: (ContainerId, ObjectId)) -> FooterComing<'_> {
        let cell = Arc::clone(self.state.lock().footers.entry(key).or_default());
        FooterComing { shared: self, key, cell }
    }

    /// Announces a GET for these units unless the first is there, or coming, since it was looked for. The units
    /// announced are the leading ones of which that is not so.
    pub(super) fn announce(&self, keys: &[UnitKey], landing: &Landing, keeps: bool) -> usize {
        let mut state = self.state.lock();
        let absent = |key: &&UnitKey| {
            !matches!(state.kept.get(key), Some(Kept::Here { .. }))
                && !state.coming.contains_key(key)
                && !self.units.contains_key(*key)
        };
        let count = keys.iter().take_while(absent).count();
        for key in &keys[..count] {
            state.coming.insert(*key, landing.clone());
            if keeps {
                state.kept.insert(*key, Kept::Coming);
            }
        }
        count
    }

    /// Puts what a GET brought where those who look will find it; `None` if it brought nothing.
    pub(super) fn land(&self, keys: &[UnitKey], brought: Option<&[Bytes]>, mut permit: Option<BytePermit>) {
        let mut state = self.state.lock();
        for (at, key) in keys.iter().enumerate() {
            state.coming.remove(key);
            let wanted = state.kept.remove(key).is_some();
            let Some(bytes) = brought.and_then(|brought| brought.get(at)) else { continue };
            let part = permit.as_mut().and_then(|permit| permit.split(bytes.len() as u64));
            match part.filter(|_| wanted) {
                Some(permit) => {
                    state.kept.insert(*key, Kept::Here { bytes: bytes.clone(), _permit: permit });
                }
                None => self.keep_in_cache(*key, bytes.clone()),
            }
        }
    }

    /// What is there already stays as it is: putting it again would count as a use.
    fn keep_in_cache(&self, key: UnitKey, bytes: Bytes) {
        if !self.units.contains_key(&key) {
            self.units.insert(key, bytes);
        }
    }

    /// Permits for a GET ahead of a reader, if there is room now.
    pub(super) fn room_ahead(&self, bytes: u64) -> Option<(BytePermit, OwnedSemaphorePermit)> {
        if self.gets.available_permits() <= GETS_RESERVED {
            return None;
        }
        let permit = self.permit_ahead(bytes)?;
        let get = Arc::clone(&self.gets).try_acquire_owned().ok()?;
        Some((permit, get))
    }

    pub(super) fn permit_ahead(&self, bytes: u64) -> Option<BytePermit> {
        let Budget { bytes: budget, bytes_max } = &self.ahead;
        if bytes <= *bytes_max { budget.try_acquire(bytes) } else { None }
    }

    /// Begins a read; if it goes on where an earlier one ended, with that one's window, grown.
    pub(super) fn begin(self: &Arc<Self>, position: &Position) -> Reading {
        let mut state = self.state.lock();
        let mut window = Window::default();
        if let Some(known) = state.windows.take(position) {
            window = known;
            state.sequential += u64::from(!window.is_sequential());
            // Readers share what there is.
            window.grow(self.ahead.bytes_max / state.sequential.max(1));
        }
        Reading { shared: Arc::clone(self), window }
    }

    fn end(self: &Arc<Self>, position: Position, mut window: Window) {
        let mut state = self.state.lock();
        while let Some(key) = window.pass(position.offset) {
            if let Some(Kept::Here { bytes, .. }) = state.kept.remove(&key) {
                self.keep_in_cache(key, bytes);
            }
        }
        let gone = state.windows.put(position, window, Instant::now());
        let sweep = !std::mem::replace(&mut state.sweeps, true);
        drop(state);
        if let Some(gone) = gone {
            self.release(&gone);
        }
        if sweep {
            let shared = Arc::clone(self);
            self.spawn(async move { shared.sweep().await });
        }
    }

    /// Forgets what a window keeps. Nobody waits for it any more, so it does not go to the cache either.
    fn release(&self, window: &Window) {
        let mut gone = Vec::with_capacity(window.kept.len());
        let mut state = self.state.lock();
        state.sequential -= u64::from(window.is_sequential());
        for (_, key) in &window.kept {
            gone.extend(state.kept.remove(key));
        }
    }

    /// Forgets readers that do not come back, as long as there are any.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::select! { biased;
                // Final; nothing can starve behind it.
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
            if let Some(since) = Instant::now().checked_sub(IDLE) {
                self.forget_idle(since);
            }
            let mut state = self.state.lock();
            if state.windows.is_empty() {
                state.sweeps = false;
                return;
            }
        }
    }

    fn forget_idle(&self, since: Instant) {
        loop {
            let idle = self.state.lock().windows.take_older(since);
            let Some(window) = idle else { return };
            self.release(&window);
        }
    }
}

impl Deref for FooterComing<'_> {
    type Target = FooterCell;

    fn deref(&self) -> &FooterCell {
        &self.cell
    }
}

impl Drop for FooterComing<'_> {
    /// Once it is there the cache has it; and a reading that all have left is begun anew.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let shared_by = Arc::strong_count(&self.cell);
        if self.cell.initialized() || shared_by <= 2 {
            // A later reading of the same footer stays.
            if state.footers.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
                state.footers.remove(&self.key);
            }
        }
    }
}

impl Reading {
    /// Ends the read; the reader is expected to go on at `position`.
    pub(super) fn end(mut self, position: Position) {
        let window = std::mem::take(&mut self.window);
        self.shared.end(position, window);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shared.release(&self.window);
    }
}
