//! Bytes on their way to objects and back, on a container of its own.

use super::*;
use crate::container::GivenUp;
use crate::operation::Request;
use futures_util::StreamExt;

impl Running {
    /// Asks that the log be not needed, and waits for it.
    async fn to_storage(&self, number: usize) {
        let heard = self.heard.clone();
        let call = move |outcome: Outcome| heard.0.lock().push((number, outcome));
        self.handle.send(Operation::FlushToStorage(Box::new(call))).await.unwrap();
        self.settle().await;
        assert_eq!(self.heard.of(number), Some(Ok(Answer::Done)), "nothing holds it up");
    }

    fn extents(&self, name: &str) -> Vec<(u64, u32)> {
        let extents = self.handle.views().find(name).unwrap().extents();
        extents.iter().map(|extent| (extent.offset, extent.length)).collect()
    }
}

async fn names_in(store: &InMemory) -> Vec<String> {
    let mut names: Vec<String> =
        store.list(None).map(|object| object.unwrap().location.to_string()).collect().await;
    names.sort();
    names
}

async fn writes(running: &Running, name: &str, connection: u64, appends: i64) {
    let number = usize::try_from(connection).unwrap() * 1_000;
    running.request(number, create(name, SegmentKind::Stream)).await;
    running.request(number + 1, set_up(session(connection, 1), name)).await;
    for event in 1..=appends {
        let number = number + 1 + usize::try_from(event).unwrap();
        running.append(number, session(connection, 1), event, b"ten bytes!").await;
        running.settle().await;
    }
}

#[test]
fn flushed_bytes_are_read_from_objects_and_the_log_is_not_needed() {
    on_paused_clock(async {
        let mut world = World::new(41);
        let running = world.open().await;
        writes(&running, "big", 1, 60).await;
        writes(&running, "small", 2, 3).await;
        let before = running.content("big").await;
        running.to_storage(1).await;
        assert_eq!(running.extents("big"), [(0, 250), (250, 250), (500, 100)], "at most 256 bytes each");
        assert_eq!(running.extents("small"), [(0, 30)]);
        assert_eq!(running.content("big").await, before);
        let (mut reader, _writer) = running.log.open(ContainerId(1)).unwrap();
        assert!(reader.next().unwrap().is_none(), "the other container never wrote");
        world.crash(running, 7).await;
        // A log that lost everything below the floor is whole.
        let running = world.open().await;
        assert_eq!(running.content("big").await, before);
        assert_eq!(running.extents("small"), [(0, 30)]);
    });
}

#[test]
fn quiet_container_does_not_keep_the_log() {
    on_paused_clock(async {
        let mut world = World::new(40);
        for round in 0..3 {
            let log = world.open_log();
            let quiet = world.open_on(&log, 1).await.unwrap();
            let busy = world.open_on(&log, 0).await.unwrap();
            if round == 0 {
                quiet.request(1, create("quiet", SegmentKind::Stream)).await;
                quiet.settle().await;
                quiet.flush().await;
            }
            let name = ["a", "b", "c"][round];
            let used_at_first = log.room().used_bytes;
            writes(&busy, name, 1, 60).await;
            assert!(log.room().used_bytes >= used_at_first + 3 * FILE_BYTES);
            busy.to_storage(1).await;
            // One more frame, since files go with the frame that carries the floors.
            writes(&busy, &name.repeat(2), 2, 1).await;
            assert!(log.room().used_bytes <= 2 * FILE_BYTES, "round {round}: {}", log.room().used_bytes);
            world.crash(busy, 1).await;
            quiet.task.abort();
            drop(quiet.task.await);
        }
    });
}

#[test]
fn merged_segment_brings_its_extents_along() {
    on_paused_clock(async {
        let mut world = World::new(42);
        let running = world.open().await;
        writes(&running, "t", 1, 2).await;
        writes(&running, "s", 2, 10).await;
        running.to_storage(1).await;
        running.append(500, session(1, 1), 3, b"in the log").await;
        running.settle().await;
        running.request(2, Request::Merge { target: "t".into(), source: "s".into(), updates: vec![] }).await;
        running.settle().await;
        let content = running.content("t").await.unwrap();
        assert_eq!(content.len(), 130);
        assert_eq!(running.extents("t"), [(0, 20), (30, 100)]);
        world.crash(running, 1).await;
        for seed in 2..4 {
            let running = world.open().await;
            assert_eq!(running.content("t").await.unwrap(), content);
            if seed == 2 {
                running.to_storage(3).await;
            }
            world.crash(running, seed).await;
        }
        let running = world.open().await;
        assert_eq!(running.content("t").await.unwrap(), content);
        assert_eq!(running.extents("t"), [(0, 20), (20, 10), (30, 100)]);
    });
}

#[test]
fn object_goes_when_its_last_extent_is_gone_and_its_grace_is_over() {
    on_paused_clock(async {
        let mut world = World::new(43);
        let running = world.open().await;
        writes(&running, "a", 1, 3).await;
        writes(&running, "b", 2, 3).await;
        running.to_storage(1).await;
        assert_eq!(names_in(&world.objects).await.len(), 1, "both lie in one object");
        running.request(2, Request::Delete { name: "a".into(), table: false, must_be_empty: false }).await;
        running.pass(GRACE * 10).await;
        assert_eq!(names_in(&world.objects).await.len(), 1, "one segment is still in it");
        running.request(3, Request::Truncate { name: "b".into(), offset: 30 }).await;
        running.pass(GRACE / 2).await;
        assert_eq!(names_in(&world.objects).await.len(), 1);
        running.pass(GRACE * 5).await;
        assert_eq!(names_in(&world.objects).await, Vec::<String>::new());
        world.crash(running, 3).await;
        let running = world.open().await;
        assert_eq!(running.content("b").await.unwrap(), b"");
    });
}

