//! What waits to be sent on one connection, and how much of it may go at once.
//!
//! Sending goes in rounds: all that waits, up to a limit. A few rounds may be un-acknowledged; while they are, events
//! gather, and only a full round's worth goes out early. So blocks are as large as the load makes them and as small as
//! an idle writer's single event, without a clock or a setting.

use super::state::Slot;
use bytes::{Bytes, BytesMut};
use dhara_wire::codec::Uuid;
use dhara_wire::command::{KeepAlive, SetupAppend};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// A connection's place in its writer. Never used again.
pub(super) type LaneId = usize;
/// Counts the rounds of a lane.
pub(super) type RoundId = u64;

/// Rounds that may be un-acknowledged while less than a full round waits: one in the server's log, one on its way.
const ROUNDS_MAX: usize = 2;
/// As much as this goes out however many rounds are un-acknowledged.
const ROUND_BYTES: usize = 256 * 1024;
/// A round ends at or above this many bytes.
const ROUND_BYTES_MAX: usize = 1024 * 1024;

/// What a connection may send at once.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Whole frames, in order.
    pub(super) frames: VecDeque<Bytes>,
    event_bytes: usize,
}

/// The queue of one connection.
#[derive(Debug)]
pub(super) struct LaneQueue {
    wake: Arc<Notify>,
    /// Whether the connection's task looks, or will look, at this queue without being woken.
    awake: bool,
    setups: VecDeque<Slot>,
    ready: VecDeque<Slot>,
    waiting_bytes: usize,
    /// Blocks un-acknowledged in each round from `first_round` on.
    rounds: VecDeque<usize>,
    first_round: RoundId,
    /// Rounds with un-acknowledged blocks.
    rounds_open: usize,
    life_asked: bool,
}

impl Round {
    pub(super) fn set_up(&mut self, slot: Slot, writer_id: Uuid, segment: String) {
        let request_id = i64::try_from(slot).unwrap_or(i64::MAX);
        let command = SetupAppend { request_id, segment, writer_id, delegation_token: String::new() };
        let mut frame = BytesMut::new();
        command.encode(&mut frame);
        self.frames.push_back(frame.freeze());
    }

    pub(super) fn append(&mut self, frame: Bytes, event_bytes: usize) {
        self.frames.push_back(frame);
        self.event_bytes += event_bytes;
    }

    pub(super) fn is_full(&self) -> bool {
        self.event_bytes >= ROUND_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl LaneQueue {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            wake,
            awake: true,
            setups: VecDeque::new(),
            ready: VecDeque::new(),
            waiting_bytes: 0,
            rounds: VecDeque::new(),
            first_round: 0,
            rounds_open: 0,
            life_asked: false,
        }
    }

    /// Adds a stream that is to be set up.
    pub(super) fn set_up(&mut self, slot: Slot) {
        self.setups.push_back(slot);
    }

    pub(super) fn next_setup(&mut self) -> Option<Slot> {
        self.setups.pop_front()
    }

    /// Adds a stream that has something to send.
    pub(super) fn list(&mut self, slot: Slot) {
        self.ready.push_back(slot);
    }

    pub(super) fn next_ready(&mut self) -> Option<Slot> {
        self.ready.pop_front()
    }

    /// `bytes` more wait.
    pub(super) fn waits(&mut self, bytes: usize) {
        self.waiting_bytes += bytes;
    }

    /// `bytes` fewer wait, since they go elsewhere.
    pub(super) fn waits_no_more(&mut self, bytes: usize) {
        self.waiting_bytes -= bytes;
    }

    /// Begins a round if one may be sent now.
    pub(super) fn begin_round(&mut self) -> Option<RoundId> {
        self.may_send().then(|| {
            self.rounds.push_back(0);
            self.first_round + (self.rounds.len() as u64) - 1
        })
    }

    /// A block of `bytes` goes out in `round`.
    pub(super) fn sent(&mut self, round: RoundId, bytes: usize) {
        self.waiting_bytes -= bytes;
        let blocks = &mut self.rounds[index(round, self.first_round)];
        self.rounds_open += usize::from(*blocks == 0);
        *blocks += 1;
    }

    /// A block of `round` is acknowledged, or not to be waited for any more.
    pub(super) fn acked(&mut self, round: RoundId) {
        let blocks = &mut self.rounds[index(round, self.first_round)];
        *blocks -= 1;
        self.rounds_open -= usize::from(*blocks == 0);
        while self.rounds.front() == Some(&0) {
            self.rounds.pop_front();
            self.first_round += 1;
        }
    }

    /// Asks for a KeepAlive.
    pub(super) fn ask_for_life(&mut self) {
        self.life_asked = true;
    }

    pub(super) fn keep_alive(&mut self, round: &mut Round) {
        if std::mem::take(&mut self.life_asked) {
            let mut frame = BytesMut::new();
            KeepAlive {}.encode(&mut frame);
            round.frames.push_back(frame.freeze());
        }
    }

    /// The connection's task found nothing to do and wants to be woken.
    pub(super) fn rest(&mut self) {
        self.awake = false;
    }

    /// Whom to wake because there is something to do; nobody if the task is awake.
    pub(super) fn wake(&mut self) -> Option<Arc<Notify>> {
        let asleep = !std::mem::replace(&mut self.awake, true);
        asleep.then(|| Arc::clone(&self.wake))
    }

    /// Whom to wake if a round may be sent now.
    pub(super) fn wake_if_waiting(&mut self) -> Option<Arc<Notify>> {
        if self.may_send() { self.wake() } else { None }
    }

    fn may_send(&self) -> bool {
        let room = self.rounds_open < ROUNDS_MAX || self.waiting_bytes >= ROUND_BYTES;
        room && !self.ready.is_empty()
    }
}

fn index(round: RoundId, first: RoundId) -> usize {
    usize::try_from(round - first).unwrap_or(usize::MAX)
}
