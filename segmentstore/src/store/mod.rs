//! A whole segment store: log, index, containers and server, opened bottom-up and stopped top-down.
//!
//! A container that fails alone is opened again with back-off. A log that fails ends the store: what the disk holds
//! is then only known by reading it anew, in a new process.

mod identity;
mod lost_log;
mod opened;

pub use identity::IdentityError;
pub use lost_log::recover_lost_log;

use crate::container::{
    ContainerHandle, ContainerParts, Failure, LostLog, MemoryLimits, OpenError, Rules, Tier, UPLOADS_MAX,
    open,
};
use crate::index::{Index, IndexError, RowsError, SharedCache, SlateOptions, open_slate};
use crate::log::{Log, LogError};
use crate::read::{ColdCache, ReadConfig};
use crate::server::{Containers, Server, ServerConfig};
use crate::tier::{BackendError, BackendOptions, Objects, ProbeError, Uploads};
use crate::types::ContainerId;
use dhara_stdx::chain;
use dhara_stdx::clock::Clock;
use dhara_stdx::disk::Disk;
use dhara_stdx::entropy::Entropy;
use futures_util::future::BoxFuture;
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use opened::open_when_free;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// How long one call of the index's store may take.
const STORE_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// First wait before a failed container is opened again; doubled each time.
const REOPEN_MIN: Duration = Duration::from_millis(100);
/// Longest such wait.
const REOPEN_MAX: Duration = Duration::from_secs(10);
/// How long an object stays after nothing names it any more; longer than any read may take.
const GRACE: Duration = Duration::from_mins(10);
/// How far storage threads stand behind those that answer clients.
const STORAGE_NICE: i32 = 10;
/// Their time slice, as short as the kernel has them: what a thread forfeits when it gives way is one slice.
const STORAGE_SLICE_US: u32 = 100;
/// Stack of a storage thread.
const STORAGE_STACK_BYTES: usize = 4 * 1024 * 1024;

/// How a segment store is set up.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Folder that holds everything; made if it is missing.
    pub data: PathBuf,
    /// Where the server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Containers; fixed when the folder is made.
    pub containers: u16,
    /// Bytes that all log files may have.
    pub log_budget_bytes: u64,
    /// Where long-term storage is, as [`open_store`](crate::tier::open_store) takes it; `None` is a folder beside the log.
    pub object_store: Option<String>,
    /// How to speak to it.
    pub backend: BackendOptions,
    /// When bytes go from the log to the object store.
    pub rules: Rules,
    /// What reading objects may take in memory.
    pub read: ReadConfig,
    /// Bytes of the cache of index blocks.
    pub index_cache_bytes: usize,
    /// Connections at one time.
    pub connections_max: usize,
}

/// What a store takes from the world.
#[derive(Clone)]
pub struct Seams {
    /// The disk under the log.
    pub disk: Arc<dyn Disk>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
}

