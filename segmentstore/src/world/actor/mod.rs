//! Those who use the store: each does what a client may do, and knows what it was promised.

mod lane;
mod pen;
mod reader;
mod solo;
mod table;
mod transaction;
mod writer;

pub(super) use lane::Lane;
pub(super) use reader::{Looked, read_all};
pub(super) use solo::{flushes, phoenix, rivals};
pub(super) use table::table;
pub(super) use transaction::{transactions, transients};
pub(super) use writer::writer;
