//! A connection for appends: made here, served by its writer.
//!
//! Requests with replies go over [`dhara_wire::peer::RawConnection`]; appends are answered by number, many by one
//! reply, so they need the bare frames.

use super::SegmentError;
use crate::config::ClientConfig;
use dhara_wire::command::{Command, Hello};
use dhara_wire::limits::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use dhara_wire::peer::{ConnectError, FrameReader, FrameWriter, ReaderConfig};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Both sides of a connection over which Hello has been exchanged.
pub(crate) type Dialed = (FrameReader<OwnedReadHalf>, FrameWriter<OwnedWriteHalf>);

/// Connects to `address` and exchanges Hello.
///
/// # Errors
/// [`SegmentError::Connect`] if that does not succeed within the configured time.
/// # Cancel safety
/// Dropped early: no connection is left.
pub(crate) async fn dial(address: &str, config: &ClientConfig) -> Result<Dialed, SegmentError> {
    let limit = config.connect_timeout;
    let dialed = tokio::time::timeout(limit, shake_hands(address)).await;
    let dialed = dialed.unwrap_or(Err(ConnectError::Slow { limit }));
    dialed.map_err(|source| SegmentError::Connect { address: address.to_owned(), source })
}

async fn shake_hands(address: &str) -> Result<Dialed, ConnectError> {
    let connected = dhara_stdx::net::connect(address).await;
    let socket = connected.map_err(|source| ConnectError::Io { addr: address.to_owned(), source })?;
    let (source, sink) = socket.into_split();
    let mut reader = FrameReader::new(source, ReaderConfig::default());
    let mut writer = FrameWriter::new(sink);
    writer.push(&Hello { high_version: WIRE_VERSION, low_version: OLDEST_WIRE_VERSION }.into());
    writer.flush().await?;
    let frame = reader.next().await?.ok_or(ConnectError::NoHello)?;
    let Ok(Command::Hello(Hello { high_version: high, low_version: low })) = frame.command() else {
        return Err(ConnectError::NoHello);
    };
    if low > WIRE_VERSION || high < OLDEST_WIRE_VERSION {
        return Err(ConnectError::Version { high, low });
    }
    Ok((reader, writer))
}
