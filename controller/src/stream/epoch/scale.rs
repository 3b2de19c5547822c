//! Replacing segments of the active epoch by others: manual scales, automatic ones and changes of a fixed count.
//!
//! A scale is decided once, at submission: the [`Transition`] holds ids and ranges of the new segments, so every
//! repetition of the workflow creates and seals the same ones.

use std::collections::BTreeSet;

use super::super::config::{SEGMENTS_MAX, ScalingPolicy};
use super::super::segment::{KeyRange, Segment, SegmentId, union};
use super::super::state::StreamState;
use super::{EpochRecord, Exhausted, numbered};

/// What a client asks for: seal these, create those. Bounds are as they came and need not be sensible.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleRequest {
    /// Segments to seal.
    pub seal: Vec<SegmentId>,
    /// Lower and upper bounds of the ranges to create, in any order.
    pub ranges: Vec<(f64, f64)>,
}

/// Who asked for a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOrigin {
    /// A caller of the scale RPC, who waits for exactly this change.
    Manual,
    /// The controller's own reaction to load; dropped when the epoch changes underneath.
    Auto,
    /// A change of the stream's policy, which replaces all segments.
    Policy,
}

/// A pending scale, written before its first effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The active epoch from which it starts; the new one is the next.
    pub active_epoch: i32,
    /// Creation time of the new epoch and its segments in milliseconds since 1970.
    pub created_ms: i64,
    /// Segments to seal, ordered by id.
    pub seal: Vec<SegmentId>,
    /// Segments to create, in the order in which their ranges were given.
    pub create: Vec<Segment>,
    /// Who asked.
    pub origin: ScaleOrigin,
}

/// Why a scale is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// Neither segments nor ranges were given, or only one of the two.
    #[error("scaling with {seal} segments to seal and {create} ranges to create")]
    Empty {
        /// Number of segments to seal.
        seal: usize,
        /// Number of ranges to create.
        create: usize,
    },
    /// Two new ranges start at the same key.
    #[error("scaling to two ranges that start at {low}")]
    DuplicateRange {
        /// The common lower bound.
        low: f64,
    },
    /// A new range is empty, reversed, not a number or outside `[0, 1]`.
    #[error("scaling to the range {low} to {high}")]
    InvalidRange {
        /// Lower bound as it came.
        low: f64,
        /// Upper bound as it came.
        high: f64,
    },
    /// A segment to seal does not belong to the active epoch.
    #[error("scaling segment {0}, which is not active")]
    NotActive(SegmentId),
    /// A segment is to be sealed twice.
    #[error("scaling segment {0} twice at once")]
    DuplicateSegment(SegmentId),
    /// The new ranges do not cover exactly the keys of the segments to seal.
    #[error("scaling to ranges that differ from those sealed")]
    NotCovering,
    /// Fewer segments than the policy's minimum would be left.
    #[error("scaling to {count} segments, minimum {min}")]
    BelowMinimum {
        /// Number of segments after the scale.
        count: usize,
        /// The policy's minimum.
        min: u32,
    },
    /// More segments than a stream may have would be there.
    #[error("scaling to {count} segments, maximum {SEGMENTS_MAX}")]
    TooMany {
        /// Number of segments after the scale.
        count: usize,
    },
    /// Another scale is pending.
    #[error("scaling while a scale from epoch {active_epoch} is pending")]
    Pending {
        /// Epoch from which the pending scale starts.
        active_epoch: i32,
    },
    /// The stream is being sealed, is sealed, or is not there yet.
    #[error("scaling a stream in state {0:?}")]
    State(StreamState),
    /// No number is left for another segment or epoch.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// How the scale RPC reports a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleRefusal {
    /// Status PRECONDITION_FAILED: the request fits another state of the stream.
    PreconditionFailed,
    /// Status FAILURE.
    Failure,
    /// gRPC INVALID_ARGUMENT: the request fits no state of any stream.
    InvalidArgument,
}

/// Answer of the checkScale RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleStatus {
    /// The scale that was started in the epoch asked about is not finished.
    InProgress,
    /// It is finished.
    Success,
    /// The epoch does not exist yet.
    InvalidInput,
}

