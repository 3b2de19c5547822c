//! Why a controller does not start.

use std::io;
use std::net::SocketAddr;

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is outside its range.
    #[error("reading setting {setting} = {value}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
    },
    /// An address cannot be listened on.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The tables cannot be prepared.
    #[error("preparing the controller's tables")]
    Tables(#[source] Box<dyn std::error::Error + Send + Sync>),
}
