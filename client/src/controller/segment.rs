//! Calls about the segments of a stream: which there are, where they are, what follows them.

use super::{Controller, ControllerError, Refusal, found, refused, stream_info};
use dhara_wire::controller::scale_request::KeyRangeEntry;
use dhara_wire::controller::{
    self as proto, GetSegmentsRequest, ScaleRequest, ScaleStatusRequest, scale_response,
    scale_status_response,
};
use dhara_wire::name::{SegmentId, SegmentName, StreamName};
use dhara_wire::range::KeyRange;
use std::collections::BTreeMap;

/// A segment and the keys that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentWithRange {
    /// The segment.
    pub id: SegmentId,
    /// Its keys.
    pub range: KeyRange,
}

/// A segment that takes over from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Successor {
    /// The segment that takes over.
    pub segment: SegmentWithRange,
    /// All segments it takes over from.
    pub predecessors: Vec<SegmentId>,
}

impl Controller {
    /// The segments that take appends now, by range; none if the stream is sealed.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing stream is [`Refusal::StreamNotFound`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn current_segments(
        &self,
        stream: &StreamName,
    ) -> Result<Vec<SegmentWithRange>, ControllerError> {
        let info = stream_info(stream);
        let call = |mut service: super::Service| {
            let info = info.clone();
            async move { service.get_current_segments(info).await }
        };
        let answer = found(stream, self.call("getCurrentSegments", call).await)?;
        answer.segment_ranges.into_iter().map(|range| with_range("getCurrentSegments", range)).collect()
    }

    /// The segments at the stream's head with the offsets where they begin; −1 for one whose predecessors come first.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing stream is [`Refusal::StreamNotFound`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn head_cut(&self, stream: &StreamName) -> Result<BTreeMap<SegmentId, i64>, ControllerError> {
        let request = GetSegmentsRequest { stream_info: Some(stream_info(stream)), timestamp: 0 };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.get_segments(request).await }
        };
        let answer = found(stream, self.call("getSegments", call).await)?;
        let entry = |location: proto::segments_at_time::SegmentLocation| {
            Ok((id("getSegments", location.segment_id)?, location.offset))
        };
        answer.segments.into_iter().map(entry).collect()
    }

    /// What takes over from `segment`; nothing if the stream is sealed there, or the segment is not.
    ///
    /// # Errors
    /// [`ControllerError`]; a missing stream is [`Refusal::StreamNotFound`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn successors(&self, segment: &SegmentName) -> Result<Vec<Successor>, ControllerError> {
        const RPC: &str = "getSegmentsImmediatelyFollowing";
        let request = segment_id(segment);
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.get_segments_immediately_following(request).await }
        };
        let answer = found(&segment.stream, self.call(RPC, call).await)?;
        let successor = |entry: proto::successor_response::SegmentEntry| {
            let range = entry.segment.ok_or(ControllerError::Malformed { rpc: RPC, what: "segment" })?;
            let predecessors = entry.value.into_iter().map(SegmentId::from_raw).collect();
            Ok(Successor { segment: with_range(RPC, range)?, predecessors })
        };
        answer.segments.into_iter().map(successor).collect()
    }

    /// The address, `host:port`, of the segment store that owns `segment`.
    ///
    /// # Errors
    /// [`ControllerError`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn locate(&self, segment: &SegmentName) -> Result<String, ControllerError> {
        let request = segment_id(segment);
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.get_uri(request).await }
        };
        let node = self.call("getURI", call).await?;
        Ok(format!("{}:{}", node.endpoint, node.port))
    }

    /// Starts to replace the segments `sealed` by new ones with `ranges`, and returns the epoch to ask
    /// [`Self::scale_is_done`] about.
    ///
    /// # Errors
    /// [`ControllerError`]; segments that are not current are [`Refusal::NotCurrent`], ranges that do not cover the
    /// same keys are [`Refusal::Failure`].
    /// # Cancel safety
    /// Dropped early: the scale may or may not go on.
    pub async fn start_scale(
        &self,
        stream: &StreamName,
        sealed: &[SegmentId],
        ranges: &[KeyRange],
    ) -> Result<i32, ControllerError> {
        use scale_response::ScaleStreamStatus;
        let request = ScaleRequest {
            stream_info: Some(stream_info(stream)),
            sealed_segments: sealed.iter().map(|id| id.raw()).collect(),
            new_key_ranges: ranges
                .iter()
                .map(|range| KeyRangeEntry { start: range.min, end: range.max })
                .collect(),
            scale_timestamp: 0,
        };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.scale(request).await }
        };
        let answer = self.call("scale", call).await?;
        match answer.status() {
            ScaleStreamStatus::Started => Ok(answer.epoch),
            ScaleStreamStatus::PreconditionFailed => refused(stream, Refusal::NotCurrent),
            ScaleStreamStatus::Failure => refused(stream, Refusal::Failure),
        }
    }

    /// Whether the scale that [`Self::start_scale`] started from `epoch` is done.
    ///
    /// # Errors
    /// [`ControllerError`]; an epoch that is still to come is [`Refusal::Invalid`].
    /// # Cancel safety
    /// Changes nothing.
    pub async fn scale_is_done(&self, stream: &StreamName, epoch: i32) -> Result<bool, ControllerError> {
        use scale_status_response::ScaleStatus;
        let request = ScaleStatusRequest { stream_info: Some(stream_info(stream)), epoch };
        let call = |mut service: super::Service| {
            let request = request.clone();
            async move { service.check_scale(request).await }
        };
        match self.call("checkScale", call).await?.status() {
            ScaleStatus::InProgress => Ok(false),
            ScaleStatus::Success => Ok(true),
            ScaleStatus::InvalidInput => refused(stream, Refusal::Invalid),
            ScaleStatus::InternalError => refused(stream, Refusal::Failure),
        }
    }
}

fn segment_id(segment: &SegmentName) -> proto::SegmentId {
    proto::SegmentId { stream_info: Some(stream_info(&segment.stream)), segment_id: segment.id.raw() }
}

fn id(rpc: &'static str, id: Option<proto::SegmentId>) -> Result<SegmentId, ControllerError> {
    let id = id.ok_or(ControllerError::Malformed { rpc, what: "segment id" })?;
    Ok(SegmentId::from_raw(id.segment_id))
}

fn with_range(rpc: &'static str, segment: proto::SegmentRange) -> Result<SegmentWithRange, ControllerError> {
    let range = KeyRange { min: segment.min_key, max: segment.max_key };
    Ok(SegmentWithRange { id: id(rpc, segment.segment_id)?, range })
}
