use super::*;
use crate::frame::{FrameHeader, take_frame};
use crate::peer::{FrameReader, ReaderConfig};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn encoded(command: &Command) -> BytesMut {
    let mut frame = BytesMut::new();
    command.encode(&mut frame);
    frame
}

/// How a byte of a good frame is spoilt.
fn mutate(frame: &mut [u8], mutations: &[(prop::sample::Index, u8)]) {
    for (at, byte) in mutations {
        frame[at.index(frame.len())] = *byte;
    }
}

#[test]
fn codes_and_names_are_unique() {
    let mut codes: Vec<i32> = TABLE.iter().map(|(code, ..)| *code).collect();
    let mut names: Vec<&str> = TABLE.iter().map(|(_, name, _)| *name).collect();
    codes.sort_unstable();
    names.sort_unstable();
    assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn unknown_and_retired_codes_are_errors() {
    for code in [6, 22, 72, 73, 101, 199, i32::MIN, i32::MAX] {
        assert_eq!(Command::decode(code, Bytes::new()), Err(DecodeError::Code { code }));
    }
}

#[test]
fn list_that_promises_more_than_came_is_refused() {
    for (element_bytes, count) in [(0, 1), (16, 2), (16, i32::MAX), (16, -1)] {
        let mut payload = BytesMut::new();
        payload.put_i64(1);
        payload.put_u32(0);
        payload.put_i32(count);
        payload.put_bytes(0, element_bytes);
        let decoded = Command::decode(UpdateTableEntries::CODE, payload.freeze());
        let max = element_bytes / 16;
        assert_eq!(decoded, Err(DecodeError::Length { length: i64::from(count), max }));
    }
}

proptest! {
    #[test]
    fn every_command_survives_its_frame(command in any_command()) {
        let mut frame = encoded(&command);
        let header = FrameHeader::peek(&frame).unwrap().unwrap();
        prop_assert_eq!((header.code, header.frame_bytes()), (command.code(), frame.len()));
        let (code, payload) = take_frame(&mut frame).unwrap().unwrap();
        prop_assert!(frame.is_empty());
        prop_assert_eq!(Command::decode(code, payload), Ok(command));
    }

    #[test]
    fn request_id_can_be_set_where_there_is_one(mut command in any_command(), id: i64) {
        let carries = command.request_id().is_some();
        command.set_request_id(id);
        prop_assert_eq!(command.request_id(), carries.then_some(id));
    }

    #[test]
    fn frame_cut_anywhere_is_incomplete_and_its_payload_no_panic(command in any_command()) {
        let frame = encoded(&command);
        for cut in 0..frame.len().min(200) {
            let mut short = BytesMut::from(&frame[..cut]);
            prop_assert_eq!(take_frame(&mut short), Ok(None));
            if let Some(payload) = frame.get(FRAME_HEADER_BYTES..cut)
                && let Ok(shorter) = Command::decode(command.code(), Bytes::copy_from_slice(payload))
            {
                // Only tails may be missing, and each has a value for that case.
                prop_assert!(encoded(&shorter).len() >= cut);
            }
        }
    }

    #[test]
    fn bytes_after_the_known_fields_are_ignored(command in any_command(), surplus in prop::collection::vec(any::<u8>(), 1..9)) {
        let takes_all = matches!(command.code(), AppendBlock::CODE | Padding::CODE | PartialEvent::CODE | TopLevelEvent::CODE);
        let mut payload = encoded(&command).split_off(FRAME_HEADER_BYTES);
        payload.extend_from_slice(&surplus);
        prop_assert!(takes_all || Command::decode(command.code(), payload.freeze()) == Ok(command));
    }

    #[test]
    fn mutated_frames_never_panic(command in any_command(), mutations in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..9)) {
        let mut frame = encoded(&command);
        mutate(&mut frame, &mutations);
        if let Ok(Some((code, payload))) = take_frame(&mut frame)
            && let Ok(decoded) = Command::decode(code, payload)
        {
            encoded(&decoded);
        }
    }
}

/// Peak resident memory of this process, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// a million mutated frames, a part of them with extreme numbers in the place of lengths.
#[test]
fn million_mutated_frames_neither_panic_nor_take_memory() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let frames: Vec<BytesMut> = (0..500)
        .map(|_| encoded(&any_command().new_tree(&mut runner).unwrap().current()))
        .filter(|frame| frame.len() < 1000)
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let before = peak_kib();
    let mut chance = 1_u64;
    let mut draw = |below: usize| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(chance >> 33).unwrap() % below
    };
    let mut decoded = 0;
    for round in 0..1_000_000_usize {
        let mut frame = frames[round % frames.len()].clone();
        for _ in 0..=draw(3) {
            let at = draw(frame.len());
            let extreme =
                [[0xff; 4], [0x7f, 0xff, 0xff, 0xff], [0x80, 0, 0, 0], [0, 0xff, 0xff, 0xf7]][draw(4)];
            let length = if draw(2) == 0 { 1 } else { 4 };
            for (to, from) in frame[at..].iter_mut().zip(&extreme[..length]) {
                *to = *from;
            }
        }
        let length = if draw(4) == 0 { draw(frame.len()) } else { frame.len() };
        let mut reader = FrameReader::new(&frame[..length], ReaderConfig::default());
        if let Ok(Some(frame)) = runtime.block_on(reader.next()) {
            decoded += usize::from(frame.command().is_ok());
        }
    }
    assert!(decoded > 100_000, "{decoded}");
    assert!(peak_kib() - before < 64 * 1024);
}
