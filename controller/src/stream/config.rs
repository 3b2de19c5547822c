//! Configuration of a stream and what makes one acceptable.
//!
//! Everything is checked before anything is written: a refused configuration leaves nothing behind.

use std::collections::BTreeSet;

/// Most tags a stream may have.
pub const TAGS_MAX: usize = 127;
/// Most characters a tag may have.
pub const TAG_CHARS_MAX: usize = 255;

/// Most segments a stream may have at once: all of them fit into one reply of the controller and one row of its tables.
pub const SEGMENTS_MAX: u32 = 10_000;

/// Raw scaling policy type of the wire: a fixed number of segments.
pub const SCALE_FIXED: i32 = 0;
/// Raw scaling policy type of the wire: kilobytes per second.
pub const SCALE_BY_KILOBYTES: i32 = 1;
/// Raw scaling policy type of the wire: events per second.
pub const SCALE_BY_EVENTS: i32 = 2;

/// A scaling policy by load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RatePolicy {
    /// Load per segment and second at which a segment counts as hot.
    pub rate: i32,
    /// Most segments into which one is split at once; less than 2 counts as 2.
    pub factor: i32,
    /// Least number of segments, and the number at creation.
    pub segments_min: u32,
}

/// How many segments a stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingPolicy {
    /// Always this many. Rate and factor mean nothing here but are given back as they came.
    Fixed {
        /// Number of segments.
        segments: u32,
        /// Rate as it came.
        rate: i32,
        /// Factor as it came.
        factor: i32,
    },
    /// By kilobytes per second.
    ByKilobytes(RatePolicy),
    /// By events per second.
    ByEvents(RatePolicy),
}

/// What is kept of a stream; limits are `i64::MAX` if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionPolicy {
    /// By age in milliseconds.
    Time {
        /// Younger data is kept.
        min_ms: i64,
        /// Older data is dropped even if a subscriber has not read it.
        max_ms: i64,
    },
    /// By size in bytes.
    Size {
        /// At least this much is kept.
        min_bytes: i64,
        /// More than this is dropped even if a subscriber has not read it.
        max_bytes: i64,
    },
}

/// Configuration of a stream; an update replaces it as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// How many segments there are.
    pub scaling: ScalingPolicy,
    /// What is kept; `None` keeps everything.
    pub retention: Option<RetentionPolicy>,
    /// Tags, each once.
    pub tags: BTreeSet<String>,
    /// Time in milliseconds after which a silent writer no longer holds back watermarks.
    pub timestamp_aggregation_timeout_ms: i64,
    /// Size in bytes at which a segment's data rolls over in long-term storage; 0 leaves it to the store.
    pub rollover_bytes: i64,
}

/// Why a configuration is not acceptable. All of these are invalid arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The scaling policy's type is none of the three.
    #[error("reading scaling policy type {0}")]
    ScaleType(i32),
    /// There must be at least one segment, and no more than [`SEGMENTS_MAX`].
    #[error("configuring {0} segments, maximum {SEGMENTS_MAX}")]
    Segments(i32),
    /// An automatic policy needs a positive rate and a factor that is not negative.
    #[error("configuring scaling at rate {rate} with factor {factor}")]
    Rate {
        /// The rate.
        rate: i32,
        /// The factor.
        factor: i32,
    },
    /// The retention policy's type is none of the three.
    #[error("reading retention policy type {0}")]
    RetentionType(i32),
    /// Limits are not negative and the minimum not above the maximum.
    #[error("configuring retention between {min} and {max}")]
    Retention {
        /// Least to keep.
        min: i64,
        /// Most to keep.
        max: i64,
    },
    /// Too many tags.
    #[error("configuring {0} tags, maximum {TAGS_MAX}")]
    Tags(usize),
    /// A tag is empty or too long.
    #[error("configuring a tag of {0} characters, maximum {TAG_CHARS_MAX}")]
    Tag(usize),
    /// The timestamp aggregation timeout is negative.
    #[error("configuring a timestamp aggregation timeout of {0} ms")]
    TimestampAggregationTimeout(i64),
    /// The rollover size is negative.
    #[error("configuring a rollover size of {0} bytes")]
    Rollover(i64),
}

