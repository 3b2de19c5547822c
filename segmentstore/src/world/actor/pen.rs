//! Appending to one segment as one writer: over any number of connections, each event once.
//!
//! A pen outlives its connections. It holds every append whose outcome is not known; the next setup settles those, by
//! the number that the store has for the writer.

use crate::operation::{Answer, Append, AppendReply, AppendTag, Operation, Refusal, Request, SessionId};
use crate::world::book::Book;
use crate::world::court::Court;
use crate::world::event::EventId;
use crate::world::front::Client;
use bytes::BytesMut;
use dhara_wire::codec::Uuid;
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// An append whose outcome is not known.
#[derive(Clone, Debug)]
struct Sent {
    number: i64,
    events: Vec<EventId>,
    /// The session that it was sent by last.
    session: Option<SessionId>,
}

impl Sent {
    fn bytes(&self) -> u64 {
        self.events.iter().map(|event| event.length()).sum()
    }
}

#[derive(Debug)]
struct State {
    /// Highest number known to be stored.
    stored: i64,
    /// In the order of their numbers.
    open: VecDeque<Sent>,
    session: Option<SessionId>,
    /// What the session's appends are refused with from now on.
    refused: Option<Refusal>,
    /// Some append of the session will never be answered.
    lost: bool,
}

struct Shared {
    writer: u32,
    book: Arc<Mutex<Book>>,
    court: Court,
    state: Mutex<State>,
    changed: Notify,
}

/// A writer's hand on one segment.
pub(super) struct Pen {
    shared: Arc<Shared>,
    next_number: i64,
    next_event: u32,
}

/// How a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    /// The connection is of no use any more.
    Lost,
    /// Nothing more is taken, and everything was answered.
    Refused(Refusal),
}

impl Pen {
    pub(super) fn new(writer: u32, book: Arc<Mutex<Book>>, court: Court) -> Self {
        let state = State { stored: 0, open: VecDeque::new(), session: None, refused: None, lost: false };
        let shared = Shared { writer, book, court, state: Mutex::new(state), changed: Notify::new() };
        Self { shared: Arc::new(shared), next_number: 1, next_event: 1 }
    }

    /// The writer's id as the store knows it.
    pub(super) fn id(writer: u32) -> Uuid {
        Uuid(0x5117 << 64 | u128::from(writer))
    }

    /// Sets up on a connection: what was sent before is stored or will be sent again.
    pub(super) async fn set_up(&self, client: &Client) -> Result<(), Refusal> {
        let session = client.session();
        {
            let mut state = self.shared.state.lock();
            (state.session, state.refused, state.lost) = (Some(session), None, false);
        }
        let name = self.shared.book.lock().name.clone();
        let set_up = Request::SetupAppend { session, name, writer: Self::id(self.shared.writer) };
        match client.ask(set_up).await? {
            Answer::SetUp { last } => {
                self.settle(if last == NULL_ATTRIBUTE_VALUE { 0 } else { last });
                Ok(())
            }
            other => {
                self.shared.court.accuse(format!("a setup was answered with {other:?}"));
                Err(Refusal::Unavailable)
            }
        }
    }

    fn settle(&self, last: i64) {
        let Shared { writer, book, court, state, .. } = &*self.shared;
        let mut state = state.lock();
        let known = last == state.stored || state.open.iter().any(|sent| sent.number == last);
        if last < state.stored || !known {
            let (name, stored) = (book.lock().name.clone(), state.stored);
            court.accuse(format!("{name}: writer {writer} was told of {last}, had heard of {stored}"));
            return;
        }
        state.stored = last;
        while let Some(sent) = state.open.pop_front_if(|sent| sent.number <= last) {
            sent.events.iter().for_each(|event| book.lock().owe(*event));
        }
        state.open.iter_mut().for_each(|sent| sent.session = None);
    }

    /// Sends what a lost connection left over; false once there is nothing.
    pub(super) async fn send_again(&self, client: &Client) -> bool {
        let Some(sent) = ({
            let mut state = self.shared.state.lock();
            let session = state.session;
            let first = state.open.iter_mut().find(|sent| sent.session.is_none());
            first.map(|sent| {
                sent.session = session;
                sent.clone()
            })
        }) else {
            return false;
        };
        self.send(client, sent).await;
        true
    }

    /// Appends the writer's next `count` events in one go; none makes an append without bytes.
    pub(super) async fn append(&mut self, client: &Client, count: u32, step: i64) {
        let first = self.next_event;
        self.next_event += count;
        let writer = self.shared.writer;
        let events = (first..self.next_event).map(|number| EventId { writer, number }).collect();
        let number = self.next_number;
        self.next_number += step;
        if count == 0 {
            self.shared.book.lock().unreadable_events = true;
        }
        let sent = {
            let mut state = self.shared.state.lock();
            let sent = Sent { number, events, session: state.session };
            state.open.push_back(sent.clone());
            sent
        };
        self.send(client, sent).await;
    }