impl ScaleError {
    /// Returns how the scale RPC reports this refusal.
    pub fn refusal(&self) -> ScaleRefusal {
        match self {
            Self::NotActive(_) | Self::BelowMinimum { .. } => ScaleRefusal::PreconditionFailed,
            Self::Empty { .. } | Self::DuplicateRange { .. } | Self::TooMany { .. } => {
                ScaleRefusal::InvalidArgument
            }
            Self::InvalidRange { .. }
            | Self::DuplicateSegment(_)
            | Self::NotCovering
            | Self::Pending { .. }
            | Self::State(_)
            | Self::Exhausted(_) => ScaleRefusal::Failure,
        }
    }
}

/// Decides a scale: the transition to record, or the equal one that is already pending.
///
/// # Errors
/// [`ScaleError`] says what is wrong with the request or with its moment.
pub fn submit(
    active: &EpochRecord,
    pending: Option<&Transition>,
    request: &ScaleRequest,
    terms: ScaleTerms,
) -> Result<Transition, ScaleError> {
    let ranges = check_ranges(request)?;
    if matches!(terms.state, StreamState::Creating | StreamState::Sealing | StreamState::Sealed) {
        return Err(ScaleError::State(terms.state));
    }
    if let Some(pending) = pending {
        return if pending.answers(&request.seal, &ranges) {
            Ok(pending.clone())
        } else {
            Err(ScaleError::Pending { active_epoch: pending.active_epoch })
        };
    }
    check_sealed(active, &request.seal, &ranges)?;
    let count = active.segments.len() - request.seal.len() + ranges.len();
    if usize::try_from(terms.segments_min).is_ok_and(|min| count < min) {
        return Err(ScaleError::BelowMinimum { count, min: terms.segments_min });
    }
    if usize::try_from(SEGMENTS_MAX).is_ok_and(|max| max < count) {
        return Err(ScaleError::TooMany { count });
    }
    Ok(Transition::new(active, request.seal.clone(), &ranges, terms.origin, terms.now_ms)?)
}

/// The circumstances of a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleTerms {
    /// State of the stream.
    pub state: StreamState,
    /// The policy's minimum number of segments.
    pub segments_min: u32,
    /// Who asks.
    pub origin: ScaleOrigin,
    /// Time in milliseconds since 1970.
    pub now_ms: i64,
}

impl Transition {
    fn new(
        active: &EpochRecord,
        mut seal: Vec<SegmentId>,
        ranges: &[KeyRange],
        origin: ScaleOrigin,
        now_ms: i64,
    ) -> Result<Self, Exhausted> {
        seal.sort_unstable();
        // The clock may stand still or run backwards between two scales; the times of epochs may not.
        let created_ms = now_ms.max(active.created_ms.saturating_add(1));
        let epoch = active.epoch.checked_add(1).ok_or(Exhausted)?;
        let first_number = active.highest_number().checked_add(1).ok_or(Exhausted)?;
        let create = numbered(ranges.iter().copied(), first_number, epoch, created_ms)?;
        Ok(Self { active_epoch: active.epoch, created_ms, seal, create, origin })
    }

    /// Returns the number of the epoch that the scale creates.
    pub const fn new_epoch(&self) -> i32 {
        self.active_epoch + 1
    }

    /// Whether this is the scale that seals `seal` and creates `ranges`, in any order.
    fn answers(&self, seal: &[SegmentId], ranges: &[KeyRange]) -> bool {
        let mut seal = seal.to_vec();
        seal.sort_unstable();
        let mut asked = ranges.to_vec();
        asked.sort_by(KeyRange::order);
        let mut pending: Vec<KeyRange> = self.create.iter().map(|segment| segment.range).collect();
        pending.sort_by(KeyRange::order);
        self.seal == seal && asked == pending
    }

    /// Returns the epoch that the scale creates after `active`, the epoch from which it starts.
    ///
    /// # Errors
    /// [`Exhausted`] if no epoch number is left.
    pub fn apply(&self, active: &EpochRecord) -> Result<EpochRecord, Exhausted> {
        assert_eq!(self.active_epoch, active.epoch, "the epoch from which the scale starts");
        active.replaced(&self.seal, &self.create, self.created_ms)
    }