#[test]
fn name_planned_by_an_earlier_epoch_is_given_up_and_its_object_deleted() {
    on_paused_clock(async {
        let mut world = World::new(44);
        let running = world.open().await;
        writes(&running, "a", 1, 3).await;
        // The object is put, but the record that makes it readable never becomes durable.
        let unheard = Operation::FlushToStorage(Box::new(|_| {}));
        running.handle.send(unheard).await.unwrap();
        running.idle().await;
        assert!(running.log.log.turn().unwrap(), "names are planned");
        running.idle().await;
        assert_eq!(names_in(&world.objects).await.len(), 1);
        let content = running.content("a").await;
        world.crash(running, 5).await;
        let running = world.open().await;
        assert_eq!((running.extents("a"), running.content("a").await), (vec![], content));
        running.pass(GRACE * 4).await;
        assert_eq!(names_in(&world.objects).await, Vec::<String>::new());
    });
}

#[test]
fn sixteen_packed_objects_become_one_with_joined_ranges() {
    on_paused_clock(async {
        let mut world = World::new(45);
        let running = world.open().await;
        for (connection, name) in [(1, "a"), (2, "b")] {
            writes(&running, name, connection, 0).await;
        }
        let mut number = 100;
        for round in 0..16 {
            for connection in [1, 2] {
                let event = i64::from(round) + 1;
                running.append(number, session(connection, 1), event, b"abcdefg").await;
                number += 1;
            }
            running.settle().await;
            running.to_storage(number).await;
            number += 1;
        }
        let content = [running.content("a").await, running.content("b").await];
        assert_eq!(running.extents("a").len(), 16);
        assert_eq!(names_in(&world.objects).await.len(), 16);
        running.pass(Duration::from_mins(1)).await;
        assert_eq!((running.extents("a"), running.extents("b")), (vec![(0, 112)], vec![(0, 112)]));
        assert_eq!([running.content("a").await, running.content("b").await], content);
        assert_eq!(
            names_in(&world.objects).await.len(),
            2,
            "both are large now, and what they were in is gone"
        );
        world.crash(running, 2).await;
        let running = world.open().await;
        assert_eq!(running.extents("a"), [(0, 112)]);
        assert_eq!([running.content("a").await, running.content("b").await], content);
    });
}

#[test]
fn quiet_store_regroups_what_is_left_and_leaves_truncated_bytes_behind() {
    on_paused_clock(async {
        let mut world = World::new(46);
        let running = world.open().await;
        writes(&running, "a", 1, 3).await;
        running.to_storage(1).await;
        for event in 4..7 {
            running.append(200 + usize::try_from(event).unwrap(), session(1, 1), event, b"ten bytes!").await;
            running.settle().await;
        }
        running.to_storage(2).await;
        running.request(3, Request::Truncate { name: "a".into(), offset: 15 }).await;
        running.settle().await;
        let content = running.content("a").await;
        assert_eq!(running.extents("a"), [(0, 30), (30, 30)]);
        running.pass(Duration::from_mins(12)).await;
        assert_eq!(running.extents("a"), [(15, 45)]);
        assert_eq!(running.content("a").await, content);
        world.crash(running, 2).await;
        assert_eq!(world.open().await.content("a").await, content);
    });
}

#[test]
fn lost_log_costs_nothing_after_a_flush_and_exactly_what_came_later_without_one() {
    //
    on_paused_clock(async {
        let mut world = World::new(47);
        let running = world.open().await;
        writes(&running, "kept", 1, 3).await;
        writes(&running, "torn", 2, 3).await;
        running.to_storage(1).await;
        running.append(900, session(2, 1), 4, b"after the flush").await;
        running.settle().await;
        running.flush().await;
        let kept = running.content("kept").await;
        world.crash(running, 1).await;
        world.disk = SimDisk::new(99);
        let log = world.open_log();
        assert!(
            matches!(world.open_on(&log, 0).await.err(), Some(OpenError::Lost { .. })),
            "a person decides"
        );
        let given_up = Arc::new(Mutex::new(Vec::new()));
        world.lost_log = LostLog::GiveUp(Arc::clone(&given_up));
        let running = world.open_on(&log, 0).await.unwrap();
        let (container, segment) = (ContainerId(0), "torn".to_owned());
        assert_eq!(*given_up.lock(), [GivenUp { container, segment, start: 0, stored: 30, length: 45 }]);
        assert_eq!(
            (running.content("kept").await, running.content("torn").await),
            (kept.clone(), Some(vec![]))
        );
        running.request(3, set_up(session(3, 1), "torn")).await;
        running.append(901, session(3, 1), 5, b"goes on").await;
        running.settle().await;
        world.crash(running, 2).await;
        world.lost_log = LostLog::Refuse;
        let running = world.open().await;
        assert_eq!(
            (running.content("kept").await, running.content("torn").await),
            (kept, Some(b"goes on".to_vec()))
        );
        assert_eq!(running.handle.views().find("torn").unwrap().core().start, 45);
    });
}
