//! Bodies of records.

use super::chance::Chance;
use bytes::{Bytes, BytesMut};
use dhara_segmentstore::operation::{Extent, Policy, RECORD_VERSION, Record, SegmentKind, TableChange};
use dhara_segmentstore::types::{ObjectId, SegmentId, Stored};
use dhara_wire::codec::Uuid;

const OBJECT: ObjectId = ObjectId { epoch: 3, counter: 9 };

/// One of each kind.
fn samples() -> Vec<Record> {
    let (segment, time_ms) = (SegmentId(7), 1_700_000_000_000);
    let policy = Policy { scale_type: 2, target_rate: 100 };
    let values = vec![(Uuid(1), 5), (Uuid(u128::MAX), i64::MIN)];
    let stored = Stored { object: OBJECT, at: 64, length: 30, first_block: 0, crc: 77 };
    let extents = vec![Extent { segment, offset: 90, length: 20, skip: 10, stored }; 2];
    let change =
        |key: &'static [u8], entry| TableChange { key: Bytes::from_static(key), entry, previous: Some(4) };
    let changes = vec![change(b"key", Some((9, Bytes::from_static(b"value")))), change(b"", None)];
    let kind = SegmentKind::Transient { connection: 3, epoch: 4 };
    vec![
        Record::Created { name: "scope/stream/0.#epoch.0".into(), kind, policy, rollover_bytes: 0, time_ms },
        Record::Appended {
            segment,
            offset: 10,
            events: 2,
            time_ms,
            writer: Uuid(8),
            number: 3,
            data: Bytes::from_static(b"some bytes"),
        },
        Record::Sealed { segment, time_ms },
        Record::Truncated { segment, start: 5 },
        Record::Deleted { segment },
        Record::PolicySet { segment, policy },
        Record::AttributesSet { segment, values: values.clone() },
        Record::Merged {
            target: segment,
            source: SegmentId(8),
            offset: 1,
            length: 2,
            events: 3,
            time_ms,
            values,
        },
        Record::TableChanged { segment, length: 90, entries: 2, time_ms, changes },
        Record::ObjectsPlanned { first: OBJECT, count: 4 },
        Record::ExtentsSet { object: OBJECT, level: 1, bytes: 200, extents },
        Record::ObjectsDead { objects: vec![OBJECT; 3] },
        Record::ObjectsGone { objects: vec![OBJECT] },
    ]
}

fn encoded(record: &Record) -> Bytes {
    let mut out = BytesMut::new();
    record.encode(&mut out);
    out.freeze()
}

pub(crate) fn body(chance: &mut Chance) -> bool {
    let samples = samples();
    let sample = chance.one_of(&samples);
    let kind = if chance.below(16) == 0 { chance.byte() } else { sample.kind() };
    let version = if chance.below(64) == 0 { chance.byte() } else { RECORD_VERSION };
    let bytes = Bytes::from(chance.damaged(&[encoded(sample).to_vec()]));
    let decoded = Record::decode(kind, version, bytes.clone());
    assert_eq!(decoded, Record::decode(kind, version, bytes));
    let Ok(record) = decoded else { return false };
    let again = Record::decode(record.kind(), RECORD_VERSION, encoded(&record));
    assert_eq!(again.as_ref(), Ok(&record));
    true
}
