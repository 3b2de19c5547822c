//! Pravega's own Rust client against a running store. Nothing here starts or stops that store.

mod byte_stream;
mod events;
mod index;
mod scaling;
mod streams;
mod synchronizer;
mod table;
mod transactions;
mod world;
