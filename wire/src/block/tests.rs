use super::*;
use crate::codec::{Blob, Rest};
use crate::command::{ConditionalAppend, Event, KeepAlive, SetupAppend};
use crate::limits::EVENT_BYTES_MAX;
use bytes::BufMut;
use proptest::prelude::*;

const WRITER: Uuid = Uuid(7);

fn block(data: impl Into<Bytes>) -> AppendBlock {
    AppendBlock { writer_id: WRITER, data: Rest(data.into()) }
}

fn end(size_of_whole_events: i32, data: impl Into<Bytes>) -> AppendBlockEnd {
    AppendBlockEnd {
        writer_id: WRITER,
        size_of_whole_events,
        data: Blob(data.into()),
        num_events: 1,
        last_event_number: 4,
        request_id: 9,
    }
}

fn assemble(begin: AppendBlock, end: AppendBlockEnd) -> Result<Bytes, BlockError> {
    let mut assembler = BlockAssembler::new();
    assembler.begin(begin)?;
    assembler.end(end).map(|append| append.data)
}

/// `whole` events, then an element of type `code` that says it has `length` bytes.
fn with_element(whole: &[u8], code: i32, length: i32, body: &[u8]) -> Vec<u8> {
    let mut data = whole.to_vec();
    data.put_i32(code);
    data.put_i32(length);
    data.put_slice(body);
    data
}

#[test]
fn end_alone_is_an_append_whatever_size_it_says() {
    let data = Bytes::from_static(b"raw");
    let append = BlockAssembler::new().end(end(-5, data.clone())).unwrap();
    assert_eq!(
        append,
        Append { writer_id: WRITER, data: data.clone(), num_events: 1, last_event_number: 4, request_id: 9 }
    );
    assert_eq!(append.data.as_ptr(), data.as_ptr());
}

#[test]
fn exact_and_padded_blocks_are_not_copied() {
    let exact = Bytes::from_static(b"whole");
    assert_eq!(assemble(block(exact.clone()), end(5, "")).unwrap().as_ptr(), exact.as_ptr());
    let padded = Bytes::from(with_element(b"whole", -1, 3, &[0; 3]));
    let data = assemble(block(padded.clone()), end(5, "")).unwrap();
    assert_eq!((&data[..], data.as_ptr()), (&b"whole"[..], padded.as_ptr()));
}

#[test]
fn straddling_event_is_joined_with_its_rest() {
    let data = with_element(b"whole", -2, 4, b"part");
    assert_eq!(assemble(block(data.clone()), end(5, "rest")).unwrap(), "wholepartrest");
    assert_eq!(assemble(block(data), end(5, "")).unwrap(), "wholepart");
}

#[test]
fn empty_appends_are_appends() {
    assert_eq!(assemble(block(""), end(0, "")).unwrap(), "");
    assert_eq!(assemble(block(with_element(b"", -1, 2, &[0; 2])), end(0, "")).unwrap(), "");
}

#[test]
fn each_malformed_block_has_its_error() {
    let cases = [
        (block("abc"), end(-1, ""), BlockError::WholeEvents { whole_bytes: -1, block_bytes: 3 }),
        (block("abc"), end(4, ""), BlockError::WholeEvents { whole_bytes: 4, block_bytes: 3 }),
        (block("abcd"), end(3, ""), BlockError::ElementHeader { bytes: 1 }),
        (block([0; 7].to_vec()), end(0, ""), BlockError::ElementHeader { bytes: 7 }),
        (block(with_element(b"a", 0, 1, b"x")), end(1, ""), BlockError::ElementType { code: 0 }),
        (block(with_element(b"a", 3, 1, b"x")), end(1, ""), BlockError::ElementType { code: 3 }),
        (
            block(with_element(b"a", -2, 2, b"x")),
            end(1, ""),
            BlockError::ElementLength { length: 2, bytes: 1 },
        ),
        (
            block(with_element(b"a", -2, -1, b"x")),
            end(1, ""),
            BlockError::ElementLength { length: -1, bytes: 1 },
        ),
        (
            block(with_element(b"a", -1, 1, b"xy")),
            end(1, ""),
            BlockError::ElementLength { length: 1, bytes: 2 },
        ),
        (block(with_element(b"a", -1, 1, b"x")), end(1, "z"), BlockError::Surplus { bytes: 1 }),
        (block("a"), end(1, "zz"), BlockError::Surplus { bytes: 2 }),
        (
            block("a"),
            AppendBlockEnd { num_events: 0, ..end(1, "") },
            BlockError::EventCount { num_events: 0 },
        ),
        (
            block("a"),
            AppendBlockEnd { num_events: -1, ..end(1, "") },
            BlockError::EventCount { num_events: -1 },
        ),
        (
            block("a"),
            AppendBlockEnd { writer_id: Uuid(8), ..end(1, "") },
            BlockError::Writer { block: WRITER, end: Uuid(8) },
        ),
    ];
    for (begin, end, error) in cases {
        assert_eq!(assemble(begin, end), Err(error));
    }
}

