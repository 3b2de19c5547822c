//! Laws of reading objects: on a store that counts what it is asked, waits when told to, and lies when told to.

mod store;
mod whole;

use super::*;
use crate::tier::ObjectBuilder;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::time::Duration;
use store::{Fault, TestStore};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

const CONTAINER: ContainerId = ContainerId(3);
const SEGMENT: SegmentId = SegmentId(7);
const UNIT: usize = UNIT_BYTES as usize;
const MIB: usize = 1 << 20;
/// Longer than a reader that stays away is remembered.
const FORGOTTEN: Duration = Duration::from_secs(12);

fn object(counter: u32) -> ObjectId {
    ObjectId { epoch: 1, counter }
}

/// Bytes that differ from place to place.
fn pattern(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

struct World {
    store: Arc<TestStore>,
    objects: Objects,
    cache: ColdCache,
    reader: ColdReader,
    pins: Pins,
}

impl World {
    fn new(config: ReadConfig) -> Self {
        let store = Arc::new(TestStore::default());
        let objects = Objects::new(Arc::clone(&store) as _, CONTAINER);
        let (cache, pins) = (ColdCache::new(config, Handle::current()), Pins::default());
        let reader = ColdReader::new(CONTAINER, objects.clone(), pins.clone(), cache.clone());
        Self { store, objects, cache, reader, pins }
    }

    /// Stores ranges of these lengths, one after the other in a segment and in an object.
    async fn put(&self, counter: u32, offset: u64, lengths: &[usize]) -> (Vec<Piece>, Bytes) {
        let mut builder = ObjectBuilder::new(CONTAINER, object(counter), 0, 0);
        let (mut extents, mut all, mut at) = (Vec::new(), Vec::new(), offset);
        for length in lengths {
            let bytes = pattern(*length, at + 1);
            let stored = builder.range(SEGMENT, at, vec![bytes.clone()], vec![]);
            let length = *length as u64;
            extents.push(Piece { offset: at, length, source: Source::Extent { stored, skip: 0 } });
            all.extend_from_slice(&bytes);
            at += length;
        }
        self.objects.put(&builder.finish()).await.unwrap();
        (extents, all.into())
    }

    /// Reads in order in steps of at most `step` bytes, and compares.
    async fn scan(&self, extents: &[Piece], expected: &[u8], step: usize) {
        let begin = extents[0].offset;
        let mut at = 0;
        while at < expected.len() {
            let first = extents.iter().position(|extent| extent.end() > begin + at as u64).unwrap();
            let read = self.reader.read(SEGMENT, &extents[first..], begin + at as u64, step).await.unwrap();
            let read = read.concat();
            assert!(!read.is_empty() && read.len() <= step);
            assert_eq!(read, expected[at..at + read.len()], "at {at}");
            at += read.len();
        }
    }

    /// Reads as a task of its own.
    fn asks(
        &self,
        extents: &[Piece],
        offset: u64,
        bytes_max: usize,
    ) -> JoinHandle<Result<Vec<Bytes>, ColdError>> {
        let (reader, extents) = (self.reader.clone(), extents.to_vec());
        tokio::spawn(async move { reader.read(SEGMENT, &extents, offset, bytes_max).await })
    }

    async fn read(&self, extents: &[Piece], offset: u64, bytes_max: usize) -> Result<Vec<u8>, ColdError> {
        Ok(self.reader.read(SEGMENT, extents, offset, bytes_max).await?.concat())
    }
}

async fn idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn small() -> ReadConfig {
    ReadConfig { cache_bytes: 8 << 20, inflight_bytes: 64 << 20 }
}

#[tokio::test(start_paused = true)]
async fn bytes_wanted_by_many_at_once_are_fetched_once() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[MIB]).await;
    world.store.hold();
    let readers: Vec<_> = (0..50).map(|_| world.asks(&extents, 10, 1_000)).collect();
    idle().await;
    assert_eq!(world.store.ranges(), 1, "one GET is on its way");
    world.store.let_go();
    for read in join_all(readers).await {
        assert_eq!(read.unwrap().unwrap().concat(), bytes[10..1_010]);
    }
    assert_eq!((world.store.ranges(), world.store.footers()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn read_at_random_fetches_no_more_than_it_wants_in_whole_units() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[4 * MIB]).await;
    assert_eq!(world.read(&extents, 1_500_000, 100).await.unwrap(), bytes[1_500_000..1_500_100]);
    idle().await;
    assert_eq!(world.store.bytes_asked(), UNIT as u64);
    assert_eq!(world.read(&extents, 3 * UNIT as u64 - 1, 2).await.unwrap(), bytes[3 * UNIT - 1..=3 * UNIT]);
    idle().await;
    assert_eq!(
        (world.store.bytes_asked(), world.store.ranges()),
        (3 * UNIT as u64, 2),
        "both units in one GET"
    );
}

