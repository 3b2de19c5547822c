//! Operations in line for rows of a slow index.

use super::*;
use dhara_wire::command::{AttributeUpdate, AttributeUpdateType};
use futures_util::FutureExt;

/// A container with a table that holds one flushed key.
async fn with_table(world: &mut World) -> Running {
    let running = world.open().await;
    running.request(0, create("t", SegmentKind::HashTable)).await;
    running.request(1, put("t", "k", TableCondition::Any)).await;
    running.settle().await;
    assert_eq!(running.heard.of(1), Some(Ok(Answer::TableUpdated(vec![0]))));
    running.flush().await;
    running
}

#[test]
fn row_loaded_before_a_change_is_not_believed_after_its_flush() {
    // Found by reading: a look-up that answers late had seen a version from before a change that meanwhile was
    // applied, flushed, and gone from the overlay.
    on_paused_clock(async {
        let running = with_table(&mut World::new(11)).await;
        running.gets.shut();
        running.request(2, put("t", "k", TableCondition::Version(0))).await;
        running.request(3, put("t", "k", TableCondition::Version(0))).await;
        running.idle().await;
        assert!(running.gets.let_one_pass(0));
        running.settle().await;
        let Some(Ok(Answer::TableUpdated(versions))) = running.heard.of(2) else { panic!("not updated") };
        assert!(versions[0] > 0);
        running.flush().await;
        running.gets.open();
        running.settle().await;
        assert_eq!(running.heard.of(3), Some(Err(Refusal::KeyBadVersion)));
    });
}

#[test]
fn operations_of_one_segment_keep_their_order_behind_a_slow_row() {
    on_paused_clock(async {
        let running = with_table(&mut World::new(12)).await;
        running.gets.shut();
        running.request(2, put("t", "k", TableCondition::Version(0))).await;
        running.request(3, put("t", "new", TableCondition::Absent)).await;
        let length = i64::try_from(running.handle.views().find("t").unwrap().core().length).unwrap();
        running.request(4, Request::Delete { name: "t".into(), table: true, must_be_empty: true }).await;
        running.request(5, create("u", SegmentKind::Stream)).await;
        running.settle().await;
        assert_eq!(running.heard.all().last(), Some(&(5, Ok(Answer::Done))), "other segments go on");
        // The later look-up answers first.
        assert!(running.gets.let_one_pass(1));
        running.settle().await;
        assert_eq!(running.heard.of(3), None);
        running.gets.open();
        running.settle().await;
        assert_eq!(running.heard.of(2), Some(Ok(Answer::TableUpdated(vec![length]))));
        assert!(matches!(running.heard.of(3), Some(Ok(Answer::TableUpdated(_)))));
        assert_eq!(running.heard.of(4), Some(Err(Refusal::TableNotEmpty)));
        let order: Vec<usize> = running.heard.all().iter().map(|(number, _)| *number).collect();
        assert_eq!(order[order.len() - 3..], [2, 3, 4]);
    });
}

#[test]
fn setup_in_line_opens_no_session_for_a_connection_that_left() {
    on_paused_clock(async {
        let mut world = World::new(13);
        let running = world.open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.settle().await;
        running.flush().await;
        running.gets.shut();
        running.request(1, set_up(session(1, 1), "s")).await;
        running.append(2, session(1, 1), 1, b"lost").await;
        running.send(3, &Do::Disconnect(ConnectionId(1))).await;
        running.idle().await;
        running.gets.open();
        running.settle().await;
        running.append(4, session(1, 1), 2, b"late").await;
        running.settle().await;
        assert_eq!(running.heard.of(2), Some(Err(Refusal::NoSession)));
        assert_eq!(running.heard.of(4), Some(Err(Refusal::NoSession)));
        assert_eq!(running.content("s").await, Some(Vec::new()));
    });
}

#[test]
fn appends_sent_behind_a_setup_in_line_are_stored_in_order() {
    on_paused_clock(async {
        let running = World::new(14).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.settle().await;
        running.flush().await;
        running.gets.shut();
        running.request(1, set_up(session(1, 1), "s")).await;
        running.append(2, session(1, 1), 1, b"one ").await;
        running.append(3, session(1, 1), 2, b"two ").await;
        running.idle().await;
        running.gets.open();
        running.append(4, session(1, 1), 3, b"three").await;
        running.settle().await;
        assert_eq!(running.content("s").await, Some(b"one two three".to_vec()));
        let order: Vec<usize> = running.heard.all().iter().map(|(number, _)| *number).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    });
}

#[test]
fn append_never_overtakes_one_that_waits_under_the_names_earlier_segment() {
    on_paused_clock(async {
        let running = World::new(15).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.settle().await;
        running.flush().await;
        running.gets.shut();
        let get = |attribute| Request::GetAttribute { name: "s".into(), attribute: Uuid(attribute) };
        running.request(1, get(1)).await;
        running.request(2, Request::Delete { name: "s".into(), table: false, must_be_empty: false }).await;
        running.request(3, create("s", SegmentKind::Stream)).await;
        running.request(4, set_up(session(1, 1), "s")).await;
        running.request(5, get(2)).await;
        running.append(6, session(1, 1), 1, b"one ").await;
        running.idle().await;
        // All but the row of the later segment's first look-up, which stays in line under the earlier one.
        running.gets.let_one_pass(0);
        running.idle().await;
        running.gets.let_one_pass(0);
        running.idle().await;
        running.append(7, session(1, 1), 2, b"two").await;
        running.settle().await;
        running.gets.open();
        running.settle().await;
        assert_eq!(running.content("s").await, Some(b"one two".to_vec()));
    });
}

