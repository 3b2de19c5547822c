//! Keeps reserved files ready, so that a new log file costs no allocation and a write to it no extent conversion.
//!
//! A reserved file is zero-filled once and recycled for ever. What it held before stays in it: frames verify only
//! in the life of the file for which they were written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::{DiskFile, OpenMode, remove_in_steps};
use parking_lot::{Condvar, Mutex};

use super::LogConfig;
use super::commit::{Seams, create, sync_dir};
use super::error::LogError;
use super::format::file::{fresh_path, log_path, spare_id, spare_path};
use super::table::{FileTable, Freed};

/// Reserved files kept ready.
pub(super) const SPARES_WANTED: usize = 2;
/// Reserved files kept at most; more are removed.
const SPARES_MAX: usize = 4;
/// Zeros are written in pieces of this size: the log's own syncs wait for the one that is under way. With 1 MiB they took
/// 0.3 to 0.6 ms meanwhile, with this 0.25, and filling a file took no longer.
const ZERO_BYTES: usize = 256 << 10;
/// And synced after this many pieces, for the same reason.
const PIECES_PER_SYNC: u64 = 8;

/// How long a full disk is left alone before another file is tried.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// How long the disk is left alone after an error of another kind.
const ERROR_RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody still reads a freed file: the end of a borrow tells nobody.
const LENT_RETRY: Duration = Duration::from_millis(100);

/// A file of full size, ready to become a log file.
#[derive(Debug)]
pub(super) struct Spare {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub len: u64,
}

#[derive(Debug, Default)]
struct State {
    spares: Vec<Spare>,
    /// Among them those that somebody still reads.
    freed: Vec<Freed>,
    /// Bytes of freed files that are being recycled or removed, or that failed on the way and go at the next start.
    in_hand: u64,
    next_id: u64,
    closing: bool,
    /// Files to keep ready: none before the log has seen some data.
    wanted: usize,
    /// The disk refused to reserve another file.
    full: bool,
    /// The disk is left alone for a while: each frame wakes the keeper, but not from this.
    resting: bool,
}

impl State {
    /// Whether another reserved file is wanted and within the budget.
    fn wants_more(&self, config: &LogConfig, table: &FileTable) -> bool {
        self.spares.len() < self.wanted && self.may_keep(config, table)
    }

    /// Whether one more reserved file is within the log's budget, which counts those that nothing lies in yet too.
    fn may_keep(&self, config: &LogConfig, table: &FileTable) -> bool {
        let kept: u64 = self.spares.iter().map(|spare| spare.len).sum();
        let used = table.used_bytes().saturating_add(kept).saturating_add(self.freed_bytes());
        self.spares.len() < SPARES_MAX && used.saturating_add(config.file_bytes) <= config.budget_bytes
    }

    /// Whether there is a freed file that nobody reads any more.
    fn may_recycle(&self) -> bool {
        self.freed.iter().any(|freed| !freed.borrows.any())
    }

    fn freed_bytes(&self) -> u64 {
        self.in_hand + self.freed.iter().map(|freed| freed.len).sum::<u64>()
    }
}

/// Makes, recycles and removes files beside the log.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    state: Mutex<State>,
    work: Condvar,
}

impl Keeper {
    /// Takes over the reserved files that an earlier process left, and removes those of another size.
    pub(super) fn adopt(&self, seams: &Seams, config: &LogConfig, names: &[String]) -> Result<(), LogError> {
        for name in names {
            let Some(id) = spare_id(name) else { continue };
            let path = config.dir.join(name);
            let failed = |source| LogError::io("open", &path, source);
            let file = seams.disk.open(&path, OpenMode::Write).map_err(failed)?;
            let len = file.len().map_err(failed)?;
            let mut state = self.state.lock();
            state.next_id = state.next_id.max(id + 1);
            if len == config.file_bytes && state.spares.len() < SPARES_MAX {
                state.spares.push(Spare { path, file, len });
            } else {
                drop(state);
                seams.disk.remove(&path).map_err(|source| LogError::io("remove", &path, source))?;
            }
        }
        Ok(())
    }

    /// Takes a reserved file; if none is ready, makes a small one of at least `bytes_min`, so that the log does not
    /// wait for a large one to be filled.
    pub(super) fn take(&self, seams: &Seams, config: &LogConfig, bytes_min: u64) -> Result<Spare, LogError> {
        self.wake();
        if let Some(spare) = self.take_ready() {
            return Ok(spare);
        }
        let path = fresh_path(&config.dir, "next");
        let make = |len| {
            let made = create(seams, &path, len, |file| self.fill(file, len, u64::MAX));
            made.map(|(file, _whole)| Spare { path: path.clone(), file, len })
        };
        match make(config.first_file_bytes.max(bytes_min)) {
            Err(LogError::Full) => make(bytes_min),
            made => made,
        }
    }

    /// Takes a reserved file if one is ready.
    pub(super) fn take_ready(&self) -> Option<Spare> {
        self.state.lock().spares.pop()
    }

    /// Starts to keep files ready: the log has data and will need them.
    pub(super) fn wake(&self) {
        let mut state = self.state.lock();
        if state.wanted < SPARES_WANTED || state.spares.len() < SPARES_WANTED {
            state.wanted = SPARES_WANTED;
            if !state.resting {
                self.work.notify_one();
            }
        }
    }

