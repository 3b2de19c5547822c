//! What readers see: published views of segments, and the bytes behind them.
//!
//! A [`View`] shows applied state only, so whatever it shows is durable. Readers never pass through the container's
//! task: they take a short lock on a view, copy the pieces they need and fetch the bytes without it.

mod cold;
mod loads;
mod pins;
mod table;
mod view;
mod views;

pub use cold::{ColdCache, ColdError, ColdReader, ReadConfig};
pub(crate) use loads::Traffic;
pub use loads::{Load, LoadPage, Loads};
pub use pins::Pins;
pub use table::{TablePage, TableRead, TableReadError};
pub(crate) use table::{decode_row, encode_row};
pub(crate) use view::log_chunks;
pub use view::{ColdBytes, Look, ReadError, ReadReply, View};
pub use views::Views;
