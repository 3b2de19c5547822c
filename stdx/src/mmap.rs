//! Read-only maps of sealed files, handed out as [`Bytes`] that keep the map alive.
//!
//! Never maps a file that may still be written, truncated or shortened: see [`FileMap::of_sealed`].
#![allow(unsafe_code, reason = "a map of a file is a promise about that file that only its owner can keep")]

use std::fs::File;
use std::io;

use bytes::Bytes;

/// The bytes of one sealed file, and the knowledge whether anybody still borrows some of them.
#[derive(Debug)]
pub struct FileMap {
    bytes: Bytes,
}

impl FileMap {
    /// Maps the first `len` bytes of `file`.
    ///
    /// The caller promises that the file is sealed: its first `len` bytes exist, are never written again and never
    /// cut off until [`FileMap::borrowed`] is false and this map is dropped. Unlinking the file is allowed.
    ///
    /// # Errors
    /// Whatever `mmap` answers, or `InvalidInput` if the file is shorter than `len`.
    pub(crate) fn of_sealed(file: &File, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "file is shorter than its map"));
        }
        if len == 0 {
            return Ok(Self::of_bytes(Bytes::new()));
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // SAFETY: the caller promises that these bytes neither change nor disappear while the map lives (above), and
        // the one caller, the log, recycles a file only after `borrowed` said no and the map was dropped.
        let map = unsafe { memmap2::MmapOptions::new().len(len).map(file)? };
        Ok(Self::of_bytes(Bytes::from_owner(map)))
    }

    /// Bytes that are not a map but are used like one: what a simulated disk hands out.
    pub fn of_bytes(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// All mapped bytes; any slice of them counts as a borrow.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// True while some slice of the map lives outside it.
    pub fn borrowed(&self) -> bool {
        !self.bytes.is_empty() && !self.bytes.is_unique()
    }
}

/// Reserves space so that `file` has `len` bytes, the new ones zero: `fallocate`, which the standard library lacks.
///
/// # Errors
/// `StorageFull`, and whatever the system answers.
pub(crate) fn allocate(file: &File, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: a system call on a descriptor that `file` keeps open; it takes plain numbers.
    let answer = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
