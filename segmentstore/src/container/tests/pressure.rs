//! What goes on and what waits while something is short.

use super::*;
use crate::container::pressure::LINE_MAX;
use crate::index::key;
use dhara_wire::limits::NULL_ATTRIBUTE_VALUE;

const OTHER: Uuid = Uuid(0xbeef);

fn seal(name: &str) -> Request {
    Request::Seal { name: name.into() }
}

fn update(name: &str, new_value: i64) -> Request {
    let (name, attribute, expected) = (name.into(), OTHER, NULL_ATTRIBUTE_VALUE);
    Request::UpdateAttribute { name, attribute, new_value, expected }
}

#[test]
fn what_frees_space_does_not_wait_behind_a_full_log() {
    on_paused_clock(async {
        let running = World::new(61).open().await;
        for (number, name) in (0..).zip(["s", "old", "gone"]) {
            running.request(number, create(name, SegmentKind::Stream)).await;
        }
        running.request(3, create("t", SegmentKind::HashTable)).await;
        running.request(4, set_up(session(1, 1), "s")).await;
        running.request(5, set_up(session(2, 1), "old")).await;
        running.append(6, session(2, 1), 1, b"history").await;
        running.settle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.append(10, session(1, 1), 1, b"first").await;
        running.request(11, update("s", 5)).await;
        running.request(12, put("t", "key", TableCondition::Any)).await;
        running.settle().await;
        running.request(13, Request::Truncate { name: "old".into(), offset: 7 }).await;
        running.request(14, seal("old")).await;
        let delete = Request::Delete { name: "gone".into(), table: false, must_be_empty: false };
        running.request(15, delete).await;
        running.request(16, Request::GetAttribute { name: "s".into(), attribute: OTHER }).await;
        // These depend on what waits.
        running.send(17, &Do::EndSession(session(1, 1))).await;
        running.request(18, set_up(session(1, 2), "s")).await;
        let keys = vec![(Bytes::from_static(b"key"), TableCondition::Any)];
        running.request(19, Request::TableRemove { name: "t".into(), keys, expected_length: None }).await;
        running.settle().await;
        for number in 13..16 {
            assert_eq!(running.heard.of(number), Some(Ok(Answer::Done)), "{number}");
        }
        assert_eq!(running.heard.of(16), Some(Ok(Answer::Attribute(NULL_ATTRIBUTE_VALUE))));
        for number in [10, 11, 12, 18, 19] {
            assert_eq!(running.heard.of(number), None, "{number}");
        }
        running.log.full.store(false, Ordering::SeqCst);
        running.pass(TICK).await;
        assert_eq!(running.heard.of(10), Some(Ok(Answer::Appended { previous: i64::MIN, length: 5 })));
        assert_eq!(running.heard.of(11), Some(Ok(Answer::AttributeUpdated(true))));
        assert_eq!(running.heard.of(12), Some(Ok(Answer::TableUpdated(vec![0]))));
        assert_eq!(running.heard.of(18), Some(Ok(Answer::SetUp { last: 1 })));
        assert_eq!(running.heard.of(19), Some(Ok(Answer::Done)));
        running.request(20, put("t", "key", TableCondition::Absent)).await;
        running.settle().await;
        assert!(matches!(running.heard.of(20), Some(Ok(Answer::TableUpdated(_)))), "removed last");
    });
}

#[test]
fn full_line_moves_on_once_there_is_room() {
    on_paused_clock(async {
        let running = World::new(65).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        running.settle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.append(2, session(1, 1), 1, b"first").await;
        // More than may wait in line; that they keep their order is all that these need.
        for number in 0..u32::try_from(LINE_MAX).unwrap() {
            running.send(3, &Do::EndSession(session(2, number))).await;
        }
        running.append(4, session(1, 1), 2, b"last").await;
        running.request(5, Request::Truncate { name: "s".into(), offset: 0 }).await;
        running.pass(TICK).await;
        assert_eq!((running.heard.of(2), running.heard.of(4), running.heard.of(5)), (None, None, None));
        running.log.full.store(false, Ordering::SeqCst);
        running.pass(TICK).await;
        assert_eq!(running.heard.of(5), Some(Ok(Answer::Done)));
        assert_eq!(running.content("s").await.as_deref(), Some(&b"firstlast"[..]));
    });
}

#[test]
fn end_of_a_connection_does_not_wait_and_takes_what_waits_of_it_along() {
    // Found by the simulated world: a transient segment outlived its connection, whose end waited for room in the log.
    on_paused_clock(async {
        let running = World::new(64).open().await;
        let transient = SegmentKind::Transient { connection: 1, epoch: 0 };
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, create("transient", transient)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        running.request(3, set_up(session(2, 1), "transient")).await;
        running.settle().await;
        running.log.full.store(true, Ordering::SeqCst);
        running.append(4, session(1, 1), 1, b"unheard").await;
        running.append(5, session(2, 1), 1, b"heard").await;
        running.request(8, create("late", transient)).await;
        running.send(6, &Do::Disconnect(ConnectionId(1))).await;
        running.settle().await;
        running.request(7, Request::GetAttribute { name: "transient".into(), attribute: OTHER }).await;
        running.settle().await;
        assert_eq!(running.heard.of(4), Some(Err(Refusal::Unavailable)));
        assert_eq!(running.heard.of(5), None);
        assert_eq!(running.heard.of(7), Some(Err(Refusal::NoSuchSegment)));
        running.log.full.store(false, Ordering::SeqCst);
        running.pass(TICK).await;
        assert_eq!(running.heard.of(5), Some(Err(Refusal::NoSuchSegment)));
        assert_eq!(running.content("s").await, Some(Vec::new()));
        assert_eq!(running.heard.of(8), Some(Err(Refusal::Unavailable)));
        assert!(running.handle.views().find("late").is_none(), "nobody would end it");
    });
}

