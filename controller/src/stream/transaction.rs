//! Transactions of a stream: ids, states, leases, and the order in which they are merged.
//!
//! One row is one transaction. A state is final once it is final: nothing here turns a transaction that is to be
//! committed into one that is to be aborted, or the other way round.

use std::fmt;

use super::epoch::{EpochRecord, Exhausted, RollingEpochs};
use super::segment::SegmentId;

/// Most transactions merged in one round.
pub const ROUND_MAX: usize = 100;

/// The 128-bit id of a transaction: epoch in the top 32 bits, below it a counter that never repeats.
///
/// The low half is never negative, because clients exist that sign-extend it over the high half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// Most significant half.
    pub high: i64,
    /// Least significant half.
    pub low: i64,
}

impl TransactionId {
    /// Builds the id of the `counter`-th transaction, begun in `epoch`.
    ///
    /// `epoch` is the reference epoch of the active one, so that duplicates of an epoch share its transactions.
    pub fn new(epoch: i32, counter: u64) -> Self {
        // The low half has 63 bits for the counter; its top bit goes to the high half.
        let high = (i64::from(epoch) << 32) | i64::from(counter >> 63 == 1);
        Self { high, low: (counter & (u64::MAX >> 1)).cast_signed() }
    }

    /// Returns the epoch in which the transaction was begun.
    pub const fn epoch(self) -> i32 {
        let [epoch @ .., _, _, _, _] = self.high.to_be_bytes();
        i32::from_be_bytes(epoch)
    }

    /// Returns the id under which clients know segment `number` inside this transaction.
    ///
    /// Its epoch is the transaction's, whatever epoch created the segment: clients derive the name of the
    /// transaction segment from it.
    pub fn segment(self, number: i32) -> SegmentId {
        SegmentId::new(self.epoch(), number)
    }
}

impl fmt::Display for TransactionId {
    /// Writes the 32 hex digits that end the names of the transaction's segments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

/// State of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// Being written.
    Open,
    /// To be merged; its place in the order is fixed.
    Committing,
    /// Merged.
    Committed,
    /// To be dropped.
    Aborting,
    /// Dropped.
    Aborted,
}

/// Row of one transaction that is not completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its id.
    pub id: TransactionId,
    /// Its state.
    pub state: TransactionState,
    /// Time of its begin in milliseconds since 1970.
    pub created_ms: i64,
    /// The lease last granted, in milliseconds.
    pub lease_ms: i64,
    /// End of the lease, in milliseconds since 1970.
    pub lease_end_ms: i64,
    /// Time after which no ping helps, in milliseconds since 1970.
    pub execution_end_ms: i64,
    /// What the commit call said; `None` before it.
    pub commit: Option<Commit>,
}

/// What a commit call says and where it puts the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Place in the stream's order of commit calls.
    pub order: u64,
    /// Time in milliseconds since 1970 of the call.
    pub called_ms: i64,
    /// The writer and the time it notes, in the application's own unit, if it takes part in watermarks.
    pub mark: Option<(String, i64)>,
}

/// Limits of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Shortest lease that can be asked for, in milliseconds.
    pub lease_min_ms: i64,
    /// Longest lease that can be asked for, in milliseconds.
    pub lease_max_ms: i64,
    /// Longest life of a transaction, in milliseconds.
    pub execution_max_ms: i64,
}

impl LeaseLimits {
    /// Pravega's limits: leases of 10 s to 10 min, a life of one day.
    pub const PRAVEGA: Self =
        Self { lease_min_ms: 10_000, lease_max_ms: 600_000, execution_max_ms: 24 * 60 * 60 * 1000 };
}

/// A lease outside the limits. The begin call reports it as an invalid argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("leasing for {lease_ms} ms, allowed {min_ms} to {max_ms}")]
pub struct LeaseOutOfRange {
    /// The lease asked for.
    pub lease_ms: i64,
    /// The shortest allowed.
    pub min_ms: i64,
    /// The longest allowed.
    pub max_ms: i64,
}

/// What a ping leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ping {
    /// The lease is renewed; write this row and answer OK.
    Renewed(Transaction),
    /// The lease is outside the limits.
    LeaseOutOfRange(LeaseOutOfRange),
    /// The lease would last longer than the transaction may live.
    MaxExecutionTimeExceeded,
    /// Committing or committed.
    Committed,
    /// Aborting or aborted.
    Aborted,
}

