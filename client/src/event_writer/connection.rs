//! One connection of a writer: sends rounds and hears what becomes of them, until it fails.
//!
//! It decides nothing: what to send and what a reply means is the state's to say. Sending and hearing go on side by
//! side, so that a server that will not read before its replies are read never stalls.

use super::Shared;
use super::effect::{Acked, Effects, Unexpected};
use super::lane::LaneId;
use super::state::{Slot, WriterState};
use crate::segment::{self, SegmentError};
use dhara_wire::command::{self, Command};
use dhara_wire::peer::{FrameReader, FrameWriter, WriteError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

/// Silence after which a sign of life is asked for; twice as much ends the connection.
const SILENCE: Duration = Duration::from_secs(20);

/// Connects to `address` and serves `lane` until the connection fails; returns why.
pub(super) async fn run(
    shared: Arc<Shared>,
    lane: LaneId,
    wake: Arc<Notify>,
    address: String,
) -> SegmentError {
    let served = serve(&shared, lane, &wake, &address).await;
    shared.change(|state, effects| state.close_lane(lane, effects));
    served.err().unwrap_or(SegmentError::Closed { address })
}

async fn serve(shared: &Shared, lane: LaneId, wake: &Notify, address: &str) -> Result<(), SegmentError> {
    let (reader, writer) = segment::dial(address, &shared.core.config).await?;
    let heard = AtomicU64::new(0);
    let sending = send(shared, lane, wake, writer);
    let sending =
        async { sending.await.map_err(|source| SegmentError::Send { address: address.to_owned(), source }) };
    let hearing = hear(shared, lane, reader, &heard, address);
    let living = live(shared, lane, &heard, address);
    tokio::try_join!(sending, hearing, living).map(|((), (), ())| ())
}

async fn send(
    shared: &Shared,
    lane: LaneId,
    wake: &Notify,
    mut writer: FrameWriter<OwnedWriteHalf>,
) -> Result<(), WriteError> {
    loop {
        let round = shared.state.lock().take_round(lane);
        match round {
            Some(round) => {
                round.frames.into_iter().for_each(|frame| writer.push_bytes(frame));
                writer.flush().await?;
            }
            None => wake.notified().await,
        }
    }
}

async fn hear(
    shared: &Shared,
    lane: LaneId,
    mut reader: FrameReader<OwnedReadHalf>,
    heard: &AtomicU64,
    address: &str,
) -> Result<(), SegmentError> {
    let broken = |source| SegmentError::Receive { address: address.to_owned(), source };
    loop {
        let first = reader.next().await.map_err(broken)?;
        let Some(first) = first else {
            return Err(SegmentError::Closed { address: address.to_owned() });
        };
        let mut replies = vec![first.command()?];
        loop {
            let more = reader.try_next().map_err(broken)?;
            let Some(more) = more else { break };
            replies.push(more.command()?);
        }
        heard.fetch_add(1, Ordering::Relaxed);
        shared.change(|state, effects| {
            replies.into_iter().try_for_each(|reply| apply(state, lane, reply, effects))
        })?;
    }
}

/// Asks for a sign of life after a silence, and fails after a second one.
async fn live(shared: &Shared, lane: LaneId, heard: &AtomicU64, address: &str) -> Result<(), SegmentError> {
    let mut before = u64::MAX;
    let mut asked = false;
    loop {
        tokio::time::sleep(SILENCE).await;
        let now = heard.load(Ordering::Relaxed);
        let silent = now == before;
        if silent && asked {
            return Err(SegmentError::Slow { what: format!("segment store {address}"), limit: 2 * SILENCE });
        }
        if silent {
            shared.change(|state, effects| state.ask_for_life(lane, effects));
        }
        asked = silent;
        before = now;
    }
}

fn apply(
    state: &mut WriterState,
    lane: LaneId,
    reply: Command,
    effects: &mut Effects,
) -> Result<(), SegmentError> {
    let applied = match reply {
        Command::DataAppended(command::DataAppended { writer_id, event_number, request_id, .. }) => {
            let ack = Acked { slot: slot(request_id), writer_id, number: event_number };
            state.acked(lane, ack, effects)
        }
        Command::AppendSetup(setup) => {
            state.set_up(lane, slot(setup.request_id), setup.last_event_number, effects)
        }
        Command::SegmentIsSealed(command::SegmentIsSealed { request_id, .. })
        | Command::NoSuchSegment(command::NoSuchSegment { request_id, .. }) => {
            state.seal(lane, slot(request_id), effects)
        }
        Command::WrongHost(command::WrongHost { request_id, .. }) => {
            state.moved(lane, slot(request_id), effects)
        }
        Command::KeepAlive(_) => Ok(()),
        other => return Err(segment::refusal(other)),
    };
    applied.map_err(|Unexpected| SegmentError::Unexpected)
}

/// The slot that a request id names; one that no writer has if it is none of ours.
fn slot(request_id: i64) -> Slot {
    usize::try_from(request_id).unwrap_or(usize::MAX)
}
