//! Crashes and recoveries.

use super::*;

#[test]
fn containers_whose_batches_share_a_frame_keep_their_own_bytes() {
    // Found by reading: a piece of small appends was carried over the batches of another container, whose segments
    // have the same ids.
    on_paused_clock(async {
        let mut world = World::new(21);
        let log = world.open_log();
        let both = [world.open_on(&log, 0).await.unwrap(), world.open_on(&log, 1).await.unwrap()];
        for running in &both {
            running.request(0, create("s", SegmentKind::Stream)).await;
            running.request(1, set_up(session(1, 1), "s")).await;
        }
        both[0].settle().await;
        // Each container hands over a batch in turn, and all of them go into one frame.
        for event in 1..=3 {
            for (running, data) in both.iter().zip([&[b'a'; 300], &[b'b'; 300]]) {
                running.append(2, session(1, 1), event, data).await;
                running.idle().await;
            }
        }
        both[0].settle().await;
        let expected = [vec![b'a'; 900], vec![b'b'; 900]];
        let contents = async |both: &[Running; 2]| {
            [both[0].content("s").await.unwrap(), both[1].content("s").await.unwrap()]
        };
        assert_eq!(contents(&both).await, expected);
        let disk = world.disk.crash(1);
        for running in both {
            running.task.abort();
            drop(running.task.await);
        }
        drop(log);
        world.disk = disk;
        let log = world.open_log();
        let both = [world.open_on(&log, 0).await.unwrap(), world.open_on(&log, 1).await.unwrap()];
        assert_eq!(contents(&both).await, expected);
    });
}

/// Appends `count` events of `bytes` bytes, each durable on its own; the answers go to operation `number` and on.
async fn fill(running: &Running, number: usize, count: usize, bytes: usize) {
    for at in 0..count {
        let data = Bytes::from(vec![u8::try_from(at % 251).unwrap(); bytes]);
        let put = Put {
            session: session(1, 1),
            number: i64::try_from(number + at).unwrap(),
            data,
            events: 1,
            expected_offset: None,
        };
        running.send(number + at, &Do::Append(put, WRITER)).await;
        running.settle().await;
    }
}

#[test]
fn truncation_and_flush_let_the_log_go_and_what_is_left_is_found_again() {
    on_paused_clock(async {
        let mut world = World::new(22);
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        // About thirty log files, with a flush now and then.
        for round in 0..10 {
            fill(&running, 10 + 20 * round, 20, 9_000).await;
            running.flush().await;
        }
        let before = running.handle.log().oldest();
        let content = running.content("s").await.unwrap();
        running.request(2, Request::Truncate { name: "s".into(), offset: 1_750_000 }).await;
        running.settle().await;
        running.flush().await;
        // Floors go to the log with the next frame.
        fill(&running, 500, 1, 10).await;
        running.settle().await;
        let after = running.handle.log().oldest();
        assert!(after > before, "the log lets go of what nobody needs");
        let kept = running.content("s").await.unwrap();
        assert_eq!(kept[..50_000], content[1_750_000..]);
        world.crash(running, 3).await;
        let running = world.open().await;
        assert_eq!(running.content("s").await.unwrap(), kept);
    });
}

#[test]
fn merged_bytes_are_found_again_when_the_log_let_go_of_the_first_of_them() {
    on_paused_clock(async {
        let mut world = World::new(23);
        let running = world.open().await;
        running.request(0, create("target", SegmentKind::Stream)).await;
        running.request(1, create("source", SegmentKind::Stream)).await;
        running.request(2, set_up(session(1, 1), "source")).await;
        fill(&running, 10, 40, 9_000).await;
        let before = running.handle.log().oldest();
        running
            .request(3, Request::Merge { target: "target".into(), source: "source".into(), updates: vec![] })
            .await;
        running.settle().await;
        assert_eq!(running.heard.of(3), Some(Ok(Answer::Merged(360_000))));
        running.request(4, Request::Truncate { name: "target".into(), offset: 200_000 }).await;
        running
            .request(
                5,
                Request::SetupAppend { session: session(1, 2), name: "target".into(), writer: WRITER },
            )
            .await;
        running.settle().await;
        running.flush().await;
        let put = Put {
            session: session(1, 2),
            number: 1,
            data: Bytes::from_static(b"end"),
            events: 1,
            expected_offset: None,
        };
        running.send(6, &Do::Append(put, WRITER)).await;
        running.settle().await;
        assert!(running.handle.log().oldest() > before);
        let kept = running.content("target").await.unwrap();
        assert_eq!(kept.len(), 160_003);
        world.crash(running, 5).await;
        let running = world.open().await;
        assert_eq!(running.content("target").await.unwrap(), kept);
        assert_eq!(running.content("source").await, None);
    });
}

