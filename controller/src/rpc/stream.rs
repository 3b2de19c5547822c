//! Calls about the life of streams.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{stream_config, stream_config_message, stream_name};
use crate::service::StreamCreation;

impl Rpc {
    pub(super) async fn create_stream(
        &self,
        request: proto::StreamConfig,
    ) -> Result<proto::CreateStreamStatus, Status> {
        use proto::create_stream_status::Status as Answer;
        let config = stream_config(&request);
        let (scope, stream) = stream_name(request.stream_info)?;
        let status = match self.service.create_stream(&scope, &stream, config).await? {
            StreamCreation::Created => Answer::Success,
            StreamCreation::Exists => Answer::StreamExists,
            StreamCreation::ScopeNotFound => Answer::ScopeNotFound,
            StreamCreation::InvalidName => Answer::InvalidStreamName,
            StreamCreation::Failed => Answer::Failure,
        };
        Ok(proto::CreateStreamStatus { status: status.into() })
    }

    pub(super) async fn get_stream_configuration(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::StreamConfig, Status> {
        let config = self.service.stream_config(&request.scope, &request.stream).await?;
        Ok(stream_config_message(&request.scope, &request.stream, &config))
    }

    pub(super) async fn check_stream_exists(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::ExistsResponse, Status> {
        Ok(proto::ExistsResponse {
            exists: self.service.stream_exists(&request.scope, &request.stream).await?,
        })
    }

    pub(super) async fn get_delegation_token(
        &self,
        _request: proto::StreamInfo,
    ) -> Result<proto::DelegationToken, Status> {
        Ok(proto::DelegationToken { delegation_token: String::new() })
    }
}
