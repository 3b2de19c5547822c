//! Scopes.

use super::{Outcome, Service, check_present, check_token};
use crate::record::name::Kind;
use crate::record::scope::{Presence, ScopeRow};
use crate::store::StoreError;
use crate::stream::name::{SYSTEM_SCOPE, is_stored_name};

/// Outcome of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeCreation {
    /// Created.
    Created,
    /// There is one of the name, or one is being deleted.
    Exists,
    /// The name is against the rules.
    InvalidName,
}

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeDeletion {
    /// Deleted.
    Deleted,
    /// There is none of the name.
    NotFound,
    /// Something is in it.
    NotEmpty,
    /// It could not be done; trying again may help.
    Failed,
}

/// A page of names, and the token with which the next one is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePage {
    /// Names in order; none at the end.
    pub(crate) names: Vec<String>,
    /// Token.
    pub(crate) token: String,
}

impl NamePage {
    /// The page that follows `token`.
    pub(super) fn new(names: Vec<String>, token: &str) -> Self {
        let token = names.last().map_or(token, String::as_str).to_owned();
        Self { names, token }
    }
}

impl Service {
    /// Creates a scope.
    pub(crate) async fn create_scope(&self, scope: &str) -> Outcome<ScopeCreation> {
        check_present("scope", scope)?;
        if scope == SYSTEM_SCOPE {
            return Ok(ScopeCreation::Exists);
        }
        if !is_stored_name(scope) {
            return Ok(ScopeCreation::InvalidName);
        }
        let created = self.store.create_scope(scope).await?;
        Ok(if created { ScopeCreation::Created } else { ScopeCreation::Exists })
    }

    /// Deletes an empty scope.
    ///
    /// The scope is looked at, marked and looked at again: a creation that has slipped in between is seen by the
    /// second look, one that comes later sees the mark.
    pub(crate) async fn delete_scope(&self, scope: &str) -> Outcome<ScopeDeletion> {
        check_present("scope", scope)?;
        if scope == SYSTEM_SCOPE {
            return Ok(ScopeDeletion::NotEmpty);
        }
        if !is_stored_name(scope) {
            return Ok(ScopeDeletion::NotFound);
        }
        let Some(mut found) = self.store.find_scope(scope).await? else { return Ok(ScopeDeletion::NotFound) };
        if !self.store.is_scope_empty(found.row.id).await? {
            return Ok(ScopeDeletion::NotEmpty);
        }
        if found.row.presence == Presence::Live {
            self.store.work().announce(&Self::scope_item(scope)).await?;
            let leaving = ScopeRow { presence: Presence::Leaving, ..found.row };
            found = self.store.update_scope(scope, &found, leaving).await?;
        }
        if !self.store.is_scope_empty(found.row.id).await? {
            let live = ScopeRow { presence: Presence::Live, ..found.row };
            self.store.update_scope(scope, &found, live).await?;
            return Ok(ScopeDeletion::NotEmpty);
        }
        self.store.remove_scope(scope, &found).await?;
        Ok(ScopeDeletion::Deleted)
    }

    /// Deletes a scope with all that is in it. A call while another is at work joins it.
    pub(crate) async fn delete_scope_recursive(&self, scope: &str) -> Outcome<ScopeDeletion> {
        check_present("scope", scope)?;
        if scope == SYSTEM_SCOPE {
            return Ok(ScopeDeletion::NotEmpty);
        }
        if !is_stored_name(scope) {
            return Ok(ScopeDeletion::NotFound);
        }
        let item = Self::scope_item(scope);
        let id = loop {
            let Some(found) = self.store.find_scope(scope).await? else { return Ok(ScopeDeletion::NotFound) };
            if found.row.recursive {
                break found.row.id;
            }
            self.store.work().announce(&item).await?;
            let row = ScopeRow { presence: Presence::Leaving, recursive: true, ..found.row };
            match self.store.update_scope(scope, &found, row).await {
                Err(error) if error.is_conflict() => {}
                other => break other?.row.id,
            }
        };
        self.turn(&item).await?;
        let left = self.store.find_scope(scope).await?;
        Ok(if left.is_some_and(|left| left.row.id == id) {
            ScopeDeletion::Failed
        } else {
            ScopeDeletion::Deleted
        })
    }

    fn scope_item(scope: &str) -> crate::store::WorkItem {
        crate::store::WorkItem { kind: Kind::Scope, scope: scope.to_owned(), name: String::new() }
    }

    /// Whether there is a scope of the name.
    pub(crate) async fn scope_exists(&self, scope: &str) -> Outcome<bool> {
        check_present("scope", scope)?;
        if scope == SYSTEM_SCOPE {
            return Ok(true);
        }
        Ok(is_stored_name(scope) && self.store.find_scope(scope).await?.is_some())
    }

    /// Names of scopes after `token`.
    pub(crate) async fn list_scopes(&self, token: &str) -> Outcome<NamePage> {
        check_token(token)?;
        Ok(NamePage::new(self.store.list_scopes(token).await?, token))
    }

    /// Names of one kind in a scope after `token`; `None` if there is no such scope.
    pub(crate) async fn list_in_scope(
        &self,
        scope: &str,
        kind: Kind,
        token: &str,
    ) -> Outcome<Option<NamePage>> {
        check_present("scope", scope)?;
        check_token(token)?;
        if !is_stored_name(scope) {
            return Ok(None);
        }
        page(self.store.list_in_scope(scope, kind, token).await, token)
    }

    /// Names of the streams of a scope that have a tag; `None` if there is no such scope.
    pub(crate) async fn list_tagged(&self, scope: &str, tag: &str, token: &str) -> Outcome<Option<NamePage>> {
        check_present("scope", scope)?;
        check_token(token)?;
        if !is_stored_name(scope) {
            return Ok(None);
        }
        page(self.store.list_tagged(scope, tag, token).await, token)
    }
}

fn page(names: Result<Vec<String>, StoreError>, token: &str) -> Outcome<Option<NamePage>> {
    match names {
        Ok(names) => Ok(Some(NamePage::new(names, token))),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
