//! The order in which transactions are merged into the segments of their stream.
//!
//! A commit call takes a place in the stream's queue. Rounds are taken from the queue one after the other, and each is
//! written down before its first merge: merging it again changes nothing.

use super::super::epoch::{EpochRecord, Exhausted, RollingEpochs};
use super::super::segment::SegmentId;
use super::TransactionId;

/// Most transactions merged in one round.
pub const ROUND_MAX: usize = 100;

/// Transactions that are merged together, written before their first merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The epoch in which all of them were begun.
    pub epoch: i32,
    /// The transactions, in the order in which they are merged.
    pub transactions: Vec<TransactionId>,
    /// Where a rolling round starts; `None` if the round merges into the active segments.
    pub rolling: Option<RollingStart>,
}

/// Where a rolling round starts. It is kept with the round so that a repetition makes the same epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollingStart {
    /// The active epoch when the round was decided.
    pub active_epoch: i32,
    /// Time of the decision in milliseconds since 1970.
    pub decided_ms: i64,
}

/// How a round is merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergePlan {
    /// Into the active segments.
    Direct(Vec<Merge>),
    /// Into duplicates of the transactions' epoch, made for the purpose.
    Rolling(Box<Rolling>),
}

/// A rolling round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rolling {
    /// The two epochs to create.
    pub epochs: RollingEpochs,
    /// The merges into the first of them.
    pub merges: Vec<Merge>,
}

/// All merges into one segment; atomic, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The segment that grows.
    pub target: SegmentId,
    /// The transaction segments' parents under the transactions' epoch, with the transaction each.
    pub sources: Vec<(SegmentId, TransactionId)>,
}

/// Chooses the next round from the stream's queue of commit calls.
///
/// `queue` comes in the order of the calls. Of the epochs present the lowest goes first, so that one rolling round
/// serves all its transactions. Within an epoch the order of the calls decides; a transaction begun after another's
/// commit call never has the lower epoch, so it never overtakes it.
pub fn next_round(queue: &[TransactionId]) -> Option<Round> {
    let epoch = queue.iter().map(|id| id.epoch()).min()?;
    let transactions = queue.iter().copied().filter(|id| id.epoch() == epoch).take(ROUND_MAX).collect();
    Some(Round { epoch, transactions, rolling: None })
}

impl Round {
    /// Decides whether the round rolls, before it is written for the first time.
    ///
    /// `begun` is the epoch in which its transactions were begun. A duplicate of that epoch takes their data as the
    /// epoch itself does; any other active epoch has other segments.
    #[must_use]
    pub fn decided(self, begun: &EpochRecord, active: &EpochRecord, now_ms: i64) -> Self {
        assert_eq!(self.epoch, begun.epoch, "the epoch of the round");
        let direct = active.epoch == begun.epoch || active.reference_epoch == begun.reference_epoch;
        let start = RollingStart { active_epoch: active.epoch, decided_ms: now_ms };
        Self { rolling: (!direct).then_some(start), ..self }
    }

    /// Returns what a decided round does; the same each time.
    ///
    /// `active` is the active epoch, for a rolling round the one from which it starts.
    ///
    /// # Errors
    /// [`Exhausted`] if no epoch numbers are left.
    pub fn plan(&self, begun: &EpochRecord, active: &EpochRecord) -> Result<MergePlan, Exhausted> {
        assert_eq!(self.epoch, begun.epoch, "the epoch of the round");
        let Some(start) = self.rolling else {
            return Ok(MergePlan::Direct(self.merges(active)));
        };
        assert_eq!(start.active_epoch, active.epoch, "the epoch from which the round starts");
        let epochs = active.rolled(begun, start.decided_ms)?;
        let merges = self.merges(&epochs.transactions);
        Ok(MergePlan::Rolling(Box::new(Rolling { epochs, merges })))
    }

    /// Returns the merges into the segments of `epoch`, one entry per segment, ordered by range.
    fn merges(&self, epoch: &EpochRecord) -> Vec<Merge> {
        let merge = |target: SegmentId| Merge {
            target,
            sources: self.transactions.iter().map(|id| (id.segment(target.number()), *id)).collect(),
        };
        epoch.segments.iter().map(|segment| merge(segment.id())).collect()
    }
}