    /// Rewrites a pending scale for `active`, the epoch that is active now, or drops it.
    ///
    /// A rolling transaction may have duplicated the epoch from which the scale starts. The segments keep their
    /// numbers there, so a manual scale and a policy's go on with the duplicates; an automatic one is dropped, since
    /// the load will ask again. `None` also if the scale is done, that is if `active` is no duplicate of its epoch.
    ///
    /// # Errors
    /// [`Exhausted`] if no epoch number is left.
    pub fn migrate(&self, start: &EpochRecord, active: &EpochRecord) -> Result<Option<Self>, Exhausted> {
        assert_eq!(self.active_epoch, start.epoch, "the epoch from which the scale starts");
        if active.epoch == self.active_epoch {
            return Ok(Some(self.clone()));
        }
        if self.origin == ScaleOrigin::Auto || active.reference_epoch != start.reference_epoch {
            return Ok(None);
        }
        let seal: Option<Vec<SegmentId>> =
            self.seal.iter().map(|id| active.numbered(id.number()).map(Segment::id)).collect();
        let Some(seal) = seal else { return Ok(None) };
        let ranges: Vec<KeyRange> = self.create.iter().map(|segment| segment.range).collect();
        Self::new(active, seal, &ranges, self.origin, self.created_ms).map(Some)
    }
}

/// Decides whether a new policy replaces the segments, and by what.
///
/// A fixed policy sets the count; automatic ones raise it to the new minimum and never lower it. All segments are
/// replaced by equal ranges. A pending scale gives way to the transition returned.
///
/// # Errors
/// [`Exhausted`] if no number is left.
pub fn change_policy(
    active: &EpochRecord,
    policy: &ScalingPolicy,
    now_ms: i64,
) -> Result<Option<Transition>, Exhausted> {
    let min = policy.segments_min();
    let count = u32::try_from(active.segments.len()).unwrap_or(u32::MAX);
    let change = match policy {
        ScalingPolicy::Fixed { .. } => count != min,
        ScalingPolicy::ByKilobytes(_) | ScalingPolicy::ByEvents(_) => count < min,
    };
    if !change {
        return Ok(None);
    }
    let seal = active.segments.iter().map(Segment::id).collect();
    let ranges: Vec<KeyRange> = (0..min).map(|index| KeyRange::equal_part(index, min)).collect();
    Transition::new(active, seal, &ranges, ScaleOrigin::Policy, now_ms).map(Some)
}

/// Answers checkScale for a scale that was started while `epoch` was active.
///
/// `epoch` is not negative; the caller refuses that as an invalid argument.
pub fn check_scale(
    epoch: i32,
    active: &EpochRecord,
    state: StreamState,
    pending: Option<&Transition>,
) -> ScaleStatus {
    if epoch > active.epoch {
        return ScaleStatus::InvalidInput;
    }
    // The new epoch is active but old segments or the record of the scale still have to be cleared away.
    let unfinished = || {
        epoch.checked_add(1) == Some(active.reference_epoch)
            && state == StreamState::Scaling
            && pending.is_none_or(|pending| pending.new_epoch() == active.epoch)
    };
    if epoch == active.epoch || epoch == active.reference_epoch || unfinished() {
        ScaleStatus::InProgress
    } else {
        ScaleStatus::Success
    }
}

fn check_ranges(request: &ScaleRequest) -> Result<Vec<KeyRange>, ScaleError> {
    if request.seal.is_empty() || request.ranges.is_empty() {
        return Err(ScaleError::Empty { seal: request.seal.len(), create: request.ranges.len() });
    }
    let mut lows: Vec<f64> = request.ranges.iter().map(|(low, _)| *low + 0.0).collect();
    lows.sort_by(f64::total_cmp);
    if let Some([low, _]) = lows.array_windows::<2>().find(|[a, b]| a.to_bits() == b.to_bits()) {
        return Err(ScaleError::DuplicateRange { low: *low });
    }
    let parse = |&(low, high)| KeyRange::new(low, high).ok_or(ScaleError::InvalidRange { low, high });
    request.ranges.iter().map(parse).collect()
}

fn check_sealed(active: &EpochRecord, seal: &[SegmentId], ranges: &[KeyRange]) -> Result<(), ScaleError> {
    let mut sealed = Vec::with_capacity(seal.len());
    let mut seen = BTreeSet::new();
    for id in seal {
        sealed.push(active.segment(*id).ok_or(ScaleError::NotActive(*id))?.range);
        if !seen.insert(*id) {
            return Err(ScaleError::DuplicateSegment(*id));
        }
    }
    let mut created = ranges.to_vec();
    created.sort_by(KeyRange::order);
    sealed.sort_by(KeyRange::order);
    let covered = union(&created).is_some_and(|created| union(&sealed) == Some(created));
    if covered { Ok(()) } else { Err(ScaleError::NotCovering) }
}
