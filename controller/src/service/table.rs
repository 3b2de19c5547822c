//! Key-value tables.

use dhara_wire::limits::TABLE_FIXED_KEY_BYTES_MAX;
use tokio::time::sleep;

use super::{CONFLICT_PAUSE, Outcome, Service, ServiceError, check_present};
use crate::record::name::Kind;
use crate::record::scope::{KeyValueTableConfig, KeyValueTableRow, KeyValueTableState};
use crate::segment_client::Expect;
use crate::store::{StoreError, Versioned, WorkItem};
use crate::stream::Segment;
use crate::stream::name::{is_stored_name, is_user_name};
use crate::workflow::partitions;

/// Outcome of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableCreation {
    /// Created.
    Created,
    /// There is one of the name.
    Exists,
    /// There is no such scope.
    ScopeNotFound,
    /// The name is against the rules.
    InvalidName,
    /// It could not be done; trying again may help.
    Failed,
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableDeletion {
    /// Deleted.
    Deleted,
    /// There is no such table or scope.
    NotFound,
    /// It could not be done; trying again may help.
    Failed,
}

fn table_item(scope: &str, table: &str) -> WorkItem {
    WorkItem { kind: Kind::Table, scope: scope.to_owned(), name: table.to_owned() }
}

fn check_config(config: &KeyValueTableConfig) -> Outcome<()> {
    let invalid = |what: &str| Err(ServiceError::Invalid(String::from(what)));
    if config.partitions == 0 {
        return invalid("a table needs a partition");
    }
    if config.primary_key_bytes <= 0 || config.secondary_key_bytes < 0 {
        return invalid("key lengths of a table must be positive");
    }
    if config.primary_key_bytes.saturating_add(config.secondary_key_bytes) > TABLE_FIXED_KEY_BYTES_MAX {
        return invalid("keys of a table are too long");
    }
    if config.rollover_bytes < 0 {
        return invalid("rollover size is negative");
    }
    Ok(())
}

impl Service {
    /// Creates a key-value table with its segments.
    pub(crate) async fn create_table(
        &self,
        (scope, table): (&str, &str),
        config: KeyValueTableConfig,
    ) -> Outcome<TableCreation> {
        check_present("scope", scope)?;
        check_config(&config)?;
        loop {
            match self.try_create_table(scope, table, config).await {
                // Somebody else was faster; what they wrote decides.
                Err(ServiceError::Store(error)) if error.is_conflict() => sleep(CONFLICT_PAUSE).await,
                other => return other,
            }
        }
    }

    async fn try_create_table(
        &self,
        scope: &str,
        table: &str,
        config: KeyValueTableConfig,
    ) -> Outcome<TableCreation> {
        if !is_user_name(table) {
            return Ok(TableCreation::InvalidName);
        }
        if !is_stored_name(scope) || !self.is_scope_open(scope).await? {
            return Ok(TableCreation::ScopeNotFound);
        }
        let (item, key) = (table_item(scope, table), (Kind::Table, table));
        if let Some(found) = self.find_table(scope, table).await? {
            if found.row.state != KeyValueTableState::Active {
                self.turn(&item).await?;
            }
            if found.row.state != KeyValueTableState::Deleting {
                return Ok(TableCreation::Exists);
            }
        }
        self.store.work().announce(&item).await?;
        let row = KeyValueTableRow {
            state: KeyValueTableState::Creating,
            created_ms: self.store.now_ms(),
            first_number: self.store.first_number(Kind::Table, scope, table).await?,
            config,
        };
        match self.store.write_in_scope(scope, key, row, Expect::Absent).await {
            Err(error) if error.is_missing() => return Ok(TableCreation::ScopeNotFound),
            Err(error) => return Err(error.into()),
            Ok(written) if !self.is_scope_open(scope).await? => {
                self.store.remove_in_scope(scope, key, written.unchanged()).await?;
                return Ok(TableCreation::ScopeNotFound);
            }
            Ok(_) => {}
        }
        self.turn(&item).await?;
        Ok(match self.find_table(scope, table).await? {
            Some(found) if found.row.state == KeyValueTableState::Active => TableCreation::Created,
            _ => TableCreation::Failed,
        })
    }

    async fn find_table(&self, scope: &str, table: &str) -> Outcome<Option<Versioned<KeyValueTableRow>>> {
        Ok(self.store.find_in_scope(scope, Kind::Table, table).await?)
    }

    /// A key-value table that can be used, if it is there.
    async fn active_table(&self, scope: &str, table: &str) -> Outcome<Option<KeyValueTableRow>> {
        check_present("scope", scope)?;
        check_present("table", table)?;
        if !is_stored_name(scope) || !is_stored_name(table) {
            return Ok(None);
        }
        match self.store.find_in_scope::<KeyValueTableRow>(scope, Kind::Table, table).await {
            Ok(found) => {
                Ok(found.map(|found| found.row).filter(|row| row.state == KeyValueTableState::Active))
            }
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Segments of a key-value table, ordered by range.
    pub(crate) async fn table_segments(&self, scope: &str, table: &str) -> Outcome<Vec<Segment>> {
        let row = self.active_table(scope, table).await?.ok_or(ServiceError::NotFound("table"))?;
        Ok(partitions(&row)?)
    }

    /// Configuration of a key-value table; `None` if there is no such table or scope.
    pub(crate) async fn table_config(
        &self,
        scope: &str,
        table: &str,
    ) -> Outcome<Option<KeyValueTableConfig>> {
        Ok(self.active_table(scope, table).await?.map(|row| row.config))
    }

    /// Deletes a key-value table.
    pub(crate) async fn delete_table(&self, scope: &str, table: &str) -> Outcome<TableDeletion> {
        check_present("scope", scope)?;
        check_present("table", table)?;
        if !is_stored_name(scope) || !is_stored_name(table) {
            return Ok(TableDeletion::NotFound);
        }
        loop {
            match self.try_delete_table(scope, table).await {
                Err(ServiceError::Store(error)) if error.is_conflict() => sleep(CONFLICT_PAUSE).await,
                other => return other,
            }
        }
    }

    async fn try_delete_table(&self, scope: &str, table: &str) -> Outcome<TableDeletion> {
        let found = match self.find_table(scope, table).await {
            Err(ServiceError::NotFound(_)) | Ok(None) => return Ok(TableDeletion::NotFound),
            Ok(Some(found)) => found,
            Err(error) => return Err(error),
        };
        let item = table_item(scope, table);
        self.store.work().announce(&item).await?;
        if found.row.state != KeyValueTableState::Deleting {
            let row = KeyValueTableRow { state: KeyValueTableState::Deleting, ..found.row };
            self.store.write_in_scope(scope, (Kind::Table, table), row, found.unchanged()).await?;
        }
        self.turn(&item).await?;
        let left = self.find_table(scope, table).await?;
        Ok(match left {
            Some(left) if left.row.created_ms == found.row.created_ms => TableDeletion::Failed,
            _ => TableDeletion::Deleted,
        })
    }
}
