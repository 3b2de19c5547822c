//! A segment of pieces anywhere, read through its view, beside its plain bytes.

use super::*;
use crate::log::{Log, LogEnds, LogError, LogRoom};
use crate::operation::{APPENDED_HEADER_BYTES, SegmentKind};
use crate::read::{ReadReply, View};
use crate::state::{AppendPlace, Core, Pieces};
use crate::types::LogAddress;
use proptest::collection::vec;
use proptest::prelude::*;

/// Where the first byte of the segment would lie in the log.
const ORIGIN: u64 = 1 << 20;

/// A log that holds all bytes of one segment back to back.
struct PlainLog {
    bytes: Bytes,
    /// Below this offset it has let go.
    gone_upto: u64,
}

impl Log for PlainLog {
    fn open(&self, _container: ContainerId) -> Result<LogEnds, LogError> {
        unreachable!("nobody opens it")
    }

    fn bytes(&self, at: LogAddress, len: u32) -> Result<Bytes, LogError> {
        let offset = at.0 - ORIGIN;
        if offset < self.gone_upto {
            return Err(LogError::Gone { address: at });
        }
        let from = usize::try_from(offset).unwrap();
        Ok(self.bytes.slice(from..from + to_usize(len)))
    }

    fn room(&self) -> LogRoom {
        LogRoom { admissible_bytes: 0, reserved_bytes: 0, used_bytes: 0, budget_bytes: 0 }
    }

    fn oldest(&self) -> LogAddress {
        LogAddress(ORIGIN)
    }

    fn close(&self) {}
}

/// Pieces of a segment: how long each is, and whether it lies in the log, in the object at hand, or in a next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Log,
    Here,
    Next,
}

fn any_piece() -> impl Strategy<Value = (Where, usize)> {
    let length = prop_oneof![4_096_usize..70_000, 60_000_usize..600_000, Just(UNIT), Just(65_536_usize)];
    (prop_oneof![Just(Where::Log), Just(Where::Here), Just(Where::Next)], length)
}

/// Where to read from, as a share of the whole, and how much at most; or on from where the last read ended.
fn any_read() -> impl Strategy<Value = (Option<prop::sample::Index>, usize)> {
    let length = prop_oneof![1_usize..100, 1_usize..400_000, Just(2 << 20)];
    (prop::option::weighted(0.3, any::<prop::sample::Index>()), length)
}

async fn publish(world: &World, parts: &[(Where, usize)], all: &Bytes) -> View {
    let (mut places, mut extents) = (Pieces::default(), Vec::new());
    let mut builder = ObjectBuilder::new(CONTAINER, object(0), 0, 0);
    let (mut at, mut counter) = (0, 0);
    for (lies, length) in parts {
        let offset = at as u64;
        let body = LogAddress(ORIGIN + offset - u64::from(APPENDED_HEADER_BYTES));
        let place = AppendPlace { batch: LogAddress(ORIGIN + offset), body, record_header_bytes: 0 };
        let length = *length as u64;
        places.append(SEGMENT, offset, length, place);
        let bytes = all.slice(at..at + parts_length(length));
        at += bytes.len();
        if *lies == Where::Log {
            continue;
        }
        if *lies == Where::Next && builder.ranges() > 0 {
            counter += 1;
            let next = ObjectBuilder::new(CONTAINER, object(counter), 0, 0);
            let full = std::mem::replace(&mut builder, next);
            world.objects.put(&full.finish()).await.unwrap();
        }
        let stored = builder.range(SEGMENT, offset, vec![bytes], vec![]);
        extents.push(Piece { offset, length, source: Source::Extent { stored, skip: 0 } });
    }
    if builder.ranges() > 0 {
        world.objects.put(&builder.finish()).await.unwrap();
    }
    let core = Core { exists: true, length: at as u64, ..Core::default() };
    let view = View::new(SEGMENT, "s".into(), SegmentKind::Stream, core);
    view.publish(|_, pieces| *pieces = places.with_extents(extents));
    view.pieces(|pieces| pieces.prove(0, at as u64)).unwrap();
    view
}

