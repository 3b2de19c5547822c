//! The files of a folder: which there are, how large, and how fast they are read one after the other.

use crate::limit::per_second;
use anyhow::Result;
use dhara_stdx::{Disk, OpenMode, RealDisk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

const CHUNK_BYTES: u64 = 1024 * 1024;

/// All files under `folder` with their sizes; what comes or goes meanwhile may be missing.
///
/// # Errors
/// Whatever the file system answers.
pub fn files(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => drop(found.insert(entry.path(), metadata.len())),
                Err(_gone) => {}
            }
        }
    }
    Ok(found)
}

/// Reads the given files one after the other; returns bytes and bytes per second.
///
/// # Errors
/// Whatever the disk answers.
pub fn read_sequentially<'a>(files: impl IntoIterator<Item = (&'a PathBuf, &'a u64)>) -> Result<(u64, f64)> {
    let mut chunk = vec![0; usize::try_from(CHUNK_BYTES)?];
    let mut total = 0;
    let started = Instant::now();
    for (path, &length) in files {
        let file = RealDisk.open(path, OpenMode::Read)?;
        let mut at = 0;
        while at < length {
            let wanted = usize::try_from(CHUNK_BYTES.min(length - at))?;
            file.read_exact_at(&mut chunk[..wanted], at)?;
            at += wanted as u64;
        }
        total += length;
    }
    Ok((total, per_second(total, started.elapsed())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_at_any_depth_and_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(folder.path().join("one"), [1; 10]).unwrap();
        std::fs::write(deep.join("two"), [2; 20]).unwrap();
        let found = files(folder.path()).unwrap();
        assert_eq!(found.values().copied().collect::<Vec<_>>(), [20, 10]);
        assert_eq!(read_sequentially(&found).unwrap().0, 30);
    }
}
