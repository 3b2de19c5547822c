//! The controller: scopes, streams, epochs, transactions, reader groups and tables.
//!
//! Floors, each seeing only those below: `stream` decides and does nothing; `record` is what is stored and
//! `segment_client` how; `store` reads and writes rows; `workflow` carries out intents; `background` looks after what
//! nobody waits for; `service` is what a call means; `rpc` and `rest` translate what comes by `incoming`. [`start`] puts them together.

mod background;
mod config;
mod error;
mod incoming;
mod record;
mod rest;
mod rpc;
mod segment_client;
mod server;
mod service;
mod store;
pub mod stream;
mod workflow;

pub use config::{ControllerConfig, HostPort};
pub use error::StartError;
pub use server::{ControllerHandle, start};
