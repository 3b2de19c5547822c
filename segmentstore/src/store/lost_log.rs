//! Going on without a log: what lies in objects is kept, what is given up is listed.

use super::opened::open_when_free;
use super::{Opener, Seams, StartError, StorageRuntime, StoreConfig};
use crate::container::{GivenUp, LostLog, UPLOADS_MAX};
use crate::index::SharedCache;
use crate::operation::Operation;
use crate::read::ColdCache;
use crate::tier::Uploads;
use crate::types::ContainerId;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Opens every container whose log is gone with what its index and its objects hold, makes that durable in a new log,
/// and returns what was given up. Containers that have their log are opened as ever.
///
/// # Errors
/// [`StartError`]; containers opened before it are as after a success.
/// # Cancel safety
/// None: dropped early, some containers may be recovered and others not. It may be run again.
pub fn recover_lost_log(
    config: &StoreConfig,
    seams: Seams,
) -> BoxFuture<'_, Result<Vec<GivenUp>, StartError>> {
    // Boxed for the same reason as the start of a store.
    Box::pin(recover_all(config, seams))
}

async fn recover_all(config: &StoreConfig, seams: Seams) -> Result<Vec<GivenUp>, StartError> {
    let storage = StorageRuntime::start().map_err(StartError::Runtime)?;
    let opened = open_when_free(config, &seams, true).await?;
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let stop = CancellationToken::new();
    let opener = Opener {
        log: Arc::clone(&opened.log),
        objects: opened.objects,
        updates: opened.updates,
        rules: config.rules,
        lost_log: LostLog::GiveUp(Arc::clone(&given_up)),
        uploads: Uploads::new(UPLOADS_MAX),
        cold: ColdCache::new(config.read, storage.handle.clone()),
        cache: SharedCache::new(config.index_cache_bytes),
        seams,
        storage: storage.handle.clone(),
        stop: stop.clone(),
    };
    let mut running = Vec::new();
    for container in (0..config.containers).map(ContainerId) {
        let (handle, task) = opener.open(container).await?;
        let (sender, flushed) = oneshot::channel();
        let call = Box::new(move |outcome: Result<_, _>| {
            let _gone = sender.send(outcome.is_ok());
        });
        let sent = handle.send(Operation::FlushToStorage(call)).await;
        if sent.is_err() || !flushed.await.unwrap_or(false) {
            return Err(StartError::Ended { container });
        }
        running.push((container, task));
    }
    stop.cancel();
    for (container, task) in running {
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(StartError::Ended { container }),
        }
    }
    let log = opened.log;
    let _closed = tokio::task::spawn_blocking(move || log.close()).await;
    let given_up = std::mem::take(&mut *given_up.lock());
    Ok(given_up)
}