fn parts_length(length: u64) -> usize {
    usize::try_from(length).unwrap()
}

async fn agrees(
    parts: Vec<(Where, usize)>,
    reads: Vec<(Option<prop::sample::Index>, usize)>,
    config: ReadConfig,
) {
    let world = World::new(config);
    let all = pattern(parts.iter().map(|(_, length)| length).sum(), 5);
    let log = PlainLog { bytes: all.clone(), gone_upto: 0 };
    let view = publish(&world, &parts, &all).await;
    let mut at = 0;
    for (jump, bytes_max) in reads {
        at = jump.map_or(at, |jump| jump.index(all.len()));
        if at == all.len() {
            at = 0;
        }
        let read = view.read(&log, &world.reader, at as u64, bytes_max).await.unwrap();
        let ReadReply::Data { chunks, at_tail, end_of_segment } = read else { panic!("{read:?}") };
        let read = chunks.concat();
        assert!(!read.is_empty() && read.len() <= bytes_max);
        assert_eq!(read, all[at..at + read.len()], "{} bytes at {at}", read.len());
        at += read.len();
        assert_eq!((at_tail, end_of_segment), (at == all.len(), false));
        assert!(world.cache.inflight_bytes() <= config.inflight_bytes);
    }
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!((world.cache.inflight_bytes(), world.pins.pinned()), (0, 0));
    assert!(world.cache.cached_bytes() <= config.cache_bytes + config.cache_bytes / 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_read_is_what_was_written_wherever_it_lies(
        parts in vec(any_piece(), 1..10),
        reads in vec(any_read(), 1..40),
        cache_bytes in prop_oneof![Just(0_u64), Just(300_000), Just(4 << 20)],
        inflight_bytes in prop_oneof![Just(4 << 20_u64), Just(16 << 20)],
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(agrees(parts, reads, ReadConfig { cache_bytes, inflight_bytes }));
    }
}

#[tokio::test(start_paused = true)]
async fn read_of_extents_goes_on_into_the_log() {
    let world = World::new(small());
    let all = pattern(100_000, 5);
    let mut log = PlainLog { bytes: all.clone(), gone_upto: 0 };
    let view = publish(&world, &[(Where::Here, 50_000), (Where::Log, 50_000)], &all).await;
    let reply = |chunks, at_tail| ReadReply::Data { chunks, at_tail, end_of_segment: false };
    let read = view.read(&log, &world.reader, 10_000, 70_000).await.unwrap();
    assert_eq!(read, reply(vec![all.slice(10_000..50_000), all.slice(50_000..80_000)], false));
    let read = view.read(&log, &world.reader, 10_000, MIB).await.unwrap();
    assert_eq!(read, reply(vec![all.slice(10_000..50_000), all.slice(50_000..)], true));
    // A file that was recycled meanwhile is the next read's affair.
    log.gone_upto = 100_000;
    let read = view.read(&log, &world.reader, 10_000, MIB).await.unwrap();
    assert_eq!(read, reply(vec![all.slice(10_000..50_000)], false));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_moved_to_another_object_are_found_there() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[50_000]).await;
    let core = Core { exists: true, length: 50_000, ..Core::default() };
    let view = Arc::new(View::new(SEGMENT, "s".into(), SegmentKind::Stream, core));
    view.publish(|_, pieces| *pieces = Pieces::default().with_extents(extents));
    world.store.hold();
    let (reading, reader) = (Arc::clone(&view), world.reader.clone());
    let log = PlainLog { bytes: Bytes::new(), gone_upto: 0 };
    let read = tokio::spawn(async move { reading.read(&log, &reader, 0, 100).await });
    idle().await;
    let (moved, _) = world.put(2, 0, &[50_000]).await;
    view.publish(|_, pieces| *pieces = Pieces::default().with_extents(moved));
    world.objects.delete(object(1)).await.unwrap();
    world.store.let_go();
    let ReadReply::Data { chunks, .. } = read.await.unwrap().unwrap() else { panic!("there are bytes") };
    assert_eq!(chunks.concat(), bytes[..100]);
}
