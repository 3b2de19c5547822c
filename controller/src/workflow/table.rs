//! Key-value tables: one table segment for each partition.

use super::{Engine, Error, Progress};
use crate::record::name::{Kind, key_value_segment};
use crate::record::scope::{KeyValueTableRow, KeyValueTableState};
use crate::store::{StoreError, Versioned};
use crate::stream::{EpochRecord, Segment};

/// The segments of a key-value table, ordered by range.
pub(crate) fn partitions(row: &KeyValueTableRow) -> Result<Vec<Segment>, Error> {
    Ok(EpochRecord::first(row.config.partitions, row.first_number, row.created_ms)?.segments)
}

impl Engine {
    /// Does what is left of a key-value table's creation or deletion.
    pub(super) async fn pass_table(&self, scope: &str, table: &str) -> Result<Progress, Error> {
        let found = match self.store.find_in_scope::<KeyValueTableRow>(scope, Kind::Table, table).await {
            Err(StoreError::NotFound(_)) => None,
            other => other?,
        };
        let Some(found) = found else { return Ok(Progress::Rest) };
        match found.row.state {
            KeyValueTableState::Active => {}
            KeyValueTableState::Creating => self.create_table(scope, table, &found).await?,
            KeyValueTableState::Deleting => self.delete_table(scope, table, &found).await?,
        }
        Ok(Progress::Rest)
    }

    async fn create_table(
        &self,
        scope: &str,
        table: &str,
        found: &Versioned<KeyValueTableRow>,
    ) -> Result<(), Error> {
        let config = found.row.config;
        let key_bytes = config.primary_key_bytes.saturating_add(config.secondary_key_bytes);
        let name = |part: &Segment| key_value_segment(scope, table, part.id());
        let names: Vec<String> = partitions(&found.row)?.iter().map(name).collect();
        let segments = self.store.segments();
        let creates = names.iter().map(|name| segments.create_table(name, key_bytes, config.rollover_bytes));
        self.each(creates.collect()).await?;
        let row = KeyValueTableRow { state: KeyValueTableState::Active, ..found.row };
        self.store.write_in_scope(scope, (Kind::Table, table), row, found.unchanged()).await.map(drop)
    }

    async fn delete_table(
        &self,
        scope: &str,
        table: &str,
        found: &Versioned<KeyValueTableRow>,
    ) -> Result<(), Error> {
        let parts = partitions(&found.row)?;
        let last = parts.iter().map(|part| part.number).max().unwrap_or(found.row.first_number);
        self.store.remember_number(Kind::Table, scope, table, last).await?;
        let names: Vec<String> =
            parts.iter().map(|part| key_value_segment(scope, table, part.id())).collect();
        let segments = self.store.segments();
        self.each(names.iter().map(|name| segments.delete_table(name)).collect()).await?;
        self.store.remove_in_scope(scope, (Kind::Table, table), found.unchanged()).await.map(drop)
    }
}