    async fn send(&self, client: &Client, sent: Sent) {
        let Some(session) = sent.session else { return };
        let mut data = BytesMut::new();
        sent.events.iter().for_each(|event| data.extend_from_slice(&event.bytes()));
        let tag = AppendTag {
            session,
            writer: Self::id(self.shared.writer),
            segment: Arc::from(""),
            number: sent.number,
            request_id: 0,
        };
        let listener = Listener {
            shared: Arc::clone(&self.shared),
            number: sent.number,
            session,
            heard: Mutex::new(false),
        };
        let append = Append {
            tag,
            data: data.freeze(),
            events: u32::try_from(sent.events.len()).unwrap_or(u32::MAX).max(1),
            expected_offset: None,
            reply: Arc::new(listener),
            permit: None,
        };
        let _lost_with_its_listener = client.handle.send(Operation::Append(append)).await;
    }

    /// Bytes that are on their way.
    pub(super) fn bytes_open(&self) -> u64 {
        self.shared.state.lock().open.iter().map(Sent::bytes).sum()
    }

    /// How many appends are on their way.
    pub(super) fn open(&self) -> usize {
        self.shared.state.lock().open.len()
    }

    /// How many events were handed over so far.
    pub(super) fn events(&self) -> u32 {
        self.next_event - 1
    }

    /// How the session stands now.
    pub(super) fn standing(&self) -> Standing {
        let state = self.shared.state.lock();
        match &state.refused {
            _ if state.lost => Standing::Lost,
            Some(Refusal::Unavailable) => Standing::Lost,
            Some(refused) if state.open.iter().all(|sent| sent.session.is_none()) => {
                Standing::Refused(refused.clone())
            }
            _ => Standing::Good,
        }
    }

    /// Waits until something is heard.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    /// What was heard of append `number` of `session`.
    fn heard(&self, number: i64, session: SessionId, outcome: Result<Answer, Refusal>) {
        let mut state = self.state.lock();
        let current = state.session == Some(session);
        let checked = match outcome {
            Ok(Answer::Appended { previous, length }) => {
                self.stored(&mut state, current, (number, previous, length))
            }
            Ok(other) => Err(format!("an append was answered with {other:?}")),
            Err(refusal) if current => self.refused(&mut state, number, refusal),
            Err(_of_an_earlier_session) => Ok(()),
        };
        drop(state);
        self.court.check(checked);
        self.changed.notify_one();
    }

    fn stored(
        &self,
        state: &mut State,
        current: bool,
        (number, previous, length): (i64, i64, u64),
    ) -> Result<(), String> {
        let writer = self.writer;
        // A setup may have settled it, if its own answer comes late.
        let Some(at) = state.open.iter().position(|sent| sent.number == number) else {
            return if current { Err(format!("writer {writer} hears of {number} again")) } else { Ok(()) };
        };
        let previous = if previous == NULL_ATTRIBUTE_VALUE { 0 } else { previous };
        if at != 0 || previous != state.stored || state.refused.is_some() && current {
            let expected = (state.open.front().map(|sent| sent.number), state.stored);
            return Err(format!(
                "writer {writer} hears of {number} after {previous}, expected {expected:?}, {:?}",
                state.refused
            ));
        }
        let Some(sent) = state.open.pop_front() else { return Ok(()) };
        state.stored = number;
        let mut offset = length.checked_sub(sent.bytes()).ok_or("an append ends before its length")?;
        let mut book = self.book.lock();
        for event in &sent.events {
            book.fact(offset, *event)?;
            offset += event.length();
        }
        Ok(())
    }

    fn refused(&self, state: &mut State, number: i64, refusal: Refusal) -> Result<(), String> {
        let writer = self.writer;
        if let Some(before) = &state.refused
            && *before != refusal
            && refusal != Refusal::Unavailable
        {
            return Err(format!("writer {writer}: {number} {refusal:?} after {before:?}"));
        }
        let Some(sent) = state.open.iter_mut().find(|sent| sent.number == number) else {
            return Err(format!("writer {writer} hears of {number} again: {refusal:?}"));
        };
        // For all that is known it may be there.
        if refusal != Refusal::Unavailable {
            sent.session = None;
        }
        state.refused = Some(refusal);
        Ok(())
    }
}

/// Hears of one append, or that nobody will ever hear.
struct Listener {
    shared: Arc<Shared>,
    number: i64,
    session: SessionId,
    heard: Mutex<bool>,
}

impl AppendReply for Listener {
    fn appended(&self, append: &AppendTag, outcome: Result<Answer, Refusal>) {
        let twice = std::mem::replace(&mut *self.heard.lock(), true);
        if twice || append.number != self.number || append.session != self.session {
            self.shared.court.accuse(format!("{append:?} is answered twice or to the wrong listener"));
            return;
        }
        self.shared.heard(self.number, self.session, outcome);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !*self.heard.lock() {
            let mut state = self.shared.state.lock();
            if state.session == Some(self.session) {
                state.lost = true;
            }
            drop(state);
            self.shared.changed.notify_one();
        }
    }
}
