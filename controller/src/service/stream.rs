//! Life of a stream: creation, configuration, existence.

use tokio::time::sleep;

use super::{CONFLICT_PAUSE, Outcome, Service, ServiceError, check_present, may_exist};
use crate::record::name::Kind;
use crate::record::scope::Presence;
use crate::segment_client::Expect;
use crate::store::{StoreError, WorkItem};
use crate::stream::name::{SYSTEM_SCOPE, is_stored_name};
use crate::stream::{StreamConfig, StreamState};

/// Outcome of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamCreation {
    /// Created and open.
    Created,
    /// There is one of the name.
    Exists,
    /// There is no such scope, or it is being deleted.
    ScopeNotFound,
    /// The name is against the rules.
    InvalidName,
    /// It could not be done; trying again may help.
    Failed,
}

impl Service {
    /// Creates a stream and waits until it can be written.
    pub(crate) async fn create_stream(
        &self,
        scope: &str,
        stream: &str,
        config: Result<StreamConfig, ServiceError>,
    ) -> Outcome<StreamCreation> {
        check_present("scope", scope)?;
        if !is_stored_name(stream) {
            return Ok(StreamCreation::InvalidName);
        }
        let config = config?;
        config.check().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        if scope == SYSTEM_SCOPE || !is_stored_name(scope) || !self.is_scope_open(scope).await? {
            return Ok(StreamCreation::ScopeNotFound);
        }
        loop {
            match self.try_create_stream(scope, stream, &config).await {
                // Somebody else was faster; what they wrote decides.
                Err(ServiceError::Store(error)) if error.is_conflict() => sleep(CONFLICT_PAUSE).await,
                other => return other,
            }
        }
    }

    async fn try_create_stream(
        &self,
        scope: &str,
        stream: &str,
        config: &StreamConfig,
    ) -> Outcome<StreamCreation> {
        let item = WorkItem::stream(scope, stream);
        if let Some(found) = self.store.find_stream(scope, stream).await? {
            if found.row.presence == Presence::Live {
                self.finish_creation(&item).await?;
                return Ok(StreamCreation::Exists);
            }
            // Its deletion is under way: the name is free once that is done.
            self.turn(&item).await?;
        }
        self.store.work().announce(&item).await?;
        let row = self.engine.fresh_stream(scope, stream, config.clone()).await?;
        let id = row.id;
        let written =
            match self.store.write_in_scope(scope, (Kind::Stream, stream), row, Expect::Absent).await {
                Err(error) if error.is_missing() => return Ok(StreamCreation::ScopeNotFound),
                other => other?,
            };
        // Only now: a scope that is being deleted either sees the row or is seen here.
        if !self.is_scope_open(scope).await? {
            self.store.remove_in_scope(scope, (Kind::Stream, stream), written.unchanged()).await?;
            return Ok(StreamCreation::ScopeNotFound);
        }
        self.turn(&item).await?;
        match self.store.open(scope, stream).await {
            Ok(opened) if opened.table.id != id => Ok(StreamCreation::Exists),
            Ok(opened) if opened.head.row.state != StreamState::Creating => Ok(StreamCreation::Created),
            Ok(_) | Err(StoreError::NotReady) => Ok(StreamCreation::Failed),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether things can be created in a scope.
    pub(super) async fn is_scope_open(&self, scope: &str) -> Outcome<bool> {
        let found = self.store.find_scope(scope).await?;
        Ok(found.is_some_and(|found| found.row.presence == Presence::Live))
    }

    /// Drives a creation that somebody else began to its end, if there is one.
    async fn finish_creation(&self, item: &WorkItem) -> Outcome<()> {
        match self.store.open(&item.scope, &item.name).await {
            Ok(opened) if opened.head.row.state != StreamState::Creating => Ok(()),
            Ok(_) | Err(StoreError::NotReady) => self.turn(item).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is a stream of the name, also while it is being created.
    pub(crate) async fn stream_exists(&self, scope: &str, stream: &str) -> Outcome<bool> {
        check_present("scope", scope)?;
        check_present("stream", stream)?;
        if !is_stored_name(scope) || !may_exist(stream) {
            return Ok(false);
        }
        let found = self.store.find_stream(scope, stream).await?;
        Ok(found.is_some_and(|found| found.row.presence == Presence::Live))
    }

    /// The configuration of a stream.
    pub(crate) async fn stream_config(&self, scope: &str, stream: &str) -> Outcome<StreamConfig> {
        let opened = self.open(scope, stream).await?;
        Ok(opened.table.config().await?.row.current)
    }
}
