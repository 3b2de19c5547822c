use std::collections::BTreeSet;

use proptest::prelude::*;

use super::round::{MergePlan, ROUND_MAX, Round, next_round};
use super::*;
use crate::stream::sample::{Change, History, any_change, id};

const LIMITS: LeaseLimits = LeaseLimits::PRAVEGA;
const ALWAYS: i64 = i64::MIN;

fn begun(lease_ms: i64) -> Transaction {
    Transaction::begin(TransactionId::new(0, 1), lease_ms, LIMITS, 0).unwrap()
}

fn commit_call(order: u64) -> Commit {
    Commit { order, called_ms: 0, mark: None }
}

fn started(ending: Ending) -> Transaction {
    match ending {
        Ending::Start(transaction) => transaction,
        other => panic!("not started: {other:?}"),
    }
}

/// What happens to a stream with transactions; numbers choose modulo what there is.
#[derive(Debug, Clone)]
enum Event {
    Begin,
    Commit(usize),
    Change(Change),
    Merge,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Begin),
        4 => (0usize..64).prop_map(Event::Commit),
        1 => any_change().prop_filter("rolls come from merging", |change| !matches!(change, Change::Roll(_)))
            .prop_map(Event::Change),
        1 => Just(Event::Merge),
    ]
}

/// A stream, its queue, and what has been merged, with the places of begin and commit call in time.
struct Model {
    history: History,
    open: Vec<TransactionId>,
    queue: Vec<TransactionId>,
    merged: Vec<TransactionId>,
    begins: Vec<(TransactionId, usize)>,
    commits: Vec<(TransactionId, usize)>,
}

impl Model {
    fn at(times: &[(TransactionId, usize)], id: TransactionId) -> usize {
        times.iter().find(|(other, _)| *other == id).unwrap().1
    }

    fn apply(&mut self, event: &Event, now: usize) {
        match event {
            Event::Begin => {
                let counter = u64::try_from(self.begins.len()).unwrap();
                let id = TransactionId::new(self.history.active().reference_epoch, counter);
                self.open.push(id);
                self.begins.push((id, now));
            }
            Event::Commit(choice) if !self.open.is_empty() => {
                let id = self.open.swap_remove(choice % self.open.len());
                self.queue.push(id);
                self.commits.push((id, now));
            }
            Event::Commit(_) => {}
            Event::Change(change) => self.history.change(change),
            Event::Merge => self.merge(),
        }
    }

    fn merge(&mut self) {
        let Some(round) = next_round(&self.queue) else { return };
        let begun = self.history.epochs[usize::try_from(round.epoch).unwrap()].clone();
        let active = self.history.active().clone();
        let round = round.decided(&begun, &active, 5000);
        assert!(round.transactions.len() <= ROUND_MAX);
        let plan = round.plan(&begun, &active).unwrap();
        assert_eq!(round.plan(&begun, &active).unwrap(), plan, "a repetition does the same");
        let (merges, targets) = match plan {
            MergePlan::Direct(merges) => (merges, active),
            MergePlan::Rolling(rolling) => {
                self.history.change(&Change::Roll(usize::try_from(round.epoch).unwrap()));
                let targets = rolling.epochs.transactions.clone();
                assert_eq!(ids(&self.history.epochs[self.history.epochs.len() - 2]), ids(&targets));
                assert_eq!(ids(self.history.active()), ids(&rolling.epochs.active));
                (rolling.merges, targets)
            }
        };
        assert_eq!(merges.iter().map(|merge| merge.target).collect::<Vec<_>>(), ids(&targets));
        let numbers: BTreeSet<i32> = begun.segments.iter().map(|segment| segment.number).collect();
        for merge in &merges {
            assert!(numbers.contains(&merge.target.number()), "the transaction has a segment of that number");
            let merged: Vec<TransactionId> = merge.sources.iter().map(|(_, id)| *id).collect();
            assert_eq!(merged, round.transactions);
            assert!(merge.sources.iter().all(|(parent, id)| *parent == id.segment(merge.target.number())));
        }
        self.queue.retain(|id| !round.transactions.contains(id));
        self.merged.extend(round.transactions);
    }
}

