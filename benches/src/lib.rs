//! Benchmarks as a share of the machine's limit.
//!
//! `append` writes to any Pravega-compatible server and prints beside each figure what disk and loopback gave in the
//! same run, how many flushes reached the disk, and what Redis Streams make of the same events. `tier` looks at what
//! long-term storage costs and gives: reading from it, writing to it, and starting without it. Nothing here is used by
//! the product.

pub mod fill;
pub mod flush;
pub mod folder;
pub mod latency;
pub mod limit;
pub mod load;
pub mod metronome;
pub mod pace;
pub mod redis;
pub mod server;
pub mod wire;
