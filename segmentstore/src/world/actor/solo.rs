//! Segments that one or two actors have to themselves: a name that comes back, and rivals for the same offset.

use super::lane::{Lane, create};
use super::pen::{Pen, Standing};
use super::reader::{Looked, read_all};
use crate::operation::{
    Answer, Append, AppendReply, AppendTag, Operation, Refusal, Request, SegmentKind, SessionId,
};
use crate::world::book::Book;
use crate::world::event::EventId;
use crate::world::few;
use crate::world::front::{Client, Scene};
use dhara_stdx::SeededEntropy;
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Makes a segment, fills it, deletes it, and makes it again: nothing of an earlier life may be seen.
pub(in crate::world) async fn phoenix(scene: Scene, container: u16, number: u32, chance: SeededEntropy) {
    let name = format!("phoenix{number}");
    let writer = 900 + number;
    while scene.pause(Duration::from_millis(100 + chance.below(4_000))).await {
        let exists = |refusal: &Refusal| *refusal == Refusal::AlreadyExists;
        scene.see_to(container, create(&name, SegmentKind::Stream), exists).await;
        let book = Arc::new(Mutex::new(Book::new(name.clone())));
        let mut pen = Pen::new(writer, Arc::clone(&book), scene.court.clone());
        let events = few(&chance, 8);
        while !fill(&scene, container, &mut pen, events).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        scene.pause(Duration::from_millis(chance.below(3_000))).await;
        let handle = scene.dial(container).await.handle;
        if let Looked::Whole(read) = read_all(&handle, &book).await {
            scene.court.check(read);
        }
        let delete = Request::Delete { name: name.clone(), table: false, must_be_empty: false };
        scene.see_to(container, delete, |refusal| *refusal == Refusal::NoSuchSegment).await;
    }
}

/// Asks now and then that a container need no log.
pub(in crate::world) async fn flushes(scene: Scene, container: u16, chance: SeededEntropy) {
    while scene.pause(Duration::from_millis(200 + chance.below(4_000))).await {
        // Whether it came to that is looked at when all have come to rest.
        scene.dial(container).await.flush().await;
    }
}

/// Appends up to `events` events on one connection; false if it was lost before.
async fn fill(scene: &Scene, container: u16, pen: &mut Pen, events: u32) -> bool {
    let client = scene.dial(container).await;
    match pen.set_up(&client).await {
        Ok(()) => {}
        Err(Refusal::Unavailable) => return false,
        Err(refusal) => {
            scene.court.accuse(format!("a segment that is there cannot be filled: {refusal:?}"));
            return false;
        }
    }
    while pen.standing() == Standing::Good {
        if pen.send_again(&client).await {
            continue;
        }
        if pen.events() < events {
            pen.append(&client, 1, 1).await;
        } else if pen.open() == 0 {
            client.hang_up().await;
            return true;
        } else {
            pen.changed().await;
        }
    }
    if let Standing::Refused(refusal) = pen.standing() {
        scene.court.accuse(format!("a segment that is there takes no more: {refusal:?}"));
    }
    client.hang_up().await;
    false
}

/// Hears of one append.
struct Ear(Mutex<Option<oneshot::Sender<Result<Answer, Refusal>>>>);

impl AppendReply for Ear {
    fn appended(&self, _: &AppendTag, outcome: Result<Answer, Refusal>) {
        let sender = self.0.lock().take();
        drop(sender.map(|sender| sender.send(outcome)));
    }
}

/// A segment at whose end several append, each on the condition that it knows the end.
pub(in crate::world) async fn rivals(scene: Scene, lane: Arc<Lane>, writer: u32, chance: SeededEntropy) {
    let Some((_, book)) = lane.open() else { return };
    let (container, name) = (lane.container(), book.lock().name.clone());
    match scene.insist(container, create(&name, SegmentKind::Stream)).await.0 {
        // One of them makes it and has it read.
        Ok(_) => lane.read(&scene, &book, &chance),
        Err(Refusal::AlreadyExists | Refusal::Unavailable) => {}
        Err(refusal) => scene.court.accuse(format!("{name} cannot be made: {refusal:?}")),
    }
    let mut rival = Rival { book, writer, stored: 0, doubtful: false };
    while scene.pause(Duration::from_millis(10 + chance.below(1_500))).await {
        let client = scene.dial(container).await;
        let Some(session) = rival.set_up(&scene, &client, &name).await else { continue };
        for _ in 0..=chance.below(20) {
            if !rival.append(&scene, &client, session, chance.below(4) == 0).await {
                break;
            }
            tokio::time::sleep(Duration::from_micros(chance.below(30_000))).await;
        }
        client.hang_up().await;
    }
}

struct Rival {
    book: Arc<Mutex<Book>>,
    writer: u32,
    /// Number of the last event known to be stored.
    stored: u32,
    /// The one behind it was sent, and nobody knows what came of it.
    doubtful: bool,
}

impl Rival {
    async fn set_up(&mut self, scene: &Scene, client: &Client, name: &str) -> Option<SessionId> {
        let session = client.session();
        let set_up = Request::SetupAppend { session, name: name.to_owned(), writer: Pen::id(self.writer) };
        let last = match client.ask(set_up).await {
            Ok(Answer::SetUp { last }) if last == NULL_ATTRIBUTE_VALUE => 0,
            Ok(Answer::SetUp { last }) => u32::try_from(last).unwrap_or(u32::MAX),
            Err(Refusal::Unavailable) => return None,
            other => {
                scene.court.accuse(format!("{name} cannot be set up: {other:?}"));
                return None;
            }
        };
        if last == self.stored + 1 && self.doubtful {
            self.stored = last;
            self.book.lock().owe(EventId { writer: self.writer, number: last });
        } else if last != self.stored {
            scene.court.accuse(format!("rival {} hears of {last} after {}", self.writer, self.stored));
            return None;
        }
        self.doubtful = false;
        Some(session)
    }

    /// Appends at the end as readers see it, or at a wrong one; false if the connection is of no use any more.
    async fn append(&mut self, scene: &Scene, client: &Client, session: SessionId, wrong: bool) -> bool {
        let event = EventId { writer: self.writer, number: self.stored + 1 };
        let name = self.book.lock().name.clone();
        let Some(view) = client.handle.views().find(&name) else { return false };
        let length = view.core().length;
        let at = if wrong { length + 7 } else { length };
        let (sender, heard) = oneshot::channel();
        let tag = AppendTag {
            session,
            writer: Pen::id(self.writer),
            segment: Arc::from(""),
            number: event.number.into(),
            request_id: 0,
        };
        let append = Append {
            tag,
            data: event.bytes(),
            events: 1,
            expected_offset: i64::try_from(at).ok(),
            reply: Arc::new(Ear(Mutex::new(Some(sender)))),
            permit: None,
        };
        self.doubtful = true;
        if client.handle.send(Operation::Append(append)).await.is_err() {
            return false;
        }
        match heard.await.unwrap_or(Err(Refusal::Unavailable)) {
            Ok(Answer::Appended { length, .. }) if length == at + event.length() => {
                (self.stored, self.doubtful) = (event.number, false);
                scene.court.check(self.book.lock().fact(at, event));
                true
            }
            Err(Refusal::ConditionFailed) => {
                self.doubtful = false;
                true
            }
            Err(Refusal::Unavailable) => false,
            other => {
                scene.court.accuse(format!("{name}: {event:?} at {at} gave {other:?}"));
                false
            }
        }
    }
}
