//! The simulated world: what a container stands on, made to fail in every way it may, repeatably by a seed.
//!
//! One thread and tokio's clock, paused: time jumps from one timer to the next, so an hour takes a moment and a seed
//! decides everything. Nothing outside of tests and the `sim` feature uses this room, and it holds no law of its own
//! about segments: it only knows what their clients were promised.

pub mod store;
mod trace;

pub use trace::Trace;