#[test]
fn lost_log_is_refused() {
    on_paused_clock(async {
        let mut world = World::new(24);
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        fill(&running, 10, 1, 100).await;
        running.flush().await;
        world.crash(running, 1).await;
        world.disk = SimDisk::new(1);
        let log = world.open_log();
        assert!(matches!(world.open_on(&log, 0).await.err(), Some(OpenError::Lost { .. })));
    });
}

#[test]
fn log_that_begins_behind_what_the_index_holds_is_refused() {
    on_paused_clock(async {
        let mut world = World::new(25);
        let running = world.open().await;
        running.request(0, create("t", SegmentKind::HashTable)).await;
        running.settle().await;
        let rows_then = std::mem::take(&mut world.rows[0]);
        drop(rows_then);
        let running_on_nothing = running;
        world.crash(running_on_nothing, 1).await;
        // An index that never saw the log's first records, which are there: nothing is missing.
        let running = world.open().await;
        assert!(running.handle.views().find("t").is_some());
        for number in 0..40 {
            let value = Bytes::from(vec![0; 9_000]);
            let put = TablePut { key: Bytes::from_static(b"k"), value, condition: TableCondition::Any };
            running
                .request(
                    number,
                    Request::TableUpdate { name: "t".into(), puts: vec![put], expected_length: None },
                )
                .await;
            running.settle().await;
        }
        running.flush().await;
        running.request(50, put("t", "k", TableCondition::Any)).await;
        running.settle().await;
        world.crash(running, 1).await;
        // Now the log let go of what only the lost index held.
        world.rows[0] = MemoryDisk::default();
        let log = world.open_log();
        assert!(matches!(world.open_on(&log, 0).await.err(), Some(OpenError::Gap { .. })));
    });
}

#[test]
fn log_that_ends_before_what_the_index_holds_is_refused() {
    on_paused_clock(async {
        let mut world = World::new(26);
        let running = world.open().await;
        running.request(0, create("t", SegmentKind::HashTable)).await;
        running.settle().await;
        let earlier = world.disk.crash(1);
        running.request(1, put("t", "k", TableCondition::Any)).await;
        running.settle().await;
        running.flush().await;
        world.crash(running, 1).await;
        world.disk = earlier;
        let log = world.open_log();
        assert!(matches!(world.open_on(&log, 0).await.err(), Some(OpenError::Lost { .. })));
    });
}

#[test]
fn located_offset_is_readable_when_a_piece_reaches_below_the_start() {
    on_paused_clock(async {
        let running = World::new(27).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        fill(&running, 10, 2, 100).await;
        running.request(2, Request::Truncate { name: "s".into(), offset: 50 }).await;
        running.settle().await;
        let view = running.handle.views().find("s").unwrap();
        for (target, located) in [(0, 100), (50, 100), (100, 100), (101, 200), (200, 200), (300, 200)] {
            assert_eq!(view.locate(running.handle.cold(), target).await.unwrap(), located, "{target}");
        }
    });
}

/// Puts one large value after the other, each durable on its own.
async fn fill_table(running: &Running, number: usize, count: usize) {
    for at in number..number + count {
        let value = Bytes::from(vec![u8::try_from(at % 251).unwrap(); 9_000]);
        let put = TablePut { key: Bytes::from(format!("{at}")), value, condition: TableCondition::Any };
        let update = Request::TableUpdate { name: "t".into(), puts: vec![put], expected_length: None };
        running.request(at, update).await;
        running.settle().await;
    }
}

#[test]
fn log_keeps_what_came_while_the_index_was_written() {
    on_paused_clock(async {
        let mut world = World::new(28);
        let running = world.open().await;
        running.request(0, create("t", SegmentKind::HashTable)).await;
        fill_table(&running, 1, 20).await;
        let oldest = running.handle.log().oldest();
        running.writes.shut();
        running.flush().await;
        fill_table(&running, 21, 20).await;
        running.writes.open();
        running.settle().await;
        // Floors go to the log with the next frame.
        fill_table(&running, 41, 1).await;
        assert!(running.handle.log().oldest() > oldest, "what the index holds now is let go");
        let entries = running.handle.views().find("t").unwrap().core().entries;
        world.crash(running, 1).await;
        let running = world.open().await;
        assert_eq!(running.handle.views().find("t").unwrap().core().entries, entries);
        for at in 1..42 {
            running.request(at, put("t", &format!("{at}"), TableCondition::Absent)).await;
            running.settle().await;
            assert_eq!(running.heard.of(at), Some(Err(Refusal::KeyBadVersion)), "key {at} is there");
        }
    });
}