#[test]
fn only_commands_that_do_not_append_pass_between_block_and_end() {
    let mut assembler = BlockAssembler::new();
    let setup: Command = SetupAppend {
        request_id: 1,
        writer_id: WRITER,
        segment: String::new(),
        delegation_token: String::new(),
    }
    .into();
    let conditional: Command = ConditionalAppend {
        writer_id: WRITER,
        event_number: 1,
        expected_offset: 0,
        event: Event::default(),
        request_id: 1,
    }
    .into();
    assert_eq!(assembler.check(&setup), Ok(()));
    assembler.begin(block("a")).unwrap();
    assert_eq!(assembler.check(&KeepAlive {}.into()), Ok(()));
    assert_eq!(assembler.check(&end(1, "").into()), Ok(()));
    for command in [setup, conditional, Padding { data: Rest::default() }.into(), block("b").into()] {
        assert_eq!(assembler.check(&command), Err(BlockError::Interrupted { command: command.name() }));
    }
    assert_eq!(assembler.begin(block("b")), Err(BlockError::Interrupted { command: "AppendBlock" }));
    assert!(assembler.end(end(1, "")).is_ok() && !assembler.is_open());
}

#[test]
fn builder_refuses_an_event_that_no_append_takes() {
    let mut builder = BlockBuilder::new();
    assert!(builder.push(&vec![0; EVENT_BYTES_MAX + 1]).is_err());
    assert!(builder.is_empty() && builder.take(WRITER, 1, 1).is_none());
    assert!(builder.has_room(EVENT_BYTES_MAX));
    builder.push(&vec![0; EVENT_BYTES_MAX]).unwrap();
    assert!(!builder.has_room(0));
}

/// The model: a writer with a block of `block_bytes` open sends `events`, the last of which may straddle it.
fn written(events: &[Vec<u8>], block_bytes: usize) -> (AppendBlock, AppendBlockEnd, Vec<u8>) {
    let framed: Vec<Vec<u8>> =
        events.iter().map(|event| with_element(&[], 0, i32::try_from(event.len()).unwrap(), event)).collect();
    let stored = framed.concat();
    let mut whole = Vec::new();
    for event in &framed {
        if whole.len() + event.len() >= block_bytes {
            // From here on the event travels as a partial one, even if it ends with the block.
            let room = block_bytes - whole.len();
            let straddling = &stored[whole.len()..whole.len() + event.len()];
            let (part, rest) = straddling.split_at(room);
            let size = i32::try_from(whole.len()).unwrap();
            let stored = [&whole, straddling].concat();
            return (
                block(with_element(&whole, -2, i32::try_from(room).unwrap(), part)),
                end(size, rest.to_vec()),
                stored,
            );
        }
        whole.extend_from_slice(event);
    }
    let size = i32::try_from(whole.len()).unwrap();
    let zeros = vec![0; block_bytes - whole.len()];
    (block(with_element(&whole, -1, i32::try_from(zeros.len()).unwrap(), &zeros)), end(size, ""), stored)
}

proptest! {
    #[test]
    fn every_block_yields_the_events_that_went_in(
        events in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8), block_bytes in 1_usize..200,
    ) {
        let (begin, end, stored) = written(&events, block_bytes);
        prop_assert_eq!(assemble(begin, end), Ok(Bytes::from(stored)));
    }

    #[test]
    fn built_appends_hold_events_behind_their_headers(events in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..600)) {
        let mut builder = BlockBuilder::new();
        let mut sent = Vec::new();
        let mut counted = 0;
        for event in &events {
            if !builder.has_room(event.len()) {
                let end = builder.take(WRITER, counted, 1).unwrap();
                prop_assert!(end.num_events <= 500);
                sent.extend_from_slice(&BlockAssembler::new().end(end).unwrap().data);
            }
            builder.push(event).unwrap();
            counted += 1;
        }
        let last = builder.take(WRITER, counted, 1).unwrap();
        prop_assert_eq!(last.last_event_number, counted);
        sent.extend_from_slice(&last.data.0);
        let expected: Vec<u8> = events.iter().flat_map(|event| with_element(&[], 0, i32::try_from(event.len()).unwrap(), event)).collect();
        prop_assert_eq!(sent, expected);
    }

    #[test]
    fn any_block_is_an_append_or_an_error(data in prop::collection::vec(any::<u8>(), 0..40), whole in -2..45_i32, rest in prop::collection::vec(any::<u8>(), 0..4)) {
        let sum = data.len() + rest.len();
        if let Ok(data) = assemble(block(data), end(whole, rest)) {
            prop_assert!(data.len() <= sum);
        }
    }
}
