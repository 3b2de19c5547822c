//! Small files that are replaced whole: after a crash a reader finds the old bytes or the new ones, never a mixture.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, OpenMode};

/// Largest file that [`read`] accepts: these files are settings and identities, not data.
pub const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// Replaces the content of `path` by `bytes` and returns once that survives a power cut.
///
/// # Errors
/// Whatever the disk answers; the old content is then still there, or the new one is, whole.
pub fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let fresh = beside(path);
    if disk.exists(&fresh)? {
        disk.remove(&fresh)?;
    }
    let file = disk.open(&fresh, OpenMode::CreateNew)?;
    file.write_at(bytes, 0)?;
    file.sync_all()?;
    disk.rename(&fresh, path)?;
    disk.sync_dir(dir)
}

/// Reads all of `path`, or `None` if there is no such file.
///
/// # Errors
/// Whatever the disk answers, and `InvalidData` above [`SMALL_FILE_BYTES_MAX`].
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = file.len()?;
    if len > SMALL_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "file is larger than such files may be"));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim_disk::SimDisk;

    #[test]
    fn crash_at_any_call_leaves_old_or_new_content() {
        for seed in 0..20 {
            for calls in 0..8 {
                let disk = SimDisk::new(seed);
                disk.create_dir_all(Path::new("d")).unwrap();
                disk.sync_dir(Path::new("")).unwrap();
                write(&disk, Path::new("d/f"), b"old").unwrap();
                disk.power_off_after(calls);
                let written = write(&disk, Path::new("d/f"), b"fresh").is_ok();
                let found = read(&disk.crash(seed), Path::new("d/f")).unwrap().unwrap();
                assert!(found == b"fresh" || (!written && found == b"old"), "{calls} {found:?}");
            }
        }
    }

    #[test]
    fn missing_file_reads_as_none() {
        assert_eq!(read(&SimDisk::new(1), Path::new("d/none")).unwrap(), None);
    }
}