impl ScalingPolicy {
    /// Reads a policy from the numbers of the wire.
    ///
    /// # Errors
    /// [`ConfigError`] if a number makes no sense for the type.
    pub fn from_raw(scale_type: i32, rate: i32, factor: i32, segments_min: i32) -> Result<Self, ConfigError> {
        let allowed = u32::try_from(segments_min).ok().filter(|count| (1..=SEGMENTS_MAX).contains(count));
        let segments_min = allowed.ok_or(ConfigError::Segments(segments_min))?;
        let by_rate = || {
            let sensible = rate > 0 && factor >= 0;
            sensible
                .then_some(RatePolicy { rate, factor, segments_min })
                .ok_or(ConfigError::Rate { rate, factor })
        };
        match scale_type {
            SCALE_FIXED => Ok(Self::Fixed { segments: segments_min, rate, factor }),
            SCALE_BY_KILOBYTES => by_rate().map(Self::ByKilobytes),
            SCALE_BY_EVENTS => by_rate().map(Self::ByEvents),
            other => Err(ConfigError::ScaleType(other)),
        }
    }

    /// A fixed number of segments.
    pub const fn fixed(segments: u32) -> Self {
        Self::Fixed { segments, rate: 0, factor: 0 }
    }

    /// Returns the least number of segments, which is also the number at creation.
    pub const fn segments_min(&self) -> u32 {
        match self {
            Self::Fixed { segments, .. } => *segments,
            Self::ByKilobytes(policy) | Self::ByEvents(policy) => policy.segments_min,
        }
    }

    /// Returns the policy by load, `None` if the number is fixed.
    pub const fn by_rate(&self) -> Option<&RatePolicy> {
        match self {
            Self::Fixed { .. } => None,
            Self::ByKilobytes(policy) | Self::ByEvents(policy) => Some(policy),
        }
    }

    /// Returns the type byte and the rate with which segments are created on a segment store.
    pub const fn segment_policy(&self) -> (u8, i32) {
        match self {
            Self::Fixed { .. } => (0, 0),
            Self::ByKilobytes(policy) => (1, policy.rate),
            Self::ByEvents(policy) => (2, policy.rate),
        }
    }
}

impl RetentionPolicy {
    /// Reads a policy from the numbers of the wire; type 0 is no policy.
    ///
    /// A maximum of 0 is what clients older than the field send and means that there is none.
    ///
    /// # Errors
    /// [`ConfigError`] if a limit is negative, the minimum above the maximum, or the type unknown.
    pub fn from_raw(retention_type: i32, min: i64, max: i64) -> Result<Option<Self>, ConfigError> {
        if retention_type == 0 {
            return Ok(None);
        }
        let max = if max == 0 { i64::MAX } else { max };
        if min < 0 || max < min {
            return Err(ConfigError::Retention { min, max });
        }
        match retention_type {
            1 => Ok(Some(Self::Time { min_ms: min, max_ms: max })),
            2 => Ok(Some(Self::Size { min_bytes: min, max_bytes: max })),
            other => Err(ConfigError::RetentionType(other)),
        }
    }

    /// Returns minimum and maximum, in the unit of the policy's type.
    pub const fn limits(&self) -> (i64, i64) {
        match *self {
            Self::Time { min_ms, max_ms } => (min_ms, max_ms),
            Self::Size { min_bytes, max_bytes } => (min_bytes, max_bytes),
        }
    }
}

impl StreamConfig {
    /// A configuration with this scaling policy and nothing else.
    pub const fn new(scaling: ScalingPolicy) -> Self {
        Self {
            scaling,
            retention: None,
            tags: BTreeSet::new(),
            timestamp_aggregation_timeout_ms: 0,
            rollover_bytes: 0,
        }
    }

