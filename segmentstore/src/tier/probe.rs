//! Asks a store, before anything relies on it, whether it can be written, read and cleared.
//!
//! A wrong bucket or key must be told at the start and by its name, not as an upload that is tried for ever.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::time::timeout;

/// Time for each of the calls.
const CALL_LIMIT: Duration = Duration::from_secs(15);

/// What is wrong with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Nobody answers at its address.
    #[error("object store cannot be reached")]
    Unreachable {
        /// What the network says.
        #[source]
        source: Error,
    },
    /// It answered nothing in time.
    #[error("{doing}: no answer from the object store within {CALL_LIMIT:?}")]
    TimedOut {
        /// What was being done.
        doing: &'static str,
    },
    /// It does not know us, or we may not do this.
    #[error("{doing}: the object store refuses these credentials")]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// What the store says.
        #[source]
        source: Error,
    },
    /// It is there, the bucket, container or folder is not.
    #[error("object store has no such bucket")]
    NoBucket {
        /// What the store says.
        #[source]
        source: Error,
    },
    /// It answered with other bytes than were written.
    #[error("object store read back {got} other bytes than were written")]
    Differs {
        /// How many bytes came back.
        got: usize,
    },
    /// Anything else.
    #[error("{doing}: the object store does not do it")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// What the store says.
        #[source]
        source: Error,
    },
}

/// Writes a small object, reads the end of it back and deletes it. `token` keeps probes at the same time apart.
///
/// # Errors
/// [`ProbeError`] names what is wrong.
/// # Cancel safety
/// Dropped early, an object of a few bytes may stay, as `v1/probe-<token>`.
pub async fn probe(store: &dyn ObjectStore, token: u64) -> Result<(), ProbeError> {
    let path = Path::from(format!("v1/probe-{token:016x}"));
    let written = Bytes::from(format!("dhara probe {token:016x}"));
    let put = store.put(&path, PutPayload::from_bytes(written.clone()));
    bounded("write a probe", put).await.map_err(|error| match error {
        ProbeError::Failed { source: source @ Error::NotFound { .. }, .. } => ProbeError::NoBucket { source },
        error => error,
    })?;
    let length = u64::try_from(written.len()).unwrap_or(u64::MAX);
    let read = bounded("read a probe", store.get_range(&path, 6..length)).await;
    let deleted = bounded("delete a probe", store.delete(&path)).await;
    let got = read?;
    if got != written.slice(6..) {
        return Err(ProbeError::Differs { got: got.len() });
    }
    deleted
}

async fn bounded<T>(
    doing: &'static str,
    call: impl Future<Output = object_store::Result<T>>,
) -> Result<T, ProbeError> {
    match timeout(CALL_LIMIT, call).await {
        Err(_elapsed) => Err(ProbeError::TimedOut { doing }),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }))) => {
            Err(ProbeError::Denied { doing, source })
        }
        Ok(Err(source)) if is_unreachable(&source) => Err(ProbeError::Unreachable { source }),
        Ok(Err(source)) => Err(ProbeError::Failed { doing, source }),
    }
}

/// Whether a connection could not be made, wherever in the causes that stands.
fn is_unreachable(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let http = error.downcast_ref::<HttpError>();
        if http.is_some_and(|http| matches!(http.kind(), HttpErrorKind::Connect)) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::tier::{BackendOptions, local_store, open_store};

    #[tokio::test]
    async fn good_store_passes_and_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let local = local_store(folder.path()).unwrap();
        probe(&*local, 7).await.unwrap();
        let memory = InMemory::new();
        probe(&memory, 7).await.unwrap();
        assert!(matches!(
            memory.head(&Path::from("v1/probe-0000000000000007")).await,
            Err(Error::NotFound { .. })
        ));
    }

    #[tokio::test]
    async fn store_that_nobody_serves_is_unreachable() {
        // Reserved, and so never listened on; refused at once.
        let options = BackendOptions {
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            allow_http: true,
            unsigned: true,
            ..BackendOptions::default()
        };
        let store = open_store("s3://bucket", &options).unwrap();
        let refused = probe(&*store, 7).await.unwrap_err();
        assert!(matches!(refused, ProbeError::Unreachable { .. }), "{refused:?}");
    }
}
