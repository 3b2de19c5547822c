//! Whole frames as the reference writes them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of the test functions themselves")]
#![allow(clippy::too_many_lines, reason = "lists of frames")]

use bytes::{Bytes, BytesMut};
use dhara_wire::codec::{Blob, Rest, Uuid};
use dhara_wire::command::*;
use dhara_wire::frame::take_frame;

const WRITER: Uuid = Uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
/// Request id of a Java client's flow 1, sequence 0.
const FLOW: i64 = 1 << 32;
const HELLO: &str = "000000000000000568656c6c6f";
const PRAVEGA: &str = "000000000000000770726176656761";

fn segment() -> String {
    "sc/st/0.#epoch.0".to_owned()
}

fn table() -> String {
    "sc/kv_kvtable/0.#epoch.0".to_owned()
}

fn transaction() -> String {
    format!("{}#transaction.00000001000200038004000000000005", segment())
}

fn none() -> String {
    String::new()
}

fn bytes(hex: impl AsRef<str>) -> Bytes {
    let digits: Vec<u8> = hex
        .as_ref()
        .bytes()
        .map(|digit| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap())
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn end(
    size_of_whole_events: i32,
    data: &str,
    num_events: i32,
    last_event_number: i64,
    request_id: i64,
) -> AppendBlockEnd {
    AppendBlockEnd {
        writer_id: WRITER,
        size_of_whole_events,
        data: Blob(bytes(data)),
        num_events,
        last_event_number,
        request_id,
    }
}

fn key(key: &'static [u8], version: i64) -> TableKey {
    TableKey { key: Bytes::from_static(key), version }
}

fn entry(name: &'static [u8], version: i64, value: &'static [u8]) -> TableEntry {
    TableEntry { key: key(name, version), value: Bytes::from_static(value) }
}

#[test]
fn frames_are_those_of_the_reference() {
    for (command, hex) in frames() {
        let expected = bytes(hex);
        let mut encoded = BytesMut::new();
        command.encode(&mut encoded);
        assert_eq!(encoded, expected, "{}", command.name());
        let (code, payload) = take_frame(&mut encoded).unwrap().unwrap();
        assert_eq!(Command::decode(code, payload), Ok(command));
    }
}

#[test]
fn requests_of_the_rust_client_lack_their_tails() {
    let create: Command = CreateSegment {
        request_id: 1,
        segment: segment(),
        target_rate: 0,
        scale_type: 0,
        delegation_token: none(),
        rollover_size_bytes: 0,
    }
    .into();
    let create_table: Command = CreateTableSegment {
        request_id: 1,
        segment: table(),
        delegation_token: none(),
        sorted_deprecated: false,
        key_length: 0,
        rollover_size_bytes: 0,
    }
    .into();
    let merge: Command = MergeSegments {
        request_id: 1,
        target: segment(),
        source: transaction(),
        delegation_token: none(),
        attribute_updates: Vec::new(),
    }
    .into();
    let keys: Command = ReadTableKeys {
        request_id: 1,
        segment: table(),
        delegation_token: none(),
        suggested_key_count: 3,
        args: IteratorArgs::default(),
    }
    .into();
    let end: Command = end(13, HELLO, 1, 1, -1).into();
    for (command, tail_bytes) in [(create, 8), (create_table, 13), (merge, 4), (keys, 12), (end, 8)] {
        let mut encoded = BytesMut::new();
        command.encode(&mut encoded);
        let payload = encoded.freeze().slice(FRAME_HEADER_BYTES..);
        let short = payload.slice(..payload.len() - tail_bytes);
        assert_eq!(Command::decode(command.code(), short), Ok(command));
    }
}

fn frames() -> Vec<(Command, &'static str)> {
    let mut frames = appends();
    frames.extend(reads_and_tables());
    frames.extend(merges_and_errors());
    frames
}

fn appends() -> Vec<(Command, &'static str)> {
    vec![
        (Hello { high_version: 17, low_version: 5 }.into(), "ffffff81000000080000001100000005"),
        (
            SetupAppend { request_id: FLOW, writer_id: WRITER, segment: segment(), delegation_token: none() }
                .into(),
            concat!(
                "000000010000002c000000010000000000112233445566778899aabbccddeeff001073632f73742f302e2365",
                "706f63682e300000"
            ),
        ),
        (
            AppendSetup {
                request_id: FLOW,
                segment: segment(),
                writer_id: WRITER,
                last_event_number: i64::MIN,
            }
            .into(),
            concat!(
                "00000002000000320000000100000000001073632f73742f302e2365706f63682e3000112233445566778899",
                "aabbccddeeff8000000000000000"
            ),
        ),
        (
            AppendBlock { writer_id: WRITER, data: Rest(bytes(HELLO)) }.into(),
            "000000030000001d00112233445566778899aabbccddeeff000000000000000568656c6c6f",
        ),
        (
            end(13, "", 1, 1, FLOW).into(),
            concat!(
                "000000040000002c00112233445566778899aabbccddeeff0000000d00000000000000010000000000000001",
                "0000000100000000"
            ),
        ),
        (
            DataAppended {
                writer_id: WRITER,
                event_number: 1,
                previous_event_number: i64::MIN,
                request_id: FLOW,
                current_segment_write_offset: 13,
            }
            .into(),
            concat!(
                "000000070000003000112233445566778899aabbccddeeff0000000000000001800000000000000000000001",
                "00000000000000000000000d"
            ),
        ),
        (
            AppendBlock {
                writer_id: WRITER,
                data: Rest(bytes([HELLO, "fffffffe0000000700000000000000"].concat())),
            }
            .into(),
            concat!(
                "000000030000002c00112233445566778899aabbccddeeff000000000000000568656c6c6ffffffffe000000",
                "0700000000000000"
            ),
        ),
        (
            end(13, "0770726176656761", 2, 2, FLOW).into(),
            concat!(
                "000000040000003400112233445566778899aabbccddeeff0000000d00000008077072617665676100000002",
                "00000000000000020000000100000000"
            ),
        ),
        (
            AppendBlock {
                writer_id: WRITER,
                data: Rest(bytes([HELLO, "ffffffff0000000700000000000000"].concat())),
            }
            .into(),
            concat!(
                "000000030000002c00112233445566778899aabbccddeeff000000000000000568656c6c6fffffffff000000",
                "0700000000000000"
            ),
        ),
        (
            end(13, "", 1, 1, FLOW).into(),
            concat!(
                "000000040000002c00112233445566778899aabbccddeeff0000000d00000000000000010000000000000001",
                "0000000100000000"
            ),
        ),
        (
            AppendBlock { writer_id: WRITER, data: Rest::default() }.into(),
            "000000030000001000112233445566778899aabbccddeeff",
        ),
        (
            end(0, "", 1, 1, FLOW).into(),
            concat!(
                "000000040000002c00112233445566778899aabbccddeeff0000000000000000000000010000000000000001",
                "0000000100000000"
            ),
        ),
        (
            end(28, &[HELLO, PRAVEGA].concat(), 2, 2, 7).into(),
            concat!(
                "000000040000004800112233445566778899aabbccddeeff0000001c0000001c000000000000000568656c6c",
                "6f0000000000000007707261766567610000000200000000000000020000000000000007"
            ),
        ),
        (
            ConditionalAppend {
                writer_id: WRITER,
                event_number: 1,
                expected_offset: 13,
                event: Event(Bytes::from_static(b"hello")),
                request_id: 2 * FLOW + 2,
            }
            .into(),
            concat!(
                "000000050000003500112233445566778899aabbccddeeff0000000000000001000000000000000d00000000",
                "0000000568656c6c6f0000000200000002"
            ),
        ),
        (
            ConditionalCheckFailed { writer_id: WRITER, event_number: 1, request_id: 2 * FLOW + 2 }.into(),
            "000000080000002000112233445566778899aabbccddeeff00000000000000010000000200000002",
        ),
        (
            ConditionalBlockEnd {
                writer_id: WRITER,
                event_number: 0,
                expected_offset: 0,
                data: Blob(bytes(HELLO)),
                request_id: 3 * FLOW + 3,
            }
            .into(),
            concat!(
                "000000590000003900112233445566778899aabbccddeeff000000000000000000000000000000000000000d",
                "000000000000000568656c6c6f0000000300000003"
            ),
        ),
    ]
}

fn reads_and_tables() -> Vec<(Command, &'static str)> {
    vec![
        (
            ReadSegment {
                segment: segment(),
                offset: 0,
                suggested_length: 1 << 20,
                delegation_token: none(),
                request_id: 4 * FLOW,
            }
            .into(),
            concat!(
                "0000000900000028001073632f73742f302e2365706f63682e30000000000000000000100000000000000004",
                "00000000"
            ),
        ),
        (
            SegmentRead {
                segment: segment(),
                offset: 0,
                at_tail: true,
                end_of_segment: false,
                data: Blob(bytes(HELLO)),
                request_id: 4 * FLOW,
            }
            .into(),
            concat!(
                "0000000a00000035001073632f73742f302e2365706f63682e30000000000000000001000000000d00000000",
                "0000000568656c6c6f0000000400000000"
            ),
        ),
        (
            SegmentRead {
                segment: segment(),
                offset: 13,
                at_tail: false,
                end_of_segment: true,
                data: Blob::default(),
                request_id: 4 * FLOW,
            }
            .into(),
            concat!(
                "0000000a00000028001073632f73742f302e2365706f63682e30000000000000000d00010000000000000004",
                "00000000"
            ),
        ),
        (
            GetStreamSegmentInfo { request_id: 5, segment: segment(), delegation_token: none() }.into(),
            "0000000b0000001c0000000000000005001073632f73742f302e2365706f63682e300000",
        ),
        (
            StreamSegmentInfo {
                request_id: 5,
                segment: segment(),
                exists: true,
                is_sealed: false,
                is_deleted: false,
                last_modified: 1_700_000_000_000,
                write_offset: 13,
                start_offset: 0,
            }
            .into(),
            concat!(
                "0000000c000000350000000000000005001073632f73742f302e2365706f63682e300100000000018bcfe568",
                "00000000000000000d0000000000000000"
            ),
        ),
        (
            UpdateTableEntries {
                request_id: 9,
                segment: table(),
                delegation_token: none(),
                entries: vec![entry(b"k1", -1, b"v1")],
                table_segment_offset: -1,
            }
            .into(),
            concat!(
                "0000004a0000004c0000000000000009001873632f6b765f6b767461626c652f302e2365706f63682e300000",
                "000000010000000e000000026b31ffffffffffffffff00000006000000027631ffffffffffffffff"
            ),
        ),
        (
            TableEntriesUpdated { request_id: 9, updated_versions: vec![0] }.into(),
            "0000004b000000140000000000000009000000010000000000000000",
        ),
        (
            ReadTable {
                request_id: 10,
                segment: table(),
                delegation_token: none(),
                keys: vec![key(b"k1", i64::MIN), key(b"k2", i64::MIN)],
            }
            .into(),
            concat!(
                "0000004e0000004c000000000000000a001873632f6b765f6b767461626c652f302e2365706f63682e300000",
                "000000020000000e000000026b3180000000000000000000000e000000026b328000000000000000"
            ),
        ),
        (
            TableRead {
                request_id: 10,
                segment: table(),
                entries: vec![entry(b"k1", 0, b"v1"), entry(b"k2", -1, b"")],
            }
            .into(),
            concat!(
                "0000004f0000005c000000000000000a001873632f6b765f6b767461626c652f302e2365706f63682e300000",
                "00020000000e000000026b310000000000000000000000060000000276310000000e000000026b32ffffffff",
                "ffffffff0000000400000000"
            ),
        ),
        (
            ReadTableKeys {
                request_id: 11,
                segment: table(),
                delegation_token: none(),
                suggested_key_count: 10,
                args: IteratorArgs {
                    from_key: Bytes::from_static(b"a"),
                    to_key: Bytes::from_static(b"z"),
                    ..IteratorArgs::default()
                },
            }
            .into(),
            concat!(
                "000000530000003a000000000000000b001873632f6b765f6b767461626c652f302e2365706f63682e300000",
                "0000000a00000000000000000000000161000000017a"
            ),
        ),
    ]
}

fn merges_and_errors() -> Vec<(Command, &'static str)> {
    vec![
        (
            MergeSegments {
                request_id: 6,
                target: segment(),
                source: transaction(),
                delegation_token: none(),
                attribute_updates: vec![AttributeUpdate {
                    attribute_id: WRITER,
                    update_type: AttributeUpdateType::ReplaceIfEquals,
                    new_value: 9,
                    old_value: 8,
                }],
            }
            .into(),
            concat!(
                "0000003a000000800000000000000006001073632f73742f302e2365706f63682e30003d73632f73742f302e",
                "2365706f63682e30237472616e73616374696f6e2e3030303030303031303030323030303338303034303030",
                "30303030303030303500000000000100112233445566778899aabbccddeeff04000000000000000900000000",
                "00000008"
            ),
        ),
        (
            SegmentsMerged {
                request_id: 6,
                target: segment(),
                source: transaction(),
                new_target_write_offset: 26,
            }
            .into(),
            concat!(
                "0000003b000000610000000000000006001073632f73742f302e2365706f63682e30003d73632f73742f302e",
                "2365706f63682e30237472616e73616374696f6e2e3030303030303031303030323030303338303034303030",
                "303030303030303035000000000000001a"
            ),
        ),
        (
            SegmentsBatchMerged {
                request_id: 6,
                target: segment(),
                merged: vec![
                    MergedSource { source: "a".to_owned(), new_target_write_offset: 10 },
                    MergedSource { source: "b".to_owned(), new_target_write_offset: 20 },
                ],
            }
            .into(),
            concat!(
                "0000005b000000340000000000000006001073632f73742f302e2365706f63682e3000000002000161000000",
                "000000000a0001620000000000000014"
            ),
        ),
        (
            NoSuchSegment { request_id: 5, segment: segment(), server_stack_trace: none(), offset: -1 }
                .into(),
            "00000035000000240000000000000005001073632f73742f302e2365706f63682e300000ffffffffffffffff",
        ),
        (
            SegmentIsSealed { request_id: 5, segment: segment(), server_stack_trace: none(), offset: 3 }
                .into(),
            "00000033000000240000000000000005001073632f73742f302e2365706f63682e3000000000000000000003",
        ),
        (
            SegmentIsTruncated {
                request_id: 5,
                segment: segment(),
                start_offset: 100,
                server_stack_trace: none(),
                offset: 13,
            }
            .into(),
            concat!(
                "000000380000002c0000000000000005001073632f73742f302e2365706f63682e3000000000000000640000",
                "000000000000000d"
            ),
        ),
        (
            InvalidEventNumber {
                writer_id: WRITER,
                request_id: 5,
                server_stack_trace: none(),
                event_number: 3,
            }
            .into(),
            "000000370000002200112233445566778899aabbccddeeff000000000000000500000000000000000003",
        ),
        (
            AuthTokenCheckFailed { request_id: 5, server_stack_trace: none(), error_code: 1 }.into(),
            "0000003c0000000e0000000000000005000000000001",
        ),
        (KeepAlive {}.into(), "0000006400000000"),
    ]
}
