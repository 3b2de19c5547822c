//! The segment store: mapped log, segment state, index, tiering and its TCP server.

pub mod index;
pub mod log;
pub mod types;
