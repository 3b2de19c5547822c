//! The store's calls.

use super::{Course, Fault, Outage, STORE_NAME, Shared, SimObjectStore, State, generic};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use slatedb_common::retry::NonRetryable;
use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

impl SimObjectStore {
    /// A call that changes nothing; it ends with whoever waits for it.
    async fn look<T>(
        &self,
        what: String,
        look: impl FnOnce(&State, DateTime<Utc>) -> Result<T> + Send,
    ) -> Result<T> {
        let course = self.shared.set_out(false, false);
        self.shared.trace.note(format_args!("store {} {what}", course.number));
        let looking = async {
            tokio::time::sleep(course.there).await;
            let answer = match self.shared.meets(course) {
                None => look(&self.shared.state.lock(), self.shared.now()),
                Some(Fault::Swallowed | Fault::Unanswered) => pending().await,
                Some(_) => Err(unavailable()),
            };
            tokio::time::sleep(course.back).await;
            self.shared.answered(course, &answer);
            answer
        };
        tokio::select! { biased;
            // Final; nothing can starve behind it.
            () = self.cut() => Err(dead()),
            answer = looking => answer,
        }
    }

    /// Waits for the end of this line.
    async fn cut(&self) {
        match &self.cut {
            Some(cut) => cut.cancelled().await,
            None => pending().await,
        }
    }

    /// A call that changes something; once on its way it may arrive whether or not anybody waits for it.
    async fn change<T: Send + 'static>(
        &self,
        what: String,
        conditional: bool,
        effect: impl FnOnce(&mut State, DateTime<Utc>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let course = self.shared.set_out(true, conditional);
        self.shared.trace.note(format_args!("store {} {what}", course.number));
        let (sender, receiver) = oneshot::channel();
        let travelling = travel(Arc::clone(&self.shared), course, what, effect, sender);
        if self.cut.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Err(dead());
        }
        drop(tokio::spawn(travelling));
        tokio::select! { biased;
            // Final; nothing can starve behind it.
            () = self.cut() => Err(dead()),
            answer = receiver => answer.unwrap_or_else(|_no_answer| Err(unavailable())),
        }
    }

    async fn put(
        &self,
        location: &Path,
        data: Bytes,
        attributes: Attributes,
        mode: PutMode,
    ) -> Result<PutResult> {
        let conditional = mode != PutMode::Overwrite;
        let kind = match mode {
            PutMode::Overwrite => "put",
            PutMode::Create => "create",
            PutMode::Update(_) => "update",
        };
        let what = format!("{kind} {location} {} {:08x}", data.len(), crc32fast::hash(&data));
        let location = location.clone();
        let put = self
            .change(what, conditional, move |state, at| state.put(at, &location, (data, attributes), &mode));
        let e_tag = put.await?;
        Ok(PutResult { e_tag: Some(e_tag), version: None, extensions: Extensions::default() })
    }
}

/// What is left of a process that has died must end, not try again.
fn dead() -> Error {
    let source = Box::new(NonRetryable("process is dead".into()));
    Error::Generic { store: STORE_NAME, source }
}

fn unavailable() -> Error {
    generic("503 service unavailable")
}

impl Shared {
    /// What becomes of a call that arrives now.
    fn meets(&self, course: Course) -> Option<Fault> {
        let outage = self.state.lock().weather.outage;
        match outage {
            Outage::None => course.fault,
            Outage::Refuses => Some(Fault::Refused),
            Outage::Silent => Some(Fault::Swallowed),
        }
    }

    fn answered<T>(&self, course: Course, answer: &Result<T>) {
        let word = if answer.is_ok() { "ok" } else { "error" };
        self.trace.note(format_args!("store {} {word}", course.number));
    }
}

/// A change on its way: there, its effect, and back.
async fn travel<T: Send>(
    shared: Arc<Shared>,
    course: Course,
    what: String,
    effect: impl FnOnce(&mut State, DateTime<Utc>) -> Result<T> + Send,
    mut caller: oneshot::Sender<Result<T>>,
) {
    tokio::time::sleep(course.there).await;
    // Whoever gave up, died or was cut off dropped its end.
    if caller.is_closed() && !course.arrives_alone {
        return;
    }
    let fault = shared.meets(course);
    let answer = match fault {
        Some(Fault::Swallowed) => {
            caller.closed().await;
            return;
        }
        Some(Fault::Refused) => Err(unavailable()),
        Some(Fault::Conflict) => {
            Err(Error::AlreadyExists { path: what.clone(), source: "409 conflict".into() })
        }
        None | Some(Fault::ReplyLost | Fault::Unanswered) => {
            let now = shared.now();
            let done = effect(&mut shared.state.lock(), now);
            let word = if done.is_ok() { "takes effect" } else { "has none" };
            shared.trace.note(format_args!("store {} {word}", course.number));
            done
        }
    };
    tokio::select! { biased;
        // Nobody waits for the answer any more; nothing can starve behind that.
        () = caller.closed() => return,
        () = tokio::time::sleep(course.back) => {}
    }
    let answer = match fault {
        Some(Fault::Unanswered) => {
            caller.closed().await;
            return;
        }
        Some(Fault::ReplyLost) => Err(unavailable()),
        _ => answer,
    };
    shared.answered(course, &answer);
    // Whoever asked may have given up.
    drop(caller.send(answer));
}

