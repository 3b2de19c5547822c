use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use parking_lot::Mutex;
use std::future::pending;

use super::*;
use crate::sim::Trace;
use crate::sim::store::{Fault, SimObjectStore};

/// A store in memory that stops answering when a test says so, as one behind a broken network.
#[derive(Debug, Default)]
pub(crate) struct FaultStore {
    inner: Arc<InMemory>,
    /// How many more puts are answered before nothing is.
    puts_left: Mutex<Option<usize>>,
    ignores_tags: bool,
    /// Reads get an answer that belongs to writes.
    conflicts: bool,
}

impl FaultStore {
    /// What the store holds, for an owner with a better network.
    pub(crate) fn inner(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner) as Arc<dyn ObjectStore>
    }

    /// Answers this many more puts, with all reads between them, then nothing.
    pub(crate) fn silent_after(&self, puts: usize) {
        *self.puts_left.lock() = Some(puts);
    }

    async fn answer(&self, is_put: bool) {
        let answers = {
            let mut puts_left = self.puts_left.lock();
            match puts_left.as_mut() {
                None => true,
                Some(0) => false,
                Some(left) => {
                    *left -= usize::from(is_put);
                    true
                }
            }
        };
        if !answers {
            pending::<()>().await;
        }
    }

    fn silent<T: Send + 'static>(&self) -> Option<BoxStream<'static, T>> {
        (*self.puts_left.lock() == Some(0)).then(|| stream::pending().boxed())
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.answer(true).await;
        if self.ignores_tags {
            options.mode = PutMode::Overwrite;
        }
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.answer(true).await;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.answer(false).await;
        if self.conflicts {
            let source = "409 Conflict".into();
            return Err(object_store::Error::AlreadyExists { path: location.to_string(), source });
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.silent().unwrap_or_else(|| self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.silent().unwrap_or_else(|| self.inner.list(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.answer(false).await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.answer(true).await;
        self.inner.copy_opts(from, to, options).await
    }
}

const TIMEOUT: Duration = Duration::from_secs(30);

fn guarded(store: FaultStore) -> (GuardedStore, CancellationToken) {
    let closing = CancellationToken::new();
    let guard = Guard { call_timeout: TIMEOUT, closing: closing.clone() };
    (GuardedStore::new(Arc::new(store), guard), closing)
}

fn silent() -> FaultStore {
    let store = FaultStore::default();
    store.silent_after(0);
    store
}

/// Makes every kind of call; returns the errors.
async fn call_all(store: &GuardedStore) -> Vec<object_store::Error> {
    let path = Path::from("a");
    let mut errors = Vec::new();
    errors.extend(store.put(&path, "x".into()).await.err());
    errors.extend(store.put_multipart(&path).await.err());
    errors.extend(store.get(&path).await.err());
    errors.extend(store.get_ranges(&path, std::slice::from_ref(&(0..1))).await.err());
    errors.extend(store.delete(&path).await.err());
    errors.extend(store.list(None).next().await.and_then(Result::err));
    errors.extend(store.list_with_offset(None, &path).next().await.and_then(Result::err));
    errors.extend(store.list_with_delimiter(None).await.err());
    errors.extend(store.copy(&path, &path).await.err());
    errors.extend(store.rename(&path, &path).await.err());
    errors
}

#[tokio::test(start_paused = true)]
async fn each_call_ends_within_the_time_limit_and_may_be_retried() {
    let (store, _closing) = guarded(silent());
    let start = tokio::time::Instant::now();
    let errors = call_all(&store).await;
    assert_eq!(errors.len(), 10);
    assert!(errors.iter().all(slatedb_common::retry::should_retry));
    assert_eq!(start.elapsed().as_secs(), 10 * TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn while_closing_each_call_ends_at_once_and_for_good() {
    let (store, closing) = guarded(FaultStore::default());
    closing.cancel();
    let errors = call_all(&store).await;
    assert_eq!(errors.len(), 10);
    assert!(!errors.iter().any(slatedb_common::retry::should_retry));
    let (store, closing) = guarded(silent());
    let start = tokio::time::Instant::now();
    let path = Path::from("a");
    let (waiting, ()) = tokio::join!(store.get(&path), async { closing.cancel() });
    assert!(waiting.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn answers_pass_through() {
    let (store, _closing) = guarded(FaultStore::default());
    let path = Path::from("a/b");
    store.put(&path, "hello".into()).await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "hello");
    assert_eq!(store.list(None).next().await.unwrap().unwrap().location, path);
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(store.get_range(&path, 1..3).await.unwrap(), "ar");
    store.delete(&path).await.unwrap();
    assert!(store.list(None).next().await.is_none());
}

#[tokio::test]
async fn conflict_in_answer_to_a_read_is_asked_about_again() {
    // Found by the outage harness: the engine took it for another owner's doing, and the container had to open anew.
    let (store, _closing) = guarded(FaultStore { conflicts: true, ..FaultStore::default() });
    let error = store.get(&Path::from("a")).await.unwrap_err();
    assert!(slatedb_common::retry::should_retry(&error), "{error:?}");
    assert!(!matches!(error, object_store::Error::AlreadyExists { .. }));
}

#[tokio::test]
async fn probe_tells_stores_apart_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let careless = Arc::new(FaultStore { ignores_tags: true, ..FaultStore::default() });
    let sim = Arc::new(SimObjectStore::new(1, 0, Trace::new(false)));
    let stores: [(Arc<dyn ObjectStore>, bool); 4] =
        [(local, false), (Arc::new(InMemory::new()), true), (sim, true), (careless, false)];
    for (store, updates) in stores {
        let prefix = Path::from("store");
        assert_eq!(probe_update(&*store, &prefix).await.unwrap(), updates, "{store}");
        assert!(store.list(None).next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn conflict_about_an_object_that_is_not_there_may_be_retried() {
    // Found by simulation, seed 5: the index of a container did not open any more.
    let sim = SimObjectStore::new(1, 0, Trace::new(false));
    let guard = Guard { call_timeout: TIMEOUT, closing: CancellationToken::new() };
    let store = GuardedStore::new(Arc::new(sim.clone()), guard);
    let path = Path::from("a");
    let create = || PutOptions::from(PutMode::Create);
    sim.fail_change(0, Fault::Conflict);
    let unfounded = store.put_opts(&path, "x".into(), create()).await.unwrap_err();
    assert!(slatedb_common::retry::should_retry(&unfounded));
    assert!(!matches!(unfounded, object_store::Error::AlreadyExists { .. }));
    store.put_opts(&path, "x".into(), create()).await.unwrap();
    let founded = store.put_opts(&path, "x".into(), create()).await.unwrap_err();
    assert!(matches!(founded, object_store::Error::AlreadyExists { .. }));
}

#[tokio::test]
async fn read_behind_the_end_of_an_object_is_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let local: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let guard = Guard { call_timeout: TIMEOUT, closing: CancellationToken::new() };
    let store = GuardedStore::new(local, guard);
    let path = Path::from("a");
    store.put(&path, "cut".into()).await.unwrap();
    let one = store.get_range(&path, 3..4).await.unwrap_err();
    let many = store.get_ranges(&path, &[0..1, 10..20]).await.unwrap_err();
    let options = GetOptions { range: Some(GetRange::Offset(4)), ..GetOptions::default() };
    let rest = store.get_opts(&path, options).await.unwrap_err();
    for error in [one, many, rest] {
        assert!(!slatedb_common::retry::should_retry(&error), "{error}");
        assert!(error.to_string().contains("a has 3 bytes"), "{error}");
    }
}
