//! The simulated world: containers on a machine that fails in every way it may, and those who use them.
//!
//! One thread and tokio's clock, paused: time jumps from one timer to the next, so an hour takes a moment and a seed
//! decides everything. Nothing outside of tests and the `sim` feature uses this room, and it holds no law of its own
//! about segments: it only knows what their clients were promised.
//!
//! A [`run`] puts actors on a machine, lets fate deal its blows for a while, then relents, waits until everybody has
//! come to rest, and reckons: what was acknowledged or seen must be there, once, in its place, before and after
//! another power cut and a stop in order.

mod actor;
mod book;
mod court;
mod event;
mod fate;
mod front;
mod inspect;
mod log;
mod machine;
mod matrix;
mod run;

use dhara_stdx::SeededEntropy;

pub use matrix::{Blow, blows, run_blow};
pub use run::{Outcome, Violation, run, run_traced};

/// A number in `0..below`.
fn few(chance: &SeededEntropy, below: u32) -> u32 {
    u32::try_from(chance.below(below.into())).unwrap_or(0)
}

/// One of these.
fn one_of<T: Copy, const N: usize>(chance: &SeededEntropy, of: [T; N]) -> T {
    let at = u64::try_from(N).map(|count| chance.below(count)).and_then(usize::try_from);
    of[at.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
