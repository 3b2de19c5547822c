//! How far ahead of each reader objects are read.
//!
//! The protocol knows no readers, only reads. A read that begins where an earlier one ended goes on with that one's
//! window, which doubles each time; any other begins anew and has nothing read ahead. Pure: the caller brings the
//! time, and gives back what a dropped window kept.

use super::fetch::Landing;
use super::unit::UnitKey;
use crate::types::{ContainerId, SegmentId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use tokio::time::Instant;

/// Smallest window of a reader that goes on where it stopped.
pub(super) const WINDOW_BYTES_MIN: u64 = 1 << 20;
/// Largest window.
pub(super) const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// GETs under way ahead of one reader.
const GETS_MAX: usize = 8;
/// Smallest GET ahead of a reader, unless there is no more to get.
const GET_BYTES_MIN: u64 = 1 << 20;
/// Largest one: a large window's are this large, so that a distant store moves many bytes at a time.
const GET_BYTES_MAX: u64 = 4 << 20;
/// Positions remembered; the oldest is forgotten first.
const WINDOWS_MAX: usize = 4_096;

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Position {
    pub(super) container: ContainerId,
    pub(super) segment: SegmentId,
    pub(super) offset: u64,
}

/// What is done ahead of one reader.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes to have before they are asked for; 0 for a reader that has not gone on yet.
    size: u64,
    /// Offset after the last byte that was asked for ahead.
    pub(super) asked_upto: u64,
    /// Units that are kept for this reader, each with the offset after its last byte.
    pub(super) kept: VecDeque<(u64, UnitKey)>,
    under_way: Vec<Landing>,
}

impl Window {
    /// Doubles it; above `bytes_max` it shrinks to that.
    pub(super) fn grow(&mut self, bytes_max: u64) {
        let bytes_max = bytes_max.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        self.size = (self.size * 2).clamp(WINDOW_BYTES_MIN, bytes_max);
    }

    /// Whether its reader has gone on where it stopped.
    pub(super) fn is_sequential(&self) -> bool {
        self.size > 0
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of one GET ahead.
    pub(super) fn get_bytes(&self) -> u64 {
        (self.size / GETS_MAX as u64).clamp(GET_BYTES_MIN, GET_BYTES_MAX)
    }

    /// How many more GETs may be started.
    pub(super) fn gets_free(&mut self) -> usize {
        // An ended sender counts as landed.
        self.under_way.retain(|landing| landing.borrow().is_none() && landing.has_changed().is_ok());
        GETS_MAX - self.under_way.len().min(GETS_MAX)
    }

    pub(super) fn started(&mut self, landing: Landing) {
        self.under_way.push(landing);
    }

    /// The next unit that its reader has passed at `offset`.
    pub(super) fn pass(&mut self, offset: u64) -> Option<UnitKey> {
        self.kept.pop_front_if(|(end, _)| *end <= offset).map(|(_, key)| key)
    }
}

/// Windows of readers between two reads, by where the next one is expected.
#[derive(Debug, Default)]
pub(super) struct Windows {
    by_position: HashMap<Position, (u64, Window)>,
    by_age: BTreeMap<u64, (Instant, Position)>,
    stamps: u64,
}

impl Windows {
    /// Takes the window of whoever is expected here.
    pub(super) fn take(&mut self, position: &Position) -> Option<Window> {
        let (stamp, window) = self.by_position.remove(position)?;
        self.by_age.remove(&stamp);
        Some(window)
    }

    /// Remembers where a reader goes on; returns a window that must go for it. Of two at one position the one that
    /// keeps more stays: its units serve both.
    pub(super) fn put(&mut self, position: Position, mut window: Window, now: Instant) -> Option<Window> {
        let mut gone = self.take(&position);
        if let Some(other) = &mut gone
            && (other.size, other.kept.len()) > (window.size, window.kept.len())
        {
            std::mem::swap(other, &mut window);
        }
        self.stamps += 1;
        self.by_age.insert(self.stamps, (now, position));
        self.by_position.insert(position, (self.stamps, window));
        if self.by_age.len() > WINDOWS_MAX {
            gone = gone.or_else(|| self.oldest());
        }
        gone
    }

    /// Takes a window that nobody has used since `since`.
    pub(super) fn take_older(&mut self, since: Instant) -> Option<Window> {
        let (_, (at, _)) = self.by_age.first_key_value()?;
        if *at <= since { self.oldest() } else { None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    fn oldest(&mut self) -> Option<Window> {
        let (_, (_, position)) = self.by_age.pop_first()?;
        self.by_position.remove(&position).map(|(_, window)| window)
    }
}
