//! Calls about scopes, listings and the cluster.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{node_uri, stream_info, token_text};
use crate::record::name::Kind;
use crate::service::{NamePage, ScopeCreation, ScopeDeletion};

/// Buckets over which Pravega spreads retention.
const RETENTION_BUCKETS: i32 = 1;
/// Buckets over which Pravega spreads watermarks.
const WATERMARK_BUCKETS: i32 = 100;

impl Rpc {
    #[allow(
        clippy::unnecessary_wraps,
        clippy::trivially_copy_pass_by_ref,
        reason = "the shape of every call"
    )]
    pub(super) fn get_controller_server_list(
        &self,
        _request: &proto::ServerRequest,
    ) -> Result<proto::ServerResponse, Status> {
        let controllers = self.service.controllers();
        Ok(proto::ServerResponse { node_uri: controllers.into_iter().map(node_uri).collect() })
    }

    /// This controller looks after all buckets of its background jobs.
    #[allow(
        clippy::unnecessary_wraps,
        clippy::trivially_copy_pass_by_ref,
        reason = "the shape of every call"
    )]
    pub(super) fn get_controller_to_bucket_mapping(
        &self,
        request: &proto::ControllerToBucketMappingRequest,
    ) -> Result<proto::ControllerToBucketMappingResponse, Status> {
        use proto::controller_to_bucket_mapping_request::BucketType;
        let buckets = if request.service_type == i32::from(BucketType::RetentionService) {
            RETENTION_BUCKETS
        } else {
            WATERMARK_BUCKETS
        };
        let all = || proto::BucketIds { id: (0..buckets).collect() };
        let mapping = self.service.controllers().iter().map(|host| (host.to_string(), all())).collect();
        Ok(proto::ControllerToBucketMappingResponse { mapping })
    }

    /// Without authorisation every token is empty.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the shape of every call")]
    pub(super) fn get_delegation_token(
        &self,
        _request: &proto::StreamInfo,
    ) -> Result<proto::DelegationToken, Status> {
        Ok(proto::DelegationToken { delegation_token: String::new() })
    }

    pub(super) async fn create_scope(
        &self,
        request: proto::ScopeInfo,
    ) -> Result<proto::CreateScopeStatus, Status> {
        use proto::create_scope_status::Status as Answer;
        let status = match self.service.create_scope(&request.scope).await? {
            ScopeCreation::Created => Answer::Success,
            ScopeCreation::Exists => Answer::ScopeExists,
            ScopeCreation::InvalidName => Answer::InvalidScopeName,
        };
        Ok(proto::CreateScopeStatus { status: status.into() })
    }

    pub(super) async fn delete_scope(
        &self,
        request: proto::ScopeInfo,
    ) -> Result<proto::DeleteScopeStatus, Status> {
        Ok(deleted(self.service.delete_scope(&request.scope).await?))
    }

    pub(super) async fn delete_scope_recursive(
        &self,
        request: proto::ScopeInfo,
    ) -> Result<proto::DeleteScopeStatus, Status> {
        Ok(deleted(self.service.delete_scope_recursive(&request.scope).await?))
    }

    pub(super) async fn check_scope_exists(
        &self,
        request: proto::ScopeInfo,
    ) -> Result<proto::ExistsResponse, Status> {
        Ok(proto::ExistsResponse { exists: self.service.scope_exists(&request.scope).await? })
    }

    pub(super) async fn list_scopes(
        &self,
        request: proto::ScopesRequest,
    ) -> Result<proto::ScopesResponse, Status> {
        let page = self.service.list_scopes(&token_text(request.continuation_token)).await?;
        Ok(proto::ScopesResponse {
            scopes: page.names,
            continuation_token: Some(proto::ContinuationToken { token: page.token }),
        })
    }

    pub(super) async fn list_streams_in_scope(
        &self,
        request: proto::StreamsInScopeRequest,
    ) -> Result<proto::StreamsInScopeResponse, Status> {
        let scope = request.scope.unwrap_or_default().scope;
        let after = token_text(request.continuation_token);
        Ok(streams(&scope, self.service.list_in_scope(&scope, Kind::Stream, &after).await?))
    }

    pub(super) async fn list_streams_in_scope_for_tag(
        &self,
        request: proto::StreamsInScopeWithTagRequest,
    ) -> Result<proto::StreamsInScopeResponse, Status> {
        let scope = request.scope.unwrap_or_default().scope;
        let after = token_text(request.continuation_token);
        Ok(streams(&scope, self.service.list_tagged(&scope, &request.tag, &after).await?))
    }
}

/// Outcome of a deletion.
fn deleted(outcome: ScopeDeletion) -> proto::DeleteScopeStatus {
    use proto::delete_scope_status::Status as Answer;
    let status = match outcome {
        ScopeDeletion::Deleted => Answer::Success,
        ScopeDeletion::NotFound => Answer::ScopeNotFound,
        ScopeDeletion::NotEmpty => Answer::ScopeNotEmpty,
        ScopeDeletion::Failed => Answer::Failure,
    };
    proto::DeleteScopeStatus { status: status.into() }
}

fn streams(scope: &str, page: Option<NamePage>) -> proto::StreamsInScopeResponse {
    use proto::streams_in_scope_response::Status as Answer;
    match page {
        Some(page) => proto::StreamsInScopeResponse {
            streams: page.names.iter().map(|name| stream_info(scope, name)).collect(),
            continuation_token: Some(proto::ContinuationToken { token: page.token }),
            status: Answer::Success.into(),
        },
        None => proto::StreamsInScopeResponse {
            streams: Vec::new(),
            continuation_token: Some(proto::ContinuationToken { token: String::new() }),
            status: Answer::ScopeNotFound.into(),
        },
    }
}
