//! The published load of a container: rates of the segments that have a scaling policy.
//!
//! The container tells what it applied, the server asks. Segments without a policy by rate, sealed ones, tables,
//! transactions and transient segments are not followed; what a transaction brought counts for the segment it becomes
//! part of.

use crate::load::{Meter, Rates, Unit, tick_of};
use crate::operation::Policy;
use crate::state::Segment;
use crate::types::SegmentId;
use dhara_stdx::clock::Clock;
use dhara_wire::name::{is_transaction, is_transient};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Notify;

/// Segments looked at under one lock.
const LOOK_SEGMENTS: usize = 512;

/// The loads of a container.
#[derive(Debug)]
pub struct Loads {
    clock: Arc<dyn Clock>,
    board: Mutex<Board>,
    /// The cursor moved, or the container closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Board {
    followed: BTreeMap<SegmentId, Followed>,
    /// Counts ticks in which something came; what readers have seen up to.
    cursor: i64,
    /// The last of these ticks.
    tick: Option<i64>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Followed {
    name: Arc<str>,
    policy: Policy,
    created_ms: i64,
    meter: Meter,
    /// Where the cursor stood when something came last.
    seen: i64,
}

/// Traffic of one segment that was applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) segment: SegmentId,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// Since when it was written, ms since 1970.
    pub(crate) since_ms: i64,
    pub(crate) now_ms: i64,
}

/// The load of one segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Canonical name.
    pub name: Arc<str>,
    /// Its scaling policy.
    pub policy: Policy,
    /// Averages in the unit of the policy.
    pub rates: Rates,
    /// Time since its creation, ms.
    pub age_ms: i64,
}

/// Loads in the order of the segments' creation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadPage {
    /// The loads.
    pub loads: Vec<Load>,
    /// What to ask after for more; `None` at the end.
    pub next: Option<SegmentId>,
    /// Asks later for what came from now on.
    pub cursor: i64,
}

impl Loads {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, board: Mutex::default(), changed: Notify::new() }
    }

    /// Follows the segment as its applied state wants it: from now on, further, or no more. What came before now is
    /// known by its sum only.
    pub(crate) fn follow(&self, segment: &Segment) {
        let core = segment.applied;
        let unit = Unit::of(core.policy.scale_type).filter(|_| {
            let of_stream = !is_transaction(&segment.name) && !is_transient(&segment.name);
            core.policy.target_rate > 0 && !core.sealed && !segment.kind.is_table() && of_stream
        });
        let Some(unit) = unit else { return self.forget(segment.id) };
        let mut board = self.board.lock();
        let seen = board.cursor;
        if let Some(known) = board.followed.get_mut(&segment.id)
            && known.policy.scale_type == core.policy.scale_type
        {
            known.policy = core.policy;
            return;
        }
        let amount = unit.amount(core.events, core.length);
        let meter = Meter::seeded(segment.created_ms, amount, core.modified_ms);
        let name = Arc::from(segment.name.as_str());
        let followed = Followed { name, policy: core.policy, created_ms: segment.created_ms, meter, seen };
        board.followed.insert(segment.id, followed);
    }

    pub(crate) fn forget(&self, id: SegmentId) {
        self.board.lock().followed.remove(&id);
    }

    /// Takes in what was applied.
    pub(crate) fn note(&self, traffic: impl IntoIterator<Item = Traffic>) {
        let mut moved = false;
        {
            let mut board = self.board.lock();
            let Board { followed, cursor, tick, .. } = &mut *board;
            for Traffic { segment, events, bytes, since_ms, now_ms } in traffic {
                let Some(followed) = followed.get_mut(&segment) else { continue };
                let Some(unit) = Unit::of(followed.policy.scale_type) else { continue };
                followed.meter.note(since_ms, unit.amount(events, bytes), now_ms);
                if *tick != Some(tick_of(now_ms)) {
                    (*tick, moved) = (Some(tick_of(now_ms)), true);
                    *cursor += 1;
                }
                followed.seen = *cursor;
            }
        }
        if moved {
            self.changed.notify_waiters();
        }
    }

    /// Ends with the container; whoever waits hears of it.
    pub(crate) fn close(&self) {
        self.board.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Waits until something came in a later tick than the reply with this cursor told of; at once for a cursor that
    /// this container never gave.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn wait(&self, cursor: i64) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            {
                let board = self.board.lock();
                if board.closed || board.cursor != cursor {
                    return;
                }
            }
            changed.await;
        }
    }

    /// The loads behind `after`, up to the first one with which they take `bytes_max` on the wire: of all segments for a
    /// cursor that this container never gave, else of those to which something came since. `None` once the container
    /// is closed.
    pub fn page(&self, cursor: i64, after: Option<SegmentId>, bytes_max: usize) -> Option<LoadPage> {
        let now_ms = self.clock.wall_ms();
        let (mut page, mut bytes) = (LoadPage::default(), 0);
        let mut from = after.map_or(Bound::Unbounded, Bound::Excluded);
        loop {
            let looked: Vec<(SegmentId, Followed)> = {
                let board = self.board.lock();
                if board.closed {
                    return None;
                }
                page.cursor = board.cursor;
                let following = board.followed.range((from, Bound::Unbounded)).take(LOOK_SEGMENTS);
                following.map(|(id, followed)| (*id, followed.clone())).collect()
            };
            let Some((last, _)) = looked.last() else { return Some(page) };
            from = Bound::Excluded(*last);
            let all = !(0..=page.cursor).contains(&cursor);
            for (id, followed) in looked.into_iter().filter(|(_, followed)| all || followed.seen >= cursor) {
                bytes += LOAD_BYTES + followed.name.len();
                page.loads.push(followed.load(now_ms));
                if bytes >= bytes_max {
                    page.next = Some(id);
                    return Some(page);
                }
            }
        }
    }
}

/// What a load takes on the wire besides the name.
const LOAD_BYTES: usize = 2 + 1 + 4 + 5 * 8 + 8;

impl Followed {
    fn load(self, now_ms: i64) -> Load {
        let age_ms = now_ms.saturating_sub(self.created_ms).max(0);
        Load { name: self.name, policy: self.policy, rates: self.meter.rates(now_ms), age_ms }
    }
}

#[cfg(test)]
mod tests;
