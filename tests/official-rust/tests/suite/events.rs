//! Events: writing, and reading through groups.

use std::collections::HashMap;

use pravega_client::event::reader_group::{ReaderGroupConfigBuilder, StreamCutV1, StreamCutVersioned};
use pravega_client_shared::ScopedStream;

use crate::world::{assert_once_and_in_order, by_key, drain, in_time, next_events, read, write_numbered, World};

impl World {
    /// Writes the numbered events `from..to` of `keys` keys and waits for their acknowledgement.
    async fn write(&self, stream: &ScopedStream, from: usize, to: usize, keys: usize) {
        let mut writer = self.factory.create_event_writer(stream.clone());
        for number in from..to {
            write_numbered(&mut writer, number, keys).await;
        }
        in_time("flush", writer.flush()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_group_reads_all_events_in_order_per_key() {
    let world = World::new().await;
    let stream = world.stream("ordered", 4).await;
    world.write(&stream, 0, 2000, 20).await;
    for group in ["first", "second"] {
        let events = world.read_from_head(group, &stream, 2000).await;
        assert_once_and_in_order(&events, 20, 2000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_any_size_is_read_back() {
    let world = World::new().await;
    let stream = world.stream("sizes", 1).await;
    let mut writer = world.factory.create_event_writer(stream.clone());
    let sizes = [1, 100, 65_536, 1 << 20, (8 << 20) - 8, (8 << 20) + 1, 12_000_000];
    let event = |size: usize| (0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    for size in sizes {
        let written = writer.write_event_by_routing_key("key".to_owned(), event(size)).await;
        in_time(size, written).await.unwrap().unwrap();
    }
    let events = world.read_from_head("group", &stream, sizes.len()).await;
    assert_eq!(events.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
    assert!(events.iter().all(|found| *found == event(found.len())));
}

#[tokio::test(flavor = "multi_thread")]
async fn next_reader_goes_on_where_the_last_one_stopped() {
    let world = World::new().await;
    let stream = world.stream("handover", 1).await;
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut events = Vec::new();
    for round in 0..3 {
        world.write(&stream, round * 50, round * 50 + 50, 1).await;
        let mut reader = group.create_reader(format!("reader-{round}")).await;
        events.extend(read(&mut reader, 50).await);
        reader.reader_offline().await.unwrap();
    }
    assert_once_and_in_order(&events, 1, 150);
    assert!(group.list_readers().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_read_slice_is_given_to_the_next_reader() {
    let world = World::new().await;
    let stream = world.stream("half", 1).await;
    world.write(&stream, 0, 100, 1).await;
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut first = group.create_reader("first".to_owned()).await;
    let mut slice = loop {
        if let Some(slice) = in_time("slice", first.acquire_segment()).await.unwrap() {
            break slice;
        }
    };
    let mut events: Vec<_> = slice.by_ref().take(30).map(|event| event.value).collect();
    first.release_segment(slice).await.unwrap();
    first.reader_offline().await.unwrap();
    let mut second = group.create_reader("second".to_owned()).await;
    events.extend(read(&mut second, 70).await);
    second.reader_offline().await.unwrap();
    assert_once_and_in_order(&events, 1, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_from_the_tail_sees_only_what_comes_later() {
    let world = World::new().await;
    let stream = world.stream("tail", 2).await;
    world.write(&stream, 0, 100, 5).await;
    let config = ReaderGroupConfigBuilder::default()
        .read_from_tail_of_stream(stream.clone())
        .build();
    let group = world
        .factory
        .create_reader_group_with_config(world.scope.clone(), "group".to_owned(), config)
        .await;
    world.write(&stream, 100, 150, 5).await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    let events = read(&mut reader, 50).await;
    reader.reader_offline().await.unwrap();
    for numbers in by_key(&events).values() {
        assert_eq!(*numbers, (20..30).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_starts_at_its_stream_cut() {
    let world = World::new().await;
    let stream = world.stream("cut", 1).await;
    world.write(&stream, 0, 10, 1).await;
    // Each event is 8 bytes of header and "key-0:N".
    let segment = world.segments(&stream).await.swap_remove(0).2;
    let cut = StreamCutV1::new(stream.clone(), HashMap::from([(segment, 4 * 15)]));
    let config = ReaderGroupConfigBuilder::default()
        .read_from_stream(stream.clone(), StreamCutVersioned::V1(cut))
        .build();
    let group = world
        .factory
        .create_reader_group_with_config(world.scope.clone(), "group".to_owned(), config)
        .await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    let events = read(&mut reader, 6).await;
    reader.reader_offline().await.unwrap();
    assert_eq!(by_key(&events)["key-0"], [4, 5, 6, 7, 8, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn group_reads_several_streams() {
    let world = World::new().await;
    let (left, right) = (world.stream("left", 2).await, world.stream("right", 1).await);
    world.write(&left, 0, 60, 3).await;
    world.write(&right, 0, 60, 3).await;
    let config = ReaderGroupConfigBuilder::default()
        .add_stream(left.clone())
        .add_stream(right.clone())
        .build();
    let group = world
        .factory
        .create_reader_group_with_config(world.scope.clone(), "group".to_owned(), config)
        .await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    let events = read(&mut reader, 120).await;
    reader.reader_offline().await.unwrap();
    for mut numbers in by_key(&events).into_values() {
        numbers.sort_unstable();
        assert_eq!(numbers, (0..40).map(|n| n / 2).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_reader_is_woken_by_a_write() {
    let world = World::new().await;
    let stream = world.stream("waiting", 1).await;
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    let (events, ()) = tokio::join!(read(&mut reader, 10), world.write(&stream, 0, 10, 1));
    reader.reader_offline().await.unwrap();
    assert_once_and_in_order(&events, 1, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_stream_ends_for_readers_and_refuses_writers() {
    let world = World::new().await;
    let stream = world.stream("sealed", 2).await;
    world.write(&stream, 0, 100, 4).await;
    world.seal(&stream).await;
    let group = world
        .factory
        .create_reader_group("group".to_owned(), stream.clone())
        .await;
    let mut reader = group.create_reader("reader".to_owned()).await;
    let mut events = read(&mut reader, 100).await;
    events.extend(drain(&mut reader).await);
    assert!(next_events(&mut reader).await.is_empty());
    reader.reader_offline().await.unwrap();
    assert_once_and_in_order(&events, 4, 100);
    assert!(world.segments(&stream).await.is_empty());
}
