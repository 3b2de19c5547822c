//! Frames of the segment store's protocol, as they come from a socket: cut, damaged, several at a time.

use super::chance::Chance;
use bytes::{Bytes, BytesMut};
use dhara_wire::block::BlockAssembler;
use dhara_wire::codec::{Blob, Rest, Uuid};
use dhara_wire::command::{
    AppendBlock, AppendBlockEnd, AttributeUpdate, AttributeUpdateType, Command, ConditionalAppend, Event,
    LoadRead, MergeSegments, Rate, ReadTableKeys, SegmentLoad, SetupAppend, TableEntry, TableKey,
    UpdateTableEntries,
};
use dhara_wire::frame::take_frame;

fn samples() -> Vec<Command> {
    let (segment, token) = (|| "scope/stream/0.#epoch.0".to_owned(), String::new);
    let key = TableKey { key: Bytes::from_static(b"key"), version: 3 };
    let entry = TableEntry { key, value: Bytes::from_static(b"value") };
    let data = || Bytes::from_static(b"\0\0\0\0\0\0\0\x05hello");
    let update = AttributeUpdate {
        attribute_id: Uuid(9),
        update_type: AttributeUpdateType::Accumulate,
        new_value: 1,
        old_value: 0,
    };
    let rates = [Rate(0.5); 5];
    let load = SegmentLoad { segment: segment(), scale_type: 2, target_rate: 10, rates, age_ms: 5 };
    vec![
        SetupAppend { request_id: 1, writer_id: Uuid(1), segment: segment(), delegation_token: token() }
            .into(),
        AppendBlock { writer_id: Uuid(1), data: Rest(data()) }.into(),
        AppendBlockEnd {
            writer_id: Uuid(1),
            size_of_whole_events: 13,
            data: Blob(Bytes::new()),
            num_events: 1,
            last_event_number: 1,
            request_id: 2,
        }
        .into(),
        ConditionalAppend {
            writer_id: Uuid(1),
            event_number: 1,
            expected_offset: 0,
            event: Event(Bytes::from_static(b"hello")),
            request_id: 3,
        }
        .into(),
        MergeSegments {
            request_id: 4,
            target: segment(),
            source: segment(),
            delegation_token: token(),
            attribute_updates: vec![update; 2],
        }
        .into(),
        UpdateTableEntries {
            request_id: 5,
            segment: segment(),
            delegation_token: token(),
            entries: vec![entry; 3],
            table_segment_offset: -1,
        }
        .into(),
        ReadTableKeys {
            request_id: 6,
            segment: segment(),
            delegation_token: token(),
            suggested_key_count: 10,
            args: dhara_wire::command::IteratorArgs::default(),
        }
        .into(),
        LoadRead {
            request_id: 7,
            container_id: 0,
            container_count: 4,
            cursor: 1,
            next: -1,
            loads: vec![load; 2],
        }
        .into(),
    ]
}

/// The commands at the start of `bytes`, up to the first that is none; what they append goes through its block.
fn commands(bytes: &[u8]) -> (Vec<Command>, bool) {
    let (mut rest, mut found) = (BytesMut::from(bytes), Vec::new());
    let mut blocks = BlockAssembler::new();
    loop {
        let Ok(Some((code, payload))) = take_frame(&mut rest) else { return (found, rest.is_empty()) };
        let Ok(command) = Command::decode(code, payload) else { return (found, false) };
        let taken = match command.clone() {
            Command::AppendBlock(block) => blocks.begin(block).is_ok(),
            Command::AppendBlockEnd(end) => blocks.end(end).is_ok(),
            other => blocks.check(&other).is_ok(),
        };
        found.push(command);
        if !taken {
            return (found, false);
        }
    }
}

pub(crate) fn frame(chance: &mut Chance) -> bool {
    let samples = samples();
    let mut frames = BytesMut::new();
    for _ in 0..=chance.below(3) {
        let from = chance.below(samples.len());
        samples[from].encode(&mut frames);
        // An append is not of much use without its end.
        if samples[from].code() == AppendBlock::CODE {
            samples[from + 1].encode(&mut frames);
        }
    }
    let bytes = chance.damaged(&[frames.to_vec()]);
    let (found, whole) = commands(&bytes);
    assert_eq!(commands(&bytes), (found.clone(), whole));
    for command in &found {
        let mut again = BytesMut::new();
        command.encode(&mut again);
        let (code, payload) = take_frame(&mut again).unwrap().unwrap();
        assert_eq!(Command::decode(code, payload).as_ref(), Ok(command));
    }
    whole
}
