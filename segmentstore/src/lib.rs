//! The segment store: mapped log, segment state, index, tiering and its TCP server.
//!
//! [`store`] opens everything and keeps it open. Bytes come in through [`server`], are judged and numbered by their
//! [`container`], made durable by the [`log`], found again through the [`index`], and shown to readers by [`read`];
//! the [`tier`] keeps them for good, in an object store.

pub mod container;
pub mod index;
pub mod load;
pub mod log;
pub mod operation;
pub mod read;
pub mod server;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod state;
pub mod store;
pub mod tier;
pub mod types;
#[cfg(any(test, feature = "sim"))]
pub mod world;
