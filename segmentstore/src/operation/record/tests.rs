//! Every record comes back as it was, from whole bytes only, and version 1 stays what it is.

use super::*;
use crate::types::Stored;
use proptest::collection::vec;
use proptest::prelude::*;

fn any_bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn any_values() -> impl Strategy<Value = Vec<(Uuid, i64)>> {
    vec((any::<u128>().prop_map(Uuid), any::<i64>()), 0..5)
}

fn any_kind() -> impl Strategy<Value = SegmentKind> {
    prop_oneof![
        Just(SegmentKind::Stream),
        (any::<u64>(), any::<u64>())
            .prop_map(|(connection, epoch)| SegmentKind::Transient { connection, epoch }),
        Just(SegmentKind::HashTable),
        any::<u16>().prop_map(|key_bytes| SegmentKind::FixedTable { key_bytes }),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (any::<i8>(), any::<i32>()).prop_map(|(scale_type, target_rate)| Policy { scale_type, target_rate })
}

fn any_change() -> impl Strategy<Value = TableChange> {
    let version = || 0..=i64::MAX;
    let entry = proptest::option::of((version(), any_bytes(20)));
    (any_bytes(20), entry, proptest::option::of(version())).prop_map(|(key, entry, previous)| TableChange {
        key,
        entry,
        previous,
    })
}

fn any_id() -> impl Strategy<Value = SegmentId> {
    any::<u64>().prop_map(SegmentId)
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![3 => any_segment_record(), 1 => any_object_record()]
}

fn any_segment_record() -> impl Strategy<Value = Record> {
    let numbers = || (any::<u64>(), any::<u64>(), any::<i64>());
    prop_oneof![
        (".{0,40}", any_kind(), any_policy(), any::<i64>(), any::<i64>()).prop_map(
            |(name, kind, policy, rollover_bytes, time_ms)| Record::Created {
                name,
                kind,
                policy,
                rollover_bytes,
                time_ms
            }
        ),
        (any_id(), any::<u32>(), numbers(), any::<u128>(), any::<i64>(), any_bytes(60)).prop_map(
            |(segment, events, (offset, _, time_ms), writer, number, data)| Record::Appended {
                segment,
                offset,
                events,
                time_ms,
                writer: Uuid(writer),
                number,
                data
            }
        ),
        (any_id(), any::<i64>()).prop_map(|(segment, time_ms)| Record::Sealed { segment, time_ms }),
        (any_id(), any::<u64>()).prop_map(|(segment, start)| Record::Truncated { segment, start }),
        any_id().prop_map(|segment| Record::Deleted { segment }),
        (any_id(), any_policy()).prop_map(|(segment, policy)| Record::PolicySet { segment, policy }),
        (any_id(), any_values()).prop_map(|(segment, values)| Record::AttributesSet { segment, values }),
        (any_id(), any_id(), numbers(), any::<u64>(), any_values()).prop_map(
            |(target, source, (offset, length, time_ms), events, values)| Record::Merged {
                target,
                source,
                offset,
                length,
                events,
                time_ms,
                values
            }
        ),
        (any_id(), numbers(), vec(any_change(), 0..5)).prop_map(
            |(segment, (length, entries, time_ms), changes)| Record::TableChanged {
                segment,
                length,
                entries,
                time_ms,
                changes
            }
        ),
    ]
}

fn any_object() -> impl Strategy<Value = ObjectId> {
    (any::<u32>(), any::<u32>()).prop_map(|(epoch, counter)| ObjectId { epoch, counter })
}

fn any_extents(object: ObjectId) -> impl Strategy<Value = Vec<Extent>> {
    let place = (any::<u32>(), any::<u32>(), any::<u32>());
    let extent = (any_id(), 0..u64::MAX / 2, 1..1_000_000_u32, 0..1_000_000_u32, place).prop_map(
        move |(segment, offset, length, skip, (at, first_block, crc))| {
            let stored = Stored { object, at, length: skip + length, first_block, crc };
            Extent { segment, offset, length, skip, stored }
        },
    );
    vec(extent, 0..5)
}

fn any_object_record() -> impl Strategy<Value = Record> {
    let objects = || vec(any_object(), 0..5);
    prop_oneof![
        (any::<u32>(), 0..1_000_u32, 1..1_000_u32).prop_map(|(epoch, counter, count)| {
            Record::ObjectsPlanned { first: ObjectId { epoch, counter }, count }
        }),
        (any_object(), any::<u8>(), any::<u32>()).prop_flat_map(|(object, level, bytes)| any_extents(object)
            .prop_map(move |extents| Record::ExtentsSet { object, level, bytes, extents })),
        objects().prop_map(|objects| Record::ObjectsDead { objects }),
        objects().prop_map(|objects| Record::ObjectsGone { objects }),
    ]
}

fn encoded(record: &Record) -> Bytes {
    let mut out = BytesMut::new();
    record.encode(&mut out);
    out.freeze()
}

/// Bytes of the body that the rest of it depends on; behind them anything goes, as data or a name.
fn open_ended(record: &Record) -> Option<usize> {
    match record {
        Record::Appended { .. } => Some(APPENDED_HEADER_BYTES as usize),
        Record::Created { .. } => Some(1 + 16 + 5 + 8 + 8),
        _ => None,
    }
}

proptest! {
    #[test]
    fn record_comes_back_as_it_was(record in any_record()) {
        let bytes = encoded(&record);
        prop_assert!(bytes.len() <= record.weight());
        prop_assert_eq!(Record::decode(record.kind(), RECORD_VERSION, bytes), Ok(record));
    }

    #[test]
    fn record_cut_at_any_byte_is_malformed_or_shorter_data(record in any_record()) {
        let bytes = encoded(&record);
        for cut in 0..bytes.len() {
            let decoded = Record::decode(record.kind(), RECORD_VERSION, bytes.slice(..cut));
            match open_ended(&record) {
                // Length and checksum of data and names are the log's: its record headers and frames hold them.
                Some(fields) if cut >= fields => {}
                _ => prop_assert_eq!(decoded, Err(RecordError::Malformed { kind: record.kind() })),
            }
        }
    }

    #[test]
    fn mutated_record_never_panics_and_says_what_it_says_twice(
        record in any_record(),
        kind in any::<u8>(),
        flips in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&record).to_vec();
        for (at, by) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= by;
            }
        }
        let bytes = Bytes::from(bytes);
        for kind in [kind, record.kind()] {
            if let Ok(decoded) = Record::decode(kind, RECORD_VERSION, bytes.clone()) {
                prop_assert_eq!(Record::decode(kind, RECORD_VERSION, encoded(&decoded)), Ok(decoded));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(kind in any::<u8>(), version in any::<u8>(), bytes in any_bytes(200)) {
        let decoded = Record::decode(kind, version, bytes);
        if version != RECORD_VERSION || kind == 0 || kind > OBJECTS_GONE {
            prop_assert_eq!(decoded, Err(RecordError::Unknown { kind, version }));
        }
    }
}

/// Checks the bytes of version 1, which logs in the field hold.
fn golden(record: &Record, kind: u8, fields: &[&str]) {
    let hex: Vec<String> = encoded(record).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.concat(), fields.concat(), "{record:?}");
    assert_eq!(record.kind(), kind);
    assert_eq!(RECORD_VERSION, 1);
}

