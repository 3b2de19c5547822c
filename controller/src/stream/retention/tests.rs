use proptest::prelude::*;

use super::*;
use crate::stream::cut::truncation::{TruncationRecord, truncate};
use crate::stream::cut::{Epochs, StreamCut, ValidCut};
use crate::stream::sample::{Change, History, Reader, any_history, any_steps, id};

/// A stream of one segment that grows by 10 bytes each ms, with a cut recorded every 100 ms.
struct Straight {
    history: History,
    recorded: Vec<Recorded>,
    moment: Moment,
}

impl Straight {
    fn at(now_ms: i64) -> Self {
        let history = History::new(1, 0);
        let cuts = (0..now_ms).step_by(100);
        let recorded =
            cuts.map(|ms| Recorded { recorded_ms: ms, size_bytes: 10 * ms, cut: at(&history, 10 * ms) });
        let recorded = recorded.collect();
        Self { history, recorded, moment: Moment { now_ms, size_bytes: 10 * now_ms } }
    }

    /// The offset at which the stream is truncated with a subscriber at `bound`.
    fn point(&self, policy: RetentionPolicy, bound: Option<i64>) -> Option<i64> {
        let bound =
            bound.map(|offset| SubscriberBound { cut: at(&self.history, offset), size_bytes: offset });
        let point = truncation_point(policy, &self.recorded, bound.as_ref(), self.moment);
        point.map(|cut| cut.positions()[0].1)
    }
}

fn at(history: &History, offset: i64) -> PlacedCut {
    StreamCut([(id(0, 0), offset)].into()).place(Epochs::new(&history.epochs)).unwrap()
}

fn by_time(min_ms: i64, max_ms: i64) -> RetentionPolicy {
    RetentionPolicy::Time { min_ms, max_ms }
}

fn by_size(min_bytes: i64, max_bytes: i64) -> RetentionPolicy {
    RetentionPolicy::Size { min_bytes, max_bytes }
}

#[test]
fn without_subscribers_the_minimum_is_kept() {
    let stream = Straight::at(1050);
    assert_eq!(stream.point(by_time(300, i64::MAX), None), Some(7000));
    assert_eq!(stream.point(by_size(3000, i64::MAX), None), Some(7000));
    assert_eq!(stream.point(by_time(2000, i64::MAX), None), None, "younger than the minimum");
    assert_eq!(stream.point(by_size(20_000, i64::MAX), None), None);
}

#[test]
fn time_policy_follows_its_table() {
    let stream = Straight::at(1050);
    assert_eq!(stream.point(by_time(300, 600), Some(9000)), Some(7000), "the minimum cut is before");
    assert_eq!(stream.point(by_time(300, 600), Some(5500)), Some(5500), "the bound is within the maximum");
    assert_eq!(stream.point(by_time(300, 2000), Some(5)), Some(5), "no cut is older than the maximum");
    assert_eq!(stream.point(by_time(300, 600), Some(2000)), Some(5000), "the reader lags beyond the maximum");
    assert_eq!(stream.point(by_time(2000, 3000), Some(2000)), None, "no cut keeps the minimum");
}

#[test]
fn size_policy_follows_its_table() {
    let stream = Straight::at(1050);
    assert_eq!(stream.point(by_size(3000, 6000), Some(9000)), Some(7000), "the bound keeps too little");
    assert_eq!(stream.point(by_size(3000, 6000), Some(5500)), Some(5500), "the bound is within the limits");
    assert_eq!(
        stream.point(by_size(3000, 6000), Some(2000)),
        Some(5000),
        "the reader lags beyond the maximum"
    );
    assert_eq!(stream.point(by_size(20_000, 30_000), Some(2000)), None);
}

#[test]
fn minimum_of_zero_leaves_what_is_newer_than_the_last_cycle() {
    let mut stream = Straight::at(1000);
    assert_eq!(stream.point(by_time(0, i64::MAX), None), Some(9000));
    let tail = Recorded { recorded_ms: 1000, size_bytes: 10_000, cut: at(&stream.history, 10_000) };
    stream.recorded.push(tail);
    assert_eq!(stream.point(by_time(0, i64::MAX), None), Some(9000), "the cut of this cycle does not count");
}

#[test]
fn cuts_that_cross_the_bound_give_way_to_one_before_it() {
    let history = History::new(2, 0);
    let cut =
        |a, b| StreamCut([(id(0, 0), a), (id(0, 1), b)].into()).place(Epochs::new(&history.epochs)).unwrap();
    let record = |ms, cut| Recorded { recorded_ms: ms, size_bytes: ms, cut };
    let recorded = [record(0, cut(0, 0)), record(100, cut(10, 10)), record(200, cut(20, 20))];
    let point = |bound, policy| {
        let bound = SubscriberBound { cut: bound, size_bytes: 290 };
        let moment = Moment { now_ms: 300, size_bytes: 300 };
        truncation_point(policy, &recorded, Some(&bound), moment).cloned()
    };
    assert_eq!(point(cut(15, 25), by_time(50, i64::MAX)), Some(cut(10, 10)));
    assert_eq!(point(cut(15, 25), by_size(50, i64::MAX)), Some(cut(10, 10)));
    let lagging = point(cut(5, 15), by_time(50, 150));
    assert_eq!(lagging, Some(cut(10, 10)), "crossed by the bound: the oldest cut is the maximum");
}

