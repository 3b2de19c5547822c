//! A file on its way into the folder: written and flushed in steps, then given its name.
//!
//! A flush of much holds up every other one on the same disk, the log's too, for as long as the disk takes for all of it.
//! So it is flushed every MiB, and one step of all uploads to a folder is on its way at a time.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dhara_stdx::{Disk, DiskFile, OpenMode, RealDisk, remove_in_steps};
use object_store::{Error, MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::failed;

/// Bytes that are flushed together.
const STEP_BYTES: usize = 1 << 20;
/// Names under which one file may be on its way at a time: attempts that were given up may still be running.
const ATTEMPTS_MAX: u32 = 8;
/// Number in the name of a file that is being removed: no attempt has it.
const GOING: u32 = ATTEMPTS_MAX;

/// Held by the upload whose step it is; all uploads to a folder share it. It knows the folders whose own names are durable:
/// that one is there does not say so, since another upload, or a process that was killed, may only just have made it.
pub(super) type Turn = Arc<Mutex<HashSet<PathBuf>>>;

/// A file that has no name of its own yet. Unless it is published it goes with this value.
#[derive(Debug)]
pub(super) struct Staged {
    turn: Turn,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    written_as: PathBuf,
    published: AtomicBool,
}

/// The name of attempt `number`; whoever lists a folder leaves such names out.
pub(super) fn staged_name(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("#{number}"));
    name.into()
}

/// Removes the file at `path`, and what attempts to write it left behind when their process ended.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    for number in 0..=GOING {
        match remove_in_steps(&RealDisk, &staged_name(path, number)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    // Nobody may find it while it shrinks.
    let going = staged_name(path, GOING);
    RealDisk.rename(path, &going)?;
    remove_in_steps(&RealDisk, &going)
}

impl Staged {
    pub(super) fn begin(turn: Turn, path: PathBuf) -> io::Result<Self> {
        let mut durable = turn.lock();
        let folder = path.parent().unwrap_or(Path::new(""));
        if !durable.contains(folder) {
            RealDisk.create_dir_all(folder)?;
            durable.insert(folder.to_owned());
        }
        let mut number = 0;
        loop {
            let written_as = staged_name(&path, number);
            match RealDisk.open(&written_as, OpenMode::CreateNew) {
                Ok(file) => {
                    drop(durable);
                    return Ok(Self { turn, file, path, written_as, published: AtomicBool::new(false) });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number + 1 < ATTEMPTS_MAX => {
                    number += 1;
                }
                Err(error) => {
                    // Somebody took it away; the next attempt makes it again.
                    durable.remove(folder);
                    return Err(error);
                }
            }
        }
    }

    /// Writes `payload` at `at`; it is durable afterwards.
    pub(super) fn write(&self, payload: &PutPayload, mut at: u64) -> io::Result<()> {
        let mut chunks = payload.iter().filter(|chunk| !chunk.is_empty()).cloned().peekable();
        while chunks.peek().is_some() {
            let _turn = self.turn.lock();
            let mut room = STEP_BYTES;
            while room > 0
                && let Some(chunk) = chunks.peek_mut()
            {
                let part = chunk.split_to(room.min(chunk.len()));
                room -= part.len();
                if chunk.is_empty() {
                    chunks.next();
                }
                self.file.write_at(&part, at)?;
                at += part.len() as u64;
            }
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Gives the file its name, for good.
    pub(super) fn publish(&self) -> io::Result<()> {
        self.file.sync_all()?;
        RealDisk.rename(&self.written_as, &self.path)?;
        self.published.store(true, Ordering::Relaxed);
        self.path.parent().map_or(Ok(()), |folder| RealDisk.sync_dir(folder))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published.load(Ordering::Relaxed) {
            // What cannot be removed now goes when the name is deleted.
            let _tried = remove_in_steps(&RealDisk, &self.written_as);
        }
    }
}

/// An upload whose parts come one by one.
#[derive(Debug)]
pub(super) struct Parts {
    staged: Option<Arc<Staged>>,
    location: object_store::path::Path,
    /// Where the next part begins.
    at: u64,
    failed: Arc<AtomicBool>,
}

impl Parts {
    pub(super) fn new(staged: Staged, location: object_store::path::Path) -> Self {
        Self { staged: Some(Arc::new(staged)), location, at: 0, failed: Arc::default() }
    }

    fn ended(&self) -> Error {
        failed(&self.location, io::Error::new(ErrorKind::BrokenPipe, "the upload has ended"))
    }
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(staged) = self.staged.clone() else {
            let ended = self.ended();
            return Box::pin(async { Err(ended) });
        };
        let (at, location, failure) = (self.at, self.location.clone(), Arc::clone(&self.failed));
        self.at += data.content_length() as u64;
        Box::pin(async move {
            let written = spawn_blocking(move || staged.write(&data, at)).await;
            let written = written
                .map_err(Error::from)
                .and_then(|written| written.map_err(|error| failed(&location, error)));
            failure.fetch_or(written.is_err(), Ordering::Relaxed);
            written
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staged = self.staged.take().filter(|_staged| !self.failed.load(Ordering::Relaxed));
        let staged = staged.ok_or_else(|| self.ended())?;
        spawn_blocking(move || staged.publish()).await?.map_err(|error| failed(&self.location, error))?;
        Ok(put_result())
    }

    async fn abort(&mut self) -> Result<()> {
        self.staged = None;
        Ok(())
    }
}

pub(super) fn put_result() -> PutResult {
    PutResult { e_tag: None, version: None, extensions: object_store::Extensions::default() }
}
