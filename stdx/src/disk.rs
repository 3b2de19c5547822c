//! The disk under the log: positioned reads and writes, explicit syncs, a folder of files.
//!
//! Calls block; they belong on a thread that owns disk work, never on a runtime's. Nothing is durable before the
//! sync that covers it: data by `sync_data`, a name by `sync_dir`.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::mmap::FileMap;

/// How often and after which wait a folder is opened again while the process, or the system, has too many files open.
const DIR_TRIES_MAX: u32 = 100;
const DIR_RETRY: Duration = Duration::from_millis(100);

/// Whether a file could not be opened because the process, or the system, has too many open, or no memory for one more: it
/// may go well later.
pub fn is_out_of_files(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// A folder tree on some disk.
pub trait Disk: Debug + Send + Sync {
    /// Makes `dir` and what is missing above it, each durable in the folder above.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` for [`OpenMode::CreateNew`], and whatever the disk answers.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Names of the files directly in `dir`, sorted; folders are left out.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Gives `from` the name `to`, replacing what had it; durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes the name away; open files and maps of it live on.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks `path`, creating it if need be, until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if somebody else holds it, and whatever the disk answers.
    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;

    /// True if `path` names a file.
    ///
    /// # Errors
    /// Whatever the disk answers, except `NotFound`.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// Keeps others out while it lives.
pub trait DiskLock: Debug + Send + Sync {}

/// One open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Fills `into` with the bytes from `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, and whatever the disk answers.
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `at`; durable after [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// Whatever the disk answers; any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Writes `len` zeros at `at`; durable after [`DiskFile::sync_data`]. Meant for much that nobody reads soon: where the
    /// system allows it, the bytes do not pass through its cache.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn fill_zeros(&self, len: usize, at: u64) -> io::Result<()> {
        self.write_at(&vec![0; len], at)
    }

    /// Makes bytes and length durable. After an error what was not durable must be taken for lost: never retry.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`DiskFile::sync_data`], with all of the file's metadata.
    ///
    /// # Errors
    /// As [`DiskFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// Reserves space so that the file has at least `len` bytes, new ones zero.
    ///
    /// # Errors
    /// `StorageFull`, and whatever the disk answers.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes, or grows it by a hole.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the disk answers.
    fn len(&self) -> io::Result<u64>;

    /// True if the file has no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Maps the first `len` bytes for reading. They must not be written again while anybody borrows the
    /// map: the caller seals the file first.
    ///
    /// # Errors
    /// Whatever the system answers.
    fn map_sealed(&self, len: u64) -> io::Result<FileMap>;
}

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl RealDisk {
    /// The machine's file system as the handle that the rest of the house takes.
    pub fn handle() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// The same file past the system's cache, from the first time that is wanted; `None` where it cannot be had.
    direct: OnceLock<Option<File>>,
}

/// Alignment that writes past the cache need, in memory and in the file.
const DIRECT_BYTES: usize = 4096;

impl RealFile {
    #[allow(clippy::disallowed_methods, reason = "the one place that opens files")]
    fn direct(&self) -> Option<&File> {
        let open = || {
            let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(same).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }
}

#[derive(Debug)]
struct RealLock {
    _held: File,
}

impl DiskLock for RealLock {}

/// Whether a folder cannot be flushed at all, in contrast to a flush that failed.
fn is_refusal(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(kind, InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
}

#[allow(clippy::disallowed_methods, reason = "the one place that opens and renames files")]
impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let Some(above) = dir.parent() else { return Ok(()) };
        let there = dir.as_os_str().is_empty() || dir.is_dir();
        if !there {
            self.create_dir_all(above)?;
            match std::fs::create_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                made => made?,
            }
        }
        match self.sync_dir(above) {
            // This is for a process that made it and ended here. Where we may not even read, or nothing can be flushed,
            // it was somebody else.
            Err(error) if there && is_refusal(error.kind()) => Ok(()),
            synced => synced,
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::Read)
            .create_new(mode == OpenMode::CreateNew)
            .open(path)?;
        Ok(Arc::new(RealFile { file, direct: OnceLock::new() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let named = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let mut tries = 0;
        loop {
            match File::open(named) {
                // Connections come and go, and whoever fails here has no good way to begin again.
                Err(error) if is_out_of_files(&error) && tries < DIR_TRIES_MAX => {
                    tries += 1;
                    std::thread::sleep(DIR_RETRY);
                }
                opened => return opened?.sync_all(),
            }
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _held: file })),
            Err(TryLockError::WouldBlock) => Err(io::Error::from(io::ErrorKind::WouldBlock)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        std::fs::exists(path)
    }
}

impl DiskFile for RealFile {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn fill_zeros(&self, len: usize, at: u64) -> io::Result<()> {
        let zeros = vec![0; len + DIRECT_BYTES];
        let first = zeros.as_ptr().align_offset(DIRECT_BYTES);
        let zeros = &zeros[first..first + len];
        let aligned = len.is_multiple_of(DIRECT_BYTES) && at.is_multiple_of(DIRECT_BYTES as u64);
        match self.direct().filter(|_| aligned).map(|direct| direct.write_all_at(zeros, at)) {
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                self.file.write_all_at(zeros, at)
            }
            Some(written) => written,
            None => self.file.write_all_at(zeros, at),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len {
            return Ok(());
        }
        crate::mmap::allocate(&self.file, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn map_sealed(&self, len: u64) -> io::Result<FileMap> {
        FileMap::of_sealed(&self.file, len)
    }
}

/// Bytes of a file that [`remove_in_steps`] gives back at a time.
const REMOVED_BYTES: u64 = 1 << 20;

/// Removes the file at `path`, giving its space back a MiB at a time.
///
/// To remove a large file at once holds up every flush on the same disk until all its blocks are free: 36 to 43 ms for
/// 128 MiB on ext4, where steps hold up none for more than 1.3 ms and take as long together. Whoever has the file open sees
/// it shrink; nobody may have it mapped. After a crash it may still be there, shorter, so its name must mean nothing.
///
/// # Errors
/// Whatever the disk answers.
pub fn remove_in_steps(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let file = disk.open(path, OpenMode::Write)?;
    let mut len = file.len()?;
    while len > REMOVED_BYTES {
        len -= REMOVED_BYTES;
        file.set_len(len)?;
    }
    disk.remove(path)
}

/// `dir` joined with `name`: file names inside a folder are plain strings.
pub fn inside(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_disk::SimDisk;

    /// What every disk must do, whatever it is made of.
    fn behaves_as_a_disk(disk: &dyn Disk, root: &Path) {
        disk.create_dir_all(root).unwrap();
        let (one, two) = (inside(root, "one"), inside(root, "two"));
        assert_eq!(disk.open(&one, OpenMode::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = disk.open(&one, OpenMode::CreateNew).unwrap();
        assert_eq!(disk.open(&one, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        file.allocate(8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        file.write_at(b"hello", 4094).unwrap();
        file.sync_data().unwrap();
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 4094).unwrap();
        assert_eq!(&read, b"hello");
        file.fill_zeros(4096, 4096).unwrap();
        file.read_exact_at(&mut read, 4094).unwrap();
        assert_eq!(&read, b"he\0\0\0", "whole blocks");
        file.fill_zeros(1, 4094).unwrap();
        file.read_exact_at(&mut read, 4094).unwrap();
        assert_eq!(&read, b"\0e\0\0\0", "a part of one");
        file.write_at(b"hello", 4094).unwrap();
        file.sync_data().unwrap();
        let beyond = file.read_exact_at(&mut read, 8190).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);

        disk.rename(&one, &two).unwrap();
        disk.sync_dir(root).unwrap();
        assert_eq!(disk.list(root).unwrap(), ["two"]);
        assert!(disk.exists(&two).unwrap() && !disk.exists(&one).unwrap());

        let map = disk.open(&two, OpenMode::Read).unwrap().map_sealed(8192).unwrap();
        let slice = map.bytes().slice(4094..4099);
        let borrows = map.release();
        assert!(borrows.any());
        disk.remove(&two).unwrap();
        assert_eq!(&slice[..], b"hello");
        drop(slice);
        assert!(!borrows.any());

        let large = disk.open(&two, OpenMode::CreateNew).unwrap();
        large.set_len(2 * REMOVED_BYTES + 1).unwrap();
        remove_in_steps(disk, &two).unwrap();
        assert!(!disk.exists(&two).unwrap());
        assert!(large.len().unwrap() <= REMOVED_BYTES, "what was open shrank");
        let missing = remove_in_steps(disk, &two).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);

        let lock = disk.try_lock(&inside(root, "LOCK")).unwrap();
        assert_eq!(disk.try_lock(&inside(root, "LOCK")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        disk.try_lock(&inside(root, "LOCK")).map(drop).unwrap();
    }

    #[test]
    fn real_disk_behaves_as_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        behaves_as_a_disk(&RealDisk, &folder.path().join("a/b"));
    }

    #[test]
    fn simulated_disk_behaves_as_a_disk() {
        behaves_as_a_disk(&SimDisk::new(3), Path::new("a/b"));
    }
}
