//! Append blocks: putting together what a writer appends, and making blocks to send.
//!
//! A block is an [`AppendBlock`] and the [`AppendBlockEnd`] after it. The writer fixes the block's size before it knows
//! its events, so the block holds whole events only (*exact*), or ends in padding (*padded*), or in the first part of
//! an event whose rest is in the end (*straddle*). An end without a block is a whole append. In all shapes the bytes
//! are one atomic append; what they mean is between writers and readers.
//!
//! # Source
//! Pravega's `AppendDecoder` and `CommandEncoder`.

mod builder;
#[cfg(test)]
mod tests;

pub use builder::{BlockBuilder, EventTooLarge};

use crate::codec::Uuid;
use crate::command::{AppendBlock, AppendBlockEnd, Command, Padding, PartialEvent};
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the header of an element in a block: type and length, each an `i32`.
pub const ELEMENT_HEADER_BYTES: usize = 8;

/// Why a block is no append. The connection cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Another append command came between a block and its end.
    #[error("{command} came before the end of the open block")]
    Interrupted {
        /// The command.
        command: &'static str,
    },
    /// The end names another writer than the block.
    #[error("block of writer {block} is ended by writer {end}")]
    Writer {
        /// The block's writer.
        block: Uuid,
        /// The end's writer.
        end: Uuid,
    },
    /// The append says that it holds no event.
    #[error("append of {num_events} events")]
    EventCount {
        /// Events it says.
        num_events: i32,
    },
    /// The whole events cannot take so many bytes.
    #[error("whole events take {whole_bytes} bytes of a block of {block_bytes}")]
    WholeEvents {
        /// Bytes it says.
        whole_bytes: i32,
        /// Bytes in the block.
        block_bytes: usize,
    },
    /// Too few bytes follow the whole events for an element's header.
    #[error("block ends {bytes} bytes into an element's header")]
    ElementHeader {
        /// Bytes after the whole events.
        bytes: usize,
    },
    /// What follows the whole events is neither padding nor a partial event.
    #[error("whole events are followed by an element of type {code}")]
    ElementType {
        /// The element's type code.
        code: i32,
    },
    /// The last element does not end where the block ends.
    #[error("last element says {length} bytes, the block has {bytes}")]
    ElementLength {
        /// Bytes it says.
        length: i32,
        /// Bytes in the block after its header.
        bytes: usize,
    },
    /// The end brings data although no event of the block lacks its rest.
    #[error("{bytes} bytes come after a block that is whole")]
    Surplus {
        /// Bytes of data in the end.
        bytes: usize,
    },
}

/// An unconditional append, whatever blocks it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The writer, set up before on the same connection.
    pub writer_id: Uuid,
    /// What is appended; may be empty, and is then acknowledged like any other append.
    pub data: Bytes,
    /// Events in it, at least 1.
    pub num_events: i32,
    /// Number of the last event; in the writer's count.
    pub last_event_number: i64,
    /// What the acknowledgement echoes; -1 from writers that send none.
    pub request_id: i64,
}

/// Joins blocks with their ends, for one connection.
#[derive(Debug, Default)]
pub struct BlockAssembler {
    open: Option<AppendBlock>,
}

impl BlockAssembler {
    /// Starts without an open block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a block waits for its end.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Checks that `command` may come now. Any may that has nothing to do with appending.
    ///
    /// # Errors
    /// [`BlockError::Interrupted`] if a block is open and `command` sets up or does another append.
    pub fn check(&self, command: &Command) -> Result<(), BlockError> {
        let interrupts = matches!(
            command,
            Command::AppendBlock(_)
                | Command::SetupAppend(_)
                | Command::ConditionalAppend(_)
                | Command::ConditionalBlockEnd(_)
                | Command::Padding(_)
                | Command::PartialEvent(_)
                | Command::TopLevelEvent(_)
        );
        if self.is_open() && interrupts {
            Err(BlockError::Interrupted { command: command.name() })
        } else {
            Ok(())
        }
    }

    /// Takes a block, whose end must come next.
    ///
    /// # Errors
    /// [`BlockError::Interrupted`] if another one is open.
    pub fn begin(&mut self, block: AppendBlock) -> Result<(), BlockError> {
        if self.is_open() {
            return Err(BlockError::Interrupted { command: "AppendBlock" });
        }
        self.open = Some(block);
        Ok(())
    }

    /// Takes an end and returns the append that it makes with the open block, or alone.
    ///
    /// The data is a slice of what came, and copied only if it lies in both.
    ///
    /// # Errors
    /// [`BlockError`] if the two do not fit each other.
    pub fn end(&mut self, end: AppendBlockEnd) -> Result<Append, BlockError> {
        let block = self.open.take();
        if let Some(block) = &block
            && block.writer_id != end.writer_id
        {
            return Err(BlockError::Writer { block: block.writer_id, end: end.writer_id });
        }
        if end.num_events <= 0 {
            return Err(BlockError::EventCount { num_events: end.num_events });
        }
        let data = match block {
            Some(block) => join(block.data.0, end.size_of_whole_events, &end.data.0)?,
            None => end.data.0,
        };
        let AppendBlockEnd { writer_id, num_events, last_event_number, request_id, .. } = end;
        Ok(Append { writer_id, data, num_events, last_event_number, request_id })
    }
}

/// Joins the data of a block, of which `whole_bytes` are whole events, with the `rest` in its end.
fn join(block: Bytes, whole_bytes: i32, rest: &[u8]) -> Result<Bytes, BlockError> {
    let block_bytes = block.len();
    let whole = usize::try_from(whole_bytes).ok().filter(|whole| *whole <= block_bytes);
    let whole = whole.ok_or(BlockError::WholeEvents { whole_bytes, block_bytes })?;
    let surplus = if rest.is_empty() { Ok(()) } else { Err(BlockError::Surplus { bytes: rest.len() }) };
    if whole == block_bytes {
        return surplus.map(|()| block);
    }
    let mut element = block.slice(whole..);
    if element.len() < ELEMENT_HEADER_BYTES {
        return Err(BlockError::ElementHeader { bytes: element.len() });
    }
    let (code, length) = (element.get_i32(), element.get_i32());
    if usize::try_from(length) != Ok(element.len()) {
        return Err(BlockError::ElementLength { length, bytes: element.len() });
    }
    match code {
        Padding::CODE => surplus.map(|()| block.slice(..whole)),
        PartialEvent::CODE => {
            let mut data = BytesMut::with_capacity(whole + element.len() + rest.len());
            data.extend_from_slice(&block[..whole]);
            data.extend_from_slice(&element);
            data.extend_from_slice(rest);
            Ok(data.freeze())
        }
        _ => Err(BlockError::ElementType { code }),
    }
}
