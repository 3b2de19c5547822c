//! Choices that a seed repeats.

use std::ops::Range;

/// A stream of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The choices of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream for one worker.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.number())
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of `range`, which is not empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// True once in `n` times on average.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.number().is_multiple_of(n)
    }
}
