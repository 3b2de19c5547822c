//! A folder as an object store: the library's, with four differences.
//!
//! Pieces that lie back to back are read each into memory of its own. The library reads them as one and cuts: what is to be
//! kept for itself must be copied then, and its buffer is zeroed before it is read into. Both together took a quarter of the
//! time of the threads that read. What is written is flushed in steps, see [`upload`], and what is deleted is given back in
//! steps. What the system's file cache holds is read by one thread at a time: it is copying and no waiting, and a dozen threads
//! that copy take the processors from those that answer clients, however nice they are.

mod upload;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dhara_stdx::sched::give_way;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::task::spawn_blocking;
use upload::{Parts, Staged, Turn, put_result};

/// Objects as files of a folder.
#[derive(Debug)]
pub(super) struct Folder {
    files: LocalFileSystem,
    turn: Turn,
    /// Held while bytes are read that the system's file cache holds.
    copying: Arc<Mutex<()>>,
}

impl Folder {
    /// Opens the folder at `path`, which must be there.
    pub(super) fn open(path: &FilePath) -> Result<Self> {
        let files = LocalFileSystem::new_with_prefix(path)?;
        // Off by default, and acked data would vanish with the page cache.
        Ok(Self { files: files.with_fsync(true), turn: Turn::default(), copying: Arc::default() })
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Folder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if !matches!(opts.mode, PutMode::Overwrite) || !opts.attributes.is_empty() {
            return self.files.put_opts(location, payload, opts).await;
        }
        let (turn, path) = (Turn::clone(&self.turn), self.files.path_to_filesystem(location)?);
        let put = spawn_blocking(move || {
            let staged = Staged::begin(turn, path)?;
            staged.write(&payload, 0)?;
            staged.publish()
        });
        put.await?.map_err(|error| failed(location, error))?;
        Ok(put_result())
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if !opts.attributes.is_empty() {
            return self.files.put_multipart_opts(location, opts).await;
        }
        let (turn, path) = (Turn::clone(&self.turn), self.files.path_to_filesystem(location)?);
        let staged = spawn_blocking(move || Staged::begin(turn, path)).await?;
        Ok(Box::new(Parts::new(staged.map_err(|error| failed(location, error))?, location.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.files.path_to_filesystem(location)?;
        let (ranges, copying) = (ranges.to_vec(), Arc::clone(&self.copying));
        let read = spawn_blocking(move || read_ranges(&path, &ranges, &copying)).await?;
        read.map_err(|error| failed(location, error))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let files = self.files.clone();
        let removed = locations.and_then(move |location| {
            let path = files.path_to_filesystem(&location);
            async move {
                let path = path?;
                let removed = spawn_blocking(move || upload::remove(&path)).await?;
                removed.map_err(|error| failed(&location, error))?;
                Ok(location)
            }
        });
        removed.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.files.rename_opts(from, to, options).await
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "objects lie outside the simulated disk, as the library's own reads do"
)]
fn read_ranges(path: &FilePath, ranges: &[Range<u64>], copying: &Mutex<()>) -> io::Result<Vec<Bytes>> {
    let file = File::open(path)?;
    let _turn = is_in_memory(&file, ranges).then(|| copying.lock());
    let mut at = 0;
    let mut pieces = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.start != at {
            (&file).seek(SeekFrom::Start(range.start))?;
        }
        pieces.push(read_piece(&file, range.end.saturating_sub(range.start))?);
        at = range.end;
        give_way();
    }
    Ok(pieces)
}

/// Whether the system's file cache seems to hold `ranges`: it does hold the first byte and the last one.
fn is_in_memory(file: &File, ranges: &[Range<u64>]) -> bool {
    let at_once = |at| {
        let mut byte = [0];
        // Where the system cannot tell, whoever reads must expect to wait.
        matches!(preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT), Ok(1))
    };
    let (first, last) = (ranges.first(), ranges.last());
    first.is_some_and(|range| at_once(range.start))
        && last.is_some_and(|range| at_once(range.end.saturating_sub(1)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::{ObjectStoreExt, PutMultipartOptions};
    use upload::staged_name;

    fn names(folder: &FilePath) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    fn payload(bytes: usize, with: u8) -> PutPayload {
        // Chunks that begin and end anywhere in a step, empty ones among them.
        let chunks = [0, bytes / 3, 0, 1, bytes - 1 - bytes / 3];
        chunks.into_iter().map(|length| Bytes::from(vec![with; length])).collect()
    }

    #[test]
    fn what_a_file_does_not_have_is_not_in_memory() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"bytes").unwrap();
        assert!(!is_in_memory(&file, &[]));
        assert!(!is_in_memory(&file, &[0..2, 2..6]));
        // Not every file system can tell that it has what was written a moment ago.
        let (whole, part) =
            (is_in_memory(&file, std::slice::from_ref(&(0..5))), is_in_memory(&file, &[0..1, 3..4]));
        assert_eq!(whole, part);
    }

    #[tokio::test]
    async fn what_is_put_is_there_whole_and_under_its_name_alone() {
        let (root, path) = (tempfile::tempdir().unwrap(), Path::from("a/b/c"));
        let folder = Folder::open(root.path()).unwrap();
        for (bytes, with) in [(1, 1), (9 << 20, 2), (4 << 20, 3), (5, 4)] {
            folder.put(&path, payload(bytes, with)).await.unwrap();
            let read = folder.get(&path).await.unwrap().bytes().await.unwrap();
            assert!(read.len() == bytes && read.iter().all(|byte| *byte == with));
            assert_eq!(names(&root.path().join("a/b")), ["c"]);
        }
        folder.put(&path, PutPayload::new()).await.unwrap();
        assert_eq!(folder.head(&path).await.unwrap().size, 0);
    }

    #[tokio::test]
    async fn upload_that_does_not_end_well_leaves_nothing() {
        let (root, path) = (tempfile::tempdir().unwrap(), Path::from("object"));
        let folder = Folder::open(root.path()).unwrap();
        let begin = || folder.put_multipart_opts(&path, PutMultipartOptions::default());
        let mut dropped = begin().await.unwrap();
        dropped.put_part(payload(100, 1)).await.unwrap();
        let mut aborted = begin().await.unwrap();
        aborted.put_part(payload(100, 2)).await.unwrap();
        let mut good = begin().await.unwrap();
        let parts = [good.put_part(payload(5 << 20, 3)), good.put_part(payload(100, 4))];
        // In any order.
        for part in parts.into_iter().rev() {
            part.await.unwrap();
        }
        assert_eq!(names(root.path()), ["object#0", "object#1", "object#2"]);
        assert!(folder.list(None).try_collect::<Vec<_>>().await.unwrap().is_empty());
        good.complete().await.unwrap();
        assert!(good.complete().await.is_err() && good.put_part(payload(1, 5)).await.is_err());
        aborted.abort().await.unwrap();
        assert!(aborted.complete().await.is_err());
        drop(dropped);
        assert_eq!(names(root.path()), ["object"]);
        let read = folder.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(read == [vec![3; 5 << 20], vec![4; 100]].concat());
    }

    #[tokio::test]
    async fn deleting_an_object_takes_along_what_a_killed_process_left_of_it() {
        let (root, path) = (tempfile::tempdir().unwrap(), Path::from("object"));
        let folder = Folder::open(root.path()).unwrap();
        let file = root.path().join("object");
        for left in [staged_name(&file, 0), staged_name(&file, 8), root.path().join("object2#0")] {
            std::fs::write(left, "half").unwrap();
        }
        assert!(matches!(folder.delete(&path).await, Err(Error::NotFound { .. })));
        assert_eq!(names(root.path()), ["object2#0"]);
        folder.put(&path, payload(3 << 20, 1)).await.unwrap();
        folder.delete(&path).await.unwrap();
        assert_eq!(names(root.path()), ["object2#0"]);
    }

    #[tokio::test]
    async fn uploads_side_by_side_into_a_new_folder_all_succeed() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        for round in 0..20 {
            let paths: Vec<Path> = (0..8).map(|n| Path::from(format!("{round}/new/{n}"))).collect();
            let puts = paths.iter().map(|path| folder.put(path, payload(10, 1)));
            futures_util::future::try_join_all(puts).await.unwrap();
        }
        std::fs::remove_dir_all(root.path().join("0")).unwrap();
        let path = Path::from("0/new/0");
        assert!(matches!(folder.put(&path, payload(10, 1)).await, Err(Error::NotFound { .. })));
        folder.put(&path, payload(10, 1)).await.unwrap();
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        std::fs::write(root.path().join("file"), "no folder").unwrap();
        assert!(folder.put(&Path::from("file/below"), payload(10, 1)).await.is_err());
        let missing = folder.get_ranges(&Path::from("missing"), std::slice::from_ref(&(0..1))).await;
        assert!(matches!(missing, Err(Error::NotFound { .. })));
        assert_eq!(names(root.path()), ["file"]);
    }
}
