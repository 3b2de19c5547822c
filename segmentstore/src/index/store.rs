//! The object store as the index engine sees it: every call ends, and all of them end at once while a container closes.
//!
//! The engine retries nearly every error for ever, on calls that may themselves never return. [`GuardedStore`]
//! gives each call, each part of an upload and each piece of a body a time limit, and once its token is
//! cancelled answers everything with an error that the engine does not retry. It never retries and never caches.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, UpdateVersion, UploadPart,
};
use slatedb_common::retry::NonRetryable;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Name that errors of this store carry.
const STORE_NAME: &str = "guarded";

/// Asks a store whether it replaces an object only if it is still the one last read (`PutMode::Update`).
///
/// Leaves nothing behind below `prefix`. A store that answers, but replaces in spite of a wrong tag, counts as one
/// that cannot.
///
/// # Errors
/// What the store says, if that does not decide the question.
/// # Cancel safety
/// Dropped early, a probe object of a few bytes may stay.
pub async fn probe_update(store: &dyn ObjectStore, prefix: &Path) -> object_store::Result<bool> {
    let path = prefix.clone().join("probe");
    let update = |e_tag: Option<String>, version: Option<String>| {
        PutOptions::from(PutMode::Update(UpdateVersion { e_tag, version }))
    };
    // A local folder answers this at once, without a write.
    match store.put_opts(&path, "wrong".into(), update(Some("no such tag".to_owned()), None)).await {
        Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
            return Ok(false);
        }
        Err(object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
        Ok(_replaced) => {
            store.delete(&path).await?;
            return Ok(false);
        }
    }
    let first = store.put(&path, "first".into()).await?;
    let stale = update(first.e_tag.clone(), first.version.clone());
    let second = store.put_opts(&path, "second".into(), update(first.e_tag, first.version)).await;
    let third = store.put_opts(&path, "third".into(), stale).await;
    store.delete(&path).await?;
    Ok(second.is_ok() && matches!(third, Err(object_store::Error::Precondition { .. })))
}

/// When calls end that the store does not answer.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) call_timeout: Duration,
    pub(crate) closing: CancellationToken,
}

/// Why a guarded call ended early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("container is closing")]
    Closing,
    #[error("conflict about an object that is not there")]
    Unfounded,
    #[error("conflict in answer to a call without a condition: {0}")]
    Misplaced(object_store::Error),
    #[error("{path} has {size} bytes, and bytes from {start} on are needed: it is cut off")]
    Cut { path: Path, size: u64, start: u64 },
}

/// What an error of a call without a condition comes to. Stores that are busy answer with a conflict there too;
/// the engine takes it for another owner's doing and gives up, where it only has to ask again.
fn placed(error: object_store::Error) -> object_store::Error {
    use object_store::Error as E;
    match error {
        E::AlreadyExists { .. } | E::Precondition { .. } => {
            E::Generic { store: STORE_NAME, source: Box::new(Ended::Misplaced(error)) }
        }
        other => other,
    }
}

impl Guard {
    async fn run<T>(
        &self,
        call: impl Future<Output = object_store::Result<T>> + Send,
    ) -> object_store::Result<T> {
        match self.bound(call).await {
            Ok(answer) => answer,
            Err(error) => Err(error),
        }
    }

    async fn bound<T>(&self, call: impl Future<Output = T> + Send) -> object_store::Result<T> {
        let ended = tokio::select! {
            // Closing first: it happens once, and then nothing else may go on.
            biased;
            () = self.closing.cancelled() => Ended::Closing,
            answer = tokio::time::timeout(self.call_timeout, call) => match answer {
                Ok(answer) => return Ok(answer),
                Err(_elapsed) => Ended::TimedOut(self.call_timeout),
            },
        };
        let source: Box<dyn std::error::Error + Send + Sync> = match ended {
            Ended::Closing => Box::new(NonRetryable(Box::new(ended))),
            ended => Box::new(ended),
        };
        Err(object_store::Error::Generic { store: STORE_NAME, source })
    }

