//! Segments that are filled aside and become part of a lane by a merge, or never do.

use super::lane::{Lane, create};
use super::pen::{Pen, Standing};
use crate::operation::{Answer, Refusal, Request, SegmentKind};
use crate::world::book::Book;
use crate::world::event::EventId;
use crate::world::few;
use crate::world::front::Scene;
use dhara_stdx::SeededEntropy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Gives each transaction its writer.
pub(in crate::world) type Ids = Arc<AtomicU32>;

/// A filled segment of its own.
struct Filled {
    name: String,
    writer: u32,
    events: u32,
}

impl Filled {
    fn bytes(&self) -> u64 {
        self.ids().map(EventId::length).sum()
    }

    fn ids(&self) -> impl Iterator<Item = EventId> {
        let writer = self.writer;
        (1..=self.events).map(move |number| EventId { writer, number })
    }
}

/// Begins, fills, and commits or aborts transactions on a lane, one or several at a time.
pub(in crate::world) async fn transactions(scene: Scene, lane: Arc<Lane>, ids: Ids, chance: SeededEntropy) {
    while scene.pause(Duration::from_millis(200 + chance.below(5_000))).await {
        let mut filled = Vec::new();
        for _ in 0..=chance.below(3) {
            let writer = ids.fetch_add(1, Ordering::Relaxed);
            filled.extend(fill(&scene, &lane, writer, &chance).await);
        }
        scene.pause(Duration::from_millis(chance.below(2_000))).await;
        if chance.below(4) == 0 {
            for one in filled {
                abort(&scene, &lane, &one).await;
            }
        } else if chance.below(2) == 0 {
            for one in filled {
                merge(&scene, &lane, &one).await;
            }
        } else {
            merge_batch(&scene, &lane, &filled).await;
        }
    }
}

