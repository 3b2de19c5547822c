//! Calls about the segments of a stream.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{cut, node_uri, segment_id, segment_range, segment_ranges, stream_name};
use crate::stream::SegmentId;

impl Rpc {
    pub(super) async fn get_current_segments(
        &self,
        request: proto::StreamInfo,
    ) -> Result<proto::SegmentRanges, Status> {
        let segments = self.service.current_segments(&request.scope, &request.stream).await?;
        Ok(segment_ranges(&request.scope, &request.stream, &segments))
    }

    pub(super) async fn get_epoch_segments(
        &self,
        request: proto::GetEpochSegmentsRequest,
    ) -> Result<proto::SegmentRanges, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let segments = self.service.epoch_segments(&scope, &stream, request.epoch).await?;
        Ok(segment_ranges(&scope, &stream, &segments))
    }

    pub(super) async fn get_segments(
        &self,
        request: proto::GetSegmentsRequest,
    ) -> Result<proto::SegmentsAtTime, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let head = self.service.head_segments(&scope, &stream).await?;
        let location = |(&id, &offset): (&SegmentId, &i64)| proto::segments_at_time::SegmentLocation {
            segment_id: Some(segment_id(&scope, &stream, id)),
            offset,
        };
        Ok(proto::SegmentsAtTime {
            segments: head.0.iter().map(location).collect(),
            delegation_token: String::new(),
        })
    }

    pub(super) async fn get_segments_immediatly_following(
        &self,
        request: proto::SegmentId,
    ) -> Result<proto::SuccessorResponse, Status> {
        self.get_segments_immediately_following(request).await
    }

    pub(super) async fn get_segments_immediately_following(
        &self,
        request: proto::SegmentId,
    ) -> Result<proto::SuccessorResponse, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let id = SegmentId::from_raw(request.segment_id);
        let successors = self.service.successors(&scope, &stream, id).await?;
        let entry = |successor: crate::stream::Successor| proto::successor_response::SegmentEntry {
            segment: Some(segment_range(&scope, &stream, &successor.segment)),
            value: successor.predecessors.iter().map(|id| id.raw()).collect(),
        };
        Ok(proto::SuccessorResponse {
            segments: successors.into_iter().map(entry).collect(),
            delegation_token: String::new(),
        })
    }

    pub(super) async fn get_segments_between(
        &self,
        request: proto::StreamCutRange,
    ) -> Result<proto::StreamCutRangeResponse, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let cuts = (cut(request.from), cut(request.to));
        let ids = self.service.between(&scope, &stream, cuts).await?;
        Ok(proto::StreamCutRangeResponse {
            segments: ids.into_iter().map(|id| segment_id(&scope, &stream, id)).collect(),
            delegation_token: String::new(),
        })
    }

    pub(super) fn get_uri(&self, request: &proto::SegmentId) -> Result<proto::NodeUri, Status> {
        let (scope, stream) = stream_name(request.stream_info.clone())?;
        let store = self.service.store_of(&scope, &stream, SegmentId::from_raw(request.segment_id))?;
        Ok(node_uri(store))
    }

    pub(super) async fn is_segment_valid(
        &self,
        request: proto::SegmentId,
    ) -> Result<proto::SegmentValidityResponse, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let id = SegmentId::from_raw(request.segment_id);
        Ok(proto::SegmentValidityResponse { response: self.service.is_active(&scope, &stream, id).await? })
    }

    pub(super) async fn is_stream_cut_valid(
        &self,
        request: proto::StreamCut,
    ) -> Result<proto::StreamCutValidityResponse, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let response = self.service.is_valid_cut(&scope, &stream, cut(request.cut)).await?;
        Ok(proto::StreamCutValidityResponse { response })
    }
}
