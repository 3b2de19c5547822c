//! The bytes that clients, controller and segment stores exchange.
//!
//! [`command`] holds the commands of the segment store protocol, [`frame`] cuts a byte stream into them, [`limits`]
//! every limit a client can meet. This crate decides nothing about streams or segments; it only says how they are
//! written.

pub mod codec;
pub mod command;
pub mod frame;
pub mod limits;
