//! Names in order, page by page.

use super::{Store, StoreError, Versioned};
use crate::record::name::{Kind, SCOPES, name_in_sorted_key, scope_table, sorted_key, sorted_key_after};
use crate::record::scope::StreamRow;
use crate::segment_client::Bounds;

/// Most names of a page.
const PAGE_NAMES: usize = 1000;
/// Goal for the rows read at a time by a listing that filters.
const FILTER_ROWS: i32 = 500;

fn bounds(kind: Kind, after: &str, count: i32) -> Bounds {
    let from = if after.is_empty() { sorted_key(kind, "") } else { sorted_key_after(kind, Some(after)) };
    Bounds { from, to: sorted_key_after(kind, None), count }
}

impl Store {
    /// Names of all scopes after `after`, in order; at most a page.
    pub(crate) async fn list_scopes(&self, after: &str) -> Result<Vec<String>, StoreError> {
        self.list(SCOPES, Kind::Scope, after).await
    }

    /// Names of one kind in a scope after `after`, in order; at most a page.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such scope.
    pub(crate) async fn list_in_scope(
        &self,
        scope: &str,
        kind: Kind,
        after: &str,
    ) -> Result<Vec<String>, StoreError> {
        let id = self.scope_row(scope).await?.row.id;
        self.list(&scope_table(id), kind, after).await
    }

    /// Whether a scope has nothing in it.
    pub(crate) async fn is_scope_empty(&self, scope_id: u128) -> Result<bool, StoreError> {
        let all =
            Bounds { from: sorted_key(Kind::Group, ""), to: sorted_key_after(Kind::Stream, None), count: 1 };
        Ok(self.table(scope_table(scope_id)).key_range(all).await?.is_empty())
    }

    async fn list(&self, table: &str, kind: Kind, after: &str) -> Result<Vec<String>, StoreError> {
        let count = i32::try_from(PAGE_NAMES).unwrap_or(i32::MAX);
        let keys = self.table(table).key_range(bounds(kind, after, count)).await?;
        let names = keys.iter().filter_map(|key| name_in_sorted_key(key));
        Ok(names.take(PAGE_NAMES).map(String::from).collect())
    }

    /// Names of the streams of a scope that have `tag`, after `after`, in order.
    ///
    /// Rows are read until one matches or none is left, so a page is empty only at the end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such scope.
    pub(crate) async fn list_tagged(
        &self,
        scope: &str,
        tag: &str,
        after: &str,
    ) -> Result<Vec<String>, StoreError> {
        let table = self.table(scope_table(self.scope_row(scope).await?.row.id));
        let mut after = after.to_owned();
        loop {
            let entries = table.range(bounds(Kind::Stream, &after, FILTER_ROWS)).await?;
            let mut found = Vec::new();
            for entry in &entries {
                let Some(name) = name_in_sorted_key(&entry.key) else { continue };
                let Versioned { row, .. } = table.decode::<StreamRow>(entry)?;
                if row.config.tags.contains(tag) {
                    found.push(name.to_owned());
                }
                name.clone_into(&mut after);
            }
            if !found.is_empty() || entries.is_empty() {
                return Ok(found);
            }
        }
    }
}
