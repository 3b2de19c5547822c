//! Calls about the life of streams.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{cut, segment_range, stream_config, stream_config_message, stream_name};
use crate::service::{Scaling, StreamChange, StreamCreation, StreamDeletion};
use crate::stream::{ScaleRequest, ScaleStatus, SegmentId};

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

    pub(super) async fn update_stream(
        &self,
        request: proto::StreamConfig,
    ) -> Result<proto::UpdateStreamStatus, Status> {
        let config = stream_config(&request);
        let (scope, stream) = stream_name(request.stream_info)?;
        Ok(changed(self.service.update_stream((&scope, &stream), config).await?))
    }

    pub(super) async fn truncate_stream(
        &self,
        request: proto::StreamCut,
    ) -> Result<proto::UpdateStreamStatus, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        Ok(changed(self.service.truncate_stream((&scope, &stream), cut(request.cut)).await?))
    }

    pub(super) async fn seal_stream(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::UpdateStreamStatus, Status> {
        Ok(changed(self.service.seal_stream(&request.scope, &request.stream).await?))
    }

    pub(super) async fn delete_stream(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::DeleteStreamStatus, Status> {
        use proto::delete_stream_status::Status as Answer;
        let status = match self.service.delete_stream(&request.scope, &request.stream).await? {
            StreamDeletion::Deleted => Answer::Success,
            StreamDeletion::NotFound => Answer::StreamNotFound,
            StreamDeletion::NotSealed => Answer::StreamNotSealed,
            StreamDeletion::Failed => Answer::Failure,
        };
        Ok(proto::DeleteStreamStatus { status: status.into() })
    }

    pub(super) async fn scale(&self, request: proto::ScaleRequest) -> Result<proto::ScaleResponse, Status> {
        use proto::scale_response::ScaleStreamStatus as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let asked = ScaleRequest {
            seal: request.sealed_segments.into_iter().map(SegmentId::from_raw).collect(),
            ranges: request.new_key_ranges.into_iter().map(|range| (range.start, range.end)).collect(),
        };
        let (status, segments, epoch) = match self.service.scale((&scope, &stream), &asked).await? {
            Scaling::Started { epoch, segments } => (Answer::Started, segments, epoch),
            Scaling::PreconditionFailed => (Answer::PreconditionFailed, Vec::new(), 0),
            Scaling::Failed => (Answer::Failure, Vec::new(), 0),
        };
        let segments = segments.iter().map(|segment| segment_range(&scope, &stream, segment)).collect();
        Ok(proto::ScaleResponse { status: status.into(), segments, epoch })
    }

    pub(super) async fn check_scale(
        &self,
        request: proto::ScaleStatusRequest,
    ) -> Result<proto::ScaleStatusResponse, Status> {
        use proto::scale_status_response::ScaleStatus as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let status = match self.service.check_scale(&scope, &stream, request.epoch).await? {
            ScaleStatus::InProgress => Answer::InProgress,
            ScaleStatus::Success => Answer::Success,
            ScaleStatus::InvalidInput => Answer::InvalidInput,
        };
        Ok(proto::ScaleStatusResponse { status: status.into() })
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
}

fn changed(outcome: StreamChange) -> proto::UpdateStreamStatus {
    use proto::update_stream_status::Status as Answer;
    let status = match outcome {
        StreamChange::Done => Answer::Success,
        StreamChange::NotFound => Answer::StreamNotFound,
        StreamChange::Sealed => Answer::StreamSealed,
        StreamChange::Failed => Answer::Failure,
    };
    proto::UpdateStreamStatus { status: status.into() }
}
