//! A chain of segments, one open at a time: its owner creates the next, seals the last, truncates and deletes.

use super::reader;
use crate::operation::{Policy, Refusal, Request, SegmentKind};
use crate::world::book::Book;
use crate::world::front::Scene;
use dhara_stdx::SeededEntropy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A chain of segments of one container.
pub(in crate::world) struct Lane {
    pub(super) container: u16,
    name: String,
    /// One for each segment, oldest first; the last one is open.
    books: Mutex<Vec<Arc<Mutex<Book>>>>,
}

/// A request that makes a segment.
pub(super) fn create(name: &str, kind: SegmentKind) -> Request {
    Request::Create { name: name.to_owned(), kind, policy: Policy::default(), rollover_bytes: 0 }
}

impl Lane {
    pub(in crate::world) fn new(container: u16, number: u32) -> Arc<Self> {
        Arc::new(Self { container, name: format!("lane{number}"), books: Mutex::default() })
    }

    /// A lane that has one segment for good, which others make.
    pub(in crate::world) fn of_one(container: u16, name: &str) -> Arc<Self> {
        let book = Arc::new(Mutex::new(Book::new(name.to_owned())));
        Arc::new(Self { container, name: name.to_owned(), books: Mutex::new(vec![book]) })
    }

    /// The books of all segments there ever were.
    pub(in crate::world) fn books(&self) -> Vec<Arc<Mutex<Book>>> {
        self.books.lock().clone()
    }

    /// Which container holds its segments.
    pub(in crate::world) fn container(&self) -> u16 {
        self.container
    }

    /// The open segment, with its number in the chain; none before the first is made.
    pub(super) fn open(&self) -> Option<(usize, Arc<Mutex<Book>>)> {
        let books = self.books.lock();
        let last = books.last()?;
        Some((books.len(), Arc::clone(last)))
    }

    /// Makes segments, and seals the one before.
    pub(in crate::world) async fn own(self: Arc<Self>, scene: Scene, chance: SeededEntropy) {
        loop {
            let number = self.books.lock().len();
            let name = format!("{}/{number}", self.name);
            let made = scene.see_to(self.container, create(&name, SegmentKind::Stream), |refusal| {
                *refusal == Refusal::AlreadyExists
            });
            made.await;
            let book = Arc::new(Mutex::new(Book::new(name)));
            let before = self.books.lock().last().cloned();
            self.books.lock().push(Arc::clone(&book));
            drop(tokio::spawn(reader::whole(scene.clone(), self.container, Arc::clone(&book))));
            let reading = reader::anywhere(
                scene.clone(),
                self.container,
                book,
                SeededEntropy::new(chance.below(u64::MAX)),
            );
            drop(tokio::spawn(reading));
            if let Some(before) = before {
                self.seal(&scene, &before).await;
            }
            if !scene.pause(Duration::from_millis(5_000 + chance.below(30_000))).await {
                return;
            }
        }
    }

    /// Sets readers on a segment.
    pub(super) fn read(&self, scene: &Scene, book: &Arc<Mutex<Book>>, chance: &SeededEntropy) {
        drop(tokio::spawn(reader::whole(scene.clone(), self.container, Arc::clone(book))));
        let part = SeededEntropy::new(chance.below(u64::MAX));
        drop(tokio::spawn(reader::anywhere(scene.clone(), self.container, Arc::clone(book), part)));
    }

    async fn seal(&self, scene: &Scene, book: &Mutex<Book>) {
        let name = {
            let mut book = book.lock();
            book.may_be_sealed = true;
            book.name.clone()
        };
        let sealed = |refusal: &Refusal| *refusal == Refusal::Sealed;
        scene.see_to(self.container, Request::Seal { name }, sealed).await;
    }

    /// Lets go of what was read: truncates the open segment, deletes sealed ones.
    pub(in crate::world) async fn retain(self: Arc<Self>, scene: Scene, chance: SeededEntropy) {
        while scene.pause(Duration::from_millis(1_000 + chance.below(6_000))).await {
            let books = self.books();
            let Some((open, before)) = books.split_last() else { continue };
            if chance.below(2) == 0 {
                self.truncate(&scene, open, &chance).await;
            }
            for book in before {
                let done = {
                    let book = book.lock();
                    book.is_sealed() && !book.may_be_gone
                };
                if done && chance.below(3) == 0 {
                    self.delete(&scene, book).await;
                }
            }
        }
    }

    async fn truncate(&self, scene: &Scene, book: &Mutex<Book>, chance: &SeededEntropy) {
        let Some((name, offset)) = ({
            let mut book = book.lock();
            let readable = book.start_asked..book.read_upto;
            let offset = book.boundary(readable, chance.below(u64::MAX));
            offset.map(|offset| {
                book.start_asked = offset;
                (book.name.clone(), offset)
            })
        }) else {
            return;
        };
        let truncate = Request::Truncate { name, offset: i64::try_from(offset).unwrap_or(i64::MAX) };
        if scene.see_to(self.container, truncate, |_| false).await.is_some() {
            book.lock().start_known = offset;
        }
    }

    async fn delete(&self, scene: &Scene, book: &Mutex<Book>) {
        let name = {
            let mut book = book.lock();
            book.may_be_gone = true;
            book.name.clone()
        };
        let delete = Request::Delete { name, table: false, must_be_empty: false };
        scene.see_to(self.container, delete, |refusal| *refusal == Refusal::NoSuchSegment).await;
    }
}
