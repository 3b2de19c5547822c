//! The service over a store in memory: outcomes, and what crashes leave behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhara_stdx::{ManualClock, SeededEntropy};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::record::name::{HEAD, WORK_BUCKETS, stream_table, transaction_segment, work_table};
use crate::segment_client::memory::MemoryStore;
use crate::stream::{
    ScaleRequest, ScaleStatus, ScalingPolicy, Segment, StreamConfig, StreamCut, TransactionId,
    TransactionState,
};

/// A controller over a store that outlives it.
struct World {
    memory: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    seed: u64,
    service: Service,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl World {
    async fn new() -> Self {
        let (memory, clock) =
            (Arc::new(MemoryStore::default()), Arc::new(ManualClock::new(1_700_000_000_000)));
        Self::over(memory, clock, 1).await
    }

    async fn over(memory: Arc<MemoryStore>, clock: Arc<ManualClock>, seed: u64) -> Self {
        let store = Store::new(memory.clone(), clock.clone(), Arc::new(SeededEntropy::new(seed)));
        store.prepare().await.unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let engine = Arc::new(Engine::new(Arc::new(store), stop.clone()));
        let address = HostPort { host: String::from("127.0.0.1"), port: 1 };
        let config = ControllerConfig::local(address.clone(), 4);
        crate::background::spawn(&engine, &tasks, &stop, config.sweep_interval);
        Self { memory, clock, seed, service: Service::new(engine, config, address), stop, tasks }
    }

    /// Ends the controller where it is and starts another.
    async fn restart(self) -> Self {
        self.stop.cancel();
        self.service.engine.ended().await;
        self.tasks.close();
        self.tasks.wait().await;
        self.memory.heal();
        Self::over(self.memory, self.clock, self.seed + 1).await
    }

    async fn create(&self, segments: u32) {
        assert_eq!(self.service.create_scope("sc").await.unwrap(), ScopeCreation::Created);
        let created = self.service.create_stream("sc", "st", Ok(config(segments))).await.unwrap();
        assert_eq!(created, StreamCreation::Created);
    }

    async fn active(&self) -> Vec<SegmentId> {
        self.service.current_segments("sc", "st").await.unwrap().iter().map(Segment::id).collect()
    }

    async fn active_if_any(&self) -> Vec<SegmentId> {
        let active = self.service.current_segments("sc", "st").await.unwrap_or_default();
        active.iter().map(Segment::id).collect()
    }

    async fn split(&self, id: SegmentId, ranges: &[(f64, f64)]) -> Scaling {
        let request = ScaleRequest { seal: vec![id], ranges: ranges.to_vec() };
        let scaling = self.service.scale(("sc", "st"), &request).await.unwrap();
        if let Scaling::Started { epoch, .. } = &scaling {
            self.service.turn(&WorkItem::stream("sc", "st")).await.unwrap();
            let status = self.service.check_scale("sc", "st", *epoch).await.unwrap();
            assert_eq!(status, ScaleStatus::Success);
        }
        scaling
    }

    async fn write(&self, id: TransactionId, number: i32, data: &[u8]) {
        self.memory.append(&transaction_segment("sc", "st", number, id), data);
        tokio::task::yield_now().await;
    }

    async fn commit(&self, id: TransactionId) -> TransactionEnding {
        self.service.end(("sc", "st"), id, End::Commit(None)).await.unwrap()
    }

    async fn settle(&self) {
        self.service.turn(&WorkItem::stream("sc", "st")).await.unwrap();
    }

    async fn state(&self, id: TransactionId) -> Option<TransactionState> {
        self.service.transaction_state(("sc", "st"), id).await.unwrap()
    }

    /// Invariant 47: segments and rows name each other.
    async fn check_nothing_is_left_over(&self) {
        let mut named = BTreeSet::new();
        for scope in self.service.list_scopes("").await.unwrap().names {
            let page =
                self.service.list_in_scope(&scope, crate::record::name::Kind::Stream, "").await.unwrap();
            for stream in page.unwrap().names {
                let opened = self.service.open(&scope, &stream).await.unwrap();
                for epoch in opened.table.epochs(0..=opened.head.row.active_epoch).await.unwrap() {
                    named.extend(epoch.segments.iter().map(|part| segment(&scope, &stream, part.id())));
                }
            }
        }
        let there: BTreeSet<String> = self.memory.segments().into_keys().collect();
        assert_eq!(there, named, "segments on the store and segments in records");
    }
}

fn config(segments: u32) -> StreamConfig {
    StreamConfig::new(ScalingPolicy::fixed(segments))
}

#[tokio::test(start_paused = true)]
async fn created_stream_has_its_segments_and_its_mark_stream() {
    let world = World::new().await;
    world.create(2).await;
    assert_eq!(world.active().await, vec![SegmentId::new(0, 0), SegmentId::new(0, 1)]);
    assert!(world.service.stream_exists("sc", "_MARKst").await.unwrap());
    let again = world.service.create_stream("sc", "st", Ok(config(5))).await.unwrap();
    assert_eq!(again, StreamCreation::Exists);
    world.check_nothing_is_left_over().await;
}

#[tokio::test(start_paused = true)]
async fn refused_creation_leaves_nothing_behind() {
    let world = World::new().await;
    world.service.create_scope("sc").await.unwrap();
    let mut bad = config(1);
    bad.tags.insert(String::new());
    assert!(matches!(world.service.create_stream("sc", "st", Ok(bad)).await, Err(ServiceError::Invalid(_))));
    assert!(!world.service.stream_exists("sc", "st").await.unwrap());
    assert_eq!(world.service.delete_scope("sc").await.unwrap(), ScopeDeletion::Deleted);
}

#[tokio::test(start_paused = true)]
async fn recreated_stream_goes_on_with_segment_numbers() {
    let world = World::new().await;
    world.create(2).await;
    assert_eq!(world.service.seal_stream("sc", "st").await.unwrap(), StreamChange::Done);
    assert_eq!(world.service.delete_stream("sc", "st").await.unwrap(), StreamDeletion::Deleted);
    world.check_nothing_is_left_over().await;
    world.service.create_stream("sc", "st", Ok(config(1))).await.unwrap();
    assert_eq!(world.active().await, vec![SegmentId::new(0, 2)]);
}

#[tokio::test(start_paused = true)]
async fn successors_are_known_as_soon_as_a_segment_is_sealed() {
    let world = World::new().await;
    world.create(1).await;
    let first = SegmentId::new(0, 0);
    // Invariant 36: at every point at which the scale can stop, a sealed segment has successors.
    for calls in 0..40 {
        world.memory.fail_after(10_000, false);
        let request = ScaleRequest { seal: vec![first], ranges: vec![(0.0, 0.5), (0.5, 1.0)] };
        drop(world.service.scale(("sc", "st"), &request).await);
        world.memory.fail_after(calls, false);
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.memory.heal();
        let sealed = world.memory.segments().get("sc/st/0.#epoch.0").is_some_and(|found| found.sealed);
        if sealed {
            assert_eq!(
                world.service.successors("sc", "st", first).await.unwrap().len(),
                2,
                "after {calls} calls"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transactions_merge_in_the_order_of_their_commit_calls() {
    let world = World::new().await;
    world.create(1).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.service.begin("sc", "st", 30_000).await.unwrap().id);
    }
    for (place, id) in ids.iter().enumerate() {
        world.write(*id, 0, format!("{place}").as_bytes()).await;
    }
    for place in [2, 0, 3, 1] {
        assert_eq!(world.commit(ids[place]).await, TransactionEnding::Accepted);
    }
    world.settle().await;
    assert_eq!(world.memory.segments()["sc/st/0.#epoch.0"].data, b"2031");
    for id in ids {
        assert_eq!(world.state(id).await, Some(TransactionState::Committed));
    }
    world.check_nothing_is_left_over().await;
}

#[tokio::test(start_paused = true)]
async fn transaction_that_outlives_a_scale_is_merged_between_the_epochs() {
    let world = World::new().await;
    world.create(1).await;
    let id = world.service.begin("sc", "st", 30_000).await.unwrap().id;
    world.write(id, 0, b"txn").await;
    world.split(SegmentId::new(0, 0), &[(0.0, 0.5), (0.5, 1.0)]).await;
    assert_eq!(world.commit(id).await, TransactionEnding::Accepted);
    world.settle().await;
    assert_eq!(world.active().await, vec![SegmentId::new(3, 1), SegmentId::new(3, 2)]);
    let rolled = &world.memory.segments()["sc/st/0.#epoch.2"];
    assert_eq!((rolled.data.as_slice(), rolled.sealed), (b"txn".as_slice(), true));
    let next = world.service.successors("sc", "st", SegmentId::new(1, 1)).await.unwrap();
    assert_eq!(next.iter().map(|next| next.segment.id()).collect::<Vec<_>>(), vec![SegmentId::new(2, 0)]);
    world.check_nothing_is_left_over().await;
}

#[tokio::test(start_paused = true)]
async fn seal_drops_open_transactions_and_keeps_committed_ones() {
    let world = World::new().await;
    world.create(1).await;
    let open = world.service.begin("sc", "st", 30_000).await.unwrap().id;
    let committed = world.service.begin("sc", "st", 30_000).await.unwrap().id;
    world.write(open, 0, b"lost").await;
    world.write(committed, 0, b"kept").await;
    world.commit(committed).await;
    assert_eq!(world.service.seal_stream("sc", "st").await.unwrap(), StreamChange::Done);
    assert_eq!(world.memory.segments()["sc/st/0.#epoch.0"].data, b"kept");
    assert_eq!(world.state(open).await, Some(TransactionState::Aborted));
    assert!(matches!(world.service.begin("sc", "st", 30_000).await, Err(ServiceError::Precondition(_))));
    world.check_nothing_is_left_over().await;
}

#[tokio::test(start_paused = true)]
async fn transaction_is_kept_while_it_is_pinged_and_dropped_a_lease_after() {
    let world = World::new().await;
    world.create(1).await;
    let id = world.service.begin("sc", "st", 30_000).await.unwrap().id;
    for _ in 0..5 {
        world.clock.advance(50_000);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.service.ping(("sc", "st"), id, 30_000).await.unwrap(), Pinged::Renewed);
    }
    world.clock.advance(61_000);
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.settle().await;
    assert_eq!(world.state(id).await, Some(TransactionState::Aborted));
    assert_eq!(world.service.ping(("sc", "st"), id, 30_000).await.unwrap(), Pinged::Aborted);
}

#[tokio::test(start_paused = true)]
async fn truncation_moves_the_head_and_never_back() {
    let world = World::new().await;
    world.create(1).await;
    world.memory.append("sc/st/0.#epoch.0", b"0123456789");
    let cut = |offset| StreamCut::from_raw([(0, offset)]);
    let truncate = async |offset| world.service.truncate_stream(("sc", "st"), cut(offset)).await.unwrap();
    assert_eq!(truncate(5).await, StreamChange::Done);
    assert_eq!(truncate(5).await, StreamChange::Done);
    assert_eq!(truncate(4).await, StreamChange::Failed);
    assert_eq!(truncate(11).await, StreamChange::Failed, "beyond the end");
    assert_eq!(world.service.head_segments("sc", "st").await.unwrap(), cut(5));
    assert_eq!(world.memory.segments()["sc/st/0.#epoch.0"].start, 5);
}

/// Runs `act` against a store that dies after each possible number of calls, restarts twice, and compares the end
/// with that of an undisturbed run.
async fn crash_everywhere(prepare: impl AsyncFn(&World), act: impl AsyncFn(&World)) {
    let world = World::new().await;
    prepare(&world).await;
    let before = world.memory.calls();
    act(&world).await;
    world.settle().await;
    let calls = world.memory.calls() - before;
    let (segments, active) = (world.memory.segments(), world.active_if_any().await);
    for (after, lose_reply) in (0..calls).flat_map(|after| [(after, false), (after + 1, true)]) {
        let world = World::new().await;
        prepare(&world).await;
        world.memory.fail_after(after, lose_reply);
        let limit = Duration::from_secs(1);
        drop(timeout(limit, act(&world)).await);
        let world = world.restart().await;
        // The second crash comes in the middle of the recovery.
        world.memory.fail_after(12, true);
        drop(timeout(limit, world.settle()).await);
        let world = world.restart().await;
        drop(timeout(limit, act(&world)).await);
        world.settle().await;
        let at = format!("dead after {after} calls, reply lost: {lose_reply}");
        assert_eq!(world.active_if_any().await, active, "{at}");
        assert_eq!(world.memory.segments(), segments, "{at}");
        world.check_nothing_is_left_over().await;
    }
}

#[tokio::test(start_paused = true)]
async fn creation_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.service.create_scope("sc").await.unwrap();
    };
    crash_everywhere(prepare, async |world| {
        drop(world.service.create_stream("sc", "st", Ok(config(2))).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn scale_survives_a_crash_at_each_call() {
    let act = async |world: &World| {
        let request =
            ScaleRequest { seal: vec![SegmentId::new(0, 0)], ranges: vec![(0.0, 0.25), (0.25, 0.5)] };
        drop(world.service.scale(("sc", "st"), &request).await);
        world.settle().await;
    };
    crash_everywhere(async |world: &World| world.create(2).await, act).await;
}

#[tokio::test(start_paused = true)]
async fn update_survives_a_crash_at_each_call() {
    let act = async |world: &World| {
        drop(world.service.update_stream(("sc", "st"), Ok(config(3))).await);
    };
    crash_everywhere(async |world: &World| world.create(2).await, act).await;
}

#[tokio::test(start_paused = true)]
async fn rolling_commit_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(1).await;
        let id = world.service.begin("sc", "st", 600_000).await.unwrap().id;
        world.write(id, 0, b"txn").await;
        world.split(SegmentId::new(0, 0), &[(0.0, 0.5), (0.5, 1.0)]).await;
    };
    let act = async |world: &World| {
        drop(world.service.end(("sc", "st"), TransactionId::new(0, 1), End::Commit(None)).await);
        world.settle().await;
    };
    crash_everywhere(prepare, act).await;
}

#[tokio::test(start_paused = true)]
async fn commit_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(2).await;
        for counter in 1..=2 {
            let id = world.service.begin("sc", "st", 600_000).await.unwrap().id;
            world.write(id, 0, format!("a{counter}").as_bytes()).await;
            world.write(id, 1, format!("b{counter}").as_bytes()).await;
        }
    };
    let act = async |world: &World| {
        for counter in [2, 1] {
            drop(world.service.end(("sc", "st"), TransactionId::new(0, counter), End::Commit(None)).await);
        }
        world.settle().await;
    };
    crash_everywhere(prepare, act).await;
}

