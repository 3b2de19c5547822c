//! What goes wrong, and what its clients hear.

use super::*;

#[test]
fn append_waits_for_room_in_a_full_log() {
    on_paused_clock(async {
        let running = World::new(51).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        running.settle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.append(2, session(1, 1), 1, b"first").await;
        running.append(3, session(1, 1), 2, b"second").await;
        running.pass(Duration::from_secs(20)).await;
        running.log.full.store(false, Ordering::SeqCst);
        running.pass(TICK).await;
        assert_eq!(running.heard.of(2), Some(Ok(Answer::Appended { previous: i64::MIN, length: 5 })));
        assert_eq!(running.heard.of(3), Some(Ok(Answer::Appended { previous: 1, length: 11 })));
    });
}

#[test]
fn append_refused_by_a_full_log_is_not_overtaken_by_the_next() {
    // Found by reading: once there was room again, a pipelined append was stored without the refused one before
    // it, and the writer's next setup took both for acknowledged.
    on_paused_clock(async {
        let running = World::new(1).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        running.settle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.append(2, session(1, 1), 1, b"first").await;
        running.pass(Duration::from_secs(29)).await;
        assert_eq!(running.heard.of(2), None, "there may be room yet");
        running.pass(Duration::from_secs(2)).await;
        running.log.full.store(false, Ordering::SeqCst);
        running.append(3, session(1, 1), 2, b"second").await;
        running.request(4, set_up(session(1, 2), "s")).await;
        running.settle().await;
        assert_eq!(running.heard.of(2), Some(Err(Refusal::Unavailable)));
        assert_eq!(running.heard.of(3), Some(Err(Refusal::Unavailable)));
        assert_eq!(running.heard.of(4), Some(Ok(Answer::SetUp { last: i64::MIN })));
        assert_eq!(running.content("s").await, Some(Vec::new()));
    });
}

