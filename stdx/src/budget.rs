//! A budget counted in bytes. A permit travels inside what it accounts for, so that dropping the thing gives the
//! bytes back and no path can leak them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One semaphore permit stands for this many bytes, so that budgets beyond 4 GiB fit into its `u32` counts.
const UNIT_BYTES: u64 = 64;

/// Bytes that may be held at one time. Clones share the same bytes. Waiters are served first come, first served.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// Bytes taken out of a budget; dropping it gives them back.
#[derive(Debug)]
pub struct BytePermit {
    taken: OwnedSemaphorePermit,
}

impl ByteBudget {
    /// A budget of `bytes`, rounded up to 64; between 64 B and 256 GiB.
    pub fn new(bytes: u64) -> Self {
        let units_max = u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let permits =
            usize::try_from(units_max).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { units: Arc::new(Semaphore::new(permits)), units_max }
    }

    /// Takes `bytes`, waiting in line for them. A request above the whole budget takes all of it.
    ///
    /// # Cancel safety
    /// Dropped early: the place in line is lost and nothing was taken.
    pub async fn acquire(&self, bytes: u64) -> BytePermit {
        let units = self.units_of(bytes);
        let taken = Arc::clone(&self.units).acquire_many_owned(units).await;
        // The semaphore is private and never closed.
        #[allow(clippy::expect_used, reason = "a closed semaphore could only be a bug of this file")]
        let taken = taken.expect("byte budget is never closed");
        BytePermit { taken }
    }

    /// Takes `bytes` at once, or gives `None` if they are not there or others wait for them.
    pub fn try_acquire(&self, bytes: u64) -> Option<BytePermit> {
        let taken = Arc::clone(&self.units).try_acquire_many_owned(self.units_of(bytes)).ok()?;
        Some(BytePermit { taken })
    }

    /// Bytes that nobody holds.
    pub fn free(&self) -> u64 {
        u64::try_from(self.units.available_permits()).map_or(u64::MAX, |units| units * UNIT_BYTES)
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        (u64::from(self.units_max) * UNIT_BYTES).saturating_sub(self.free())
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max)
    }
}

impl BytePermit {
    /// Bytes held, rounded up to 64.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.taken.num_permits()).map_or(u64::MAX, |units| units * UNIT_BYTES)
    }

    /// Takes `bytes` of it out as a permit of their own; `None`, and nothing taken, if it holds fewer.
    pub fn split(&mut self, bytes: u64) -> Option<Self> {
        let units = usize::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        self.taken.split(units).map(|taken| Self { taken })
    }

    /// Adds what `other` holds, which must come from the same budget.
    pub fn merge(&mut self, other: Self) {
        self.taken.merge(other.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_are_served_in_the_order_they_came() {
        let budget = ByteBudget::new(128);
        let all = budget.acquire(128).await;
        let big = tokio::spawn({
            let budget = budget.clone();
            async move { budget.acquire(128).await }
        });
        tokio::task::yield_now().await;
        assert!(budget.try_acquire(1).is_none());
        drop(all);
        let big = big.await.unwrap();
        assert_eq!(big.bytes(), 128);
        drop(big);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn request_above_the_budget_takes_all_of_it() {
        let budget = ByteBudget::new(1 << 20);
        let permit = budget.acquire(u64::MAX).await;
        assert_eq!(permit.bytes(), 1 << 20);
        assert_eq!(budget.free(), 0);
    }

    #[tokio::test]
    async fn part_of_a_permit_is_given_back_alone() {
        let budget = ByteBudget::new(256);
        let mut permit = budget.acquire(192).await;
        assert!(permit.split(193).is_none());
        let part = permit.split(100).unwrap();
        assert_eq!((permit.bytes(), part.bytes(), budget.free()), (64, 128, 64));
        drop(part);
        assert_eq!((permit.bytes(), budget.free()), (64, 192));
    }

    #[tokio::test]
    async fn dropped_waiter_leaves_nothing_behind() {
        let budget = ByteBudget::new(64);
        let held = budget.try_acquire(64).unwrap();
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, budget.acquire(64)).await;
        assert!(waiting.is_err());
        drop(held);
        assert_eq!(budget.free(), 64);
        assert!(budget.try_acquire(64).is_some());
    }
}
