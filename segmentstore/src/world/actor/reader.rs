//! Reading segments: from the first byte to the last as it comes, and here and there.

use crate::container::ContainerHandle;
use crate::read::{ColdError, ReadError, ReadReply, View};
use crate::state::Core;
use crate::tier::TierError;
use crate::world::book::Book;
use crate::world::event::EventId;
use crate::world::front::Scene;
use bytes::Bytes;
use dhara_stdx::SeededEntropy;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes asked for at once.
const READ_BYTES: usize = 8_192;
/// How long the tail may stay silent before the reader asks anew, as one whose connection was lost.
const PATIENCE: Duration = Duration::from_secs(7);

/// Bytes that were read and are not whole events yet.
#[derive(Default)]
struct Tail {
    at: u64,
    bytes: Vec<u8>,
}

impl Tail {
    fn next(&self) -> u64 {
        self.at + u64::try_from(self.bytes.len()).unwrap_or(0)
    }

    /// Takes bytes in; whole events are handed to `event` with their offsets.
    fn take(
        &mut self,
        chunks: &[Bytes],
        mut event: impl FnMut(u64, EventId) -> Result<(), String>,
    ) -> Result<(), String> {
        if chunks.is_empty() || chunks.iter().any(Bytes::is_empty) {
            return Err(format!("a read at {} gave nothing", self.next()));
        }
        for chunk in chunks {
            self.bytes.extend_from_slice(chunk);
        }
        let mut done = 0;
        while let Some((id, length)) = EventId::parse(&self.bytes[done..])? {
            event(self.at, id)?;
            self.at += id.length();
            done += length;
        }
        self.bytes.drain(..done);
        Ok(())
    }

    /// Nothing may be left over at the end.
    fn end(&self) -> Result<u64, String> {
        if self.bytes.is_empty() { Ok(self.at) } else { Err(format!("half an event at {}", self.at)) }
    }
}

/// What came of looking for a segment.
enum Found {
    View(ContainerHandle, Arc<View>),
    Gone,
    /// The container has closed meanwhile.
    Again,
}

async fn find(scene: &Scene, container: u16, book: &Mutex<Book>) -> Found {
    let handle = scene.dial(container).await.handle;
    let book = book.lock();
    match handle.views().find(&book.name) {
        Some(view) => Found::View(handle, view),
        None if handle.is_closed() => Found::Again,
        None => {
            if !book.may_be_gone {
                scene.court.accuse(format!("{} is gone though nobody asked", book.name));
            }
            Found::Gone
        }
    }
}