const SEGMENT: SegmentId = SegmentId(0x0102);
const SEGMENT_HEX: &str = "0201000000000000";
const TIME_HEX: &str = "0500000000000000";
const WRITER: Uuid = Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const WRITER_HEX: &str = "ffeeddccbbaa99887766554433221100";
const NULL_HEX: &str = "ffffffffffffffff";

#[test]
fn created_has_the_bytes_of_version_1() {
    let kinds = [
        (SegmentKind::Stream, "00", "0000000000000000", "0000000000000000"),
        (SegmentKind::Transient { connection: 7, epoch: 9 }, "01", "0700000000000000", "0900000000000000"),
        (SegmentKind::HashTable, "02", "0000000000000000", "0000000000000000"),
        (SegmentKind::FixedTable { key_bytes: 256 }, "03", "0001000000000000", "0000000000000000"),
    ];
    for (kind, tag, first, second) in kinds {
        let policy = Policy { scale_type: 2, target_rate: -2 };
        let record = Record::Created { name: "s/é".into(), kind, policy, rollover_bytes: 3, time_ms: 5 };
        golden(&record, 1, &[tag, first, second, "02", "feffffff", "0300000000000000", TIME_HEX, "732fc3a9"]);
    }
}

#[test]
fn appended_has_the_bytes_of_version_1() {
    let data = Bytes::from_static(b"\x00ab");
    let record = Record::Appended {
        segment: SEGMENT,
        offset: 4,
        events: 6,
        time_ms: 5,
        writer: WRITER,
        number: -1,
        data,
    };
    golden(
        &record,
        2,
        &[SEGMENT_HEX, "0400000000000000", "06000000", TIME_HEX, WRITER_HEX, NULL_HEX, "006162"],
    );
}

