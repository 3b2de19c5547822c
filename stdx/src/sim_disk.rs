//! A disk in memory that fails the way disks do, repeatably by its seed.
//!
//! It keeps what a power cut would leave (`durable`) apart from what a reader sees (`seen`). At [`SimDisk::crash`]
//! every sector written since the last sync survives or not by chance, so writes are lost, torn and reordered;
//! names survive as a prefix of the changes since the last `sync_dir`. A failed sync marks its bytes clean: they
//! stay readable and never become durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, DiskLock, OpenMode};
use crate::entropy::SeededEntropy;
use crate::mmap::FileMap;

/// One call that changes the disk, in the order they were made; what a test looks at afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskCall {
    /// Bytes `at..at + len` of the file that has (or had) this name.
    Write(PathBuf, u64, u64),
    /// Length or reservation set.
    Resize(PathBuf, u64),
    /// Data sync.
    Sync(PathBuf),
    /// A name made, moved or removed.
    Name(PathBuf),
    /// Directory sync.
    SyncDir(PathBuf),
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(PathBuf, usize),
    Clear(PathBuf),
    Move(PathBuf, PathBuf, usize),
}

#[derive(Debug, Default)]
struct Inode {
    name: PathBuf,
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, oldest first.
    unsynced: Vec<(usize, Vec<u8>)>,
    unreadable: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    trace: Vec<DiskCall>,
    calls_left: Option<u64>,
    syncs_until_error: Option<u64>,
    capacity: Option<u64>,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    sector: usize,
}

fn power_off() -> io::Error {
    io::Error::other("power is off")
}

impl State {
    /// Counts a changing call; after the last one allowed nothing happens any more.
    fn call(&mut self, call: DiskCall) -> io::Result<()> {
        match &mut self.calls_left {
            Some(0) => return Err(power_off()),
            Some(left) => *left -= 1,
            None => {}
        }
        self.trace.push(call);
        Ok(())
    }

    fn powered(&self) -> io::Result<()> {
        if self.calls_left == Some(0) { Err(power_off()) } else { Ok(()) }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn room_for(&self, inode: usize, len: usize) -> io::Result<()> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let others = self.names.values().filter(|other| **other != inode);
        let used: usize = others.map(|other| self.inodes[*other].seen.len()).sum();
        let wanted =
            u64::try_from(used + len.max(self.inodes[inode].seen.len())).map_err(io::Error::other)?;
        if wanted > capacity { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }
}

impl SimDisk {
    /// An empty disk; the seed chooses the size of its sectors, 512 B or 4 KiB.
    pub fn new(seed: u64) -> Self {
        let sector = if SeededEntropy::new(seed).below(2) == 0 { 512 } else { 4096 };
        Self { state: Arc::default(), sector }
    }

    /// The power fails after `calls` more changing calls: everything later is an error and changes nothing.
    pub fn power_off_after(&self, calls: u64) {
        self.state.lock().calls_left = Some(calls);
    }

    /// The `nth` data sync from now (0 is the next) fails and loses what it should have made durable.
    pub fn fail_sync_after(&self, nth: u64) {
        self.state.lock().syncs_until_error = Some(nth);
    }

    /// Refuses to hold more than `bytes` in all files together; `u64::MAX` is no limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = Some(bytes);
    }

