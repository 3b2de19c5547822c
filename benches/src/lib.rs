//! Benchmarks as a share of the machine's limit.
//!
//! `append` writes to any Pravega-compatible server and prints beside each figure what disk and loopback gave in the
//! same run, how many flushes reached the disk, and what Redis Streams make of the same events. Nothing here is used
//! by the product.

pub mod flush;
pub mod latency;
pub mod limit;
pub mod load;
pub mod redis;
pub mod server;