#[async_trait]
impl ObjectStore for SimObjectStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.put(location, payload.into(), options.attributes, options.mode).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.look(format!("upload {location}"), |_, _| Ok(())).await?;
        Ok(Box::new(SimUpload {
            store: self.clone(),
            location: location.clone(),
            attributes: options.attributes,
            parts: Vec::new(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let what = if options.head { "head" } else { "get" };
        self.look(format!("{what} {location} {:?}", options.range), |state, _| {
            let object = state.find(location)?;
            let meta = object.meta(location);
            options.check_preconditions(&meta)?;
            let whole = 0..meta.size;
            let range = match &options.range {
                None => whole,
                Some(range) => as_range(range, meta.size)?,
            };
            let data = slice(&object.data, &range);
            let body = stream::once(std::future::ready(Ok(data))).boxed();
            Ok(GetResult {
                payload: GetResultPayload::Stream(body),
                meta,
                range,
                attributes: object.attributes.clone(),
                extensions: Extensions::default(),
            })
        })
        .await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.look(format!("get {location} {ranges:?}"), |state, _| {
            let object = state.find(location)?;
            let size = u64::try_from(object.data.len()).unwrap_or(u64::MAX);
            let get = |range: &Range<u64>| {
                Ok(slice(&object.data, &as_range(&GetRange::Bounded(range.clone()), size)?))
            };
            ranges.iter().map(get).collect()
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Path| {
            let store = store.clone();
            async move {
                let gone = location.clone();
                let deleted = store.change(format!("delete {location}"), false, move |state, at| {
                    state.set(at, &gone, None);
                    Ok(())
                });
                deleted.await.map(|()| location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listing = async move {
            let what = prefix.as_ref().map_or("/", AsRef::as_ref);
            let listed =
                store.look(format!("list {what}"), |state, now| Ok(state.listed(prefix.as_ref(), now)));
            listed.await.map(|listed| stream::iter(listed.into_iter().map(Ok)))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        let above = prefix.unwrap_or(&root);
        let listed = self.look(format!("list {above}/"), |state, now| Ok(state.listed(prefix, now)));
        let (mut objects, mut folders) = (Vec::new(), BTreeSet::new());
        for meta in listed.await? {
            let folder = {
                let Some(mut rest) = meta.location.prefix_match(above) else { continue };
                let first = rest.next();
                first.filter(|_| rest.next().is_some()).map(|folder| above.clone().join(folder))
            };
            match folder {
                Some(folder) => drop(folders.insert(folder)),
                None => objects.push(meta),
            }
        }
        let common_prefixes = folders.into_iter().collect();
        Ok(ListResult { objects, common_prefixes, extensions: Extensions::default() })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (source, target) = (from.clone(), to.clone());
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        let conditional = mode == PutMode::Create;
        self.change(format!("copy {from} {to}"), conditional, move |state, at| {
            let object = state.find(&source)?.clone();
            state.put(at, &target, (object.data, object.attributes), &mode).map(drop)
        })
        .await
    }
}

fn as_range(range: &GetRange, size: u64) -> Result<Range<u64>> {
    range.as_range(size).map_err(|source| Error::Generic { store: STORE_NAME, source: Box::new(source) })
}

/// The range was checked against the data's length.
fn slice(data: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    data.slice(at(range.start)..at(range.end))
}

/// An upload in parts: nothing is there before it is complete.
struct SimUpload {
    store: SimObjectStore,
    location: Path,
    attributes: Attributes,
    /// Parts in their order; one that did not arrive is missing.
    parts: Vec<Arc<Mutex<Option<Bytes>>>>,
}

impl fmt::Debug for SimUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimUpload").field("location", &self.location).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for SimUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let slot = Arc::default();
        self.parts.push(Arc::clone(&slot));
        let (store, location, number) = (self.store.clone(), self.location.clone(), self.parts.len());
        let data = Bytes::from(data);
        Box::pin(async move {
            let bytes = data.len();
            let taken = store.look(format!("part {number} {location} {bytes}"), |_, _| Ok(data));
            *slot.lock() = Some(taken.await?);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut whole = BytesMut::new();
        for part in &self.parts {
            let part = part.lock().clone().ok_or_else(|| generic("400 a part is missing"))?;
            whole.extend_from_slice(&part);
        }
        let attributes = self.attributes.clone();
        self.store.put(&self.location, whole.freeze(), attributes, PutMode::Overwrite).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.look(format!("abort {}", self.location), |_, _| Ok(())).await
    }
}