    /// Flips every bit of `at..at + len`, in the cache and on the disk.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rot(&self, path: &Path, at: u64, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(path)?;
        let inode = &mut state.inodes[inode];
        let (from, len) = (position(at)?, position(len)?);
        for bytes in [&mut inode.seen, &mut inode.durable] {
            for byte in bytes.iter_mut().skip(from).take(len) {
                *byte = !*byte;
            }
        }
        Ok(())
    }

    /// Makes reads that touch `at..at + len` fail.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn make_unreadable(&self, path: &Path, at: u64, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(path)?;
        state.inodes[inode].unreadable.push((at, at + len));
        Ok(())
    }

    /// All that a reader sees of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn content(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        Ok(state.inodes[state.find(path)?].seen.clone())
    }

    /// The changing calls so far.
    pub fn trace(&self) -> Vec<DiskCall> {
        self.trace_from(0)
    }

    /// The changing calls behind the first `seen` ones.
    pub fn trace_from(&self, seen: u64) -> Vec<DiskCall> {
        let seen = usize::try_from(seen).unwrap_or(usize::MAX);
        self.state.lock().trace.iter().skip(seen).cloned().collect()
    }

    /// How many changing calls there were so far.
    pub fn calls(&self) -> u64 {
        u64::try_from(self.state.lock().trace.len()).unwrap_or(u64::MAX)
    }

    /// What is left after a power cut now: a new disk; this one is unchanged.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let chance = SeededEntropy::new(seed);
        let state = self.state.lock();
        let mut names = state.durable_names.clone();
        let kept = chance.below(u64::try_from(state.unsynced_names.len()).unwrap_or(0) + 1);
        for (_, change) in (0..kept).zip(&state.unsynced_names) {
            apply_name(&mut names, change);
        }
        // Some crashes lose all or nothing, most are in between.
        let keep_of_8 = [0, 8, 1, 4, 4, 4, 7, 4][position(chance.below(8)).unwrap_or(0)];
        let named: BTreeSet<usize> = names.values().copied().collect();
        let inodes = (0..).zip(&state.inodes).map(|(at, inode)| {
            if !named.contains(&at) {
                return Inode::default();
            }
            let left = after_power_cut(inode, self.sector, &mut || chance.below(8) < keep_of_8);
            Inode { name: inode.name.clone(), seen: left.clone(), durable: left, ..Inode::default() }
        });
        let left = State {
            inodes: inodes.collect(),
            names: names.clone(),
            durable_names: names,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(left)), sector: self.sector }
    }

    /// What is left when only the process dies: all that a reader sees, with unsynced bytes still unsynced.
    #[must_use]
    pub fn kill(&self) -> Self {
        let state = self.state.lock();
        let inodes = state.inodes.iter().map(|inode| Inode {
            name: inode.name.clone(),
            seen: inode.seen.clone(),
            durable: inode.durable.clone(),
            unsynced: inode.unsynced.clone(),
            unreadable: inode.unreadable.clone(),
        });
        let left = State {
            inodes: inodes.collect(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            unsynced_names: state.unsynced_names.clone(),
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(left)), sector: self.sector }
    }
}

fn position(at: u64) -> io::Result<usize> {
    usize::try_from(at).map_err(io::Error::other)
}

