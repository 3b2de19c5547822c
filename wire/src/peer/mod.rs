//! Framed sockets: reading and writing frames of the segment store protocol, and a client's connection.
//!
//! [`FrameReader`] and [`FrameWriter`] serve both ends; [`RawConnection`] sends requests and gives each its reply. None
//! of them knows what a command means, reconnects or tries again.

mod connection;
mod reader;
mod spares;
#[cfg(test)]
mod tests;
mod writer;

pub use connection::{CallError, CloseCause, ConnectError, ConnectionConfig, RawConnection};
pub use reader::{Frame, FrameReader, ReadError, ReaderConfig};
pub use writer::{FrameWriter, WriteError};

use std::time::Duration;

/// A frame begun must end, and a reply begun must leave, within this time.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_mins(1);
