//! Opening what containers share: the log in the data folder, and the object store.

use super::{Seams, StartError, StoreConfig, identity};
use crate::index::probe_update;
use crate::log::{LocalLog, Log, LogConfig, LogError, Pace};
use crate::tier::{BackendError, ProbeError, local_store, open_store, probe};
use dhara_stdx::chain;
use dhara_stdx::disk::Disk;
use dhara_stdx::entropy::Entropy;
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long another owner of the folder may take to leave it.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks at it.
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// First wait for an object store that is down; doubled each time.
const PROBE_RETRY_MIN: Duration = Duration::from_millis(500);
/// Longest such wait.
const PROBE_RETRY_MAX: Duration = Duration::from_secs(10);

/// What a store is made of before its containers are open.
pub(super) struct Opened {
    pub(super) log: Arc<dyn Log>,
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Whether the object store replaces objects on condition.
    pub(super) updates: bool,
}

/// Opens log and object store; an owner that was killed a moment ago gets the time to be gone, and an object store that
/// is down gets all the time it needs.
pub(super) async fn open_when_free(
    config: &StoreConfig,
    seams: &Seams,
    without_log: bool,
) -> Result<Opened, StartError> {
    let (log, objects) = open_folder_when_free(config, seams, without_log).await?;
    let mut updates = false;
    if let Some(place) = &config.object_store {
        wait_for_store(place, &*objects, &*seams.entropy).await?;
        let prefix = ObjectPath::from(format!("v1/conditions-{:016x}", seams.entropy.next_u64()));
        updates = probe_update(&*objects, &prefix).await.map_err(StartError::Updates)?;
    }
    Ok(Opened { log, objects, updates })
}

/// Waits until the object store does what is asked of it.
async fn wait_for_store(
    place: &str,
    objects: &dyn ObjectStore,
    entropy: &dyn Entropy,
) -> Result<(), StartError> {
    let mut wait = PROBE_RETRY_MIN;
    loop {
        match probe(objects, entropy.next_u64()).await {
            Ok(()) => return Ok(()),
            // Some stores answer with an error of their own while they are down.
            Err(
                error @ (ProbeError::Unreachable { .. }
                | ProbeError::TimedOut { .. }
                | ProbeError::Failed { .. }),
            ) => {
                warn!(place, error = chain(&error), "starting: waiting for the object store");
            }
            Err(source) => return Err(StartError::Probe { place: place.to_owned(), source }),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(PROBE_RETRY_MAX);
    }
}

/// Whether there is any file of a log.
fn holds_log(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.exists(dir)?
        && disk.list(dir)?.iter().any(|name| Path::new(name).extension().is_some_and(|end| end == "log")))
}

type Folder = (Arc<dyn Log>, Arc<dyn ObjectStore>);

async fn open_folder_when_free(
    config: &StoreConfig,
    seams: &Seams,
    without_log: bool,
) -> Result<Folder, StartError> {
    let deadline = tokio::time::Instant::now() + LOCK_PATIENCE;
    loop {
        match open_folder(config, seams, without_log).await {
            Err(StartError::Log(LogError::Locked { .. })) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_RETRY).await;
            }
            opened => return opened,
        }
    }
}

/// Reads the log on a thread that may block; clients wait for it, so it does not stand behind as storage threads do.
async fn open_folder(config: &StoreConfig, seams: &Seams, without_log: bool) -> Result<Folder, StartError> {
    let (config, seams) = (config.clone(), seams.clone());
    let opening = tokio::task::spawn_blocking(move || {
        let folder = |source| StartError::Folder { path: config.data.clone(), source };
        seams.disk.create_dir_all(&config.data).map_err(folder)?;
        let log_config =
            LogConfig::new(config.data.join("log"), config.containers).with_budget(config.log_budget_bytes);
        if !without_log
            && identity::is_known(&*seams.disk, &config.data).map_err(folder)?
            && !holds_log(&*seams.disk, &log_config.dir).map_err(folder)?
        {
            return Err(StartError::LogMissing { path: log_config.dir });
        }
        // The log locks the folder, so it comes before anything else is looked at.
        let Seams { disk, clock, entropy } = seams.clone();
        let log = LocalLog::open(log_config, disk, clock, entropy, Pace::Threads)?;
        identity::check(&*seams.disk, &config.data, config.containers)?;
        let objects = if let Some(place) = &config.object_store {
            open_store(place, &config.backend)?
        } else {
            let tier = config.data.join("tier");
            seams.disk.create_dir_all(&tier).map_err(folder)?;
            local_store(&tier).map_err(|source| BackendError::Folder { path: tier, source })?
        };
        let log: Arc<dyn Log> = Arc::new(log);
        Ok((log, objects))
    });
    match opening.await {
        Ok(opened) => opened,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
