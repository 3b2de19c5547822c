//! Blocks of events, laid out from the first byte as the frame that carries them.
//!
//! Events go straight into the frame's buffer; closing a block only fills in the lengths and numbers around them, so
//! an event's bytes are copied once between the caller and the socket.

use super::ack::AckCell;
use bytes::{BufMut, Bytes, BytesMut};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{AppendBlockEnd, FRAME_HEADER_BYTES};
use std::sync::Arc;

/// Bytes before each event: type code 0 and length.
pub(super) const EVENT_HEADER_BYTES: usize = 8;
/// A block that holds this much is closed.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;

/// Frame header, writer id, size of whole events, length of data.
const HEAD_BYTES: usize = FRAME_HEADER_BYTES + 16 + 4 + 4;
/// Number of events, last event number, request id.
const TAIL_BYTES: usize = 4 + 8 + 8;

/// A block that takes events.
#[derive(Debug)]
pub(super) struct OpenBlock {
    frame: BytesMut,
    positions: Vec<f64>,
    cells: Vec<Arc<AckCell>>,
    /// The block whose cells were inherited last.
    heir_of: Option<u64>,
}

/// A block as it is sent. Its events are numbered up to `last_number`.
#[derive(Debug)]
pub(super) struct Block {
    frame: Bytes,
    positions: Vec<f64>,
    cells: Vec<Arc<AckCell>>,
    last_number: i64,
}

/// Which writer a block is for, and how the server is to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockAddress {
    pub(super) writer_id: Uuid,
    pub(super) request_id: i64,
}

impl OpenBlock {
    /// An empty block with room for `capacity` bytes of events.
    pub(super) fn new(capacity: usize) -> Self {
        let mut frame = BytesMut::with_capacity(HEAD_BYTES + capacity + TAIL_BYTES);
        frame.put_bytes(0, HEAD_BYTES);
        Self { frame, positions: Vec::new(), cells: vec![AckCell::new()], heir_of: None }
    }

    /// Bytes of events, headers included.
    pub(super) fn event_bytes(&self) -> usize {
        self.frame.len() - HEAD_BYTES
    }

    pub(super) fn is_full(&self) -> bool {
        self.event_bytes() >= BLOCK_BYTES
    }

    /// Adds `event`, which routes to `position`, and returns the cell that tells when it is durable.
    pub(super) fn push(&mut self, position: f64, event: &[u8]) -> &Arc<AckCell> {
        self.frame.put_u32(0);
        self.frame.put_u32(wire_length(event.len()));
        self.frame.put_slice(event);
        self.positions.push(position);
        &self.cells[0]
    }

    /// Makes `cells` of the closed block `block` depend on this one too.
    pub(super) fn inherit(&mut self, block: u64, cells: &[Arc<AckCell>]) {
        if self.heir_of.replace(block) != Some(block) {
            for cell in cells {
                cell.depend();
            }
            self.cells.extend_from_slice(cells);
        }
    }

    pub(super) fn cells(&self) -> &[Arc<AckCell>] {
        &self.cells
    }

    /// Numbers the events on from `number`, the last one given, and ends the frame.
    pub(super) fn close(mut self, to: BlockAddress, number: i64) -> Block {
        let events = wire_length(self.positions.len());
        let last_number = number + i64::from(events);
        let bytes = wire_length(self.event_bytes());
        self.frame.put_u32(events);
        self.frame.put_i64(last_number);
        self.frame.put_i64(to.request_id);
        let payload = wire_length(self.frame.len() - FRAME_HEADER_BYTES);
        let mut head = &mut self.frame[..HEAD_BYTES];
        head.put_i32(AppendBlockEnd::CODE);
        head.put_u32(payload);
        head.put_u128(to.writer_id.0);
        head.put_u32(bytes);
        head.put_u32(bytes);
        Block { frame: self.frame.freeze(), positions: self.positions, cells: self.cells, last_number }
    }
}

impl Block {
    /// The whole frame.
    pub(super) fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// Bytes of events, headers included.
    pub(super) fn event_bytes(&self) -> usize {
        self.frame.len() - HEAD_BYTES - TAIL_BYTES
    }

    pub(super) fn last_number(&self) -> i64 {
        self.last_number
    }

    pub(super) fn cells(&self) -> &[Arc<AckCell>] {
        &self.cells
    }

    /// The events with the positions they route to, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = (f64, &[u8])> {
        let mut rest = &self.frame[HEAD_BYTES..self.frame.len() - TAIL_BYTES];
        self.positions.iter().map(move |position| {
            let (header, after) = rest.split_at(EVENT_HEADER_BYTES);
            let length = header[4..].iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            let (event, after) = after.split_at(length);
            rest = after;
            (*position, event)
        })
    }
}

/// A length that is known to fit a frame.
fn wire_length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhara_wire::command::Command;
    use dhara_wire::frame::take_frame;

    #[test]
    fn closed_block_is_the_frame_of_a_whole_append() {
        let mut open = OpenBlock::new(0);
        open.push(0.25, b"hi");
        open.push(0.75, b"");
        let to = BlockAddress { writer_id: Uuid(7), request_id: 9 };
        let block = open.close(to, 40);
        let (code, payload) = take_frame(&mut BytesMut::from(&block.frame()[..])).unwrap().unwrap();
        let Command::AppendBlockEnd(end) = Command::decode(code, payload).unwrap() else { panic!() };
        assert_eq!((end.writer_id, end.request_id), (Uuid(7), 9));
        assert_eq!((end.num_events, end.last_event_number, end.size_of_whole_events), (2, 42, 18));
        assert_eq!(&end.data.0[..], b"\0\0\0\0\0\0\0\x02hi\0\0\0\0\0\0\0\0");
        assert_eq!(block.event_bytes(), 18);
        let events: Vec<_> = block.events().collect();
        assert_eq!(events, [(0.25, &b"hi"[..]), (0.75, &b""[..])]);
    }
}
