//! What the controller stores: rows, their keys, the tables they lie in, and their bytes (docs/formats.md).
//!
//! Nothing here reads or writes a table.

pub(crate) mod codec;
pub(crate) mod name;
pub(crate) mod scope;
pub(crate) mod stream;

#[cfg(test)]
mod tests;

pub(crate) use codec::{CorruptRow, Row};
