//! The one binary: servers and command line.

fn main() {}
