//! The load of segments, as a container publishes it.

use super::*;
use crate::load::TICK_MS;
use crate::read::Load;

const BY_EVENTS: Policy = Policy { scale_type: 2, target_rate: 10 };
const BY_KIB: Policy = Policy { scale_type: 1, target_rate: 10 };
const KIB: &[u8] = &[7; 1024];

fn create_with(name: &str, policy: Policy) -> Request {
    Request::Create { name: name.into(), kind: SegmentKind::Stream, policy, rollover_bytes: 0 }
}

impl World {
    fn end_ticks(&self, ticks: i64) {
        self.clock.advance(ticks * TICK_MS);
    }
}

impl Running {
    async fn writes_events(&self, connection: u64, number: i64, events: u32) {
        let put = Put {
            session: session(connection, 1),
            number,
            data: Bytes::from_static(KIB),
            events,
            expected_offset: None,
        };
        self.send(1_000, &Do::Append(put, WRITER)).await;
        self.settle().await;
    }

    fn loads(&self) -> Vec<Load> {
        self.handle.loads().page(-1, None, usize::MAX).unwrap().loads
    }
}

fn assert_rates(load: &Load, want: f64) {
    assert!(load.rates.iter().all(|rate| (rate - want).abs() < 1e-9), "{:?} is not {want}", load.rates);
}

#[test]
fn load_is_what_was_applied_and_is_known_again_after_a_crash() {
    on_paused_clock(async {
        let mut world = World::new(81);
        let running = world.open().await;
        for (connection, name, policy) in
            [(1, "events", BY_EVENTS), (2, "bytes", BY_KIB), (3, "fixed", Policy::default())]
        {
            running.request(1, create_with(name, policy)).await;
            running.request(2, set_up(session(connection, 1), name)).await;
        }
        for tick in 0..300 {
            for connection in 1..=3 {
                running.writes_events(connection, 2 * tick + 1, 7).await;
                running.writes_events(connection, 2 * tick + 2, 8).await;
            }
            world.end_ticks(1);
        }
        let before = running.loads();
        let names: Vec<&str> = before.iter().map(|load| &*load.name).collect();
        assert_eq!(names, ["events", "bytes"]);
        assert_rates(&before[0], 3.0);
        assert_rates(&before[1], 0.4);
        assert_eq!(before[0].age_ms, 300 * TICK_MS);
        world.end_ticks(7);
        let quiet = running.loads();
        world.crash(running, 3).await;
        let running = world.open().await;
        for (load, was) in running.loads().iter().zip(&quiet) {
            assert_eq!((&load.name, load.policy, load.age_ms), (&was.name, was.policy, was.age_ms));
            for (rate, was) in load.rates.iter().zip(was.rates) {
                assert!((rate - was).abs() < 1e-9, "{rate} was {was}");
            }
        }
    });
}

#[test]
fn transaction_counts_for_its_parent_over_its_whole_life() {
    on_paused_clock(async {
        let mut world = World::new(82);
        let running = world.open().await;
        let parent = "s/t/0.#epoch.0";
        let transaction = dhara_wire::name::transaction(parent, Uuid(5));
        running.request(1, create_with(parent, BY_EVENTS)).await;
        running.settle().await;
        world.end_ticks(100);
        running.request(2, create_with(&transaction, BY_EVENTS)).await;
        running.request(3, set_up(session(1, 1), &transaction)).await;
        for (number, events) in [(1, 100), (2, 200)] {
            running.writes_events(1, number, events).await;
        }
        world.end_ticks(59);
        assert_rates(&running.loads()[0], 0.0);
        let merge = Request::Merge { target: parent.into(), source: transaction, updates: Vec::new() };
        running.request(4, merge).await;
        running.settle().await;
        world.end_ticks(1);
        let loads = running.loads();
        assert_eq!(loads.len(), 1, "a transaction has no load of its own");
        // 300 events in 60 ticks are one a second; the fast average has seen nothing else.
        assert!((loads[0].rates[0] - 1.0).abs() < 1e-9, "{:?}", loads[0].rates);
        let weights = [120.0, 1200.0].map(|window: f64| (-300.0 / window).exp());
        assert!((loads[0].rates[1] - (1.0 - weights[0])).abs() < 0.02, "{:?}", loads[0].rates);
    });
}

#[test]
fn changed_policy_and_end_of_a_segment_show_at_once() {
    on_paused_clock(async {
        let mut world = World::new(83);
        let running = world.open().await;
        running.request(1, create("s", SegmentKind::Stream)).await;
        running.request(2, set_up(session(1, 1), "s")).await;
        running.writes_events(1, 1, 50).await;
        assert_eq!(running.loads(), []);
        running.request(3, Request::UpdatePolicy { name: "s".into(), policy: BY_EVENTS }).await;
        running.settle().await;
        world.end_ticks(1);
        assert_rates(&running.loads()[0], 10.0);
        running.request(4, Request::UpdatePolicy { name: "s".into(), policy: BY_KIB }).await;
        running.settle().await;
        assert_rates(&running.loads()[0], 0.2);
        running.request(5, Request::Delete { name: "s".into(), table: false, must_be_empty: false }).await;
        running.settle().await;
        assert_eq!(running.loads(), []);
        let handle = running.handle.clone();
        drop(running.stop().await);
        assert_eq!(handle.loads().page(-1, None, usize::MAX), None);
    });
}
