//! One cache of decoded blocks for all containers of a process.
//!
//! Filters and block indexes decide what an absent key costs, so they are kept before any data block is: a data
//! block is evicted first, and they only when no data block is left. Within a kind an entry that was not asked for
//! again goes first (CLOCK), so one long scan does not wash the rest away. The cache never loads anything.

use async_trait::async_trait;
use parking_lot::Mutex;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache, SplitCache};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry costs besides its block: keys in map and queue, and its slot.
const ENTRY_BYTES: usize = 160;

/// A cache that any number of containers share; clones are the same cache.
#[derive(Clone)]
pub struct SharedCache {
    cache: Arc<BlockCache>,
    scopes: Arc<AtomicU64>,
}

impl SharedCache {
    /// Makes an empty cache that holds at most `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        let cache = BlockCache { bytes_max, state: Mutex::default() };
        Self { cache: Arc::new(cache), scopes: Arc::default() }
    }

    /// Bytes that it holds now.
    pub fn bytes(&self) -> usize {
        self.cache.state.lock().bytes
    }

    /// The cache for one more opened database, with the scope that keeps its blocks apart. A scope is never given
    /// twice: what an earlier owner cached under the same names may differ from what its successor wrote.
    pub(crate) fn scope(&self) -> (Arc<dyn DbCache>, u64) {
        let pool = |kind| Some(Arc::new(Pool { kind, cache: Arc::clone(&self.cache) }) as Arc<dyn DbCache>);
        let cache = SplitCache::new().with_block_cache(pool(Kind::Data)).with_meta_cache(pool(Kind::Meta));
        (Arc::new(cache), self.scopes.fetch_add(1, Ordering::Relaxed))
    }

    /// Drops all that a closed database has cached.
    pub(crate) fn forget(&self, scope: u64) {
        self.cache.state.lock().forget(scope);
    }
}

struct BlockCache {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: HashMap<CachedKey, Slot>,
    /// Keys in order of arrival; one whose slot is gone, or is a later one, is skipped.
    meta: VecDeque<(CachedKey, u64)>,
    data: VecDeque<(CachedKey, u64)>,
    bytes: usize,
    arrivals: u64,
}

struct Slot {
    entry: CachedEntry,
    bytes: usize,
    arrival: u64,
    asked_again: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Meta,
    Data,
}

impl State {
    fn get(&mut self, key: &CachedKey) -> Option<CachedEntry> {
        let slot = self.slots.get_mut(key)?;
        slot.asked_again = true;
        Some(slot.entry.clone())
    }

    fn insert(&mut self, kind: Kind, key: CachedKey, entry: CachedEntry, bytes_max: usize) {
        let bytes = entry.size().saturating_add(ENTRY_BYTES);
        if bytes > bytes_max {
            return;
        }
        self.remove(&key);
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.queue(kind).push_back((key.clone(), arrival));
        self.bytes += bytes;
        drop(self.slots.insert(key, Slot { entry, bytes, arrival, asked_again: false }));
        while self.bytes > bytes_max && (self.evict(Kind::Data) || self.evict(Kind::Meta)) {}
        self.compact();
    }

    /// Evicts one entry of `kind`; `false` if there is none.
    fn evict(&mut self, kind: Kind) -> bool {
        while let Some((key, arrival)) = self.queue(kind).pop_front() {
            match self.slots.get_mut(&key) {
                Some(slot) if slot.arrival == arrival && slot.asked_again => {
                    slot.asked_again = false;
                    self.queue(kind).push_back((key, arrival));
                }
                Some(slot) if slot.arrival == arrival => {
                    self.remove(&key);
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    fn remove(&mut self, key: &CachedKey) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.bytes;
        }
    }

    fn forget(&mut self, scope: u64) {
        let mut freed = 0;
        self.slots.retain(|key, slot| {
            let stays = key.db_cache_id() != scope;
            freed += if stays { 0 } else { slot.bytes };
            stays
        });
        self.bytes -= freed;
        self.compact();
    }

    /// Keeps the queues within twice what they stand for, whatever was removed behind their back.
    fn compact(&mut self) {
        if self.meta.len() + self.data.len() <= 2 * self.slots.len() + 64 {
            return;
        }
        let Self { slots, meta, data, .. } = self;
        for queue in [meta, data] {
            queue.retain(|(key, arrival)| slots.get(key).is_some_and(|slot| slot.arrival == *arrival));
        }
    }

    fn queue(&mut self, kind: Kind) -> &mut VecDeque<(CachedKey, u64)> {
        match kind {
            Kind::Meta => &mut self.meta,
            Kind::Data => &mut self.data,
        }
    }
}

/// The cache as the engine sees it, for one kind of entries.
struct Pool {
    kind: Kind,
    cache: Arc<BlockCache>,
}

impl Pool {
    fn look_up(&self, key: &CachedKey) -> Option<CachedEntry> {
        self.cache.state.lock().get(key)
    }
}

#[async_trait]
impl DbCache for Pool {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.look_up(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.look_up(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.look_up(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, slatedb::Error> {
        Ok(self.look_up(key))
    }

    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        self.cache.state.lock().insert(self.kind, key, value, self.cache.bytes_max);
    }

    async fn remove(&self, key: &CachedKey) {
        self.cache.state.lock().remove(key);
    }

    fn entry_count(&self) -> u64 {
        u64::try_from(self.cache.state.lock().slots.len()).unwrap_or(u64::MAX)
    }
}
