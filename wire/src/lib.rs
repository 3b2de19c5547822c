//! The bytes that clients, controller and segment stores exchange.
//!
//! [`command`] holds the commands of the segment store protocol, [`frame`] cuts a byte stream into them, [`block`]
//! puts appends together, [`limits`] holds
//! every limit a client can meet; `controller` is the controller's gRPC service and `peer` the
//! framed sockets. [`cut`] and
//! [`serializer`] are what clients store; [`name`], [`hash`] and [`range`] are
//! what all sides must agree on to find a segment. This crate decides nothing about streams or segments; it only says
//! how they are written.

mod base64;
mod gzip;

pub mod block;
pub mod codec;
pub mod command;
#[cfg(feature = "grpc")]
pub mod controller;
pub mod cut;
pub mod frame;
pub mod hash;
pub mod limits;
pub mod name;
#[cfg(feature = "peer")]
pub mod peer;
pub mod range;
pub mod serializer;
