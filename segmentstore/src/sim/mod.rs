//! What a simulated world is made of besides `stdx`: an object store that fails, a wall clock, and a trace of it all.
//!
//! Nothing outside of tests and the `sim` feature uses this room.

mod clock;
pub mod store;
mod trace;

pub use clock::SimClock;
pub use trace::Trace;
