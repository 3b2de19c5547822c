//! Messages to values and back.

use dhara_wire::controller as proto;
use tonic::Status;

use crate::config::HostPort;
use crate::service::ServiceError;
use crate::stream::{
    ConfigError, RetentionPolicy, ScalingPolicy, Segment, SegmentId, StreamConfig, StreamCut,
};

/// Scope and name of a stream message that must be there.
pub(super) fn stream_name(info: Option<proto::StreamInfo>) -> Result<(String, String), Status> {
    let info = super::required("stream", info)?;
    Ok((info.scope, info.stream))
}

/// A stream message.
pub(super) fn stream_info(scope: &str, stream: &str) -> proto::StreamInfo {
    proto::StreamInfo { scope: scope.to_owned(), stream: stream.to_owned(), access_operation: 0 }
}

/// The text of a continuation token; none is the start.
pub(super) fn token_text(token: Option<proto::ContinuationToken>) -> String {
    token.map(|token| token.token).unwrap_or_default()
}

/// A segment id message.
pub(super) fn segment_id(scope: &str, stream: &str, id: SegmentId) -> proto::SegmentId {
    proto::SegmentId { stream_info: Some(stream_info(scope, stream)), segment_id: id.raw() }
}

/// A segment with its range.
pub(super) fn segment_range(scope: &str, stream: &str, segment: &Segment) -> proto::SegmentRange {
    proto::SegmentRange {
        segment_id: Some(segment_id(scope, stream, segment.id())),
        min_key: segment.range.low(),
        max_key: segment.range.high(),
    }
}

/// Segments with their ranges, without a token.
pub(super) fn segment_ranges(scope: &str, stream: &str, segments: &[Segment]) -> proto::SegmentRanges {
    proto::SegmentRanges {
        segment_ranges: segments.iter().map(|segment| segment_range(scope, stream, segment)).collect(),
        delegation_token: String::new(),
    }
}

/// A stream cut from the map of a message.
pub(super) fn cut(entries: impl IntoIterator<Item = (i64, i64)>) -> StreamCut {
    StreamCut::from_raw(entries)
}

/// A host message.
pub(super) fn node_uri(host: HostPort) -> proto::NodeUri {
    proto::NodeUri { endpoint: host.host, port: i32::from(host.port) }
}

/// Reads a configuration; nothing is checked that the values' own types do not check.
pub(super) fn stream_config(message: &proto::StreamConfig) -> Result<StreamConfig, ServiceError> {
    let invalid = |error: ConfigError| ServiceError::Invalid(error.to_string());
    let policy = message.scaling_policy.as_ref();
    let policy = policy.ok_or_else(|| ServiceError::Invalid(String::from("scaling policy is missing")))?;
    let scaling = ScalingPolicy::from_raw(
        policy.scale_type,
        policy.target_rate,
        policy.scale_factor,
        policy.min_num_segments,
    );
    let retention = match &message.retention_policy {
        Some(policy) => {
            RetentionPolicy::from_raw(policy.retention_type, policy.retention_param, policy.retention_max)
        }
        None => Ok(None),
    };
    Ok(StreamConfig {
        scaling: scaling.map_err(invalid)?,
        retention: retention.map_err(invalid)?,
        tags: message.tags.iter().flat_map(|tags| tags.tag.iter().cloned()).collect(),
        timestamp_aggregation_timeout_ms: message.timestamp_aggregation_timeout,
        rollover_bytes: message.rollover_size_bytes,
    })
}

/// Writes a configuration.
pub(super) fn stream_config_message(scope: &str, stream: &str, config: &StreamConfig) -> proto::StreamConfig {
    let (scale_type, target_rate, scale_factor, segments) = match &config.scaling {
        ScalingPolicy::Fixed { segments, rate, factor } => (0, *rate, *factor, *segments),
        ScalingPolicy::ByKilobytes(policy) => (1, policy.rate, policy.factor, policy.segments_min),
        ScalingPolicy::ByEvents(policy) => (2, policy.rate, policy.factor, policy.segments_min),
    };
    let retention_policy = config.retention.as_ref().map(|policy| {
        let (retention_param, retention_max) = policy.limits();
        let retention_type = match policy {
            RetentionPolicy::Time { .. } => 1,
            RetentionPolicy::Size { .. } => 2,
        };
        proto::RetentionPolicy { retention_type, retention_param, retention_max }
    });
    proto::StreamConfig {
        stream_info: Some(stream_info(scope, stream)),
        scaling_policy: Some(proto::ScalingPolicy {
            scale_type,
            target_rate,
            scale_factor,
            min_num_segments: i32::try_from(segments).unwrap_or(i32::MAX),
        }),
        retention_policy,
        tags: Some(proto::Tags { tag: config.tags.iter().cloned().collect() }),
        timestamp_aggregation_timeout: config.timestamp_aggregation_timeout_ms,
        rollover_size_bytes: config.rollover_bytes,
    }
}