/// Why a store does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("listen on {address} for segment store clients")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be used.
    #[error("open data folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The folder is that of a store whose log is gone.
    #[error(
        "the log in {path} is gone; if it is lost for good, `dhara store recover --log-lost` goes on with what lies in \
         long-term storage"
    )]
    LogMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The folder belongs to something else.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log does not open.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The object store cannot be opened.
    #[error("open the object store")]
    Backend(#[from] BackendError),
    /// The object store cannot be used.
    #[error("try the object store {place}")]
    Probe {
        /// Where it is.
        place: String,
        /// What is wrong.
        #[source]
        source: ProbeError,
    },
    /// The object store does not tell whether it replaces objects on condition.
    #[error("ask the object store for conditional writes")]
    Updates(#[source] object_store::Error),
    /// An index does not open.
    #[error("open the index of container {container}")]
    Rows {
        /// The container.
        container: ContainerId,
        /// What its store said.
        #[source]
        source: RowsError,
    },
    /// An index does not open.
    #[error("open the index of container {container}")]
    Index {
        /// The container.
        container: ContainerId,
        /// What the index said.
        #[source]
        source: IndexError,
    },
    /// A container ended before it was done.
    #[error("container {container} ended early")]
    Ended {
        /// The container.
        container: ContainerId,
    },
    /// A container does not open.
    #[error(transparent)]
    Container(#[from] OpenError),
    /// A thread could not be made.
    #[error("start the storage runtime")]
    Runtime(#[source] io::Error),
}

/// Everything a container is opened from, again and again.
struct Opener {
    log: Arc<dyn Log>,
    objects: Arc<dyn ObjectStore>,
    /// Whether it replaces objects on condition.
    updates: bool,
    rules: Rules,
    lost_log: LostLog,
    cache: SharedCache,
    uploads: Uploads,
    cold: ColdCache,
    seams: Seams,
    storage: Handle,
    stop: CancellationToken,
}

/// A running segment store.
pub struct SegmentStore {
    server: Server,
    containers: TaskTracker,
    cold: ColdCache,
    stop: CancellationToken,
    log: Arc<dyn Log>,
    failed: watch::Receiver<Option<String>>,
    _storage: StorageRuntime,
}

impl SegmentStore {
    /// Opens the folder, recovers every container, and serves.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    /// # Cancel safety
    /// None: dropped early, threads may go on until the process ends.
    pub fn start(config: &StoreConfig, seams: Seams) -> BoxFuture<'_, Result<Self, StartError>> {
        // Boxed here, so that this crate alone compiles what is behind it, and not each that calls it once more.
        Box::pin(Self::start_all(config, seams))
    }

    async fn start_all(config: &StoreConfig, seams: Seams) -> Result<Self, StartError> {
        let listener = dhara_stdx::net::listen(config.listen)
            .await
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let storage = StorageRuntime::start().map_err(StartError::Runtime)?;
        let opened = open_when_free(config, &seams, false).await?;
        let stop = CancellationToken::new();
        let cold = ColdCache::new(config.read, storage.handle.clone());
        let opener = Arc::new(Opener {
            log: Arc::clone(&opened.log),
            objects: opened.objects,
            updates: opened.updates,
            rules: config.rules,
            lost_log: LostLog::Refuse,
            cache: SharedCache::new(config.index_cache_bytes),
            uploads: Uploads::new(UPLOADS_MAX * usize::from(config.containers)),
            cold: cold.clone(),
            seams: seams.clone(),
            storage: storage.handle.clone(),
            stop: stop.clone(),
        });
        let handles = Containers::new(config.containers);
        let (failed_sender, failed) = watch::channel(None);
        let tracker = TaskTracker::new();
        let opening: Vec<_> = (0..config.containers)
            .map(|number| {
                let opener = Arc::clone(&opener);
                tokio::spawn(async move { opener.open(ContainerId(number)).await })
            })
            .collect();
        for (number, opening) in (0..config.containers).zip(opening) {
            let (handle, running) = match opening.await {
                Ok(opened) => opened?,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            };
            handles.set(number, Some(handle));
            let keeper = Keeper {
                number,
                opener: Arc::clone(&opener),
                handles: handles.clone(),
                failed: failed_sender.clone(),
            };
            drop(tracker.spawn(keeper.keep(running)));
        }
        let server_config =
            ServerConfig { connections_max: config.connections_max, storage: storage.handle.clone() };
        let server = Server::start(listener, handles, Arc::clone(&seams.entropy), &server_config)
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        Ok(Self { server, containers: tracker, cold, stop, log: opened.log, failed, _storage: storage })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Waits until the store cannot go on; tells why.
    ///
    /// # Cancel safety
    /// May be called again.
    pub async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // All containers stopped in order; nothing fails any more.
            Err(_stopped) => std::future::pending().await,
        }
    }

    /// Closes connections, lets every container finish and flush, then closes the log.
    pub async fn stop(self) {
        self.server.stop().await;
        self.stop.cancel();
        self.containers.close();
        self.containers.wait().await;
        self.cold.close().await;
        let log = Arc::clone(&self.log);
        let _closed = tokio::task::spawn_blocking(move || log.close()).await;
    }
}

/// The runtime of everything that must not hold up clients; ends without waiting wherever it is dropped.
struct StorageRuntime {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl StorageRuntime {
    /// One thread, behind everything that answers clients.
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("storage")
            .thread_stack_size(STORAGE_STACK_BYTES)
            .enable_all()
            .on_thread_start(|| {
                dhara_stdx::sched::shape_thread(STORAGE_SLICE_US, STORAGE_NICE);
            })
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for StorageRuntime {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which no task of another runtime may do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Opener {
    async fn open(
        &self,
        container: ContainerId,
    ) -> Result<(ContainerHandle, JoinHandle<Result<(), Failure>>), StartError> {
        let options = SlateOptions {
            now_unix_ms: u64::try_from(self.seams.clock.wall_ms()).unwrap_or(0),
            seed: self.seams.entropy.next_u64(),
            cache: self.cache.clone(),
            runtime: self.storage.clone(),
            call_timeout: STORE_CALL_TIMEOUT,
            updates: self.updates,
        };
        let prefix = ObjectPath::from(format!("v1/c{:04x}/index", container.0));
        let rows = open_slate(Arc::clone(&self.objects), prefix, options)
            .await
            .map_err(|source| StartError::Rows { container, source })?;
        let index = Index::open(rows).await.map_err(|source| StartError::Index { container, source })?;
        let parts = ContainerParts {
            id: container,
            log: Arc::clone(&self.log),
            index,
            tier: Tier {
                objects: Objects::new(Arc::clone(&self.objects), container),
                uploads: self.uploads.clone(),
                cache: self.cold.clone(),
                rules: self.rules,
                grace: GRACE,
            },
            limits: MemoryLimits::default(),
            lost_log: self.lost_log.clone(),
            clock: Arc::clone(&self.seams.clock),
            storage: self.storage.clone(),
            stop: self.stop.clone(),
        };
        Ok(open(parts).await?)
    }
}

/// Keeps one container open.
struct Keeper {
    number: u16,
    opener: Arc<Opener>,
    handles: Containers,
    failed: watch::Sender<Option<String>>,
}

impl Keeper {
    async fn keep(self, mut running: JoinHandle<Result<(), Failure>>) {
        loop {
            let ended = running.await;
            self.handles.set(self.number, None);
            match ended {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => {
                    error!(container = self.number, error = chain(&failure), "container failed");
                    if let Failure::Log { source, .. } = &failure {
                        self.failed.send_replace(Some(format!("log: {source}")));
                        return;
                    }
                }
                Err(panicked) => error!(container = self.number, error = %panicked, "container panicked"),
            }
            let Some(reopened) = self.reopen().await else { return };
            running = reopened;
        }
    }

    async fn reopen(&self) -> Option<JoinHandle<Result<(), Failure>>> {
        let mut wait = REOPEN_MIN;
        loop {
            tokio::select! { biased;
                // Final; nothing can starve behind it.
                () = self.opener.stop.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
            }
            let opened = tokio::select! { biased;
                // Final, as above. A container waits for its index for as long as the object store is away.
                () = self.opener.stop.cancelled() => return None,
                opened = self.opener.open(ContainerId(self.number)) => opened,
            };
            match opened {
                Ok((handle, running)) => {
                    self.handles.set(self.number, Some(handle));
                    return Some(running);
                }
                Err(failure) => {
                    error!(container = self.number, error = chain(&failure), "container does not open");
                }
            }
            wait = (wait * 2).min(REOPEN_MAX);
        }
    }
}
