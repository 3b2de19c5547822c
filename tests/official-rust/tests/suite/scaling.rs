//! Splits and merges under a writer and a group of two readers.
//!
//! `EVENTS` sets how many events are written at least (20000).

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pravega_client::event::reader::EventReader;
use pravega_client::event::writer::EventWriter;
use tokio::sync::watch;

use crate::world::{assert_once_and_in_order, drain, in_time, read, take_events, write_numbered, World};

const KEYS: usize = 50;
const PHASES: usize = 3;
const UNKNOWN: usize = usize::MAX;

/// Writes `quota` events a phase, tells so, and goes on slowly until `scaled` reaches the phase's number.
async fn write(
    mut writer: EventWriter,
    quota: usize,
    done: watch::Sender<usize>,
    scaled: watch::Receiver<usize>,
) -> usize {
    let mut written = 0;
    for phase in 1..=PHASES {
        for _ in 0..quota {
            write_numbered(&mut writer, written, KEYS).await;
            written += 1;
        }
        in_time("flush", writer.flush()).await.unwrap();
        done.send_replace(phase);
        while *scaled.borrow() < phase {
            write_numbered(&mut writer, written, KEYS).await;
            written += 1;
            in_time("flush", writer.flush()).await.unwrap();
        }
    }
    written
}

/// What the two readers have read, and how much there will be in the end.
struct Progress {
    seen: [AtomicUsize; 2],
    /// Of both, in the order of arrival: a key may move from one reader to the other and back.
    events: Mutex<Vec<Vec<u8>>>,
    total: AtomicUsize,
}

impl Progress {
    fn complete(&self) -> bool {
        let seen: usize = self.seen.iter().map(|seen| seen.load(Ordering::SeqCst)).sum();
        seen >= self.total.load(Ordering::SeqCst)
    }

    /// A reader gets segments of another's only when the client rebalances, every ten seconds.
    async fn both_take_part(&self) {
        in_time("rebalancing", async {
            while self.seen.iter().any(|seen| seen.load(Ordering::SeqCst) == 0) {
                tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
            }
        })
        .await;
    }
}

/// Reads until both readers together have everything.
async fn follow(mut reader: EventReader, progress: Arc<Progress>, index: usize) {
    while !progress.complete() {
        take_events(&mut reader, |found| {
            progress.seen[index].fetch_add(found.len(), Ordering::SeqCst);
            progress.events.lock().unwrap().extend(found);
        })
        .await;
    }
    let rest = drain(&mut reader).await;
    progress.events.lock().unwrap().extend(rest);
    reader.reader_offline().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_event_once_and_in_order_over_split_and_merge() {
    let count: usize = env::var("EVENTS").map_or(20_000, |text| text.parse().unwrap());
    let world = World::new().await;
    let stream = world.stream("large", 4).await;
    let progress = Arc::new(Progress {
        seen: Default::default(),
        events: Mutex::default(),
        total: AtomicUsize::new(UNKNOWN),
    });
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut readers = Vec::new();
    for index in 0..2 {
        let reader = group.create_reader(format!("reader-{index}")).await;
        readers.push(tokio::spawn(follow(reader, progress.clone(), index)));
    }
    let (done, mut quota_done) = watch::channel(0);
    let (release, scaled) = watch::channel(0);
    let writer = world.factory.create_event_writer(stream.clone());
    let writing = tokio::spawn(write(writer, count.div_ceil(PHASES), done, scaled));

    // The first phase ends when both readers have segments; the split runs in the second, the merge in the third.
    for phase in 1..=PHASES {
        match phase {
            1 => progress.both_take_part().await,
            2 => world.split(&stream, 1).await,
            _ => world.merge(&stream, 2).await,
        }
        in_time("phase", quota_done.wait_for(|done| *done >= phase))
            .await
            .unwrap();
        release.send_replace(phase);
    }
    let written = in_time("the writer's end", writing).await.unwrap();
    world.seal(&stream).await;
    progress.total.store(written, Ordering::SeqCst);

    for reader in readers {
        reader.await.unwrap();
    }
    assert!(written >= count);
    assert_once_and_in_order(&progress.events.lock().unwrap(), KEYS, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_follows_two_scalings_while_it_was_idle() {
    let world = World::new().await;
    let stream = world.stream("idle", 1).await;
    let mut writer = world.factory.create_event_writer(stream.clone());
    for number in 0..600 {
        match number {
            200 => {
                world.split(&stream, 0).await;
                world.split(&stream, 1).await;
            }
            400 => {
                world.merge(&stream, 0).await;
                world.merge(&stream, 0).await;
            }
            _ => {}
        }
        write_numbered(&mut writer, number, KEYS).await;
        if number % 100 == 99 {
            in_time("flush", writer.flush()).await.unwrap();
        }
    }
    let events = world.read_from_head("group", &stream, 600).await;
    assert_once_and_in_order(&events, KEYS, 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_crosses_segments_that_never_had_an_event() {
    let world = World::new().await;
    let stream = world.stream("empty", 1).await;
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    world.split(&stream, 0).await;
    world.merge(&stream, 0).await;
    let mut writer = world.factory.create_event_writer(stream.clone());
    write_numbered(&mut writer, 0, 1).await;
    writer.flush().await.unwrap();
    let events = read(&mut reader, 1).await;
    reader.reader_offline().await.unwrap();
    assert_once_and_in_order(&events, 1, 1);
}
