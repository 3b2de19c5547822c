//! A folder as an object store: the library's, but pieces that lie back to back are read each into memory of its own.
//!
//! The library reads them as one and cuts: what is to be kept for itself must be copied then, and its buffer is
//! zeroed before it is read into. Both together took a quarter of the time of the threads that read.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path as FilePath;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use tokio::task::spawn_blocking;

/// Objects as files of a folder.
#[derive(Debug)]
pub(super) struct Folder(LocalFileSystem);

impl Folder {
    /// Opens the folder at `path`, which must be there.
    pub(super) fn open(path: &FilePath) -> Result<Self> {
        let files = LocalFileSystem::new_with_prefix(path)?;
        // Off by default, and acked data would vanish with the page cache.
        Ok(Self(files.with_fsync(true)))
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Folder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.0.path_to_filesystem(location)?;
        let ranges = ranges.to_vec();
        let read = spawn_blocking(move || read_ranges(&path, &ranges)).await?;
        read.map_err(|error| failed(location, error))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "objects lie outside the simulated disk, as the library's own reads do"
)]
fn read_ranges(path: &FilePath, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let mut at = 0;
    let mut pieces = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.start != at {
            (&file).seek(SeekFrom::Start(range.start))?;
        }
        pieces.push(read_piece(&file, range.end.saturating_sub(range.start))?);
        at = range.end;
    }
    Ok(pieces)
}

/// Reads the next `length` bytes into memory that was not written to before.
fn read_piece(file: &File, length: u64) -> io::Result<Bytes> {
    let mut piece = Vec::new();
    let room = usize::try_from(length).map_err(|_source| ErrorKind::OutOfMemory)?;
    piece.try_reserve_exact(room)?;
    file.take(length).read_to_end(&mut piece)?;
    if piece.len() < room {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the object ends within what was asked for"));
    }
    Ok(piece.into())
}

fn failed(location: &Path, error: io::Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        Error::NotFound { path: location.to_string(), source: error.into() }
    } else {
        Error::Generic { store: "folder", source: error.into() }
    }
}
