//! The controller: scopes, streams, epochs, transactions, reader groups and tables.

pub mod stream;