/// What a commit or abort call leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Write this row and answer SUCCESS.
    Start(Transaction),
    /// It has been decided so before; answer SUCCESS.
    Already,
    /// The opposite has been decided; answer FAILURE.
    Refused(TransactionState),
}

impl Transaction {
    /// Begins a transaction.
    ///
    /// # Errors
    /// [`LeaseOutOfRange`] if the lease is outside the limits.
    pub fn begin(
        id: TransactionId,
        lease_ms: i64,
        limits: LeaseLimits,
        now_ms: i64,
    ) -> Result<Self, LeaseOutOfRange> {
        limits.check(lease_ms)?;
        let life_ms = lease_ms.saturating_mul(1000).min(limits.execution_max_ms);
        Ok(Self {
            id,
            state: TransactionState::Open,
            created_ms: now_ms,
            lease_ms,
            lease_end_ms: now_ms.saturating_add(lease_ms),
            execution_end_ms: now_ms.saturating_add(life_ms),
            commit: None,
        })
    }

    /// Decides a ping.
    pub fn ping(&self, lease_ms: i64, limits: LeaseLimits, now_ms: i64) -> Ping {
        match self.state {
            TransactionState::Committing | TransactionState::Committed => return Ping::Committed,
            TransactionState::Aborting | TransactionState::Aborted => return Ping::Aborted,
            TransactionState::Open => {}
        }
        if let Err(error) = limits.check(lease_ms) {
            return Ping::LeaseOutOfRange(error);
        }
        let lease_end_ms = now_ms.saturating_add(lease_ms);
        if lease_end_ms > self.execution_end_ms {
            return Ping::MaxExecutionTimeExceeded;
        }
        // Two controllers' clocks may differ: a ping never takes away what an earlier one has granted.
        Ping::Renewed(Self { lease_ms, lease_end_ms: lease_end_ms.max(self.lease_end_ms), ..self.clone() })
    }

    /// Decides a commit call.
    pub fn commit(&self, commit: Commit) -> Ending {
        match self.state {
            TransactionState::Open => {
                let state = TransactionState::Committing;
                Ending::Start(Self { state, commit: Some(commit), ..self.clone() })
            }
            TransactionState::Committing | TransactionState::Committed => Ending::Already,
            TransactionState::Aborting | TransactionState::Aborted => Ending::Refused(self.state),
        }
    }

    /// Decides an abort call, and the end of an expired transaction.
    pub fn abort(&self) -> Ending {
        match self.state {
            TransactionState::Open => {
                Ending::Start(Self { state: TransactionState::Aborting, ..self.clone() })
            }
            TransactionState::Aborting | TransactionState::Aborted => Ending::Already,
            TransactionState::Committing | TransactionState::Committed => Ending::Refused(self.state),
        }
    }

    /// Returns the time from which the transaction is aborted if nobody pings, in milliseconds since 1970.
    ///
    /// That is one further lease after its end: clients exist that ping only once a lease, or a lease too late.
    /// The grace never goes beyond the longest life.
    pub fn abort_at_ms(&self) -> i64 {
        self.lease_end_ms.saturating_add(self.lease_ms).min(self.execution_end_ms.max(self.lease_end_ms))
    }

    /// Whether the transaction is to be aborted now.
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.state == TransactionState::Open && self.abort_at_ms() <= now_ms
    }
}

impl TransactionState {
    /// Returns the state in which a transaction ends that is on its way there.
    pub const fn completed(self) -> Option<Self> {
        match self {
            Self::Open => None,
            Self::Committing | Self::Committed => Some(Self::Committed),
            Self::Aborting | Self::Aborted => Some(Self::Aborted),
        }
    }
}

impl LeaseLimits {
    /// Checks a lease.
    ///
    /// # Errors
    /// [`LeaseOutOfRange`] if it is outside the limits.
    pub fn check(&self, lease_ms: i64) -> Result<(), LeaseOutOfRange> {
        if (self.lease_min_ms..=self.lease_max_ms).contains(&lease_ms) {
            Ok(())
        } else {
            Err(LeaseOutOfRange { lease_ms, min_ms: self.lease_min_ms, max_ms: self.lease_max_ms })
        }
    }
}

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
