//! A Rust client for Dhara and every Pravega-compatible server.
//!
//! A [`Client`] knows one controller and hands out everything else: [`Admin`] creates and changes scopes and streams,
//! [`EventWriter`] writes events by key, [`StreamReader`] reads a stream from given positions, [`SegmentReader`] reads
//! the bytes of one segment. All of them share the client's connections and are cheap to make.
//!
//! ```no_run
//! # async fn run() -> Result<(), dhara_client::Error> {
//! use dhara_client::{Client, ClientConfig, ReadFrom, ReadUntil, StreamSettings};
//!
//! let client = Client::connect("tcp://127.0.0.1:9090", ClientConfig::default()).await?;
//! let stream = "sensors/temperature".parse()?;
//! client.admin().create_scope("sensors").await?;
//! client.admin().create_stream(&stream, &StreamSettings::fixed(4)).await?;
//!
//! let writer = client.event_writer(&stream).await?;
//! writer.write(b"21.5", Some("room 7")).await?.durable().await?;
//!
//! let mut reader = client.stream_reader(&stream, ReadFrom::Head, ReadUntil::Tail).await?;
//! while let Some(event) = reader.next().await? {
//!     assert_eq!(&event.data[..], b"21.5");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here decides what a server does: the same client talks to Pravega.

mod admin;
mod client;
mod config;
mod controller;
mod core;
mod event_reader;
mod event_writer;
mod segment;

pub use admin::{Admin, SegmentInfo, StreamInfo};
pub use client::{Client, Error};
pub use config::{ClientConfig, RetryPolicy};
pub use controller::{
    Controller, ControllerError, Page, Refusal, Retention, Scaling, SegmentWithRange, StreamSettings,
    Successor,
};
pub use event_reader::{Event, ReadError, ReadFrom, ReadUntil, SegmentRead, SegmentReader, StreamReader};
pub use event_writer::{Ack, EventWriter, WriteError};
pub use segment::{RequestError, SegmentError, SegmentState};

pub use dhara_stdx::Retry;
pub use dhara_wire::name::{NameError, SegmentId, SegmentName, StreamName};
pub use dhara_wire::range::KeyRange;