#[test]
fn cuts_before_the_head_are_obsolete() {
    let stream = Straight::at(400);
    assert_eq!(obsolete(&stream.recorded, &at(&stream.history, 2000)), [0, 100]);
}

#[test]
fn cycle_is_due_when_the_newest_cut_is_old_enough() {
    assert!(is_due(None, CYCLE_MS, 0));
    assert!(!is_due(Some(1), CYCLE_MS, CYCLE_MS));
    assert!(is_due(Some(1), CYCLE_MS, CYCLE_MS + 1));
}

#[test]
fn lower_bound_of_readers_around_a_merge_is_where_the_last_one_stands() {
    let mut history = History::new(2, 0);
    history.change(&Change::Scale { at: 0, count: 2, bounds: vec![] });
    let check = |entries: &[_]| {
        StreamCut(entries.iter().copied().collect()).check(Epochs::new(&history.epochs)).unwrap()
    };
    let (s0, s1, merged) = (id(0, 0), id(0, 1), id(1, 2));
    let first_done = check(&[(s1, 10), (merged, FUTURE)]);
    let both_done = check(&[(merged, 5)]);
    let bound = lower_bound(&[both_done.clone(), first_done.clone()]);
    assert_eq!(bound.as_ref(), Some(first_done.placed()));
    let behind = check(&[(s0, 3), (s1, 90)]);
    let bound = lower_bound(&[both_done, behind, first_done]);
    assert_eq!(bound.as_ref(), Some(check(&[(s0, 3), (s1, 10)]).placed()));
    assert_eq!(lower_bound(&[]), None);
}

#[test]
fn lower_bound_of_cuts_that_no_reader_makes_is_valid_too() {
    let mut history = History::new(2, 0);
    history.change(&Change::Scale { at: 0, count: 2, bounds: vec![] });
    history.change(&Change::Scale { at: 0, count: 1, bounds: vec![0.5] });
    let epochs = Epochs::new(&history.epochs);
    let check = |entries: &[_]| StreamCut(entries.iter().copied().collect()).check(epochs).unwrap();
    // The upper half is past the merge that the lower half has not reached.
    let torn = check(&[(id(0, 0), 5), (id(2, 3), 0)]);
    let bound = lower_bound(&[check(&[(id(1, 2), 7)]), torn]).unwrap().to_cut();
    assert_eq!(bound, StreamCut([(id(0, 0), 5), (id(1, 2), FUTURE)].into()));
    assert!(bound.check(epochs).is_ok());
}

proptest! {
    /// Invariant 43: unless it lags beyond the maximum, a subscriber is never passed.
    #[test]
    fn subscriber_within_the_maximum_is_never_passed(
        now_ms in 0i64..3000, min in 0i64..2000, more in 0i64..2000, offset in 0i64..30_000, time in any::<bool>(),
    ) {
        let offset = offset.min(10 * now_ms);
        let stream = Straight::at(now_ms);
        let scale = if time { 1 } else { 10 };
        let (min, max) = (min * scale, (min + more) * scale);
        let policy = if time { by_time(min, max) } else { by_size(min, max) };
        let Some(point) = stream.point(policy, Some(offset)) else { return Ok(()) };
        let kept = (10 * now_ms - offset) * scale / 10;
        prop_assert!(point <= offset || kept > max - 100 * scale, "{point} {offset} {kept}");
        prop_assert!((10 * now_ms - point) * scale / 10 >= min, "the minimum is kept");
    }

    #[test]
    fn lower_bound_is_a_valid_cut_that_nobody_has_passed(
        history in any_history(), walks in proptest::collection::vec(any_steps(25), 1..4),
    ) {
        let epochs = Epochs::new(&history.epochs);
        let places: Vec<ValidCut> = walks.iter().map(|steps| {
            let mut reader = Reader::at_start(&history);
            reader.walk(&history, steps);
            reader.cut().check(epochs).unwrap()
        }).collect();
        let bound = lower_bound(&places).unwrap();
        for place in &places {
            prop_assert_eq!(place.placed().compare(&bound), CutOrder::EqualOrAfter);
        }
        let valid = bound.to_cut().check(epochs);
        prop_assert!(valid.is_ok(), "{:?} {:?}", bound.to_cut(), valid);
        let head = ValidCut::start_of(&history.epochs[0]);
        prop_assert!(truncate(&TruncationRecord::default(), &head, &valid.unwrap(), epochs).is_ok());
        if let [only] = places.as_slice() {
            prop_assert_eq!(bound.compare(only.placed()), CutOrder::EqualOrAfter);
        }
    }
}