/// Reads a segment from its first byte on until it has ended, waiting at its tail.
pub(super) async fn whole(scene: Scene, container: u16, book: Arc<Mutex<Book>>) {
    let mut tail = Tail::default();
    while !scene.rest.is_cancelled() {
        let (handle, view) = match find(&scene, container, &book).await {
            Found::View(handle, view) => (handle, view),
            Found::Gone => return,
            Found::Again => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        while !scene.rest.is_cancelled() {
            let read = view.read(handle.log(), handle.cold(), tail.next(), READ_BYTES);
            let Ok(reply) = tokio::time::timeout(PATIENCE, read).await else { break };
            match take(&book, &mut tail, reply, handle.is_closed()) {
                Ok(Next::Read) => {}
                Ok(Next::Find) => break,
                Ok(Next::End) => return,
                Err(what) => {
                    let name = book.lock().name.clone();
                    scene.court.accuse(format!("{name}: {what}"));
                    return;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The store could not give the bytes now.
fn is_weather(error: &ReadError) -> bool {
    match error {
        ReadError::Cold(ColdError::Tier { source, .. }) => {
            matches!(**source, TierError::Store { .. } | TierError::TimedOut { .. })
        }
        // The process has ended.
        ReadError::Cold(ColdError::Ended) => true,
        _ => false,
    }
}

/// What a reader does next.
enum Next {
    Read,
    Find,
    End,
}

fn take(
    book: &Mutex<Book>,
    tail: &mut Tail,
    reply: Result<ReadReply, ReadError>,
    closed: bool,
) -> Result<Next, String> {
    let mut book = book.lock();
    match reply {
        Ok(ReadReply::Data { chunks, at_tail, end_of_segment }) => {
            tail.take(&chunks, |at, event| book.fact(at, event))?;
            book.read_upto = tail.at;
            if at_tail || end_of_segment {
                tail.end()?;
            }
            if end_of_segment {
                book.sealed(tail.at)?;
            }
            Ok(Next::Read)
        }
        Ok(ReadReply::EndOfSegment) => {
            let length = tail.end()?;
            book.sealed(length)?;
            Ok(Next::End)
        }
        Ok(ReadReply::Gone) => Ok(Next::Find),
        Ok(ReadReply::Truncated { start }) => {
            Err(format!("begins at {start}, though nobody asked for more than {}", book.start_asked))
        }
        Err(error) if closed || is_weather(&error) => Ok(Next::Find),
        Err(error) => Err(format!("a read at {} failed: {error}, {error:?}", tail.next())),
    }
}

/// Reads some bytes here and there; they must be those that others have read or written.
pub(super) async fn anywhere(scene: Scene, container: u16, book: Arc<Mutex<Book>>, chance: SeededEntropy) {
    while scene.pause(Duration::from_millis(100 + chance.below(2_000))).await {
        let (handle, view) = match find(&scene, container, &book).await {
            Found::View(handle, view) => (handle, view),
            Found::Gone => return,
            Found::Again => continue,
        };
        let (from, upto) = {
            let book = book.lock();
            (book.start_known, book.read_upto)
        };
        if from >= upto {
            continue;
        }
        let offset = from + chance.below(upto - from);
        let checked = if chance.below(4) == 0 {
            locate(&handle, &view, &book, offset).await
        } else {
            read_at(&handle, &view, &book, (offset, 1 + chance.below(90_000))).await
        };
        if let Err(what) = checked {
            scene.court.accuse(format!("{}: {what}", book.lock().name));
            return;
        }
    }
}

async fn read_at(
    handle: &ContainerHandle,
    view: &View,
    book: &Mutex<Book>,
    (offset, most): (u64, u64),
) -> Result<(), String> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let read = view.read(handle.log(), handle.cold(), offset, most).await;
    let book = book.lock();
    match read {
        Ok(ReadReply::Data { chunks, .. }) => compare(&book, offset, &chunks.concat(), most),
        Ok(ReadReply::Truncated { start }) if start <= book.start_asked && offset < start => Ok(()),
        Ok(ReadReply::Gone) => Ok(()),
        Err(error) if handle.is_closed() || is_weather(&error) => Ok(()),
        other => Err(format!("a read at {offset} gave {other:?}")),
    }
}

/// An event begins where the segment says that an append does.
async fn locate(
    handle: &ContainerHandle,
    view: &View,
    book: &Mutex<Book>,
    target: u64,
) -> Result<(), String> {
    match view.locate(handle.cold(), target).await {
        Ok(found) if found >= target && book.lock().may_begin_at(found) => Ok(()),
        Err(error) if handle.is_closed() || is_weather(&error) => Ok(()),
        other => Err(format!("the first append at or behind {target} is at {other:?}")),
    }
}

fn compare(book: &Book, offset: u64, bytes: &[u8], most: usize) -> Result<(), String> {
    if bytes.is_empty() || bytes.len() > most {
        return Err(format!("a read of {most} bytes at {offset} gave {}", bytes.len()));
    }
    // What lies behind the last event that is known is not judged here.
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    match book.expected(offset, length) {
        Some(expected) if expected != bytes => Err(format!("a read at {offset} gave other bytes")),
        _ => Ok(()),
    }
}

/// What came of reading a segment whole.
pub(in crate::world) enum Looked {
    Whole(Result<(), String>),
    /// The container has closed, or the store did not answer.
    Part,
}

/// Reads all that a segment holds and compares it with its book; nobody may change it meanwhile.
pub(in crate::world) async fn read_all(handle: &ContainerHandle, book: &Mutex<Book>) -> Looked {
    let name = book.lock().name.clone();
    let Some(view) = handle.views().find(&name) else {
        let book = book.lock();
        return match book.may_be_gone || book.is_empty() {
            _ if handle.is_closed() => Looked::Part,
            true => Looked::Whole(Ok(())),
            false => Looked::Whole(Err(format!("{name} is gone though nobody asked"))),
        };
    };
    let core = view.core();
    let (mut tail, mut read) = (Tail { at: core.start, bytes: Vec::new() }, BTreeMap::new());
    while tail.next() < core.length {
        let checked = match view.read(handle.log(), handle.cold(), tail.next(), 1 << 20).await {
            Ok(ReadReply::Data { chunks, .. }) => tail.take(&chunks, |at, event| {
                read.insert(at, event);
                book.lock().fact(at, event)
            }),
            Ok(ReadReply::Gone) => return Looked::Part,
            Err(error) if handle.is_closed() || is_weather(&error) => return Looked::Part,
            other => Err(format!("a read at {} gave {other:?}", tail.next())),
        };
        if let Err(what) = checked {
            return Looked::Whole(Err(format!("{name}: {what}")));
        }
    }
    Looked::Whole(reckon(&mut book.lock(), &tail, core, &read).map_err(|what| format!("{name}: {what}")))
}

fn reckon(book: &mut Book, tail: &Tail, core: Core, read: &BTreeMap<u64, EventId>) -> Result<(), String> {
    let length = tail.end()?;
    if length != core.length {
        return Err(format!("{length} bytes of {}", core.length));
    }
    if core.sealed {
        book.sealed(length)?;
    }
    let events = usize::try_from(core.events).unwrap_or(usize::MAX);
    if core.start == 0 && !book.unreadable_events && events != read.len() {
        return Err(format!("counts {events} events, has {}", read.len()));
    }
    book.complete((core.start, core.length), read)
}
