//! Changes of a stream that a caller waits for: update, truncation, seal, deletion.
//!
//! Each writes its intent and takes a turn. A caller that comes again while the work goes on joins it.

use tokio::time::sleep;

use super::query::head_of;
use super::{CONFLICT_PAUSE, Outcome, Service, ServiceError};
use crate::record::name::segment;
use crate::record::scope::Presence;
use crate::record::stream::{ConfigRow, SealRow};
use crate::store::{Opened, StoreError, WorkItem};
use crate::stream::truncation::{epochs_between, truncate};
use crate::stream::{Epochs, StreamConfig, StreamCut, StreamState, Truncation, TruncationRecord};
use crate::workflow::{OWN_CONFIG, OWN_SEAL, OWN_TRUNCATION, Rows};

/// Outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamChange {
    /// Done.
    Done,
    /// There is no such stream or scope.
    NotFound,
    /// The stream is sealed.
    Sealed,
    /// Refused, or it could not be done.
    Failed,
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamDeletion {
    /// Deleted.
    Deleted,
    /// There is no such stream or scope.
    NotFound,
    /// The stream is not sealed.
    NotSealed,
    /// It could not be done; trying again may help.
    Failed,
}

impl Service {
    /// Replaces the configuration of a stream.
    pub(crate) async fn update_stream(
        &self,
        (scope, stream): (&str, &str),
        config: Result<StreamConfig, ServiceError>,
    ) -> Outcome<StreamChange> {
        let Some((opened, mut rows)) = self.open_rows(scope, stream).await? else {
            config?;
            return Ok(StreamChange::NotFound);
        };
        let config = config?;
        config.check().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        if rows.head.row.state == StreamState::Sealed {
            return Ok(StreamChange::Sealed);
        }
        if rows.config.row.pending.is_some() {
            return Ok(StreamChange::Failed);
        }
        let item = WorkItem::stream(scope, stream);
        self.store.work().announce(&item).await?;
        let current = rows.config.row.current.clone();
        let row = ConfigRow { current, pending: Some(config.clone()) };
        match rows.intend(&opened.table, &OWN_CONFIG, row).await {
            Err(error) if error.is_conflict() => return Ok(StreamChange::Failed),
            other => other?,
        }
        self.turn(&item).await?;
        let Some((_opened, rows)) = self.open_rows(scope, stream).await? else {
            return Ok(StreamChange::NotFound);
        };
        let ConfigRow { current, pending } = rows.config.row;
        Ok(match (rows.head.row.state, pending) {
            (_, None) if current == config => StreamChange::Done,
            (StreamState::Sealed, _) => StreamChange::Sealed,
            _ => StreamChange::Failed,
        })
    }

    /// Drops what lies before a cut.
    pub(crate) async fn truncate_stream(
        &self,
        (scope, stream): (&str, &str),
        cut: StreamCut,
    ) -> Outcome<StreamChange> {
        let Some((opened, mut rows)) = self.open_rows(scope, stream).await? else {
            return Ok(StreamChange::NotFound);
        };
        if rows.head.row.state == StreamState::Sealed {
            return Ok(StreamChange::Sealed);
        }
        let item = WorkItem::stream(scope, stream);
        match self.decide_truncation(&opened, &rows.truncation.row, &cut).await? {
            None => return Ok(StreamChange::Failed),
            Some(Truncation::Done) => return Ok(StreamChange::Done),
            Some(Truncation::Running) => {}
            Some(Truncation::Start(record)) => {
                self.store.work().announce(&item).await?;
                match rows.intend(&opened.table, &OWN_TRUNCATION, record).await {
                    Err(error) if error.is_conflict() => return Ok(StreamChange::Failed),
                    other => other?,
                }
            }
        }
        self.turn(&item).await?;
        let Some((_opened, rows)) = self.open_rows(scope, stream).await? else {
            return Ok(StreamChange::NotFound);
        };
        let record = rows.truncation.row;
        Ok(if record.cut == cut && !record.updating { StreamChange::Done } else { StreamChange::Failed })
    }

