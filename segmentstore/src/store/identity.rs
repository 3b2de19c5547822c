//! What a data folder says of itself: that it is a store's, which version, and how many containers it has.
//!
//! The container count decides where a segment lives, so it never changes under data.

use dhara_stdx::crashsafe;
use dhara_stdx::disk::Disk;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "store.identity";
/// First line of the file.
const MAGIC: &str = "dhara store 1";

/// Why a folder is refused; it is left as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not one of ours, or of a later version.
    #[error("{path} is not the identity of a store that this version can open")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The folder was made for another count.
    #[error("{path} says {found} containers, but {wanted} are configured")]
    Containers {
        /// The file.
        path: PathBuf,
        /// Count of the folder.
        found: u16,
        /// Count configured.
        wanted: u16,
    },
}

/// Whether the folder became a store once.
pub(super) fn is_known(disk: &dyn Disk, folder: &Path) -> io::Result<bool> {
    Ok(crashsafe::read(disk, &folder.join(FILE))?.is_some())
}

/// Checks that the folder is a store with `containers` containers; a new folder becomes one.
///
/// # Errors
/// [`IdentityError`] if it is anything else.
pub(super) fn check(disk: &dyn Disk, folder: &Path, containers: u16) -> Result<(), IdentityError> {
    let path = folder.join(FILE);
    let io = |source| IdentityError::Io { path: path.clone(), source };
    let Some(bytes) = crashsafe::read(disk, &path).map_err(io)? else {
        let text = format!("{MAGIC}\ncontainers {containers}\n");
        return crashsafe::write(disk, &path, text.as_bytes()).map_err(io);
    };
    let found = parse(&bytes).ok_or_else(|| IdentityError::Foreign { path: path.clone() })?;
    if found == containers {
        Ok(())
    } else {
        Err(IdentityError::Containers { path, found, wanted: containers })
    }
}

fn parse(bytes: &[u8]) -> Option<u16> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    lines.next()?.strip_prefix("containers ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhara_stdx::SimDisk;

    /// The file of version 1, as docs/formats.md draws it.
    const GOLDEN: &str = "dhara store 1\ncontainers 4\n";

    #[test]
    fn new_folder_gets_the_golden_identity_and_no_other_count_opens_it() {
        let (disk, folder) = (SimDisk::new(1), Path::new("data"));
        disk.create_dir_all(folder).unwrap();
        check(&disk, folder, 4).unwrap();
        assert_eq!(disk.content(&folder.join("store.identity")).unwrap(), GOLDEN.as_bytes());
        check(&disk, folder, 4).unwrap();
        assert!(matches!(
            check(&disk, folder, 5),
            Err(IdentityError::Containers { found: 4, wanted: 5, .. })
        ));
        assert!(is_known(&disk, folder).unwrap() && !is_known(&disk, Path::new("other")).unwrap());
    }

    #[test]
    fn identity_reads_what_it_wrote_and_nothing_else() {
        assert_eq!(parse(b"dhara store 1\ncontainers 4\n"), Some(4));
        assert_eq!(parse(b"dhara store 2\ncontainers 4\n"), None);
        assert_eq!(parse(b"dhara store 1\ncontainers four\n"), None);
        assert_eq!(parse(b"\xff"), None);
    }
}