#[test]
fn records_of_fixed_size_have_the_bytes_of_version_1() {
    golden(&Record::Sealed { segment: SEGMENT, time_ms: 5 }, 3, &[SEGMENT_HEX, TIME_HEX]);
    golden(&Record::Truncated { segment: SEGMENT, start: 8 }, 4, &[SEGMENT_HEX, "0800000000000000"]);
    golden(&Record::Deleted { segment: SEGMENT }, 5, &[SEGMENT_HEX]);
    let policy = Policy { scale_type: -1, target_rate: 1 };
    golden(&Record::PolicySet { segment: SEGMENT, policy }, 6, &[SEGMENT_HEX, "ff", "01000000"]);
}

#[test]
fn records_with_attributes_have_the_bytes_of_version_1() {
    let values = vec![(WRITER, 5), (Uuid(1), i64::MIN)];
    let values_hex =
        ["02000000", WRITER_HEX, TIME_HEX, "01000000000000000000000000000000", "0000000000000080"].concat();
    let record = Record::AttributesSet { segment: SEGMENT, values: values.clone() };
    golden(&record, 7, &[SEGMENT_HEX, &values_hex]);
    let record = Record::Merged {
        target: SEGMENT,
        source: SegmentId(1),
        offset: 2,
        length: 3,
        events: 4,
        time_ms: 5,
        values,
    };
    let numbers = ["0100000000000000", "0200000000000000", "0300000000000000", "0400000000000000"].concat();
    golden(&record, 8, &[SEGMENT_HEX, &numbers, TIME_HEX, &values_hex]);
}

#[test]
fn records_of_objects_have_the_bytes_of_version_1() {
    let object = ObjectId { epoch: 1, counter: 2 };
    let object_hex = "0100000002000000";
    golden(&Record::ObjectsPlanned { first: object, count: 3 }, 10, &[object_hex, "03000000"]);
    let stored = Stored { object, at: 64, length: 9, first_block: 1, crc: 0x0a0b_0c0d };
    let extent = Extent { segment: SEGMENT, offset: 5, length: 7, skip: 2, stored };
    let record = Record::ExtentsSet { object, level: 1, bytes: 99, extents: vec![extent] };
    let extent_hex = [SEGMENT_HEX, TIME_HEX, "07000000", "02000000"].concat();
    let stored_hex = ["40000000", "09000000", "01000000", "0d0c0b0a"].concat();
    golden(&record, 11, &[object_hex, "01", "63000000", "01000000", &extent_hex, &stored_hex]);
    golden(&Record::ObjectsDead { objects: vec![object] }, 12, &["01000000", object_hex]);
    golden(&Record::ObjectsGone { objects: vec![object] }, 13, &["01000000", object_hex]);
}

#[test]
fn table_changed_has_the_bytes_of_version_1() {
    let put = TableChange {
        key: Bytes::from_static(b"k"),
        entry: Some((3, Bytes::from_static(b"vv"))),
        previous: None,
    };
    let removed = TableChange { key: Bytes::from_static(b"l"), entry: None, previous: Some(1) };
    let record = Record::TableChanged {
        segment: SEGMENT,
        length: 9,
        entries: 1,
        time_ms: 5,
        changes: vec![put, removed],
    };
    let put_hex = ["01000000", "6b", NULL_HEX, "0300000000000000", "02000000", "7676"].concat();
    let removed_hex = ["01000000", "6c", "0100000000000000", NULL_HEX].concat();
    golden(
        &record,
        9,
        &[SEGMENT_HEX, "0900000000000000", "0100000000000000", TIME_HEX, "02000000", &put_hex, &removed_hex],
    );
}