    /// Hands over files that nobody needs any more.
    pub(super) fn give(&self, freed: Vec<Freed>) {
        if !freed.is_empty() {
            self.state.lock().freed.extend(freed);
            self.work.notify_one();
        }
    }

    /// Bytes that are reserved and ready.
    pub(super) fn ready_bytes(&self) -> u64 {
        self.state.lock().spares.iter().map(|spare| spare.len).sum()
    }

    /// Bytes of freed files that are still on the disk, most of them because somebody reads them.
    pub(super) fn freed_bytes(&self) -> u64 {
        self.state.lock().freed_bytes()
    }

    /// True if the disk refused to reserve another file.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().full
    }

    /// Ends [`Keeper::run`].
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_all();
    }

    /// Works until closed or until an error. After one it may be called again, as [`Keeper::pause`] says.
    pub(super) fn run(&self, seams: &Seams, config: &LogConfig, table: &FileTable) -> Result<(), LogError> {
        loop {
            let mut state = self.state.lock();
            while !state.closing && !state.may_recycle() && !state.wants_more(config, table) {
                if state.freed.is_empty() {
                    self.work.wait(&mut state);
                } else {
                    self.work.wait_for(&mut state, LENT_RETRY);
                }
            }
            if state.full && !state.closing && !state.may_recycle() {
                state.resting = true;
                self.work.wait_for(&mut state, FULL_RETRY);
                state.resting = false;
            }
            if state.closing {
                return Ok(());
            }
            drop(state);
            self.recycle(seams, config, table)?;
            self.reserve(seams, config, table)?;
        }
    }

    /// Waits a while before another try; false if the log closes.
    pub(super) fn pause(&self) -> bool {
        let mut state = self.state.lock();
        state.resting = true;
        if !state.closing {
            self.work.wait_for(&mut state, ERROR_RETRY);
        }
        state.resting = false;
        !state.closing
    }

    /// Turns freed files that nobody reads any more into reserved ones, or removes them.
    pub(super) fn recycle(
        &self,
        seams: &Seams,
        config: &LogConfig,
        table: &FileTable,
    ) -> Result<(), LogError> {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.freed.iter().position(|freed| !freed.borrows.any()) else { return Ok(()) };
            let freed = state.freed.remove(next);
            let wanted = freed.len == config.file_bytes && state.may_keep(config, table);
            let id = state.next_id;
            state.next_id += 1;
            state.in_hand += freed.len;
            drop(state);
            let old = log_path(&config.dir, freed.number);
            let path = if wanted { spare_path(&config.dir, id) } else { fresh_path(&config.dir, "freed") };
            if let Err(source) = seams.disk.rename(&old, &path) {
                let mut state = self.state.lock();
                state.in_hand -= freed.len;
                state.freed.push(freed);
                return Err(LogError::io("name", &path, source));
            }
            // The old name must be gone for good before what is in the file changes.
            sync_dir(seams, config)?;
            if wanted {
                let opened = seams.disk.open(&path, OpenMode::Write);
                let file = opened.map_err(|source| LogError::io("open", &path, source))?;
                self.state.lock().spares.push(Spare { path, file, len: freed.len });
            } else {
                let removed = remove_in_steps(&*seams.disk, &path);
                removed.map_err(|source| LogError::io("remove", &path, source))?;
            }
            let mut state = self.state.lock();
            state.in_hand -= freed.len;
            state.full = false;
        }
    }

    /// Makes one reserved file, if one is wanted.
    fn reserve(&self, seams: &Seams, config: &LogConfig, table: &FileTable) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if !state.wants_more(config, table) {
            return Ok(());
        }
        let id = state.next_id;
        state.next_id += 1;
        drop(state);
        let fresh = fresh_path(&config.dir, "spare");
        let filled = create(seams, &fresh, config.file_bytes, |file| {
            self.fill(file, config.file_bytes, PIECES_PER_SYNC)
        });
        let (file, whole) = match filled {
            Err(LogError::Full) => {
                self.state.lock().full = true;
                return Ok(());
            }
            made => made?,
        };
        if !whole {
            return Ok(());
        }
        self.state.lock().full = false;
        let path = spare_path(&config.dir, id);
        seams.disk.rename(&fresh, &path).map_err(|source| LogError::io("name", &path, source))?;
        sync_dir(seams, config)?;
        self.state.lock().spares.push(Spare { path, file, len: config.file_bytes });
        Ok(())
    }

    /// Writes zeros over the whole file, with a sync after each `per_sync` pieces; false if the log closed meanwhile.
    fn fill(&self, file: &dyn DiskFile, len: u64, per_sync: u64) -> std::io::Result<bool> {
        let step = u64::try_from(ZERO_BYTES).unwrap_or(u64::MAX);
        for piece in 0..len.div_ceil(step) {
            if self.state.lock().closing {
                return Ok(false);
            }
            let at = piece * step;
            let bytes = usize::try_from((len - at).min(step)).unwrap_or(ZERO_BYTES);
            file.fill_zeros(bytes, at)?;
            if piece % per_sync == per_sync - 1 {
                file.sync_data()?;
            }
        }
        if per_sync < u64::MAX {
            file.sync_all()?;
        }
        Ok(true)
    }
}