    /// Decides a truncation; `None` if it is refused.
    async fn decide_truncation(
        &self,
        opened: &Opened,
        record: &TruncationRecord,
        cut: &StreamCut,
    ) -> Outcome<Option<Truncation>> {
        let Some(asked) = self.check_cut(opened, cut).await? else { return Ok(None) };
        let head = head_of(opened, record).await?;
        let Some(head) = self.check_cut(opened, &head).await? else { return Ok(None) };
        let records = opened.table.epochs(epochs_between(head.placed(), asked.placed())).await?;
        let Ok(truncation) = truncate(record, &head, &asked, Epochs::new(&records)) else { return Ok(None) };
        if !matches!(truncation, Truncation::Start(_)) {
            return Ok(Some(truncation));
        }
        let within = asked.positions().iter().map(async |(position, offset)| -> Result<bool, StoreError> {
            let name = segment(&opened.table.scope, &opened.table.stream, position.id());
            let info = self.store.segments().segment_info(&name).await?;
            Ok((0..=info.length).contains(offset))
        });
        let within = futures_util::future::try_join_all(within).await?;
        Ok(within.into_iter().all(|within| within).then_some(truncation))
    }

    /// Ends a stream for writers.
    pub(crate) async fn seal_stream(&self, scope: &str, stream: &str) -> Outcome<StreamChange> {
        let item = WorkItem::stream(scope, stream);
        loop {
            let Some((opened, mut rows)) = self.open_rows(scope, stream).await? else {
                return Ok(StreamChange::NotFound);
            };
            if rows.head.row.state == StreamState::Sealed {
                return Ok(StreamChange::Done);
            }
            if !rows.seal.row.asked {
                self.store.work().announce(&item).await?;
                match rows.intend(&opened.table, &OWN_SEAL, SealRow { asked: true }).await {
                    Err(error) if error.is_conflict() => continue,
                    other => other?,
                }
            }
            break;
        }
        self.turn(&item).await?;
        let Some((_opened, rows)) = self.open_rows(scope, stream).await? else {
            return Ok(StreamChange::NotFound);
        };
        Ok(if rows.head.row.state == StreamState::Sealed { StreamChange::Done } else { StreamChange::Failed })
    }

    /// Deletes a sealed stream, or one whose creation was not finished.
    pub(crate) async fn delete_stream(&self, scope: &str, stream: &str) -> Outcome<StreamDeletion> {
        loop {
            match self.try_delete_stream(scope, stream).await {
                // Somebody else was faster; what they wrote decides.
                Err(ServiceError::Store(error)) if error.is_conflict() => sleep(CONFLICT_PAUSE).await,
                other => return other,
            }
        }
    }

    async fn try_delete_stream(&self, scope: &str, stream: &str) -> Outcome<StreamDeletion> {
        match self.open(scope, stream).await {
            Ok(opened) if !matches!(opened.head.row.state, StreamState::Sealed | StreamState::Creating) => {
                return Ok(StreamDeletion::NotSealed);
            }
            Ok(_) | Err(ServiceError::Store(StoreError::NotReady) | ServiceError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let Some(found) = self.store.find_stream(scope, stream).await? else {
            return Ok(StreamDeletion::NotFound);
        };
        let (item, id) = (WorkItem::stream(scope, stream), found.row.id);
        if found.row.presence == Presence::Live {
            self.store.work().announce(&item).await?;
            self.engine.mark_leaving(scope, stream, found).await?;
        }
        self.turn(&item).await?;
        let left = self.store.find_stream(scope, stream).await?;
        Ok(match left {
            Some(found) if found.row.id == id => StreamDeletion::Failed,
            _ => StreamDeletion::Deleted,
        })
    }

    /// Finds a stream with the rows that its workflows change; `None` if there is no such stream or scope.
    pub(super) async fn open_rows(&self, scope: &str, stream: &str) -> Outcome<Option<(Opened, Rows)>> {
        let opened = match self.open_created(scope, stream).await {
            Err(ServiceError::NotFound(_)) => return Ok(None),
            other => other?,
        };
        match Rows::read(&opened.table).await {
            Ok(Some(rows)) => Ok(Some((opened, rows))),
            Ok(None) => Err(StoreError::NotReady.into()),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
