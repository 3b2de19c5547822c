use super::*;
use crate::load::TICK_MS;
use crate::operation::{Record, SegmentKind};
use crate::state::State;
use crate::types::{ContainerEpoch, SequenceNumber};
use dhara_stdx::clock::ManualClock;
use futures_util::FutureExt;

const BY_EVENTS: Policy = Policy { scale_type: 2, target_rate: 10 };

struct World {
    clock: Arc<ManualClock>,
    state: State,
    loads: Loads,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(0));
        let state = State::new(ContainerEpoch(1), SequenceNumber(0));
        Self { loads: Loads::new(clock.clone()), clock, state }
    }

    fn create(&mut self, name: &str, kind: SegmentKind, policy: Policy) -> SegmentId {
        let id = self.state.applied_upto().next();
        let time_ms = self.clock.wall_ms();
        let record = Record::Created { name: name.to_owned(), kind, policy, rollover_bytes: 0, time_ms };
        self.apply(&record);
        self.loads.follow(self.state.segment(SegmentId(id.0)).unwrap());
        SegmentId(id.0)
    }

    fn apply(&mut self, record: &Record) {
        let sequence = self.state.applied_upto().next();
        self.state.apply(sequence, record, &mut Vec::new());
    }

    fn change(&mut self, segment: SegmentId, record: &Record) {
        self.apply(record);
        self.loads.follow(self.state.segment(segment).unwrap());
    }

    fn note(&self, segment: SegmentId, events: u64) {
        let now_ms = self.clock.wall_ms();
        self.loads.note([Traffic { segment, events, bytes: 1024 * events, since_ms: now_ms, now_ms }]);
    }

    fn names(&self, cursor: i64) -> Vec<String> {
        let page = self.loads.page(cursor, None, usize::MAX).unwrap();
        page.loads.iter().map(|load| load.name.to_string()).collect()
    }
}

#[test]
fn only_open_segments_with_a_policy_by_rate_are_followed() {
    let mut world = World::new();
    let by_bytes = Policy { scale_type: 1, target_rate: 10 };
    let transaction = dhara_wire::name::transaction("s/t/0.#epoch.0", dhara_wire::codec::Uuid(7));
    for (name, kind, policy) in [
        ("s/fixed/0", SegmentKind::Stream, Policy::default()),
        ("s/unknown/0", SegmentKind::Stream, Policy { scale_type: 3, target_rate: 10 }),
        ("s/aimless/0", SegmentKind::Stream, Policy { scale_type: 2, target_rate: 0 }),
        ("s/table/0", SegmentKind::HashTable, BY_EVENTS),
        (transaction.as_str(), SegmentKind::Stream, BY_EVENTS),
        ("s/bytes/0", SegmentKind::Stream, by_bytes),
        ("s/events/0", SegmentKind::Stream, BY_EVENTS),
    ] {
        world.create(name, kind, policy);
    }
    assert_eq!(world.names(-1), ["s/bytes/0", "s/events/0"]);
    let sealed = SegmentId(6);
    world.change(sealed, &Record::Sealed { segment: sealed, time_ms: 0 });
    assert_eq!(world.names(-1), ["s/events/0"]);
    world.loads.forget(SegmentId(7));
    assert_eq!(world.names(-1), [""; 0]);
}

#[test]
fn policy_decides_what_is_counted_and_a_new_target_changes_no_rate() {
    let mut world = World::new();
    let id = world.create("s/t/0", SegmentKind::Stream, BY_EVENTS);
    world.note(id, 50);
    world.clock.advance(TICK_MS);
    let load = |world: &World| world.loads.page(-1, None, usize::MAX).unwrap().loads.remove(0);
    let rates = load(&world).rates;
    assert!(rates.iter().all(|rate| (rate - 10.0).abs() < 1e-9), "{rates:?}");
    assert_eq!(load(&world).age_ms, TICK_MS);
    let policy = Policy { target_rate: 99, ..BY_EVENTS };
    world.change(id, &Record::PolicySet { segment: id, policy });
    assert_eq!((load(&world).rates, load(&world).policy), (rates, policy));
    // Nothing was appended as far as the state knows, so counting begins anew.
    let policy = Policy { scale_type: 1, target_rate: 99 };
    world.change(id, &Record::PolicySet { segment: id, policy });
    assert!(load(&world).rates.iter().all(|rate| *rate < f64::MIN_POSITIVE));
}

#[test]
fn cursor_tells_of_what_came_since_and_of_nothing_else() {
    let mut world = World::new();
    let ids = ["a", "b", "c"].map(|name| world.create(name, SegmentKind::Stream, BY_EVENTS));
    world.note(ids[0], 1);
    let cursor = world.loads.page(-1, None, usize::MAX).unwrap().cursor;
    assert_eq!(world.loads.wait(cursor).now_or_never(), None, "nothing came since");
    world.note(ids[0], 1);
    assert_eq!(world.loads.wait(cursor).now_or_never(), None, "one reply a tick is enough");
    world.clock.advance(TICK_MS);
    world.note(ids[2], 1);
    assert_eq!(world.loads.wait(cursor).now_or_never(), Some(()));
    // The first one's tick ended only after the cursor was given.
    assert_eq!(world.names(cursor), ["a", "c"]);
    let cursor = world.loads.page(cursor, None, usize::MAX).unwrap().cursor;
    assert_eq!(world.names(cursor), ["c"]);
    for never_given in [cursor + 1, i64::MIN, i64::MAX] {
        assert_eq!(world.loads.wait(never_given).now_or_never(), Some(()));
        assert_eq!(world.names(never_given), ["a", "b", "c"]);
    }
}

#[test]
fn pages_make_up_all_segments_once_each_in_order_of_creation() {
    let mut world = World::new();
    let count = LOOK_SEGMENTS + 100;
    let all: Vec<String> = (0..count).map(|number| format!("s/t/{number}")).collect();
    for name in &all {
        world.create(name, SegmentKind::Stream, BY_EVENTS);
    }
    let (mut after, mut told, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = world.loads.page(-1, after, 5_000).unwrap();
        told.extend(page.loads.iter().map(|load| load.name.to_string()));
        let bytes: usize = page.loads.iter().map(|load| LOAD_BYTES + load.name.len()).sum();
        assert!(bytes < 5_000 + 100, "{bytes} in one page");
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(told, all);
    assert!(pages > 5, "{pages}");
}

#[tokio::test]
async fn whoever_waits_hears_of_traffic_and_of_the_end() {
    let mut world = World::new();
    let id = world.create("s/t/0", SegmentKind::Stream, BY_EVENTS);
    let cursor = world.loads.page(-1, None, usize::MAX).unwrap().cursor;
    world.clock.set(10 * TICK_MS);
    let World { loads, .. } = &world;
    tokio::join!(biased; loads.wait(cursor), async { world.note(id, 1) });
    let cursor = loads.page(-1, None, usize::MAX).unwrap().cursor;
    tokio::join!(biased; loads.wait(cursor), async { loads.close() });
    assert_eq!(loads.page(-1, None, usize::MAX), None);
}