#[tokio::test(start_paused = true)]
async fn truncation_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(1).await;
        world.memory.append("sc/st/0.#epoch.0", b"0123456789");
        world.split(SegmentId::new(0, 0), &[(0.0, 0.5), (0.5, 1.0)]).await;
        world.memory.append("sc/st/1.#epoch.1", b"0123456789");
    };
    let act = async |world: &World| {
        let cut = [(SegmentId::new(1, 1).raw(), 4), (SegmentId::new(1, 2).raw(), 0)];
        drop(world.service.truncate_stream(("sc", "st"), StreamCut::from_raw(cut)).await);
    };
    let world = World::new().await;
    prepare(&world).await;
    act(&world).await;
    assert!(!world.memory.segments().contains_key("sc/st/0.#epoch.0"), "what lies before the cut is gone");
    for after in 0..20 {
        let world = World::new().await;
        prepare(&world).await;
        world.memory.fail_after(after, true);
        drop(timeout(Duration::from_secs(1), act(&world)).await);
        let world = world.restart().await;
        act(&world).await;
        let segments = world.memory.segments();
        assert!(!segments.contains_key("sc/st/0.#epoch.0"), "dead after {after} calls");
        assert_eq!(segments["sc/st/1.#epoch.1"].start, 4, "dead after {after} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn seal_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(2).await;
        let id = world.service.begin("sc", "st", 600_000).await.unwrap().id;
        world.write(id, 0, b"lost").await;
    };
    crash_everywhere(prepare, async |world: &World| drop(world.service.seal_stream("sc", "st").await)).await;
}