#[test]
fn refused_setup_leaves_nothing_behind_its_connection() {
    on_paused_clock(async {
        let running = World::new(2).open().await;
        running.request(0, set_up(session(1, 1), "missing")).await;
        running.append(1, session(1, 1), 1, b"data").await;
        running.send(2, &Do::Disconnect(ConnectionId(1))).await;
        running.append(3, session(1, 1), 1, b"data").await;
        running.settle().await;
        assert_eq!(running.heard.of(0), Some(Err(Refusal::NoSuchSegment)));
        assert_eq!(running.heard.of(1), Some(Err(Refusal::NoSuchSegment)));
        assert_eq!(
            running.heard.of(3),
            Some(Err(Refusal::NoSession)),
            "the session went with its connection"
        );
    });
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    on_paused_clock(async {
        let running = World::new(3).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        // Refusals too tell of a state that a crash could take back.
        running.request(1, create("s", SegmentKind::Stream)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        running.append(3, session(1, 1), 5, b"data").await;
        running.append(4, session(1, 1), 5, b"again").await;
        running.request(5, Request::GetAttribute { name: "s".into(), attribute: WRITER }).await;
        running.idle().await;
        assert_eq!(running.heard.all(), []);
        assert!(running.handle.views().find("s").is_none(), "readers see durable segments only");
        running.settle().await;
        let expected = [
            Ok(Answer::Done),
            Err(Refusal::AlreadyExists),
            Ok(Answer::SetUp { last: i64::MIN }),
            Ok(Answer::Appended { previous: i64::MIN, length: 4 }),
            Err(Refusal::InvalidEventNumber),
            Ok(Answer::Attribute(5)),
        ];
        let expected: Vec<(usize, Outcome)> = expected.into_iter().enumerate().collect();
        assert_eq!(running.heard.all(), expected);
    });
}

/// Sends an operation of each kind, some in line behind a row that never comes.
async fn ask_everything(running: &Running) {
    running.gets.shut();
    running.request(10, put("t", "k", TableCondition::Any)).await;
    running.request(11, Request::Delete { name: "t".into(), table: true, must_be_empty: false }).await;
    running.request(12, set_up(session(2, 1), "s")).await;
    running.append(13, session(2, 1), 1, b"parked").await;
    running.append(14, session(1, 1), 1, b"in line").await;
    running.request(15, create("u", SegmentKind::Stream)).await;
}

/// A container with a table and a stream, all of it flushed, and a session on it.
async fn furnished(world: &mut World) -> Running {
    let running = world.open().await;
    running.request(0, create("t", SegmentKind::HashTable)).await;
    running.request(1, create("s", SegmentKind::Stream)).await;
    running.settle().await;
    running.flush().await;
    let other = Request::SetupAppend { session: session(1, 1), name: "s".into(), writer: Uuid(9) };
    running.request(2, other).await;
    running.settle().await;
    assert_eq!(running.heard.of(2), Some(Ok(Answer::SetUp { last: i64::MIN })));
    running
}

fn assert_all_unavailable(heard: &Heard, numbers: Range<usize>) {
    for number in numbers {
        assert_eq!(heard.of(number), Some(Err(Refusal::Unavailable)), "operation {number}");
    }
}

#[test]
fn failed_log_ends_the_container_and_everyone_hears() {
    on_paused_clock(async {
        let mut world = World::new(4);
        let running = furnished(&mut world).await;
        ask_everything(&running).await;
        running.idle().await;
        world.disk.fail_sync_after(0);
        running.settle().await;
        assert_all_unavailable(&running.heard, 10..16);
        assert!(running.handle.is_closed());
        assert!(matches!(running.task.await.unwrap(), Err(Failure::Log { .. })));
    });
}

#[test]
fn failed_index_ends_the_container_and_everyone_hears() {
    on_paused_clock(async {
        let mut world = World::new(5);
        let running = furnished(&mut world).await;
        running.request(3, create("v", SegmentKind::Stream)).await;
        running.settle().await;
        *running.fault.lock() = Some(WriteFault::Refused);
        running.writes.shut();
        running.log.full.store(true, Ordering::SeqCst);
        running.pass(TICK).await;
        running.log.full.store(false, Ordering::SeqCst);
        ask_everything(&running).await;
        running.idle().await;
        running.writes.open();
        running.idle().await;
        assert_all_unavailable(&running.heard, 10..16);
        assert!(matches!(running.task.await.unwrap(), Err(Failure::Index { .. })));
    });
}

#[test]
fn row_that_does_not_come_is_refused_and_the_container_goes_on() {
    on_paused_clock(async {
        let mut world = World::new(6);
        let running = furnished(&mut world).await;
        ask_everything(&running).await;
        running.pass(Duration::from_secs(11)).await;
        assert_eq!(running.heard.of(15), Some(Ok(Answer::Done)), "other segments go on meanwhile");
        // What needs no such row has its turn behind those that did.
        let expected = [
            Err(Refusal::Unavailable),
            Ok(Answer::Done),
            Err(Refusal::Unavailable),
            Err(Refusal::NoSession),
            Ok(Answer::Appended { previous: i64::MIN, length: 7 }),
        ];
        for (number, expected) in (10..).zip(expected) {
            assert_eq!(running.heard.of(number), Some(expected), "operation {number}");
        }
        running.gets.open();
        running.request(30, create("later", SegmentKind::Stream)).await;
        running.settle().await;
        assert_eq!(running.heard.of(30), Some(Ok(Answer::Done)));
    });
}

#[test]
fn stop_answers_what_is_staged_and_refuses_what_is_in_line() {
    on_paused_clock(async {
        let mut world = World::new(7);
        let running = furnished(&mut world).await;
        ask_everything(&running).await;
        running.idle().await;
        let heard = running.stop().await;
        assert_eq!(heard.of(15), Some(Ok(Answer::Done)));
        assert_all_unavailable(&heard, 10..15);
        let running = world.open().await;
        assert_eq!(running.content("u").await, Some(Vec::new()));
        assert_eq!(running.content("s").await, Some(Vec::new()), "what was refused changed nothing");
    });
}

#[test]
fn readers_at_the_tail_are_told_once_when_the_container_ends() {
    on_paused_clock(async {
        let mut world = World::new(8);
        let running = furnished(&mut world).await;
        let view = running.handle.views().find("s").unwrap();
        let handle = running.handle.clone();
        let reading =
            tokio::spawn(async move { view.read(handle.log(), handle.cold(), 0, 100).await.unwrap() });
        running.settle().await;
        assert!(!reading.is_finished(), "nothing is there yet");
        running.stop().await;
        assert_eq!(reading.await.unwrap(), ReadReply::Gone);
    });
}

#[test]
fn parked_reads_hear_of_data_seal_and_end_once_each() {
    on_paused_clock(async {
        let running = World::new(9).open().await;
        for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            running.request(number, create(name, SegmentKind::Stream)).await;
        }
        running.settle().await;
        let views = ["a", "b", "c", "d"].map(|name| running.handle.views().find(name).unwrap());
        let reads = views.map(|view| {
            let handle = running.handle.clone();
            tokio::spawn(async move { view.read(handle.log(), handle.cold(), 0, 100).await.unwrap() })
        });
        running.settle().await;
        running.request(4, set_up(session(1, 1), "a")).await;
        running.append(5, session(1, 1), 1, b"data").await;
        running.request(6, Request::Seal { name: "b".into() }).await;
        running.request(7, Request::Delete { name: "c".into(), table: false, must_be_empty: false }).await;
        running.request(8, Request::Merge { target: "a".into(), source: "d".into(), updates: vec![] }).await;
        running.idle().await;
        assert!(reads.iter().all(|read| !read.is_finished()), "none of it is durable yet");
        running.settle().await;
        let [a, b, c, d] = reads;
        let data = vec![Bytes::from_static(b"data")];
        let expected = ReadReply::Data { chunks: data, at_tail: true, end_of_segment: false };
        assert_eq!(a.await.unwrap(), expected);
        assert_eq!(b.await.unwrap(), ReadReply::EndOfSegment);
        assert_eq!(c.await.unwrap(), ReadReply::Gone);
        assert_eq!(d.await.unwrap(), ReadReply::Gone);
    });
}

