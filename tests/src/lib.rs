//! Conformance, end-to-end and crash tests; nothing depends on this package.
//!
//! The library holds what several test files share; none of it knows a type of the server. It speaks to a running
//! `dhara` as any stranger would: by the segment store protocol, by gRPC, by signals.

pub mod crash;
mod ledger;
pub mod outage;
pub mod power_cut;
pub mod replay;
pub mod s3;
pub mod server;
pub mod session;
pub mod truth;
