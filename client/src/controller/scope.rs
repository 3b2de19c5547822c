//! Calls about scopes, and listings.

use super::{Controller, ControllerError, Refusal, refused, scope_info};
use dhara_wire::controller::{
    ContinuationToken, ScopesRequest, StreamsInScopeRequest, StreamsInScopeWithTagRequest,
    create_scope_status, delete_scope_status, streams_in_scope_response,
};
use dhara_wire::name::StreamName;

/// A part of a listing. Only an empty page ends the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What this page holds.
    pub items: Vec<T>,
    /// What to ask the next page with.
    pub token: String,
}

impl Controller {
    /// Creates `scope`; false if it is there already.
    ///
    /// # Errors
    /// [`ControllerError`]; a name against the rules is [`Refusal::InvalidName`].
    /// # Cancel safety
    /// Dropped early: the scope may or may not be created.
    pub async fn create_scope(&self, scope: &str) -> Result<bool, ControllerError> {
        use create_scope_status::Status;
        let info = scope_info(scope);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.create_scope(info).await }
        };
        match self.call("createScope", call).await?.status() {
            Status::Success => Ok(true),
            Status::ScopeExists => Ok(false),
            Status::InvalidScopeName => refused(scope, Refusal::InvalidName),
            Status::Failure => refused(scope, Refusal::Failure),
        }
    }

    /// Deletes the empty `scope`; false if there is none.
    ///
    /// # Errors
    /// [`ControllerError`]; a scope with streams is [`Refusal::NotEmpty`].
    /// # Cancel safety
    /// Dropped early: the scope may or may not be deleted.
    pub async fn delete_scope(&self, scope: &str) -> Result<bool, ControllerError> {
        use delete_scope_status::Status;
        let info = scope_info(scope);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.delete_scope(info).await }
        };
        match self.call("deleteScope", call).await?.status() {
            Status::Success => Ok(true),
            Status::ScopeNotFound => Ok(false),
            Status::ScopeNotEmpty => refused(scope, Refusal::NotEmpty),
            Status::Failure => refused(scope, Refusal::Failure),
        }
    }

    /// Whether `scope` exists.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn scope_exists(&self, scope: &str) -> Result<bool, ControllerError> {
        let info = scope_info(scope);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.check_scope_exists(info).await }
        };
        Ok(self.call("checkScopeExists", call).await?.exists)
    }

    /// Lists scopes from `token`, which is empty for the first page.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_scopes(&self, token: &str) -> Result<Page<String>, ControllerError> {
        let request = ScopesRequest { continuation_token: Some(continuation(token)) };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.list_scopes(request).await }
        };
        let answer = self.call("listScopes", call).await?;
        Ok(Page { items: answer.scopes, token: next_token(answer.continuation_token) })
    }

    /// Lists the streams of `scope` from `token`, which is empty for the first page; only those that carry `tag` if
    /// there is one. The server's own streams, whose names begin with `_`, are among them.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing scope is [`Refusal::ScopeNotFound`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_streams(
        &self,
        scope: &str,
        tag: Option<&str>,
        token: &str,
    ) -> Result<Page<StreamName>, ControllerError> {
        use streams_in_scope_response::Status;
        let answer = match tag {
            None => self.list_all(scope, token).await?,
            Some(tag) => self.list_tagged(scope, tag, token).await?,
        };
        match answer.status() {
            Status::Success => {}
            Status::ScopeNotFound => return refused(scope, Refusal::ScopeNotFound),
            Status::Failure => return refused(scope, Refusal::Failure),
        }
        let named = |info: &super::StreamInfo| {
            (!info.stream.is_empty()).then(|| StreamName::new(&info.scope, &info.stream))
        };
        let items = answer.streams.iter().filter_map(named).collect();
        Ok(Page { items, token: next_token(answer.continuation_token) })
    }

    async fn list_all(&self, scope: &str, token: &str) -> Result<Listing, ControllerError> {
        let request = StreamsInScopeRequest {
            scope: Some(scope_info(scope)),
            continuation_token: Some(continuation(token)),
        };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.list_streams_in_scope(request).await }
        };
        self.call("listStreamsInScope", call).await
    }

    async fn list_tagged(&self, scope: &str, tag: &str, token: &str) -> Result<Listing, ControllerError> {
        let request = StreamsInScopeWithTagRequest {
            scope: Some(scope_info(scope)),
            tag: tag.to_owned(),
            continuation_token: Some(continuation(token)),
        };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.list_streams_in_scope_for_tag(request).await }
        };
        self.call("listStreamsInScopeForTag", call).await
    }
}

type Listing = dhara_wire::controller::StreamsInScopeResponse;

fn continuation(token: &str) -> ContinuationToken {
    ContinuationToken { token: token.to_owned() }
}

fn next_token(token: Option<ContinuationToken>) -> String {
    token.map(|token| token.token).unwrap_or_default()
}
