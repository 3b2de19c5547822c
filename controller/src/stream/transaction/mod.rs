//! Transactions of a stream: ids, states and leases; below it the order in which they are merged.
//!
//! One row is one transaction. A state is final once it is final: nothing here turns a transaction that is to be
//! committed into one that is to be aborted, or the other way round.

pub mod round;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::round::{Merge, MergePlan, Rolling, RollingStart, Round, next_round};
use super::segment::SegmentId;

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
    /// That is one further lease after its end, within the longest life: clients exist that ping only once a lease,
    /// or a lease too late. `serving_since_ms` is when the controller began to take pings; while it did not, nobody
    /// could renew a lease, so each open transaction gets one from then on.
    pub fn abort_at_ms(&self, serving_since_ms: i64) -> i64 {
        let grace_end_ms = self.lease_end_ms.saturating_add(self.lease_ms);
        let latest_ms = self.execution_end_ms.max(self.lease_end_ms);
        grace_end_ms.min(latest_ms).max(serving_since_ms.saturating_add(self.lease_ms))
    }

    /// Whether the transaction is to be aborted now, see [`Transaction::abort_at_ms`].
    pub fn is_expired(&self, serving_since_ms: i64, now_ms: i64) -> bool {
        self.state == TransactionState::Open && self.abort_at_ms(serving_since_ms) <= now_ms
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
