//! Scopes and the rows in them.

use bytes::Bytes;

use super::table::{Batch, Table, Versioned};
use super::{Store, StoreError};
use crate::record::Row;
use crate::record::name::{DELETED, Kind, SCOPES, SORTED_KEY_BYTES, scope_table, sorted_key};
use crate::record::scope::{LastNumberRow, Presence, ScopeRow};
use crate::segment_client::Expect;

impl Store {
    /// The row of a scope.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is none.
    pub(crate) async fn scope_row(&self, scope: &str) -> Result<Versioned<ScopeRow>, StoreError> {
        self.find_scope(scope).await?.ok_or(StoreError::NotFound("scope"))
    }

    /// The row of a scope, if there is one.
    pub(crate) async fn find_scope(&self, scope: &str) -> Result<Option<Versioned<ScopeRow>>, StoreError> {
        self.table(SCOPES).get(sorted_key(Kind::Scope, scope)).await
    }

    /// Creates a scope; `false` if there is one of the name. Its table comes first, so that a row has a table.
    pub(crate) async fn create_scope(&self, scope: &str) -> Result<bool, StoreError> {
        if self.find_scope(scope).await?.is_some() {
            return Ok(false);
        }
        let row = ScopeRow { id: self.fresh_id(), presence: Presence::Live, recursive: false };
        let key_bytes = i32::try_from(SORTED_KEY_BYTES).unwrap_or(i32::MAX);
        self.segments().create_table(&scope_table(row.id), key_bytes, 0).await?;
        let batch = Batch::new().put(sorted_key(Kind::Scope, scope), &row, Expect::Absent);
        match self.table(SCOPES).write(batch).await {
            Ok(_versions) => Ok(true),
            Err(error) if error.is_conflict() => {
                self.segments().delete_table(&scope_table(row.id)).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Changes the row of a scope.
    pub(crate) async fn update_scope(
        &self,
        scope: &str,
        found: &Versioned<ScopeRow>,
        row: ScopeRow,
    ) -> Result<Versioned<ScopeRow>, StoreError> {
        let batch = Batch::new().put(sorted_key(Kind::Scope, scope), &row, found.unchanged());
        let versions = self.table(SCOPES).write(batch).await?;
        Ok(Versioned { row, version: versions.first().copied().unwrap_or_default() })
    }

    /// Removes a scope that is leaving: its row, then its table.
    pub(crate) async fn remove_scope(
        &self,
        scope: &str,
        found: &Versioned<ScopeRow>,
    ) -> Result<(), StoreError> {
        self.scope_ids.lock().remove(scope);
        let key = sorted_key(Kind::Scope, scope);
        match self.table(SCOPES).remove(vec![(key, found.unchanged())]).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Ok(()),
            Err(error) => return Err(error),
        }
        Ok(self.segments().delete_table(&scope_table(found.row.id)).await?)
    }

    /// The table of a scope, from memory if it has been found before. The table may be gone.
    pub(crate) async fn scope_table(&self, scope: &str) -> Result<Table, StoreError> {
        let known = self.scope_ids.lock().get(scope).copied();
        let id = if let Some(id) = known {
            id
        } else {
            let id = self.scope_row(scope).await?.row.id;
            self.scope_ids.lock().insert(scope.to_owned(), id);
            id
        };
        Ok(self.table(scope_table(id)))
    }

    /// A row of a scope's table, if there is one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such scope.
    pub(crate) async fn find_in_scope<R: Row>(
        &self,
        scope: &str,
        kind: Kind,
        name: &str,
    ) -> Result<Option<Versioned<R>>, StoreError> {
        let key = sorted_key(kind, name);
        match self.scope_table(scope).await?.get(key.clone()).await {
            Err(error) if error.is_missing() => {
                self.scope_ids.lock().remove(scope);
                self.scope_table(scope).await?.get(key).await
            }
            other => other,
        }
    }

    /// Writes a row of a scope's table.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if `expect` does not hold.
    pub(crate) async fn write_in_scope<R: Row>(
        &self,
        scope: &str,
        (kind, name): (Kind, &str),
        row: R,
        expect: Expect,
    ) -> Result<Versioned<R>, StoreError> {
        let batch = Batch::new().put(sorted_key(kind, name), &row, expect);
        let versions = self.scope_table(scope).await?.write(batch).await?;
        Ok(Versioned { row, version: versions.first().copied().unwrap_or_default() })
    }

    /// Removes a row of a scope's table; `false` if it has changed or is gone.
    pub(crate) async fn remove_in_scope(
        &self,
        scope: &str,
        (kind, name): (Kind, &str),
        expect: Expect,
    ) -> Result<bool, StoreError> {
        match self.scope_table(scope).await?.remove(vec![(sorted_key(kind, name), expect)]).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The number from which segments of a new stream or table of this name are numbered.
    pub(crate) async fn first_number(&self, kind: Kind, scope: &str, name: &str) -> Result<i32, StoreError> {
        let last: Option<Versioned<LastNumberRow>> =
            self.table(DELETED).get(deleted_key(kind, scope, name)).await?;
        let next = last.map_or(Some(0), |last| last.row.number.checked_add(1));
        next.ok_or(StoreError::Exhausted(crate::stream::Exhausted))
    }

    /// Remembers the highest segment number of a stream or table that is being deleted.
    pub(crate) async fn remember_number(
        &self,
        kind: Kind,
        scope: &str,
        name: &str,
        number: i32,
    ) -> Result<(), StoreError> {
        let batch = Batch::new().put(deleted_key(kind, scope, name), &LastNumberRow { number }, Expect::Any);
        self.table(DELETED).write(batch).await?;
        Ok(())
    }
}

fn deleted_key(kind: Kind, scope: &str, name: &str) -> Bytes {
    let mut key = vec![kind.byte()];
    key.extend_from_slice(scope.as_bytes());
    key.push(b'/');
    key.extend_from_slice(name.as_bytes());
    key.into()
}
