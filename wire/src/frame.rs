//! Cutting a byte stream into frames.

use crate::command::FRAME_HEADER_BYTES;
use crate::limits::PAYLOAD_BYTES_MAX;
use bytes::{Buf, Bytes, BytesMut};

/// A frame's header: what comes, and how many bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Type code of the command.
    pub code: i32,
    /// Bytes of payload that follow, `0..=PAYLOAD_BYTES_MAX`.
    pub payload_bytes: usize,
}

/// A frame header that promises a payload outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame of type {code} declares {length} payload bytes")]
pub struct FrameError {
    /// Type code in the header.
    pub code: i32,
    /// Declared payload length.
    pub length: i32,
}

impl FrameHeader {
    /// Reads a header from the front of `buffer` without consuming it; `None` if it is not complete.
    ///
    /// # Errors
    /// [`FrameError`] if the declared length is negative or above [`PAYLOAD_BYTES_MAX`].
    pub fn peek(buffer: &[u8]) -> Result<Option<Self>, FrameError> {
        Self::peek_up_to(buffer, PAYLOAD_BYTES_MAX)
    }

    /// Like [`FrameHeader::peek`], with another limit for the payload: replies may be larger than requests.
    ///
    /// # Errors
    /// [`FrameError`] if the declared length is negative or above `payload_bytes_max`.
    pub fn peek_up_to(buffer: &[u8], payload_bytes_max: usize) -> Result<Option<Self>, FrameError> {
        let Some(mut header) = buffer.get(..FRAME_HEADER_BYTES) else { return Ok(None) };
        let code = header.get_i32();
        let length = header.get_i32();
        match usize::try_from(length) {
            Ok(payload_bytes) if payload_bytes <= payload_bytes_max => Ok(Some(Self { code, payload_bytes })),
            _ => Err(FrameError { code, length }),
        }
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(self) -> usize {
        FRAME_HEADER_BYTES + self.payload_bytes
    }
}

/// Takes one whole frame from the front of `buffer`; `None` if it is not complete.
///
/// # Errors
/// [`FrameError`] if the header is illegal; the stream cannot be read further.
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<(i32, Bytes)>, FrameError> {
    let Some(header) = FrameHeader::peek(buffer)? else { return Ok(None) };
    if buffer.len() < header.frame_bytes() {
        return Ok(None);
    }
    let mut frame = buffer.split_to(header.frame_bytes());
    frame.advance(FRAME_HEADER_BYTES);
    Ok(Some((header.code, frame.freeze())))
}
