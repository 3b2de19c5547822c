//! The appends of one writer to one segment: numbered, in order, each held until it is durable.

use super::ack::AckCell;
use super::block::{Block, BlockAddress, EVENT_HEADER_BYTES, OpenBlock};
use super::lane::{LaneId, RoundId};
use super::state::Slot;
use dhara_wire::codec::Uuid;
use dhara_wire::name::SegmentName;
use std::collections::VecDeque;
use std::sync::Arc;

/// Where a segment stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No connection; the supervisor is to find one.
    Homeless,
    /// SetupAppend is to be sent or answered.
    SettingUp,
    /// Appends may be sent.
    Ready,
    /// The segment takes no more appends; its events are to go to its successors.
    Sealed,
    /// Its events have gone to its successors.
    Replaced,
}

/// What a writer holds for one segment.
#[derive(Debug)]
pub(super) struct SegmentStream {
    pub(super) name: SegmentName,
    pub(super) writer_id: Uuid,
    pub(super) phase: Phase,
    pub(super) lane: Option<LaneId>,
    /// Sent and not acknowledged.
    pub(super) sent: VecDeque<(Block, RoundId)>,
    /// Event bytes that are not sent.
    pub(super) waiting_bytes: usize,
    /// Whether the lane's ready list names this stream.
    pub(super) listed: bool,
    /// Closed and not sent.
    queue: VecDeque<Block>,
    open: Option<OpenBlock>,
    request_id: i64,
    /// The last number given to an event.
    number: i64,
    /// Event bytes of the last closed block; the next one gets as much room.
    block_bytes: usize,
}

impl SegmentStream {
    pub(super) fn new(slot: Slot, name: SegmentName, writer_id: Uuid) -> Self {
        Self {
            name,
            writer_id,
            phase: Phase::Homeless,
            lane: None,
            sent: VecDeque::new(),
            waiting_bytes: 0,
            listed: false,
            queue: VecDeque::new(),
            open: None,
            request_id: i64::try_from(slot).unwrap_or(i64::MAX),
            number: 0,
            block_bytes: 0,
        }
    }

    /// Adds an event at the end. One that was in the closed block `from` brings that block's cells.
    pub(super) fn push(
        &mut self,
        position: f64,
        event: &[u8],
        from: Option<(u64, &[Arc<AckCell>])>,
    ) -> &Arc<AckCell> {
        if self.open.as_ref().is_some_and(OpenBlock::is_full) {
            self.close();
        }
        self.waiting_bytes += EVENT_HEADER_BYTES + event.len();
        let room = self.block_bytes;
        let open = self.open.get_or_insert_with(|| OpenBlock::new(room));
        if let Some((block, cells)) = from {
            open.inherit(block, cells);
        }
        open.push(position, event)
    }

    /// Takes the next block to send.
    pub(super) fn next_block(&mut self) -> Option<Block> {
        if self.queue.is_empty() {
            self.close();
        }
        let block = self.queue.pop_front()?;
        self.waiting_bytes -= block.event_bytes();
        Some(block)
    }

    /// Takes the blocks at the front whose events are all numbered up to `last_number`.
    pub(super) fn take_stored(&mut self, last_number: i64) -> Vec<Block> {
        let stored = self.queue.iter().take_while(|block| block.last_number() <= last_number).count();
        let blocks: Vec<_> = self.queue.drain(..stored).collect();
        self.waiting_bytes -= blocks.iter().map(Block::event_bytes).sum::<usize>();
        blocks
    }

    /// The connection is gone: what was sent waits again, in front of everything else.
    pub(super) fn rewind(&mut self) {
        self.phase = Phase::Homeless;
        self.lane = None;
        self.listed = false;
        while let Some((block, _round)) = self.sent.pop_back() {
            self.waiting_bytes += block.event_bytes();
            self.queue.push_front(block);
        }
    }

    /// Takes every block that is not acknowledged, in order.
    pub(super) fn take_all(&mut self) -> Vec<Block> {
        self.close();
        self.waiting_bytes = 0;
        let sent = self.sent.drain(..).map(|(block, _round)| block);
        sent.chain(self.queue.drain(..)).collect()
    }

    /// The cells of everything that is not acknowledged.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Arc<AckCell>> {
        let sent = self.sent.iter().map(|(block, _round)| block);
        let closed = sent.chain(&self.queue).flat_map(Block::cells);
        closed.chain(self.open.iter().flat_map(OpenBlock::cells))
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.block_bytes = open.event_bytes();
            let to = BlockAddress { writer_id: self.writer_id, request_id: self.request_id };
            let block = open.close(to, self.number);
            self.number = block.last_number();
            self.queue.push_back(block);
        }
    }
}
