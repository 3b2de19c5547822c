//! Benchmarks as a share of the machine's limit.
