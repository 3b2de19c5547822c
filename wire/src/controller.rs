//! The controller's gRPC messages, client and server, generated from `proto/controller.proto`.
//!
//! Only the bytes are settled here: an absent message field is `None`, an unknown enum number stays an `i32`. What an
//! answer means is the controller's and the client's business.
//!
//! # Source
//! Package `io.pravega.controller.stream.api.grpc.v1` of Pravega 0.13.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

tonic::include_proto!("io.pravega.controller.stream.api.grpc.v1");
