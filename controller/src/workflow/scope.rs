//! Deletion of a scope together with all that is in it, and what is left of a deletion that a crash cut short.

use std::sync::Arc;

use super::rows::{OWN_SEAL, Rows};
use super::{Engine, Error, Progress};
use crate::record::name::Kind;
use crate::record::scope::{KeyValueTableRow, KeyValueTableState, Presence, ScopeRow};
use crate::record::stream::SealRow;
use crate::store::{StoreError, WorkItem};
use crate::stream::group::{GroupDeletion, GroupRecord};
use crate::stream::name::is_internal;
use crate::stream::{StreamConfig, StreamState};

impl Engine {
    /// Empties and removes a scope that is leaving. One that was to be removed only if empty stays if it is not.
    pub(super) async fn pass_scope(self: &Arc<Self>, scope: &str) -> Result<Progress, Error> {
        let Some(found) = self.store.find_scope(scope).await? else { return Ok(Progress::Rest) };
        if found.row.presence == Presence::Live {
            return Ok(Progress::Rest);
        }
        if found.row.recursive {
            self.empty_scope(scope).await?;
        }
        if self.store.is_scope_empty(found.row.id).await? {
            self.store.remove_scope(scope, &found).await?;
            return Ok(Progress::Rest);
        }
        if found.row.recursive {
            return Ok(Progress::More);
        }
        let live = ScopeRow { presence: Presence::Live, ..found.row };
        self.store.update_scope(scope, &found, live).await?;
        Ok(Progress::Rest)
    }

    /// Groups go first, while the streams to which they subscribe are there; internal streams go with what they
    /// belong to, and those left over last.
    async fn empty_scope(self: &Arc<Self>, scope: &str) -> Result<(), Error> {
        for group in self.names(scope, Kind::Group).await? {
            self.delete_group(scope, &group).await?;
        }
        let (internal, own): (Vec<_>, Vec<_>) =
            self.names(scope, Kind::Stream).await?.into_iter().partition(|name| is_internal(name));
        for stream in own.into_iter().chain(internal) {
            self.delete_stream(scope, &stream).await?;
        }
        for table in self.names(scope, Kind::Table).await? {
            self.delete_key_value_table(scope, &table).await?;
        }
        Ok(())
    }

    async fn names(&self, scope: &str, kind: Kind) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().cloned().unwrap_or_default();
            let page = self.store.list_in_scope(scope, kind, &after).await?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page);
        }
    }

    async fn delete_group(self: &Arc<Self>, scope: &str, group: &str) -> Result<(), Error> {
        let Some(found) = self.store.find_in_scope::<GroupRecord>(scope, Kind::Group, group).await? else {
            return Ok(());
        };
        let item = WorkItem { kind: Kind::Group, scope: scope.to_owned(), name: group.to_owned() };
        self.store.work().announce(&item).await?;
        if let GroupDeletion::Start(record) = found.row.delete(found.row.id) {
            self.store.write_in_scope(scope, (Kind::Group, group), record, found.unchanged()).await?;
        }
        self.turn(&item).await;
        Ok(())
    }

    async fn delete_key_value_table(self: &Arc<Self>, scope: &str, table: &str) -> Result<(), Error> {
        let Some(found) = self.store.find_in_scope::<KeyValueTableRow>(scope, Kind::Table, table).await?
        else {
            return Ok(());
        };
        let item = WorkItem { kind: Kind::Table, scope: scope.to_owned(), name: table.to_owned() };
        self.store.work().announce(&item).await?;
        let row = KeyValueTableRow { state: KeyValueTableState::Deleting, ..found.row };
        self.store.write_in_scope(scope, (Kind::Table, table), row, found.unchanged()).await?;
        self.turn(&item).await;
        Ok(())
    }

    /// Creates a stream that belongs to something else, or finds it created.
    pub(super) async fn create_stream(
        self: &Arc<Self>,
        scope: &str,
        stream: &str,
        config: StreamConfig,
    ) -> Result<(), Error> {
        let item = WorkItem::stream(scope, stream);
        self.store.work().announce(&item).await?;
        let row = self.record_stream(scope, stream, config).await?;
        self.turn(&item).await;
        match self.store.open(scope, stream).await {
            Ok(opened) if opened.table.id == row.id && opened.head.row.state != StreamState::Creating => {
                Ok(())
            }
            // What was found has been deleted or is not finished: the next pass looks again.
            Ok(_) | Err(StoreError::NotFound(_)) => Err(StoreError::NotReady),
            Err(error) => Err(error),
        }
    }

    /// Seals and deletes a stream that belongs to something else, if it is there.
    pub(super) async fn delete_stream(self: &Arc<Self>, scope: &str, stream: &str) -> Result<(), Error> {
        let item = WorkItem::stream(scope, stream);
        let Some(found) = self.store.find_stream(scope, stream).await? else { return Ok(()) };
        self.store.work().announce(&item).await?;
        if found.row.presence == Presence::Live {
            let table = self.store.stream_table(scope, stream, found.row.id);
            let rows = match Rows::read(&table).await {
                Err(error) if error.is_missing() => None,
                other => other?,
            };
            let sealable =
                |rows: &Rows| !matches!(rows.head.row.state, StreamState::Creating | StreamState::Sealed);
            if let Some(mut rows) = rows.filter(sealable) {
                if !rows.seal.row.asked {
                    rows.intend(&table, &OWN_SEAL, SealRow { asked: true }).await?;
                }
                self.turn(&item).await;
            }
            let found = self.store.find_stream(scope, stream).await?;
            let Some(found) = found else { return Ok(()) };
            self.mark_leaving(scope, stream, found).await?;
        }
        self.turn(&item).await;
        Ok(())
    }
}