#[tokio::test(start_paused = true)]
async fn reader_in_order_has_more_and_more_fetched_ahead() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[24 * MIB]).await;
    let mut ahead = Vec::new();
    for step in 0..5 {
        let at = step * UNIT;
        assert_eq!(world.read(&extents, at as u64, UNIT).await.unwrap(), bytes[at..at + UNIT]);
        idle().await;
        ahead.push(world.store.bytes_asked() / MIB as u64);
    }
    assert_eq!(ahead, [0, 1, 2, 4, 8], "windows of 0, 1, 2, 4 and 8 MiB, in GETs of whole MiB");
    world.store.hold();
    let at = 5 * UNIT;
    assert_eq!(world.read(&extents, at as u64, UNIT).await.unwrap(), bytes[at..at + UNIT]);
    idle().await;
    assert_eq!(world.store.most_at_once(), 4, "a window of 16 MiB is fetched 2 MiB at a time, all at once");
    world.store.let_go();
    world.scan(&extents, &bytes, 2 * MIB).await;
}

#[tokio::test(start_paused = true)]
async fn what_follows_in_other_ranges_and_objects_is_fetched_ahead_too() {
    let world = World::new(small());
    let (mut extents, mut bytes) = (Vec::new(), Vec::new());
    for counter in 0..10 {
        let (more, data) = world.put(counter, bytes.len() as u64, &[30_000, 20_000]).await;
        extents.extend(more);
        bytes.extend_from_slice(&data);
    }
    assert_eq!(world.read(&extents, 0, 100).await.unwrap(), bytes[..100]);
    assert_eq!(world.read(&extents, 100, 100).await.unwrap(), bytes[100..200]);
    idle().await;
    assert_eq!(world.store.ranges(), 1 + 8, "as many as one reader may have under way");
    let read = world.read(&extents, 200, MIB).await.unwrap();
    assert_eq!(read, bytes[200..8 * 50_000], "a read goes on over ranges and objects that are there");
    assert_eq!(world.store.footers(), 0, "ranges of one block carry their checksum");
}

#[tokio::test(start_paused = true)]
async fn read_never_waits_for_what_lies_behind_bytes_that_are_there() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[50_000]).await;
    let (more, _) = world.put(2, 50_000, &[50_000]).await;
    let extents = [extents, more].concat();
    assert_eq!(world.read(&extents, 0, 10).await.unwrap(), bytes[..10]);
    world.store.hold();
    let read = world.reader.read(SEGMENT, &extents, 20, MIB).now_or_never();
    assert_eq!(read.unwrap().unwrap().concat(), bytes[20..]);
}

#[tokio::test(start_paused = true)]
async fn long_scan_does_not_wash_out_what_several_readers_want() {
    let world = World::new(small());
    let (hot, hot_bytes) = world.put(1, 0, &[MIB]).await;
    let (long, bytes) = world.put(2, 0, &[48 * MIB]).await;
    for _ in 0..3 {
        world.scan(&hot, &hot_bytes, MIB).await;
    }
    let before = world.store.ranges_of(object(1));
    // Small steps: what one reader takes in many bites is not thereby wanted by many.
    world.scan(&long, &bytes, 60_000).await;
    world.scan(&hot, &hot_bytes, MIB).await;
    assert_eq!(world.store.ranges_of(object(1)), before, "all of it was still there");
    assert!(world.cache.cached_bytes() <= (8 << 20) + (8 << 20) / 16);
}

#[tokio::test(start_paused = true)]
async fn unit_that_one_reader_takes_in_two_bites_is_used_once() {
    let world = World::new(small());
    let (hot, hot_bytes) = world.put(1, 0, &[4 * MIB]).await;
    let (long, _) = world.put(2, 0, &[48 * MIB]).await;
    for _ in 0..3 {
        world.scan(&hot, &hot_bytes, MIB).await;
    }
    let before = world.store.ranges_of(object(1));
    for phase in 0..5 {
        for unit in (phase..48 * 4).step_by(5) {
            for bite in [10, 110] {
                world.read(&long, unit * UNIT as u64 + bite, 100).await.unwrap();
            }
        }
        tokio::time::sleep(FORGOTTEN).await;
    }
    world.scan(&hot, &hot_bytes, MIB).await;
    assert_eq!(world.store.ranges_of(object(1)), before, "all of it was still there");
}

#[tokio::test(start_paused = true)]
async fn scan_fetches_each_byte_once() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[16 * MIB, 100_000, 7 * MIB + 5]).await;
    world.scan(&extents, &bytes, 300_000).await;
    assert_eq!(world.store.bytes_asked(), bytes.len() as u64);
    assert_eq!(world.store.footers(), 1);
}

#[tokio::test(start_paused = true)]
async fn budgets_hold_whatever_is_asked_for_and_are_empty_at_rest() {
    let inflight_bytes = 8 << 20;
    let world = World::new(ReadConfig { cache_bytes: 1 << 20, inflight_bytes });
    let (extents, _) = world.put(1, 0, &[32 * MIB]).await;
    world.store.hold();
    let readers: Vec<_> = (0..1_000_u64).map(|nth| world.asks(&extents, (nth % 31) << 20, MIB)).collect();
    idle().await;
    let mut replies = Vec::new();
    world.store.let_go();
    for reader in readers {
        replies.push(reader.await.unwrap().unwrap());
        assert!(world.cache.inflight_bytes() <= inflight_bytes, "while replies wait");
        assert!(world.store.bytes_under_way() <= inflight_bytes);
        if replies.len() > 1 {
            replies.remove(0);
        }
    }
    drop(replies);
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!((world.cache.inflight_bytes(), world.pins.pinned()), (0, 0));
    assert!(world.cache.cached_bytes() <= (1 << 20) + (1 << 16));
}

