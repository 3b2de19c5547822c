//! Operations that cannot be judged yet, in line per segment.
//!
//! An operation that lacks a row waits for it; everything later for its segments queues behind it, so that each
//! segment's operations are judged in arrival order whatever is cold. Other segments go on. Lines go by name: an
//! operation in line may end the segment and a later one give its name to another.

use crate::operation::{Append, Call, ConnectionId, Request, SessionId};
use crate::state::RowKey;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// An operation in line.
pub(super) enum Waiter {
    Append(Append),
    Call(Request, Call),
    EndSession(SessionId),
}

impl Waiter {
    fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.data.len(),
            Self::Call(Request::TableUpdate { puts, .. }, _) => {
                puts.iter().map(|put| put.key.len() + put.value.len()).sum()
            }
            Self::Call(Request::TableRemove { keys, .. }, _) => keys.iter().map(|(key, _)| key.len()).sum(),
            Self::Call(..) | Self::EndSession(_) => 0,
        }
    }
}

pub(super) struct Parked {
    pub(super) waiter: Waiter,
    /// The names in whose lines it stands, each once.
    names: Vec<String>,
    /// Rows pinned for it.
    pub(super) pinned: Vec<RowKey>,
    /// Rows still on their way.
    loading: usize,
    /// Its connection ended: it must open no session.
    pub(super) abandoned: bool,
    /// A row that it needs cannot be had.
    pub(super) failed: bool,
}

#[derive(Default)]
pub(super) struct Park {
    next: u64,
    waiting: BTreeMap<u64, Parked>,
    lines: HashMap<String, VecDeque<u64>>,
    /// Sessions whose setup stands in line.
    pending: HashMap<SessionId, String>,
    /// Bytes of data in line.
    bytes: usize,
}

impl Park {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many operations stand in line.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of data that they hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether an operation on the segments of these names has to get in line.
    pub(super) fn blocks(&self, names: &[&str]) -> bool {
        !self.waiting.is_empty() && names.iter().any(|name| self.lines.contains_key(*name))
    }

    /// The segment's name of a session whose setup stands in line.
    pub(super) fn pending_session(&self, session: SessionId) -> Option<&str> {
        self.pending.get(&session).map(String::as_str)
    }

    /// Puts an operation in line; returns its number.
    pub(super) fn park(&mut self, waiter: Waiter, mut names: Vec<String>, loading: usize) -> u64 {
        names.sort_unstable();
        names.dedup();
        assert!(!names.is_empty(), "only a segment can be waited for");
        let number = self.next;
        self.next += 1;
        self.bytes += waiter.bytes();
        for name in &names {
            self.lines.entry(name.clone()).or_default().push_back(number);
        }
        if let Waiter::Call(Request::SetupAppend { session, .. }, _) = &waiter {
            self.pending.insert(*session, names[0].clone());
        }
        let parked = Parked { waiter, names, pinned: Vec::new(), loading, abandoned: false, failed: false };
        self.waiting.insert(number, parked);
        number
    }

    /// A row of operation `number` arrived and is pinned.
    pub(super) fn loaded(&mut self, number: u64, key: RowKey) {
        if let Some(parked) = self.waiting.get_mut(&number) {
            parked.pinned.push(key);
            parked.loading -= 1;
        }
    }

    /// A row of operation `number` cannot be had: it is refused once it stands first.
    pub(super) fn fail(&mut self, number: u64) {
        if let Some(parked) = self.waiting.get_mut(&number) {
            parked.failed = true;
        }
    }

    /// Operation `number` needs more rows than it asked for at first.
    pub(super) fn expect(&mut self, number: u64, rows: usize) {
        if let Some(parked) = self.waiting.get_mut(&number) {
            parked.loading += rows;
        }
    }

    /// Whether operation `number` stands first in all its lines and has its rows.
    pub(super) fn ready(&self, number: u64) -> bool {
        self.waiting.get(&number).is_some_and(|parked| {
            (parked.loading == 0 || parked.failed)
                && parked.names.iter().all(|name| {
                    self.lines.get(name).and_then(VecDeque::front).is_some_and(|first| *first == number)
                })
        })
    }

    pub(super) fn get(&self, number: u64) -> Option<&Parked> {
        self.waiting.get(&number)
    }

    /// Takes operation `number`, which is [`ready`](Self::ready), out of its lines; returns it with the operations
    /// that are first in those lines now.
    pub(super) fn take(&mut self, number: u64) -> Option<(Parked, Vec<u64>)> {
        let parked = self.waiting.remove(&number)?;
        self.bytes -= parked.waiter.bytes();
        let mut next = Vec::new();
        for name in &parked.names {
            let Some(line) = self.lines.get_mut(name) else { continue };
            assert_eq!(line.pop_front(), Some(number), "only the first leaves a line");
            match line.front() {
                Some(first) => next.push(*first),
                None => drop(self.lines.remove(name)),
            }
        }
        if let Waiter::Call(Request::SetupAppend { session, .. }, _) = &parked.waiter {
            self.pending.remove(session);
        }
        Some((parked, next))
    }

    /// Takes everything out, in arrival order, when the container ends.
    pub(super) fn drain(&mut self) -> Vec<Waiter> {
        self.lines.clear();
        self.pending.clear();
        self.bytes = 0;
        std::mem::take(&mut self.waiting).into_values().map(|parked| parked.waiter).collect()
    }

    /// A connection ended; its setups in line must open no session.
    pub(super) fn abandon(&mut self, connection: ConnectionId) {
        for parked in self.waiting.values_mut() {
            if let Waiter::Call(Request::SetupAppend { session, .. }, _) = &parked.waiter
                && session.connection == connection
            {
                parked.abandoned = true;
            }
        }
    }
}
