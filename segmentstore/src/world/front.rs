//! Where clients find their container: its handle while it is open, and how they speak to it.

use super::court::Court;
use crate::container::ContainerHandle;
use crate::operation::{Answer, ConnectionId, Operation, Refusal, Request, SessionId};
use crate::sim::Trace;
use crate::types::ContainerId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Open containers by number.
pub(super) struct Front {
    doors: Vec<watch::Sender<Option<ContainerHandle>>>,
    connections: AtomicU64,
}

impl Front {
    pub(super) fn new(containers: u16) -> Self {
        let doors = (0..containers).map(|_| watch::Sender::new(None)).collect();
        Self { doors, connections: AtomicU64::new(1) }
    }

    pub(super) fn set(&self, container: ContainerId, handle: Option<ContainerHandle>) {
        if let Some(door) = self.doors.get(usize::from(container.0)) {
            door.send_replace(handle);
        }
    }

    /// The handle of a container that is open now.
    pub(super) fn handle(&self, container: u16) -> Option<ContainerHandle> {
        let door = self.doors.get(usize::from(container))?;
        door.borrow().clone().filter(|handle| !handle.is_closed())
    }

    /// Closes all doors.
    pub(super) fn close(&self) {
        for door in &self.doors {
            door.send_replace(None);
        }
    }
}

/// What every actor has: where its container is found, and where broken promises are brought.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) front: Arc<Front>,
    pub(super) court: Court,
    pub(super) trace: Trace,
    /// Nothing new is begun from now on.
    pub(super) rest: CancellationToken,
}

impl Scene {
    /// Connects to a container, waiting until it is open.
    pub(super) async fn dial(&self, container: u16) -> Client {
        let handle = loop {
            if let Some(handle) = self.front.handle(container) {
                break handle;
            }
            // Also sees a door that still shows an owner that has died.
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let id = ConnectionId(self.front.connections.fetch_add(1, Ordering::Relaxed));
        Client { id, handle, trace: self.trace.clone(), sessions: AtomicU32::new(0) }
    }

    /// Asks until there is an outcome; also tells whether an earlier try may have had an effect.
    pub(super) async fn insist(&self, container: u16, request: Request) -> (Result<Answer, Refusal>, bool) {
        let mut again = false;
        loop {
            let client = self.dial(container).await;
            match client.ask(request.clone()).await {
                Err(Refusal::Unavailable) => again = true,
                outcome => return (outcome, again),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Insists on something that is done or, where an earlier try may have done it, told by `done` to be.
    pub(super) async fn see_to(
        &self,
        container: u16,
        request: Request,
        done: impl Fn(&Refusal) -> bool,
    ) -> Option<Answer> {
        let (outcome, again) = self.insist(container, request.clone()).await;
        match outcome {
            Ok(answer) => Some(answer),
            Err(refusal) if again && done(&refusal) => None,
            Err(refusal) => {
                self.court.accuse(format!("{request:?} was refused: {refusal:?}"));
                None
            }
        }
    }

    /// Waits, but no longer than the scene lasts; false once it has ended.
    pub(super) async fn pause(&self, time: Duration) -> bool {
        tokio::select! { biased;
            // Final; nothing can starve behind it.
            () = self.rest.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}

/// A connection to a container.
pub(super) struct Client {
    pub(super) id: ConnectionId,
    pub(super) handle: ContainerHandle,
    trace: Trace,
    sessions: AtomicU32,
}

impl Client {
    /// Asks once; [`Refusal::Unavailable`] tells nothing about what was done.
    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Refusal> {
        let (sender, heard) = oneshot::channel();
        let call = Box::new(move |outcome| drop(sender.send(outcome)));
        let named = request.names().join(" ");
        if self.handle.send(Operation::Call(request, call)).await.is_err() {
            return Err(Refusal::Unavailable);
        }
        let outcome = heard.await.unwrap_or(Err(Refusal::Unavailable));
        self.trace.note(format_args!("client {} {named}: {outcome:?}", self.id.0));
        outcome
    }

    /// Asks that the log be not needed; false if the container has closed before it came to that.
    pub(super) async fn flush(&self) -> bool {
        let (sender, heard) = oneshot::channel();
        let call = Box::new(move |outcome| drop(sender.send(outcome)));
        let sent = self.handle.send(Operation::FlushToStorage(call)).await;
        sent.is_ok() && heard.await == Ok(Ok(Answer::Done))
    }

    /// A session of this connection, not set up yet.
    pub(super) fn session(&self) -> SessionId {
        SessionId { connection: self.id, number: self.sessions.fetch_add(1, Ordering::Relaxed) }
    }

    /// Ends the connection.
    pub(super) async fn hang_up(self) {
        let _closed = self.handle.send(Operation::Disconnected(self.id)).await;
    }
}