/// New files are most of what is resized, and zeros that the system gives cost nothing.
fn resize(bytes: &mut Vec<u8>, size: usize) {
    if bytes.is_empty() {
        *bytes = vec![0; size];
    } else {
        bytes.resize(size, 0);
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if into.len() < at + bytes.len() {
        into.resize(at + bytes.len(), 0);
    }
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, inode) => drop(names.insert(path.clone(), *inode)),
        NameChange::Clear(path) => drop(names.remove(path)),
        NameChange::Move(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

fn after_power_cut(inode: &Inode, sector: usize, keep: &mut dyn FnMut() -> bool) -> Vec<u8> {
    let mut left = inode.durable.clone();
    for (at, bytes) in &inode.unsynced {
        let (mut from, end) = (*at, at + bytes.len());
        while from < end {
            let to = end.min((from / sector + 1) * sector);
            if keep() {
                put(&mut left, from, &bytes[from - at..to - at]);
            }
            from = to;
        }
    }
    left
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.path);
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        self.state.lock().powered()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.powered()?;
        let inode = if mode == OpenMode::CreateNew {
            if state.names.contains_key(path) {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            state.call(DiskCall::Name(path.to_owned()))?;
            let inode = state.inodes.len();
            state.inodes.push(Inode { name: path.to_owned(), ..Inode::default() });
            state.names.insert(path.to_owned(), inode);
            state.unsynced_names.push(NameChange::Set(path.to_owned(), inode));
            inode
        } else {
            state.find(path)?
        };
        drop(state);
        Ok(Arc::new(SimFile { disk: self.clone(), inode }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.powered()?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(from)?;
        state.call(DiskCall::Name(to.to_owned()))?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), inode);
        to.clone_into(&mut state.inodes[inode].name);
        state.unsynced_names.push(NameChange::Move(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.find(path)?;
        state.call(DiskCall::Name(path.to_owned()))?;
        state.names.remove(path);
        state.unsynced_names.push(NameChange::Clear(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.call(DiskCall::SyncDir(dir.to_owned()))?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let mut state = self.state.lock();
        state.powered()?;
        if !state.locks.insert(path.to_owned()) {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        drop(state);
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.powered()?;
        Ok(state.names.contains_key(path))
    }
}

impl SimFile {
    fn resize(&self, len: u64, shrink: bool) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let size = position(len)?;
        state.room_for(self.inode, size)?;
        let name = state.inodes[self.inode].name.clone();
        state.call(DiskCall::Resize(name, len))?;
        let inode = &mut state.inodes[self.inode];
        if size > inode.seen.len() || shrink {
            resize(&mut inode.seen, size);
            // Lengths are journaled at once: a file found shorter than it was made is a fault of another kind.
            resize(&mut inode.durable, size);
            inode.unsynced.retain_mut(|(at, bytes)| {
                bytes.truncate(size.saturating_sub(*at));
                !bytes.is_empty()
            });
        }
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.disk.state.lock();
        state.powered()?;
        let inode = &state.inodes[self.inode];
        let from = position(at)?;
        let wanted = from..from + into.len();
        let touches =
            |(start, end): &(u64, u64)| position(*start).is_ok_and(|start| start < wanted.end) && at < *end;
        if inode.unreadable.iter().any(touches) {
            return Err(io::Error::other("block cannot be read"));
        }
        let found = inode.seen.get(wanted).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let from = position(at)?;
        state.room_for(self.inode, from + bytes.len())?;
        let name = state.inodes[self.inode].name.clone();
        let len = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        state.call(DiskCall::Write(name, at, len))?;
        let inode = &mut state.inodes[self.inode];
        put(&mut inode.seen, from, bytes);
        inode.unsynced.push((from, bytes.to_vec()));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let name = state.inodes[self.inode].name.clone();
        state.call(DiskCall::Sync(name))?;
        let fails = state.syncs_until_error == Some(0);
        state.syncs_until_error = state.syncs_until_error.and_then(|left| left.checked_sub(1));
        let inode = &mut state.inodes[self.inode];
        let written = std::mem::take(&mut inode.unsynced);
        if fails {
            return Err(io::Error::other("write-back error"));
        }
        for (at, bytes) in written {
            put(&mut inode.durable, at, &bytes);
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len { Ok(()) } else { self.resize(len, false) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(len, true)
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.powered()?;
        u64::try_from(state.inodes[self.inode].seen.len()).map_err(io::Error::other)
    }

    fn map_sealed(&self, len: u64) -> io::Result<FileMap> {
        let state = self.disk.state.lock();
        state.powered()?;
        let sealed = state.inodes[self.inode].seen.get(..position(len)?);
        let sealed = sealed.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(FileMap::of_bytes(Bytes::copy_from_slice(sealed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &SimDisk) -> Arc<dyn DiskFile> {
        let file = disk.open(Path::new("f"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        file
    }

    #[test]
    fn synced_bytes_survive_every_crash_and_others_tear() {
        let (mut whole, mut torn, mut lost) = (0, 0, 0);
        for seed in 0..200 {
            let disk = SimDisk::new(seed);
            let file = file(&disk);
            file.write_at(&[1; 8192], 0).unwrap();
            file.sync_data().unwrap();
            file.write_at(&[2; 16384], 8192).unwrap();
            let left = disk.crash(seed).content(Path::new("f")).unwrap();
            assert!(left[..8192].iter().all(|byte| *byte == 1));
            match left[8192..].iter().map(|byte| usize::from(*byte == 2)).sum() {
                0 => lost += 1,
                16384 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(whole > 0 && torn > 0 && lost > 0, "{whole} {torn} {lost}");
    }

    #[test]
    fn failed_sync_leaves_bytes_readable_that_no_later_sync_saves() {
        let disk = SimDisk::new(1);
        let file = file(&disk);
        file.write_at(b"gone", 0).unwrap();
        disk.fail_sync_after(0);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        let mut seen = [0; 4];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"gone");
        for seed in 0..20 {
            assert!(disk.crash(seed).content(Path::new("f")).unwrap().is_empty());
        }
    }

    #[test]
    fn name_is_durable_only_after_its_folder_was_synced() {
        let survives = (0..50).filter(|seed| {
            let disk = SimDisk::new(1);
            disk.open(Path::new("f"), OpenMode::CreateNew).unwrap();
            disk.crash(*seed).exists(Path::new("f")).unwrap()
        });
        let survived = survives.count();
        assert!(0 < survived && survived < 50, "{survived}");
    }

    #[test]
    fn full_disk_and_lost_power_are_errors_that_change_nothing() {
        let disk = SimDisk::new(1);
        let file = file(&disk);
        disk.set_capacity(4096);
        assert_eq!(file.allocate(8192).unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.write_at(&[1; 4096], 0).unwrap();
        disk.power_off_after(0);
        file.write_at(&[2; 4096], 0).unwrap_err();
        disk.crash(1).content(Path::new("f")).unwrap().iter().for_each(|byte| assert_ne!(*byte, 2));
    }
}