#[tokio::test(start_paused = true)]
async fn deletion_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(2).await;
        world.split(SegmentId::new(0, 0), &[(0.0, 0.25), (0.25, 0.5)]).await;
        world.service.seal_stream("sc", "st").await.unwrap();
    };
    crash_everywhere(prepare, async |world: &World| drop(world.service.delete_stream("sc", "st").await))
        .await;
}

#[tokio::test(start_paused = true)]
async fn scope_deletion_survives_a_crash_at_each_call() {
    let prepare = async |world: &World| {
        world.create(1).await;
        world.service.begin("sc", "st", 600_000).await.unwrap();
    };
    crash_everywhere(prepare, async |world: &World| drop(world.service.delete_scope_recursive("sc").await))
        .await;
}

#[tokio::test(start_paused = true)]
async fn work_list_is_empty_once_everything_rests() {
    let world = World::new().await;
    world.create(1).await;
    let work =
        || (0..WORK_BUCKETS).map(|bucket| world.memory.tables()[&work_table(bucket)].len()).sum::<usize>();
    assert!(work() > 0);
    for _ in 0..4 {
        world.clock.advance(61_000);
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    assert_eq!(work(), 0);
}

#[tokio::test(start_paused = true)]
async fn deleted_scope_leaves_no_table_behind() {
    let world = World::new().await;
    let fixed = world.memory.tables().len();
    world.create(1).await;
    world.service.begin("sc", "st", 30_000).await.unwrap();
    assert_eq!(world.service.delete_scope("sc").await.unwrap(), ScopeDeletion::NotEmpty);
    assert_eq!(world.service.delete_scope_recursive("sc").await.unwrap(), ScopeDeletion::Deleted);
    assert!(world.memory.segments().is_empty());
    // The ends of transactions outlive their streams by a day.
    let left = world.memory.tables().into_keys().filter(|name| !name.contains("/completed/")).count();
    assert_eq!(left, fixed);
}

#[tokio::test(start_paused = true)]
async fn listing_pages_yield_each_name_once_in_order() {
    let world = World::new().await;
    for place in 0..30 {
        world.service.create_scope(&format!("s{place:02}")).await.unwrap();
    }
    let first = world.service.list_scopes("").await.unwrap();
    assert_eq!(first.names.len(), 30);
    assert!(first.names.is_sorted());
    let last = world.service.list_scopes(&first.token).await.unwrap();
    assert!(last.names.is_empty() && last.token == first.token);
    assert!(matches!(world.service.list_scopes("no/token").await, Err(ServiceError::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn stream_table_is_found_again_after_deletion_elsewhere() {
    let world = World::new().await;
    world.create(1).await;
    let id = world.service.open("sc", "st").await.unwrap().table.id;
    assert!(world.memory.tables()[&stream_table(id)].contains_key(HEAD.as_bytes()));
    world.service.seal_stream("sc", "st").await.unwrap();
    world.service.delete_stream("sc", "st").await.unwrap();
    assert!(matches!(world.service.current_segments("sc", "st").await, Err(ServiceError::NotFound(_))));
    world.service.create_stream("sc", "st", Ok(config(1))).await.unwrap();
    assert_eq!(world.active().await, vec![SegmentId::new(0, 1)]);
}
