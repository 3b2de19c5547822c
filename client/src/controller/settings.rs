//! A stream's settings, and how they travel.

use dhara_wire::controller::retention_policy::RetentionPolicyType;
use dhara_wire::controller::scaling_policy::ScalingPolicyType;
use dhara_wire::controller::{RetentionPolicy, ScalingPolicy, StreamConfig, Tags};
use dhara_wire::name::StreamName;

/// What a stream is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Number of segments, now and later.
    pub scaling: Scaling,
    /// What may be given up; `None` keeps everything.
    pub retention: Option<Retention>,
    /// Words to find the stream by.
    pub tags: Vec<String>,
}

/// How many segments a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scaling {
    /// Always as many, unless scaled by hand.
    Fixed {
        /// Number of segments, at least 1.
        segments: i32,
    },
    /// As many as the bytes written ask for.
    ByKilobytes {
        /// KB/s that one segment shall take.
        target_rate: i32,
        /// Into how many a segment is split at most, at least 2.
        factor: i32,
        /// Fewest segments, at least 1.
        segments_min: i32,
    },
    /// As many as the events written ask for.
    ByEvents {
        /// Events per second that one segment shall take.
        target_rate: i32,
        /// Into how many a segment is split at most, at least 2.
        factor: i32,
        /// Fewest segments, at least 1.
        segments_min: i32,
    },
}

/// What a stream keeps at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// Everything written in the last `min_ms` milliseconds.
    Time {
        /// Milliseconds.
        min_ms: i64,
    },
    /// The last `min_bytes` bytes.
    Size {
        /// Bytes.
        min_bytes: i64,
    },
}

impl StreamSettings {
    /// `segments` segments, everything kept, no tags.
    pub fn fixed(segments: i32) -> Self {
        Self { scaling: Scaling::Fixed { segments }, retention: None, tags: Vec::new() }
    }

    pub(super) fn to_wire(&self, stream: &StreamName) -> StreamConfig {
        StreamConfig {
            stream_info: Some(super::stream_info(stream)),
            scaling_policy: Some(self.scaling.to_wire()),
            retention_policy: self.retention.map(Retention::to_wire),
            tags: Some(Tags { tag: self.tags.clone() }),
            ..StreamConfig::default()
        }
    }

    pub(super) fn from_wire(config: StreamConfig) -> Self {
        let scaling = Scaling::from_wire(config.scaling_policy.unwrap_or_default());
        let retention = config.retention_policy.and_then(Retention::from_wire);
        Self { scaling, retention, tags: config.tags.unwrap_or_default().tag }
    }
}

impl Scaling {
    fn to_wire(self) -> ScalingPolicy {
        let policy = |kind: ScalingPolicyType, target_rate, scale_factor, min_num_segments| ScalingPolicy {
            scale_type: kind.into(),
            target_rate,
            scale_factor,
            min_num_segments,
        };
        match self {
            Self::Fixed { segments } => policy(ScalingPolicyType::FixedNumSegments, 0, 0, segments),
            Self::ByKilobytes { target_rate, factor, segments_min } => {
                policy(ScalingPolicyType::ByRateInKbytesPerSec, target_rate, factor, segments_min)
            }
            Self::ByEvents { target_rate, factor, segments_min } => {
                policy(ScalingPolicyType::ByRateInEventsPerSec, target_rate, factor, segments_min)
            }
        }
    }

    fn from_wire(policy: ScalingPolicy) -> Self {
        let (target_rate, factor, segments) =
            (policy.target_rate, policy.scale_factor, policy.min_num_segments);
        match policy.scale_type() {
            ScalingPolicyType::FixedNumSegments => Self::Fixed { segments },
            ScalingPolicyType::ByRateInKbytesPerSec => {
                Self::ByKilobytes { target_rate, factor, segments_min: segments }
            }
            ScalingPolicyType::ByRateInEventsPerSec => {
                Self::ByEvents { target_rate, factor, segments_min: segments }
            }
        }
    }
}

impl Retention {
    fn to_wire(self) -> RetentionPolicy {
        let policy = |kind: RetentionPolicyType, retention_param| RetentionPolicy {
            retention_type: kind.into(),
            retention_param,
            retention_max: i64::MAX,
        };
        match self {
            Self::Time { min_ms } => policy(RetentionPolicyType::Time, min_ms),
            Self::Size { min_bytes } => policy(RetentionPolicyType::Size, min_bytes),
        }
    }

    fn from_wire(policy: RetentionPolicy) -> Option<Self> {
        match policy.retention_type() {
            RetentionPolicyType::Unknown => None,
            RetentionPolicyType::Time => Some(Self::Time { min_ms: policy.retention_param }),
            RetentionPolicyType::Size => Some(Self::Size { min_bytes: policy.retention_param }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_wire() {
        let stream = "sc/st".parse().unwrap();
        let settings = StreamSettings {
            scaling: Scaling::ByEvents { target_rate: 100, factor: 2, segments_min: 3 },
            retention: Some(Retention::Size { min_bytes: 1 << 40 }),
            tags: vec!["a".to_owned()],
        };
        assert_eq!(StreamSettings::from_wire(settings.to_wire(&stream)), settings);
        let fixed = StreamSettings::fixed(4);
        assert_eq!(StreamSettings::from_wire(fixed.to_wire(&stream)), fixed);
    }
}