#[test]
fn row_pinned_before_a_change_is_corrected_by_it() {
    on_paused_clock(async {
        let running = with_table(&mut World::new(16)).await;
        running.request(2, put("t", "j", TableCondition::Any)).await;
        running.settle().await;
        running.flush().await;
        running.gets.shut();
        running.request(3, put("t", "k", TableCondition::Version(0))).await;
        let both = [("k", TableCondition::Version(0)), ("j", TableCondition::Any)];
        let keys = both.map(|(key, condition)| (Bytes::from(key), condition)).to_vec();
        running.request(4, Request::TableRemove { name: "t".into(), keys, expected_length: None }).await;
        running.idle().await;
        // The second operation has its first row before the first operation changes it, and waits for the other.
        assert!(running.gets.let_one_pass(1));
        running.idle().await;
        assert!(running.gets.let_one_pass(0));
        running.settle().await;
        assert!(matches!(running.heard.of(3), Some(Ok(Answer::TableUpdated(_)))));
        running.flush().await;
        running.gets.open();
        running.settle().await;
        assert_eq!(running.heard.of(4), Some(Err(Refusal::KeyBadVersion)));
    });
}

#[test]
fn attribute_pinned_before_a_session_changed_it_is_corrected_when_it_leaves_memory() {
    on_paused_clock(async {
        let running = World::new(17).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        running.request(1, create("source", SegmentKind::Stream)).await;
        running.settle().await;
        running.flush().await;
        running.gets.shut();
        running.request(2, set_up(session(1, 1), "s")).await;
        running.append(3, session(1, 1), 1, b"data").await;
        let update = |attribute_id, update_type| AttributeUpdate {
            attribute_id,
            update_type,
            new_value: 9,
            old_value: i64::MIN,
        };
        let updates = vec![
            update(WRITER, AttributeUpdateType::ReplaceIfEquals),
            update(Uuid(77), AttributeUpdateType::Replace),
        ];
        running.request(4, Request::Merge { target: "s".into(), source: "source".into(), updates }).await;
        running.idle().await;
        assert!(running.gets.let_one_pass(1));
        running.idle().await;
        assert!(running.gets.let_one_pass(0));
        running.settle().await;
        assert_eq!(running.heard.of(3), Some(Ok(Answer::Appended { previous: i64::MIN, length: 4 })));
        running.flush().await;
        running.send(5, &Do::Disconnect(ConnectionId(1))).await;
        running.idle().await;
        running.gets.open();
        running.settle().await;
        assert_eq!(running.heard.of(4), Some(Ok(Answer::AttributeUpdated(false))));
    });
}

/// More than a container may hold of operations that wait, with those in its inbox and its last turn.
const MORE_THAN_ENOUGH: usize = 65_536 + 2 * 4_096;

/// Sends until the container takes no more; returns how many it took.
async fn send_until_refused(running: &Running, request: &Request) -> usize {
    for sent in 0..MORE_THAN_ENOUGH {
        let sending = running.handle.send(Operation::Call(request.clone(), Box::new(|_| {})));
        if sending.now_or_never().is_none() {
            running.idle().await;
            let again = running.handle.send(Operation::Call(request.clone(), Box::new(|_| {})));
            if again.now_or_never().is_none() {
                return sent;
            }
        }
    }
    panic!("nothing bounds what waits");
}

#[test]
fn operations_in_line_are_bounded_and_go_on_when_the_row_comes() {
    on_paused_clock(async {
        let running = with_table(&mut World::new(18)).await;
        running.gets.shut();
        running.request(2, put("t", "k", TableCondition::Any)).await;
        let request =
            Request::GetAttribute { name: "t".into(), attribute: Uuid(0x8000_0000_0000_0000 << 64) };
        send_until_refused(&running, &request).await;
        running.gets.open();
        running.settle().await;
        running.request(3, request).await;
        running.settle().await;
        assert_eq!(running.heard.of(3), Some(Ok(Answer::Attribute(1_000))));
    });
}

#[test]
fn replies_that_wait_for_the_log_are_bounded() {
    on_paused_clock(async {
        let running = World::new(19).open().await;
        running.request(0, create("s", SegmentKind::Stream)).await;
        send_until_refused(&running, &create("s", SegmentKind::Stream)).await;
        running.settle().await;
        running.request(1, create("s", SegmentKind::Stream)).await;
        running.settle().await;
        assert_eq!(running.heard.all(), [(0, Ok(Answer::Done)), (1, Err(Refusal::AlreadyExists))]);
    });
}
