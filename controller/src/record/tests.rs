use bytes::Bytes;
use proptest::prelude::*;

use super::codec::{Field, Row};
use super::name::{Kind, name_in_sorted_key, sorted_key, sorted_key_after};
use super::scope::{Presence, StreamRow};
use super::stream::{CommitRow, Head, ScaleRow};
use crate::stream::transaction::{RollingStart, Round};
use crate::stream::{
    EpochRecord, KeyRange, RetentionPolicy, ScaleOrigin, ScalingPolicy, StreamConfig, StreamState,
    TransactionId, Transition,
};

fn config() -> StreamConfig {
    let mut config = StreamConfig::new(ScalingPolicy::from_raw(2, 100, 3, 4).unwrap());
    config.retention = Some(RetentionPolicy::Size { min_bytes: 5, max_bytes: i64::MAX });
    config.tags = ["a", "é"].into_iter().map(String::from).collect();
    config.rollover_bytes = 7;
    config
}

fn rows() -> Vec<Bytes> {
    let epoch = EpochRecord::first(3, 7, 99).unwrap();
    let rolling = Some(RollingStart { active_epoch: 1, decided_ms: 7 });
    let round = Round { epoch: 0, transactions: vec![TransactionId::new(0, 5)], rolling };
    let transition = Transition {
        active_epoch: 0,
        created_ms: 3,
        seal: epoch.segments.iter().map(crate::stream::Segment::id).collect(),
        create: epoch.segments.clone(),
        origin: ScaleOrigin::Policy,
    };
    vec![
        Head { state: StreamState::Truncating, active_epoch: 3 }.to_bytes(),
        ScaleRow { pending: Some(transition) }.to_bytes(),
        CommitRow { pending: Some(round) }.to_bytes(),
        StreamRow { id: 9, presence: Presence::Live, created_ms: 1, first_number: 2, config: config() }
            .to_bytes(),
        epoch.to_bytes(),
    ]
}

fn decode_all(bytes: &Bytes) -> [bool; 5] {
    [
        Head::from_bytes(bytes).is_ok(),
        ScaleRow::from_bytes(bytes).is_ok(),
        CommitRow::from_bytes(bytes).is_ok(),
        StreamRow::from_bytes(bytes).is_ok(),
        EpochRecord::from_bytes(bytes).is_ok(),
    ]
}

#[test]
fn rows_come_back_as_they_were() {
    let row =
        StreamRow { id: 9, presence: Presence::Leaving, created_ms: 1, first_number: 2, config: config() };
    assert_eq!(StreamRow::from_bytes(&row.to_bytes()), Ok(row));
    let epoch = EpochRecord::first(3, 7, 99).unwrap();
    assert_eq!(EpochRecord::from_bytes(&epoch.to_bytes()), Ok(epoch));
    for (index, bytes) in rows().iter().enumerate() {
        assert!(decode_all(bytes)[index], "row {index}");
    }
}

/// The rows above as they were first written: never change without a new format byte.
const GOLDEN: &str = include_str!("golden-rows.hex");

#[test]
fn format_is_the_golden_one() {
    use std::fmt::Write;
    let mut found = String::new();
    for row in rows() {
        row.iter().for_each(|byte| write!(found, "{byte:02x}").unwrap());
        found.push('\n');
    }
    assert!(found == GOLDEN, "the format has changed:\n{found}");
}

#[test]
fn cut_rows_are_refused() {
    for (index, bytes) in rows().iter().enumerate() {
        for end in 0..bytes.len() {
            assert!(!decode_all(&bytes.slice(..end))[index], "row {index} cut at {end}");
        }
    }
}

#[test]
fn sorted_keys_order_as_names_do_and_give_them_back() {
    let names = ["-", "a", "a-", "a.b", "ab", "b"];
    for pair in names.windows(2) {
        assert!(sorted_key(Kind::Stream, pair[0]) < sorted_key(Kind::Stream, pair[1]), "{pair:?}");
        let after = sorted_key_after(Kind::Stream, Some(pair[0]));
        assert!(sorted_key(Kind::Stream, pair[0]) < after && after < sorted_key(Kind::Stream, pair[1]));
    }
    let longest = "x".repeat(254);
    let key = sorted_key(Kind::Scope, &longest);
    assert_eq!(name_in_sorted_key(&key), Some(longest.as_str()));
    assert!(key < sorted_key_after(Kind::Scope, None));
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _outcome = decode_all(&Bytes::from(bytes));
    }

    #[test]
    fn key_ranges_keep_their_bits(low in 0.0..0.5_f64, high in 0.5..1.0_f64) {
        prop_assume!(low < high);
        let range = KeyRange::new(low, high).unwrap();
        let mut out = bytes::BytesMut::new();
        range.put(&mut out);
        prop_assert_eq!(KeyRange::get(&mut out.freeze()).unwrap(), range);
    }
}