fn ids(epoch: &crate::stream::epoch::EpochRecord) -> Vec<SegmentId> {
    epoch.segments.iter().map(crate::stream::segment::Segment::id).collect()
}

proptest! {
    /// Invariant 39.
    #[test]
    fn transactions_merge_once_in_the_order_of_their_commit_calls(
        events in proptest::collection::vec(any_event(), 0..80),
    ) {
        let history = History::new(2, 0);
        let (open, queue, merged) = (Vec::new(), Vec::new(), Vec::new());
        let mut model = Model { history, open, queue, merged, begins: Vec::new(), commits: Vec::new() };
        for (now, event) in events.iter().enumerate() {
            model.apply(event, now);
        }
        while !model.queue.is_empty() {
            model.merge();
        }
        prop_assert_eq!(model.merged.len(), model.commits.len());
        for (place, later) in model.merged.iter().enumerate() {
            for earlier in &model.merged[..place] {
                prop_assert_ne!(earlier, later);
                let in_call_order = Model::at(&model.commits, *earlier) < Model::at(&model.commits, *later);
                prop_assert!(in_call_order || earlier.epoch() < later.epoch());
                let overtaken = Model::at(&model.commits, *later) < Model::at(&model.begins, *earlier);
                prop_assert!(!overtaken, "begun after the other's commit call, merged before it");
            }
        }
    }

    /// Invariant 40.
    #[test]
    fn transaction_is_not_aborted_while_pinged_once_in_two_leases(
        lease_ms in 10_000i64..600_000, pauses in proptest::collection::vec(0.0..2.0f64, 0..40),
    ) {
        let mut transaction = begun(lease_ms);
        let mut now_ms = 0;
        for pause in pauses {
            #[allow(clippy::cast_possible_truncation, reason = "a lease is far below 2^53")]
            let pause_ms = (pause * f64::from(i32::try_from(lease_ms).unwrap())) as i64;
            now_ms += pause_ms;
            match transaction.ping(lease_ms, LIMITS, now_ms) {
                Ping::Renewed(renewed) => {
                    prop_assert!(!transaction.is_expired(ALWAYS, now_ms));
                    prop_assert!(renewed.lease_end_ms >= transaction.lease_end_ms);
                    transaction = renewed;
                }
                Ping::MaxExecutionTimeExceeded => {
                    prop_assert!(now_ms + lease_ms > transaction.execution_end_ms);
                    break;
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn ids_carry_their_epoch_and_never_repeat(
        epoch in 0..=i32::MAX, a in any::<u64>(), b in any::<u64>(), other in 0..=i32::MAX,
    ) {
        let (first, second) = (TransactionId::new(epoch, a), TransactionId::new(other, b));
        prop_assert_eq!(first.epoch(), epoch);
        prop_assert_eq!(first.high >> 32, i64::from(epoch));
        prop_assert!(first.low >= 0);
        prop_assert_eq!(first == second, a == b && epoch == other);
    }
}

#[test]
fn id_is_written_as_32_digits() {
    let id = TransactionId { high: 1 << 32, low: 3 };
    assert_eq!(id.to_string(), "00000001000000000000000000000003");
    assert_eq!(TransactionId::new(1, u64::MAX).to_string(), "00000001000000017fffffffffffffff");
}

#[test]
fn segments_of_a_transaction_are_named_after_its_epoch() {
    let mut history = History::new(2, 0);
    history.change(&Change::Scale { at: 0, count: 1, bounds: vec![0.5] });
    let transaction = TransactionId::new(history.active().reference_epoch, 0);
    let named: Vec<SegmentId> =
        history.active().segments.iter().map(|segment| transaction.segment(segment.number)).collect();
    assert_eq!(named, [id(1, 3), id(1, 2), id(1, 1)]);
}

#[test]
fn round_takes_at_most_a_hundred_of_the_oldest_epoch() {
    let old = (0..150).map(|counter| TransactionId::new(0, counter));
    let new = (150..200).map(|counter| TransactionId::new(3, counter));
    let queue: Vec<TransactionId> = new.clone().chain(old.clone()).collect();
    let round = next_round(&queue).unwrap();
    assert_eq!(round.transactions, old.take(100).collect::<Vec<_>>());
    assert_eq!(next_round(&new.collect::<Vec<_>>()).unwrap().transactions.len(), 50);
    assert_eq!(next_round(&[]), None);
}

#[test]
fn transactions_of_an_epoch_are_merged_directly_into_its_duplicate() {
    let mut history = History::new(1, 0);
    history.change(&Change::Scale { at: 0, count: 1, bounds: vec![0.5] });
    history.change(&Change::Roll(0));
    let transaction = TransactionId::new(history.active().reference_epoch, 0);
    let round = Round { epoch: 1, transactions: vec![transaction], rolling: None };
    let round = round.decided(&history.epochs[1], history.active(), 0);
    let MergePlan::Direct(merges) = round.plan(&history.epochs[1], history.active()).unwrap() else {
        panic!("rolled without need");
    };
    assert_eq!(merges[0].target, id(3, 2));
    assert_eq!(merges[0].sources, [(id(1, 2), transaction)]);
}

#[test]
fn lease_outside_the_limits_is_refused() {
    for lease_ms in [0, 1, 9_999, 600_001, -1, i64::MIN, i64::MAX] {
        assert!(Transaction::begin(TransactionId::new(0, 0), lease_ms, LIMITS, 0).is_err());
        assert!(matches!(begun(30_000).ping(lease_ms, LIMITS, 0), Ping::LeaseOutOfRange(_)));
    }
    for lease_ms in [10_000, 600_000] {
        assert!(Transaction::begin(TransactionId::new(0, 0), lease_ms, LIMITS, 0).is_ok());
    }
}

#[test]
fn life_is_a_thousand_leases_or_a_day() {
    assert_eq!(begun(10_000).execution_end_ms, 10_000_000);
    assert_eq!(begun(600_000).execution_end_ms, 86_400_000);
    let ping = begun(10_000).ping(600_000, LIMITS, 9_400_001);
    assert_eq!(ping, Ping::MaxExecutionTimeExceeded);
}

#[test]
fn decided_end_of_a_transaction_never_changes() {
    let committing = started(begun(10_000).commit(commit_call(4)));
    assert_eq!(committing.commit(commit_call(9)), Ending::Already);
    assert_eq!(committing.abort(), Ending::Refused(TransactionState::Committing));
    assert_eq!(committing.ping(10_000, LIMITS, 1), Ping::Committed);
    assert!(!committing.is_expired(ALWAYS, i64::MAX), "a commit call stops the lease");
    let aborting = started(begun(10_000).abort());
    assert_eq!(aborting.abort(), Ending::Already);
    assert_eq!(aborting.commit(commit_call(9)), Ending::Refused(TransactionState::Aborting));
    assert_eq!(aborting.ping(10_000, LIMITS, 1), Ping::Aborted);
    assert_eq!(committing.state.completed(), Some(TransactionState::Committed));
    assert_eq!(aborting.state.completed(), Some(TransactionState::Aborted));
    assert_eq!(TransactionState::Open.completed(), None);
}

#[test]
fn open_transactions_get_a_lease_when_the_controller_comes_back() {
    let transaction = begun(90_000);
    assert!(!transaction.is_expired(ALWAYS, 179_999));
    assert!(transaction.is_expired(ALWAYS, 180_000));
    assert!(!transaction.is_expired(300_000, 389_999));
    assert!(transaction.is_expired(300_000, 390_000));
}