    /// Bounds the wait for each item; after an error of the guard's own the stream ends.
    fn stream<T: Send + 'static>(
        &self,
        inner: BoxStream<'static, object_store::Result<T>>,
    ) -> BoxStream<'static, object_store::Result<T>> {
        let start = Some((self.clone(), inner));
        stream::unfold(start, |state| async move {
            let (guard, mut inner) = state?;
            match guard.bound(inner.next()).await {
                Ok(Some(item)) => Some((item, Some((guard, inner)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

/// A store behind a [`Guard`].
#[derive(Debug)]
pub(crate) struct GuardedStore {
    inner: Arc<dyn ObjectStore>,
    guard: Guard,
}

impl GuardedStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, guard: Guard) -> Self {
        Self { inner, guard }
    }
}

impl GuardedStore {
    /// What a conflict about creating an object comes to. Stores report one too where two writers met and neither
    /// got through, and the engine takes it for an object of another owner: a number it then skips is a hole in its
    /// log that no later owner gets over.
    async fn settle(&self, location: &Path, conflict: object_store::Error) -> object_store::Error {
        match self.guard.run(self.inner.head(location)).await {
            Err(object_store::Error::NotFound { .. }) => {
                object_store::Error::Generic { store: STORE_NAME, source: Box::new(Ended::Unfounded) }
            }
            _ => conflict,
        }
    }

    /// What a read of bytes from `start` on comes to that the store itself failed. If the object ends before, asking again changes nothing, and
    /// the engine would ask for ever.
    async fn settle_read(
        &self,
        location: &Path,
        start: u64,
        failed: object_store::Error,
    ) -> object_store::Error {
        match self.guard.run(self.inner.head(location)).await {
            Ok(ObjectMeta { size, .. }) if size <= start => {
                let cut = Ended::Cut { path: location.clone(), size, start };
                let source = Box::new(NonRetryable(Box::new(cut)));
                object_store::Error::Generic { store: STORE_NAME, source }
            }
            _ => failed,
        }
    }
}

impl fmt::Display for GuardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE_NAME} {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for GuardedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let (creates, overwrites) = (options.mode == PutMode::Create, options.mode == PutMode::Overwrite);
        let put = self.guard.run(self.inner.put_opts(location, payload, options)).await;
        match put {
            put if overwrites => put.map_err(placed),
            Err(conflict @ object_store::Error::AlreadyExists { .. }) if creates => {
                Err(self.settle(location, conflict).await)
            }
            put => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let inner = self.guard.run(self.inner.put_multipart_opts(location, options)).await.map_err(placed)?;
        Ok(Box::new(GuardedUpload { inner, guard: self.guard.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let start = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.start),
            Some(GetRange::Offset(start)) => Some(*start),
            Some(GetRange::Suffix(_)) | None => None,
        };
        let conditional = options.if_match.is_some() || options.if_unmodified_since.is_some();
        let read = self.guard.run(self.inner.get_opts(location, options)).await;
        let read = if conditional { read } else { read.map_err(placed) };
        let mut result = match (read, start) {
            (Err(failed @ object_store::Error::Generic { store, .. }), Some(start))
                if store != STORE_NAME =>
            {
                return Err(self.settle_read(location, start, failed).await);
            }
            (read, _) => read?,
        };
        // A local file is read without a wait that could be bounded.
        if let GetResultPayload::Stream(body) = result.payload {
            result.payload = GetResultPayload::Stream(self.guard.stream(body));
        }
        Ok(result)
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        let read = self.guard.run(self.inner.get_ranges(location, ranges)).await.map_err(placed);
        match (read, ranges.iter().map(|range| range.start).max()) {
            (Err(failed @ object_store::Error::Generic { store, .. }), Some(start))
                if store != STORE_NAME =>
            {
                Err(self.settle_read(location, start, failed).await)
            }
            (read, _) => read,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.guard.stream(self.inner.delete_stream(locations)).map_err(placed).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.guard.stream(self.inner.list(prefix)).map_err(placed).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.guard.stream(self.inner.list_with_offset(prefix, offset)).map_err(placed).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.guard.run(self.inner.list_with_delimiter(prefix)).await.map_err(placed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.guard.run(self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> object_store::Result<()> {
        self.guard.run(self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct GuardedUpload {
    inner: Box<dyn MultipartUpload>,
    guard: Guard,
}

#[async_trait]
impl MultipartUpload for GuardedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part: BoxFuture<'static, object_store::Result<()>> = self.inner.put_part(data);
        let guard = self.guard.clone();
        Box::pin(async move { guard.run(part).await.map_err(placed) })
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.guard.run(self.inner.complete()).await.map_err(placed)
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.guard.run(self.inner.abort()).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