    /// Checks what the policies' own readers have not: tags, timeout and rollover size.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is not acceptable.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.tags.len() > TAGS_MAX {
            return Err(ConfigError::Tags(self.tags.len()));
        }
        let mut tag_chars = self.tags.iter().map(|tag| tag.chars().count());
        if let Some(chars) = tag_chars.find(|chars| *chars == 0 || *chars > TAG_CHARS_MAX) {
            return Err(ConfigError::Tag(chars));
        }
        if self.timestamp_aggregation_timeout_ms < 0 {
            return Err(ConfigError::TimestampAggregationTimeout(self.timestamp_aggregation_timeout_ms));
        }
        if self.rollover_bytes < 0 {
            return Err(ConfigError::Rollover(self.rollover_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(tags: impl IntoIterator<Item = String>) -> Result<(), ConfigError> {
        StreamConfig { tags: tags.into_iter().collect(), ..StreamConfig::new(ScalingPolicy::fixed(1)) }
            .check()
    }

    #[test]
    fn scaling_policy_needs_segments_and_a_rate() {
        let read = ScalingPolicy::from_raw;
        assert_eq!(read(SCALE_FIXED, 0, 0, 3), Ok(ScalingPolicy::fixed(3)));
        assert_eq!(read(SCALE_FIXED, 0, 0, 0), Err(ConfigError::Segments(0)));
        assert_eq!(read(SCALE_FIXED, 0, 0, -1), Err(ConfigError::Segments(-1)));
        assert_eq!(read(SCALE_FIXED, 0, 0, 10_001), Err(ConfigError::Segments(10_001)));
        assert_eq!(read(SCALE_BY_EVENTS, 0, 2, 1), Err(ConfigError::Rate { rate: 0, factor: 2 }));
        assert_eq!(read(SCALE_BY_EVENTS, 5, -1, 1), Err(ConfigError::Rate { rate: 5, factor: -1 }));
        let policy = RatePolicy { rate: 5, factor: 0, segments_min: 1 };
        assert_eq!(read(SCALE_BY_KILOBYTES, 5, 0, 1), Ok(ScalingPolicy::ByKilobytes(policy)));
        assert_eq!(read(3, 5, 2, 1), Err(ConfigError::ScaleType(3)));
    }

    #[test]
    fn segments_are_created_with_type_and_rate() {
        let policy = RatePolicy { rate: 7, factor: 2, segments_min: 1 };
        assert_eq!(ScalingPolicy::fixed(2).segment_policy(), (0, 0));
        assert_eq!(ScalingPolicy::ByKilobytes(policy).segment_policy(), (1, 7));
        assert_eq!(ScalingPolicy::ByEvents(policy).segment_policy(), (2, 7));
    }

    #[test]
    fn retention_of_type_zero_is_none_and_limits_are_in_order() {
        let read = RetentionPolicy::from_raw;
        assert_eq!(read(0, -5, i64::MAX), Ok(None));
        assert_eq!(read(1, 5, i64::MAX).unwrap().unwrap().limits(), (5, i64::MAX));
        assert_eq!(read(2, 5, 0).unwrap().unwrap().limits(), (5, i64::MAX));
        assert_eq!(read(1, 5, 4), Err(ConfigError::Retention { min: 5, max: 4 }));
        assert_eq!(read(1, -1, 4), Err(ConfigError::Retention { min: -1, max: 4 }));
        assert_eq!(read(3, 1, 4), Err(ConfigError::RetentionType(3)));
    }

    #[test]
    fn tags_are_neither_empty_nor_long_nor_many() {
        let many = |count: usize| (0..count).map(|tag| tag.to_string());
        assert_eq!(tagged(many(TAGS_MAX)), Ok(()));
        assert_eq!(tagged(many(TAGS_MAX + 1)), Err(ConfigError::Tags(TAGS_MAX + 1)));
        assert_eq!(tagged(["é".repeat(TAG_CHARS_MAX)]), Ok(()));
        assert_eq!(tagged(["x".repeat(TAG_CHARS_MAX + 1)]), Err(ConfigError::Tag(TAG_CHARS_MAX + 1)));
        assert_eq!(tagged([String::new()]), Err(ConfigError::Tag(0)));
    }

    #[test]
    fn negative_timeout_and_rollover_are_refused() {
        let config = StreamConfig::new(ScalingPolicy::fixed(1));
        assert_eq!(config.check(), Ok(()));
        let late = StreamConfig { timestamp_aggregation_timeout_ms: -1, ..config.clone() };
        assert_eq!(late.check(), Err(ConfigError::TimestampAggregationTimeout(-1)));
        let small = StreamConfig { rollover_bytes: -1, ..config };
        assert_eq!(small.check(), Err(ConfigError::Rollover(-1)));
    }
}
