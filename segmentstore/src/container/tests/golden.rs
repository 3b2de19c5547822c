//! The rows of an index checked in, which every later version must write alike and read.

use super::*;
use crate::index::key;
use crate::state::{Segment, decode_extent, decode_object};
use std::fmt::Write;

/// Key and value of each row, as docs/formats.md draws them: never change without a new version.
const GOLDEN: &str = include_str!("golden-rows.hex");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(hex: &str) -> Bytes {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

async fn rows_in_hex(rows: &MemoryRows) -> String {
    let all = Bytes::from_static(&[0])..Bytes::from_static(&[0xff]);
    let page = rows.scan(all, Limits { rows: 1_000, bytes: 1 << 20 }).await.unwrap();
    let line = |(key, value): (Bytes, Bytes)| format!("{} {}\n", hex(&key), hex(&value));
    // How many names of objects are planned ahead is no matter of the format: the one in use and the next will do.
    let is_ahead = |key: &[u8]| key::parse_object(key).is_some_and(|(_, counter)| counter > 1);
    let applied = (key::applied(), key::applied_value(rows.applied().await.unwrap()));
    let rows = std::iter::once(applied).chain(page.rows);
    rows.filter(|(key, _)| !is_ahead(key)).map(line).collect()
}

/// One row of each kind: two segments with a writer and bytes in objects, two tables, an end that nobody swept yet.
async fn flushed(world: &mut World) {
    let running = world.open().await;
    let policy = Policy { scale_type: 2, target_rate: -100 };
    let (name, transient) = ("s/é/0.#epoch.0", SegmentKind::Transient { connection: 9, epoch: 1 });
    let create_it =
        Request::Create { name: name.into(), kind: SegmentKind::Stream, policy, rollover_bytes: 77 };
    running.request(1, create_it).await;
    running.request(2, create("transient", transient)).await;
    running.request(3, set_up(session(1, 1), name)).await;
    running.append(4, session(1, 1), 11, b"first bytes of it").await;
    running.append(5, session(1, 1), 12, b"and more").await;
    running.request(6, create("hash", SegmentKind::HashTable)).await;
    running.request(7, put("hash", "key", TableCondition::Any)).await;
    running.request(8, create("fixed", SegmentKind::FixedTable { key_bytes: 3 })).await;
    running.request(9, put("fixed", "abc", TableCondition::Any)).await;
    running.settle().await;
    world.clock.advance(60_000);
    running.request(10, Request::Truncate { name: name.into(), offset: 3 }).await;
    running.request(11, Request::Seal { name: name.into() }).await;
    running.request(12, Request::Delete { name: "hash".into(), table: true, must_be_empty: false }).await;
    running.settle().await;
    let heard = running.heard.clone();
    let call = move |outcome: Outcome| heard.0.lock().push((13, outcome));
    running.handle.send(Operation::FlushToStorage(Box::new(call))).await.unwrap();
    running.settle().await;
    let refused = running.heard.all().into_iter().find(|(_, outcome)| outcome.is_err());
    assert_eq!(refused, None);
    world.crash(running, 1).await;
}

#[test]
fn the_same_operations_make_the_golden_rows() {
    on_paused_clock(async {
        let mut world = World::new(90);
        flushed(&mut world).await;
        let found = rows_in_hex(&world.rows[0].open()).await;
        assert!(found == GOLDEN, "the format has changed:\n{found}");
    });
}

#[test]
fn golden_rows_are_read() {
    let mut kinds = std::collections::BTreeSet::new();
    for line in GOLDEN.lines() {
        let (key, row) = line.split_once(' ').unwrap();
        let (key, row) = (bytes(key), bytes(row));
        kinds.insert(key[0]);
        match key[0] {
            0x01 => assert!(key::parse_applied(&row).is_some()),
            0x02 => {
                let (id, _) = key::parse_of_segment(key::Kind::Segment, &key).unwrap();
                let segment = Segment::decode_row(id, row).unwrap();
                if segment.name == "s/é/0.#epoch.0" {
                    let core = segment.applied;
                    assert_eq!((core.start, core.length, core.sealed, core.events), (3, 25, true, 2));
                    assert_eq!(core.policy, Policy { scale_type: 2, target_rate: -100 });
                    assert_eq!(
                        (segment.rollover_bytes, segment.created_ms, core.modified_ms),
                        (77, 1_000, 61_000)
                    );
                }
            }
            0x07 => {
                let (id, offset) = key::parse_extent(&key).unwrap();
                assert_eq!(decode_extent(id, offset, row).map(|extent| extent.length), Some(25 - 3));
            }
            0x08 => assert!(key::parse_object(&key).is_some() && decode_object(row).is_some()),
            _ => {}
        }
    }
    let kinds: Vec<u8> = kinds.into_iter().collect();
    assert_eq!(kinds, [1, 2, 4, 5, 6, 7, 8, 9], "names have no rows");
}