#[test]
fn what_no_record_holds_is_refused_and_the_container_goes_on() {
    // Found by reading: a block of 16 MiB and an end of 16 MiB make up one append, whose record ended the container
    // by a failed assertion.
    on_paused_clock(async {
        let running = World::new(29).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, create("t", SegmentKind::HashTable)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        let data = Bytes::from(vec![0; 17 << 20]);
        let large = Put { session: session(1, 1), number: 1, data, events: 1, expected_offset: None };
        running.send(3, &Do::Append(large, WRITER)).await;
        running.append(4, session(1, 1), 2, b"behind").await;
        let keys = vec![(Bytes::from_static(b"key"), TableCondition::Any); 700_000];
        running.request(5, Request::TableRemove { name: "t".into(), keys, expected_length: None }).await;
        running.request(6, put("t", "k", TableCondition::Any)).await;
        running.settle().await;
        for refused in [3, 4, 5] {
            assert!(
                matches!(running.heard.of(refused), Some(Err(Refusal::Illegal(_)))),
                "operation {refused}"
            );
        }
        assert_eq!(running.heard.of(6), Some(Ok(Answer::TableUpdated(vec![0]))));
        assert_eq!(running.content("s").await, Some(Vec::new()));
    });
}

#[test]
fn reader_that_waits_hears_of_a_container_that_died_amid_its_work() {
    // Found by simulation: only an orderly end told readers, so one at the tail waited for good.
    on_paused_clock(async {
        let running = World::new(9).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.settle().await;
        let view = running.handle.views().find("s").unwrap();
        let handle = running.handle.clone();
        let reader =
            tokio::spawn(async move { view.read(handle.log(), handle.cold(), 0, 10).await.unwrap() });
        running.idle().await;
        running.task.abort();
        running.idle().await;
        assert!(reader.is_finished());
        assert_eq!(reader.await.unwrap(), ReadReply::Gone);
    });
}

#[test]
fn everybody_hears_of_a_container_that_died_amid_its_work() {
    on_paused_clock(async {
        let mut world = World::new(10);
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, create("t", SegmentKind::HashTable)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        running.request(3, put("t", "key", TableCondition::Any)).await;
        running.settle().await;
        running.flush().await;
        // One waits for the log, one for a row, one for room, one for objects, one in the inbox.
        running.append(4, session(1, 1), 1, b"in flight").await;
        running.gets.shut();
        running.request(5, put("t", "key", TableCondition::Absent)).await;
        running.idle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.request(6, create("new", SegmentKind::Stream)).await;
        let heard = running.heard.clone();
        let call = move |outcome: Outcome| heard.0.lock().push((7, outcome));
        running.handle.send(Operation::FlushToStorage(Box::new(call))).await.unwrap();
        running.idle().await;
        running.request(8, Request::Seal { name: "s".into() }).await;
        running.task.abort();
        running.idle().await;
        for number in 4..=8 {
            assert_eq!(running.heard.of(number), Some(Err(Refusal::Unavailable)), "{number}");
        }
    });
}

/// A log that takes nothing more must not keep its container from ending: a restart may be the cure.
#[test]
fn container_stops_though_its_log_is_full_for_good() {
    on_paused_clock(async {
        let mut world = World::new(11);
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        running.settle().await;
        // Nobody turns the log from here on.
        running.append(2, session(1, 1), 1, b"in flight").await;
        running.idle().await;
        running.stop.cancel();
        running.idle().await;
        assert_eq!(running.heard.of(2), None);
        tokio::time::timeout(Duration::from_secs(11), running.task).await.unwrap().unwrap().unwrap();
        assert_eq!(running.heard.of(2), Some(Err(Refusal::Unavailable)));
    });
}
