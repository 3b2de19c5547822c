//! Read-only maps of sealed files, handed out as [`Bytes`] that keep the map alive.
//!
//! Never maps a file that may still be written, truncated or shortened: see `FileMap::of_sealed`.
#![allow(unsafe_code, reason = "a map of a file is a promise about that file that only its owner can keep")]

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bytes::Bytes;

/// The bytes of one sealed file.
#[derive(Debug)]
pub struct FileMap {
    bytes: Bytes,
    alive: MapBorrows,
}

/// Outlives a [`FileMap`] and knows whether anybody still borrows bytes of it.
#[derive(Debug)]
pub struct MapBorrows(Arc<()>);

/// What the `Bytes` own. Fields drop in this order: the map is gone before the count falls.
struct Counted<T> {
    content: T,
    _alive: Arc<()>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

impl FileMap {
    /// Maps the first `len` bytes of `file`.
    ///
    /// The caller promises that the file is sealed: its first `len` bytes exist, are never written again and never
    /// cut off until [`MapBorrows::any`] says no. Unlinking the file is allowed.
    ///
    /// # Errors
    /// Whatever `mmap` answers, or `InvalidInput` if the file is shorter than `len`.
    pub(crate) fn of_sealed(file: &File, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "file is shorter than its map"));
        }
        if len == 0 {
            return Ok(Self::counted(Bytes::new()));
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // SAFETY: the caller promises that these bytes neither change nor disappear while anybody borrows them
        // (above); the one caller, the log, rewrites a file only after `MapBorrows::any` said no.
        let map = unsafe { memmap2::MmapOptions::new().len(len).map(file)? };
        Ok(Self::counted(map))
    }

    /// Bytes that are not a map but are used like one: what a simulated disk hands out.
    pub fn of_bytes(bytes: Bytes) -> Self {
        Self::counted(bytes)
    }

    fn counted(content: impl AsRef<[u8]> + Send + 'static) -> Self {
        let alive = Arc::new(());
        let bytes = Bytes::from_owner(Counted { content, _alive: Arc::clone(&alive) });
        Self { bytes, alive: MapBorrows(alive) }
    }

    /// All mapped bytes; slices of them keep the map alive.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Lets go of the map and says who still borrows it.
    pub fn release(self) -> MapBorrows {
        self.alive
    }
}

impl MapBorrows {
    /// True while some slice of the map lives; once false, for ever false.
    pub fn any(&self) -> bool {
        let any = Arc::strong_count(&self.0) > 1;
        // Whatever the last borrower read happened before what the caller writes next.
        fence(Ordering::Acquire);
        any
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