#[test]
fn rows_of_a_deleted_segment_go_though_no_record_comes() {
    on_paused_clock(async {
        let mut world = World::new(66);
        world.limits.overlay_bytes_max = 10_000;
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        for number in 1..=300 {
            let (name, attribute) = ("s".into(), Uuid(u128::try_from(number).unwrap()));
            let (new_value, expected) = (1, NULL_ATTRIBUTE_VALUE);
            running.request(number, Request::UpdateAttribute { name, attribute, new_value, expected }).await;
            if number.is_multiple_of(20) {
                running.flush().await;
            }
        }
        assert_eq!(running.heard.of(300), Some(Ok(Answer::AttributeUpdated(true))));
        running.request(301, Request::Delete { name: "s".into(), table: false, must_be_empty: false }).await;
        running.settle().await;
        running.flush().await;
        running.pass(Duration::from_mins(2)).await;
        running.request(302, create("new", SegmentKind::Stream)).await;
        running.settle().await;
        assert_eq!(running.heard.of(302), Some(Ok(Answer::Done)));
        let rows = world.rows[0].open();
        let left = rows.scan(key::all(key::Kind::Attribute), Limits { rows: 10, bytes: 1 << 20 }).await;
        assert_eq!(left.unwrap().rows, []);
    });
}

#[test]
fn full_overlay_holds_back_only_what_adds_rows() {
    on_paused_clock(async {
        let mut world = World::new(62);
        world.limits.overlay_bytes_max = 10_000;
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, create("t", SegmentKind::HashTable)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        running.append(3, session(1, 1), 1, b"first").await;
        running.settle().await;
        // The index takes no rows.
        running.writes.shut();
        let value = Bytes::from(vec![7; 12_000]);
        let large = TablePut { key: Bytes::from_static(b"large"), value, condition: TableCondition::Any };
        let puts = Request::TableUpdate { name: "t".into(), puts: vec![large], expected_length: None };
        running.request(4, puts).await;
        running.pass(TICK).await;
        assert_eq!(running.heard.of(4), Some(Ok(Answer::TableUpdated(vec![0]))));
        running.append(5, session(1, 1), 2, b"second").await;
        running.request(6, create("new", SegmentKind::Stream)).await;
        running.request(7, put("t", "key", TableCondition::Any)).await;
        let writer = Request::SetupAppend { session: session(2, 1), name: "s".into(), writer: OTHER };
        running.request(8, writer.clone()).await;
        running.append(9, session(2, 1), 1, b"unheard of").await;
        running.request(10, set_up(session(3, 1), "s")).await;
        running.pass(Duration::from_secs(20)).await;
        assert_eq!(running.heard.of(5), Some(Ok(Answer::Appended { previous: 1, length: 11 })));
        assert_eq!(running.heard.of(6), None);
        assert_eq!(running.heard.of(7), None);
        assert_eq!(running.heard.of(8), Some(Err(Refusal::Unavailable)), "a new writer");
        assert_eq!(running.heard.of(9), Some(Err(Refusal::Unavailable)));
        assert_eq!(running.heard.of(10), Some(Ok(Answer::SetUp { last: 2 })), "a known writer");
        running.pass(Duration::from_secs(11)).await;
        assert_eq!(running.heard.of(6), Some(Err(Refusal::Unavailable)));
        assert_eq!(running.heard.of(7), Some(Err(Refusal::Unavailable)));
        running.append(11, session(1, 1), 3, b"third").await;
        running.settle().await;
        assert_eq!(running.heard.of(11), Some(Ok(Answer::Appended { previous: 2, length: 16 })));
        // The index takes rows again; until that has been noticed, what adds some waits.
        running.writes.open();
        running.pass(Duration::from_mins(2)).await;
        running.request(12, create("new", SegmentKind::Stream)).await;
        running.request(13, put("t", "key", TableCondition::Any)).await;
        running.send(14, &Do::EndSession(session(2, 1))).await;
        let writer = Request::SetupAppend { session: session(2, 2), name: "s".into(), writer: OTHER };
        running.request(15, writer).await;
        running.settle().await;
        assert_eq!(running.heard.of(12), Some(Ok(Answer::Done)));
        assert!(matches!(running.heard.of(13), Some(Ok(Answer::TableUpdated(_)))));
        assert_eq!(running.heard.of(15), Some(Ok(Answer::SetUp { last: NULL_ATTRIBUTE_VALUE })));
        assert_eq!(running.content("s").await.as_deref(), Some(&b"firstsecondthird"[..]));
    });
}

#[test]
fn many_places_make_appends_wait_until_objects_are_made() {
    // Each has a place of its own: as large as those that share none.
    static EVENT: [u8; 5_000] = [1; 5_000];
    on_paused_clock(async {
        let mut world = World::new(63);
        world.limits.places_max = 8;
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, set_up(session(1, 1), "s")).await;
        running.settle().await;
        for number in 1..=12 {
            running.append(100 + number, session(1, 1), i64::try_from(number).unwrap(), &EVENT).await;
            running.settle().await;
        }
        assert_eq!(running.heard.of(112), None, "nobody has made an object yet");
        // An object holds one of them.
        running.pass(Duration::from_secs(20)).await;
        for number in 101..=112 {
            assert!(matches!(running.heard.of(number), Some(Ok(Answer::Appended { .. }))), "{number}");
        }
        running.pass(TICK).await;
        let view = running.handle.views().find("s").unwrap();
        let places = view.pieces(|pieces| pieces.iter().filter(|piece| piece.is_place()).count());
        assert!(places <= 8, "{places} places");
        assert_eq!(running.content("s").await.map(|content| content.len()), Some(12 * EVENT.len()));
    });
}