#[tokio::test(start_paused = true)]
async fn replies_that_have_not_left_make_others_wait() {
    let world = World::new(ReadConfig { cache_bytes: 1 << 20, inflight_bytes: 8 << 20 });
    let (extents, bytes) = world.put(1, 0, &[4 * MIB]).await;
    let held =
        [world.asks(&extents, 0, MIB).await.unwrap(), world.asks(&extents, 1 << 20, MIB).await.unwrap()];
    let waits = world.asks(&extents, 2 << 20, MIB);
    idle().await;
    assert!(!waits.is_finished(), "replies hold their share");
    drop(held);
    assert_eq!(waits.await.unwrap().unwrap().concat(), bytes[2 * MIB..3 * MIB]);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_ahead_is_let_go_when_its_reader_stays_away() {
    let world = World::new(small());
    let (extents, _) = world.put(1, 0, &[24 * MIB]).await;
    for step in 0..6 {
        world.read(&extents, step * UNIT as u64, UNIT).await.unwrap();
        idle().await;
    }
    assert!(world.cache.inflight_bytes() > 8 << 20, "much was read ahead");
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!(world.cache.inflight_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn reader_that_leaves_takes_nothing_from_others() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[MIB]).await;
    world.store.hold();
    let (leaves, stays) = (world.asks(&extents, 0, 100), world.asks(&extents, 0, 100));
    idle().await;
    leaves.abort();
    idle().await;
    world.store.let_go();
    assert_eq!(stays.await.unwrap().unwrap().concat(), bytes[..100]);
    assert_eq!(world.store.ranges(), 1);
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!((world.cache.inflight_bytes(), world.pins.pinned()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn wrong_bytes_are_fetched_again_and_never_handed_out() {
    for length in [50_000, MIB] {
        let world = World::new(small());
        let (extents, bytes) = world.put(1, 0, &[length]).await;
        world.store.fail(Fault::Rot, 1);
        assert_eq!(
            world.read(&extents, 5, 100).await.unwrap(),
            bytes[5..105],
            "the second time they were right"
        );
        let world = World::new(small());
        let (extents, bytes) = world.put(1, 0, &[length]).await;
        world.store.fail(Fault::Rot, 2);
        let error = world.read(&extents, 5, 100).await.unwrap_err();
        assert!(matches!(error, ColdError::Wrong { .. }), "{error:?}");
        assert!(error.to_string().contains("v1/c0003/objects/e00000001/00000001 from 64 on"), "{error}");
        let before = world.store.ranges();
        assert_eq!(world.read(&extents, 5, 100).await.unwrap(), bytes[5..105]);
        assert_eq!(world.store.ranges(), before + 1, "nothing wrong was kept");
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_fails_fails_its_reads_and_no_later_ones() {
    let world = World::new(small());
    let (extents, bytes) = world.put(1, 0, &[MIB]).await;
    let (other, more) = world.put(2, 0, &[MIB]).await;
    world.store.fail(Fault::Refuse, 2);
    assert_eq!(world.read(&other, 0, 10).await.unwrap(), more[..10], "the third time");
    world.store.fail(Fault::Refuse, 3);
    world.store.hold();
    let readers: Vec<_> = (0..3).map(|_| world.asks(&extents, 0, 10)).collect();
    idle().await;
    world.store.let_go();
    let read: Vec<bool> = join_all(readers).await.into_iter().map(|read| read.unwrap().is_ok()).collect();
    assert_eq!(read, [false, true, true], "who joined another's GET asks once itself");
    assert_eq!(world.read(&extents, 0, 10).await.unwrap(), bytes[..10]);
}

#[tokio::test(start_paused = true)]
async fn object_that_is_gone_is_told_apart() {
    let world = World::new(small());
    let (extents, _) = world.put(1, 0, &[MIB]).await;
    world.objects.delete(object(1)).await.unwrap();
    assert!(world.read(&extents, 0, 10).await.unwrap_err().is_gone());
}

#[tokio::test(start_paused = true)]
async fn closed_cache_ends_reads_under_way_and_later_ones() {
    let world = World::new(small());
    let (extents, _) = world.put(1, 0, &[MIB]).await;
    world.store.hold();
    let waits = world.asks(&extents, 0, 10);
    idle().await;
    world.cache.close().await;
    assert!(matches!(waits.await.unwrap(), Err(ColdError::Ended)));
    assert!(matches!(world.read(&extents, 0, 10).await, Err(ColdError::Ended)));
    assert_eq!(world.cache.inflight_bytes(), 0);
}