async fn fill(scene: &Scene, lane: &Lane, writer: u32, chance: &SeededEntropy) -> Option<Filled> {
    let name = format!("transaction/{writer}");
    let exists = |refusal: &Refusal| *refusal == Refusal::AlreadyExists;
    scene.see_to(lane.container, create(&name, SegmentKind::Stream), exists).await;
    let own = Arc::new(Mutex::new(Book::new(name.clone())));
    let mut pen = Pen::new(writer, own, scene.court.clone());
    let events = 1 + few(chance, 6);
    loop {
        let client = scene.dial(lane.container).await;
        match pen.set_up(&client).await {
            Ok(()) => {}
            Err(Refusal::Unavailable) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(refusal) => {
                scene.court.accuse(format!("{name} cannot be filled: {refusal:?}"));
                return None;
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
                return Some(Filled { name, writer, events });
            } else {
                pen.changed().await;
            }
        }
        if let Standing::Refused(refusal) = pen.standing() {
            scene.court.accuse(format!("{name} takes no more: {refusal:?}"));
            return None;
        }
        client.hang_up().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn abort(scene: &Scene, lane: &Lane, filled: &Filled) {
    let delete = Request::Delete { name: filled.name.clone(), table: false, must_be_empty: false };
    scene.see_to(lane.container, delete, |refusal| *refusal == Refusal::NoSuchSegment).await;
    for book in lane.books() {
        scene.court.check(book.lock().bar(filled.writer));
    }
}

/// Merges into the open segment; where a seal was faster, into the next one.
async fn merge(scene: &Scene, lane: &Lane, filled: &Filled) {
    loop {
        let Some((_, book)) = lane.open() else { return };
        let target = target_of(&book, std::slice::from_ref(filled));
        let merge = Request::Merge { target, source: filled.name.clone(), updates: Vec::new() };
        let (outcome, again) = scene.insist(lane.container, merge).await;
        match outcome {
            Ok(Answer::Merged(length)) => {
                scene.court.check(place(&mut book.lock(), filled, length));
                return;
            }
            // The source went with an earlier try, or the target has been sealed or deleted since it was chosen.
            Err(Refusal::NoSuchSegment) if again && !lies_alone(scene, lane, filled).await => {
                filled.ids().for_each(|event| book.lock().owe(event));
                return;
            }
            Err(Refusal::Sealed | Refusal::NoSuchSegment) if book.lock().may_be_sealed => {}
            other => {
                scene.court.accuse(format!("merge of {} gave {other:?}", filled.name));
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn merge_batch(scene: &Scene, lane: &Lane, filled: &[Filled]) {
    loop {
        let Some((_, book)) = lane.open() else { return };
        let target = target_of(&book, filled);
        let sources = filled.iter().map(|one| one.name.clone()).collect();
        let (outcome, again) = scene.insist(lane.container, Request::MergeBatch { target, sources }).await;
        match outcome {
            Ok(Answer::BatchMerged(lengths)) if lengths.len() == filled.len() => {
                let mut book = book.lock();
                for (one, length) in filled.iter().zip(lengths) {
                    if again {
                        one.ids().for_each(|event| book.owe(event));
                    } else {
                        scene.court.check(place(&mut book, one, length));
                    }
                }
                return;
            }
            // An earlier try may have merged any number of them, all into this segment.
            Err(Refusal::Sealed | Refusal::NoSuchSegment) if book.lock().may_be_sealed && again => {
                for one in filled {
                    if lies_alone(scene, lane, one).await {
                        abort(scene, lane, one).await;
                    } else {
                        one.ids().for_each(|event| book.lock().owe(event));
                    }
                }
                return;
            }
            Err(Refusal::Sealed | Refusal::NoSuchSegment) if book.lock().may_be_sealed => {}
            other => {
                scene.court.accuse(format!("merge of {} segments gave {other:?}", filled.len()));
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a transaction's segment is still there by itself.
async fn lies_alone(scene: &Scene, lane: &Lane, filled: &Filled) -> bool {
    let ask = Request::GetAttribute { name: filled.name.clone(), attribute: Pen::id(filled.writer) };
    !matches!(scene.insist(lane.container, ask).await.0, Err(Refusal::NoSuchSegment))
}

fn target_of(book: &Mutex<Book>, filled: &[Filled]) -> String {
    let mut book = book.lock();
    for one in filled {
        book.keep_whole(one.writer, one.events);
    }
    book.name.clone()
}

/// All events of `filled` lie side by side and end at `length`.
fn place(book: &mut Book, filled: &Filled, length: u64) -> Result<(), String> {
    let mut at = length.checked_sub(filled.bytes()).ok_or("a merge ends before its source's length")?;
    for event in filled.ids() {
        book.fact(at, event)?;
        at += event.length();
    }
    Ok(())
}

/// Sends large events in parts through segments that live no longer than their connection.
pub(in crate::world) async fn transients(scene: Scene, lane: Arc<Lane>, ids: Ids, chance: SeededEntropy) {
    while scene.pause(Duration::from_millis(500 + chance.below(6_000))).await {
        let writer = ids.fetch_add(1, Ordering::Relaxed);
        let event = EventId { writer, number: 1 };
        let name = format!("transient/{writer}");
        let client = scene.dial(lane.container).await;
        let kind = SegmentKind::Transient { connection: client.id.0, epoch: 0 };
        if client.ask(create(&name, kind)).await.is_err() {
            client.hang_up().await;
            continue;
        }
        let own = Arc::new(Mutex::new(Book::new(name.clone())));
        let mut pen = Pen::new(writer, own, scene.court.clone());
        if pen.set_up(&client).await.is_err() {
            client.hang_up().await;
            continue;
        }
        pen.append(&client, 1, 1).await;
        while pen.standing() == Standing::Good && pen.open() > 0 {
            pen.changed().await;
        }
        let filled = Filled { name: name.clone(), writer, events: 1 };
        let commits = pen.open() == 0 && chance.below(3) > 0;
        if commits && let Some((_, book)) = lane.open() {
            let target = target_of(&book, std::slice::from_ref(&filled));
            let merge = Request::Merge { target, source: name.clone(), updates: Vec::new() };
            match client.ask(merge).await {
                Ok(Answer::Merged(length)) => {
                    scene.court.check(place(&mut book.lock(), &filled, length));
                }
                Err(Refusal::Unavailable) => {}
                Err(Refusal::Sealed | Refusal::NoSuchSegment) if book.lock().may_be_sealed => {}
                other => scene.court.accuse(format!("merge of {event:?} gave {other:?}")),
            }
        } else if !commits {
            lane.books().iter().for_each(|book| scene.court.check(book.lock().bar(writer)));
        }
        client.hang_up().await;
        outlived(&scene, &lane, &name).await;
    }
}

/// A transient segment is gone once its connection is.
async fn outlived(scene: &Scene, lane: &Lane, name: &str) {
    let ask = Request::GetAttribute { name: name.to_owned(), attribute: Pen::id(0) };
    let (outcome, _) = scene.insist(lane.container, ask).await;
    if outcome != Err(Refusal::NoSuchSegment) {
        scene.court.accuse(format!("{name} outlived its connection: {outcome:?}"));
    }
}
